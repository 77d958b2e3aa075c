/* SPDX-License-Identifier: Apache-2.0 */
/* page_about.c: the end of a page, see page.h: where, with what and how it was measured. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "page.h"

static void write_heads(const struct page *page, const char *first, const char *single) {
    fprintf(page->out, "<div class=\"scroll\"><table class=\"words\"><thead><tr><th>%s</th>",
            first);
    if (page->count > 1)
        fputs("<th>A</th><th>B</th>", page->out);
    else
        fprintf(page->out, "<th>%s</th>", single);
    fputs("</tr></thead><tbody>\n", page->out);
}

static void write_tail(const struct page *page) {
    fputs("</tbody></table></div></div>\n", page->out);
}

static void write_places(const struct page *page) {
    static const struct {
        const char *name, *path;
    } lines[] = {
        {"CPU", "machine.cpu"},
        {"architecture", "machine.architecture"},
        {"CPUs that could be used", "machine.cpus_usable"},
        {"CPUs", "machine.cpus_online"},
        {"bytes of memory", "machine.memory_bytes"},
        {"Linux", "machine.kernel"},
        {"weir", "versions.weir"},
        {"compiler", "versions.compiler"},
        {"C library", "versions.libc"},
        {"jansson", "versions.jansson"},
        {"device", "options.device"},
        {"trace", "options.trace"},
        {"rounds", "options.rounds"},
        {"started", "started"},
    };
    char text[PAGE_FILES_MAX][256];

    fputs("<div class=\"table\"><h3>Machine and versions</h3>\n", page->out);
    write_heads(page, "", "");
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        bool any = false, differ;
        for (unsigned file = 0; file < page->count; file++)
            any |= results_about(page->files[file], lines[i].path, text[file],
                                 sizeof(text[file]))[0] != '\0';
        if (!any)
            continue;
        differ = page->count > 1 && strcmp(text[0], text[1]) != 0;
        fprintf(page->out, "<tr><th>%s%s</th>", lines[i].name,
                differ ? " <span class=\"mark\">differs</span>" : "");
        for (unsigned file = 0; file < page->count; file++) {
            fputs("<td>", page->out);
            page_text(page->out, text[file]);
            fputs("</td>", page->out);
        }
        fputs("</tr>\n", page->out);
    }
    write_tail(page);
}

/* "size 65536, window 16": what was given, and the defaults. */
static void write_options(FILE *out, const json_t *options) {
    const char *name, *comma = "";
    const json_t *value;

    json_object_foreach((json_t *)(uintptr_t)options, name, value) {
        if (json_is_null(value) || json_is_false(value) || json_is_array(value) ||
            json_is_object(value))
            continue;
        fputs(comma, out);
        comma = ", ";
        page_text(out, name);
        if (json_is_string(value)) {
            fputc(' ', out);
            page_text(out, json_string_value(value));
        } else if (json_is_integer(value)) {
            fprintf(out, " %" JSON_INTEGER_FORMAT, json_integer_value(value));
        } else if (json_is_real(value)) {
            fprintf(out, " %g", json_real_value(value));
        }
    }
}

static void write_run(const struct page *page, const struct run *run) {
    fputs("<td>", page->out);
    if (run->name == NULL) {
        fputs("\342\200\223</td>", page->out);
        return;
    }
    fputs("weir ", page->out);
    page_text(page->out, run->command);
    fprintf(page->out, "<br/><small>rounds: %u, failed: %u, together %.1f s<br/>", run->rounds,
            run->failed, run->seconds);
    write_options(page->out, run->options);
    fputs("</small></td>", page->out);
}

/* The run of that name; its name is NULL when there is none. */
static struct run run_named(const struct results *results, const char *name) {
    for (size_t i = 0; i < results_runs(results); i++) {
        struct run run = results_run(results, i);
        if (strcmp(run.name, name) == 0)
            return run;
    }
    return (struct run){.name = NULL};
}

/* Each bench of either result once. */
static void write_runs(const struct page *page) {
    fputs("<div class=\"table wide\"><h3>Benches and options</h3>\n", page->out);
    write_heads(page, "bench", "command and options");
    for (unsigned file = 0; file < page->count; file++) {
        for (size_t i = 0; i < results_runs(page->files[file]); i++) {
            struct run run = results_run(page->files[file], i);
            if (file > 0 && run_named(page->files[0], run.name).name != NULL)
                continue;
            fprintf(page->out, "<tr><th>%s</th>", run.name);
            for (unsigned column = 0; column < page->count; column++) {
                struct run shown = run_named(page->files[column], run.name);
                write_run(page, &shown);
            }
            fputs("</tr>\n", page->out);
        }
    }
    write_tail(page);
}

void page_about(const struct page *page) {
    fputs("<section><h2>Where, with what and how</h2>\n<div class=\"tables\">\n", page->out);
    write_places(page);
    write_runs(page);
    fputs("</div></section>\n", page->out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* page_parts.c: the first screen of a page and its tables, see page.h. A figure looks the same
 * everywhere: the median over the rounds, and how far they are apart; of two results both medians,
 * and a mark if they differ by more than the rounds of either. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headline.h"
#include "page.h"

static const char *const classes[PAGE_FILES_MAX] = {"a", "b"};

static void figures_of(const struct page *page, const struct place *place,
                       struct figure figures[PAGE_FILES_MAX]) {
    for (unsigned i = 0; i < PAGE_FILES_MAX; i++)
        figures[i] =
            i < page->count ? results_figure(page->files[i], place) : (struct figure){.rounds = 0};
}

static bool any_of(const struct figure figures[PAGE_FILES_MAX]) {
    return figures[0].rounds > 0 || figures[1].rounds > 0;
}

/* The difference of B to A, where it is one. */
static void write_mark(FILE *out, const struct figure figures[PAGE_FILES_MAX], enum better better) {
    static const char *const names[] = {[VERDICT_SAME] = "",
                                        [VERDICT_BETTER] = "better",
                                        [VERDICT_WORSE] = "worse",
                                        [VERDICT_OTHER] = "differs"};
    enum verdict verdict = figure_compare(&figures[0], &figures[1], better);
    char change[32];

    if (verdict == VERDICT_SAME)
        return;
    fprintf(out, "<span class=\"mark %s\">%s %s</span>", names[verdict],
            figure_change_text(&figures[0], &figures[1], change), names[verdict]);
}

/* ---- the first screen --------------------------------------------------- */

/* One result's figure on a card, and how much it is of the limit. */
static void write_card_figure(const struct page *page, const struct headline *headline,
                              unsigned file, const struct figure *figure) {
    FILE *out = page->out;
    char text[32], spread[32];

    fprintf(out, "<div class=\"figure\"><b>");
    if (page->count > 1)
        fprintf(out, "<span class=\"name %s\">%c</span> ", classes[file], 'A' + (int)file);
    fprintf(out, "%s</b><small>%s</small></div>\n",
            figure->rounds > 0 ? figure_text(headline->unit, figure->median, text) : "\342\200\223",
            figure_spread_text(figure, spread));
    if (headline->share.bench == NULL || figure->rounds == 0)
        return;
    struct figure share = results_figure(page->files[file], &headline->share);
    if (share.rounds == 0)
        return;
    fprintf(out,
            "<div class=\"bar %s\" role=\"img\" aria-label=\"%s of the limit\">"
            "<i style=\"width:%.1f%%\"></i></div>\n",
            classes[file], figure_text(UNIT_LIMIT, share.median, text),
            100 * fmin(1, fmax(0, share.median)));
}

/* "93.1 % of 30.2 GB/s: vector copy of 64 KiB": of the first result that has it. */
static void write_card_limit(const struct page *page, const struct headline *headline) {
    char of[32], text[32];

    for (unsigned i = 0; headline->share.bench != NULL && i < page->count; i++) {
        struct figure share = results_figure(page->files[i], &headline->share);
        struct figure limit = results_figure(page->files[i], &headline->limit);
        const char *name = results_text(page->files[i], &headline->limit_name);
        if (share.rounds == 0 || limit.rounds == 0 || name == NULL)
            continue;
        fputs("<p><small>", page->out);
        if (page->count > 1)
            fprintf(page->out, "%c: ", 'A' + (int)i);
        fprintf(page->out, "%s of %s, ", figure_text(UNIT_LIMIT, share.median, of),
                figure_text(headline->unit, limit.median, text));
        page_text(page->out, name);
        fputs("</small></p>\n", page->out);
    }
}

static void write_cards(const struct page *page, const struct headline *headlines, size_t count) {
    struct figure figures[PAGE_FILES_MAX];

    fputs("<div class=\"cards\">\n", page->out);
    for (size_t i = 0; i < count; i++) {
        figures_of(page, &headlines[i].place, figures);
        if (!any_of(figures))
            continue;
        fprintf(page->out, "<div class=\"card\"><h3>%s</h3>\n", headlines[i].title);
        for (unsigned file = 0; file < page->count; file++)
            write_card_figure(page, &headlines[i], file, &figures[file]);
        if (page->count > 1)
            write_mark(page->out, figures, headlines[i].better);
        write_card_limit(page, &headlines[i]);
        fputs("</div>\n", page->out);
    }
    fputs("</div>\n", page->out);
}

/* A line about where a result is from. */
static void write_about(const struct page *page, unsigned file) {
    static const struct {
        const char *before, *path;
    } words[] = {{"", "machine.cpu"},
                 {", CPUs: ", "machine.cpus_usable"},
                 {", Linux ", "machine.kernel"},
                 {"; weir ", "versions.weir"},
                 {", device ", "options.device"},
                 {"; rounds: ", "options.rounds"},
                 {", ", "started"}};
    struct results *results = page->files[file];
    char text[256];

    fputs("<p class=\"about dim\">", page->out);
    if (page->count > 1) {
        fprintf(page->out, "<span class=\"name %s\">%c</span> ", classes[file], 'A' + (int)file);
        page_text(page->out, results->path);
        fputs(": ", page->out);
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fputs(words[i].before, page->out);
        page_text(page->out, results_about(results, words[i].path, text, sizeof(text)));
    }
    if (results_flag(results, "options.quick"))
        fputs("; <b>a quick run, whose figures say little</b>", page->out);
    if (!results_flag(results, "complete"))
        fputs("; <b>interrupted</b>", page->out);
    fputs("</p>\n", page->out);
}

static void write_failures(const struct page *page) {
    bool any = false;

    for (unsigned file = 0; file < page->count; file++) {
        for (size_t i = 0; i < results_runs(page->files[file]); i++) {
            struct run run = results_run(page->files[file], i);
            if (run.failed == 0)
                continue;
            fputs(any ? "" : "<div class=\"failed\"><h3>Failed</h3><ul>\n", page->out);
            any = true;
            fputs("<li>", page->out);
            if (page->count > 1)
                fprintf(page->out, "%c: ", 'A' + (int)file);
            fprintf(page->out, "%s, %u of %u rounds: ", run.name, run.failed, run.rounds);
            page_text(page->out, run.error);
            fputs("</li>\n", page->out);
        }
    }
    fputs(any ? "</ul></div>\n" : "", page->out);
}

void page_summary(const struct page *page) {
    const struct headline *headlines;
    size_t count = headline_machine(&headlines);

    fprintf(page->out, "<h1>%s</h1>\n",
            page->count > 1 ? "weir: two results compared"
                            : "What this machine can do, and how close weir is");
    for (unsigned i = 0; i < page->count; i++)
        write_about(page, i);
    if (page->count > 1)
        fputs("<p>Marked is what differs by more than the rounds of A, and those of B, are "
              "apart.</p>\n",
              page->out);
    write_failures(page);
    fputs("<h2>The machine, without weir</h2>\n", page->out);
    write_cards(page, headlines, count);
    fputs("<h2>weir on it</h2>\n", page->out);
    count = headline_all(&headlines);
    write_cards(page, headlines, count);
}

/* ---- tables ------------------------------------------------------------- */

#define COLUMNS_MAX 6
#define BENCHES_MAX 8

struct column {
    const char *head, *path;
    enum unit unit;
    enum better better;
};

/* A row for each of some benches (bench NULL), for each value of a key, or for each row of an array
 * (key NULL), whose name is the member `name`, if it has one. */
struct table {
    const char *title, *note;
    const char *benches[BENCHES_MAX];
    const char *bench, *array, *key, *name;
    const char *head; /* of the first column */
    enum unit unit;   /* of the key */
    struct column columns[COLUMNS_MAX];
};

#define SWEEP_COLUMNS                                                                              \
    {                                                                                              \
        {"rate", "bytes_per_s", UNIT_RATE, BETTER_MORE},                                           \
            {"op/s", "ops_per_s", UNIT_PER_S, BETTER_MORE},                                        \
            {"p50", "latency_ns.p50", UNIT_NS, BETTER_LESS},                                       \
            {"p99.9", "latency_ns.p999", UNIT_NS, BETTER_LESS},                                    \
            {"of limit", "fraction_of_limit", UNIT_LIMIT, BETTER_MORE},                            \
    }
#define ONE_BENCHES                                                                                \
    { "write hot", "write cold", "fill", "replay", "latency", "send latency", "wake", "pace" }

static const struct table tables[] = {
    {.title = "Rates",
     .note = "of pace, what goes without a pace; CPU time is that of an operation",
     .benches = ONE_BENCHES,
     .head = "bench",
     .columns = {{"rate", "bytes_per_s", UNIT_RATE, BETTER_MORE},
                 {"op/s", "ops_per_s", UNIT_PER_S, BETTER_MORE},
                 {"CPU", "cpu_ns_per_op.initiator", UNIT_NS, BETTER_LESS},
                 {"target", "cpu_ns_per_op.target", UNIT_NS, BETTER_LESS},
                 {"of limit", "fraction_of_limit", UNIT_LIMIT, BETTER_MORE}}},
    {.title = "Latencies",
     .note = "of what, the manual page weir(1) says for each bench",
     .benches = ONE_BENCHES,
     .head = "bench",
     .columns = {{"p50", "latency_ns.p50", UNIT_NS, BETTER_LESS},
                 {"p99", "latency_ns.p99", UNIT_NS, BETTER_LESS},
                 {"p99.9", "latency_ns.p999", UNIT_NS, BETTER_LESS},
                 {"p99.99", "latency_ns.p9999", UNIT_NS, BETTER_LESS},
                 {"max", "latency_ns.max", UNIT_NS, BETTER_LESS}}},
    {.title = "Writes by size",
     .bench = "sweep write",
     .array = "results",
     .key = "size",
     .head = "size",
     .unit = UNIT_BYTES,
     .columns = SWEEP_COLUMNS},
    {.title = "Reads by size",
     .bench = "sweep read",
     .array = "results",
     .key = "size",
     .head = "size",
     .unit = UNIT_BYTES,
     .columns = SWEEP_COLUMNS},
    {.title = "Messages by size",
     .bench = "sweep send",
     .array = "results",
     .key = "size",
     .head = "size",
     .unit = UNIT_BYTES,
     .columns = SWEEP_COLUMNS},
    {.title = "Paced loads",
     .note = "missed: by how much of the load",
     .bench = "pace",
     .array = "rows",
     .key = "percent",
     .head = "load",
     .unit = UNIT_PERCENT,
     .columns = {{"rate", "achieved_bytes_per_s", UNIT_RATE, BETTER_MORE},
                 {"missed", "error", UNIT_SHARE, BETTER_MORE},
                 {"p50", "latency_ns.p50", UNIT_NS, BETTER_LESS},
                 {"p99.9", "latency_ns.p999", UNIT_NS, BETTER_LESS},
                 {"max", "latency_ns.max", UNIT_NS, BETTER_LESS}}},
    {.title = "Plain copies by size, in caches",
     .bench = "limits",
     .array = "hot",
     .key = "size",
     .head = "size",
     .unit = UNIT_BYTES,
     .columns = {{"memcpy", "memcpy_bytes_per_s", UNIT_RATE, BETTER_MORE},
                 {"non-temporal", "nontemporal_bytes_per_s", UNIT_RATE, BETTER_MORE},
                 {"process_vm_writev", "process_vm_writev_bytes_per_s", UNIT_RATE, BETTER_MORE}}},
    {.title = "Many senders to one target",
     .note = "of mean: what the slowest has of the mean; fairness is 1 when all have as much",
     .benches = {"incast"},
     .head = "",
     .columns = {{"alone", "alone_bytes_per_s", UNIT_RATE, BETTER_MORE},
                 {"all", "sum_bytes_per_s", UNIT_RATE, BETTER_MORE},
                 {"slowest", "slowest_bytes_per_s", UNIT_RATE, BETTER_MORE},
                 {"fastest", "fastest_bytes_per_s", UNIT_RATE, BETTER_MORE},
                 {"of mean", "slowest_of_mean", UNIT_SHARE, BETTER_MORE},
                 {"fair", "fairness", UNIT_NUMBER, BETTER_MORE}}},
    {.title = "The senders",
     .bench = "incast",
     .array = "rows",
     .head = "sender",
     .columns = {{"rate", "bytes_per_s", UNIT_RATE, BETTER_MORE}}},
    {.title = "Storms of peers that connect at once",
     .bench = "storm",
     .array = "rows",
     .key = "peers",
     .head = "peers",
     .unit = UNIT_NUMBER,
     .columns = {{"up", "up", UNIT_NUMBER, BETTER_MORE},
                 {"failed", "failed", UNIT_NUMBER, BETTER_LESS},
                 {"took", "seconds", UNIT_S, BETTER_LESS},
                 {"handshakes", "handshakes_per_s", UNIT_PER_S, BETTER_MORE},
                 {"said again, each", "resent_per_handshake", UNIT_NUMBER, BETTER_LESS}}},
    {.title = "What a peer of a storm costs",
     .note = "CPU time of a handshake, of the crowd and of its target; memory of a peer",
     .bench = "storm",
     .array = "rows",
     .key = "peers",
     .head = "peers",
     .unit = UNIT_NUMBER,
     .columns = {{"CPU, crowd", "cpu_ns_per_handshake.crowd", UNIT_NS, BETTER_LESS},
                 {"target", "cpu_ns_per_handshake.target", UNIT_NS, BETTER_LESS},
                 {"engine", "memory_bytes_per_peer.engine", UNIT_BYTES, BETTER_LESS},
                 {"heap", "memory_bytes_per_peer.heap", UNIT_BYTES, BETTER_LESS},
                 {"segment", "memory_bytes_per_peer.segment", UNIT_BYTES, BETTER_LESS}}},
    {.title = "Faults",
     .note =
         "times are from the fault on; gap: without a completed write; back: at 90 % of the rate "
         "before, in steps; wrong: bytes",
     .bench = "faults",
     .array = "faults",
     .name = "name",
     .head = "fault",
     .columns = {{"at", "at_ms", UNIT_MS, BETTER_NEITHER},
                 {"gap", "gap_ms", UNIT_MS, BETTER_LESS},
                 {"back", "recovered_ms", UNIT_MS, BETTER_LESS},
                 {"replays", "replays", UNIT_NUMBER, BETTER_NEITHER},
                 {"lost", "lost", UNIT_NUMBER, BETTER_LESS},
                 {"wrong", "wrong_bytes", UNIT_NUMBER, BETTER_LESS}}},
};

static void write_cell(const struct page *page, const struct place *place,
                       const struct column *column) {
    struct figure figures[PAGE_FILES_MAX];
    FILE *out = page->out;
    char text[32];

    figures_of(page, place, figures);
    fputs("<td>", out);
    for (unsigned i = 0; i < page->count; i++) {
        if (page->count > 1)
            fprintf(out, "<span class=\"%s\">", classes[i]);
        fputs(figures[i].rounds > 0 ? figure_text(column->unit, figures[i].median, text)
                                    : "\342\200\223",
              out);
        if (page->count > 1)
            fputs("</span>", out);
    }
    if (page->count > 1)
        write_mark(out, figures, column->better);
    else if (figure_spread_text(&figures[0], text)[0] != '\0')
        fprintf(out, "<small>%s</small>", text);
    fputs("</td>", out);
}

static bool has_row(const struct page *page, const struct table *table, struct place place) {
    struct figure figures[PAGE_FILES_MAX];

    for (unsigned i = 0; i < COLUMNS_MAX && table->columns[i].head != NULL; i++) {
        place.path = table->columns[i].path;
        figures_of(page, &place, figures);
        if (any_of(figures))
            return true;
    }
    return false;
}

/* The table's beginning, before its first row. */
static void write_head(const struct page *page, const struct table *table) {
    FILE *out = page->out;

    fprintf(out, "<div class=\"table\"><h3>%s</h3>\n", table->title);
    if (table->note != NULL)
        fprintf(out, "<p><small>%s</small></p>\n", table->note);
    fprintf(out, "<div class=\"scroll\"><table%s><thead><tr><th>%s</th>",
            table->name != NULL ? " class=\"names\"" : "", table->head);
    for (unsigned i = 0; i < COLUMNS_MAX && table->columns[i].head != NULL; i++)
        fprintf(out, "<th>%s</th>", table->columns[i].head);
    fputs("</tr></thead><tbody>\n", out);
}

/* A row, if anything in it was measured, behind the head if it is the first. */
static void write_row(const struct page *page, const struct table *table, struct place place,
                      const char *name, bool *begun) {
    if (!has_row(page, table, place))
        return;
    if (!*begun)
        write_head(page, table);
    *begun = true;
    fputs("<tr><th>", page->out);
    page_text(page->out, name);
    fputs("</th>", page->out);
    for (unsigned i = 0; i < COLUMNS_MAX && table->columns[i].head != NULL; i++) {
        place.path = table->columns[i].path;
        write_cell(page, &place, &table->columns[i]);
    }
    fputs("</tr>\n", page->out);
}

/* The keys of both results, ascending. */
static unsigned keys_of(const struct page *page, const struct table *table, double *keys) {
    unsigned count = 0, kept = 0;

    for (unsigned i = 0; i < page->count; i++)
        count += results_keys(page->files[i], table->bench, table->array, table->key, keys + count);
    figure_sort(keys, count);
    for (unsigned i = 0; i < count; i++) {
        if (kept == 0 || keys[i] > keys[kept - 1])
            keys[kept++] = keys[i];
    }
    return kept;
}

static void write_keyed(const struct page *page, const struct table *table, bool *begun) {
    double *keys = malloc(PAGE_FILES_MAX * RESULTS_ROWS_MAX * sizeof(*keys));
    unsigned count = keys == NULL ? 0 : keys_of(page, table, keys);
    char name[32];

    for (unsigned i = 0; i < count; i++)
        write_row(page, table,
                  (struct place){.bench = table->bench,
                                 .pick = PICK_KEY,
                                 .array = table->array,
                                 .key = table->key,
                                 .value = keys[i]},
                  figure_text(table->unit, keys[i], name), begun);
    free(keys);
}

static void write_counted(const struct page *page, const struct table *table, bool *begun) {
    unsigned count = 0;

    for (unsigned i = 0; i < page->count; i++) {
        unsigned rows = results_rows(page->files[i], table->bench, table->array);
        count = rows > count ? rows : count;
    }
    for (unsigned i = 0; i < count; i++) {
        struct place place = {.bench = table->bench,
                              .path = table->name,
                              .pick = PICK_INDEX,
                              .array = table->array,
                              .value = i};
        const char *named = NULL;
        char name[128];
        for (unsigned file = 0; table->name != NULL && file < page->count; file++)
            named = named != NULL ? named : results_text(page->files[file], &place);
        snprintf(name, sizeof(name), named != NULL ? "%u: %s" : "%u", i + 1, named);
        write_row(page, table, place, name, begun);
    }
}

void page_tables(const struct page *page) {
    fputs("<section><h2>Tables</h2>\n<p class=\"dim\">Medians over the rounds", page->out);
    fputs(page->count > 1 ? "; B against A.</p>\n" : ", and how far the rounds are apart.</p>\n",
          page->out);
    fputs("<div class=\"tables\">\n", page->out);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        const struct table *table = &tables[i];
        bool begun = false;

        for (unsigned j = 0; j < BENCHES_MAX && table->benches[j] != NULL; j++)
            write_row(page, table, (struct place){.bench = table->benches[j]}, table->benches[j],
                      &begun);
        if (table->key != NULL)
            write_keyed(page, table, &begun);
        else if (table->array != NULL)
            write_counted(page, table, &begun);
        fputs(begun ? "</tbody></table></div></div>\n" : "", page->out);
    }
    fputs("</div></section>\n", page->out);
}

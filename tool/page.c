/* SPDX-License-Identifier: Apache-2.0 */
/* page.c: the frame of a page, see page.h, and `weir report`. A page is made in memory, and becomes
 * a file when it is whole and nothing in the results was odd. */
#define _GNU_SOURCE
#include "page.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "file.h"
#include "host.h"

#define NO_CHARACTER "\357\277\275" /* U+FFFD, which stands for a character that is none */

/* How many bytes the character has at the beginning of text; 0: it is none of UTF-8, or one that
 * XML cannot have. */
static unsigned character_length(const char *text) {
    static const uint32_t least[] = {0, 0x20, 0x80, 0x800, 0x10000}; /* by length */
    unsigned char lead = (unsigned char)*text;
    unsigned length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t code = length == 1 ? lead : lead & (0x7fu >> length);

    if ((lead & 0xc0) == 0x80 || lead > 0xf4)
        return 0;
    for (unsigned i = 1; i < length; i++) {
        unsigned char next = (unsigned char)text[i];
        if ((next & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (next & 0x3fu);
    }
    if (code < least[length] || code == 0x7f || (code >= 0xd800 && code < 0xe000) ||
        code == 0xfffe || code == 0xffff || code > 0x10ffff)
        return 0;
    return length;
}

void page_text(FILE *out, const char *text) {
    while (*text != '\0') {
        unsigned length = character_length(text);
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        default:
            if (length > 0)
                fwrite(text, 1, length, out);
            else
                fputs(NO_CHARACTER, out);
        }
        text += length > 0 ? length : 1;
    }
}

static void head(const struct page *page) {
    fputs("<!DOCTYPE html>\n"
          "<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\"><head>\n"
          "<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>",
          page->out);
    if (page->count > 1)
        fputs("weir: two results compared", page->out);
    else
        fputs("weir: what this machine can do", page->out);
    fprintf(page->out, "</title>\n<style>\n%s</style>\n</head><body><main>\n", page_style);
}

static int write_text(struct page *page, const char *path) {
    char *text = NULL;
    size_t length = 0;
    int rc = 0;

    page->out = open_memstream(&text, &length);
    if (page->out == NULL)
        return complain("out of memory");
    head(page);
    page_summary(page);
    page_plots(page);
    page_tables(page);
    page_about(page);
    fputs("</main></body></html>\n", page->out);
    if (fclose(page->out) != 0)
        rc = complain("out of memory");
    for (unsigned i = 0; rc == 0 && i < page->count; i++)
        rc = results_verdict(page->files[i]);
    if (rc == 0)
        rc = file_replace(path, text, length);
    free(text);
    return rc;
}

int page_write(struct results *const *files, unsigned count, const char *path) {
    struct page page = {.count = count};

    for (unsigned i = 0; i < count; i++)
        page.files[i] = files[i];
    return write_text(&page, path);
}

int report_page(const struct options *options) {
    struct results loaded[PAGE_FILES_MAX], *files[PAGE_FILES_MAX];
    unsigned count = 0;
    int rc = 0;

    for (; rc == 0 && count < PAGE_FILES_MAX && options->files[count] != NULL; count++) {
        files[count] = &loaded[count];
        rc = results_load(&loaded[count], options->files[count]);
    }
    if (rc == 0)
        rc = page_write(files, count, options->out);
    for (unsigned i = 0; i < count; i++)
        results_free(&loaded[i]);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* page.h: a page of the results of a suite, or of two that are compared: one HTML file that needs
 * nothing else. It is XML too, so that programs can read it. */
#ifndef TOOL_PAGE_H
#define TOOL_PAGE_H

#include <stdio.h>

#include "results.h"

#define PAGE_FILES_MAX 2

struct page {
    FILE *out;
    struct results *files[PAGE_FILES_MAX];
    unsigned count; /* of files; two are A and B */
};

/* Writes the page of one or two results to a file. 0, or -1 after complaining, of the results too;
 * the file is then as it was. */
int page_write(struct results *const *files, unsigned count, const char *path);

/* ---- its parts, which write to page->out -------------------------------- */

/* Text as text of HTML, and as an attribute's value. A control character, and what is not UTF-8, is
 * a mark of its own. */
void page_text(FILE *out, const char *text);

/* page_style.c: the style sheet. */
extern const char page_style[];

/* page_parts.c: the first screen; the tables. */
void page_summary(const struct page *page);
void page_tables(const struct page *page);

/* page_about.c: the machine, versions, benches and their options. */
void page_about(const struct page *page);

/* page_plots.c: the plots, or why there are none. */
void page_plots(const struct page *page);

#endif

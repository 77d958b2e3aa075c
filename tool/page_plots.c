/* SPDX-License-Identifier: Apache-2.0 */
/* page_plots.c: the plots of a page, see page.h. Each is a table of curves: which figure over which
 * key of which bench. Of two results the second has the same colours, dashed. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "page.h"
#include "plot.h"

/* A curve over the rows of an array. */
struct curve {
    const char *title;
    const char *bench, *array, *key, *path;
    enum plot_colour colour;
    bool per_key; /* the figure is divided by its key: operations of a rate */
};

#define CURVES_MAX 4
_Static_assert(2 * CURVES_MAX <= PLOT_LINES_MAX, "of two results all are drawn");

struct curves {
    const char *title, *note, *x_label;
    enum plot_axis x, y;
    double scale; /* of the figure, for the axis: ns to s */
    struct curve curves[CURVES_MAX];
};

static const struct curves over_rows[] = {
    {.title = "Rate over the size of a transfer or message",
     .note = "the limit is the best plain copy of that size, in caches",
     .x_label = "bytes of a transfer or message",
     .x = AXIS_SIZES,
     .y = AXIS_RATE_LOG,
     .scale = 1,
     .curves = {{"write", "sweep write", "results", "size", "bytes_per_s", COLOUR_1, false},
                {"read", "sweep read", "results", "size", "bytes_per_s", COLOUR_2, false},
                {"message", "sweep send", "results", "size", "bytes_per_s", COLOUR_3, false},
                {"limit", "sweep write", "results", "size", "limit.bytes_per_s", COLOUR_LIMIT,
                 false}}},
    {.title = "Operations over the size of a transfer or message",
     .note = "the limit is the best plain copy of that size, in caches",
     .x_label = "bytes of a transfer or message",
     .x = AXIS_SIZES,
     .y = AXIS_PER_S_LOG,
     .scale = 1,
     .curves = {{"write", "sweep write", "results", "size", "ops_per_s", COLOUR_1, false},
                {"read", "sweep read", "results", "size", "ops_per_s", COLOUR_2, false},
                {"message", "sweep send", "results", "size", "ops_per_s", COLOUR_3, false},
                {"limit", "sweep write", "results", "size", "limit.bytes_per_s", COLOUR_LIMIT,
                 true}}},
    {.title = "Latency under a paced load of writes",
     .note = "from when an operation was due; load as a share of what goes unpaced",
     .x_label = "load",
     .x = AXIS_PERCENT,
     .y = AXIS_TIME_LOG,
     .scale = 1e-9,
     .curves = {{"p50", "pace", "rows", "percent", "latency_ns.p50", COLOUR_1, false},
                {"p99", "pace", "rows", "percent", "latency_ns.p99", COLOUR_2, false},
                {"p99.9", "pace", "rows", "percent", "latency_ns.p999", COLOUR_3, false},
                {"max", "pace", "rows", "percent", "latency_ns.max", COLOUR_4, false}}},
    {.title = "Handshakes over the peers of a storm",
     .x_label = "peers that connect at once",
     .x = AXIS_NUMBERS,
     .y = AXIS_PER_S,
     .scale = 1,
     .curves = {{"handshakes", "storm", "rows", "peers", "handshakes_per_s", COLOUR_1, false}}},
};

/* "write", or of two results "write A". */
static void name_line(const struct page *page, struct plot_line *line, const char *title,
                      unsigned file) {
    snprintf(line->title, sizeof(line->title), page->count > 1 ? "%s %c" : "%s", title,
             'A' + (int)file);
}

static enum plot_style style_of(unsigned file) {
    return file == 0 ? STYLE_LINE : STYLE_DASHES;
}

static void add_curve(const struct page *page, struct plot *plot, const struct curve *curve,
                      double scale, unsigned file) {
    struct results *results = page->files[file];
    double *keys = malloc(RESULTS_ROWS_MAX * sizeof(*keys));
    unsigned count =
        keys == NULL ? 0 : results_keys(results, curve->bench, curve->array, curve->key, keys);
    struct plot_line *line = plot_add(plot, curve->colour, style_of(file), count);
    struct place place = {.bench = curve->bench,
                          .path = curve->path,
                          .pick = PICK_KEY,
                          .array = curve->array,
                          .key = curve->key};

    for (unsigned i = 0; line != NULL && i < count; i++) {
        struct figure figure;
        place.value = keys[i];
        figure = results_figure(results, &place);
        if (figure.rounds > 0 && (!curve->per_key || keys[i] > 0))
            plot_point(plot, line, keys[i], figure.median * scale / (curve->per_key ? keys[i] : 1));
    }
    if (line != NULL)
        name_line(page, line, curve->title, file);
    free(keys);
}

/* ---- other shapes ------------------------------------------------------- */

/* Percentiles of the benches that have them. */
static void add_quantiles(const struct page *page, struct plot *plot) {
    static const struct {
        const char *title, *bench;
        enum plot_colour colour;
    } lines[] = {{"8 B", "latency", COLOUR_1},
                 {"64 KiB", "write hot", COLOUR_2},
                 {"cold", "write cold", COLOUR_3},
                 {"wake", "wake", COLOUR_4},
                 {"message", "send latency", COLOUR_5}};
    static const char *const paths[] = {"latency_ns.p50", "latency_ns.p99", "latency_ns.p999",
                                        "latency_ns.p9999", "latency_ns.max"};
    const unsigned count = sizeof(paths) / sizeof(paths[0]);

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        for (unsigned file = 0; file < page->count; file++) {
            struct plot_line *line = plot_add(plot, lines[i].colour, style_of(file), count);
            for (unsigned j = 0; line != NULL && j < count; j++) {
                struct place place = {.bench = lines[i].bench, .path = paths[j]};
                struct figure figure = results_figure(page->files[file], &place);
                if (figure.rounds > 0)
                    plot_point(plot, line, j, figure.median / 1e9);
            }
            if (line != NULL)
                name_line(page, line, lines[i].title, file);
        }
    }
}

static void add_senders(const struct page *page, struct plot *plot) {
    for (unsigned file = 0; file < page->count; file++) {
        unsigned count = results_rows(page->files[file], "incast", "rows");
        struct plot_line *line = plot_add(plot, file == 0 ? COLOUR_1 : COLOUR_2,
                                          file == 0 ? STYLE_POINTS : STYLE_RINGS, count);
        for (unsigned i = 0; line != NULL && i < count; i++) {
            struct place place = {.bench = "incast",
                                  .path = "bytes_per_s",
                                  .pick = PICK_INDEX,
                                  .array = "rows",
                                  .value = i};
            struct figure figure = results_figure(page->files[file], &place);
            if (figure.rounds > 0)
                plot_point(plot, line, i + 1, figure.median);
        }
        if (line != NULL)
            name_line(page, line, "a sender", file);
    }
}

/* Bytes over time of one result's first round, with a mark for each fault. */
static void add_timeline(struct plot *plot, struct results *results) {
    struct place step = {.bench = "faults", .path = "step_ms"};
    struct place at = {.bench = "faults", .path = "at_ms", .pick = PICK_INDEX, .array = "faults"};
    double step_s = results_figure(results, &step).median / 1e3;
    double *bytes = malloc(RESULTS_TIMELINE_MAX * sizeof(*bytes));
    unsigned count = bytes == NULL ? 0
                                   : results_timeline(results, "faults", "timeline", bytes,
                                                      RESULTS_TIMELINE_MAX);
    struct plot_line *line = plot_add(plot, COLOUR_1, STYLE_LINE, count);

    for (unsigned i = 0; line != NULL && step_s > 0 && i < count; i++)
        plot_point(plot, line, (i + 0.5) * step_s, bytes[i] / step_s);
    if (line != NULL)
        snprintf(line->title, sizeof(line->title), "writes");
    count = results_rows(results, "faults", "faults");
    for (unsigned i = 0; i < count && i < PLOT_MARKS_MAX; i++) {
        struct figure figure;
        at.value = i;
        figure = results_figure(results, &at);
        plot->marks[plot->mark_count++] = figure.rounds > 0 ? figure.median / 1e3 : NAN;
    }
    free(bytes);
}

/* ---- the section -------------------------------------------------------- */

/* Whether plots can go on. Takes the plot. */
static bool draw(const struct page *page, struct plot *plot) {
    char *picture;
    enum plot_outcome outcome = plot_draw(plot, &picture);

    plot_free(plot);
    switch (outcome) {
    case PLOT_EMPTY:
        return true;
    case PLOT_DRAWN:
        fprintf(page->out, "<figure><figcaption>%s", plot->title);
        if (plot->note != NULL)
            fprintf(page->out, "<br/><small>%s</small>", plot->note);
        fprintf(page->out, "</figcaption>\n%s</figure>\n", picture);
        free(picture);
        return true;
    case PLOT_NO_PROGRAM:
        fputs(
            "<p class=\"wide\">There are no plots: gnuplot was not found when this page was made. "
            "The tables below have all figures.</p>\n",
            page->out);
        break;
    case PLOT_FAILED:
        fputs("<p class=\"wide\">Plots are missing: gnuplot failed. The tables below have all "
              "figures.</p>\n",
              page->out);
        break;
    }
    return false;
}

static bool draw_curves(const struct page *page, const struct curves *curves) {
    struct plot plot = {.title = curves->title,
                        .note = curves->note,
                        .x = curves->x,
                        .y = curves->y,
                        .x_label = curves->x_label};

    for (unsigned i = 0; i < CURVES_MAX && curves->curves[i].title != NULL; i++) {
        for (unsigned file = 0; file < page->count; file++)
            add_curve(page, &plot, &curves->curves[i], curves->scale, file);
    }
    return draw(page, &plot);
}

static bool draw_quantiles(const struct page *page) {
    struct plot plot = {.title = "Percentiles of latency",
                        .note = "half a round trip of 8 B, by writes and by messages; writes of "
                                "64 KiB under load, in caches and cold; until a sleeping engine is "
                                "awake",
                        .x_label = "percentile",
                        .x = AXIS_QUANTILES,
                        .y = AXIS_TIME_LOG};

    add_quantiles(page, &plot);
    return draw(page, &plot);
}

static bool draw_senders(const struct page *page) {
    struct plot plot = {.title = "Many senders to one target",
                        .x_label = "sender",
                        .x = AXIS_NUMBERS,
                        .y = AXIS_RATE};

    add_senders(page, &plot);
    return draw(page, &plot);
}

static bool draw_timelines(const struct page *page) {
    static const char *const titles[] = {"Writes through faults, A", "Writes through faults, B"};
    bool good = true;

    for (unsigned file = 0; good && file < page->count; file++) {
        struct plot plot = {.title = page->count > 1 ? titles[file] : "Writes through faults",
                            .note = "the numbers are those of the table of faults",
                            .x_label = "time",
                            .x = AXIS_SECONDS,
                            .y = AXIS_RATE};
        add_timeline(&plot, page->files[file]);
        good = draw(page, &plot);
    }
    return good;
}

void page_plots(const struct page *page) {
    bool good = true;

    fputs("<section><h2>Plots</h2>\n", page->out);
    plot_shapes(page->out);
    fputs("<div class=\"plots\">\n", page->out);
    for (size_t i = 0; good && i < sizeof(over_rows) / sizeof(over_rows[0]); i++)
        good = draw_curves(page, &over_rows[i]);
    if (good)
        (void)(draw_quantiles(page) && draw_senders(page) && draw_timelines(page));
    fputs("</div></section>\n", page->out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* plot.h: a plot as a picture inside of a page (SVG), drawn by gnuplot(1), whose colours are the
 * page's. No text of a file goes to gnuplot: all names are of this program. */
#ifndef TOOL_PLOT_H
#define TOOL_PLOT_H

#include <stdio.h>

#define PLOT_LINES_MAX 10
#define PLOT_MARKS_MAX 64

/* Colours: --s1 and so on in the page's style sheet. */
enum plot_colour { COLOUR_1 = 1, COLOUR_2, COLOUR_3, COLOUR_4, COLOUR_5, COLOUR_LIMIT = 8 };
enum plot_style { STYLE_LINE, STYLE_DASHES, STYLE_POINTS, STYLE_RINGS };

struct plot_line {
    char title[48];
    enum plot_colour colour;
    enum plot_style style;
    unsigned count;
    double *x, *y; /* taken by plot_free */
};

/* How an axis counts, and is labelled. */
enum plot_axis {
    AXIS_SIZES,     /* bytes, powers of two */
    AXIS_PERCENT,   /* linear */
    AXIS_QUANTILES, /* 0, 1, ...: p50, p99, p99.9, p99.99, max */
    AXIS_SECONDS,   /* linear */
    AXIS_NUMBERS,   /* whole, from 0 on; of x only */
    AXIS_RATE,      /* bytes a second, linear */
    AXIS_RATE_LOG,
    AXIS_PER_S, /* operations a second, linear */
    AXIS_PER_S_LOG,
    AXIS_TIME_LOG /* seconds */
};

struct plot {
    const char *title;
    const char *note; /* below it, or NULL */
    enum plot_axis x, y;
    const char *x_label;
    unsigned line_count, mark_count;
    struct plot_line lines[PLOT_LINES_MAX];
    /* At these x, unless NAN: a vertical line with its number, from 1 on. */
    double marks[PLOT_MARKS_MAX];
};

/* Room for a line of at most so many points, whose count is 0; NULL: the plot is full, or memory.
 */
struct plot_line *plot_add(struct plot *plot, enum plot_colour colour, enum plot_style style,
                           unsigned most);
/* Adds a point, unless its axis cannot show it. */
void plot_point(const struct plot *plot, struct plot_line *line, double x, double y);
void plot_free(struct plot *plot);

enum plot_outcome {
    PLOT_DRAWN,
    PLOT_EMPTY,      /* no line has a point */
    PLOT_NO_PROGRAM, /* gnuplot is not here */
    PLOT_FAILED
};
/* The picture, for free(3); NULL unless it was drawn. */
enum plot_outcome plot_draw(const struct plot *plot, char **picture_out);

/* The shapes that all pictures of a page share, once a page. */
void plot_shapes(FILE *out);

#endif

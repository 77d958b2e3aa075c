/* SPDX-License-Identifier: Apache-2.0 */
/* plot.c: see plot.h. gnuplot reads a script from a file in memory and writes to another: neither
 * side can wait for the other. Each colour of the script is a number, which becomes a variable of
 * the page's style sheet in the picture. */
#define _GNU_SOURCE
#include "plot.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "file.h"
#include "host.h"

#define WIDTH        440
#define HEIGHT       330
#define PICTURE_MOST (16u << 20)
#define DENSE        200 /* points are not shown as points any more */
#define STEPS_MOST   8
#define GNUPLOT_NS   (60 * NS_PER_S)

/* ---- lines -------------------------------------------------------------- */

struct plot_line *plot_add(struct plot *plot, enum plot_colour colour, enum plot_style style,
                           unsigned most) {
    struct plot_line *line = &plot->lines[plot->line_count];

    if (plot->line_count == PLOT_LINES_MAX)
        return NULL;
    *line = (struct plot_line){.colour = colour, .style = style};
    line->x = malloc((most + 1) * sizeof(*line->x));
    line->y = malloc((most + 1) * sizeof(*line->y));
    plot->line_count++; /* plot_free sees to it in either case */
    return line->x != NULL && line->y != NULL ? line : NULL;
}

static bool is_log(enum plot_axis axis) {
    return axis == AXIS_SIZES || axis == AXIS_RATE_LOG || axis == AXIS_PER_S_LOG ||
           axis == AXIS_TIME_LOG;
}

void plot_point(const struct plot *plot, struct plot_line *line, double x, double y) {
    if ((is_log(plot->x) && x <= 0) || (is_log(plot->y) && y <= 0))
        return;
    line->x[line->count] = x;
    line->y[line->count++] = y;
}

void plot_free(struct plot *plot) {
    for (unsigned i = 0; i < plot->line_count; i++) {
        free(plot->lines[i].x);
        free(plot->lines[i].y);
    }
    plot->line_count = 0;
}

/* ---- the script --------------------------------------------------------- */

static double most_x(const struct plot *plot) {
    double most = 0;

    for (unsigned i = 0; i < plot->line_count; i++) {
        for (unsigned j = 0; j < plot->lines[i].count; j++)
            most = fmax(most, plot->lines[i].x[j]);
    }
    return most;
}

/* Between two numbers of an axis: 1, 2, 5, 10, ..., for at most STEPS_MOST of them. */
static double whole_step(double most) {
    static const double factors[] = {2, 2.5, 2};
    double step = 1;

    for (unsigned i = 0; most / step > STEPS_MOST; i++)
        step *= factors[i % 3];
    return step;
}

static void write_axis(FILE *out, const struct plot *plot, char name, enum plot_axis axis) {
    if (is_log(axis))
        fprintf(out, "set logscale %c\n", name);
    switch (axis) {
    case AXIS_SIZES:
        fprintf(out,
                "set %ctics ('8 B' 8, '128 B' 128, '2 KiB' 2048, '32 KiB' 32768, "
                "'512 KiB' 524288)\n",
                name);
        break;
    case AXIS_PERCENT:
        fprintf(out, "set format %c '%%g %%%%'\nset %crange [0:100]\nset %ctics 25\n", name, name,
                name);
        break;
    case AXIS_QUANTILES:
        fprintf(out,
                "set %ctics ('p50' 0, 'p99' 1, 'p99.9' 2, 'p99.99' 3, 'max' 4)\n"
                "set %crange [-0.2:4.2]\n",
                name, name);
        break;
    case AXIS_SECONDS:
        fprintf(out, "set format %c '%%g s'\n", name);
        break;
    case AXIS_NUMBERS:
        fprintf(out, "set %crange [0:*]\nset %ctics %.0f\nset offsets 0, graph 0.05, 0, 0\n", name,
                name, whole_step(most_x(plot)));
        break;
    case AXIS_RATE:
        fprintf(out, "set format %c '%%.1s %%cB/s'\nset %crange [0:*]\n", name, name);
        break;
    case AXIS_RATE_LOG:
        fprintf(out, "set format %c '%%.0s %%cB/s'\n", name);
        break;
    case AXIS_PER_S:
        fprintf(out, "set format %c '%%.1s %%c/s'\nset %crange [0:*]\n", name, name);
        break;
    case AXIS_PER_S_LOG:
        fprintf(out, "set format %c '%%.0s %%c/s'\n", name);
        break;
    case AXIS_TIME_LOG:
        fprintf(out, "set format %c '%%.0s %%cs'\n", name);
        break;
    }
}

static void write_data(FILE *out, const struct plot *plot) {
    for (unsigned i = 0; i < plot->line_count; i++) {
        const struct plot_line *line = &plot->lines[i];
        fprintf(out, "$d%u << EOD\n", i);
        for (unsigned j = 0; j < line->count; j++)
            fprintf(out, "%.9g %.9g\n", line->x[j], line->y[j]);
        fputs("EOD\n", out);
    }
}

static void write_script(FILE *out, const struct plot *plot) {
    static const char *const styles[] = {
        [STYLE_LINE] = "linespoints dashtype 1 pointtype 7 pointsize 0.45",
        [STYLE_DASHES] = "linespoints dashtype 2 pointtype 6 pointsize 0.45",
        [STYLE_POINTS] = "points pointtype 7 pointsize 0.6",
        [STYLE_RINGS] = "points pointtype 6 pointsize 1.1",
    };
    const char *comma = "plot";

    fprintf(out,
            "set encoding utf8\n"
            "set terminal svg size %d,%d font 'sans-serif,13'\n"
            "set border 3\nset tics nomirror scale 0.6,0.3\nset grid\n"
            "set key above maxcols 4 samplen 1.5 width -1\nset rmargin 3\nset xlabel '%s' offset "
            "0,0.3\n%s",
            WIDTH, HEIGHT, plot->x_label, plot->line_count == 1 ? "unset key\n" : "");
    write_axis(out, plot, 'x', plot->x);
    write_axis(out, plot, 'y', plot->y);
    write_data(out, plot);
    for (unsigned i = 0; i < plot->mark_count; i++) {
        if (!isfinite(plot->marks[i]))
            continue;
        fprintf(out,
                "set arrow from %.9g, graph 0 to %.9g, graph 1 nohead dashtype 3 linecolor rgb "
                "'#00000%d'\n",
                plot->marks[i], plot->marks[i], COLOUR_LIMIT);
        fprintf(out, "set label '%u' at %.9g, graph 1.05 center\n", i + 1, plot->marks[i]);
    }
    for (unsigned i = 0; i < plot->line_count; i++) {
        const struct plot_line *line = &plot->lines[i];
        bool dense = line->count > DENSE && line->style <= STYLE_DASHES;
        if (line->count == 0)
            continue;
        fprintf(out, "%s $d%u using 1:2 with %s linecolor rgb '#00000%d' linewidth 1.5 title '%s'",
                comma, i, dense ? "lines" : styles[line->style], (int)line->colour, line->title);
        comma = ",";
    }
    fputc('\n', out);
}

/* ---- the picture -------------------------------------------------------- */

/* Words of gnuplot, and those of the page in their place. */
static const struct {
    const char *from, *to;
} rewrites[] = {
    {"stroke='black'", "stroke='currentColor'"},
    {"stroke=\"black\"", "stroke=\"currentColor\""},
    {"fill=\"black\"", "fill=\"currentColor\""},
    {"stroke='gray'", "stroke='var(--grid)'"},
    {"stroke=\"gray\"", "stroke=\"var(--grid)\""},
    {" color=\"black\"", ""},
    {" color=\"white\"", ""},
    {" color=\"gray\"", ""},
    {" font-family=\"sans-serif\"", ""},
    {" xml:space=\"preserve\"", ""},
    {"xlink:href", "href"},
};
#define REWRITES (sizeof(rewrites) / sizeof(rewrites[0]))

static bool starts(const char *at, const char *with) {
    return strncmp(at, with, strlen(with)) == 0;
}

/* A group without anything in it, of which gnuplot writes many: behind it, or NULL. */
static const char *empty_group(const char *at) {
    const char *end;

    if (!starts(at, "<g ") || (end = strchr(at, '>')) == NULL || !starts(end, ">\n</g>"))
        return NULL;
    return end + strlen(">\n</g>");
}

/* One step of the picture: writes what becomes of its beginning; returns where it goes on. */
static const char *rewrite(const char *at, FILE *out) {
    const char *behind = empty_group(at);
    int colour, length = 0;

    if (behind != NULL)
        return behind;
    if (starts(at, "rgb(") && sscanf(at, "rgb( 0, 0, %d)%n", &colour, &length) == 1 && length > 0) {
        fprintf(out, "var(--s%d)", colour);
        return at + length;
    }
    if (starts(at, " id=\"") && (behind = strchr(at + strlen(" id=\""), '"')) != NULL)
        return behind + 1;
    for (size_t i = 0; i < REWRITES; i++) {
        if (starts(at, rewrites[i].from)) {
            fputs(rewrites[i].to, out);
            return at + strlen(rewrites[i].from);
        }
    }
    fputc(*at, out);
    return at + 1;
}

/* All behind gnuplot's own definitions; NULL: it is no picture. */
static char *picture_of(const struct plot *plot, const char *svg) {
    const char *at = strstr(svg, "</defs>"), *end = strstr(svg, "</svg>");
    char *picture = NULL;
    size_t length = 0;
    FILE *out = at != NULL && end != NULL && at < end ? open_memstream(&picture, &length) : NULL;

    if (out == NULL)
        return NULL;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"%s\"><g>",
            WIDTH, HEIGHT, plot->title);
    for (at += strlen("</defs>"); at < end;)
        at = rewrite(at, out);
    fputs("</svg>\n", out);
    if (fclose(out) == 0)
        return picture;
    free(picture);
    return NULL;
}

void plot_shapes(FILE *out) {
    fputs("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"0\" height=\"0\" "
          "style=\"position:absolute\" aria-hidden=\"true\"><defs>"
          "<circle id=\"gpDot\" r=\"0.5\" fill=\"currentColor\"/>"
          "<circle id=\"gpPt5\" r=\"1\" stroke-width=\"0.4\" stroke=\"currentColor\" "
          "fill=\"none\"/>"
          "<circle id=\"gpPt6\" r=\"1\" fill=\"currentColor\"/>"
          "</defs></svg>\n",
          out);
}

/* ---- gnuplot ------------------------------------------------------------ */

static int fill_script(int fd, const struct plot *plot) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    int rc = -1;

    if (out == NULL)
        return complain("out of memory");
    write_script(out, plot);
    if (fclose(out) == 0 && file_write(fd, text, length) == 0 && lseek(fd, 0, SEEK_SET) == 0)
        rc = 0;
    free(text);
    return rc == 0 ? 0 : complain("out of memory");
}

static enum plot_outcome run_gnuplot(const struct plot *plot, int script, int drawn, int nowhere,
                                     char **picture_out) {
    char *argv[] = {"gnuplot", "--default-settings", "-", NULL};
    char *svg;
    int pid, status;

    if (fill_script(script, plot) != 0)
        return PLOT_FAILED;
    pid = child_start("gnuplot", argv, &(struct child_files){script, drawn, nowhere}, -1);
    if (pid < 0)
        return PLOT_FAILED;
    status = child_wait(pid, GNUPLOT_NS);
    if (status == CHILD_NOT_EXECUTED)
        return PLOT_NO_PROGRAM;
    svg = status == 0 ? file_text(drawn, PICTURE_MOST) : NULL;
    if (svg != NULL)
        *picture_out = picture_of(plot, svg);
    free(svg);
    return *picture_out != NULL ? PLOT_DRAWN : PLOT_FAILED;
}

enum plot_outcome plot_draw(const struct plot *plot, char **picture_out) {
    int script, drawn, nowhere;
    enum plot_outcome outcome = PLOT_FAILED;
    unsigned points = 0;

    *picture_out = NULL;
    for (unsigned i = 0; i < plot->line_count; i++)
        points += plot->lines[i].count;
    if (points == 0)
        return PLOT_EMPTY;
    script = file_in_memory("script");
    drawn = file_in_memory("picture");
    nowhere = file_in_memory("nowhere");
    if (script >= 0 && drawn >= 0 && nowhere >= 0)
        outcome = run_gnuplot(plot, script, drawn, nowhere, picture_out);
    if (script >= 0)
        close(script);
    if (drawn >= 0)
        close(drawn);
    if (nowhere >= 0)
        close(nowhere);
    return outcome;
}

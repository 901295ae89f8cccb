/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Line charts as SVG.  A panel maps values to the axis (a logarithm or not), the axis to pixels. */
#include "plot.h"

#include <math.h>
#include <string.h>

enum {
    MARGIN_LEFT = 62,
    MARGIN_RIGHT = 20,
    HEAD = 34, /* the legend */
    HEAD_TITLE = 26,
    PANEL_TITLE = 26,
    PANEL_HEIGHT = 150, /* of the drawing area */
    PANEL_GAP = 14,
    FOOT = 32,  /* numbers and label of x, under the lowest panels */
    WIDE = 900, /* a cell, alone in its row */
    NARROW = 450,
    LETTER = 7,   /* width to allow for a letter of the legend */
    SAMPLE = 30,  /* length of a line in the legend */
    MARK_ROW = 9, /* height of a series' marks */
    LINE_POINTS = 1000,
};

/* Colours that people who see few of them tell apart (Okabe and Ito); dashes, for paper without
 * any and for curves that cover each other. */
typedef struct pen {
    const char *colour, *dashes;
} pen;

static const pen *pen_of(int series)
{
    static const pen pens[] = {
        {"#0072b2", "none"}, {"#d55e00", "7 4"},     {"#009e73", "2 4"},
        {"#cc79a7", "12 4"}, {"#e69f00", "7 4 2 4"}, {"#56b4e9", "4 3"},
    };
    return &pens[(size_t)series % (sizeof pens / sizeof pens[0])];
}

typedef struct range {
    double lo, hi;
} range;

/* Where a panel lies and what it spans, in axis units. */
typedef struct frame {
    double left, top, width, height;
    plot_axis axis;
    range x, y;
    double marks; /* height of the rows of marks, below the curves */
} frame;

#define GRID "#e8e8e8"
#define AXIS "#888"

/* ---- text ---- */

static void put_escaped(FILE *file, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        default:
            /* XML has no way to write other control characters. */
            fputc((unsigned char)*text < 0x20 ? ' ' : *text, file);
        }
    }
}

static void put_text(FILE *file, double x, double y, const char *attributes, const char *text)
{
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    put_escaped(file, text);
    fputs("</text>\n", file);
}

static void put_power(FILE *file, double x, double y, int base, int exponent)
{
    fprintf(file,
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%d"
            "<tspan dy=\"-4\" font-size=\"8\">%d</tspan></text>\n",
            x, y, base, exponent);
}

/* ---- ranges ---- */

/* So that no difference of two values overflows, and no range is zero. */
#define FARTHEST 1e300
#define NEAREST  1e-300

/* NaN where a value has no place on the axis. */
static double on_axis(plot_axis axis, double value)
{
    if (!(fabs(value) <= FARTHEST) || (axis != PLOT_LINEAR && value <= 0)) return NAN;
    if (axis == PLOT_LOG2) return log2(value);
    return axis == PLOT_LOG10 ? log10(value) : value;
}

static void include(range *r, double value)
{
    if (isnan(value)) return;
    r->lo = fmin(r->lo, value);
    r->hi = fmax(r->hi, value);
}

/* A logarithmic axis shows one whole power at least, so that it has a tick; the noise of a constant
 * fills no linear one. */
static range padded(range r, plot_axis axis)
{
    if (r.lo > r.hi) r = (range){0, 1};
    const double size = fmax(fabs(r.lo), fabs(r.hi));
    const double least = axis != PLOT_LINEAR || size == 0 ? 1 : fmax(size * 1e-3, NEAREST);
    const double missing = fmax(least - (r.hi - r.lo), 0) / 2;
    const double air = (r.hi - r.lo) * 0.06;
    return (range){r.lo - fmax(missing, air), r.hi + fmax(missing, air)};
}

static range y_range(const plot *p, const plot_panel *panel)
{
    range r = {INFINITY, -INFINITY};
    for (int s = 0; s < p->series_count; s++) {
        for (int64_t i = 0; panel->y[s] && i < p->series[s].count; i++) {
            include(&r, on_axis(panel->axis, panel->y[s][i]));
        }
    }
    if (panel->guide != 0) include(&r, on_axis(panel->axis, panel->guide));
    return padded(r, panel->axis);
}

/* Of all panels of a column: they stand over one x axis. */
static range x_range(const plot *p, int column, int columns)
{
    int64_t longest = 2;
    for (int i = column; i < p->panel_count; i += columns) {
        for (int s = 0; s < p->series_count; s++) {
            if (p->panels[i].y[s] && p->series[s].count > longest) longest = p->series[s].count;
        }
    }
    return (range){p->x_first, p->x_first + (double)(longest - 1)};
}

static double place_x(const frame *f, double x)
{
    return f->left + (x - f->x.lo) / (f->x.hi - f->x.lo) * f->width;
}

static double place_y(const frame *f, double y)
{
    return f->top + (f->y.hi - y) / (f->y.hi - f->y.lo) * (f->height - f->marks);
}

/* ---- axes ---- */

/* The distance between about `wanted` ticks: 1, 2 or 5 times a power of ten. */
static double nice_distance(range r, int wanted)
{
    const double rough = (r.hi - r.lo) / wanted;
    const double power = pow(10, floor(log10(rough)));
    const double digit = rough / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

/* Of powers, every third reads well too. */
static double power_distance(range r, int wanted)
{
    const double rough = (r.hi - r.lo) / wanted;
    return rough > 3 ? nice_distance(r, wanted) : fmax(ceil(rough), 1);
}

static double first_multiple(range r, double distance)
{
    return ceil(r.lo / distance - 1e-9);
}

/* Powers of two always read best as such, powers of ten when they are far. */
static bool wants_powers(const frame *f)
{
    return f->axis == PLOT_LOG2 || f->y.lo < -4 || f->y.hi > 4;
}

static void put_y_tick(FILE *file, const frame *f, double y)
{
    const double at = place_y(f, y);
    fprintf(file, "<path d=\"M%.1f %.1fh%.1f\" stroke=\"" GRID "\"/>\n", f->left, at, f->width);
    if (f->axis != PLOT_LINEAR && wants_powers(f) && y == rint(y)) {
        put_power(file, f->left - 8, at + 4, f->axis == PLOT_LOG2 ? 2 : 10, (int)y);
        return;
    }
    char label[32];
    snprintf(label, sizeof label, "%g", f->axis == PLOT_LINEAR ? y : pow(10, y));
    put_text(file, f->left - 8, at + 4, "text-anchor=\"end\"", label);
}

/* 1, 2, 5, 10, 20, ...: for an axis with few powers of ten. */
static void put_digit_ticks(FILE *file, const frame *f)
{
    const double digits[] = {0, log10(2), log10(5)};
    for (double power = floor(f->y.lo); power <= f->y.hi; power++) {
        for (int i = 0; i < 3; i++) {
            const double y = power + digits[i];
            if (y >= f->y.lo && y <= f->y.hi) put_y_tick(file, f, y);
        }
    }
}

static void put_y_ticks(FILE *file, const frame *f)
{
    if (f->axis == PLOT_LOG10 && f->y.hi - f->y.lo < 2) {
        put_digit_ticks(file, f);
        return;
    }
    const double distance =
        f->axis == PLOT_LINEAR ? nice_distance(f->y, 4) : power_distance(f->y, 4);
    for (double k = first_multiple(f->y, distance); k * distance <= f->y.hi; k++) {
        put_y_tick(file, f, k * distance + 0.0); /* + 0.0: no "-0" */
    }
}

static void put_x_ticks(FILE *file, const frame *f, bool numbers)
{
    const double distance = fmax(nice_distance(f->x, f->width > 500 ? 8 : 5), 1);
    const double bottom = f->top + f->height;
    for (double k = first_multiple(f->x, distance); k * distance <= f->x.hi; k++) {
        const double at = place_x(f, k * distance);
        fprintf(file, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"" GRID "\"/>\n", at, f->top, bottom);
        fprintf(file, "<path d=\"M%.1f %.1fv4\" stroke=\"" AXIS "\"/>\n", at, bottom);
        if (!numbers) continue;
        char label[32];
        snprintf(label, sizeof label, "%.12g", k * distance + 0.0);
        put_text(file, at, bottom + 17, "text-anchor=\"middle\"", label);
    }
}

/* The lowest panel of a column speaks for x. */
static void put_axes(FILE *file, const plot *p, const plot_panel *panel, const frame *f,
                     bool lowest)
{
    const double bottom = f->top + f->height;
    put_text(file, f->left, f->top - 9, "font-weight=\"bold\"", panel->title);
    put_x_ticks(file, f, lowest);
    put_y_ticks(file, f);
    fprintf(file, "<path d=\"M%.1f %.1fV%.1fh%.1f\" stroke=\"" AXIS "\" fill=\"none\"/>\n", f->left,
            f->top, bottom, f->width);
    if (lowest) {
        put_text(file, f->left + f->width / 2, bottom + FOOT, "text-anchor=\"middle\"", p->x_label);
    }
    const double guide = panel->guide == 0 ? NAN : on_axis(panel->axis, panel->guide);
    if (isnan(guide)) return;
    fprintf(file, "<path d=\"M%.1f %.1fh%.1f\" stroke=\"" AXIS "\"/>\n", f->left, place_y(f, guide),
            f->width);
}

/* ---- curves ---- */

/* Of points [first, last) the lowest and the highest that can be drawn; -1 if none can. */
static void extremes(const frame *f, const double *y, int64_t first, int64_t last, int64_t out[2])
{
    out[0] = out[1] = -1;
    for (int64_t i = first; i < last; i++) {
        const double v = on_axis(f->axis, y[i]);
        if (isnan(v)) continue;
        if (out[0] < 0 || v < on_axis(f->axis, y[out[0]])) out[0] = i;
        if (out[1] < 0 || v > on_axis(f->axis, y[out[1]])) out[1] = i;
    }
    if (out[0] <= out[1]) return;
    const int64_t swap = out[0];
    out[0] = out[1];
    out[1] = swap;
}

static void put_point(FILE *file, const plot *p, const frame *f, const double *y, int64_t i,
                      bool begins)
{
    const double x_at = place_x(f, p->x_first + (double)i);
    const double y_at = place_y(f, on_axis(f->axis, y[i]));
    /* A step of no length makes a point without neighbours a dot. */
    fprintf(file, begins ? "M%.1f %.1fh0" : "L%.1f %.1f", x_at, y_at);
}

/* A long series is drawn by the extremes of its pieces: no peak is lost, no file grows without
 * end. */
static void put_curve(FILE *file, const plot *p, const frame *f, const double *y, int series)
{
    const int64_t count = p->series[series].count;
    const int64_t piece = (count + LINE_POINTS - 1) / LINE_POINTS;
    bool begins = true;
    fputs("<path d=\"", file);
    for (int64_t first = 0; first < count; first += piece) {
        int64_t found[2];
        extremes(f, y, first, first + piece < count ? first + piece : count, found);
        if (found[0] >= 0) put_point(file, p, f, y, found[0], begins);
        if (found[1] != found[0]) put_point(file, p, f, y, found[1], false);
        begins = found[0] < 0;
    }
    fprintf(file,
            "\" stroke=\"%s\" stroke-dasharray=\"%s\" stroke-width=\"1.6\" fill=\"none\" "
            "stroke-linejoin=\"round\" stroke-linecap=\"round\"/>\n",
            pen_of(series)->colour, pen_of(series)->dashes);
}

/* ---- marks ---- */

static bool has_marks(const plot_series *s)
{
    for (int64_t i = 0; s->marked && i < s->count; i++) {
        if (s->marked[i]) return true;
    }
    return false;
}

/* Of the panel's series before `end`, those with marks. */
static int mark_rows(const plot *p, const plot_panel *panel, int end)
{
    int rows = 0;
    for (int s = 0; s < end; s++) rows += panel->y[s] && has_marks(&p->series[s]);
    return rows;
}

static void put_cross(FILE *file, double x, double y, const char *colour)
{
    fprintf(file,
            "<path d=\"M%.1f %.1fl6 6m0 -6l-6 6\" stroke=\"%s\" stroke-width=\"1.4\" "
            "fill=\"none\"/>\n",
            x - 3, y - 3, colour);
}

/* A row for each series, so that marks at the same x stay apart; the first series is on top.
 * Within a pixel one mark stands for all. */
static void put_marks(FILE *file, const plot *p, const plot_panel *panel, const frame *f,
                      int series)
{
    const plot_series *s = &p->series[series];
    if (!has_marks(s)) return;
    const double y = f->top + f->height - f->marks + MARK_ROW * (mark_rows(p, panel, series) + 0.5);
    double last = -1;
    for (int64_t i = 0; i < s->count; i++) {
        const double x = place_x(f, p->x_first + (double)i);
        if (!s->marked[i] || x < last + 1) continue;
        put_cross(file, x, y, pen_of(series)->colour);
        last = x;
    }
}

static void put_panel(FILE *file, const plot *p, const plot_panel *panel, frame f, bool lowest)
{
    f.axis = panel->axis;
    f.y = y_range(p, panel);
    f.marks = MARK_ROW * mark_rows(p, panel, p->series_count);
    put_axes(file, p, panel, &f, lowest);
    for (int s = 0; s < p->series_count; s++) {
        if (!panel->y[s]) continue;
        put_curve(file, p, &f, panel->y[s], s);
        put_marks(file, p, panel, &f, s);
    }
}

/* ---- the picture ---- */

static void put_legend(FILE *file, const plot *p, double y)
{
    double x = MARGIN_LEFT;
    bool marks = false;
    for (int s = 0; s < p->series_count; s++) {
        fprintf(file,
                "<path d=\"M%.1f %.1fh%d\" stroke=\"%s\" stroke-dasharray=\"%s\" "
                "stroke-width=\"2.4\"/>\n",
                x, y - 4, SAMPLE, pen_of(s)->colour, pen_of(s)->dashes);
        put_text(file, x + SAMPLE + 6, y, "", p->series[s].name);
        marks = marks || has_marks(&p->series[s]);
        x += SAMPLE + 26 + LETTER * (double)strlen(p->series[s].name);
    }
    if (!p->mark_label || !marks) return;
    put_cross(file, x + 3, y - 4, "#555");
    put_text(file, x + 12, y, "", p->mark_label);
}

/* Where panel i has its drawing area, under a head. */
static frame panel_frame(const plot *p, int i, int columns, int head)
{
    const int cell_width = columns > 1 ? NARROW : WIDE;
    return (frame){
        .left = cell_width * (i % columns) + MARGIN_LEFT,
        .top = head + (PANEL_TITLE + PANEL_HEIGHT + PANEL_GAP) * (i / columns) + PANEL_TITLE,
        .width = cell_width - MARGIN_LEFT - MARGIN_RIGHT,
        .height = PANEL_HEIGHT,
        .x = x_range(p, i % columns, columns),
    };
}

void plot_svg(const plot *p, FILE *file)
{
    const int columns = p->columns > 1 ? p->columns : 1;
    const int head = HEAD + (p->title ? HEAD_TITLE : 0);
    const int width = columns > 1 ? NARROW * columns : WIDE;
    const int rows = (p->panel_count + columns - 1) / columns;
    const int height = head + (PANEL_TITLE + PANEL_HEIGHT + PANEL_GAP) * rows + FOOT;

    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"system-ui, sans-serif\" font-size=\"12\" "
            "fill=\"#222\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            width, height, width, height, width, height);
    if (p->title) {
        put_text(file, MARGIN_LEFT, 26, "font-size=\"15\" font-weight=\"bold\"", p->title);
    }
    put_legend(file, p, head - 12);
    for (int i = 0; i < p->panel_count; i++) {
        const bool lowest = i + columns >= p->panel_count;
        put_panel(file, p, &p->panels[i], panel_frame(p, i, columns, head), lowest);
    }
    fputs("</svg>\n", file);
}

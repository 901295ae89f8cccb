/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Line charts as SVG.  A panel maps values to the axis (a logarithm or not), the axis to pixels. */
#include "plot.h"

#include <math.h>
#include <string.h>

enum {
    MARGIN_LEFT = 58,
    MARGIN_RIGHT = 16,
    PANEL_TITLE = 24,
    PANEL_FOOT = 38,
    PANEL_HEIGHT = 130, /* of the drawing area */
    WIDE = 760,         /* a cell, alone in its row */
    NARROW = 400,
    LETTER = 7, /* width to allow for a letter of the legend */
    LINE_POINTS = 1000,
    MARK_ROW = 8,
};

/* Told apart by people who see few colours (Okabe and Ito). */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73",
                                      "#cc79a7", "#e69f00", "#56b4e9"};

static const char *colour_of(int series)
{
    return colours[(size_t)series % (sizeof colours / sizeof colours[0])];
}

typedef struct range {
    double lo, hi;
} range;

/* Where a panel lies and what it spans, in axis units. */
typedef struct frame {
    double left, top, width, height;
    plot_axis axis;
    range x, y;
} frame;

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

/* NaN where a value has no place on the axis. */
static double on_axis(plot_axis axis, double value)
{
    if (!isfinite(value) || (axis != PLOT_LINEAR && value <= 0)) return NAN;
    if (axis == PLOT_LOG2) return log2(value);
    return axis == PLOT_LOG10 ? log10(value) : value;
}

static void include(range *r, double value)
{
    if (isnan(value)) return;
    r->lo = fmin(r->lo, value);
    r->hi = fmax(r->hi, value);
}

/* A logarithmic axis shows one whole power at least, so that it has a tick. */
static range padded(range r, plot_axis axis)
{
    if (r.lo > r.hi) r = (range){0, 1};
    const double least = axis == PLOT_LINEAR ? fmax(fabs(r.hi), 1) * 1e-3 : 1;
    const double missing = fmax(least - (r.hi - r.lo), 0) / 2;
    const double air = (r.hi - r.lo) * 0.06;
    return (range){r.lo - fmax(missing, air), r.hi + fmax(missing, air)};
}

static range y_range(const plot *p, const plot_panel *panel)
{
    range r = {INFINITY, -INFINITY};
    for (int s = 0; s < p->series_count; s++) {
        for (int64_t i = 0; i < p->series[s].count; i++) {
            include(&r, on_axis(panel->axis, panel->y[s][i]));
        }
    }
    if (panel->guide != 0) include(&r, on_axis(panel->axis, panel->guide));
    return padded(r, panel->axis);
}

static range x_range(const plot *p)
{
    int64_t longest = 1;
    for (int s = 0; s < p->series_count; s++) {
        if (p->series[s].count > longest) longest = p->series[s].count;
    }
    return (range){p->x_first, p->x_first + (double)(longest > 1 ? longest - 1 : 1)};
}

static double place_x(const frame *f, double x)
{
    return f->left + (x - f->x.lo) / (f->x.hi - f->x.lo) * f->width;
}

static double place_y(const frame *f, double y)
{
    return f->top + (f->y.hi - y) / (f->y.hi - f->y.lo) * f->height;
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

static double first_tick(range r, double distance)
{
    return ceil(r.lo / distance - 1e-9) * distance;
}

static void put_gridline(FILE *file, const frame *f, double y)
{
    fprintf(file, "<path d=\"M%.1f %.1fh%.1f\" stroke=\"#e4e4e4\"/>\n", f->left, y, f->width);
}

/* Far powers of ten read better as such; powers of two always do. */
static bool wants_powers(const frame *f)
{
    return f->axis == PLOT_LOG2 || f->y.lo < -4 || f->y.hi > 4;
}

static void put_y_ticks(FILE *file, const frame *f)
{
    const bool logarithmic = f->axis != PLOT_LINEAR;
    double distance = nice_distance(f->y, 4);
    if (logarithmic) distance = fmax(ceil(distance), 1);
    for (double y = first_tick(f->y, distance); y <= f->y.hi; y += distance) {
        const double at = place_y(f, y);
        put_gridline(file, f, at);
        if (logarithmic && wants_powers(f)) {
            put_power(file, f->left - 6, at + 4, f->axis == PLOT_LOG2 ? 2 : 10, (int)lround(y));
            continue;
        }
        char label[32];
        const bool is_zero = fabs(y) < distance * 1e-6;
        snprintf(label, sizeof label, "%g", logarithmic ? pow(10, y) : is_zero ? 0 : y);
        put_text(file, f->left - 6, at + 4, "text-anchor=\"end\"", label);
    }
}

static void put_x_ticks(FILE *file, const frame *f)
{
    const double distance = fmax(nice_distance(f->x, f->width > 500 ? 8 : 5), 1);
    const double bottom = f->top + f->height;
    for (double x = first_tick(f->x, distance); x <= f->x.hi; x += distance) {
        char label[32];
        snprintf(label, sizeof label, "%g", x);
        fprintf(file, "<path d=\"M%.1f %.1fv4\" stroke=\"#888\"/>\n", place_x(f, x), bottom);
        put_text(file, place_x(f, x), bottom + 16, "text-anchor=\"middle\"", label);
    }
}

static void put_axes(FILE *file, const plot *p, const plot_panel *panel, const frame *f)
{
    put_text(file, f->left, f->top - 8, "font-weight=\"bold\"", panel->title);
    put_y_ticks(file, f);
    put_x_ticks(file, f);
    fprintf(file, "<path d=\"M%.1f %.1fv%.1fh%.1f\" stroke=\"#888\" fill=\"none\"/>\n", f->left,
            f->top, f->height, f->width);
    put_text(file, f->left + f->width, f->top + f->height + 30, "text-anchor=\"end\" fill=\"#555\"",
             p->x_label);
    if (panel->guide == 0) return;
    fprintf(file, "<path d=\"M%.1f %.1fh%.1f\" stroke=\"#555\" stroke-dasharray=\"5 4\"/>\n",
            f->left, place_y(f, on_axis(panel->axis, panel->guide)), f->width);
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
            "\" stroke=\"%s\" stroke-width=\"1.5\" fill=\"none\" stroke-linejoin=\"round\" "
            "stroke-linecap=\"round\"/>\n",
            colour_of(series));
}

/* A row of triangles per series, so that marks at the same x stay apart. */
static void put_marks(FILE *file, const plot *p, const frame *f, int series)
{
    const plot_series *s = &p->series[series];
    if (!s->marked) return;
    for (int64_t i = 0; i < s->count; i++) {
        if (!s->marked[i]) continue;
        fprintf(file, "<path d=\"M%.1f %.1fl4 -6h-8z\" fill=\"%s\"/>\n",
                place_x(f, p->x_first + (double)i), f->top + 6 + MARK_ROW * series,
                colour_of(series));
    }
}

static void put_panel(FILE *file, const plot *p, const plot_panel *panel, frame f)
{
    f.axis = panel->axis;
    f.x = x_range(p);
    f.y = y_range(p, panel);
    put_axes(file, p, panel, &f);
    for (int s = 0; s < p->series_count; s++) put_curve(file, p, &f, panel->y[s], s);
    for (int s = 0; s < p->series_count; s++) put_marks(file, p, &f, s);
}

/* ---- the picture ---- */

static bool has_marks(const plot *p)
{
    for (int s = 0; s < p->series_count; s++) {
        for (int64_t i = 0; p->series[s].marked && i < p->series[s].count; i++) {
            if (p->series[s].marked[i]) return true;
        }
    }
    return false;
}

static void put_legend(FILE *file, const plot *p, double y)
{
    double x = MARGIN_LEFT;
    for (int s = 0; s < p->series_count; s++) {
        fprintf(file, "<path d=\"M%.1f %.1fh18\" stroke=\"%s\" stroke-width=\"3\"/>\n", x, y - 4,
                colour_of(s));
        put_text(file, x + 24, y, "", p->series[s].name);
        x += 44 + LETTER * (double)strlen(p->series[s].name);
    }
    if (!p->mark_label || !has_marks(p)) return;
    fprintf(file, "<path d=\"M%.1f %.1fl4 -6h-8z\" fill=\"#555\"/>\n", x + 4, y);
    put_text(file, x + 14, y, "", p->mark_label);
}

void plot_svg(const plot *p, FILE *file)
{
    const int columns = p->columns > 1 ? p->columns : 1;
    const int cell_width = columns > 1 ? NARROW : WIDE;
    const int cell_height = PANEL_TITLE + PANEL_HEIGHT + PANEL_FOOT;
    const int head = p->title ? 56 : 32;
    const int width = cell_width * columns;
    const int height = head + cell_height * ((p->panel_count + columns - 1) / columns);

    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"system-ui, sans-serif\" font-size=\"12\" "
            "fill=\"#222\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            width, height, width, height, width, height);
    if (p->title) {
        put_text(file, MARGIN_LEFT, 24, "font-size=\"15\" font-weight=\"bold\"", p->title);
    }
    put_legend(file, p, head - 10);
    for (int i = 0; i < p->panel_count; i++) {
        const frame f = {
            .left = cell_width * (i % columns) + MARGIN_LEFT,
            .top = head + cell_height * (i / columns) + PANEL_TITLE,
            .width = cell_width - MARGIN_LEFT - MARGIN_RIGHT,
            .height = PANEL_HEIGHT,
        };
        put_panel(file, p, &p->panels[i], f);
    }
    fputs("</svg>\n", file);
}

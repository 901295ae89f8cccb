/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Charts are well-formed whatever the numbers are, and show what they should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plot.h"

enum {
    DEPTH = 8,
    MANY = 100000,
    TOP = 60, /* of the only panel of a picture without a title */
    BOTTOM = TOP + 150,
};

/* What only curves have. */
#define CURVE "stroke-width=\"1.6\""
#define CROSS "l6 6m0 -6l-6 6"

/* ---- XML ---- */

static const char *skip_entity(const char *at)
{
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strncmp(at, known[i], strlen(known[i])) == 0) return at + strlen(known[i]);
    }
    return NULL;
}

/* Character data up to `end`, or NULL. */
static const char *skip_text(const char *at, char end)
{
    while (*at && *at != end) {
        if (*at == '<' || ((unsigned char)*at < 0x20 && *at != '\n')) return NULL;
        at = *at == '&' ? skip_entity(at) : at + 1;
        if (!at) return NULL;
    }
    return at;
}

/* After an element's name: ` key="value"` any number of times. */
static const char *skip_attributes(const char *at)
{
    while (*at == ' ') {
        const char *key = ++at;
        if (*key == '>') return key;
        while (islower((unsigned char)*at) || isupper((unsigned char)*at) || *at == '-') at++;
        if (at == key || strncmp(at, "=\"", 2) != 0) return NULL;
        at = skip_text(at + 2, '"');
        if (!at || *at++ != '"') return NULL;
    }
    return at;
}

/* The elements nest, one of them holds the rest, and nothing needs more XML than that. */
static bool is_well_formed(const char *at)
{
    const char *open[DEPTH];
    int depth = 0;
    do {
        if (*at++ != '<') return false;
        const bool closes = *at == '/';
        if (closes) at++;
        const char *name = at;
        const size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz");
        if (length == 0) return false;
        if (closes && (depth == 0 || strncmp(open[--depth], name, length) != 0)) return false;
        at = skip_attributes(name + length);
        if (!at) return false;
        if (*at == '/') {
            at++;
        } else if (!closes) {
            if (depth == DEPTH) return false;
            open[depth++] = name;
        }
        if (*at++ != '>') return false;
        at = skip_text(at, '<');
    } while (at && depth > 0);
    return at && *at == '\0';
}

/* ---- pictures ---- */

static char *drawn(const plot *p)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    plot_svg(p, file);
    const long size = ftell(file);
    char *text = calloc((size_t)size + 1, 1);
    assert_non_null(text);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    fclose(file);
    assert_true(is_well_formed(text));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    return text;
}

/* One series in one panel. */
static char *drawn_series(plot_axis axis, const double *y, int64_t count, const bool *marked)
{
    const plot_series series = {.name = "series", .count = count, .marked = marked};
    const plot_panel panel = {.title = "panel", .axis = axis, .y = &y};
    return drawn(&(plot){.x_label = "step",
                         .mark_label = "skipped",
                         .x_first = 1,
                         .series_count = 1,
                         .series = &series,
                         .panel_count = 1,
                         .panels = &panel});
}

static int times(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

/* The path of the first curve: how often the pen is set down, and the extent of its points. */
typedef struct curve {
    int pieces, points;
    double x_lo, x_hi, y_lo, y_hi;
} curve;

static curve curve_of(const char *text)
{
    const char *end = strstr(text, CURVE);
    assert_non_null(end);
    const char *at = end;
    while (strncmp(at, " d=\"", 4) != 0) at--;
    curve c = {.x_lo = INFINITY, .x_hi = -INFINITY, .y_lo = INFINITY, .y_hi = -INFINITY};
    for (at += 4; *at != '"'; at++) {
        double x, y;
        if (*at != 'M' && *at != 'L') continue;
        assert_int_equal(sscanf(at + 1, "%lf %lf", &x, &y), 2);
        c.pieces += *at == 'M';
        c.points++;
        c.x_lo = fmin(c.x_lo, x);
        c.x_hi = fmax(c.x_hi, x);
        c.y_lo = fmin(c.y_lo, y);
        c.y_hi = fmax(c.y_hi, y);
    }
    return c;
}

/* ---- the document ---- */

static void test_plot__checker_sees_faults(void **state)
{
    (void)state;
    assert_true(is_well_formed("<svg a=\"1\">\n<text>a &amp; b<tspan/></text></svg>\n"));
    assert_false(is_well_formed("<svg/><svg/>"));
    assert_false(is_well_formed("<svg><text>a & b</text></svg>"));
    assert_false(is_well_formed("<svg><text>a</svg></text>"));
    assert_false(is_well_formed("<svg a=1></svg>"));
    assert_false(is_well_formed("<svg>"));
}

static void test_plot__text_is_escaped(void **state)
{
    (void)state;
    const double values[] = {1, 2};
    const double *y = values;
    const plot_series series = {.name = "<script>", .count = 2};
    const plot_panel panel = {.title = "\"a\" & b\x01\x1b", .y = &y};
    char *text = drawn(&(plot){.title = "1 < 2 > 0",
                               .x_label = "]]>",
                               .series_count = 1,
                               .series = &series,
                               .panel_count = 1,
                               .panels = &panel});
    assert_non_null(strstr(text, "&lt;script&gt;"));
    assert_non_null(strstr(text, "&quot;a&quot; &amp; b  <"));
    assert_non_null(strstr(text, "1 &lt; 2 &gt; 0"));
    assert_non_null(strstr(text, "]]&gt;"));
    free(text);
}

static void test_plot__same_input_same_bytes(void **state)
{
    (void)state;
    const double y[] = {3, 1, NAN, 4};
    char *once = drawn_series(PLOT_LOG10, y, 4, NULL);
    char *again = drawn_series(PLOT_LOG10, y, 4, NULL);
    assert_string_equal(once, again);
    free(once);
    free(again);
}

/* ---- series ---- */

static void test_plot__nan_is_a_gap(void **state)
{
    (void)state;
    const double y[] = {1, 2, NAN, 3, INFINITY, -INFINITY, 4, 5};
    char *text = drawn_series(PLOT_LINEAR, y, 8, NULL);
    const curve c = curve_of(text);
    assert_int_equal(c.pieces, 3);
    assert_int_equal(c.points, 5);
    free(text);
}

static void test_plot__zero_and_below_are_gaps_on_a_logarithm(void **state)
{
    (void)state;
    const double y[] = {1, 0, 2, -3, 4, -0.0};
    for (plot_axis axis = PLOT_LOG2; axis <= PLOT_LOG10; axis++) {
        char *text = drawn_series(axis, y, 6, NULL);
        const curve c = curve_of(text);
        assert_int_equal(c.pieces, 3);
        assert_int_equal(c.points, 3);
        free(text);
    }
}

static void test_plot__nothing_to_draw(void **state)
{
    (void)state;
    const double y[] = {NAN, NAN, -1};
    for (int64_t count = 0; count <= 3; count++) {
        char *text = drawn_series(PLOT_LOG2, y, count, NULL);
        assert_int_equal(curve_of(text).points, 0);
        free(text);
    }
    free(drawn(&(plot){.x_label = "step"}));
}

static void test_plot__one_point_is_a_dot(void **state)
{
    (void)state;
    const double y[] = {NAN, 7, NAN};
    char *text = drawn_series(PLOT_LINEAR, y, 3, NULL);
    assert_int_equal(curve_of(text).points, 1);
    assert_int_equal(times(text, "h0\""), 1);
    free(text);
    text = drawn_series(PLOT_LOG2, y + 1, 1, NULL);
    assert_int_equal(curve_of(text).points, 1);
    free(text);
}

/* No range is too small, too large or too far from zero to be drawn. */
static void test_plot__constants_lie_within_the_panel(void **state)
{
    (void)state;
    static const double values[] = {0, 1, -5, 65536, 1e-30, 5e-324, -1e299};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const double y[] = {values[i], values[i], values[i]};
        char *text = drawn_series(PLOT_LINEAR, y, 3, NULL);
        const curve c = curve_of(text);
        assert_int_equal(c.points, 3);
        assert_true(c.y_lo == c.y_hi && c.y_lo > TOP && c.y_hi < BOTTOM);
        free(text);
    }
}

static void test_plot__small_values_fill_the_panel(void **state)
{
    (void)state;
    static const double sizes[] = {1, 1e-8, 1e8, 1e-30};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const double y[] = {sizes[i], 2 * sizes[i], 3 * sizes[i]};
        char *text = drawn_series(PLOT_LINEAR, y, 3, NULL);
        const curve c = curve_of(text);
        assert_true(c.y_hi - c.y_lo > 100);
        assert_true(c.x_hi - c.x_lo > 700 && c.x_hi < 900);
        free(text);
    }
}

/* A loss that ran away is still a picture. */
static void test_plot__far_values(void **state)
{
    (void)state;
    const double y[] = {1, 1e38, -1e38, 1.7e308, -1.7e308, 2};
    char *text = drawn_series(PLOT_LINEAR, y, 6, NULL);
    assert_int_equal(curve_of(text).points, 4);
    free(text);
}

/* A spike of one step survives, and a long run makes no large file. */
static void test_plot__long_series_keep_their_peaks(void **state)
{
    (void)state;
    double *y = calloc(MANY, sizeof *y);
    bool *marked = calloc(MANY, sizeof *marked);
    assert_non_null(y);
    assert_non_null(marked);
    for (int i = 0; i < MANY; i++) marked[i] = true;
    y[54321] = 1;
    y[54322] = -1;
    char *text = drawn_series(PLOT_LINEAR, y, MANY, marked);
    const curve c = curve_of(text);
    assert_true(c.y_hi - c.y_lo > 100);
    assert_true(strlen(text) < 250000);
    free(text);
    free(marked);
    free(y);
}

/* ---- axes ---- */

static void test_plot__powers_of_two(void **state)
{
    (void)state;
    const double y[] = {65536, 32768, 16384};
    char *text = drawn_series(PLOT_LOG2, y, 3, NULL);
    assert_int_equal(times(text, ">2<tspan"), 3);
    assert_int_equal(times(text, ">15</tspan>"), 1);
    assert_null(strstr(text, "32768"));
    free(text);
}

static void test_plot__powers_of_ten(void **state)
{
    (void)state;
    const double near[] = {0.9, 11}, wide[] = {0.01, 1000}, far[] = {1e-9, 1};
    char *text = drawn_series(PLOT_LOG10, near, 2, NULL);
    assert_int_equal(times(text, ">5</text>"), 1);
    assert_int_equal(times(text, ">10</text>"), 1);
    free(text);
    text = drawn_series(PLOT_LOG10, wide, 2, NULL);
    assert_int_equal(times(text, ">5</text>"), 0);
    assert_int_equal(times(text, ">0.01</text>"), 1);
    free(text);
    text = drawn_series(PLOT_LOG10, far, 2, NULL);
    assert_true(times(text, ">10<tspan") >= 3);
    free(text);
}

static void test_plot__zero_has_no_sign(void **state)
{
    (void)state;
    const double y[] = {-0.1, 1};
    char *text = drawn_series(PLOT_LINEAR, y, 2, NULL);
    assert_int_equal(times(text, ">0</text>"), 1);
    assert_null(strstr(text, ">-0<"));
    free(text);
}

/* ---- marks and panels ---- */

static void test_plot__marks_are_crosses_under_the_curve(void **state)
{
    (void)state;
    const double y[] = {1, 2, 3, 4};
    const bool marked[] = {false, true, false, true}, none[] = {false, false, false, false};
    char *text = drawn_series(PLOT_LINEAR, y, 4, marked);
    assert_int_equal(times(text, CROSS), 2 + 1); /* and one in the legend */
    assert_non_null(strstr(text, ">skipped<"));
    const double lowest = curve_of(text).y_hi;
    const char *at = strstr(text, CURVE);
    while ((at = strstr(at, "<path"))) { /* all that follows the only curve */
        double x, cross;
        assert_int_equal(sscanf(at++, "<path d=\"M%lf %lf", &x, &cross), 2);
        assert_true(cross > lowest && cross < BOTTOM);
    }
    free(text);
    text = drawn_series(PLOT_LINEAR, y, 4, none);
    assert_int_equal(times(text, CROSS), 0);
    assert_null(strstr(text, ">skipped<"));
    free(text);
}

/* A series is drawn and marked where it has values; x belongs to the lowest panel of a column. */
static void test_plot__panels_show_their_own_series(void **state)
{
    (void)state;
    const double values[] = {1, 2, 3};
    const bool marked[] = {true, false, false};
    const plot_series series[] = {{.name = "first", .count = 3, .marked = marked},
                                  {.name = "second", .count = 3}};
    const double *const both[] = {values, values}, *const second[] = {NULL, values};
    const plot_panel panels[] = {{.title = "both", .y = both}, {.title = "second", .y = second}};
    plot p = {.x_label = "step",
              .series_count = 2,
              .series = series,
              .panel_count = 2,
              .panels = panels,
              .columns = 1};
    char *text = drawn(&p);
    assert_int_equal(times(text, CURVE), 3);
    assert_int_equal(times(text, CROSS), 1);
    assert_int_equal(times(text, ">step<"), 1);
    free(text);
    p.columns = 2;
    text = drawn(&p);
    assert_int_equal(times(text, CURVE), 3);
    assert_int_equal(times(text, ">step<"), 2);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plot__checker_sees_faults),
        cmocka_unit_test(test_plot__text_is_escaped),
        cmocka_unit_test(test_plot__same_input_same_bytes),
        cmocka_unit_test(test_plot__nan_is_a_gap),
        cmocka_unit_test(test_plot__zero_and_below_are_gaps_on_a_logarithm),
        cmocka_unit_test(test_plot__nothing_to_draw),
        cmocka_unit_test(test_plot__one_point_is_a_dot),
        cmocka_unit_test(test_plot__constants_lie_within_the_panel),
        cmocka_unit_test(test_plot__small_values_fill_the_panel),
        cmocka_unit_test(test_plot__far_values),
        cmocka_unit_test(test_plot__long_series_keep_their_peaks),
        cmocka_unit_test(test_plot__powers_of_two),
        cmocka_unit_test(test_plot__powers_of_ten),
        cmocka_unit_test(test_plot__zero_has_no_sign),
        cmocka_unit_test(test_plot__marks_are_crosses_under_the_curve),
        cmocka_unit_test(test_plot__panels_show_their_own_series),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

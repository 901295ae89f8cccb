/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Line charts as SVG: each column of panels stands over one x axis.  The same input gives the
 * same bytes.  Texts are UTF-8. */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum plot_axis {
    PLOT_LINEAR,
    PLOT_LOG2,
    PLOT_LOG10,
} plot_axis;

/* One curve, the same in every panel that has values of it. */
typedef struct plot_series {
    const char *name;
    int64_t count;
    const bool *marked; /* count flags: points of note, crosses under the curves; NULL = none */
} plot_series;

typedef struct plot_panel {
    const char *title;
    plot_axis axis;
    /* y[s][i]: series s at x_first + i; a gap where it cannot be drawn.  y[s] NULL: not here. */
    const double *const *y;
    double guide; /* a thin line at this value; 0 = none */
} plot_panel;

typedef struct plot {
    const char *title; /* NULL = none */
    const char *x_label;
    const char *mark_label; /* what a mark means, for the legend */
    double x_first;
    int series_count;
    const plot_series *series;
    int panel_count;
    const plot_panel *panels;
    int columns; /* panels side by side; 1 stacks them */
} plot;

/* plot_svg: write the whole picture; whether the file took it is for the caller to ask it. */
void plot_svg(const plot *p, FILE *file);

#endif

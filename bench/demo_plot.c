/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The demo's picture: the loss scale over its steps, and the two descents. */
#include "demo.h"

#include <math.h>
#include <stdlib.h>

#include "json.h"
#include "plot.h"

enum { SERIES = 3, LOSSES = DEMO_DESCENT_STEPS + 1 };

/* x counts steps from 0, the state before the first, which has no scale. */
typedef struct curves {
    double *scale; /* of count */
    bool *skipped;
    int64_t count;
} curves;

static bool fill_curves(curves *c, const demo_trace *t)
{
    const size_t count = (size_t)t->count + 1;
    *c = (curves){
        .scale = calloc(count, sizeof *c->scale),
        .skipped = calloc(count, sizeof *c->skipped),
        .count = t->count + 1,
    };
    if (!c->scale || !c->skipped) return false;
    c->scale[0] = NAN;
    for (int64_t i = 1; i < c->count; i++) {
        c->scale[i] = (double)t->steps[i - 1].report.loss_scale;
        c->skipped[i] = !t->steps[i - 1].report.applied;
    }
    return true;
}

static void free_curves(curves *c)
{
    free(c->scale);
    free(c->skipped);
}

static void draw(const demo_results *r, const curves *c, FILE *file)
{
    char number[JSON_NUMBER_SIZE], clipped[JSON_NUMBER_SIZE + 16];
    snprintf(clipped, sizeof clipped, "max-norm %s", json_number(r->clipped.max_norm, number));
    const plot_series series[SERIES] = {
        {.name = "loss scale", .count = c->count, .marked = c->skipped},
        {.name = "no clip", .count = LOSSES},
        {.name = clipped, .count = LOSSES},
    };
    const double *const scales[SERIES] = {c->scale, NULL, NULL};
    const double *const losses[SERIES] = {NULL, r->unclipped.loss, r->clipped.loss};
    const plot_panel panels[] = {
        {.title = "loss scale of each step", .axis = PLOT_LOG2, .y = scales},
        {.title = "loss, step 10 with 1000 times its gradient", .axis = PLOT_LOG10, .y = losses},
    };
    const plot p = {
        .x_label = "step",
        .mark_label = "skipped step",
        .series_count = SERIES,
        .series = series,
        .panel_count = 2,
        .panels = panels,
        .columns = 2,
    };
    plot_svg(&p, file);
}

bool demo_plot(const demo_results *results, FILE *file)
{
    curves c;
    const bool filled = fill_curves(&c, &results->trace);
    if (filled) draw(results, &c, file);
    free_curves(&c);
    return filled;
}

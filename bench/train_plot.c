/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The runs of keel train as curves: loss, norm and loss scale. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "plot.h"
#include "train_request.h"

/* The three curves of a run, and the marks of its skipped steps. */
typedef struct curves {
    char name[64];
    double *loss, *norm, *scale;
    bool *skipped;
} curves;

static bool curves_fill(curves *c, const train_request *r, const train_result *t)
{
    const size_t n = (size_t)t->count + 1;
    c->loss = malloc(n * sizeof *c->loss);
    c->norm = malloc(n * sizeof *c->norm);
    c->scale = malloc(n * sizeof *c->scale);
    c->skipped = malloc(n * sizeof *c->skipped);
    if (!c->loss || !c->norm || !c->scale || !c->skipped) return false;
    char number[JSON_NUMBER_SIZE];
    if (r->max_norm_count == 1)
        snprintf(c->name, sizeof c->name, "%s", t->recipe->name);
    else if (isinf(t->max_norm))
        snprintf(c->name, sizeof c->name, "%s, no clip", t->recipe->name);
    else
        snprintf(c->name, sizeof c->name, "%s, clip %.12s", t->recipe->name,
                 json_number(t->max_norm, number));
    for (int64_t i = 0; i < t->count; i++) {
        const train_point *p = &t->points[i];
        c->loss[i] = (double)p->loss;
        c->norm[i] = p->report.norm;
        c->scale[i] = (double)p->report.loss_scale;
        c->skipped[i] = !p->report.applied;
    }
    return true;
}

static void curves_free(curves *c)
{
    free(c->loss);
    free(c->norm);
    free(c->scale);
    free(c->skipped);
}

static void draw(const curves *c, const train_result *results, int count, FILE *file)
{
    plot_series series[TRAIN_RUNS];
    const double *loss[TRAIN_RUNS], *norm[TRAIN_RUNS], *scale[TRAIN_RUNS];
    for (int i = 0; i < count; i++) {
        series[i] = (plot_series){c[i].name, results[i].count, c[i].skipped};
        loss[i] = c[i].loss;
        norm[i] = c[i].norm;
        scale[i] = c[i].scale;
    }
    const plot_panel panels[] = {
        {.title = "Loss of the batch", .axis = PLOT_LOG10, .y = loss},
        {.title = "Gradient norm before clipping", .axis = PLOT_LOG10, .y = norm},
        {.title = "Loss scale", .axis = PLOT_LOG2, .y = scale},
    };
    const plot p = {.x_label = "step",
                    .mark_label = "skipped step",
                    .x_first = (double)results[0].first_step,
                    .series_count = count,
                    .series = series,
                    .panel_count = 3,
                    .panels = panels,
                    .columns = 1};
    plot_svg(&p, file);
}

int train_draw(const train_request *r, const train_result *results, int count, FILE *file)
{
    curves c[TRAIN_RUNS];
    memset(c, 0, sizeof c);
    int code = CLI_OK;
    for (int i = 0; i < count && !code; i++)
        if (!curves_fill(&c[i], r, &results[i]))
            code = cli_fail(CLI_ENVIRONMENT, "no memory for the plot");
    if (!code) draw(c, results, count, file);
    for (int i = 0; i < count; i++) curves_free(&c[i]);
    return code;
}

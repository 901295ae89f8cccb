/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* One run: a thread per rank, joined and compared.  That the ranks end alike is not believed but
 * checked. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "train_rank.h"

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the applied steps; NaN if there was none. */
static double median_norm(const train_result *r)
{
    double *norms = malloc(((size_t)r->count + 1) * sizeof *norms);
    int64_t n = 0;
    if (!norms) return NAN;
    for (int64_t i = 0; i < r->count; i++)
        if (r->points[i].report.applied) norms[n++] = r->points[i].report.norm;
    qsort(norms, (size_t)n, sizeof *norms, ascending);
    const double median = n == 0 ? NAN : 0.5 * (norms[(n - 1) / 2] + norms[n / 2]);
    free(norms);
    return median;
}

static double clip_rate(const train_result *r)
{
    int64_t applied = 0, clipped = 0;
    for (int64_t i = 0; i < r->count; i++) {
        applied += r->points[i].report.applied;
        clipped += r->points[i].report.applied && r->points[i].report.clip_coef < 1.0f;
    }
    return applied ? (double)clipped / (double)applied : 0.0;
}

static void summarize(const train_rank *first, train_result *r)
{
    r->first_step = first->first_step;
    r->count = first->count;
    r->applied = first->applied;
    r->skipped = first->skipped;
    r->loss_scale = first->loss_scale;
    r->accuracy = first->accuracy;
    r->loss = first->loss;
    r->params_crc = first->params_crc;
    r->counters = first->counters;
    r->slot_count = first->slot_count;
    r->norm_median = median_norm(r);
    r->clip_rate = clip_rate(r);
    r->last_norm = r->count ? r->points[r->count - 1].report.norm : NAN;
}

/* The first failure that is not merely the echo of another rank's departure. */
static int report_failure(const train_rank *ranks, int64_t n)
{
    const train_rank *worst = NULL;
    for (int64_t r = 0; r < n; r++) {
        if (ranks[r].exit_code) return ranks[r].exit_code;
        const bool echo = ranks[r].status == KEEL_ERR_COMM;
        if (ranks[r].status && (!worst || (worst->status == KEEL_ERR_COMM && !echo)))
            worst = &ranks[r];
    }
    return worst ? cli_fail(CLI_ENVIRONMENT, "%s", worst->error) : CLI_OK;
}

static int compare_ranks(const train_rank *ranks, int64_t n)
{
    for (int64_t r = 1; r < n; r++)
        if (ranks[r].params_crc != ranks[0].params_crc || ranks[r].applied != ranks[0].applied ||
            ranks[r].skipped != ranks[0].skipped || ranks[r].loss_scale != ranks[0].loss_scale)
            return cli_fail(CLI_FINDING, "rank %d ended with other parameters than rank 0", (int)r);
    return CLI_OK;
}

static int run_ranks(train_rank *ranks, int64_t n)
{
    int64_t started = 0;
    for (; started < n; started++)
        if (pthread_create(&ranks[started].thread, NULL, train_rank_main, &ranks[started])) break;
    for (int64_t r = started; r < n; r++) keel_comm_destroy(ranks[r].comm);
    for (int64_t r = 0; r < started; r++) pthread_join(ranks[r].thread, NULL);
    if (started < n) return cli_fail(CLI_ENVIRONMENT, "cannot start %d threads", (int)n);
    const int code = report_failure(ranks, n);
    return code ? code : compare_ranks(ranks, n);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int train_run(const train_options *o, const keel_recipe *recipe, double max_norm,
              train_progress progress, train_result *out)
{
    keel_comm *comms[TASK_SHARDS];
    train_rank ranks[TASK_SHARDS];
    memset(ranks, 0, sizeof ranks);
    memset(out, 0, sizeof *out);
    out->recipe = recipe;
    out->max_norm = max_norm;
    out->points = calloc((size_t)o->steps, sizeof *out->points);
    if (!out->points) return cli_fail(CLI_ENVIRONMENT, "no memory for %d steps", (int)o->steps);
    const keel_status status = keel_comm_threads((int32_t)o->ranks, comms);
    if (status) return cli_library_error(status);
    for (int64_t r = 0; r < o->ranks; r++) {
        ranks[r].options = o;
        ranks[r].recipe = recipe;
        ranks[r].max_norm = max_norm;
        ranks[r].comm = comms[r];
    }
    ranks[0].progress = progress;
    ranks[0].points = out->points;
    ranks[0].slots = out->slots;
    const double start = seconds();
    const int code = run_ranks(ranks, o->ranks);
    summarize(&ranks[0], out);
    out->tokens_per_second =
        (double)(out->count * o->batch * o->task->tokens) / (seconds() - start);
    return code;
}

void train_result_free(train_result *r)
{
    free(r->points);
    r->points = NULL;
}

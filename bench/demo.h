/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What `keel demo` computes, each lesson through the library: filled by demo_*.c, shown by
 * cmd_demo.c (text), demo_json.c and demo_plot.c. */
#ifndef BENCH_DEMO_H
#define BENCH_DEMO_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "keel/keel.h"

typedef struct demo_options {
    double max_norm, init_scale, grad_size;
    int64_t interval, steps, seed;
} demo_options;

/* Two tensors under one clip. */
typedef struct demo_clip {
    double max_norm, norm, norm_after;
    int32_t counts[2];
    float grads[2][2], clipped[2][2];
} demo_clip;

/* One value times scale in one format. */
typedef struct demo_cast {
    double value, scale;
    keel_format format;
    uint32_t code;
    float stored;
} demo_cast;

/* One step of the loss scale's life. */
typedef struct demo_step {
    double size; /* of the true gradients of its batch */
    keel_report report;
} demo_step;

typedef struct demo_trace {
    int64_t count;
    demo_step *steps;
    int64_t skips, last_skip; /* last_skip 0: none */
    float final_scale;
    /* Were every batch as large as the one at DEMO_SPIKE_STEP: skips until one fits, and the scale
     * it fits at. */
    int64_t skips_to_fit;
    float fitting_scale;
} demo_trace;

/* Which share of normal numbers a cast turns into zeros. */
typedef struct demo_flush {
    keel_format format;
    double scale;
    int64_t flushed, count;
} demo_flush;

/* f(x) = x^2/2 by gradient descent, with one wrong gradient. */
enum { DEMO_DESCENT_STEPS = 20 };
typedef struct demo_descent {
    double max_norm;
    double loss[DEMO_DESCENT_STEPS + 1]; /* before step 1, after step 1, ... */
    double largest_after;                /* of the losses after the spike */
} demo_descent;

enum {
    DEMO_SPIKE_STEP = 6,        /* of the trace: its batch has gradients near 1 */
    DEMO_DESCENT_SPIKE = 10,    /* of the descent: its gradient is */
    DEMO_DESCENT_FACTOR = 1000, /* times too large */
};

enum { DEMO_CASTS = 7, DEMO_FLUSHES = 3 };

typedef struct demo_results {
    demo_options options;
    demo_clip clip;
    demo_cast casts[DEMO_CASTS];
    demo_trace trace;
    demo_flush flushes[DEMO_FLUSHES];
    demo_descent unclipped, clipped;
    demo_clip exercise[2];
} demo_results;

/* Each fills its part of out from out->options. */
keel_status demo_run_clips(demo_results *out);
keel_status demo_run_casts(demo_results *out);
keel_status demo_run_flushes(demo_results *out);
keel_status demo_run_trace(demo_results *out);
keel_status demo_run_descents(demo_results *out);

void demo_free(demo_results *results);

void demo_json(const demo_results *results, FILE *file);

/* demo_plot: an SVG; false: out of memory, nothing written. */
bool demo_plot(const demo_results *results, FILE *file);

#endif

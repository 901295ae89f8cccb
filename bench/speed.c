/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel_speed [MiB]: nanoseconds an element costs in one core's pass over f32 gradients, beside a
 * plain read of the same memory in the same run.  Figures in docs/design.md come from here. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "keel/keel.h"
#include "rng.h"

enum { TRIES = 5 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Largest bits: integers, so that the compiler may use every lane. */
static uint32_t read_all(const float *x, int64_t n)
{
    const uint32_t *bits = (const uint32_t *)(const void *)x;
    uint32_t max = 0;
    for (int64_t i = 0; i < n; i++) max = bits[i] > max ? bits[i] : max;
    return max;
}

static double time_read(const float *x, int64_t n)
{
    double best = INFINITY;
    volatile uint32_t sink;
    for (int i = 0; i < TRIES; i++) {
        const double start = seconds();
        sink = read_all(x, n);
        best = fmin(best, seconds() - start);
    }
    (void)sink;
    return best;
}

static double time_accumulate(float *x, int64_t n, keel_norm_mode mode)
{
    keel_config cfg = KEEL_CONFIG_INIT;
    keel_param p = KEEL_PARAM_INIT;
    keel_step *step = NULL;
    double best = INFINITY;
    cfg.norm_mode = mode;
    p.grad = (keel_tensor){.data = x, .numel = n, .format = KEEL_FORMAT_F32};
    if (keel_step_create(&cfg, &p, 1, NULL, 0, &step)) return NAN;
    for (int i = 0; i < TRIES; i++) {
        const double start = seconds();
        if (keel_step_accumulate(step, 0, 1, NULL)) best = NAN;
        best = fmin(best, seconds() - start);
        if (keel_step_abandon(step, NULL)) best = NAN;
    }
    keel_step_destroy(step);
    return best;
}

int main(int argc, char **argv)
{
    const int64_t n = (argc > 1 ? strtoll(argv[1], NULL, 10) : 64) << 18;
    float *x = n > 0 ? malloc((size_t)n * sizeof *x) : NULL;
    if (!x) return fprintf(stderr, "usage: keel_speed [MiB]\n"), 2;
    for (int64_t i = 0; i < n; i++) { /* nearly normal: a sum of four */
        double sum = 0;
        for (uint64_t k = 0; k < 4; k++) sum += rng_uniform(1, (uint64_t)i * 4 + k) - 0.5;
        x[i] = (float)(1e-3 * sum);
    }
    const double scale = 1e9 / (double)n;
    printf("%lld MiB of f32, %s, ns per element\n", (long long)(n >> 18), keel_cpu_isa());
    printf("  plain read        %.3f\n", scale * time_read(x, n));
    printf("  accumulate exact  %.3f\n", scale * time_accumulate(x, n, KEEL_NORM_EXACT));
    printf("  accumulate block  %.3f\n", scale * time_accumulate(x, n, KEEL_NORM_BLOCK));
    free(x);
    return 0;
}

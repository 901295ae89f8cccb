/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The lessons without a step: clip by the joint norm, single casts, the share lost to zero. */
#include "demo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"

/* ---- clip ---- */

static keel_status run_clip(demo_clip *c)
{
    keel_tensor grads[2];
    memcpy(c->clipped, c->grads, sizeof c->clipped);
    for (int i = 0; i < 2; i++) {
        grads[i] =
            (keel_tensor){.data = c->clipped[i], .numel = c->counts[i], .format = KEEL_FORMAT_F32};
    }
    const keel_status status =
        keel_clip_global_norm(NULL, grads, 2, (float)c->max_norm, NULL, 0, &c->norm);
    if (status != KEEL_OK) return status;
    return keel_clip_global_norm(NULL, grads, 2, INFINITY, NULL, 0, &c->norm_after);
}

keel_status demo_run_clips(demo_results *out)
{
    out->clip = (demo_clip){
        .max_norm = out->options.max_norm, .counts = {2, 1}, .grads = {{3, 4}, {12, 0}}};
    keel_status status = run_clip(&out->clip);
    for (int i = 0; i < 2 && status == KEEL_OK; i++) {
        out->exercise[i] =
            (demo_clip){.max_norm = i ? 20 : 5, .counts = {2, 1}, .grads = {{6, 8}, {0, 0}}};
        status = run_clip(&out->exercise[i]);
    }
    return status;
}

/* ---- casts ---- */

keel_status demo_run_casts(demo_results *out)
{
    const double scale = out->options.init_scale;
    const demo_cast rows[DEMO_CASTS] = {
        {70000, 1, KEEL_FORMAT_F16, 0, 0},    {70000, 1, KEEL_FORMAT_BF16, 0, 0},
        {1e-8, 1, KEEL_FORMAT_F16, 0, 0},     {1e-8, scale, KEEL_FORMAT_F16, 0, 0},
        {1 + 1e-4, 1, KEEL_FORMAT_F16, 0, 0}, {1 + 1e-4, 1, KEEL_FORMAT_BF16, 0, 0},
        {1 + 1e-4, 1, KEEL_FORMAT_F32, 0, 0},
    };
    for (int i = 0; i < DEMO_CASTS; i++) {
        demo_cast *c = &out->casts[i];
        *c = rows[i];
        const keel_status status =
            keel_format_encode_f64(c->format, c->value * c->scale, KEEL_OVERFLOW_DEFAULT, &c->code);
        if (status != KEEL_OK) return status;
        c->stored = keel_format_decode(c->format, c->code);
    }
    return KEEL_OK;
}

/* ---- what a cast flushes ---- */

enum { SAMPLES = 1 << 18 };

static void fill_normal(float *x, uint64_t count, double deviation, uint64_t seed)
{
    const double turn = 6.283185307179586;
    for (uint64_t i = 0; i < count; i++) {
        /* 1 - u is never 0 */
        const double radius = deviation * sqrt(-2 * log(1 - rng_uniform(seed, 2 * i)));
        x[i] = (float)(radius * cos(turn * rng_uniform(seed, 2 * i + 1)));
    }
}

static keel_status run_flush(demo_flush *f, float *x, void *codes)
{
    const float scale = (float)f->scale;
    const keel_tensor src = {.data = x, .numel = SAMPLES, .format = KEEL_FORMAT_F32};
    const keel_tensor dst = {.data = codes, .numel = SAMPLES, .format = f->format, .scale = &scale};
    keel_cast_stats stats;
    const keel_status status = keel_quantize(NULL, &src, &dst, NULL, &stats, NULL);
    if (status != KEEL_OK) return status;
    f->flushed = stats.flushed;
    f->count = SAMPLES;
    return KEEL_OK;
}

keel_status demo_run_flushes(demo_results *out)
{
    const demo_flush rows[DEMO_FLUSHES] = {
        {KEEL_FORMAT_F16, 1, 0, 0},
        {KEEL_FORMAT_F16, out->options.init_scale, 0, 0},
        {KEEL_FORMAT_BF16, 1, 0, 0},
    };
    float *x = malloc(SAMPLES * sizeof *x);
    uint16_t *codes = malloc(SAMPLES * sizeof *codes);
    keel_status status = x && codes ? KEEL_OK : KEEL_ERR_NO_MEMORY;
    if (status == KEEL_OK)
        fill_normal(x, SAMPLES, out->options.grad_size, (uint64_t)out->options.seed);
    for (int i = 0; i < DEMO_FLUSHES && status == KEEL_OK; i++) {
        out->flushes[i] = rows[i];
        status = run_flush(&out->flushes[i], x, codes);
    }
    free(x);
    free(codes);
    return status;
}

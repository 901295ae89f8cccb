/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The lessons that run a step: the life of a loss scale, and a descent with one wrong gradient. */
#include "demo.h"

#include <math.h>
#include <stdlib.h>

#include "rng.h"

/* ---- the loss scale ---- */

enum { ELEMENTS = 64 };

typedef struct model {
    uint64_t seed, drawn;      /* random numbers so far */
    float truth[ELEMENTS];     /* gradients as exact arithmetic would have them */
    uint16_t scaled[ELEMENTS]; /* what backward leaves behind: f16, times the loss scale */
    float master[ELEMENTS];
    keel_step *step;
} model;

static keel_loss_scale_config loss_scale_config(const demo_options *o)
{
    keel_config cfg = KEEL_CONFIG_INIT;
    cfg.loss_scale.init = (float)o->init_scale;
    cfg.loss_scale.interval = (int32_t)o->interval;
    return cfg.loss_scale;
}

static keel_status begin(model *m, const demo_options *o)
{
    const keel_group sgd = KEEL_GROUP_SGD(0.1);
    keel_config cfg = KEEL_CONFIG_INIT;
    cfg.loss_scale = loss_scale_config(o);
    cfg.group_count = 1;
    cfg.groups = &sgd;
    keel_param param = KEEL_PARAM_INIT;
    param.grad = (keel_tensor){.data = m->scaled, .numel = ELEMENTS, .format = KEEL_FORMAT_F16};
    param.master = m->master;
    m->seed = (uint64_t)o->seed;
    return keel_step_create(&cfg, &param, 1, NULL, 0, &m->step);
}

/* As backward does in half precision: true gradients times the loss scale, kept in f16. */
static keel_status backward(model *m, double size)
{
    float scale;
    const keel_status status = keel_step_loss_scale(m->step, &scale);
    if (status != KEEL_OK) return status;
    for (int i = 0; i < ELEMENTS; i++) {
        /* Both signs, 0.75 to 1.25 of the size. */
        const double u = 2 * rng_uniform(m->seed, m->drawn++) - 1;
        m->truth[i] = (float)(size * (u < 0 ? u / 2 - 0.75 : u / 2 + 0.75));
    }
    const keel_tensor src = {.data = m->truth, .numel = ELEMENTS, .format = KEEL_FORMAT_F32};
    const keel_tensor dst = {
        .data = m->scaled, .numel = ELEMENTS, .format = KEEL_FORMAT_F16, .scale = &scale};
    return keel_quantize(NULL, &src, &dst, NULL, NULL, NULL);
}

static keel_status run_steps(model *m, const demo_options *o, demo_trace *t)
{
    for (int64_t i = 0; i < o->steps; i++) {
        demo_step *s = &t->steps[i];
        s->size = i + 1 == DEMO_SPIKE_STEP ? 1 : o->grad_size;
        keel_status status = backward(m, s->size);
        if (status == KEEL_OK) status = keel_step_run(m->step, NULL);
        if (status == KEEL_OK) status = keel_step_report(m->step, 0, &s->report);
        if (status != KEEL_OK) return status;
        t->count = i + 1;
        t->final_scale = s->report.loss_scale_next;
        if (s->report.applied) continue;
        t->skips++;
        t->last_skip = i + 1;
    }
    return KEEL_OK;
}

/* The rule alone, on batches whose largest gradient is one: how far down must it come? */
static keel_status skips_to_fit(const demo_options *o, demo_trace *t)
{
    const keel_loss_scale_config config = loss_scale_config(o);
    keel_loss_scale_state state;
    const keel_status status = keel_loss_scale_begin(&config, &state);
    const keel_format_info *f16 = keel_format_get(KEEL_FORMAT_F16);
    t->skips_to_fit = 0;
    if (status != KEEL_OK) return status;
    while ((double)state.scale > f16->max && !state.stuck) {
        keel_loss_scale_update(&config, &state, true);
        t->skips_to_fit++;
    }
    t->fitting_scale = state.scale;
    return KEEL_OK;
}

keel_status demo_run_trace(demo_results *out)
{
    model m = {0};
    out->trace.steps = calloc((size_t)out->options.steps, sizeof *out->trace.steps);
    if (!out->trace.steps) return KEEL_ERR_NO_MEMORY;
    keel_status status = begin(&m, &out->options);
    if (status == KEEL_OK) status = run_steps(&m, &out->options, &out->trace);
    keel_step_destroy(m.step);
    return status == KEEL_OK ? skips_to_fit(&out->options, &out->trace) : status;
}

/* ---- the descent ---- */

static double loss_at(float x)
{
    return 0.5 * (double)x * (double)x;
}

static keel_status descend(keel_step *step, const float *x, float *gradient, demo_descent *out)
{
    out->loss[0] = loss_at(*x);
    for (int i = 1; i <= DEMO_DESCENT_STEPS; i++) {
        *gradient = *x * (i == DEMO_DESCENT_SPIKE ? DEMO_DESCENT_FACTOR : 1);
        const keel_status status = keel_step_run(step, NULL);
        if (status != KEEL_OK) return status;
        out->loss[i] = loss_at(*x);
        if (i >= DEMO_DESCENT_SPIKE) out->largest_after = fmax(out->largest_after, out->loss[i]);
    }
    return KEEL_OK;
}

static keel_status run_descent(double max_norm, demo_descent *out)
{
    float x = 1, gradient = 0;
    const keel_group sgd = KEEL_GROUP_SGD(0.1);
    keel_config cfg = KEEL_CONFIG_INIT;
    cfg.max_norm = (float)max_norm;
    cfg.loss_scale.mode = KEEL_LOSS_SCALE_OFF;
    cfg.group_count = 1;
    cfg.groups = &sgd;
    keel_param param = KEEL_PARAM_INIT;
    param.grad = (keel_tensor){.data = &gradient, .numel = 1, .format = KEEL_FORMAT_F32};
    param.master = &x;

    *out = (demo_descent){.max_norm = max_norm};
    keel_step *step = NULL;
    keel_status status = keel_step_create(&cfg, &param, 1, NULL, 0, &step);
    if (status == KEEL_OK) status = descend(step, &x, &gradient, out);
    keel_step_destroy(step);
    return status;
}

keel_status demo_run_descents(demo_results *out)
{
    const keel_status status = run_descent(INFINITY, &out->unclipped);
    return status == KEEL_OK ? run_descent(out->options.max_norm, &out->clipped) : status;
}

void demo_free(demo_results *results)
{
    free(results->trace.steps);
    results->trace.steps = NULL;
}

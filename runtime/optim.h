/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The optimizers' arithmetic: scalars per group once a step, one inline per element, for every
 * device. After torch.optim.AdamW and SGD, single tensor.  Each operation is an IEEE one and stands
 * alone (nothing is contracted), so every device gives the same bits. */
#ifndef KEELI_OPTIM_H
#define KEELI_OPTIM_H

#include <math.h>

#include "keel/config.h"
#include "portable.h"

/* What a group remembers between steps. */
typedef struct keeli_group_state {
    double beta1_power; /* running products; 1 before the first applied step */
    double beta2_power;
    int64_t applied; /* steps this group was updated */
} keeli_group_state;

/* What an element meets: formed in f64 from group and state, each rounded once to f32. */
typedef struct keeli_group_scalars {
    float inv_scale; /* g' = fl32(fl32(g * inv_scale) * clip_coef) */
    float clip_coef;
    float decay;           /* adamw: 1 - lr * weight_decay; sgd: weight_decay */
    float beta1;           /* sgd: momentum */
    float one_minus_beta1; /* sgd: 1 - dampening */
    float beta2;
    float one_minus_beta2;
    float bias2_sqrt; /* sqrt(1 - beta2^t) */
    float eps;
    float step_size; /* adamw: lr / (1 - beta1^t); sgd: lr */
    int32_t nesterov;
    int32_t has_momentum;
    int32_t fresh; /* the group's first applied step: sgd's buffer holds nothing yet */
    int32_t reserved;
} keeli_group_scalars;

/* Bounds of a group's numbers; fn names the public call in the sentence. */
keel_status keeli_group_check(const char *fn, const keel_group *group, int32_t index);

KEELI_HD keeli_group_state keeli_group_begin(void)
{
    keeli_group_state s;
    s.beta1_power = 1.0;
    s.beta2_power = 1.0;
    s.applied = 0;
    return s;
}

/* Once for each applied step, before the scalars of that step are formed. */
KEELI_HD void keeli_group_advance(const keel_group *g, keeli_group_state *s)
{
    s->beta1_power *= g->beta1;
    s->beta2_power *= g->beta2;
    s->applied++;
}

KEELI_HD keeli_group_scalars keeli_adamw_scalars(const keel_group *g, const keeli_group_state *s)
{
    keeli_group_scalars x;
    memset(&x, 0, sizeof x);
    x.decay = (float)(1.0 - g->lr * g->weight_decay);
    x.beta1 = (float)g->beta1;
    x.one_minus_beta1 = (float)(1.0 - g->beta1);
    x.beta2 = (float)g->beta2;
    x.one_minus_beta2 = (float)(1.0 - g->beta2);
    x.bias2_sqrt = (float)sqrt(1.0 - s->beta2_power);
    x.eps = (float)g->eps;
    x.step_size = (float)(g->lr / (1.0 - s->beta1_power));
    return x;
}

KEELI_HD keeli_group_scalars keeli_sgd_scalars(const keel_group *g, const keeli_group_state *s)
{
    keeli_group_scalars x;
    memset(&x, 0, sizeof x);
    x.decay = (float)g->weight_decay;
    x.beta1 = (float)g->momentum;
    x.one_minus_beta1 = (float)(1.0 - g->dampening);
    x.step_size = (float)g->lr;
    x.nesterov = g->nesterov;
    x.has_momentum = g->momentum > 0;
    x.fresh = s->applied == 1;
    return x;
}

KEELI_HD keeli_group_scalars keeli_group_derive(const keel_group *g, const keeli_group_state *s,
                                                float inv_scale, float clip_coef)
{
    keeli_group_scalars x =
        g->optimizer == KEEL_OPTIMIZER_ADAMW ? keeli_adamw_scalars(g, s) : keeli_sgd_scalars(g, s);
    x.inv_scale = inv_scale;
    x.clip_coef = clip_coef;
    return x;
}

KEELI_HD float keeli_unscale_and_clip(float grad, const keeli_group_scalars *s)
{
    return grad * s->inv_scale * s->clip_coef;
}

/* From the nearer end, as torch.lerp: weight 1 (beta1 = 0) gives the gradient itself, however large
 * the moment was. */
KEELI_HD float keeli_lerp(float from, float to, float weight)
{
    const float way = to - from;
    return weight < 0.5f ? from + weight * way : to - way * (1.0f - weight);
}

KEELI_HD void keeli_adamw_element(float grad, float *p, float *m, float *v,
                                  const keeli_group_scalars *s)
{
    const float g = keeli_unscale_and_clip(grad, s);
    const float first = keeli_lerp(*m, g, s->one_minus_beta1);
    const float second = *v * s->beta2 + s->one_minus_beta2 * g * g;
    const float denominator = sqrtf(second) / s->bias2_sqrt + s->eps;
    *p = *p * s->decay - s->step_size * first / denominator;
    *m = first;
    *v = second;
}

KEELI_HD void keeli_sgd_element(float grad, float *p, const keeli_group_scalars *s)
{
    const float g = keeli_unscale_and_clip(grad, s);
    *p -= s->step_size * (g + s->decay * *p);
}

KEELI_HD void keeli_sgd_momentum_element(float grad, float *p, float *buffer,
                                         const keeli_group_scalars *s)
{
    const float d = keeli_unscale_and_clip(grad, s) + s->decay * *p;
    const float kept = s->fresh ? d : s->beta1 * *buffer + s->one_minus_beta1 * d;
    *buffer = kept;
    *p -= s->step_size * (s->nesterov ? d + s->beta1 * kept : kept);
}

#endif

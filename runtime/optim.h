/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The optimizers' arithmetic: scalars per group once a step, one inline per element for every
 * device.  After torch.optim.AdamW and SGD (single tensor, not capturable). */
#ifndef KEELI_OPTIM_H
#define KEELI_OPTIM_H

#include "keel/config.h"
#include "portable.h"

/* What a group remembers between steps. */
typedef struct keeli_group_state {
    double beta1_power; /* running products; 1 before the first applied step */
    double beta2_power;
    int64_t applied;    /* steps this group was updated */
} keeli_group_state;

/* What an element meets: formed in f64 from group and state, each rounded once to f32. */
typedef struct keeli_group_scalars {
    float inv_scale; /* g' = fl32(fl32(g * inv_scale) * clip_coef) */
    float clip_coef;
    float decay;      /* adamw: 1 - lr * weight_decay; sgd: weight_decay */
    float beta1;      /* sgd: momentum */
    float one_minus_beta1; /* sgd: 1 - dampening, or 1 at the first applied step */
    float beta2;
    float one_minus_beta2;
    float bias2_sqrt; /* sqrt(1 - beta2^t) */
    float eps;
    float step_size;  /* adamw: lr / (1 - beta1^t); sgd: lr */
    int32_t optimizer;
    int32_t nesterov;
    int32_t has_momentum;
    int32_t reserved;
} keeli_group_scalars;

#endif

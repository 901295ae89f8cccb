/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The dynamic loss scale as a pure rule: state and verdict in, state out.  A step applies it by
 * itself; the functions serve replays, schedules on paper and tests. */
#ifndef KEEL_LOSS_SCALE_H
#define KEEL_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "keel/export.h"
#include "keel/status.h"

KEEL_BEGIN_DECLS

/* Whose rules; the numbers of a preset come from keel_loss_scale_preset().
 * KEEL                  grows after interval clean steps, backs off on overflow, bounded both ways.
 * TORCH                 torch.amp.GradScaler.
 * MEGATRON              Megatron-LM DynamicGradScaler: hysteresis refilled only on growth.
 * DEEPSPEED             DynamicLossScaler: growth counted from the last overflow.
 * DEEPSPEED_CONSECUTIVE the same with consecutive_hysteresis: refilled on each clean step.
 * APEX                  apex.amp LossScaler (removed 2025).
 * APEX_HYSTERESIS       update_scale_hysteresis: refilled on each clean step. */
typedef enum keel_loss_scale_rule {
    KEEL_LOSS_SCALE_KEEL = 0,
    KEEL_LOSS_SCALE_TORCH = 1,
    KEEL_LOSS_SCALE_MEGATRON = 2,
    KEEL_LOSS_SCALE_DEEPSPEED = 3,
    KEEL_LOSS_SCALE_DEEPSPEED_CONSECUTIVE = 4,
    KEEL_LOSS_SCALE_APEX = 5,
    KEEL_LOSS_SCALE_APEX_HYSTERESIS = 6,
    KEEL_LOSS_SCALE_RULE_FORCE_32BIT = 0x7fffffff
} keel_loss_scale_rule;

typedef enum keel_loss_scale_mode {
    KEEL_LOSS_SCALE_DYNAMIC = 0,
    KEEL_LOSS_SCALE_STATIC = 1, /* init for ever; overflow still skips */
    KEEL_LOSS_SCALE_OFF = 2,    /* 1 for ever (bf16, fp8, f32); overflow still skips */
    KEEL_LOSS_SCALE_MODE_FORCE_32BIT = 0x7fffffff
} keel_loss_scale_mode;

typedef struct keel_loss_scale_config {
    keel_loss_scale_rule rule;
    keel_loss_scale_mode mode;
    float init;
    float growth;       /* > 1 */
    float backoff;      /* in (0, 1) */
    float min;          /* >= 2^-126 */
    float max;          /* <= 2^126, so that 1/scale is a normal number */
    int32_t interval;   /* clean steps between growths, >= 1 */
    int32_t hysteresis; /* overflows before the first backoff, >= 1; every rule takes it */
} keel_loss_scale_config;

/* Everything the rule remembers. */
typedef struct keel_loss_scale_state {
    float scale;
    int32_t clean; /* clean steps since the last overflow or growth */
    int32_t hysteresis_left;
    int32_t stuck;         /* 1 after an overflow at min: the scale could not back off */
    int64_t iteration;     /* updates so far; deepspeed counts growth from it */
    int64_t last_overflow; /* iteration of the last overflow, -1 before the first */
} keel_loss_scale_state;

/* keel_loss_scale_preset: the configuration of a peer, its defaults included.  Presets whose peer
 * has no bound carry [2^-126, 2^126], so the scale stays finite and invertible.
 * name    "keel", "torch", "megatron", "deepspeed", "deepspeed-consecutive", "apex",
 *         "apex-hysteresis".
 * Errors  INVALID: unknown name; the sentence lists the known ones.
 * Since   0.1 */
KEEL_API keel_status keel_loss_scale_preset(const char *name, keel_loss_scale_config *out_config);

/* keel_loss_scale_begin: check a configuration and make its first state.
 * Errors  INVALID: a value out of its bounds or init outside [min, max]; the sentence names it.
 * Since   0.1 */
KEEL_API keel_status keel_loss_scale_begin(const keel_loss_scale_config *config,
                                           keel_loss_scale_state *out_state);

/* keel_loss_scale_update: one step of the rule.  Call once per step, from the verdict all ranks
 * share, whether the step was applied or skipped.
 * config  one that keel_loss_scale_begin() accepted.
 * found   true if any gradient of the step, on any rank, was not finite.
 * Errors  none.
 * Since   0.1 */
KEEL_API void keel_loss_scale_update(const keel_loss_scale_config *config,
                                     keel_loss_scale_state *state, bool found);

KEEL_END_DECLS
#endif

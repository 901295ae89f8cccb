/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Per-tensor scales: the slot, and the rule that moves its scale from what casts have seen.  A step
 * owns slots (keel_config.slots) and moves them all in keel_step_decide(); the rule by itself, a
 * pure function, serves replays and tests.
 *
 *   scale = fmt_max * 2^-margin / amax        stored = cast(x * scale), value = stored * scale_inv
 */
#ifndef KEEL_SCALING_H
#define KEEL_SCALING_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "keel/export.h"
#include "keel/formats.h"
#include "keel/status.h"

KEEL_BEGIN_DECLS

enum { KEEL_HISTORY_MAX = 65536 };

/* FORWARD   activations; an infinity there is the model's affair: counted, vetoed only if asked.
 * WEIGHT    low-precision copies that keel_step_update() writes.
 * GRADIENT  gradients of activations: scaled by the loss scale; non-finite sources skip the step.
 */
typedef enum keel_slot_role {
    KEEL_SLOT_FORWARD = 0,
    KEEL_SLOT_WEIGHT = 1,
    KEEL_SLOT_GRADIENT = 2,
    KEEL_SLOT_ROLE_FORCE_32BIT = 0x7fffffff
} keel_slot_role;

/* DELAYED  the scale follows the amax of past steps: a cast is one pass.
 * CURRENT  the scale is that of the tensor at hand: an amax pass, then the cast. */
typedef enum keel_scaling {
    KEEL_SCALING_DELAYED = 0,
    KEEL_SCALING_CURRENT = 1,
    KEEL_SCALING_FORCE_32BIT = 0x7fffffff
} keel_scaling;

typedef enum keel_amax_algorithm {
    KEEL_AMAX_MAX = 0, /* the largest of the history */
    KEEL_AMAX_MOST_RECENT = 1,
    KEEL_AMAX_ALGORITHM_FORCE_32BIT = 0x7fffffff
} keel_amax_algorithm;

/* KEEL  a non-finite amax is counted and never recorded; gradient slots remember amax / loss scale;
 *       a skipped step's gradient amax is dropped; first use is current scaling; scales stay within
 *       [2^-126, 2^126], so that the inverse is a normal number.
 * TE    Transformer Engine's update, bit for bit (common/recipe/delayed_scaling.cu). */
typedef enum keel_slot_policy {
    KEEL_SLOT_POLICY_KEEL = 0,
    KEEL_SLOT_POLICY_TE = 1,
    KEEL_SLOT_POLICY_FORCE_32BIT = 0x7fffffff
} keel_slot_policy;

/* What a slot is told; KEEL_SLOT_INIT gives the defaults. */
typedef struct keel_slot {
    const char *name; /* for error sentences at create; not kept */
    keel_slot_role role;
    keel_format format;
    keel_scaling scaling;
    keel_amax_algorithm algorithm;
    keel_slot_policy policy;
    int32_t history;      /* steps remembered, 1..KEEL_HISTORY_MAX */
    int32_t margin;       /* powers of two of head-room, -32..32 */
    int32_t power_of_two; /* 1: scales are rounded down to powers of two */
    int32_t veto;         /* 1: a non-finite source of a FORWARD slot skips the step as well */
    int32_t count;        /* 1: casts count saturated and flushed elements */
} keel_slot;

static inline keel_slot keel_slot_init_(keel_slot_role role, keel_format format)
{
    keel_slot s;
    memset(&s, 0, sizeof s);
    s.role = role;
    s.format = format;
    s.history = 1024;
    return s;
}
#define KEEL_SLOT_INIT(role, format) keel_slot_init_(role, format)

/* What a slot remembers besides its history of slot.history f32. */
typedef struct keel_slot_state {
    float scale;     /* in units of the source; gradient slots of policy KEEL: unscaled units */
    float amax;      /* last one recorded, 0 before */
    int32_t next;    /* where the history takes the next entry */
    int32_t filled;  /* entries it holds */
    int64_t updates; /* steps in which the slot ran */
    int64_t nonfinite_updates; /* of them, with an amax that was not finite */
} keel_slot_state;

/* keel_slot_begin: check a slot and make its first state; history is zeroed.
 * Errors  INVALID: a field out of its bounds, or a format that cannot be encoded; outputs
 *         untouched.
 * Since   0.1 */
KEEL_API keel_status keel_slot_begin(const keel_slot *slot, keel_slot_state *out_state,
                                     float *out_history);

/* keel_slot_update: one step of the rule.
 * slot     one that keel_slot_begin() accepted.
 * ran      false: no rank cast through this slot in the step; nothing changes.
 * amax     agreed over ranks; may be 0, inf or NaN.
 * Errors   none.
 * Since    0.2 */
KEEL_API void keel_slot_update(const keel_slot *slot, keel_slot_state *state, float *history,
                               bool ran, float amax);

/* keel_scale_from_amax: the scale of current scaling: fmt_max * 2^-margin / amax as the slot asks,
 * 1 for an amax of 0, inf or NaN, bounded like the slot's policy.
 * Errors  none.
 * Since   0.1 */
KEEL_API float keel_scale_from_amax(const keel_slot *slot, float amax);

/* What a slot has seen and does; see keel_step_slot_report(). */
typedef struct keel_slot_report {
    keel_slot_role role;
    keel_format format;
    float amax;  /* agreed in the last step the slot ran in and was finite; source units, those of
                    the unscaled gradient for a gradient slot of policy KEEL */
    float scale; /* as the next cast multiplies */
    float scale_inv;
    float headroom; /* log2(fmt_max / (amax * scale)); NaN before the first amax */
    int64_t updates;
    int64_t nonfinite_updates;
    int64_t casts;     /* this rank's (here) */
    int64_t saturated; /* elements, when counted (here) */
    int64_t flushed;   /* elements, when counted (here) */
    int64_t nonfinite; /* elements (here) */
} keel_slot_report;

KEEL_END_DECLS
#endif

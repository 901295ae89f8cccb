/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* How a slot's scale follows from amax: once, for every device.  State in, state out; the history
 * is a ring of slot->history entries. */
#ifndef KEELI_RULE_DELAYED_H
#define KEELI_RULE_DELAYED_H

#include <float.h>

#include "keel/scaling.h"
#include "portable.h"

/* Bounds of policy KEEL: scale and inverse are normal numbers. */
#define KEELI_SCALE_MIN 0x1p-126f
#define KEELI_SCALE_MAX 0x1p126f

KEELI_HD int keeli_is_finite_amax(float amax)
{
    return amax <= FLT_MAX; /* false for NaN */
}

KEELI_HD float keeli_bound_scale(float scale)
{
    return scale < KEELI_SCALE_MIN   ? KEELI_SCALE_MIN
           : scale > KEELI_SCALE_MAX ? KEELI_SCALE_MAX
                                     : scale;
}

/* One division, its numerator formed first; exact for any margin. */
KEELI_HD float keeli_scale_from_amax(const keel_slot *slot, float fmt_max, float amax)
{
    const float margin = keeli_float_of((uint32_t)(127 - slot->margin) << 23);
    const float scale = fmt_max * margin / amax;
    if (slot->policy == KEEL_SLOT_POLICY_TE) return scale > FLT_MAX ? FLT_MAX : scale;
    const float bounded = keeli_bound_scale(scale);
    return slot->power_of_two ? keeli_float_of(keeli_bits_of(bounded) & 0x7f800000u) : bounded;
}

/* Of the tensor at hand, where there is nothing to go by but its own amax. */
KEELI_HD float keeli_current_scale(const keel_slot *slot, float fmt_max, float amax)
{
    return amax > 0.0f && keeli_is_finite_amax(amax) ? keeli_scale_from_amax(slot, fmt_max, amax)
                                                     : 1.0f;
}

KEELI_HD void keeli_history_push(const keel_slot *slot, keel_slot_state *s, float *history,
                                 float amax)
{
    history[s->next] = amax;
    s->next = s->next + 1 == slot->history ? 0 : s->next + 1;
    s->filled += s->filled < slot->history;
}

/* The comparison passes over NaN. */
KEELI_HD float keeli_history_max(const keel_slot_state *s, const float *history)
{
    float max = 0.0f;
    for (int32_t i = 0; i < s->filled; i++) max = history[i] > max ? history[i] : max;
    return max;
}

KEELI_HD void keeli_slot_move(const keel_slot *slot, keel_slot_state *s, const float *history,
                              float fmt_max, float last)
{
    const float amax = slot->algorithm == KEEL_AMAX_MAX ? keeli_history_max(s, history) : last;
    if (amax > 0.0f && keeli_is_finite_amax(amax))
        s->scale = keeli_scale_from_amax(slot, fmt_max, amax);
}

/* Transformer Engine: 0 stands for "did not run", whatever else is recorded as it is. */
KEELI_HD void keeli_slot_update_te(const keel_slot *slot, keel_slot_state *s, float *history,
                                   float fmt_max, float amax)
{
    if (amax == 0.0f) return;
    s->amax = amax;
    keeli_history_push(slot, s, history, amax);
    keeli_slot_move(slot, s, history, fmt_max, amax);
}

KEELI_HD void keeli_slot_update(const keel_slot *slot, keel_slot_state *s, float *history,
                                float fmt_max, int ran, float amax)
{
    if (!ran) return;
    s->updates++;
    s->nonfinite_updates += !keeli_is_finite_amax(amax);
    if (slot->policy == KEEL_SLOT_POLICY_TE) {
        keeli_slot_update_te(slot, s, history, fmt_max, amax);
    } else if (keeli_is_finite_amax(amax)) {
        s->amax = amax;
        keeli_history_push(slot, s, history, amax);
        keeli_slot_move(slot, s, history, fmt_max, amax);
    }
}

#endif

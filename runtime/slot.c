/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The scaling rule by itself: the check of a slot, and one step of its scale. */
#include "config.h"
#include "cpu/fp_env.h"
#include "internal.h"
#include "keel/scaling.h"
#include "rule_delayed.h"

typedef struct bound {
    const char *name;
    int32_t value, lo, hi;
} bound;

keel_status keeli_slot_check(const char *fn, const keel_slot *s)
{
    const bound bounds[] = {
        {"role", (int32_t)s->role, 0, KEEL_SLOT_GRADIENT},
        {"scaling", (int32_t)s->scaling, 0, KEEL_SCALING_CURRENT},
        {"algorithm", (int32_t)s->algorithm, 0, KEEL_AMAX_MOST_RECENT},
        {"policy", (int32_t)s->policy, 0, KEEL_SLOT_POLICY_TE},
        {"history", s->history, 1, KEEL_HISTORY_MAX},
        {"margin", s->margin, -32, 32},
        {"power_of_two", s->power_of_two, 0, s->policy == KEEL_SLOT_POLICY_TE ? 0 : 1},
        {"veto", s->veto, 0, 1},
        {"count", s->count, 0, 1},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (bounds[i].value < bounds[i].lo || bounds[i].value > bounds[i].hi)
            return keel_ext_fail(KEEL_ERR_INVALID, fn, "slot '%.60s' %s=%d (want %d..%d)",
                                 s->name ? s->name : "", bounds[i].name, bounds[i].value,
                                 bounds[i].lo, bounds[i].hi);
    const keel_format_info *info = keel_format_get(s->format);
    if (!info || !info->can_encode)
        return keel_ext_fail(KEEL_ERR_INVALID, fn,
                             "slot '%.60s' format=%s (want one with an encoder)",
                             s->name ? s->name : "", info ? info->name : "unknown");
    return KEEL_OK;
}

keel_status keel_slot_begin(const keel_slot *slot, keel_slot_state *out_state, float *out_history)
{
    if (!slot || !out_state || !out_history)
        FAIL(KEEL_ERR_INVALID, "slot=%p out_state=%p out_history=%p", (const void *)slot,
             (void *)out_state, (void *)out_history);
    TRY(keeli_slot_check(__func__, slot));
    memset(out_state, 0, sizeof *out_state);
    out_state->scale = 1.0f;
    memset(out_history, 0, (size_t)slot->history * sizeof *out_history);
    return KEEL_OK;
}

static float max_of(keel_format format)
{
    return (float)keel_format_get(format)->max;
}

void keel_slot_update(const keel_slot *slot, keel_slot_state *state, float *history, bool ran,
                      float amax)
{
    const keeli_fp_env env = keeli_fp_begin();
    keeli_slot_update(slot, state, history, max_of(slot->format), ran, amax);
    keeli_fp_end(env);
}

float keel_scale_from_amax(const keel_slot *slot, float amax)
{
    const keeli_fp_env env = keeli_fp_begin();
    const float scale = keeli_current_scale(slot, max_of(slot->format), amax);
    keeli_fp_end(env);
    return scale;
}

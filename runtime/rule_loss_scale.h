/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The update of the dynamic loss scale.  The peers' rules are one algorithm with three switches; a
 * row per rule sets them. */
#ifndef KEELI_RULE_LOSS_SCALE_H
#define KEELI_RULE_LOSS_SCALE_H

#include "keel/loss_scale.h"
#include "portable.h"

typedef struct keeli_loss_scale_traits {
    uint8_t refill_each_clean;    /* hysteresis is refilled by a clean step, else only by growth */
    uint8_t count_since_overflow; /* growth at multiples of interval after the last overflow */
    uint8_t clamp_growth;         /* growth past max goes to max, else it is refused */
} keeli_loss_scale_traits;

KEELI_HD keeli_loss_scale_traits keeli_loss_scale_traits_of(keel_loss_scale_rule rule)
{
    /* refill each clean, count since overflow, clamp growth */
    const keeli_loss_scale_traits rows[] = {
        {1, 0, 0}, /* KEEL */
        {0, 0, 0}, /* TORCH */
        {0, 0, 0}, /* MEGATRON */
        {0, 1, 0}, /* DEEPSPEED */
        {1, 1, 0}, /* DEEPSPEED_CONSECUTIVE */
        {0, 0, 1}, /* APEX */
        {1, 0, 0}, /* APEX_HYSTERESIS */
    };
    return rows[rule];
}

KEELI_HD void keeli_loss_scale_overflow(const keel_loss_scale_config *c, keel_loss_scale_state *s)
{
    s->clean = 0;
    s->last_overflow = s->iteration;
    if (s->hysteresis_left > 1) {
        s->hysteresis_left--;
        return;
    }
    const float lower = s->scale * c->backoff;
    s->stuck = s->scale <= c->min;
    s->scale = lower > c->min ? lower : c->min;
}

KEELI_HD void keeli_loss_scale_clean(const keel_loss_scale_config *c, keel_loss_scale_state *s)
{
    const keeli_loss_scale_traits t = keeli_loss_scale_traits_of(c->rule);
    const int64_t stable = s->iteration - s->last_overflow - 1;
    s->stuck = 0;
    if (s->clean < INT32_MAX) s->clean++; /* deepspeed waits one step longer than interval */
    if (t.refill_each_clean) s->hysteresis_left = c->hysteresis;
    if (t.count_since_overflow ? stable <= 0 || stable % c->interval != 0 : s->clean < c->interval)
        return;
    const float higher = s->scale * c->growth;
    s->clean = 0;
    s->hysteresis_left = c->hysteresis;
    if (higher <= c->max)
        s->scale = higher;
    else if (t.clamp_growth)
        s->scale = c->max;
}

KEELI_HD void keeli_loss_scale_update(const keel_loss_scale_config *c, keel_loss_scale_state *s,
                                      int found)
{
    if (c->mode == KEEL_LOSS_SCALE_DYNAMIC) {
        if (found)
            keeli_loss_scale_overflow(c, s);
        else
            keeli_loss_scale_clean(c, s);
    }
    s->iteration++;
}

#endif

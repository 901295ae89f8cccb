/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The loss scale by itself: presets, the check of a configuration, one step of the rule. */
#include <math.h>

#include "keel/config.h"
#include "internal.h"
#include "rule_loss_scale.h"

/* Where a peer has no bound the widest stands that keeps 1/scale a normal number. */
#define NO_MIN 0x1p-126f
#define NO_MAX 0x1p126f

typedef struct preset {
    const char *name;
    keel_loss_scale_config config;
} preset;

/* name, then rule, mode, init, growth, backoff, min, max, interval, hysteresis */
static const preset presets[] = {
    {"keel", {KEEL_LOSS_SCALE_KEEL, 0, 65536, 2, 0.5f, 0x1p-24f, 0x1p126f, 2000, 1}},
    {"torch", {KEEL_LOSS_SCALE_TORCH, 0, 65536, 2, 0.5f, NO_MIN, NO_MAX, 2000, 1}},
    {"megatron", {KEEL_LOSS_SCALE_MEGATRON, 0, 0x1p32f, 2, 0.5f, 1, NO_MAX, 1000, 2}},
    {"deepspeed", {KEEL_LOSS_SCALE_DEEPSPEED, 0, 65536, 2, 0.5f, 1, NO_MAX, 1000, 2}},
    {"deepspeed-consecutive",
     {KEEL_LOSS_SCALE_DEEPSPEED_CONSECUTIVE, 0, 65536, 2, 0.5f, 1, NO_MAX, 1000, 2}},
    {"apex", {KEEL_LOSS_SCALE_APEX, 0, 65536, 2, 0.5f, NO_MIN, 0x1p24f, 2000, 1}},
    {"apex-hysteresis",
     {KEEL_LOSS_SCALE_APEX_HYSTERESIS, 0, 65536, 2, 0.5f, NO_MIN, NO_MAX, 2000, 1}},
};

keel_status keel_loss_scale_preset(const char *name, keel_loss_scale_config *out_config)
{
    if (!name || !out_config) FAIL(KEEL_ERR_INVALID, "%s is NULL", name ? "out_config" : "name");
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(presets[i].name, name) != 0) continue;
        *out_config = presets[i].config;
        return KEEL_OK;
    }
    char known[160] = "";
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (i > 0) strcat(known, ", ");
        strcat(known, presets[i].name);
    }
    FAIL(KEEL_ERR_INVALID, "name='%.40s' (want one of %s)", name, known);
}

keel_status keel_loss_scale_begin(const keel_loss_scale_config *config,
                                  keel_loss_scale_state *out_state)
{
    if (!config || !out_state)
        FAIL(KEEL_ERR_INVALID, "%s is NULL", config ? "out_state" : "config");
    const keel_loss_scale_config *c = config;
    if ((uint32_t)c->rule > KEEL_LOSS_SCALE_APEX_HYSTERESIS)
        FAIL(KEEL_ERR_INVALID, "rule=%d (want 0..%d)", (int)c->rule,
             (int)KEEL_LOSS_SCALE_APEX_HYSTERESIS);
    if ((uint32_t)c->mode > KEEL_LOSS_SCALE_OFF)
        FAIL(KEEL_ERR_INVALID, "mode=%d (want 0..%d)", (int)c->mode, (int)KEEL_LOSS_SCALE_OFF);
    if (!(c->growth > 1 && c->growth <= 0x1p24f))
        FAIL(KEEL_ERR_INVALID, "growth=%g (want above 1, to 2^24)", (double)c->growth);
    if (!(c->backoff >= 0x1p-24f && c->backoff < 1))
        FAIL(KEEL_ERR_INVALID, "backoff=%g (want 2^-24 to below 1)", (double)c->backoff);
    if (!(c->min >= NO_MIN && c->min <= c->max && c->max <= NO_MAX))
        FAIL(KEEL_ERR_INVALID, "min=%g max=%g (want 2^-126 <= min <= max <= 2^126)", (double)c->min,
             (double)c->max);
    if (!(c->init >= c->min && c->init <= c->max))
        FAIL(KEEL_ERR_INVALID, "init=%g (want min=%g .. max=%g)", (double)c->init, (double)c->min,
             (double)c->max);
    if (c->interval < 1) FAIL(KEEL_ERR_INVALID, "interval=%d (want >= 1)", c->interval);
    if (c->hysteresis < 1) FAIL(KEEL_ERR_INVALID, "hysteresis=%d (want >= 1)", c->hysteresis);

    memset(out_state, 0, sizeof *out_state);
    out_state->scale = c->mode == KEEL_LOSS_SCALE_OFF ? 1.0f : c->init;
    out_state->hysteresis_left = c->hysteresis;
    out_state->last_overflow = -1;
    return KEEL_OK;
}

void keel_loss_scale_update(const keel_loss_scale_config *config, keel_loss_scale_state *state,
                            bool found)
{
    keeli_loss_scale_update(config, state, found);
}

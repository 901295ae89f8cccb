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

/* The rows of config.def bound every number; the rows of a whole configuration that are not the
 * loss scale's hold their defaults here. */
static keel_status check_bounds(const char *fn, const keel_loss_scale_config *config)
{
    keel_config cfg = KEEL_CONFIG_INIT;
    cfg.loss_scale = *config;
#define X(field, value, lo, hi, text)                                                    \
    if (!((double)cfg.field >= (double)(lo) && (double)cfg.field <= (double)(hi)))       \
        return keel_ext_fail(KEEL_ERR_INVALID, fn, #field "=%.9g (want %.9g..%.9g): %s", \
                             (double)cfg.field, (double)(lo), (double)(hi), text);
#include "keel/config.def"
#undef X
    return KEEL_OK;
}

keel_status keel_loss_scale_begin(const keel_loss_scale_config *config,
                                  keel_loss_scale_state *out_state)
{
    if (!config || !out_state)
        FAIL(KEEL_ERR_INVALID, "%s is NULL", config ? "out_state" : "config");
    const keel_loss_scale_config *c = config;
    TRY(check_bounds(__func__, c));
    if (c->growth == 1) FAIL(KEEL_ERR_INVALID, "growth=1 (want above 1)");
    if (c->backoff == 1) FAIL(KEEL_ERR_INVALID, "backoff=1 (want below 1)");
    if (c->min > c->max)
        FAIL(KEEL_ERR_INVALID, "min=%.9g (want <= max=%.9g)", (double)c->min, (double)c->max);
    if (c->init < c->min || c->init > c->max)
        FAIL(KEEL_ERR_INVALID, "init=%.9g (want min=%.9g .. max=%.9g)", (double)c->init,
             (double)c->min, (double)c->max);

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

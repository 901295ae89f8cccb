/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Every preset of the loss scale against its peer's algorithm, written down here a second time as
 * that peer writes it, over long random runs. */
#include "check.h"
#include "random.h"

/* What a peer keeps between steps.  The bounds are the configuration's: where the peer itself has
 * none, a growth past max does not happen and a backoff ends at min. */
typedef struct peer {
    const keel_loss_scale_config *c;
    float scale;
    int32_t tracker, hysteresis;
    int64_t iteration, last_overflow;
} peer;

static void back_off(peer *p)
{
    p->scale *= p->c->backoff;
    if (p->scale < p->c->min) p->scale = p->c->min;
}

static void grow(peer *p)
{
    const float grown = p->scale * p->c->growth;
    if (grown <= p->c->max) p->scale = grown;
}

/* torch.amp.GradScaler; keel's default is the same with bounds. */
static void torch(peer *p, bool found)
{
    if (found) {
        back_off(p);
        p->tracker = 0;
        return;
    }
    const int32_t successful = p->tracker + 1;
    if (successful == p->c->interval) {
        grow(p);
        p->tracker = 0;
    } else {
        p->tracker = successful;
    }
}

/* Megatron-LM DynamicGradScaler.update. */
static void megatron(peer *p, bool found)
{
    if (found) {
        p->tracker = 0;
        p->hysteresis -= 1;
        if (p->hysteresis <= 0) back_off(p);
    } else {
        p->tracker += 1;
        if (p->tracker == p->c->interval) {
            p->tracker = 0;
            p->hysteresis = p->c->hysteresis;
            grow(p);
        }
    }
}

/* DeepSpeed DynamicLossScaler.update_scale. */
static void deepspeed_either(peer *p, bool found, bool consecutive)
{
    if (found) {
        if (p->c->hysteresis == 1 || p->hysteresis == 1)
            back_off(p);
        else
            p->hysteresis -= 1;
        p->last_overflow = p->iteration;
    } else {
        if (consecutive) p->hysteresis = p->c->hysteresis;
        const int64_t stable = p->iteration - p->last_overflow - 1;
        if (stable > 0 && stable % p->c->interval == 0) {
            if (!consecutive) p->hysteresis = p->c->hysteresis;
            grow(p);
        }
    }
    p->iteration += 1;
}

static void deepspeed(peer *p, bool found)
{
    deepspeed_either(p, found, false);
}

static void deepspeed_consecutive(peer *p, bool found)
{
    deepspeed_either(p, found, true);
}

/* apex.amp LossScaler.update_scale: growth ends at max itself. */
static void apex(peer *p, bool found)
{
    if (found) {
        back_off(p);
        p->tracker = 0;
    } else {
        p->tracker += 1;
    }
    if (p->tracker == p->c->interval) {
        p->scale *= p->c->growth;
        if (p->scale > p->c->max) p->scale = p->c->max;
        p->tracker = 0;
    }
}

/* apex update_scale_hysteresis. */
static void apex_hysteresis(peer *p, bool found)
{
    if (found) {
        p->hysteresis -= 1;
        if (p->hysteresis > 0) {
            p->tracker = 0;
            return;
        }
        back_off(p);
        p->tracker = 0;
        return;
    }
    p->hysteresis = p->c->hysteresis;
    p->tracker += 1;
    if (p->tracker == p->c->interval) {
        grow(p);
        p->tracker = 0;
    }
}

typedef struct preset {
    const char *name;
    void (*update)(peer *p, bool found);
    bool has_tracker, has_hysteresis;
} preset;

static const preset presets[] = {
    {"keel", torch, true, false},
    {"keel", apex_hysteresis, true, true},
    {"torch", torch, true, false},
    {"megatron", megatron, true, true},
    {"deepspeed", deepspeed, false, true},
    {"deepspeed-consecutive", deepspeed_consecutive, false, true},
    {"apex", apex, true, false},
    {"apex-hysteresis", apex_hysteresis, true, true},
};
enum { PRESETS = sizeof presets / sizeof *presets };

static keel_loss_scale_config config_of(const char *name, float init)
{
    keel_loss_scale_config c;
    assert_ok(keel_loss_scale_preset(name, &c));
    c.init = init;
    return c;
}

static keel_loss_scale_state begin(const keel_loss_scale_config *c)
{
    keel_loss_scale_state s;
    assert_ok(keel_loss_scale_begin(c, &s));
    return s;
}

/* "The scale is finite and > 0", "never infinite, never zero, 1/S always normal". */
static void check_invariants(const keel_loss_scale_config *c, const keel_loss_scale_state *s)
{
    const float inverse = 1 / s->scale;
    if (s->scale >= c->min && s->scale <= c->max && isnormal(s->scale) && isnormal(inverse)) return;
    fail_msg("scale=%a out of [%a, %a]", (double)s->scale, (double)c->min, (double)c->max);
}

static void check_agreement(const preset *row, const peer *p, const keel_loss_scale_state *s)
{
    assert_same_f32(s->scale, p->scale);
    if (row->has_tracker) assert_int_equal(s->clean, p->tracker);
    if (row->has_hysteresis)
        assert_int_equal(s->hysteresis_left, p->hysteresis < 1 ? 1 : p->hysteresis);
}

/* One long random run; overflows come in stretches, seldom, evenly or mostly. */
static void follow(const preset *row, const keel_loss_scale_config *c, random_source *r)
{
    peer p = {.c = c, .scale = c->init, .hysteresis = c->hysteresis, .last_overflow = -1};
    keel_loss_scale_state s = begin(c);
    int64_t rate = 1;
    for (int step = 0; step < 2000; step++) {
        if (step % 100 == 0) rate = random_below(r, 8);
        const bool found = random_below(r, 8) < rate;
        const bool at_minimum = s.scale <= c->min, spent = s.hysteresis_left <= 1;
        row->update(&p, found);
        keel_loss_scale_update(c, &s, found);
        check_agreement(row, &p, &s);
        check_invariants(c, &s);
        assert_int_equal(s.stuck, found && at_minimum && spent);
    }
    assert_int_equal(s.iteration, 2000);
}

static void follow_ranges(const preset *row, keel_loss_scale_config c, random_source *r)
{
    static const float ranges[][3] = {
        /* min, init, max */
        {0x1p-126f, 65536, 0x1p126f},
        {0.25f, 4, 16},
        {3, 3, 100},
        {0x1p120f, 0x1p125f, 0x1p126f},
        {0x1p-126f, 0x1p-125f, 0x1p-120f},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        c.min = ranges[i][0];
        c.init = ranges[i][1];
        c.max = ranges[i][2];
        follow(row, &c, r);
    }
}

/* "Presets reproduce torch, Megatron-LM, DeepSpeed and apex rule for rule." */
static void test_loss_scale_peers__presets_follow_their_peers(void **state)
{
    (void)state;
    random_source r = random_begin(1);
    for (int i = 0; i < PRESETS; i++)
        for (int32_t interval = 1; interval <= 5; interval++)
            for (int32_t hysteresis = 1; hysteresis <= 3; hysteresis++)
                for (int32_t odd = 0; odd <= 1; odd++) {
                    keel_loss_scale_config c = config_of(presets[i].name, 65536);
                    c.interval = interval;
                    c.hysteresis = presets[i].has_hysteresis ? hysteresis : 1;
                    c.growth = odd ? 1.7f : c.growth;
                    c.backoff = odd ? 0.3f : c.backoff;
                    follow_ranges(&presets[i], c, &r);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_scale_peers__presets_follow_their_peers),
    };
    return cmocka_run_group_tests_name("runtime.loss_scale_peers", tests, NULL, NULL);
}

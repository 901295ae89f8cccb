/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The loss scale as a pure rule: the numbers of the presets, traces done by hand, bounds, and the
 * state that a restored run continues from.  What the peers do in long runs is in
 * test_loss_scale_peers.c.
 *
 * "The scale is finite and > 0, 1/S always normal; the update happens exactly once a step, from the
 * agreed decision, skipped or not." */
#include <float.h>

#include "check.h"
#include "random.h"

/* Indexed by rule. */
static const char *const names[] = {
    "keel", "torch", "megatron", "deepspeed", "deepspeed-consecutive", "apex", "apex-hysteresis"};
enum { PRESETS = sizeof names / sizeof *names };

static keel_loss_scale_config preset(const char *name)
{
    keel_loss_scale_config c;
    assert_ok(keel_loss_scale_preset(name, &c));
    return c;
}

static keel_loss_scale_state begin(const keel_loss_scale_config *c)
{
    keel_loss_scale_state s;
    assert_ok(keel_loss_scale_begin(c, &s));
    return s;
}

/* rule, mode, init, growth, backoff, min, max, interval, hysteresis */
static void test_loss_scale__presets_carry_the_peers_numbers(void **state)
{
    (void)state;
    static const keel_loss_scale_config wanted[PRESETS] = {
        {0, 0, 0x1p16f, 2, 0.5f, 0x1p-24f, 0x1p126f, 2000, 1},
        {1, 0, 0x1p16f, 2, 0.5f, 0x1p-126f, 0x1p126f, 2000, 1},
        {2, 0, 0x1p32f, 2, 0.5f, 1, 0x1p126f, 1000, 2},
        {3, 0, 0x1p16f, 2, 0.5f, 1, 0x1p126f, 1000, 2},
        {4, 0, 0x1p16f, 2, 0.5f, 1, 0x1p126f, 1000, 2},
        {5, 0, 0x1p16f, 2, 0.5f, 0x1p-126f, 0x1p24f, 2000, 1},
        {6, 0, 0x1p16f, 2, 0.5f, 0x1p-126f, 0x1p126f, 2000, 1},
    };
    for (int i = 0; i < PRESETS; i++) {
        const keel_loss_scale_config c = preset(names[i]);
        assert_memory_equal(&c, &wanted[i], sizeof c);
        assert_same_f32(begin(&c).scale, c.init);
    }
    const keel_config cfg = KEEL_CONFIG_INIT;
    assert_memory_equal(&cfg.loss_scale, &wanted[0], sizeof cfg.loss_scale);
}

static void test_loss_scale__unknown_presets_are_refused(void **state)
{
    (void)state;
    const keel_loss_scale_config untouched = preset("apex");
    keel_loss_scale_config c = untouched;
    for (int i = 0; i < PRESETS; i++)
        assert_refused(keel_loss_scale_preset("Torch", &c), KEEL_ERR_INVALID, names[i]);
    assert_refused(keel_loss_scale_preset("Torch", &c), KEEL_ERR_INVALID, "'Torch'");
    assert_refused(keel_loss_scale_preset("", &c), KEEL_ERR_INVALID, "''");
    assert_refused(keel_loss_scale_preset(NULL, &c), KEEL_ERR_INVALID, "name");
    assert_refused(keel_loss_scale_preset("keel", NULL), KEEL_ERR_INVALID, "out_config");
    assert_memory_equal(&c, &untouched, sizeof c);
}

#define REFUSED(field, value, word)                                                 \
    do {                                                                            \
        keel_loss_scale_config spoilt = preset("keel");                             \
        spoilt.field = (value);                                                     \
        assert_refused(keel_loss_scale_begin(&spoilt, &s), KEEL_ERR_INVALID, word); \
        assert_int_equal(s.iteration, 77);                                          \
    } while (0)

static void test_loss_scale__begin_checks_by_itself(void **state)
{
    (void)state;
    keel_loss_scale_state s = {.iteration = 77};
    REFUSED(rule, (keel_loss_scale_rule)7, "rule=7");
    REFUSED(rule, (keel_loss_scale_rule)-1, "rule=");
    REFUSED(mode, (keel_loss_scale_mode)3, "mode=3");
    REFUSED(growth, 1, "growth=1");
    REFUSED(growth, 0x1p25f, "growth=");
    REFUSED(growth, NAN, "growth=");
    REFUSED(backoff, 1, "backoff=1");
    REFUSED(backoff, 0, "backoff=0");
    REFUSED(backoff, NAN, "backoff=");
    REFUSED(min, 0, "min=0");
    REFUSED(min, 0x1p-127f, "min=");
    REFUSED(min, NAN, "min=");
    REFUSED(max, 0x1p127f, "max=");
    REFUSED(max, INFINITY, "max=inf");
    REFUSED(max, 0x1p-25f, "max=");
    REFUSED(init, 0, "init=0");
    REFUSED(init, 0x1p-25f, "init=");
    REFUSED(init, INFINITY, "init=inf");
    REFUSED(init, NAN, "init=");
    REFUSED(interval, 0, "interval=0");
    REFUSED(hysteresis, 0, "hysteresis=0");
    assert_refused(keel_loss_scale_begin(NULL, &s), KEEL_ERR_INVALID, "config");
    const keel_loss_scale_config c = preset("keel");
    assert_refused(keel_loss_scale_begin(&c, NULL), KEEL_ERR_INVALID, "out_state");
}

/* Steps as letters, x an overflow; a digit after each is log2 of the scale that it left. */
static void check_trace(const char *name, int32_t interval, int32_t hysteresis, const char *trace)
{
    keel_loss_scale_config c = preset(name);
    c.init = 0x1p4f;
    c.interval = interval;
    c.hysteresis = hysteresis;
    keel_loss_scale_state s = begin(&c);
    for (const char *at = trace; *at; at += 2) {
        if (*at == ' ') at++;
        keel_loss_scale_update(&c, &s, *at == 'x');
        if (s.scale != exp2f((float)(at[1] - '0')))
            fail_msg("%s: %g after \"%.*s\"", name, (double)s.scale, (int)(at - trace + 2), trace);
    }
}

static void test_loss_scale__traces_by_hand(void **state)
{
    (void)state;
    check_trace("keel", 2, 1, "o4o5o5o6 x5o5x4o4o5");
    check_trace("torch", 3, 1, "o4o4o5 o5o5x4 o4o4o5");
    /* Two overflows before the first backoff, then each one backs off until the next growth. */
    check_trace("megatron", 2, 2, "x4o4x3x2o2x1o1o2 x2o2x1");
    /* One clean step more than the interval from the start and from an overflow. */
    check_trace("deepspeed", 2, 1, "o4o4o5o5o6 x5o5o5o6o6o7");
    check_trace("deepspeed", 2, 2, "x4o4x3x2o2o2o3 x3x2");
    /* Overflows that clean steps separate never back off. */
    check_trace("deepspeed-consecutive", 3, 2, "x4o4x4o4x4x3x2o2x2x1");
    check_trace("apex", 2, 1, "o4o5x4o4o5o5o6");
    check_trace("apex-hysteresis", 2, 2, "x4o4x4x3x2o2o3x3o3x3x2");
}

static keel_loss_scale_config any_config(random_source *r)
{
    keel_loss_scale_config c;
    const int low = -126 + (int)random_below(r, 253), high = low + (int)random_below(r, 127 - low);
    memset(&c, 0, sizeof c);
    c.rule = (keel_loss_scale_rule)random_below(r, PRESETS);
    c.growth = 1 + exp2f((float)(random_below(r, 47) - 23));
    c.backoff = fminf(exp2f((float)-random_below(r, 25)) * 0.9f + 0x1p-24f, 0.9999f);
    c.min = ldexpf(1, low);
    c.max = ldexpf(1, high);
    c.init = ldexpf(1, low + (int)random_below(r, high - low + 1));
    c.interval = 1 + (int32_t)random_below(r, 4);
    c.hysteresis = 1 + (int32_t)random_below(r, 3);
    return c;
}

/* Runs of one kind long enough to reach either bound. */
static void test_loss_scale__always_invertible(void **state)
{
    (void)state;
    random_source r = random_begin(31);
    for (int trial = 0; trial < 3000; trial++) {
        const keel_loss_scale_config c = any_config(&r);
        keel_loss_scale_state s = begin(&c);
        for (int run = 0; run < 20; run++) {
            const bool found = random_below(&r, 2);
            for (int64_t i = random_below(&r, 60); i > 0; i--) {
                keel_loss_scale_update(&c, &s, found);
                assert_true(s.scale >= c.min && s.scale <= c.max && s.scale > 0);
                assert_true(1 / s.scale >= FLT_MIN && 1 / s.scale <= FLT_MAX);
                assert_true(s.hysteresis_left >= 1 && s.hysteresis_left <= c.hysteresis);
            }
        }
    }
}

/* pytorch/pytorch#98828: a long clean stretch grew the scale to infinity, and half of infinity is
 * infinity.  2^127 is refused, its inverse being subnormal; at 2^126 growth is. */
static void test_loss_scale__never_grows_past_its_inverse(void **state)
{
    (void)state;
    for (int rule = 0; rule < PRESETS; rule++) {
        keel_loss_scale_config c = preset(names[rule]);
        keel_loss_scale_state s;
        c.init = c.max = 0x1p127f;
        assert_refused(keel_loss_scale_begin(&c, &s), KEEL_ERR_INVALID, "=1.70141183e+38");
        c.init = c.max = 0x1p126f;
        c.interval = c.hysteresis = 1;
        s = begin(&c);
        for (int i = 0; i < 5; i++) keel_loss_scale_update(&c, &s, false);
        assert_same_f32(s.scale, 0x1p126f);
        keel_loss_scale_update(&c, &s, true);
        assert_same_f32(s.scale, 0x1p125f);
        assert_same_f32(0x1p125f * (1 / s.scale), 1.0f);
    }
}

/* "Growth past max refused, clean reset"; apex goes to max instead. */
static void test_loss_scale__growth_at_the_maximum(void **state)
{
    (void)state;
    for (int rule = 0; rule < PRESETS; rule++) {
        keel_loss_scale_config c = preset(names[rule]);
        c.init = 64;
        c.max = 100;
        c.interval = 3;
        keel_loss_scale_state s = begin(&c);
        for (int i = 0; i < 4; i++) keel_loss_scale_update(&c, &s, false); /* deepspeed's waits */
        assert_same_f32(s.scale, rule == KEEL_LOSS_SCALE_APEX ? 100.0f : 64.0f);
        assert_in_range(s.clean, 0, 1);
    }
}

/* ai-forever/ru-gpts#63: repeated overflow drove the scale to 0, or ended the run at the floor. */
static void test_loss_scale__stops_at_the_minimum(void **state)
{
    (void)state;
    static const float scales[] = {2, 1, 0.5f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f};
    for (int rule = 0; rule < PRESETS; rule++) {
        keel_loss_scale_config c = preset(names[rule]);
        c.init = 4;
        c.min = 0.25f;
        c.interval = c.hysteresis = 1;
        keel_loss_scale_state s = begin(&c);
        for (int i = 0; i < 8; i++) {
            keel_loss_scale_update(&c, &s, true);
            assert_same_f32(s.scale, scales[i]);
            assert_int_equal(s.stuck, i >= 4);
        }
        keel_loss_scale_update(&c, &s, false);
        assert_int_equal(s.stuck, 0);
        if (s.last_overflow == 7 && s.scale == 0.25f) /* deepspeed's one step more */
            keel_loss_scale_update(&c, &s, false);
        assert_same_f32(s.scale, 0.5f);
        keel_loss_scale_update(&c, &s, true);
        assert_same_f32(s.scale, 0.25f);
        assert_int_equal(s.stuck, 0); /* it could back off */
    }
}

static void assert_state(const keel_loss_scale_state *s, float scale, int32_t clean)
{
    assert_same_f32(s->scale, scale);
    assert_int_equal(s->clean, clean);
}

/* huggingface/accelerate#439: two optimizers on one scaler advanced it twice.  One update per
 * iteration, whoever overflowed. */
static void test_loss_scale__optimizers_share_one_update(void **state)
{
    (void)state;
    keel_loss_scale_config c = preset("torch");
    c.init = 256;
    c.interval = 2;
    keel_loss_scale_state s = begin(&c);
    const bool overflow[3][2] = {{false, false}, {false, false}, {false, true}};
    for (int i = 0; i < 3; i++) {
        keel_loss_scale_update(&c, &s, overflow[i][0] || overflow[i][1]);
        assert_state(&s, i == 1 ? 512 : 256, i == 0);
    }
    assert_int_equal(s.iteration, 3);
}

/* NVIDIA-NeMo/Megatron-Bridge#5591: ranks that updated from their own flags drifted apart. */
static void test_loss_scale__ranks_update_from_the_agreed_flag(void **state)
{
    (void)state;
    static const bool flags[2][3] = {{true, false, false}, {false, false, true}};
    static const float scales[] = {32, 32, 16};
    keel_loss_scale_config c = preset("keel");
    c.init = 64;
    c.interval = 2;
    keel_loss_scale_state ranks[2] = {begin(&c), begin(&c)};
    for (int i = 0; i < 3; i++)
        for (int rank = 0; rank < 2; rank++) {
            keel_loss_scale_update(&c, &ranks[rank], flags[0][i] || flags[1][i]);
            assert_state(&ranks[rank], scales[i], i == 1);
        }
}

/* huggingface/accelerate#4289: after a resume the counter or the scale began anew. */
static void test_loss_scale__a_restored_state_continues(void **state)
{
    (void)state;
    keel_loss_scale_config c = preset("keel");
    c.init = 1024;
    c.interval = 4;
    keel_loss_scale_state s = begin(&c);
    for (int i = 0; i < 3; i++) keel_loss_scale_update(&c, &s, false);
    keel_loss_scale_state restored;
    memcpy(&restored, &s, sizeof s);
    assert_state(&restored, 1024, 3);
    keel_loss_scale_update(&c, &restored, false);
    assert_state(&restored, 2048, 0);

    random_source r = random_begin(32);
    for (int trial = 0; trial < 2000; trial++) { /* cut anywhere, in every rule */
        c = any_config(&r);
        keel_loss_scale_state one = begin(&c), two = one;
        const int64_t cut = random_below(&r, 60);
        for (int i = 0; i < 60; i++) {
            const bool found = random_below(&r, 4) == 0;
            keel_loss_scale_update(&c, &one, found);
            if (i == cut) {
                keel_loss_scale_state other = two;
                memset(&two, 0x5a, sizeof two);
                two = other;
            }
            keel_loss_scale_update(&c, &two, found);
            assert_memory_equal(&one, &two, sizeof one);
        }
    }
}

/* "STATIC: init for ever; OFF: 1 for ever." */
static void test_loss_scale__fixed_modes_never_move(void **state)
{
    (void)state;
    for (int rule = 0; rule < PRESETS; rule++)
        for (int mode = KEEL_LOSS_SCALE_STATIC; mode <= KEEL_LOSS_SCALE_OFF; mode++) {
            keel_loss_scale_config c = preset(names[rule]);
            c.mode = (keel_loss_scale_mode)mode;
            c.interval = 1;
            keel_loss_scale_state s = begin(&c);
            for (int i = 0; i < 100; i++) {
                keel_loss_scale_update(&c, &s, i % 3 == 0);
                assert_state(&s, mode == KEEL_LOSS_SCALE_OFF ? 1 : c.init, 0);
                assert_int_equal(s.stuck, 0);
            }
            assert_int_equal(s.iteration, 100);
        }
}

/* The longest interval: counters end where integers do. */
static void test_loss_scale__counters_do_not_wrap(void **state)
{
    (void)state;
    for (int rule = 0; rule < PRESETS; rule++) {
        keel_loss_scale_config c = preset(names[rule]);
        c.init = 1024;
        c.interval = INT32_MAX;
        keel_loss_scale_state s = begin(&c);
        s.iteration = s.clean = INT32_MAX - 2; /* so many clean steps from the start */
        keel_loss_scale_update(&c, &s, false);
        assert_state(&s, 1024, INT32_MAX - 1);
        while (s.clean != 0 && s.iteration < (int64_t)INT32_MAX + 2)
            keel_loss_scale_update(&c, &s, false);
        assert_state(&s, 2048, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_scale__presets_carry_the_peers_numbers),
        cmocka_unit_test(test_loss_scale__unknown_presets_are_refused),
        cmocka_unit_test(test_loss_scale__begin_checks_by_itself),
        cmocka_unit_test(test_loss_scale__traces_by_hand),
        cmocka_unit_test(test_loss_scale__always_invertible),
        cmocka_unit_test(test_loss_scale__never_grows_past_its_inverse),
        cmocka_unit_test(test_loss_scale__growth_at_the_maximum),
        cmocka_unit_test(test_loss_scale__stops_at_the_minimum),
        cmocka_unit_test(test_loss_scale__optimizers_share_one_update),
        cmocka_unit_test(test_loss_scale__ranks_update_from_the_agreed_flag),
        cmocka_unit_test(test_loss_scale__a_restored_state_continues),
        cmocka_unit_test(test_loss_scale__fixed_modes_never_move),
        cmocka_unit_test(test_loss_scale__counters_do_not_wrap),
    };
    return cmocka_run_group_tests_name("runtime.loss_scale", tests, NULL, NULL);
}

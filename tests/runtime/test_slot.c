/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The scaling rule by itself: what 0, tiny, infinite and NaN maxima do to a scale, by value. */
#include <float.h>
#include <math.h>

#include "check.h"

enum { LONGEST = 8 };

typedef struct slot {
    keel_slot is;
    keel_slot_state state;
    float history[LONGEST];
} slot;

static slot slot_begin(keel_slot_policy policy, keel_amax_algorithm algorithm, int32_t history)
{
    slot s = {.is = KEEL_SLOT_INIT(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3)};
    s.is.policy = policy;
    s.is.algorithm = algorithm;
    s.is.history = history;
    assert_ok(keel_slot_begin(&s.is, &s.state, s.history));
    return s;
}

/* The scale after one more update. */
static float ran(slot *s, float amax)
{
    keel_slot_update(&s->is, &s->state, s->history, true, amax);
    return s->state.scale;
}

static float untouched(slot *s)
{
    keel_slot_update(&s->is, &s->state, s->history, false, 0);
    return s->state.scale;
}

static const keel_slot_policy policies[] = {KEEL_SLOT_POLICY_KEEL, KEEL_SLOT_POLICY_TE};
static const keel_amax_algorithm algorithms[] = {KEEL_AMAX_MAX, KEEL_AMAX_MOST_RECENT};

/* pytorch/ao#4714: an all-zero tensor is no reason for a scale of 0 or infinity. */
static void test_slot__zeros_leave_the_scale_alone(void **state)
{
    (void)state;
    for (int p = 0; p < 2; p++) {
        slot s = slot_begin(policies[p], KEEL_AMAX_MAX, 4);
        assert_same_f32(ran(&s, 0), 1.0f);
        assert_same_f32(ran(&s, 0), 1.0f);
        assert_same_f32(ran(&s, 2), 224.0f);
        s = slot_begin(policies[p], KEEL_AMAX_MAX, 1);
        assert_same_f32(ran(&s, 2), 224.0f);
        assert_same_f32(ran(&s, 0), 224.0f);
    }
}

/* NVIDIA/TransformerEngine#65: a history of one entry is used before it is cleared, and cleared. */
static void test_slot__one_entry_follows_every_amax(void **state)
{
    (void)state;
    for (int p = 0; p < 2; p++)
        for (int a = 0; a < 2; a++) {
            slot s = slot_begin(policies[p], algorithms[a], 1);
            assert_same_f32(ran(&s, 2), 224.0f);
            assert_same_f32(ran(&s, 8), 56.0f);
            assert_same_f32(ran(&s, 1), 448.0f);
        }
}

/* NVIDIA/TransformerEngine#825: a step in which the slot did not run is no step of its history;
 * one in which it saw zeros is, and only the default policy can tell them apart. */
static void test_slot__untouched_is_not_zero(void **state)
{
    (void)state;
    for (int p = 0; p < 2; p++) {
        slot s = slot_begin(policies[p], KEEL_AMAX_MAX, 2);
        assert_same_f32(ran(&s, 16), 28.0f);
        assert_same_f32(ran(&s, 4), 28.0f);
        assert_same_f32(untouched(&s), 28.0f);
        assert_int_equal(s.state.updates, 2);
        assert_same_f32(ran(&s, 4), 112.0f);
        s = slot_begin(policies[p], KEEL_AMAX_MAX, 2);
        ran(&s, 16);
        ran(&s, 4);
        const bool rolls = policies[p] == KEEL_SLOT_POLICY_KEEL;
        assert_same_f32(ran(&s, 0), rolls ? 112.0f : 28.0f);
    }
}

/* "The next finite amax takes effect at once"; the preset waits until the window is past it. */
static void test_slot__infinity_is_forgotten_at_once_or_kept_for_a_window(void **state)
{
    (void)state;
    for (int32_t length = 1; length <= LONGEST; length++) {
        slot own = slot_begin(KEEL_SLOT_POLICY_KEEL, KEEL_AMAX_MAX, length);
        slot te = slot_begin(KEEL_SLOT_POLICY_TE, KEEL_AMAX_MAX, length);
        assert_same_f32(ran(&own, 2), 224.0f);
        assert_same_f32(ran(&te, 2), 224.0f);
        assert_same_f32(ran(&own, INFINITY), 224.0f);
        assert_same_f32(ran(&te, INFINITY), 224.0f);
        assert_int_equal(own.state.nonfinite_updates, 1);
        assert_same_f32(own.state.amax, 2.0f);
        for (int32_t i = 1; i < length; i++) {
            assert_same_f32(ran(&own, 4), 112.0f);
            assert_same_f32(ran(&te, 4), 224.0f);
        }
        assert_same_f32(ran(&own, 4), 112.0f);
        assert_same_f32(ran(&te, 4), 112.0f);
    }
}

/* NaN never stays in the history of the default policy, and never becomes a scale of either. */
static void test_slot__nan_is_counted_and_dropped(void **state)
{
    (void)state;
    for (int p = 0; p < 2; p++)
        for (int a = 0; a < 2; a++) {
            slot s = slot_begin(policies[p], algorithms[a], 3);
            assert_same_f32(ran(&s, NAN), 1.0f);
            assert_same_f32(ran(&s, 2), 224.0f);
            assert_same_f32(ran(&s, f32_of_bits(0x7f800001)), 224.0f);
            assert_int_equal(s.state.nonfinite_updates, 2);
            assert_int_equal(s.state.updates, 3);
            assert_same_f32(ran(&s, 8), 56.0f);
        }
}

static void test_slot__scales_have_bounds(void **state)
{
    (void)state;
    slot own = slot_begin(KEEL_SLOT_POLICY_KEEL, KEEL_AMAX_MAX, 1);
    slot te = slot_begin(KEEL_SLOT_POLICY_TE, KEEL_AMAX_MAX, 1);
    assert_same_f32(ran(&own, 0x1p-149f), 0x1p126f);
    assert_same_f32(ran(&te, 0x1p-149f), FLT_MAX);
    own.is.margin = 32;
    assert_same_f32(ran(&own, FLT_MAX), 0x1p-126f);
    assert_same_f32(keel_scale_from_amax(&own.is, FLT_MAX), 0x1p-126f);
    assert_same_f32(keel_scale_from_amax(&te.is, 0x1p-149f), FLT_MAX);
    own.is.margin = -32;
    assert_same_f32(keel_scale_from_amax(&own.is, 0x1p-100f), 0x1p126f);
}

static void test_slot__margin_and_power_of_two(void **state)
{
    (void)state;
    slot s = slot_begin(KEEL_SLOT_POLICY_KEEL, KEEL_AMAX_MAX, 1);
    s.is.margin = 2;
    assert_same_f32(ran(&s, 1), 112.0f);
    s.is.margin = -1;
    assert_same_f32(ran(&s, 1), 896.0f);
    s.is.power_of_two = 1; /* 448 / 3 = 149.33 lies above 128 */
    s.is.margin = 0;
    assert_same_f32(ran(&s, 3), 128.0f);
    assert_same_f32(ran(&s, 3.5f), 128.0f); /* 448 / 3.5 is one */
    assert_same_f32(keel_scale_from_amax(&s.is, 3), 128.0f);
    for (int exponent = -140; exponent <= 127; exponent++) {
        int unused;
        assert_same_f32(frexpf(ran(&s, ldexpf(1.37f, exponent)), &unused), 0.5f);
    }
}

/* A changed setting speaks at the next update, not before. */
static void test_slot__a_change_waits_for_the_next_update(void **state)
{
    (void)state;
    slot s = slot_begin(KEEL_SLOT_POLICY_KEEL, KEEL_AMAX_MAX, 4);
    ran(&s, 16);
    assert_same_f32(ran(&s, 4), 28.0f);
    s.is.algorithm = KEEL_AMAX_MOST_RECENT;
    s.is.margin = 1;
    assert_same_f32(untouched(&s), 28.0f);
    assert_same_f32(ran(&s, 4), 56.0f);
}

/* "1 for an amax of 0, inf or NaN". */
static void test_slot__current_scaling_by_value(void **state)
{
    (void)state;
    keel_slot s = KEEL_SLOT_INIT(KEEL_SLOT_GRADIENT, KEEL_FORMAT_E5M2);
    for (int p = 0; p < 2; p++) {
        s.policy = policies[p];
        assert_same_f32(keel_scale_from_amax(&s, 7), 8192.0f);
        assert_same_f32(keel_scale_from_amax(&s, 0), 1.0f);
        assert_same_f32(keel_scale_from_amax(&s, INFINITY), 1.0f);
        assert_same_f32(keel_scale_from_amax(&s, NAN), 1.0f);
    }
}

typedef struct bad_field {
    const char *word;
    size_t offset;
    int32_t value;
} bad_field;

#define BAD(field, value)                             \
    {                                                 \
#        field "=", offsetof(keel_slot, field), value \
    }

static const bad_field bad_fields[] = {
    BAD(role, 3),      BAD(role, -1),    BAD(scaling, 2),
    BAD(algorithm, 2), BAD(policy, 2),   BAD(policy, -1),
    BAD(history, 0),   BAD(history, -1), BAD(history, 65537),
    BAD(margin, 33),   BAD(margin, -33), BAD(power_of_two, 2),
    BAD(veto, 2),      BAD(count, -1),   BAD(format, KEEL_FORMAT_E8M0),
    BAD(format, 0),    BAD(format, 99),
};

/* Every bound is named with the slot, and nothing is written. */
static void test_slot__begin_refuses_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_fields / sizeof *bad_fields; i++) {
        keel_slot s = KEEL_SLOT_INIT(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3);
        keel_slot_state out = {.scale = 7};
        float history = 7;
        s.name = "attention";
        memcpy((char *)&s + bad_fields[i].offset, &bad_fields[i].value, sizeof(int32_t));
        assert_refused(keel_slot_begin(&s, &out, &history), KEEL_ERR_INVALID, bad_fields[i].word);
        assert_non_null(strstr(keel_last_error(), "attention"));
        assert_non_null(strstr(keel_last_error(), "(want "));
        assert_same_f32(out.scale, 7.0f);
        assert_same_f32(history, 7.0f);
    }
    keel_slot s = KEEL_SLOT_INIT(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3);
    keel_slot_state out;
    float history;
    assert_refused(keel_slot_begin(NULL, &out, &history), KEEL_ERR_INVALID, "slot=");
    assert_refused(keel_slot_begin(&s, NULL, &history), KEEL_ERR_INVALID, "out_state=");
    assert_refused(keel_slot_begin(&s, &out, NULL), KEEL_ERR_INVALID, "out_history=");
    s.policy = KEEL_SLOT_POLICY_TE; /* which knows no such scales */
    s.power_of_two = 1;
    assert_refused(keel_slot_begin(&s, &out, &history), KEEL_ERR_INVALID, "power_of_two=1");
}

static void test_slot__defaults_are_the_documented_ones(void **state)
{
    (void)state;
    const keel_slot s = KEEL_SLOT_INIT(KEEL_SLOT_GRADIENT, KEEL_FORMAT_E5M2);
    assert_int_equal(s.role, KEEL_SLOT_GRADIENT);
    assert_int_equal(s.format, KEEL_FORMAT_E5M2);
    assert_int_equal(s.history, 1024);
    assert_int_equal(s.margin, 0);
    assert_int_equal(s.algorithm, KEEL_AMAX_MAX);
    assert_int_equal(s.scaling, KEEL_SCALING_DELAYED);
    assert_int_equal(s.policy, KEEL_SLOT_POLICY_KEEL);
    assert_int_equal(s.veto + s.count + s.power_of_two, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot__zeros_leave_the_scale_alone),
        cmocka_unit_test(test_slot__one_entry_follows_every_amax),
        cmocka_unit_test(test_slot__untouched_is_not_zero),
        cmocka_unit_test(test_slot__infinity_is_forgotten_at_once_or_kept_for_a_window),
        cmocka_unit_test(test_slot__nan_is_counted_and_dropped),
        cmocka_unit_test(test_slot__scales_have_bounds),
        cmocka_unit_test(test_slot__margin_and_power_of_two),
        cmocka_unit_test(test_slot__a_change_waits_for_the_next_update),
        cmocka_unit_test(test_slot__current_scaling_by_value),
        cmocka_unit_test(test_slot__begin_refuses_by_name),
        cmocka_unit_test(test_slot__defaults_are_the_documented_ones),
    };
    return cmocka_run_group_tests_name("runtime.slot", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Casts through a step's slots: which scale each takes, what it leaves for the next, what it
 * counts. */
#include <float.h>
#include <math.h>

#include "model.h"
#include "random.h"
#include "slots.h"

enum { ACT, GRAD, SLOTS }; /* an activation in e4m3 and a gradient in e5m2 */

typedef struct world {
    model m;
    keel_slot slots[SLOTS];
} world;

/* One parameter of two elements whose gradient is finite, and the two slots, not yet made. */
static void world_begin(world *w, int32_t history)
{
    model_begin(&w->m);
    model_group(&w->m, KEEL_GROUP_SGD(0.5));
    model_add_f32(&w->m, 2, (const float[]){1, 2});
    w->slots[ACT] = slot_of(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3, history);
    w->slots[GRAD] = slot_of(KEEL_SLOT_GRADIENT, KEEL_FORMAT_E5M2, history);
    w->m.cfg.slots = w->slots;
    w->m.cfg.slot_count = SLOTS;
}

/* A step in which one slot saw this value alone; the scale it leaves. */
static float step_with(world *w, int32_t slot, float value)
{
    slot_quantize_one(w->m.step, slot, value);
    model_run(&w->m);
    return slot_report(w->m.step, slot).scale;
}

/* "First use: current scaling (there is no history yet; one extra read, counted), not scale 1." */
static void test_step_slots__first_use_goes_by_its_own_amax(void **state)
{
    (void)state;
    static world w;
    keel_counters c;
    world_begin(&w, 4);
    model_create(&w.m);
    const float values[] = {0.001f, -0.002f, 0.0005f};
    const slot_cast first = slot_quantize(w.m.step, ACT, values, 3);
    assert_same_f32(first.scale_inv, 1.0f / (448.0f / 0.002f));
    assert_int_equal(first.codes[1], 0xfe); /* -448 */
    assert_ok(keel_step_counters(w.m.step, &c));
    assert_int_equal(c.slot_elements_read, 6);
    /* Another micro-batch of the first step stands by itself as well. */
    assert_same_f32(slot_quantize_one(w.m.step, ACT, 7).scale_inv, 1.0f / 64.0f);
    model_run(&w.m);
    assert_same_f32(slot_report(w.m.step, ACT).scale, 64.0f);
    assert_same_f32(slot_quantize_one(w.m.step, ACT, 1).scale_inv, 1.0f / 64.0f);
    assert_ok(keel_step_counters(w.m.step, &c));
    assert_int_equal(c.slot_elements_read, 6 + 2 + 1);
    model_end(&w.m);
}

/* The preset has no first use: scale 1 until its first update, one read. */
static void test_step_slots__preset_begins_at_one(void **state)
{
    (void)state;
    static world w;
    keel_counters c;
    world_begin(&w, 4);
    w.slots[ACT].policy = KEEL_SLOT_POLICY_TE;
    model_create(&w.m);
    assert_same_f32(slot_quantize_one(w.m.step, ACT, 7).scale_inv, 1.0f);
    assert_ok(keel_step_counters(w.m.step, &c));
    assert_int_equal(c.slot_elements_read, 1);
    model_run(&w.m);
    assert_same_f32(slot_report(w.m.step, ACT).scale, 64.0f);
    model_end(&w.m);
}

/* A slot of current scaling never goes by its history, but keeps one for its report. */
static void test_step_slots__current_slots_go_by_the_tensor_at_hand(void **state)
{
    (void)state;
    static world w;
    keel_counters c;
    world_begin(&w, 4);
    w.slots[ACT].scaling = KEEL_SCALING_CURRENT;
    w.slots[ACT].policy = KEEL_SLOT_POLICY_TE;
    w.slots[GRAD].scaling = KEEL_SCALING_CURRENT;
    model_create(&w.m);
    for (int i = 0; i < 5; i++) {
        const float amax = ldexpf(7.0f, i - 2);
        assert_same_f32(slot_quantize_one(w.m.step, ACT, amax).scale_inv, ldexpf(1.0f, i - 8));
        assert_same_f32(slot_quantize_one(w.m.step, GRAD, -amax).scale_inv, ldexpf(1.0f, i - 15));
        assert_same_f32(slot_quantize_one(w.m.step, ACT, 0).scale_inv, 1.0f);
        model_run(&w.m);
        assert_same_f32(slot_report(w.m.step, ACT).amax, amax);
    }
    assert_ok(keel_step_counters(w.m.step, &c));
    assert_int_equal(c.slot_elements_read, 5 * 3 * 2);
    model_end(&w.m);
}

/* Azure/MS-AMP#47: a scale beyond the range of f16, formed and applied in f32. */
static void test_step_slots__f16_source_takes_a_large_scale(void **state)
{
    (void)state;
    static world w;
    world_begin(&w, 4);
    w.slots[ACT].scaling = KEEL_SCALING_CURRENT;
    model_create(&w.m);
    const uint16_t halves[] = {0x0040, 0x8010}; /* 2^-18 and -2^-20 */
    const keel_tensor src = {.data = (void *)(uintptr_t)halves, .numel = 2, .format = 2};
    slot_cast c = {.count = 2, .format = KEEL_FORMAT_E4M3};
    const keel_tensor dst = {.data = c.codes, .numel = 2, .format = c.format};
    assert_ok(keel_step_quantize(w.m.step, ACT, &src, &dst, &c.scale_inv, NULL));
    assert_same_f32(c.scale_inv, 1.0f / 117440512.0f);
    assert_int_equal(c.codes[0], 0x7e);
    assert_int_equal(c.codes[1], 0xee);
    assert_same_f32(slot_value(&c, 0), 0x1p-18f);
    assert_same_f32(slot_value(&c, 1), -0x1p-20f);
    model_end(&w.m);
}

/* pytorch/ao#4714, through a step: S stays 1 over zeros, their bytes are zeros, and no NaN. */
static void test_step_slots__zeros_stay_zeros(void **state)
{
    (void)state;
    static world w;
    world_begin(&w, 4);
    model_create(&w.m);
    static const float zeros[16];
    for (int i = 0; i < 2; i++) {
        const slot_cast c = slot_quantize(w.m.step, ACT, zeros, 16);
        for (int k = 0; k < 16; k++) assert_int_equal(c.codes[k], 0);
        for (int k = 0; k < 16; k++) assert_same_f32(slot_value(&c, k), 0.0f);
        model_run(&w.m);
        assert_same_f32(slot_report(w.m.step, ACT).scale, 1.0f);
    }
    assert_same_f32(step_with(&w, ACT, 2), 224.0f);
    model_end(&w.m);
}

/* The largest of all the step's casts decides, in whatever order they came, sign aside. */
static void test_step_slots__micro_batches_share_one_amax(void **state)
{
    (void)state;
    static world w;
    world_begin(&w, 1);
    model_create(&w.m);
    for (int order = 0; order < 3; order++) {
        for (int i = 0; i < 3; i++)
            slot_quantize_one(w.m.step, ACT, (i + order) % 3 == 0 ? -14.0f : (float)i);
        slot_quantize(w.m.step, ACT, NULL, 0);
        model_run(&w.m);
        assert_same_f32(slot_report(w.m.step, ACT).scale, 32.0f);
        assert_same_f32(slot_report(w.m.step, ACT).amax, 14.0f);
        assert_int_equal(slot_report(w.m.step, ACT).updates, order + 1);
    }
    assert_int_equal(slot_report(w.m.step, ACT).casts, 12);
    assert_int_equal(slot_report(w.m.step, GRAD).casts, 0);
    assert_int_equal(slot_report(w.m.step, GRAD).updates, 0);
    model_end(&w.m);
}

/* NVIDIA/TransformerEngine#825, through a step. */
static void test_step_slots__untouched_steps_roll_nothing(void **state)
{
    (void)state;
    static world w;
    world_begin(&w, 2);
    model_create(&w.m);
    assert_same_f32(step_with(&w, ACT, 16), 28.0f);
    assert_same_f32(step_with(&w, ACT, 4), 28.0f);
    model_run(&w.m);
    assert_same_f32(slot_report(w.m.step, ACT).scale, 28.0f);
    assert_same_f32(step_with(&w, ACT, 4), 112.0f);
    model_end(&w.m);
}

/* One infinity in an activation: the default is back at the next finite amax, the preset after
 * exactly its history.  Neither skips the step. */
static void test_step_slots__infinity_freezes_the_preset_only(void **state)
{
    (void)state;
    for (int policy = 0; policy < 2; policy++)
        for (int32_t length = 1; length <= 5; length++) {
            static world w;
            world_begin(&w, length);
            w.slots[ACT].policy = (keel_slot_policy)policy;
            model_create(&w.m);
            assert_same_f32(step_with(&w, ACT, 2), 224.0f);
            assert_same_f32(step_with(&w, ACT, INFINITY), 224.0f);
            assert_int_equal(slot_last_report(w.m.step).applied, 1);
            int frozen = 1;
            while (step_with(&w, ACT, 4) == 224.0f) frozen++;
            assert_int_equal(frozen, policy == KEEL_SLOT_POLICY_TE ? length : 1);
            assert_same_f32(slot_report(w.m.step, ACT).scale, 112.0f);
            assert_int_equal(slot_report(w.m.step, ACT).nonfinite_updates, 1);
            assert_int_equal(slot_report(w.m.step, ACT).nonfinite, 1);
            model_end(&w.m);
        }
}

/* In place, what lay there is gone after the cast; the preset wants its maximum without NaN. */
static void test_step_slots__in_place_is_the_same(void **state)
{
    (void)state;
    for (int policy = 0; policy < 2; policy++) {
        unsigned char codes[3];
        for (int in_place = 0; in_place < 2; in_place++) {
            static world w;
            float values[] = {NAN, -3.5f, 0.125f}, scale_inv;
            const keel_tensor src = {.data = values, .numel = 3, .format = KEEL_FORMAT_F32};
            keel_tensor dst = {.data = codes, .numel = 3, .format = KEEL_FORMAT_E4M3};
            if (in_place) dst.data = values;
            world_begin(&w, 4);
            w.slots[ACT].policy = (keel_slot_policy)policy;
            model_create(&w.m);
            assert_ok(keel_step_quantize(w.m.step, ACT, &src, &dst, &scale_inv, NULL));
            assert_memory_equal(dst.data, codes, 3);
            model_run(&w.m);
            const bool drops = policy == KEEL_SLOT_POLICY_TE;
            assert_same_f32(slot_report(w.m.step, ACT).scale, drops ? 128.0f : 1.0f);
            assert_same_f32(slot_report(w.m.step, ACT).amax, drops ? 3.5f : 0.0f);
            assert_int_equal(slot_report(w.m.step, ACT).nonfinite, 1);
            model_end(&w.m);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_slots__first_use_goes_by_its_own_amax),
        cmocka_unit_test(test_step_slots__preset_begins_at_one),
        cmocka_unit_test(test_step_slots__current_slots_go_by_the_tensor_at_hand),
        cmocka_unit_test(test_step_slots__f16_source_takes_a_large_scale),
        cmocka_unit_test(test_step_slots__zeros_stay_zeros),
        cmocka_unit_test(test_step_slots__micro_batches_share_one_amax),
        cmocka_unit_test(test_step_slots__untouched_steps_roll_nothing),
        cmocka_unit_test(test_step_slots__infinity_freezes_the_preset_only),
        cmocka_unit_test(test_step_slots__in_place_is_the_same),
    };
    return cmocka_run_group_tests_name("runtime.step_slots", tests, NULL, NULL);
}

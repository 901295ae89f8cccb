/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Slots and the verdict of a step: gradient slots under a loss scale that moves, what a skipped
 * step leaves behind, which sources skip it, and what is counted. */
#include <math.h>

#include "model.h"
#include "random.h"
#include "slots.h"

enum { ACT, GRAD, SLOTS };

typedef struct world {
    model m;
    keel_slot slots[SLOTS];
} world;

/* One parameter with a finite gradient, an activation in e4m3 and a gradient in e5m2. */
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

static float loss_scale_of(const world *w)
{
    float scale;
    assert_ok(keel_step_loss_scale(w->m.step, &scale));
    return scale;
}

static float clamp(float scale)
{
    return fminf(fmaxf(scale, 0x1p-126f), 0x1p126f);
}

/* A gradient slot as the text has it: a window of amax / S, and the scale over the next S. */
typedef struct plain {
    float window[8], scale;
    int32_t history, count;
} plain;

static void plain_take(plain *p, float amax, float loss_scale)
{
    float largest = 0;
    if (p->count == p->history)
        memmove(p->window, p->window + 1, (size_t)--p->count * sizeof(float));
    p->window[p->count++] = amax / loss_scale;
    for (int32_t i = 0; i < p->count; i++) largest = fmaxf(largest, p->window[i]);
    if (largest > 0) p->scale = clamp(57344.0f / largest);
}

/* A step over a gradient slot, of which some are vetoed and some overflow. */
static void random_step(world *w, plain *p, random_source *r)
{
    const int fate = (int)random_below(r, 8); /* 0: veto; 1: overflow in a parameter; 2: no cast */
    const float before = loss_scale_of(w);
    const float amax = ldexpf(1 + fabsf(random_unit(r)), (int)random_below(r, 30) - 15) * before;
    if (fate != 2) slot_quantize_one(w->m.step, GRAD, -amax);
    if (fate == 0) assert_ok(keel_step_veto(w->m.step, NULL));
    model_set(&w->m.params[0], 0, fate == 1 ? INFINITY : 1.0f);
    model_run(&w->m);
    assert_int_equal(slot_last_report(w->m.step).applied, fate > 1);
    if (fate > 2) plain_take(p, amax, before);
    const keel_slot_report got = slot_report(w->m.step, GRAD);
    assert_same_f32(got.scale, clamp(p->scale / loss_scale_of(w)));
    assert_same_f32(got.scale_inv, 1.0f / got.scale);
}

/* "amax of gradient slots is kept in unscaled units, so a changed loss scale does not invalidate
 * the history": effective scale = fl32(scale / S_next), after every step of random runs in which
 * the loss scale moves at almost each. */
static void test_slot_grads__follow_the_loss_scale(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 300; trial++) {
        static world w;
        random_source r = random_begin(trial);
        plain p = {.scale = 1, .history = 1 + (int32_t)random_below(&r, 8)};
        world_begin(&w, p.history);
        w.m.cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
        w.m.cfg.loss_scale.init = 1000;
        w.m.cfg.loss_scale.growth = trial % 2 ? 2.0f : 1.7f;
        w.m.cfg.loss_scale.backoff = trial % 2 ? 0.5f : 0.3f;
        w.m.cfg.loss_scale.interval = 1 + (int32_t)random_below(&r, 3);
        model_create(&w.m);
        assert_same_f32(slot_report(w.m.step, GRAD).scale, 1.0f / 1000.0f);
        for (int i = 0; i < 40; i++) random_step(&w, &p, &r);
        model_end(&w.m);
    }
}

/* By value: the loss scale doubles, the slot's scale halves with it, and no code changes. */
static void test_slot_grads__codes_survive_a_new_loss_scale(void **state)
{
    (void)state;
    static world w;
    world_begin(&w, 4);
    w.m.cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
    w.m.cfg.loss_scale.init = 1024;
    w.m.cfg.loss_scale.interval = 1;
    model_create(&w.m);
    for (int i = 0; i < 6; i++) {
        const float s = ldexpf(1024, i);
        const float values[] = {3.5f * s, 0.1f * s};
        const slot_cast c = slot_quantize(w.m.step, GRAD, values, 2);
        assert_int_equal(c.codes[0], 0x7b);
        assert_same_f32(c.scale_inv, s / 16384);
        model_run(&w.m);
        assert_same_f32(loss_scale_of(&w), 2 * s);
    }
    model_end(&w.m);
}

/* The effective pair stays normal where the quotient would not. */
static void test_slot_grads__effective_scale_is_bounded(void **state)
{
    (void)state;
    static const float value[] = {0x1p-140f, 0x1p127f};
    static const float loss_scale[] = {0x1p-8f, 0x1p24f};
    static const float bound[] = {0x1p126f, 0x1p-126f};
    for (int i = 0; i < 2; i++) {
        static world w;
        world_begin(&w, 4);
        w.slots[GRAD].margin = i ? 32 : 0;
        w.m.cfg.loss_scale.mode = KEEL_LOSS_SCALE_STATIC;
        w.m.cfg.loss_scale.min = 0x1p-20f;
        w.m.cfg.loss_scale.init = loss_scale[i];
        model_create(&w.m);
        slot_quantize_one(w.m.step, GRAD, value[i]);
        model_run(&w.m);
        assert_same_f32(slot_report(w.m.step, GRAD).scale, bound[i]);
        assert_same_f32(slot_report(w.m.step, GRAD).scale_inv,
                        1.0f / slot_report(w.m.step, GRAD).scale);
        assert_true(isnormal(slot_report(w.m.step, GRAD).scale_inv));
        model_end(&w.m);
    }
}

/* "amax of a skipped step is discarded for gradient slots and kept when finite for forward slots".
 */
static void test_slot_grads__skip_drops_gradients_and_keeps_activations(void **state)
{
    (void)state;
    static world w;
    world_begin(&w, 1);
    model_create(&w.m);
    slot_quantize_one(w.m.step, ACT, 2);
    slot_quantize_one(w.m.step, GRAD, 7);
    model_run(&w.m);
    slot_quantize_one(w.m.step, ACT, 4);
    slot_quantize_one(w.m.step, GRAD, 14);
    assert_ok(keel_step_veto(w.m.step, NULL));
    model_run(&w.m);
    assert_int_equal(slot_last_report(w.m.step).applied, 0);
    assert_same_f32(slot_report(w.m.step, ACT).scale, 112.0f);
    assert_same_f32(slot_report(w.m.step, GRAD).scale, 8192.0f);
    assert_int_equal(slot_report(w.m.step, ACT).updates, 2);
    assert_int_equal(slot_report(w.m.step, GRAD).updates, 1);
    model_run(&w.m); /* and nothing of the skipped step speaks later */
    assert_same_f32(slot_report(w.m.step, GRAD).scale, 8192.0f);
    model_end(&w.m);
}

/* Saturation does not hide an overflow: the source of a gradient slot is judged as a gradient. */
static void test_slot_grads__nonfinite_source_skips(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++)
        for (int count = 0; count < 2; count++) {
            static world w;
            world_begin(&w, 4);
            w.slots[GRAD].count = count;
            w.m.cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
            model_create(&w.m);
            const float before = loss_scale_of(&w);
            slot_quantize_one(w.m.step, ACT, INFINITY);
            slot_quantize(w.m.step, GRAD, (const float[]){1, bad[i], 3}, 3);
            model_run(&w.m);
            const keel_report r = slot_last_report(w.m.step);
            assert_int_equal(r.applied, 0);
            assert_int_equal(r.cause, i == 0 ? KEEL_CAUSE_NAN : KEEL_CAUSE_INF);
            assert_int_equal(r.culprit_slot, GRAD);
            assert_int_equal(r.culprit_rank, 0);
            assert_int_equal(r.culprit_tensor, -1);
            assert_int_equal(r.bad_ranks, 1);
            assert_same_f32(loss_scale_of(&w), before / 2);
            assert_same_f32(w.m.params[0].master[0], 0.0f);
            assert_int_equal(slot_report(w.m.step, GRAD).nonfinite, 1);
            assert_int_equal(slot_report(w.m.step, GRAD).nonfinite_updates, 1);
            model_run(&w.m);
            assert_int_equal(slot_last_report(w.m.step).applied, 1);
            assert_int_equal(slot_last_report(w.m.step).culprit_slot, -1);
            model_end(&w.m);
        }
}

/* In a forward slot it is the model's affair, unless the caller asks. */
static void test_slot_grads__nonfinite_activation_skips_when_asked(void **state)
{
    (void)state;
    for (int veto = 0; veto < 2; veto++) {
        static world w;
        world_begin(&w, 4);
        w.slots[ACT].veto = veto;
        model_create(&w.m);
        slot_quantize_one(w.m.step, ACT, NAN);
        model_run(&w.m);
        const keel_report r = slot_last_report(w.m.step);
        assert_int_equal(r.applied, !veto);
        assert_int_equal(r.cause, veto ? KEEL_CAUSE_NAN : KEEL_CAUSE_NONE);
        assert_int_equal(r.culprit_slot, veto ? ACT : -1);
        assert_int_equal(slot_report(w.m.step, ACT).nonfinite, 1);
        assert_int_equal(slot_report(w.m.step, ACT).nonfinite_updates, 1);
        model_end(&w.m);
    }
}

/* Elements above the range, elements lost to zero, and neither where counting is off. */
static void test_slot_grads__counts_are_of_elements(void **state)
{
    (void)state;
    for (int count = 0; count < 2; count++) {
        static world w;
        world_begin(&w, 1);
        w.slots[ACT].count = count;
        model_create(&w.m);
        slot_quantize_one(w.m.step, ACT, 448);
        model_run(&w.m); /* scale 1 from here */
        const float values[] = {448, 464, 465,   -1000,    INFINITY,
                                NAN, 0,   -0.0f, 0x1p-10f, 0x1.8p-10f};
        slot_quantize(w.m.step, ACT, values, 10);
        const keel_slot_report r = slot_report(w.m.step, ACT);
        assert_int_equal(r.casts, 2);
        assert_int_equal(r.saturated, count ? 2 : 0);
        assert_int_equal(r.flushed, count ? 1 : 0);
        assert_int_equal(r.nonfinite, 2);
        model_end(&w.m);
    }
}

/* Margin and powers of two, as the next cast has them; head-room as the report defines it. */
static void test_slot_grads__margin_power_of_two_and_headroom(void **state)
{
    (void)state;
    static world w;
    world_begin(&w, 4);
    w.slots[ACT].power_of_two = 1;
    w.slots[ACT].margin = 1;
    model_create(&w.m);
    assert_true(isnan(slot_report(w.m.step, ACT).headroom));
    assert_same_f32(slot_quantize_one(w.m.step, ACT, 3).scale_inv, 0x1p-6f); /* 74.7 */
    model_run(&w.m);
    assert_same_f32(slot_report(w.m.step, ACT).scale, 64.0f);
    assert_same_f32(slot_report(w.m.step, ACT).headroom, (float)log2(448.0 / (3.0 * 64.0)));
    assert_same_f32(slot_quantize_one(w.m.step, ACT, 2).scale_inv, 0x1p-6f);
    model_end(&w.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot_grads__follow_the_loss_scale),
        cmocka_unit_test(test_slot_grads__codes_survive_a_new_loss_scale),
        cmocka_unit_test(test_slot_grads__effective_scale_is_bounded),
        cmocka_unit_test(test_slot_grads__skip_drops_gradients_and_keeps_activations),
        cmocka_unit_test(test_slot_grads__nonfinite_source_skips),
        cmocka_unit_test(test_slot_grads__nonfinite_activation_skips_when_asked),
        cmocka_unit_test(test_slot_grads__counts_are_of_elements),
        cmocka_unit_test(test_slot_grads__margin_power_of_two_and_headroom),
    };
    return cmocka_run_group_tests_name("runtime.slot_grads", tests, NULL, NULL);
}

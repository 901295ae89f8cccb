/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Low-precision copies that take their scale from a slot: each is read back with the inverse it was
 * written with, whatever has become of the slot since. */
#include <math.h>
#include <stdlib.h>

#include "model.h"
#include "random.h"
#include "slots.h"

enum { WEIGHT, SLOTS, PARAMS = 3, NUMEL = 1500 };

typedef struct world {
    model m;
    keel_slot slots[SLOTS];
    float scale_inv[PARAMS];
} world;

/* Parameters of one slot, whose gradients push them away from where they began. */
static void world_begin(world *w, keel_format format, int32_t history)
{
    random_source r = random_begin(7);
    memset(w, 0, sizeof *w);
    model_begin(&w->m);
    model_group(&w->m, KEEL_GROUP_SGD(0.25));
    w->slots[WEIGHT] = slot_of(KEEL_SLOT_WEIGHT, format, history);
    w->m.cfg.slots = w->slots;
    w->m.cfg.slot_count = SLOTS;
    for (int i = 0; i < PARAMS; i++) {
        keel_param *p = model_add(&w->m, KEEL_FORMAT_F32, NUMEL + i);
        model_copy(p, format);
        p->copy_slot = WEIGHT;
        p->copy_scale_inv = &w->scale_inv[i];
        for (int64_t k = 0; k < p->grad.numel; k++) {
            p->master[k] = ldexpf(random_unit(&r), (int)random_below(&r, 12) - 12);
            model_set(p, k, random_unit(&r) / 8);
        }
    }
}

static float amax_of(const keel_param *p)
{
    float amax = 0;
    for (int64_t k = 0; k < p->grad.numel; k++) amax = fmaxf(amax, fabsf(p->master[k]));
    return amax;
}

/* The spacing of a format's values around a magnitude. */
static double spacing(const keel_format_info *f, double x)
{
    int exponent;
    frexp(fmax(fabs(x), f->min_normal), &exponent);
    return ldexp(1.0, exponent - 1 - f->mantissa_bits);
}

/* "Dequantised copy within half an ulp of master", or the largest value where the master has
 * outgrown the scale.  The inverse rounds once more: 2^-23 of the value. */
static void check_pairs(const world *w)
{
    for (int i = 0; i < PARAMS; i++) {
        const keel_param *p = &w->m.params[i];
        const keel_format_info *f = keel_format_get(p->copy.format);
        const double inverse = (double)w->scale_inv[i];
        for (int64_t k = 0; k < p->copy.numel; k++) {
            const double code = (double)model_get(&p->copy, k), x = (double)p->master[k];
            const double wanted = fmax(fmin(x / inverse, f->max), -f->max);
            const double slack = spacing(f, wanted) / 2 + fabs(wanted) * 0x1p-22;
            if (fabs(code - wanted) > slack)
                fail_msg("param %d, element %lld: copy %g for %g", i, (long long)k, code * inverse,
                         x);
        }
    }
}

/* Before the first decision each copy goes by its own amax; then all by the slot's. */
static void test_slot_copies__pair_with_their_inverse(void **state)
{
    (void)state;
    static const keel_format formats[] = {KEEL_FORMAT_E4M3, KEEL_FORMAT_E5M2};
    for (int f = 0; f < 2; f++)
        for (int scaling = 0; scaling < 2; scaling++) {
            static world w;
            world_begin(&w, formats[f], 3);
            w.slots[WEIGHT].scaling = (keel_scaling)scaling;
            model_create(&w.m);
            assert_ok(keel_step_prime(w.m.step, NULL));
            const float max = (float)keel_format_get(formats[f])->max;
            for (int i = 0; i < PARAMS; i++)
                assert_same_f32(w.scale_inv[i], 1.0f / (max / amax_of(&w.m.params[i])));
            check_pairs(&w);
            for (int step = 0; step < 10; step++) {
                model_run(&w.m);
                check_pairs(&w);
                const keel_slot_report r = slot_report(w.m.step, WEIGHT);
                for (int i = 0; i < PARAMS; i++)
                    assert_same_f32(w.scale_inv[i], scaling == KEEL_SCALING_CURRENT
                                                        ? 1.0f / (max / amax_of(&w.m.params[i]))
                                                        : r.scale_inv);
            }
            assert_int_equal(slot_report(w.m.step, WEIGHT).updates, 10);
            assert_int_equal(slot_report(w.m.step, WEIGHT).casts, 11 * PARAMS);
            model_end(&w.m);
        }
}

/* The scale follows the amax of the copies as last written, agreed one step later. */
static void test_slot_copies__scale_follows_what_was_written(void **state)
{
    (void)state;
    static world w;
    world_begin(&w, KEEL_FORMAT_E4M3, 1);
    model_create(&w.m);
    assert_ok(keel_step_prime(w.m.step, NULL));
    for (int step = 0; step < 5; step++) {
        float amax = 0;
        for (int i = 0; i < PARAMS; i++) amax = fmaxf(amax, amax_of(&w.m.params[i]));
        model_run(&w.m);
        assert_same_f32(slot_report(w.m.step, WEIGHT).amax, amax);
        assert_same_f32(slot_report(w.m.step, WEIGHT).scale, 448.0f / amax);
    }
    model_end(&w.m);
}

/* A copy nobody primed: the first update writes it by its own amax. */
static void test_slot_copies__without_prime_the_first_update_writes(void **state)
{
    (void)state;
    static world w;
    world_begin(&w, KEEL_FORMAT_E4M3, 3);
    model_create(&w.m);
    model_run(&w.m);
    check_pairs(&w);
    assert_int_equal(slot_report(w.m.step, WEIGHT).updates, 0);
    model_run(&w.m);
    check_pairs(&w);
    assert_int_equal(slot_report(w.m.step, WEIGHT).updates, 1);
    model_end(&w.m);
}

typedef struct snapshot {
    unsigned char codes[PARAMS][NUMEL + PARAMS];
    float scale_inv[PARAMS];
    keel_slot_report report;
} snapshot;

static snapshot take(const world *w)
{
    snapshot s;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < PARAMS; i++) {
        const keel_tensor *copy = &w->m.params[i].copy;
        memcpy(s.codes[i], copy->data, (size_t)copy->numel);
        s.scale_inv[i] = w->scale_inv[i];
    }
    s.report = slot_report(w->m.step, WEIGHT);
    return s;
}

static void check_same_copies(const snapshot *a, const snapshot *b)
{
    assert_memory_equal(a->codes, b->codes, sizeof a->codes);
    assert_memory_equal(a->scale_inv, b->scale_inv, sizeof a->scale_inv);
    assert_same_f32(a->report.scale, b->report.scale);
    assert_same_f32(a->report.scale_inv, b->report.scale_inv);
    assert_same_f32(a->report.amax, b->report.amax);
    assert_int_equal(a->report.updates, b->report.updates);
}

/* On a skip "weight slots wait": copies keep their bytes and the scale they were written with, and
 * what they wrote last is agreed in the next step that is applied.  A run with skipped steps in
 * between ends where one without them does. */
static void test_slot_copies__wait_while_steps_are_skipped(void **state)
{
    (void)state;
    static world straight, skipping;
    world *both[] = {&straight, &skipping};
    for (int i = 0; i < 2; i++) {
        world_begin(both[i], KEEL_FORMAT_E4M3, 3);
        model_create(&both[i]->m);
        assert_ok(keel_step_prime(both[i]->m.step, NULL));
    }
    for (int step = 0; step < 8; step++) {
        for (int skip = 0; skip < step % 3; skip++) {
            const snapshot before = take(&skipping);
            assert_ok(keel_step_veto(skipping.m.step, NULL));
            model_run(&skipping.m);
            const snapshot after = take(&skipping);
            check_same_copies(&after, &before);
        }
        model_run(&straight.m);
        model_run(&skipping.m);
        const snapshot a = take(&straight), b = take(&skipping);
        check_same_copies(&a, &b);
    }
    for (int i = 0; i < 2; i++) model_end(&both[i]->m);
}

/* "Between decide and update: what decide changed is put back": as if it had never been. */
static void test_slot_copies__abandoned_steps_leave_no_trace(void **state)
{
    (void)state;
    static world straight, abandoning;
    world *both[] = {&straight, &abandoning};
    for (int i = 0; i < 2; i++) {
        world_begin(both[i], KEEL_FORMAT_E4M3, 3);
        model_create(&both[i]->m);
        assert_ok(keel_step_prime(both[i]->m.step, NULL));
    }
    for (int step = 0; step < 8; step++) {
        keel_step *s = abandoning.m.step;
        const snapshot before = take(&abandoning);
        assert_ok(keel_step_accumulate(s, 0, PARAMS, NULL));
        if (step % 4 == 3) assert_ok(keel_step_veto(s, NULL));
        if (step % 3 != 2) assert_ok(keel_step_decide(s, NULL));
        assert_ok(keel_step_abandon(s, NULL));
        const snapshot after = take(&abandoning);
        check_same_copies(&after, &before);
        model_run(&straight.m);
        model_run(&abandoning.m);
        const snapshot a = take(&straight), b = take(&abandoning);
        check_same_copies(&a, &b);
    }
    for (int i = 0; i < 2; i++) model_end(&both[i]->m);
}

/* What a copy lost is counted like a cast: the weights of one update outgrow the slot's scale. */
static void test_slot_copies__count_what_saturates(void **state)
{
    (void)state;
    for (int count = 0; count < 2; count++) {
        static world w;
        world_begin(&w, KEEL_FORMAT_E4M3, 3);
        w.slots[WEIGHT].count = count;
        model_create(&w.m);
        for (int i = 0; i < PARAMS; i++)
            for (int64_t k = 0; k < w.m.params[i].grad.numel; k++) {
                w.m.params[i].master[k] = k == 0 ? 1.0f : k == 1 ? 0x1p-30f : 0.5f;
                model_set(&w.m.params[i], k, k < 5 && k > 1 ? -16.0f : 0.0f);
            }
        assert_ok(keel_step_prime(w.m.step, NULL));
        assert_int_equal(slot_report(w.m.step, WEIGHT).flushed, count ? PARAMS : 0);
        model_run(&w.m); /* three elements a tensor go from 0.5 to 4.5 */
        const keel_slot_report r = slot_report(w.m.step, WEIGHT);
        assert_int_equal(r.saturated, count ? 3 * PARAMS : 0);
        assert_int_equal(r.flushed, count ? 2 * PARAMS : 0);
        assert_int_equal(r.casts, 2 * PARAMS);
        check_pairs(&w);
        model_end(&w.m);
    }
}

static void check_turned(const world *w)
{
    for (int i = 0; i < PARAMS; i++) {
        const keel_param *p = &w->m.params[i];
        const uint8_t *copy = p->copy.data, *turned = p->copy_transposed;
        const int64_t columns = p->copy_columns, rows = p->copy.numel / columns;
        for (int64_t k = 0; k < p->copy.numel; k++)
            assert_int_equal(turned[k % columns * rows + k / columns], copy[k]);
    }
}

/* Prime and update write the transposed copy with the copy, by either scaling; a skip neither. */
static void test_slot_copies__transposed_ones_follow(void **state)
{
    (void)state;
    static const int64_t columns[PARAMS] = {20, 19, 2}; /* of 1500, 1501, 1502 elements */
    static uint8_t turned[PARAMS][NUMEL + PARAMS], before[PARAMS][NUMEL + PARAMS];
    for (int scaling = 0; scaling < 2; scaling++) {
        static world w;
        world_begin(&w, KEEL_FORMAT_E4M3, 2);
        w.slots[WEIGHT].scaling = (keel_scaling)scaling;
        for (int i = 0; i < PARAMS; i++) {
            w.m.params[i].copy_transposed = turned[i];
            w.m.params[i].copy_columns = columns[i];
        }
        model_create(&w.m);
        assert_ok(keel_step_prime(w.m.step, NULL));
        check_turned(&w);
        for (int step = 0; step < 3; step++) {
            memcpy(before, turned, sizeof turned);
            model_run(&w.m);
            check_turned(&w);
            assert_true(memcmp(before, turned, sizeof turned) != 0);
        }
        memcpy(before, turned, sizeof turned);
        assert_ok(keel_step_veto(w.m.step, NULL));
        model_run(&w.m);
        assert_memory_equal(before, turned, sizeof turned);
        model_end(&w.m);
    }
}

/* What is no matrix, or would overwrite the copy, is refused at create. */
static void test_slot_copies__transposed_ones_are_matrices(void **state)
{
    (void)state;
    static world w;
    static uint8_t turned[NUMEL];
    world_begin(&w, KEEL_FORMAT_E4M3, 2);
    keel_param *p = &w.m.params[0];
    keel_step *step = NULL;
    const struct {
        void *transposed;
        int64_t columns;
        const char *said;
    } wrong[] = {{turned, 0, "copy_columns=0"},
                 {turned, -3, "copy_columns=-3"},
                 {turned, 7, "copy_columns=7"},
                 {p->copy.data, 20, "copy_transposed is the copy"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        p->copy_transposed = wrong[i].transposed;
        p->copy_columns = wrong[i].columns;
        assert_int_equal(keel_step_create(&w.m.cfg, w.m.params, PARAMS, NULL, 0, &step),
                         KEEL_ERR_INVALID);
        assert_non_null(strstr(keel_last_error(), wrong[i].said));
        assert_null(step);
    }
    p->copy_transposed = NULL;
    model_create(&w.m);
    model_end(&w.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot_copies__pair_with_their_inverse),
        cmocka_unit_test(test_slot_copies__scale_follows_what_was_written),
        cmocka_unit_test(test_slot_copies__without_prime_the_first_update_writes),
        cmocka_unit_test(test_slot_copies__wait_while_steps_are_skipped),
        cmocka_unit_test(test_slot_copies__abandoned_steps_leave_no_trace),
        cmocka_unit_test(test_slot_copies__count_what_saturates),
        cmocka_unit_test(test_slot_copies__transposed_ones_follow),
        cmocka_unit_test(test_slot_copies__transposed_ones_are_matrices),
    };
    return cmocka_run_group_tests_name("runtime.slot_copies", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The rules of a decision, seen through a step of one rank: units of the norm, the causes of a skip
 * and their order, the loss scale, and cases that other software got wrong. */
#include <stdlib.h>

#include "bigsum.h"
#include "check.h"
#include "model.h"
#include "random.h"

static void begin(model *m, const keel_loss_scale_config *loss_scale, int64_t numel,
                  const float *values)
{
    model_begin(m);
    if (loss_scale) m->cfg.loss_scale = *loss_scale;
    model_group(m, KEEL_GROUP_SGD(1));
    model_add_f32(m, numel, values);
}

#define BEGIN(m, loss_scale, ...)                                                       \
    begin((m), (loss_scale), (int64_t)(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), \
          (float[]){__VA_ARGS__})

static keel_loss_scale_config dynamic(float init, int32_t interval)
{
    keel_config cfg = KEEL_CONFIG_INIT;
    cfg.loss_scale.init = init;
    cfg.loss_scale.interval = interval;
    return cfg.loss_scale;
}

static float loss_scale_of(model *m)
{
    float scale = 0;
    assert_ok(keel_step_loss_scale(m->step, &scale));
    return scale;
}

/* One step with one gradient everywhere; the loss scale after it. */
static float step_with(model *m, float gradient)
{
    for (int64_t i = 0; i < m->params[0].grad.numel; i++) model_set(&m->params[0], i, gradient);
    model_run(m);
    return loss_scale_of(m);
}

/* "norm is in unscaled units, before clipping, global"; "then divided by S * grad_divisor"; "a
 * grad_divisor joins S in norm and multiplier". */
static void test_step_rules__scale_and_divisor_enter_norm_and_multiplier(void **state)
{
    (void)state;
    const keel_loss_scale_config ls = dynamic(1024, 2000);
    model m;
    BEGIN(&m, &ls, 3 * 3072.0f, 4 * 3072.0f);
    m.cfg.max_norm = 2.5f;
    model_create(&m);
    assert_ok(keel_step_set_grad_divisor(m.step, 3, NULL));
    model_run(&m);
    const keel_decision d = *keel_step_decision_dev(m.step);
    assert_same_f64(d.norm, 5.0);
    assert_same_f32(d.inv_scale, (float)(1.0 / 3072));
    assert_same_f32(d.clip_coef, (float)(2.5 / (5 + 1e-6)));
    assert_same_f32(d.multiplier, d.inv_scale * d.clip_coef);
    assert_int_equal(d.skip, 0);
    assert_same_f32(m.params[0].master[0], -(3 * 3072.0f * d.inv_scale * d.clip_coef));
    assert_same_f32(m.params[0].master[1], -(4 * 3072.0f * d.inv_scale * d.clip_coef));
    model_end(&m);
}

/* "norm = f64 square root of the total rounded once to f64; then divided by S * grad_divisor". */
static void test_step_rules__norm_is_a_root_then_a_quotient(void **state)
{
    (void)state;
    random_source r = random_begin(13);
    for (int trial = 0; trial < 300; trial++) {
        const float values[] = {random_unit(&r), random_unit(&r), random_unit(&r)};
        const double divisor = (double)random_below(&r, 1000000) / 7 + 1;
        const keel_loss_scale_config ls = dynamic(1 + (float)random_below(&r, 9), 2000);
        model m;
        begin(&m, &ls, 3, values);
        model_create(&m);
        assert_ok(keel_step_set_grad_divisor(m.step, divisor, NULL));
        model_run(&m);
        assert_same_f64(model_report(&m).norm,
                        bigsum_norm(values, 3) / ((double)ls.init * divisor));
        model_end(&m);
    }
}

/* The divisor in device memory is read at decide, not when it is set. */
static void test_step_rules__divisor_is_read_at_decide(void **state)
{
    (void)state;
    static double divisor = NAN;
    model m;
    BEGIN(&m, NULL, 6.0f, 8.0f);
    model_create(&m);
    assert_ok(keel_step_set_grad_divisor(m.step, -1, &divisor));
    assert_ok(keel_step_accumulate(m.step, 0, 1, NULL));
    divisor = 2;
    assert_ok(keel_step_decide(m.step, NULL));
    divisor = NAN;
    assert_ok(keel_step_update(m.step, NULL));
    assert_same_f64(model_report(&m).norm, 5.0);
    assert_same_f32(m.params[0].master[1], -4.0f);
    model_end(&m);
}

/* "A value there that is not finite and > 0 skips the step with cause DIVISOR."  No loss scale
 * would make any of these good, so none moves it. */
static void test_step_rules__bad_divisors_skip(void **state)
{
    (void)state;
    static const double bad[] = {0, -0.0, -1, NAN, INFINITY, -INFINITY, 1e300, 1e-300};
    const keel_loss_scale_config ls = dynamic(8, 1000);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        model m;
        BEGIN(&m, &ls, 3, 4);
        model_create(&m);
        assert_ok(keel_step_set_grad_divisor(m.step, 1, &bad[i]));
        model_run(&m);
        assert_int_equal(model_report(&m).cause, KEEL_CAUSE_DIVISOR);
        assert_same_f32(model_report(&m).loss_scale_next, 8.0f);
        assert_same_f32(m.params[0].master[0], 0.0f);
        assert_same_f32(keel_step_decision_dev(m.step)->multiplier, 0.0f);
        model_end(&m);
    }
}

/* The product of scale and divisor is too large to invert: a smaller scale cures that. */
static void test_step_rules__scale_backs_off_from_a_divisor_too_large(void **state)
{
    (void)state;
    const keel_loss_scale_config ls = dynamic(0x1p120f, 2000);
    model m;
    BEGIN(&m, &ls, 1, 1);
    model_create(&m);
    assert_ok(keel_step_set_grad_divisor(m.step, 256, NULL));
    assert_same_f32(step_with(&m, 1), 0x1p119f);
    assert_int_equal(model_report(&m).cause, KEEL_CAUSE_DIVISOR);
    assert_same_f32(step_with(&m, 1), 0x1p118f);
    assert_same_f32(step_with(&m, 1), 0x1p118f); /* 1 / 2^126 is normal */
    assert_int_equal(model_report(&m).applied, 1);
    model_end(&m);
}

/* keel/report.h: "Why a step was skipped, the first that holds in this order." */
static void test_step_rules__causes_come_in_order(void **state)
{
    (void)state;
    const float nan_loss = NAN, good_loss = 1;
    const double bad_divisor = 0;
    for (int first = KEEL_CAUSE_NAN; first <= KEEL_CAUSE_SKIP_NORM + 1; first++) {
        model m;
        BEGIN(&m, NULL, 3, 4, 0);
        m.cfg.skip_norm = first <= KEEL_CAUSE_SKIP_NORM ? 4.9f : 5;
        model_create(&m);
        model_set(&m.params[0], 2, first <= KEEL_CAUSE_INF ? INFINITY : 0);
        if (first <= KEEL_CAUSE_NAN) model_set(&m.params[0], 1, NAN);
        assert_ok(
            keel_step_check_loss(m.step, first <= KEEL_CAUSE_LOSS ? &nan_loss : &good_loss, NULL));
        assert_ok(keel_step_check_loss(m.step, &good_loss, NULL)); /* does not take it back */
        if (first <= KEEL_CAUSE_VETO) assert_ok(keel_step_veto(m.step, NULL));
        if (first <= KEEL_CAUSE_DIVISOR)
            assert_ok(keel_step_set_grad_divisor(m.step, 1, &bad_divisor));
        model_run(&m);
        const keel_report r = model_report(&m);
        const bool skipped = first <= KEEL_CAUSE_SKIP_NORM;
        assert_int_equal(r.cause, skipped ? first : KEEL_CAUSE_NONE);
        assert_int_equal(r.applied, !skipped);
        assert_int_equal(keel_step_decision_dev(m.step)->skip, skipped);
        assert_int_equal(keel_step_decision_dev(m.step)->cause, r.cause);
        assert_same_f32(r.clip_coef, skipped ? 0.0f : 1.0f);
        assert_same_f32(m.params[0].master[0], skipped ? 0.0f : -3.0f);
        model_end(&m);
    }
}

/* Only gradients move the loss scale: "found: any non-finite gradient", whatever else skips. */
static void test_step_rules__votes_do_not_move_the_loss_scale(void **state)
{
    (void)state;
    const keel_loss_scale_config ls = dynamic(8, 1000);
    const float inf_loss = INFINITY;
    model m;
    BEGIN(&m, &ls, 1, 1);
    model_create(&m);
    assert_ok(keel_step_veto(m.step, NULL));
    assert_same_f32(step_with(&m, 1), 8.0f);
    assert_ok(keel_step_check_loss(m.step, &inf_loss, NULL));
    assert_same_f32(step_with(&m, 1), 8.0f);
    assert_int_equal(model_report(&m).skipped_steps, 2);
    assert_same_f32(step_with(&m, INFINITY), 4.0f);
    model_end(&m);
}

/* "Bypassed (S = 1), which keep the finite check"; a static scale stays and skips as well. */
static void test_step_rules__fixed_scales_still_skip(void **state)
{
    (void)state;
    for (int mode = KEEL_LOSS_SCALE_STATIC; mode <= KEEL_LOSS_SCALE_OFF; mode++) {
        keel_loss_scale_config ls = dynamic(8, 1);
        ls.mode = (keel_loss_scale_mode)mode;
        const float scale = mode == KEEL_LOSS_SCALE_OFF ? 1 : 8;
        model m;
        BEGIN(&m, &ls, 1);
        model_create(&m);
        assert_same_f32(step_with(&m, NAN), scale);
        assert_int_equal(model_report(&m).applied, 0);
        assert_same_f32(step_with(&m, 8), scale);
        assert_same_f32(m.params[0].master[0], -8 / scale);
        model_end(&m);
    }
}

/* pytorch/pytorch#98828: a scale that has grown to infinity never comes back.  Here it stops at
 * 2^126, whose inverse is a normal number, so unscaling is exact. */
static void test_step_rules__scale_stays_finite_and_invertible(void **state)
{
    (void)state;
    const keel_loss_scale_config ls = dynamic(0x1p126f, 1);
    model m;
    BEGIN(&m, &ls, 0);
    model_create(&m);
    assert_same_f32(step_with(&m, 0x1p125f), 0x1p126f);
    assert_same_f32(m.params[0].master[0], -0.5f);
    assert_same_f32(step_with(&m, INFINITY), 0x1p125f);
    model_end(&m);
}

/* ai-forever/ru-gpts#63: repeated overflow ends at the minimum and is reported, not fatal. */
static void test_step_rules__scale_stops_at_its_minimum(void **state)
{
    (void)state;
    keel_loss_scale_config ls = dynamic(4, 1);
    ls.min = 0.25f;
    static const float wanted[] = {2, 1, 0.5f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f};
    model m;
    BEGIN(&m, &ls, 0);
    model_create(&m);
    for (int i = 0; i < 8; i++) {
        assert_same_f32(step_with(&m, INFINITY), wanted[i]);
        assert_int_equal(model_report(&m).loss_scale_stuck, i >= 4);
    }
    assert_int_equal(model_report(&m).skipped_steps, 8);
    assert_same_f32(step_with(&m, 1), 0.5f);
    assert_int_equal(model_report(&m).loss_scale_stuck, 0);
    model_end(&m);
}

/* huggingface/accelerate#439: "One loss scale serves all parameter groups and optimizers of a
 * step.  Updated once a step." */
static void test_step_rules__groups_share_one_loss_scale(void **state)
{
    (void)state;
    const keel_loss_scale_config ls = dynamic(256, 2);
    model m;
    BEGIN(&m, &ls, 1);
    model_add_f32(&m, 1, (float[]){1})->group = model_group(&m, KEEL_GROUP_ADAMW(0.5));
    model_create(&m);
    assert_same_f32(step_with(&m, 1), 256.0f);
    assert_same_f32(step_with(&m, 1), 512.0f);
    model_set(&m.params[1], 0,
              INFINITY); /* of one optimizer: a single backoff, no step of either */
    const float p0 = m.params[0].master[0], p1 = m.params[1].master[0];
    assert_same_f32(step_with(&m, 1), 256.0f);
    assert_same_f32(m.params[0].master[0], p0);
    assert_same_f32(m.params[1].master[0], p1);
    model_end(&m);
}

/* huggingface/accelerate#439: the caller sees the norm, drops the step, and the next one works. */
static void test_step_rules__a_step_the_caller_drops(void **state)
{
    (void)state;
    const keel_loss_scale_config ls = dynamic(256, 2);
    model m;
    BEGIN(&m, &ls, 256);
    model_create(&m);
    assert_same_f32(step_with(&m, 256), 256.0f);
    assert_ok(keel_step_accumulate(m.step, 0, 1, NULL));
    assert_ok(keel_step_decide(m.step, NULL));
    assert_same_f32(loss_scale_of(&m), 512.0f);
    assert_ok(keel_step_abandon(m.step, NULL));
    assert_same_f32(loss_scale_of(&m), 256.0f);
    assert_same_f32(m.params[0].master[0], -1.0f);
    assert_same_f32(step_with(&m, 256), 512.0f);
    assert_same_f32(m.params[0].master[0], -2.0f);
    assert_int_equal(model_report(&m).applied_steps, 2);
    model_end(&m);
}

static void fill_f16(model *m)
{
    model_begin(m);
    model_group(m, KEEL_GROUP_SGD(0));
    for (int k = 0; k < 5; k++) {
        const keel_param *p = model_add(m, KEEL_FORMAT_F16, 2);
        for (int j = 0; j < 2; j++) model_set(p, j, 60000);
    }
    model_create(m);
}

/* facebookresearch/fairscale#890: "Non-finite is decided from elements, counted, never inferred
 * from a sum": finite values whose sum is infinite are no overflow; an inf in any tensor is one. */
static void test_step_rules__overflow_is_judged_by_elements(void **state)
{
    (void)state;
    model m;
    fill_f16(&m);
    model_run(&m);
    assert_int_equal(model_report(&m).applied, 1);
    assert_same_f64(model_report(&m).norm, sqrt(36e9));
    for (int k = 0; k < 5; k++)
        for (int j = 0; j < 2; j++) {
            model_set(&m.params[k], j, INFINITY);
            model_run(&m);
            const keel_report r = model_report(&m);
            assert_int_equal(r.cause, KEEL_CAUSE_INF);
            assert_int_equal(r.inf_count, 1);
            assert_int_equal(r.local_tensor, k);
            assert_int_equal(r.local_index, j);
            model_set(&m.params[k], j, 60000);
        }
    model_end(&m);

    const float large[] = {2e38f, 2e38f};
    BEGIN(&m, NULL, large[0], large[1]);
    model_create(&m);
    model_run(&m);
    assert_int_equal(model_report(&m).applied, 1);
    assert_same_f64(model_report(&m).norm, bigsum_norm(large, 2));
    model_end(&m);
}

/* deepspeedai/DeepSpeed#8614: the norm of a NaN is NaN, no sentinel; an all-zero step is applied.
 */
static void test_step_rules__nan_norms_and_zero_norms(void **state)
{
    (void)state;
    model m;
    BEGIN(&m, NULL, NAN, 2);
    m.cfg.max_norm = 1;
    model_create(&m);
    m.params[0].master[1] = 2;
    model_run(&m);
    assert_true(isnan(model_report(&m).norm));
    assert_int_equal(model_report(&m).applied, 0);
    assert_same_f32(m.params[0].master[1], 2.0f);
    model_end(&m);

    model_begin(&m);
    m.cfg.max_norm = 1;
    keel_group adamw = KEEL_GROUP_ADAMW(0.1);
    adamw.weight_decay = 0;
    model_group(&m, adamw);
    model_add(&m, KEEL_FORMAT_F32, 2)->master[0] = 5;
    model_create(&m);
    model_run(&m);
    const keel_report r = model_report(&m);
    assert_same_f64(r.norm, 0.0);
    assert_same_f32(r.clip_coef, 1.0f);
    assert_int_equal(r.applied_steps, 1);
    assert_int_equal(r.zero_count, 2);
    assert_same_f32(m.params[0].master[0], 5.0f);
    model_end(&m);
}

/* google-deepmind/optax#1752, through a step: "never inf * 0". */
static void test_step_rules__degenerate_thresholds(void **state)
{
    (void)state;
    model m;
    BEGIN(&m, NULL, INFINITY, 3);
    m.cfg.max_norm = 0;
    model_create(&m);
    model_run(&m);
    assert_same_f64(model_report(&m).norm, (double)INFINITY);
    assert_same_f32(m.params[0].master[1], 0.0f);
    assert_same_f32(step_with(&m, 3), 1.0f); /* finite: applied, with zero gradients */
    assert_int_equal(model_report(&m).applied, 1);
    assert_same_f32(model_report(&m).clip_coef, 0.0f);
    assert_same_f32(m.params[0].master[0], 0.0f);
    assert_ok(keel_step_set_max_norm(m.step, INFINITY));
    (void)step_with(&m, 3);
    assert_same_f32(m.params[0].master[0], -3.0f);
    model_end(&m);
}

/* "a step with no gradients at all is a defined no-op (no growth, no backoff)". */
static void test_step_rules__a_step_without_elements_moves_no_scale(void **state)
{
    (void)state;
    const keel_loss_scale_config ls = dynamic(8, 1);
    model m;
    model_begin(&m);
    m.cfg.loss_scale = ls;
    model_add(&m, KEEL_FORMAT_BF16, 0);
    model_create(&m);
    for (int i = 0; i < 3; i++) model_run(&m);
    assert_same_f32(loss_scale_of(&m), 8.0f);
    assert_int_equal(model_report(&m).applied_steps, 3);
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_rules__scale_and_divisor_enter_norm_and_multiplier),
        cmocka_unit_test(test_step_rules__norm_is_a_root_then_a_quotient),
        cmocka_unit_test(test_step_rules__divisor_is_read_at_decide),
        cmocka_unit_test(test_step_rules__bad_divisors_skip),
        cmocka_unit_test(test_step_rules__scale_backs_off_from_a_divisor_too_large),
        cmocka_unit_test(test_step_rules__causes_come_in_order),
        cmocka_unit_test(test_step_rules__votes_do_not_move_the_loss_scale),
        cmocka_unit_test(test_step_rules__fixed_scales_still_skip),
        cmocka_unit_test(test_step_rules__scale_stays_finite_and_invertible),
        cmocka_unit_test(test_step_rules__scale_stops_at_its_minimum),
        cmocka_unit_test(test_step_rules__groups_share_one_loss_scale),
        cmocka_unit_test(test_step_rules__a_step_the_caller_drops),
        cmocka_unit_test(test_step_rules__overflow_is_judged_by_elements),
        cmocka_unit_test(test_step_rules__nan_norms_and_zero_norms),
        cmocka_unit_test(test_step_rules__degenerate_thresholds),
        cmocka_unit_test(test_step_rules__a_step_without_elements_moves_no_scale),
    };
    return cmocka_run_group_tests_name("runtime.step_rules", tests, NULL, NULL);
}

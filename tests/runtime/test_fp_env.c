/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The caller's floating-point environment: rounding mode, flush-to-zero, denormals-are-zero.
 *
 * "Subnormals are kept whatever the caller's FTZ/DAZ/rounding mode, which is restored." */
#include <fenv.h>
#include <stdlib.h>

#if defined(__x86_64__)
#    include <xmmintrin.h>
#endif

#include "check.h"
#include "model.h"
#include "random.h"

enum { NUMEL = 700 };

/* What a run leaves behind, to the bit. */
typedef struct trace {
    double norm;
    keel_decision decision;
    uint64_t digest;
    double clip_norm;
    float clipped[NUMEL];
} trace;

typedef struct inputs {
    float gradients[NUMEL];
    float masters[NUMEL];
} inputs;

/* Numbers on which each mode would show: subnormals, odd mantissas, values near each other. */
static inputs make_inputs(void)
{
    inputs in;
    random_source r = random_begin(11);
    for (int i = 0; i < NUMEL; i++) {
        in.gradients[i] =
            i % 3 == 0 ? f32_of_bits((uint32_t)random_word(&r) & 0x807fffffu) : random_unit(&r) * 3;
        in.masters[i] =
            i % 5 == 0 ? f32_of_bits((uint32_t)random_word(&r) & 0x807fffffu) : random_unit(&r);
    }
    return in;
}

static void begin(model *m, const inputs *in)
{
    static const keel_format copies[] = {KEEL_FORMAT_BF16, KEEL_FORMAT_F16, KEEL_FORMAT_E4M3};
    model_begin(m);
    m->cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
    m->cfg.loss_scale.init = 3; /* 1/3 is rounded */
    m->cfg.loss_scale.growth = 1.7f;
    m->cfg.loss_scale.interval = 1;
    m->cfg.max_norm = 0.7f;
    keel_group momentum = KEEL_GROUP_SGD(0.1);
    momentum.momentum = 0.3;
    momentum.weight_decay = 0.1;
    model_group(m, KEEL_GROUP_ADAMW(0.1));
    model_group(m, momentum);
    for (int i = 0; i < 3; i++) {
        keel_param *p = model_add_f32(m, NUMEL, in->gradients);
        p->group = i % 2;
        memcpy(p->master, in->masters, sizeof in->masters);
        model_copy(p, copies[i]);
    }
    model_create(m);
}

static void run(const inputs *in, trace *t)
{
    model m;
    begin(&m, in);
    assert_ok(keel_step_prime(m.step, NULL));
    for (int i = 0; i < 3; i++) model_run(&m);
    t->norm = model_report(&m).norm;
    t->decision = *keel_step_decision_dev(m.step);
    assert_ok(keel_step_accumulate(m.step, 0, 3, NULL));
    assert_ok(keel_step_decide(m.step, NULL));
    assert_ok(keel_step_scale_gradients(m.step, NULL));
    t->digest = model_digest(&m);
    model_end(&m);

    const keel_tensor grad = {.data = t->clipped, .numel = NUMEL, .format = KEEL_FORMAT_F32};
    memcpy(t->clipped, in->gradients, sizeof t->clipped);
    assert_ok(keel_clip_global_norm(NULL, &grad, 1, 0.3f, NULL, 0, &t->clip_norm));
}

static void assert_same_traces(const trace *a, const trace *b)
{
    assert_same_f64(a->norm, b->norm);
    assert_memory_equal(&a->decision, &b->decision, sizeof a->decision);
    assert_true(a->digest == b->digest);
    assert_same_f64(a->clip_norm, b->clip_norm);
    assert_memory_equal(a->clipped, b->clipped, sizeof a->clipped);
}

static void test_fp_env__rounding_modes(void **state)
{
    (void)state;
    static const int modes[] = {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    const inputs in = make_inputs();
    trace plain, other;
    run(&in, &plain);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fesetround(modes[i]), 0);
        run(&in, &other);
        const int after = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(after, modes[i]);
        assert_same_traces(&other, &plain);
    }
}

#if defined(__x86_64__)
/* FTZ is bit 15 and DAZ bit 6 of MXCSR; the status bits below are the caller's as well. */
static void test_fp_env__flushing_and_status(void **state)
{
    (void)state;
    static const unsigned modes[] = {0x8000, 0x0040, 0x8040, 0xe040};
    const inputs in = make_inputs();
    const unsigned saved = _mm_getcsr();
    trace plain, other;
    run(&in, &plain);
    for (int i = 0; i < 4; i++) {
        _mm_setcsr(0x1f80 | modes[i]);
        run(&in, &other);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(saved);
        assert_int_equal(after & ~0x3fu, 0x1f80 | modes[i]);
        assert_same_traces(&other, &plain);
    }
}

/* A caller who traps on inexact results, say, is not trapped inside, and traps again after. */
static void test_fp_env__traps_are_kept_out(void **state)
{
    (void)state;
    const float loss = NAN;
    const inputs in = make_inputs();
    const unsigned saved = _mm_getcsr();
    model m;
    begin(&m, &in);
    model_set(&m.params[0], 1, INFINITY);
    _mm_setcsr(0x0000); /* every exception traps */
    const keel_status a = keel_step_check_loss(m.step, &loss, NULL);
    const keel_status b = keel_step_run(m.step, NULL);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(saved);
    assert_int_equal(after, 0);
    assert_int_equal(a, KEEL_OK);
    assert_int_equal(b, KEEL_OK);
    assert_int_equal(model_report(&m).applied, 0);
    model_end(&m);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp_env__rounding_modes),
#if defined(__x86_64__)
        cmocka_unit_test(test_fp_env__flushing_and_status),
        cmocka_unit_test(test_fp_env__traps_are_kept_out),
#endif
    };
    return cmocka_run_group_tests_name("runtime.fp_env", tests, NULL, NULL);
}

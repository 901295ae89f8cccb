/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What update writes: optimizers over whole steps against f64, low-precision copies, nothing on a
 * skip; and what scale_gradients, prime and rebind do.
 *
 * "AdamW and SGD with momentum on fp32 masters, fused with unscale, clip, skip and the writing of
 * low-precision copies (with their scale)." */
#include <stdlib.h>

#include "check.h"
#include "model.h"
#include "random.h"

enum { NUMEL = 1100, STEPS = 40 };

/* An optimizer in f64 as torch.optim writes it down. */
typedef struct reference {
    double p[NUMEL], m[NUMEL], v[NUMEL];
    int applied;
} reference;

static void reference_adamw(reference *r, const keel_group *o, const double *g)
{
    const double t = ++r->applied;
    for (int i = 0; i < NUMEL; i++) {
        r->p[i] *= 1 - o->lr * o->weight_decay;
        r->m[i] = o->beta1 * r->m[i] + (1 - o->beta1) * g[i];
        r->v[i] = o->beta2 * r->v[i] + (1 - o->beta2) * g[i] * g[i];
        const double m = r->m[i] / (1 - pow(o->beta1, t)), v = r->v[i] / (1 - pow(o->beta2, t));
        r->p[i] -= o->lr * m / (sqrt(v) + o->eps);
    }
}

static void reference_sgd(reference *r, const keel_group *o, const double *g)
{
    const bool first = r->applied++ == 0;
    for (int i = 0; i < NUMEL; i++) {
        double d = g[i] + o->weight_decay * r->p[i];
        if (o->momentum > 0) {
            r->m[i] = first ? d : o->momentum * r->m[i] + (1 - o->dampening) * d;
            d = o->nesterov ? d + o->momentum * r->m[i] : r->m[i];
        }
        r->p[i] -= o->lr * d;
    }
}

static void assert_close(const float *got, const double *wanted, const char *what)
{
    for (int i = 0; i < NUMEL; i++)
        if (fabs((double)got[i] - wanted[i]) > 4e-6 * (fabs(wanted[i]) + 0.1))
            fail_msg("%s[%d]: %.9g, wanted %.9g", what, i, (double)got[i], wanted[i]);
}

static void fill_gradients(const keel_param *p, random_source *r, float size)
{
    for (int i = 0; i < NUMEL; i++) model_set(p, i, random_unit(r) * size);
}

/* Steps of any size, clipped and not, every seventh skipped, by keel and by the reference. */
static void check_optimizer(const keel_group *group, int64_t *out_skipped)
{
    static reference ref;
    model m;
    random_source r = random_begin(8);
    memset(&ref, 0, sizeof ref);
    model_begin(&m);
    model_group(&m, *group);
    m.cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
    m.cfg.max_norm = 20;
    keel_param *p = model_add(&m, KEEL_FORMAT_F32, NUMEL);
    for (int i = 0; i < NUMEL; i++) ref.p[i] = p->master[i] = random_unit(&r);
    model_create(&m);
    for (int step = 1; step <= STEPS; step++) {
        float scale;
        double g[NUMEL];
        assert_ok(keel_step_loss_scale(m.step, &scale));
        fill_gradients(p, &r, scale * (step % 3 ? 0.1f : 3.0f));
        if (step % 7 == 0) model_set(p, step, INFINITY);
        model_run(&m);
        const keel_decision *d = keel_step_decision_dev(m.step);
        for (int i = 0; i < NUMEL; i++)
            g[i] = (double)model_get(&p->grad, i) * (double)d->inv_scale * (double)d->clip_coef;
        if (!d->skip && group->optimizer == KEEL_OPTIMIZER_ADAMW) reference_adamw(&ref, group, g);
        if (!d->skip && group->optimizer == KEEL_OPTIMIZER_SGD) reference_sgd(&ref, group, g);
    }
    *out_skipped = model_report(&m).skipped_steps;
    assert_close(p->master, ref.p, "master");
    assert_close(p->moment1, ref.m, "moment1");
    assert_close(p->moment2, ref.v, "moment2");
    model_end(&m);
}

static void test_step_update__optimizers_follow_torch(void **state)
{
    (void)state;
    keel_group groups[6] = {KEEL_GROUP_ADAMW(0.01), KEEL_GROUP_ADAMW(0.05), KEEL_GROUP_SGD(0.05),
                            KEEL_GROUP_SGD(0.05),   KEEL_GROUP_SGD(0.05),   KEEL_GROUP_SGD(0.05)};
    groups[1].beta1 = 0;
    groups[1].beta2 = 0.5;
    groups[1].eps = 0.125;
    groups[1].weight_decay = 0.5;
    groups[2].weight_decay = 0.25;
    groups[3].momentum = 0.875;
    groups[4].momentum = 0.5;
    groups[4].dampening = 0.25;
    groups[4].weight_decay = 0.125;
    groups[5].momentum = 0.5;
    groups[5].nesterov = 1;
    for (int i = 0; i < 6; i++) {
        int64_t skipped = 0;
        check_optimizer(&groups[i], &skipped);
        assert_int_equal(skipped, STEPS / 7);
    }
}

/* "A non-finite gradient anywhere: parameters, moments and step counter untouched", copies and
 * gradients too. */
static void test_step_update__a_skip_writes_nothing(void **state)
{
    (void)state;
    static const keel_format formats[] = {KEEL_FORMAT_F32, KEEL_FORMAT_F16, KEEL_FORMAT_BF16,
                                          KEEL_FORMAT_E4M3, KEEL_FORMAT_E5M2};
    model m;
    random_source r = random_begin(9);
    model_begin(&m);
    model_group(&m, KEEL_GROUP_ADAMW(0.1));
    keel_group momentum = KEEL_GROUP_SGD(0.1);
    momentum.momentum = 0.5;
    momentum.weight_decay = 0.5;
    model_group(&m, momentum);
    for (int i = 0; i < 10; i++) {
        keel_param *p = model_add(&m, formats[i % 5], 100);
        p->group = i % 2;
        model_copy(p, formats[i / 2]);
        for (int j = 0; j < 100; j++) {
            model_set(p, j, random_unit(&r));
            p->master[j] = random_unit(&r);
            p->moment1[j] = random_unit(&r);
            p->moment2[j] = 1;
        }
    }
    model_set(&m.params[3], 17, NAN);
    model_create(&m);
    assert_ok(keel_step_prime(m.step, NULL));
    for (int i = 0; i < 10; i++) memset(m.params[i].copy.data, 0x5a, 100);
    const uint64_t before = model_memory_digest(&m);
    model_run(&m);
    assert_int_equal(model_report(&m).applied, 0);
    assert_int_equal(model_report(&m).applied_steps, 0);
    assert_true(model_memory_digest(&m) == before);
    assert_ok(keel_step_accumulate(m.step, 0, m.count, NULL));
    assert_ok(keel_step_decide(m.step, NULL));
    assert_ok(keel_step_scale_gradients(m.step, NULL));
    assert_true(model_memory_digest(&m) == before);
    model_end(&m);
}

/* "the writing of low-precision copies": the bytes of keel_quantize() of the new master. */
static void test_step_update__copies_are_casts_of_the_masters(void **state)
{
    (void)state;
    const float scale = 37.5f;
    const keel_format_info *info;
    for (int32_t f = 0; (info = keel_format_at(f)); f++) {
        if (!info->can_encode) continue;
        for (int scaled = 0; scaled < 2; scaled++) {
            model m;
            random_source r = random_begin(10);
            model_begin(&m);
            model_group(&m, KEEL_GROUP_ADAMW(0.25));
            keel_param *p = model_add(&m, KEEL_FORMAT_BF16, NUMEL);
            model_copy(p, info->id);
            p->copy.scale = scaled ? &scale : NULL;
            for (int i = 0; i < NUMEL; i++) p->master[i] = random_finite(&r);
            fill_gradients(p, &r, 1);
            unsigned char wanted[NUMEL * 4];
            const keel_tensor src = {.data = p->master, .numel = NUMEL, .format = KEEL_FORMAT_F32};
            keel_tensor dst = p->copy;
            dst.data = wanted;
            model_create(&m);
            for (int run = 0; run < 2; run++) { /* after prime, then after update */
                if (run == 0)
                    assert_ok(keel_step_prime(m.step, NULL));
                else
                    model_run(&m);
                assert_ok(keel_quantize(NULL, &src, &dst, NULL, NULL, NULL));
                assert_memory_equal(p->copy.data, wanted, NUMEL * (size_t)info->storage_bytes);
            }
            model_end(&m);
        }
    }
}

/* "grad = cast(fl32(fl32(g * inv_scale) * clip_coef)) in place", in every format. */
static void test_step_update__scaled_gradients_are_cast_back(void **state)
{
    (void)state;
    const keel_format_info *info;
    model m;
    model_begin(&m);
    m.cfg.max_norm = 0.75f;
    m.cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
    m.cfg.loss_scale.init = 4;
    for (int32_t i = 0; (info = keel_format_at(i)); i++)
        if (info->can_encode) model_set(model_add(&m, info->id, 3), 1, -3.0f);
    model_create(&m);
    assert_ok(keel_step_accumulate(m.step, 0, m.count, NULL));
    assert_ok(keel_step_decide(m.step, NULL));
    assert_ok(keel_step_scale_gradients(m.step, NULL));
    const keel_decision *d = keel_step_decision_dev(m.step);
    assert_true(d->clip_coef < 1);
    for (int64_t i = 0; i < m.count; i++) {
        const keel_tensor *t = &m.params[i].grad;
        const float scaled = -3.0f * d->inv_scale * d->clip_coef;
        uint32_t code;
        assert_ok(keel_format_encode(t->format, scaled, KEEL_OVERFLOW_DEFAULT, &code));
        assert_same_f32(model_get(t, 1), keel_format_decode(t->format, code));
        assert_same_f32(model_get(t, 0), 0.0f);
    }
    model_end(&m);
}

static void test_step_update__gradients_that_cannot_be_written(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    model_add(&m, KEEL_FORMAT_F32, 2);
    keel_param *p = model_add(&m, KEEL_FORMAT_E8M0, 1);
    p->name = "odd";
    *(unsigned char *)p->grad.data = 127;
    model_create(&m);
    assert_ok(keel_step_accumulate(m.step, 0, 2, NULL));
    assert_ok(keel_step_decide(m.step, NULL));
    assert_refused(keel_step_scale_gradients(m.step, NULL), KEEL_ERR_UNSUPPORTED, "'odd'");
    assert_same_f64(model_report(&m).norm, 1.0);
    assert_ok(keel_step_update(m.step, NULL)); /* still decided */
    model_end(&m);
}

/* "Parameter groups {optimizer adamw, sgd or none}, a group per tensor; hyper-parameters can be set
 * each step." */
static void test_step_update__groups_differ(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    keel_group sgd = KEEL_GROUP_SGD(1);
    keel_group none;
    memset(&none, 0, sizeof none);
    model_group(&m, sgd);
    model_group(&m, none);
    for (int i = 0; i < 3; i++) {
        model_add_f32(&m, 1, (float[]){2})->group = i == 1;
    }
    free(m.params[1].master);
    m.params[1].master = NULL; /* "NULL only in a group without an optimizer" */
    model_create(&m);
    model_run(&m);
    sgd.lr = 0.25;
    assert_ok(keel_step_set_group(m.step, 0, &sgd));
    model_run(&m);
    assert_same_f32(m.params[0].master[0], -2.5f);
    assert_same_f32(m.params[2].master[0], -2.5f);
    assert_same_f64(model_report(&m).norm, sqrt(12)); /* the one without an optimizer counts */
    model_end(&m);
}

/* A group that gains momentum needs memory for it. */
static void test_step_update__momentum_needs_a_moment(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    keel_group sgd = KEEL_GROUP_SGD(1);
    model_group(&m, sgd);
    keel_param *p = model_add_f32(&m, 1, (float[]){2});
    p->name = "w";
    free(p->moment1);
    p->moment1 = NULL;
    model_create(&m);
    sgd.momentum = 0.5;
    assert_refused(keel_step_set_group(m.step, 0, &sgd), KEEL_ERR_INVALID, "'w' has no moment1");
    model_run(&m);
    assert_same_f32(p->master[0], -2.0f);
    model_end(&m);
}

/* "Gradient pointers may change each step (keel_step_rebind)." */
static void test_step_update__rebound_gradients_are_used(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    model_group(&m, KEEL_GROUP_SGD(1));
    for (int i = 0; i < 4; i++) model_add_f32(&m, 1, (float[]){1});
    model_create(&m);
    static const float a = 10, b = 20;
    const void *const grads[] = {&a, &b};
    assert_ok(keel_step_rebind(m.step, 1, 2, grads));
    model_run(&m);
    assert_same_f32(m.params[0].master[0], -1.0f);
    assert_same_f32(m.params[1].master[0], -10.0f);
    assert_same_f32(m.params[2].master[0], -20.0f);
    const void *const back[] = {&b};
    assert_ok(keel_step_accumulate(m.step, 0, 1, NULL)); /* others may still be rebound */
    assert_ok(keel_step_rebind(m.step, 3, 1, back));
    assert_ok(keel_step_rebind(m.step, 1, 1, back));
    model_run(&m);
    assert_same_f32(m.params[1].master[0], -30.0f);
    assert_same_f32(m.params[3].master[0], -21.0f);
    model_end(&m);
}

/* google-deepmind/optax#1754: eps stays f32, so a zero gradient does not become 0/0 in fp16. */
static void test_step_update__zero_gradients_move_nothing(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    keel_group adamw = KEEL_GROUP_ADAMW(0.1);
    adamw.weight_decay = 0;
    model_group(&m, adamw);
    keel_param *p = model_add(&m, KEEL_FORMAT_F16, 2);
    model_copy(p, KEEL_FORMAT_F16);
    p->master[0] = 1.5f;
    p->master[1] = -0.25f;
    model_create(&m);
    for (int i = 0; i < 3; i++) model_run(&m);
    const uint16_t wanted[] = {0x3e00, 0xb400};
    assert_memory_equal(p->copy.data, wanted, sizeof wanted);
    assert_same_f32(p->moment1[0], 0.0f);
    assert_same_f32(p->moment2[1], 0.0f);
    assert_int_equal(model_report(&m).applied_steps, 3);
    model_end(&m);
}

/* pytorch/ao#1124: updates below half a bf16 spacing add up in the master. */
static void test_step_update__small_updates_are_not_lost(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    model_group(&m, KEEL_GROUP_SGD(0x1p-10));
    keel_param *p = model_add(&m, KEEL_FORMAT_BF16, 1);
    model_copy(p, KEEL_FORMAT_BF16);
    model_set(p, 0, 1);
    p->master[0] = 1;
    model_create(&m);
    for (int i = 1; i <= 8; i++) {
        model_run(&m);
        if (i == 1) assert_int_equal(*(uint16_t *)p->copy.data, 0x3f80);
        if (i == 1) assert_same_f32(p->master[0], 0.9990234375f);
    }
    assert_same_f32(p->master[0], 0.9921875f);
    assert_int_equal(*(uint16_t *)p->copy.data, 0x3f7e);
    model_end(&m);
}

/* deepspeedai/DeepSpeed#482: decay is decoupled, not L2, and not applied on a skip. */
static void test_step_update__decay_is_decoupled(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    keel_group adamw = KEEL_GROUP_ADAMW(0.25);
    adamw.weight_decay = 0.5;
    model_group(&m, adamw);
    keel_param *p = model_add(&m, KEEL_FORMAT_F32, 1);
    p->master[0] = 4;
    model_create(&m);
    model_run(&m);
    assert_same_f32(p->master[0], 3.5f);
    assert_same_f32(p->moment1[0], 0.0f);
    model_set(p, 0, INFINITY);
    model_run(&m);
    assert_same_f32(p->master[0], 3.5f);
    model_end(&m);
}

static keel_param *add_values(model *m, keel_format format, const float *values, int64_t numel)
{
    keel_param *p = model_add(m, format, numel);
    for (int64_t i = 0; i < numel; i++) model_set(p, i, values[i]);
    return p;
}

/* NVIDIA/TransformerEngine#3202: empty tensors in a list of mixed formats
 * shift nothing. */
static void test_step_update__empty_tensors_shift_nothing(void **state)
{
    (void)state;
    static const int64_t empties[] = {0, 29, 35, 47, 63, 109, 1000};
    const float coef = (float)(32.5 / (65 + 1e-6));
    for (int e = 0; e < 7; e++) {
        model m;
        model_begin(&m);
        model_group(&m, KEEL_GROUP_SGD(1));
        m.cfg.max_norm = 32.5f;
        for (int64_t i = 0; i < empties[e]; i++)
            model_add(&m, i % 2 ? KEEL_FORMAT_BF16 : KEEL_FORMAT_F32, 0);
        keel_param *a = add_values(&m, KEEL_FORMAT_F32, (float[]){2, 3, 6}, 3);
        model_add(&m, KEEL_FORMAT_F32, 0);
        keel_param *b = add_values(&m, KEEL_FORMAT_BF16, (float[]){24}, 1);
        model_add(&m, KEEL_FORMAT_BF16, 0);
        keel_param *c = add_values(&m, KEEL_FORMAT_F16, (float[]){60}, 1);
        model_add(&m, KEEL_FORMAT_F16, 0);
        model_create(&m);
        model_run(&m);
        assert_same_f64(model_report(&m).norm, 65.0);
        for (int i = 0; i < 3; i++) assert_same_f32(a->master[i], -(model_get(&a->grad, i) * coef));
        assert_same_f32(b->master[0], -(24 * coef));
        assert_same_f32(c->master[0], -(60 * coef));
        model_end(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_update__optimizers_follow_torch),
        cmocka_unit_test(test_step_update__a_skip_writes_nothing),
        cmocka_unit_test(test_step_update__copies_are_casts_of_the_masters),
        cmocka_unit_test(test_step_update__scaled_gradients_are_cast_back),
        cmocka_unit_test(test_step_update__gradients_that_cannot_be_written),
        cmocka_unit_test(test_step_update__groups_differ),
        cmocka_unit_test(test_step_update__momentum_needs_a_moment),
        cmocka_unit_test(test_step_update__rebound_gradients_are_used),
        cmocka_unit_test(test_step_update__zero_gradients_move_nothing),
        cmocka_unit_test(test_step_update__small_updates_are_not_lost),
        cmocka_unit_test(test_step_update__decay_is_decoupled),
        cmocka_unit_test(test_step_update__empty_tensors_shift_nothing),
    };
    return cmocka_run_group_tests_name("runtime.step_update", tests, NULL, NULL);
}

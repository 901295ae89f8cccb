/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The optimizers an element at a time: formulas against f64, what each hyper-parameter does, the
 * first step, and equal bits from the kernels of every instruction set. */
#include "check.h"
#include "cpu/kernels.h"
#include "random.h"

enum { NUMEL = 67, FEW = 3 };

/* One tensor in training. */
typedef struct tensor {
    float g[NUMEL], p[NUMEL], m[NUMEL], v[NUMEL];
} tensor;

static tensor random_tensor(random_source *r)
{
    tensor t;
    for (int i = 0; i < NUMEL; i++) {
        const float size = ldexpf(1, (int)random_below(r, 40) - 20);
        t.g[i] = random_unit(r) * size;
        t.p[i] = random_unit(r) * ldexpf(1, (int)random_below(r, 20) - 10);
        t.m[i] = random_unit(r) * size;
        t.v[i] = fabsf(random_unit(r)) * size * size;
    }
    return t;
}

static keel_group random_group(keel_optimizer optimizer, random_source *r)
{
    keel_group g;
    memset(&g, 0, sizeof g);
    g.optimizer = optimizer;
    g.lr = ldexp(0.75, -(int)random_below(r, 12));
    g.weight_decay = random_below(r, 2) * 0.3;
    if (optimizer == KEEL_OPTIMIZER_ADAMW) {
        g.beta1 = (double)random_below(r, 100) / 100;
        g.beta2 = (double)random_below(r, 1000) / 1000;
        g.eps = ldexp(1, -(int)random_below(r, 30));
    } else {
        g.momentum = (double)random_below(r, 2) * 0.9;
        g.nesterov = g.momentum > 0 && random_below(r, 2);
        g.dampening = g.nesterov ? 0 : (double)random_below(r, 11) / 10;
    }
    return g;
}

/* A group that has been updated so many times. */
static keeli_group_state state_after(const keel_group *g, int steps)
{
    keeli_group_state s = keeli_group_begin();
    while (steps-- > 0) keeli_group_advance(g, &s);
    return s;
}

static void run(const keeli_cpu_kernels *k, const keel_group *g, const keeli_group_scalars *s,
                tensor *t, int32_t n)
{
    if (g->optimizer == KEEL_OPTIMIZER_ADAMW)
        k->update->adamw(t->g, t->p, t->m, t->v, n, s);
    else
        k->update->sgd(t->g, t->p, g->momentum > 0 ? t->m : NULL, n, s);
}

static void fill(float *x, float value)
{
    for (int i = 0; i < NUMEL; i++) x[i] = value;
}

/* One step of a whole tensor. */
static void step(const keel_group *g, keeli_group_state *state, tensor *t)
{
    keeli_group_advance(g, state);
    const keeli_group_scalars s = keeli_group_derive(g, state, 1, 1);
    run(keeli_cpu_kernels_get(), g, &s, t, NUMEL);
}

/* Within so many f32 spacings of the largest number that went into the sum. */
static void assert_near(float got, double wanted, double largest, double spacings)
{
    const double slack = spacings * 0x1p-23 * fmax(fmax(fabs(wanted), fabs(largest)), 0x1p-126);
    if (!(fabs((double)got - wanted) <= slack))
        fail_msg("%.9g, wanted %.9g, off by %.3g spacings", (double)got, wanted,
                 fabs((double)got - wanted) / slack * spacings);
}

/* torch.optim.AdamW in f64 from the same f32 state. */
static void check_adamw(const keel_group *o, int t, double g, const tensor *before,
                        const tensor *after, int i)
{
    const double p = (double)before->p[i], m0 = (double)before->m[i], v0 = (double)before->v[i];
    const double m = o->beta1 * m0 + (1 - o->beta1) * g;
    const double v = o->beta2 * v0 + (1 - o->beta2) * g * g;
    const double denominator = sqrt(v) / sqrt(1 - pow(o->beta2, t)) + o->eps;
    const double rate = o->lr / (1 - pow(o->beta1, t)) / denominator;
    const double largest = fmax(fabs(m0), fabs(g));
    assert_near(after->m[i], m, largest, FEW);
    assert_near(after->v[i], v, v, FEW);
    assert_near(after->p[i], p * (1 - o->lr * o->weight_decay) - rate * m, fabs(p) + rate * largest,
                FEW);
}

/* torch.optim.SGD. */
static void check_sgd(const keel_group *o, int t, double g, const tensor *before,
                      const tensor *after, int i)
{
    const double p = (double)before->p[i], b = (double)before->m[i];
    const double d = g + o->weight_decay * p;
    const double largest = fabs(g) + o->weight_decay * fabs(p);
    double way = d;
    if (o->momentum > 0) {
        const double buffer = t == 1 ? d : o->momentum * b + (1 - o->dampening) * d;
        assert_near(after->m[i], buffer, largest + fabs(b), FEW);
        way = o->nesterov ? d + o->momentum * buffer : buffer;
    }
    assert_near(after->p[i], p - o->lr * way, fabs(p) + o->lr * (2 * largest + fabs(b)), FEW);
}

/* "Scalars an element meets are formed in f64 and rounded once to f32"; "a few ulp". */
static void test_optim__formulas_against_f64(void **state)
{
    (void)state;
    random_source r = random_begin(40);
    for (int trial = 0; trial < 4000; trial++) {
        const keel_group o =
            random_group(trial % 2 ? KEEL_OPTIMIZER_ADAMW : KEEL_OPTIMIZER_SGD, &r);
        const int t = 1 + (int)random_below(&r, trial % 3 ? 4 : 2000);
        const keeli_group_state s = state_after(&o, t);
        const float inv_scale = ldexpf(1, -(int)random_below(&r, 20));
        const float coef = random_below(&r, 2) ? 1 : fabsf(random_unit(&r));
        const keeli_group_scalars x = keeli_group_derive(&o, &s, inv_scale, coef);
        const tensor before = random_tensor(&r);
        tensor after = before;
        run(keeli_cpu_kernels_get(), &o, &x, &after, NUMEL);
        for (int i = 0; i < NUMEL; i++) {
            const float g = before.g[i] * inv_scale * coef; /* two roundings: the contract */
            (o.optimizer == KEEL_OPTIMIZER_ADAMW ? check_adamw : check_sgd)(&o, t, (double)g,
                                                                            &before, &after, i);
        }
    }
}

/* "g' = fl32(fl32(g * (1/S)) * coef)": two roundings, never the product of the two factors. */
static void test_optim__gradients_round_twice(void **state)
{
    (void)state;
    const keel_group o = KEEL_GROUP_SGD(1);
    const keeli_group_state s = state_after(&o, 1);
    const keeli_group_scalars x = keeli_group_derive(&o, &s, 1.0f / 3, 0.7f);
    random_source r = random_begin(42);
    tensor t = random_tensor(&r);
    const tensor before = t;
    fill(t.p, 0);
    run(keeli_cpu_kernels_get(), &o, &x, &t, NUMEL);
    for (int i = 0; i < NUMEL; i++) {
        const volatile float unscaled = before.g[i] * (1.0f / 3);
        assert_same_f32(t.p[i], -(unscaled * 0.7f));
    }
}

/* Bias correction: "running products", so beta^t for any t, and one rounding of the root. */
static void test_optim__bias_correction_counts_applied_steps(void **state)
{
    (void)state;
    const keel_group g = KEEL_GROUP_ADAMW(0.125);
    keeli_group_state s = keeli_group_begin();
    for (int t = 1; t <= 20000; t++) {
        keeli_group_advance(&g, &s);
        const keeli_group_scalars x = keeli_group_derive(&g, &s, 1, 1);
        assert_int_equal(s.applied, t);
        assert_near(x.step_size, 0.125 / (1 - pow(0.9, t)), 0, 0.51);
        assert_near(x.bias2_sqrt, sqrt(1 - pow(0.999, t)), 0, 0.51);
    }
}

/* A beta of 0 keeps nothing of its moment, however large that was. */
static void test_optim__zero_betas_forget(void **state)
{
    (void)state;
    keel_group g = KEEL_GROUP_ADAMW(0.5);
    g.beta1 = g.beta2 = g.weight_decay = 0;
    g.eps = 0;
    tensor t = {.g = {3}, .p = {1}, .m = {1e30f}, .v = {1e30f}};
    keeli_group_state s = state_after(&g, 0);
    step(&g, &s, &t);
    assert_same_f32(t.m[0], 3.0f);
    assert_same_f32(t.v[0], 9.0f);
    assert_same_f32(t.p[0], 0.5f); /* 1 - lr * 3 / sqrt(9) */
}

/* "none at a tensor's first applied step": the buffer's memory may hold anything before it. */
static void test_optim__first_step_reads_no_buffer(void **state)
{
    (void)state;
    static const float garbage[] = {NAN, INFINITY, -3e38f, 7};
    keel_group g = KEEL_GROUP_SGD(0.5);
    g.momentum = 0.5;
    g.dampening = 0.75;
    for (int i = 0; i < 4; i++) {
        tensor t = {.g = {0}};
        keeli_group_state s = keeli_group_begin();
        fill(t.g, 8);
        fill(t.m, garbage[i]);
        step(&g, &s, &t);
        assert_same_f32(t.m[NUMEL - 1], 8.0f);
        assert_same_f32(t.p[NUMEL - 1], -4.0f);
        step(&g, &s, &t);
        assert_same_f32(t.m[NUMEL - 1], 6.0f); /* 0.5 * 8 + (1 - 0.75) * 8 */
        assert_same_f32(t.p[NUMEL - 1], -7.0f);
    }
}

/* Small numbers, exact in f32: g = 8 on p = 16, then g = 8 again; p after each. */
static const struct sgd_row {
    double momentum, dampening, decay;
    int nesterov;
    float p[2];
} sgd_rows[] = {
    {0, 0, 0, 0, {12, 8}},        {0, 0, 0.5, 0, {8, 2}}, /* d = 16, 12 */
    {0.5, 0, 0, 0, {12, 6}},                              /* buffer 8, 12 */
    {0.5, 0.5, 0, 0, {12, 8}},                            /* buffer 8, 8 */
    {0.5, 1, 0, 0, {12, 10}},                             /* buffer 8, 4 */
    {0.5, 0, 0, 1, {10, 3}},                              /* 8 + 4, 8 + 6 */
    {0.5, 0, 0.5, 1, {4, -5.5f}},                         /* d 16, 10: 16 + 8, 10 + 9 */
    {0.5, 0.5, 0.5, 0, {8, 1}},                           /* d 16, 12: buffer 16, 14 */
};

static void test_optim__sgd_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sgd_rows / sizeof *sgd_rows; i++) {
        const struct sgd_row *row = &sgd_rows[i];
        keel_group g = KEEL_GROUP_SGD(0.5);
        g.momentum = row->momentum;
        g.dampening = row->dampening;
        g.weight_decay = row->decay;
        g.nesterov = row->nesterov;
        assert_ok(keeli_group_check("test", &g, 0));
        tensor t = {.g = {0}};
        keeli_group_state s = keeli_group_begin();
        for (int k = 0; k < 2; k++) {
            fill(t.g, 8);
            if (k == 0) fill(t.p, 16);
            step(&g, &s, &t);
            if (t.p[3] != row->p[k])
                fail_msg("row %zu, step %d: %g, wanted %g", i, k + 1, (double)t.p[3],
                         (double)row->p[k]);
        }
    }
}

/* google-deepmind/optax#1754: an eps cast to half precision became 0, and 0/0 the update. */
static void test_optim__eps_stays_f32(void **state)
{
    (void)state;
    keel_group g = KEEL_GROUP_ADAMW(1);
    g.weight_decay = 0;
    tensor t = {.p = {1.5f, -0.25f}};
    keeli_group_state s = keeli_group_begin();
    for (int i = 0; i < 3; i++) step(&g, &s, &t);
    assert_same_f32(t.p[0], 1.5f);
    assert_same_f32(t.p[1], -0.25f);
    assert_same_f32(t.m[0], 0.0f);
    assert_same_f32(t.v[1], 0.0f);
    assert_int_equal(s.applied, 3);
    assert_same_f32(keeli_group_derive(&g, &s, 1, 1).eps, 1e-8f);
}

/* pytorch/ao#1124: steps below half a bf16 spacing add up in an f32 master. */
static void test_optim__small_steps_add_up(void **state)
{
    (void)state;
    const keel_group g = KEEL_GROUP_SGD(0x1p-10);
    tensor t = {.g = {1}, .p = {1}};
    keeli_group_state s = keeli_group_begin();
    for (int i = 0; i < 8; i++) {
        t.g[0] = 1;
        step(&g, &s, &t);
    }
    assert_same_f32(t.p[0], 0.9921875f);
}

/* deepspeedai/DeepSpeed#482: 4 * (1 - 0.25 * 0.5); decay added to the gradient gave 3.75. */
static void test_optim__decay_is_decoupled(void **state)
{
    (void)state;
    keel_group g = KEEL_GROUP_ADAMW(0.25);
    g.weight_decay = 0.5;
    tensor t = {.p = {4}};
    keeli_group_state s = keeli_group_begin();
    step(&g, &s, &t);
    assert_same_f32(t.p[0], 3.5f);
    assert_same_f32(t.m[0], 0.0f);
    assert_same_f32(t.v[0], 0.0f);
}

#define REFUSED(field, value)                                                                      \
    do {                                                                                           \
        keel_group spoilt = KEEL_GROUP_ADAMW(0.1);                                                 \
        spoilt.field = (value);                                                                    \
        assert_refused(keeli_group_check("f", &spoilt, 3), KEEL_ERR_INVALID, "groups[3]." #field); \
    } while (0)

/* keel/config.h: the bounds beside the fields. */
static void test_optim__numbers_out_of_bounds_are_named(void **state)
{
    (void)state;
    REFUSED(optimizer, (keel_optimizer)3);
    REFUSED(nesterov, 2);
    REFUSED(nesterov, 1); /* without momentum */
    REFUSED(lr, -1e-9);
    REFUSED(lr, NAN);
    REFUSED(lr, INFINITY);
    REFUSED(beta1, 1);
    REFUSED(beta1, -0.1);
    REFUSED(beta2, 1);
    REFUSED(beta2, NAN);
    REFUSED(eps, -1e-8);
    REFUSED(weight_decay, -0.1);
    REFUSED(momentum, 1);
    REFUSED(dampening, 1.01);
    keel_group g = KEEL_GROUP_SGD(0);
    g.momentum = g.beta1 = g.beta2 = nextafter(1, 0);
    g.dampening = 1;
    assert_ok(keeli_group_check("f", &g, 0));
    g.nesterov = 1; /* with dampening */
    assert_refused(keeli_group_check("f", &g, 0), KEEL_ERR_INVALID, "dampening=1");
}

typedef float (*value_fn)(random_source *r);

static float subnormal(random_source *r)
{
    return ldexpf(random_unit(r), -126);
}

static float huge(random_source *r)
{
    return ldexpf(random_unit(r), 127);
}

static float special(random_source *r)
{
    static const float values[] = {0, -0.0f, 1, -1, 0x1p-149f, 0x1p-126f, 3.4e38f, -3.4e38f};
    return values[random_below(r, 8)];
}

static const value_fn values[] = {random_finite, random_unit, subnormal, huge, special};

static tensor tensor_of(value_fn value, random_source *r)
{
    tensor t;
    for (int i = 0; i < NUMEL; i++) {
        t.g[i] = value(r);
        t.p[i] = value(r);
        t.m[i] = value(r);
        t.v[i] = fabsf(value(r));
    }
    return t;
}

/* The plain loop that the kernels stand for. */
static void run_elements(const keel_group *g, const keeli_group_scalars *s, tensor *t, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (g->optimizer == KEEL_OPTIMIZER_ADAMW)
            keeli_adamw_element(t->g[i], &t->p[i], &t->m[i], &t->v[i], s);
        else if (g->momentum > 0)
            keeli_sgd_momentum_element(t->g[i], &t->p[i], &t->m[i], s);
        else
            keeli_sgd_element(t->g[i], &t->p[i], s);
}

/* Equal bits; of a NaN, which finite gradients can still make, only that it is one. */
static void assert_same_array(const float *got, const float *wanted, const char *isa,
                              const char *of)
{
    for (int i = 0; i < NUMEL; i++)
        if (bits_of_f32(got[i]) != bits_of_f32(wanted[i]) && !(isnan(got[i]) && isnan(wanted[i])))
            fail_msg("%s, %s[%d]: %a, wanted %a", isa, of, i, (double)got[i], (double)wanted[i]);
}

/* "Each operation stands alone, so every device gives the same bits"; and nothing past n moves. */
static void test_optim__every_instruction_set_gives_the_same_bits(void **state)
{
    (void)state;
    random_source r = random_begin(41);
    for (int trial = 0; trial < 8000; trial++) {
        const keel_group o =
            random_group(trial % 2 ? KEEL_OPTIMIZER_ADAMW : KEEL_OPTIMIZER_SGD, &r);
        const keeli_group_state s = state_after(&o, 1 + (int)random_below(&r, 3));
        const float inv_scale = random_below(&r, 2) ? 1 : 0x1p-16f;
        const keeli_group_scalars x = keeli_group_derive(&o, &s, inv_scale, 0.7f);
        const tensor before = tensor_of(values[random_below(&r, 5)], &r);
        const int32_t n = (int32_t)random_below(&r, NUMEL + 1);
        tensor wanted = before;
        run_elements(&o, &x, &wanted, n);
        const keeli_cpu_kernels *k;
        for (int32_t isa = 0; (k = keeli_cpu_kernels_at(isa)); isa++) {
            tensor got = before;
            run(k, &o, &x, &got, n);
            assert_same_array(got.p, wanted.p, k->isa, "p");
            assert_same_array(got.m, wanted.m, k->isa, "m");
            assert_same_array(got.v, wanted.v, k->isa, "v");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optim__formulas_against_f64),
        cmocka_unit_test(test_optim__gradients_round_twice),
        cmocka_unit_test(test_optim__bias_correction_counts_applied_steps),
        cmocka_unit_test(test_optim__zero_betas_forget),
        cmocka_unit_test(test_optim__first_step_reads_no_buffer),
        cmocka_unit_test(test_optim__sgd_by_hand),
        cmocka_unit_test(test_optim__eps_stays_f32),
        cmocka_unit_test(test_optim__small_steps_add_up),
        cmocka_unit_test(test_optim__decay_is_decoupled),
        cmocka_unit_test(test_optim__numbers_out_of_bounds_are_named),
        cmocka_unit_test(test_optim__every_instruction_set_gives_the_same_bits),
    };
    return cmocka_run_group_tests_name("runtime.optim", tests, NULL, NULL);
}

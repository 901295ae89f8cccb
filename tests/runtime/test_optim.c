/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The optimizers an element at a time: formulas against f64, what each hyper-parameter does, the
 * first step, and equal bits from the kernels of every instruction set. */
#include "check.h"
#include "cpu/kernels.h"
#include "random.h"

enum { NUMEL = 67 };

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
    const double slack = spacings * 0x1p-24 * fmax(fmax(fabs(wanted), fabs(largest)), 0x1p-126);
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
    assert_near(after->m[i], m, largest, 4);
    assert_near(after->v[i], v, v, 4);
    assert_near(after->p[i], p * (1 - o->lr * o->weight_decay) - rate * m, fabs(p) + rate * largest,
                8);
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
        assert_near(after->m[i], buffer, largest + fabs(b), 4);
        way = o->nesterov ? d + o->momentum * buffer : buffer;
    }
    assert_near(after->p[i], p - o->lr * way, fabs(p) + o->lr * (2 * largest + fabs(b)), 4);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optim__formulas_against_f64),
    };
    return cmocka_run_group_tests_name("runtime.optim", tests, NULL, NULL);
}

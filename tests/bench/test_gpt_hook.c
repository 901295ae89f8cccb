/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The hook that the transformer's products pass through: the plain one computes what its comment
 * says, and any other sees every product with its operands' roles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpt.h"
#include "rng.h"

enum { BATCH = 3, LARGEST = 150 * 150 };

static const gpt_config tiny = {2, 12, 3, 7};

/* ---- the plain product ---- */

static float a[BATCH * LARGEST], b[BATCH * LARGEST], d[BATCH * LARGEST];

static void fill(float *x, int count, uint64_t seed)
{
    for (int i = 0; i < count; i++) x[i] = (float)(rng_uniform(seed, (uint64_t)i) - 0.5);
}

/* An element by itself: f32, k ascending, nothing contracted. */
static float element(const product *p, int batch, int m, int n, float start)
{
    const float *left = p->a.data + batch * p->m * p->k, *right = p->b.data + batch * p->k * p->n;
    volatile float sum = start;
    for (int k = 0; k < p->k; k++) {
        const volatile float term = left[p->a.transposed ? k * p->m + m : m * p->k + k] *
                                    right[p->b.transposed ? n * p->k + k : k * p->n + n];
        sum = sum + term;
    }
    return sum;
}

static void expect_product(const product *p)
{
    fill(d, BATCH * LARGEST, 3);
    assert_int_equal(product_f32(NULL, p), KEEL_OK);
    for (int i = 0; i < p->batch * p->m * p->n; i++) {
        const int m = i / p->n % p->m, n = i % p->n;
        const float start = p->accumulate ? (float)(rng_uniform(3, (uint64_t)i) - 0.5) : 0;
        const float want = element(p, i / p->n / p->m, m, n, start);
        if (memcmp(&d[i], &want, sizeof want) != 0)
            fail_msg("%dx%dx%d, %d%d%d: element %d is %a, want %a", p->m, p->n, p->k,
                     p->a.transposed, p->b.transposed, p->accumulate, i, (double)d[i],
                     (double)want);
    }
    assert_true(d[p->batch * p->m * p->n] ==
                (float)(rng_uniform(3, (uint64_t)(p->batch * p->m * p->n)) - 0.5));
}

/* Sizes on both sides of every block, all transpositions: bit for bit the naive sum. */
static void test_gpt_product__sums_with_k_ascending(void **state)
{
    (void)state;
    static const int sizes[][3] = {
        {1, 1, 1}, {5, 3, 2}, {7, 129, 65}, {64, 128, 64}, {9, 140, 131}};
    fill(a, BATCH * LARGEST, 1);
    fill(b, BATCH * LARGEST, 2);
    for (int s = 0; s < 5; s++) {
        for (int way = 0; way < 8; way++) {
            const product p = {.a = {.data = a, .transposed = way & 1},
                               .b = {.data = b, .transposed = way & 2},
                               .d = d,
                               .m = sizes[s][0],
                               .n = sizes[s][1],
                               .k = sizes[s][2],
                               .batch = s == 3 ? 1 : 2,
                               .accumulate = way & 4};
            expect_product(&p);
        }
    }
}

/* 0 * inf is NaN, also where the factor is the zero. */
static void test_gpt_product__zero_factors_do_not_hide_infinities(void **state)
{
    (void)state;
    memset(a, 0, sizeof a);
    fill(b, BATCH * LARGEST, 2);
    b[5] = INFINITY;
    const product p = {
        .a = {.data = a}, .b = {.data = b}, .d = d, .m = 2, .n = 8, .k = 8, .batch = 1};
    assert_int_equal(product_f32(NULL, &p), KEEL_OK);
    assert_true(isnan(d[5]) && isnan(d[13]) && d[4] == 0);
}

/* ---- what a hook sees ---- */

typedef struct seen {
    int calls, fail_at;
    int sides[GPT_PLACES_MAX][3][3]; /* products of a place, by what meets */
    product_place places[GPT_PLACES_MAX];
} seen;

static keel_status look(void *context, const product *p)
{
    seen *s = context;
    if (++s->calls == s->fail_at) return KEEL_ERR_DEVICE;
    assert_string_equal(p->place->name, s->places[p->place_index].name);
    assert_int_equal(p->place->op, s->places[p->place_index].op);
    assert_int_equal(p->batch, p->place->op == KEEL_OP_ATTENTION ? 2 * tiny.heads : 1);
    assert_int_equal(p->a.side == PRODUCT_BACK, p->a.role == KEEL_OPERAND_GRADIENT);
    assert_int_equal(p->b.side == PRODUCT_BACK, p->b.role == KEEL_OPERAND_GRADIENT);
    s->sides[p->place_index][p->a.side][p->b.side]++;
    return product_f32(NULL, p);
}

typedef struct run {
    gpt *g;
    float *params, *grad;
    uint8_t tokens[16];
} run;

static void begin(run *r, const product_hook *hook)
{
    const size_t count = (size_t)gpt_param_count(&tiny);
    r->params = malloc(count * sizeof *r->params);
    r->grad = malloc(count * sizeof *r->grad);
    r->g = gpt_create(&tiny, 2, hook);
    assert_true(r->params && r->grad && r->g);
    gpt_init(&tiny, r->params, 1);
    for (int i = 0; i < 16; i++) r->tokens[i] = (uint8_t)(i * 37);
}

static void end(run *r)
{
    gpt_destroy(r->g);
    free(r->params);
    free(r->grad);
}

static void test_gpt_hook__every_place_has_its_three_products(void **state)
{
    (void)state;
    seen s = {0};
    const product_hook hook = {&s, look};
    const int places = gpt_places(&tiny, s.places);
    run r;
    float loss;
    begin(&r, &hook);
    assert_int_equal(gpt_evaluate(r.g, r.params, r.tokens, 2, &loss), KEEL_OK);
    assert_int_equal(s.calls, places); /* forward alone */
    assert_int_equal(gpt_shard(r.g, r.params, r.tokens, 2, 1, r.grad, &loss), KEEL_OK);
    assert_int_equal(s.calls, 4 * places);
    for (int i = 0; i < places; i++) {
        assert_int_equal(s.sides[i][PRODUCT_LEFT][PRODUCT_RIGHT], 2);
        assert_int_equal(s.sides[i][PRODUCT_BACK][PRODUCT_RIGHT], 1);
        /* Queries' scores have keys on the right, whose slope takes the gradient on the left. */
        assert_int_equal(
            s.sides[i][PRODUCT_LEFT][PRODUCT_BACK] + s.sides[i][PRODUCT_BACK][PRODUCT_LEFT], 1);
    }
    end(&r);
}

static void test_gpt_hook__its_failure_ends_the_call(void **state)
{
    (void)state;
    seen s = {0};
    const product_hook hook = {&s, look};
    const int products = 3 * gpt_places(&tiny, s.places);
    run r;
    begin(&r, &hook);
    for (int at = 1; at <= products; at++) {
        float loss = 7;
        s.calls = 0;
        s.fail_at = at;
        assert_int_equal(gpt_shard(r.g, r.params, r.tokens, 2, 1, r.grad, &loss), KEEL_ERR_DEVICE);
        assert_int_equal(s.calls, at);
        assert_true(loss == 7);
    }
    end(&r);
}

/* ---- the tables ---- */

static void test_gpt_tables__tensors_fill_the_parameters(void **state)
{
    (void)state;
    const gpt_config most = {GPT_LAYERS_MAX, 96, 4, 64};
    gpt_tensor tensors[GPT_TENSORS_MAX];
    const int count = gpt_tensors(&most, tensors);
    int end = 0;
    assert_int_equal(count, GPT_TENSORS_MAX);
    for (int t = 0; t < count; t++) {
        assert_int_equal(tensors[t].offset, end);
        end += tensors[t].count;
    }
    assert_int_equal(end, gpt_param_count(&most));
    /* Per layer 12 matrices of width^2 and two gains; embeddings, last gain, head. */
    assert_int_equal(end, 8 * (12 * 96 * 96 + 2 * 96) + (256 + 64 + 1 + 256) * 96);
}

/* A linear place or the head has the name of its weights; a tensor decays if it has a place. */
static void test_gpt_tables__places_are_named_after_weights(void **state)
{
    (void)state;
    gpt_tensor tensors[GPT_TENSORS_MAX];
    product_place places[GPT_PLACES_MAX];
    const int tensor_count = gpt_tensors(&tiny, tensors), count = gpt_places(&tiny, places);
    int with_weights = 0, decaying = 0;
    for (int i = 0; i < count; i++) with_weights += places[i].op != KEEL_OP_ATTENTION;
    for (int t = 0; t < tensor_count; t++) {
        int named = 0;
        for (int i = 0; i < count; i++) named += strcmp(places[i].name, tensors[t].name) == 0;
        assert_int_equal(named, tensors[t].decays);
        decaying += tensors[t].decays;
    }
    assert_int_equal(decaying, with_weights);
}

static void test_gpt_check__names_the_field(void **state)
{
    (void)state;
    static const struct {
        gpt_config config;
        const char *sentence;
    } rows[] = {
        {{0, 96, 4, 64}, "layers=0 (want 1..8)"},
        {{2, 513, 4, 64}, "width=513 (want 1..512)"},
        {{2, 96, 0, 64}, "heads=0 (want 1..96)"},
        {{2, 96, 5, 64}, "heads=5 (want a divisor of width=96)"},
        {{2, 96, 4, 257}, "context=257 (want 1..256)"},
    };
    for (int i = 0; i < 5; i++) {
        char why[GPT_WHY];
        assert_false(gpt_check(&rows[i].config, why));
        assert_string_equal(why, rows[i].sentence);
        assert_null(gpt_create(&rows[i].config, 1, NULL));
    }
    assert_null(gpt_create(&tiny, 0, NULL));
    assert_null(gpt_create(&tiny, GPT_SEQUENCES_MAX + 1, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt_product__sums_with_k_ascending),
        cmocka_unit_test(test_gpt_product__zero_factors_do_not_hide_infinities),
        cmocka_unit_test(test_gpt_hook__every_place_has_its_three_products),
        cmocka_unit_test(test_gpt_hook__its_failure_ends_the_call),
        cmocka_unit_test(test_gpt_tables__tensors_fill_the_parameters),
        cmocka_unit_test(test_gpt_tables__places_are_named_after_weights),
        cmocka_unit_test(test_gpt_check__names_the_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Sums of f32 products by the caller's own function: when it is asked, what it is told, and that
 * scales, bias and amax are as ever. */
#include "product.h"

/* A product that counts, and sums like the built-in loop unless told to refuse. */
typedef struct hook {
    int calls;
    keel_status answer;
    int64_t last[8];
} hook;

static keel_status plain_sgemm(void *context, int32_t transpose_a, int32_t transpose_b, int64_t m,
                               int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                               int64_t ldb, float *c, int64_t ldc)
{
    hook *h = context;
    const int64_t told[] = {transpose_a, transpose_b, m, n, k, lda, ldb, ldc};
    h->calls++;
    memcpy(h->last, told, sizeof told);
    if (h->answer != KEEL_OK) return h->answer;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t p = 0; p < k; p++) {
                const float x = transpose_a ? a[p * lda + i] : a[i * lda + p];
                const float term = x * (transpose_b ? b[j * ldb + p] : b[p * ldb + j]);
                sum = sum + term;
            }
            c[i * ldc + j] = sum;
        }
    return KEEL_OK;
}

static product_shape f32_shape(void)
{
    const product_shape s = {.m = 7,
                             .n = 141,
                             .k = 19,
                             .a = KEEL_FORMAT_F32,
                             .b = KEEL_FORMAT_F32,
                             .d = KEEL_FORMAT_F32,
                             .bias = KEEL_FORMAT_BF16,
                             .scale_a = 0.75f,
                             .scale_b = 3,
                             .scale_d = 0.1f,
                             .gap = 2};
    return s;
}

/* Calls of the hook by one product, whose result is right either way. */
static int calls_of(hook *h, const product_shape *s)
{
    h->calls = 0;
    keel_set_sgemm(plain_sgemm, h);
    product_try(s, 5);
    keel_set_sgemm(NULL, NULL);
    return h->calls;
}

static void test_matmul_sgemm__is_told_shape_and_strides(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        hook h = {0};
        product_shape s = f32_shape();
        s.transpose_a = t & 1, s.transpose_b = t >> 1;
        assert_int_equal(calls_of(&h, &s), 1);
        const int64_t wanted[] = {t & 1, t >> 1, 7, 141, 19, t & 1 ? 9 : 21, t >> 1 ? 21 : 143,
                                  143};
        assert_memory_equal(h.last, wanted, sizeof wanted);
    }
}

static void test_matmul_sgemm__may_refuse(void **state)
{
    (void)state;
    hook h = {.answer = KEEL_ERR_UNSUPPORTED};
    const product_shape s = f32_shape();
    assert_int_equal(calls_of(&h, &s), 1);
}

/* Only aligned f32 in and out, no accumulate, and something to do. */
static void test_matmul_sgemm__is_asked_for_f32_alone(void **state)
{
    (void)state;
    hook h = {0};
    product_shape s[8];
    for (int i = 0; i < 8; i++) s[i] = f32_shape();
    s[0].a = KEEL_FORMAT_E4M3;
    s[1].b = KEEL_FORMAT_BF16;
    s[2].d = KEEL_FORMAT_F16;
    s[3].shift = 1;
    s[4].accumulate = true, s[4].scale_d = 0;
    s[5].m = 0;
    s[6].n = 0;
    s[7].k = 0;
    for (int i = 0; i < 8; i++) assert_int_equal(calls_of(&h, &s[i]), 0);
}

static void test_matmul_sgemm__is_gone_after_null(void **state)
{
    (void)state;
    hook h = {0};
    const product_shape s = f32_shape();
    assert_int_equal(calls_of(&h, &s), 1);
    product_try(&s, 6);
    assert_int_equal(h.calls, 1);
}

/* A refused product never reaches it. */
static void test_matmul_sgemm__comes_after_the_checks(void **state)
{
    (void)state;
    hook h = {0};
    const product_shape s = f32_shape();
    const float bad = 0;
    product p;
    product_begin(&p, &s, 1);
    p.args.a.scale_inv = &bad;
    keel_set_sgemm(plain_sgemm, &h);
    assert_refused(keel_matmul(NULL, &p.args, NULL), KEEL_ERR_INVALID, "a.scale_inv=0");
    keel_set_sgemm(NULL, NULL);
    assert_int_equal(h.calls, 0);
    product_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_sgemm__is_told_shape_and_strides),
        cmocka_unit_test(test_matmul_sgemm__may_refuse),
        cmocka_unit_test(test_matmul_sgemm__is_asked_for_f32_alone),
        cmocka_unit_test(test_matmul_sgemm__is_gone_after_null),
        cmocka_unit_test(test_matmul_sgemm__comes_after_the_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

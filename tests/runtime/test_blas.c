/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Products through the CBLAS of keel_blas: within the bound, in every layout, and gone again. */
#include "keel/blas.h"

#include "product.h"

static product_shape shape_of(int64_t m, int64_t n, int64_t k, uint64_t trial)
{
    const product_shape s = {.m = m,
                             .n = n,
                             .k = k,
                             .a = KEEL_FORMAT_F32,
                             .b = KEEL_FORMAT_F32,
                             .d = KEEL_FORMAT_F32,
                             .bias = trial & 1 ? KEEL_FORMAT_F32 : KEEL_FORMAT_NONE,
                             .transpose_a = trial >> 1 & 1,
                             .transpose_b = trial >> 2 & 1,
                             .gap = trial >> 3 & 1 ? 3 : 0,
                             .scale_a = 0.3f,
                             .spread = (float)(trial % 3)};
    return s;
}

static void check_trial(const product_shape *s, uint64_t seed)
{
    product p;
    product_begin(&p, s, seed);
    assert_ok(keel_matmul(NULL, &p.args, NULL));
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->n; j++)
            check_bound(&p, i, j,
                        keel_format_decode(s->d, code_at(p.d.data, i * p.d.stride + j, s->d)));
    check_gaps(&p);
    product_end(&p);
}

static void test_blas__keeps_the_bound(void **state)
{
    (void)state;
    random_source r = random_begin(3);
    keel_blas_use();
    for (uint64_t trial = 0; trial < 64; trial++) {
        const product_shape s = shape_of(1 + random_below(&r, 80), 1 + random_below(&r, 80),
                                         1 + random_below(&r, 200), trial);
        check_trial(&s, trial);
    }
    keel_set_sgemm(NULL, NULL);
}

/* To the bit: the built-in loop. */
static void test_blas__leaves_other_formats_and_goes_when_told(void **state)
{
    (void)state;
    product_shape s = shape_of(40, 50, 60, 1);
    s.a = KEEL_FORMAT_BF16;
    keel_blas_use();
    product_try(&s, 1);
    keel_set_sgemm(NULL, NULL);
    s.a = KEEL_FORMAT_F32;
    product_try(&s, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blas__keeps_the_bound),
        cmocka_unit_test(test_blas__leaves_other_formats_and_goes_when_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Products give the same bits on every instruction set, and however they are cut. */
#include <stdlib.h>

#include "cpu/kernels.h"
#include "product.h"

enum {
    A = KEELI_PANEL_M * KEELI_PANEL_K,
    B = KEELI_PANEL_K * KEELI_PANEL_N,
    C = KEELI_PANEL_M * KEELI_PANEL_N
};

typedef struct panels {
    float a[A], b[B], c[C], wanted[C];
} panels;

static void fill(panels *x, random_source *r, float spread)
{
    for (int i = 0; i < A; i++) x->a[i] = random_unit(r) * exp2f(spread * random_unit(r));
    for (int i = 0; i < B; i++) x->b[i] = random_unit(r) * exp2f(spread * random_unit(r));
    for (int i = 0; i < C; i++) x->c[i] = x->wanted[i] = random_unit(r);
}

static void multiply_plainly(panels *x, int32_t m, int32_t n, int32_t k)
{
    for (int32_t i = 0; i < m; i++)
        for (int32_t j = 0; j < n; j++)
            for (int32_t p = 0; p < k; p++) {
                const float term = x->a[i * KEELI_PANEL_K + p] * x->b[p * KEELI_PANEL_N + j];
                x->wanted[i * KEELI_PANEL_N + j] = x->wanted[i * KEELI_PANEL_N + j] + term;
            }
}

static void check_panels(const keeli_cpu_kernels *kernels, panels *x, int32_t m, int32_t n,
                         int32_t k)
{
    multiply_plainly(x, m, n, k);
    kernels->matmul->multiply_add(x->a, x->b, x->c, m, n, k);
    for (int i = 0; i < C; i++)
        if (bits_of_f32(x->c[i]) != bits_of_f32(x->wanted[i]))
            fail_msg("%s: %dx%dx%d element %d,%d: %a, wanted %a", kernels->isa, m, n, k,
                     i / KEELI_PANEL_N, i % KEELI_PANEL_N, (double)x->c[i], (double)x->wanted[i]);
}

/* Whole padding steps of rows and columns, any depth; spread past both ends of f32 included. */
static void test_matmul_isa__panels_are_the_plain_loop(void **state)
{
    (void)state;
    const keeli_cpu_kernels *kernels;
    panels *x = malloc(sizeof *x);
    assert_non_null(x);
    for (int32_t isa = 0; (kernels = keeli_cpu_kernels_at(isa)); isa++)
        for (uint64_t trial = 0; trial < 40; trial++) {
            random_source r = random_begin(trial);
            fill(x, &r, trial % 4 == 3 ? 70 : 3);
            const int64_t rows = random_below(&r, KEELI_PANEL_M / KEELI_PANEL_PAD_M + 1);
            const int64_t cols = random_below(&r, KEELI_PANEL_N / KEELI_PANEL_PAD_N + 1);
            check_panels(kernels, x, (int32_t)rows * KEELI_PANEL_PAD_M,
                         (int32_t)cols * KEELI_PANEL_PAD_N,
                         (int32_t)random_below(&r, KEELI_PANEL_K + 1));
        }
    free(x);
}

static void test_matmul_isa__finish_is_one_rounding_from_f64(void **state)
{
    (void)state;
    const keeli_cpu_kernels *kernels;
    float c[67], bias[67], old[67], wanted[67];
    for (int32_t isa = 0; (kernels = keeli_cpu_kernels_at(isa)); isa++)
        for (uint64_t trial = 0; trial < 2000; trial++) {
            random_source r = random_begin(trial);
            const double scale = ldexp((double)random_unit(&r), (int)random_below(&r, 200) - 100);
            for (int i = 0; i < 67; i++) {
                c[i] = random_finite(&r);
                bias[i] = random_finite(&r);
                old[i] = random_finite(&r);
                const double scaled = (double)c[i] * scale;
                wanted[i] = (float)((scaled + (double)bias[i]) + (double)old[i]);
            }
            kernels->matmul->finish(c, 67, scale, bias, old);
            assert_memory_equal(c, wanted, sizeof c);
        }
}

/* Rows and columns computed one by one, through windows of the same memory. */
static void test_matmul_isa__windows_give_the_bits_of_the_whole(void **state)
{
    (void)state;
    const product_shape s = {.m = 37,
                             .n = 41,
                             .k = 150,
                             .a = KEEL_FORMAT_BF16,
                             .b = KEEL_FORMAT_F32,
                             .d = KEEL_FORMAT_F32,
                             .spread = 12};
    product p;
    float d[37 * 41];
    product_begin(&p, &s, 1);
    assert_ok(keel_matmul(NULL, &p.args, NULL));
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            keel_matmul_args one = {.m = 1, .n = 1, .k = s.k, .a_stride = s.k, .b_stride = s.n};
            one.a = (keel_tensor){p.a.data + i * s.k * 2, s.k, s.a, 0, NULL, NULL};
            one.b = (keel_tensor){p.b.data + j * 4, (s.k - 1) * s.n + 1, s.b, 0, NULL, NULL};
            one.d = (keel_tensor){&d[i * s.n + j], 1, s.d, 0, NULL, NULL};
            assert_ok(keel_matmul(NULL, &one, NULL));
        }
    assert_memory_equal(d, p.d.data, sizeof d);
    product_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_isa__panels_are_the_plain_loop),
        cmocka_unit_test(test_matmul_isa__finish_is_one_rounding_from_f64),
        cmocka_unit_test(test_matmul_isa__windows_give_the_bits_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

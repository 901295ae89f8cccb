/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Matrix products: values, formats, layouts, against a plain loop to the bit and f64 to the bound.
 */
#include <fenv.h>

#include "product.h"

#if defined(__x86_64__)
#    include <xmmintrin.h>
#endif

static product_shape f32_shape(int64_t m, int64_t n, int64_t k)
{
    const product_shape s = {
        .m = m, .n = n, .k = k, .a = KEEL_FORMAT_F32, .b = KEEL_FORMAT_F32, .d = KEEL_FORMAT_F32};
    return s;
}

static keel_tensor f32_tensor(float *data, int64_t numel)
{
    const keel_tensor t = {data, numel, KEEL_FORMAT_F32, 0, NULL, NULL};
    return t;
}

static void test_matmul__gives_small_integers(void **state)
{
    (void)state;
    float a[] = {1, 2, 3, 4, 5, 6}, b[] = {7, 8, 9, 10, 11, 12}, bias[] = {100, -100}, d[4];
    float amax;
    keel_matmul_args args = {.m = 2, .n = 2, .k = 3, .out_amax = &amax};
    args.a = f32_tensor(a, 6);
    args.b = f32_tensor(b, 6);
    args.d = f32_tensor(d, 4);
    args.bias = f32_tensor(bias, 2);
    assert_ok(keel_matmul(NULL, &args, NULL));
    const float wanted[] = {158, -36, 239, 54};
    for (int i = 0; i < 4; i++) assert_same_f32(d[i], wanted[i]);
    assert_same_f32(amax, 239.0f);
}

/* 2x3 times 3x2 where both are stored the other way round. */
static void test_matmul__reads_transposes(void **state)
{
    (void)state;
    float a[] = {1, 4, 2, 5, 3, 6}, b[] = {7, 9, 11, 8, 10, 12}, d[4];
    keel_matmul_args args = {.m = 2, .n = 2, .k = 3, .transpose_a = 1, .transpose_b = 1};
    args.a = f32_tensor(a, 6);
    args.b = f32_tensor(b, 6);
    args.d = f32_tensor(d, 4);
    assert_ok(keel_matmul(keel_cpu_device(), &args, NULL));
    const float wanted[] = {58, 64, 139, 154};
    for (int i = 0; i < 4; i++) assert_same_f32(d[i], wanted[i]);
}

/* Around every edge of a register, of a panel, and of nothing. */
static void test_matmul__takes_every_shape(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 3, 8, 33, 129};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    for (int trial = 0; trial < COUNT * COUNT * COUNT; trial++) {
        product_shape s = f32_shape(sizes[trial % COUNT], sizes[trial / COUNT % COUNT],
                                    sizes[trial / COUNT / COUNT]);
        s.bias = trial % 2 ? KEEL_FORMAT_F32 : KEEL_FORMAT_NONE;
        product_try(&s, (uint64_t)trial);
    }
}

/* Several panels each way, and the last of each not full. */
static void test_matmul__crosses_panels(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 4; trial++) {
        product_shape s = f32_shape(259, 261, 131);
        s.transpose_a = trial & 1;
        s.transpose_b = trial >> 1;
        s.spread = 8;
        s.scale_a = 3.0f;
        product_try(&s, trial);
    }
}

static void test_matmul__reads_every_pair_of_formats(void **state)
{
    (void)state;
    const keel_format_info *a, *b;
    for (int32_t i = 0; (a = keel_format_at(i)); i++)
        for (int32_t j = 0; (b = keel_format_at(j)); j++) {
            product_shape s = f32_shape(9, 35, 67);
            s.a = a->id;
            s.b = b->id;
            s.scale_a = 0x1p-3f;
            s.scale_b = 1.75f;
            s.spread = 4;
            s.transpose_a = i % 2;
            s.transpose_b = j % 2;
            product_try(&s, (uint64_t)(i * 100 + j));
        }
}

static void test_matmul__writes_every_format_with_bias_of_every_format(void **state)
{
    (void)state;
    const keel_format_info *d, *bias;
    for (int32_t i = 0; (d = keel_format_at(i)); i++)
        for (int32_t j = 0; (bias = keel_format_at(j)); j++) {
            if (!d->can_encode) continue;
            product_shape s = f32_shape(5, 130, 40);
            s.d = d->id;
            s.bias = bias->id;
            s.scale_d = j % 2 ? 0.375f : 96.0f; /* saturates or overflows as well */
            s.scale_bias = j % 3 ? 1.25f : 0;
            s.spread = 2;
            product_try(&s, (uint64_t)(i * 100 + j));
        }
}

/* Everything at once, at random; a failing trial is named by its seed. */
static product_shape random_shape(random_source *r)
{
    const float spread[] = {0, 1, 20, 60};
    const float scales[] = {0, 1, 0x1p-20f, 0.3f, 17};
    keel_format formats[4];
    for (int i = 0; i < 4; i++) formats[i] = keel_format_at((int32_t)random_below(r, 5))->id;
    product_shape s = {.m = random_below(r, 20), .n = random_below(r, 70)};
    s.k = random_below(r, 150);
    s.a = formats[0];
    s.b = formats[1];
    s.d = formats[2];
    s.bias = random_below(r, 2) ? formats[3] : KEEL_FORMAT_NONE;
    s.transpose_a = random_below(r, 2);
    s.transpose_b = random_below(r, 2);
    s.accumulate = s.d == KEEL_FORMAT_F32 && random_below(r, 2);
    s.gap = random_below(r, 3) ? 0 : random_below(r, 20);
    s.shift = (int32_t)random_below(r, 4);
    s.scale_a = scales[random_below(r, 5)];
    s.scale_b = scales[random_below(r, 5)];
    s.scale_bias = scales[random_below(r, 5)];
    s.scale_d = s.accumulate ? 0 : scales[random_below(r, 5)];
    s.spread = spread[random_below(r, 4)];
    return s;
}

static void test_matmul__takes_any_layout(void **state)
{
    (void)state;
    random_source r = random_begin(1);
    for (uint64_t trial = 0; trial < 600; trial++) {
        const product_shape s = random_shape(&r);
        product_try(&s, trial);
    }
}

/* 2^24 + 1 - 2^24: an accumulator with more bits, or another order, would keep the 1. */
static void test_matmul__rounds_every_step_in_ascending_order(void **state)
{
    (void)state;
    float a[] = {0x1p24f, 1, -0x1p24f}, b[] = {1, 1, 1}, d[1];
    keel_matmul_args args = {.m = 1, .n = 1, .k = 3};
    args.a = f32_tensor(a, 3);
    args.b = f32_tensor(b, 3);
    args.d = f32_tensor(d, 1);
    assert_ok(keel_matmul(NULL, &args, NULL));
    assert_same_f32(d[0], 0.0f);
    /* A fused multiply-add would keep 2^-24 of the square. */
    a[0] = b[0] = 1 + 0x1p-12f, a[1] = -(1 + 0x1p-11f), a[2] = 0;
    assert_ok(keel_matmul(NULL, &args, NULL));
    assert_same_f32(d[0], 0.0f);
}

/* Scales whose product alone, or times the sum in either order, leaves the range of f32. */
static void test_matmul__applies_scales_without_overflow_between(void **state)
{
    (void)state;
    static const float rows[][4] = {{0x1p100f, 0x1p-100f, 0x1p60f, 0x1p60f},
                                    {0x1p-100f, 0x1p100f, 0x1p-60f, 0x1p-60f},
                                    {0x1p100f, 0x1p100f, 0x1p-80f, 0x1p120f},
                                    {0x1p100f, 0x1p100f, 0, 0},
                                    {0x1p-149f, 0x1p127f, 0x1p30f, 0x1p8f}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float a[] = {rows[i][2]}, b[] = {1}, d[1];
        keel_matmul_args args = {.m = 1, .n = 1, .k = 1};
        args.a = f32_tensor(a, 1);
        args.b = f32_tensor(b, 1);
        args.d = f32_tensor(d, 1);
        args.a.scale_inv = &rows[i][0];
        args.b.scale_inv = &rows[i][1];
        assert_ok(keel_matmul(NULL, &args, NULL));
        assert_same_f32(d[0], rows[i][3]);
    }
}

static void test_matmul__lets_nonfinite_values_through(void **state)
{
    (void)state;
    float a[] = {INFINITY, 1, -INFINITY, NAN}, b[] = {1, 0}, d[8], amax;
    keel_matmul_args args = {.m = 4, .n = 2, .k = 1, .out_amax = &amax};
    args.a = f32_tensor(a, 4);
    args.b = f32_tensor(b, 2);
    args.d = f32_tensor(d, 8);
    assert_ok(keel_matmul(NULL, &args, NULL));
    assert_true(isinf(d[0]) && isnan(d[1]) && isinf(d[4]) && isnan(d[6]) && isnan(d[7]));
    assert_same_f32(d[2], 1.0f);
    assert_true(isnan(amax));
    args.n = 1, args.m = 3;
    args.a.numel = args.d.numel = 3, args.b.numel = 1;
    assert_ok(keel_matmul(NULL, &args, NULL));
    assert_same_f32(amax, INFINITY);
}

/* The caller's rounding, FTZ and DAZ neither matter nor change. */
static void test_matmul__has_its_own_floating_point_environment(void **state)
{
    (void)state;
    float a[] = {0x1p-140f, 1}, b[] = {1, 0x1p-30f}, scale = 0x1p-140f, d[1];
    keel_matmul_args args = {.m = 1, .n = 1, .k = 2};
    args.a = f32_tensor(a, 2);
    args.b = f32_tensor(b, 2);
    args.d = f32_tensor(d, 1);
    fesetround(FE_UPWARD);
#if defined(__x86_64__)
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040u);
#endif
    b[1] = 0;
    const keel_status first = keel_matmul(NULL, &args, NULL);
    const float small = d[0];
    args.a.scale_inv = &scale;
    a[0] = 1;
    const keel_status second = keel_matmul(NULL, &args, NULL);
    const float scaled = d[0];
    args.a.scale_inv = NULL;
    b[1] = 0x1p-30f;
    const keel_status third = keel_matmul(NULL, &args, NULL);
#if defined(__x86_64__)
    const unsigned after = _mm_getcsr();
    _mm_setcsr(saved);
    assert_int_equal(after & ~0x3fu, (saved | 0x8040u) & ~0x3fu);
#endif
    assert_int_equal(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    assert_ok(first);
    assert_ok(second);
    assert_ok(third);
    assert_int_equal(bits_of_f32(small), bits_of_f32(0x1p-140f));
    assert_int_equal(bits_of_f32(scaled), bits_of_f32(0x1p-140f));
    assert_same_f32(d[0], 1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul__gives_small_integers),
        cmocka_unit_test(test_matmul__reads_transposes),
        cmocka_unit_test(test_matmul__takes_every_shape),
        cmocka_unit_test(test_matmul__crosses_panels),
        cmocka_unit_test(test_matmul__reads_every_pair_of_formats),
        cmocka_unit_test(test_matmul__writes_every_format_with_bias_of_every_format),
        cmocka_unit_test(test_matmul__takes_any_layout),
        cmocka_unit_test(test_matmul__rounds_every_step_in_ascending_order),
        cmocka_unit_test(test_matmul__applies_scales_without_overflow_between),
        cmocka_unit_test(test_matmul__lets_nonfinite_values_through),
        cmocka_unit_test(test_matmul__has_its_own_floating_point_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

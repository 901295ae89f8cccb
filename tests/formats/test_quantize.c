/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Bulk casts through the public interface, against the reference one element at a time. */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "keel/quantize.h"
#include "oracle.h"

#if defined(__x86_64__)
#    include <xmmintrin.h>
#endif

enum { MOST = 1025, PAD = 8 };

static const int64_t sizes[] = {0, 1, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Values of every kind: all exponents, both zeros, infinities, NaN. */
static float sample(int64_t i)
{
    const uint32_t bits = (uint32_t)i * 2654435761u + 12345u;
    if (i % 97 == 13) return INFINITY;
    if (i % 101 == 5) return -NAN;
    if (i % 7 == 3) return i % 2 ? -0.0f : 0.0f;
    if (i % 3 == 0) return oracle_float(bits);
    return ldexpf((float)(int32_t)bits, -24 - (int)(bits % 13));
}

static keel_tensor tensor(void *data, int64_t numel, keel_format format)
{
    const keel_tensor t = {data, numel, format, 0, NULL, NULL};
    return t;
}

static uint32_t code_at(const unsigned char *codes, int64_t i, int32_t width)
{
    uint32_t code = 0;
    for (int32_t b = 0; b < width; b++) code |= (uint32_t)codes[i * width + b] << (8 * b);
    return code;
}

static void check_result(oracle *o, const float *x, float scale, const unsigned char *codes,
                         int64_t n)
{
    const int32_t width = keel_format_get(o->format)->storage_bytes;
    for (int64_t i = 0; i < n; i++) {
        const float product = x[i] * scale;
        const uint32_t code = code_at(codes, i, width);
        if (!oracle_accepts(o, oracle_bits(product), o->exp + o->man < 8, code))
            fail_msg("%s element %lld: %a * %a gave %x", o->name, (long long)i, (double)x[i],
                     (double)scale, code);
    }
}

/* Any size at any address, and not a byte beyond. */
static void check_sizes(oracle *o)
{
    static unsigned char source[PAD + MOST * 4], codes[PAD + MOST * 2 + PAD];
    const int32_t width = keel_format_get(o->format)->storage_bytes;
    const float scale = 0.7f;
    for (int s = 0; s < SIZES; s++) {
        for (int shift = 0; shift < 4; shift++) {
            const int64_t n = sizes[s];
            float x[MOST];
            for (int64_t i = 0; i < n; i++) x[i] = sample(i + shift);
            memcpy(source + shift, x, (size_t)n * sizeof *x);
            memset(codes, 0xa5, sizeof codes);
            const keel_tensor src = tensor(source + shift, n, KEEL_FORMAT_F32);
            keel_tensor dst = tensor(codes + 3 - shift, n, o->format);
            dst.scale = &scale;
            assert_int_equal(keel_quantize(NULL, &src, &dst, NULL, NULL, NULL), KEEL_OK);
            check_result(o, x, scale, codes + 3 - shift, n);
            for (int b = 0; b < PAD; b++) assert_int_equal(codes[3 - shift + n * width + b], 0xa5);
        }
    }
}

static void test_quantize__any_size_and_alignment(void **state)
{
    (void)state;
    oracle_each(check_sizes);
}

static void check_dequantize(oracle *o)
{
    const uint32_t count = 1u << (1 + o->exp + o->man);
    const int32_t width = keel_format_get(o->format)->storage_bytes;
    const float scale_inv = 0x1.5p-3f;
    unsigned char *codes = malloc((size_t)count * 2 + 1);
    float *out = malloc((size_t)count * sizeof *out);
    for (uint32_t c = 0; c < count; c++) {
        codes[1 + c * (uint32_t)width] = (unsigned char)c;
        if (width == 2) codes[2 + c * 2] = (unsigned char)(c >> 8);
    }
    keel_tensor src = tensor(codes + 1, count, o->format);
    src.scale_inv = &scale_inv;
    assert_int_equal(keel_dequantize(NULL, &src, out, NULL), KEEL_OK);
    for (uint32_t c = 0; c < count; c++) {
        const float want = keel_format_decode(o->format, c) * scale_inv;
        assert_true(isnan(want) ? isnan(out[c]) : oracle_bits(out[c]) == oracle_bits(want));
        assert_int_equal(signbit(out[c]) != 0, signbit(want) != 0);
    }
    free(codes);
    free(out);
}

static void test_quantize__dequantize_is_value_times_scale_inv(void **state)
{
    (void)state;
    oracle_each(check_dequantize);
}

/* MS-AMP#47, ao#904: a scale beyond the range of f16 times an f16 source. */
static void test_quantize__product_with_the_scale_is_formed_in_f32(void **state)
{
    (void)state;
    const float scale = 448.0f * 0x1p18f, scale_inv = 1.0f / scale;
    const uint16_t x[] = {0x0040, 0x8010}; /* 2^-18, -2^-20 */
    unsigned char codes[2];
    float back[2];
    const keel_tensor src = tensor((void *)(uintptr_t)x, 2, KEEL_FORMAT_F16);
    keel_tensor dst = tensor(codes, 2, KEEL_FORMAT_E4M3);
    dst.scale = &scale;
    dst.scale_inv = &scale_inv;
    assert_int_equal(keel_quantize(NULL, &src, &dst, NULL, NULL, NULL), KEEL_OK);
    assert_int_equal(codes[0], 0x7e);
    assert_int_equal(codes[1], 0xee);
    assert_int_equal(keel_dequantize(NULL, &dst, back, NULL), KEEL_OK);
    assert_true(back[0] == 0x1p-18f && back[1] == -0x1p-20f);
}

/* aiter#5259: division by the reciprocal lands on the tie and gives 0x20 and 0x0e. */
static void test_quantize__the_scale_multiplies(void **state)
{
    (void)state;
    float x[2] = {oracle_float(0x3a549249u), oracle_float(0x39392492u)};
    const float scale = oracle_float(0x43155555u);
    unsigned char codes[2];
    const keel_tensor src = tensor(x, 2, KEEL_FORMAT_F32);
    keel_tensor dst = tensor(codes, 2, KEEL_FORMAT_E4M3);
    dst.scale = &scale;
    assert_int_equal(keel_quantize(NULL, &src, &dst, NULL, NULL, NULL), KEEL_OK);
    assert_int_equal(codes[0], 0x1f);
    assert_int_equal(codes[1], 0x0d);
}

/* ao#4714: an all-zero tensor stays zeros, and its amax is 0. */
static void test_quantize__zeros_stay_zeros(void **state)
{
    (void)state;
    float x[16] = {0};
    unsigned char codes[16];
    const float scale = 224;
    keel_cast_stats stats;
    const keel_tensor src = tensor(x, 16, KEEL_FORMAT_F32);
    keel_tensor dst = tensor(codes, 16, KEEL_FORMAT_E4M3);
    dst.scale = &scale;
    x[3] = -0.0f;
    assert_int_equal(keel_quantize(NULL, &src, &dst, NULL, &stats, NULL), KEEL_OK);
    for (int i = 0; i < 16; i++) assert_int_equal(codes[i], i == 3 ? 0x80 : 0);
    assert_true(stats.amax == 0);
    assert_int_equal(stats.inf_count + stats.nan_count + stats.saturated + stats.flushed, 0);
}

static void check_stats(oracle *o)
{
    static float x[MOST];
    static unsigned char codes[MOST * 2];
    const float scale = 3.0f;
    keel_cast_stats stats, want = {0};
    for (int64_t i = 0; i < MOST; i++) {
        x[i] = sample(i);
        const uint32_t rounded = oracle_round(o, oracle_bits(x[i] * scale) & 0x7fffffffu);
        want.inf_count += isinf(x[i]) != 0;
        want.nan_count += isnan(x[i]) != 0;
        want.saturated += isfinite(x[i]) && rounded > o->max_code;
        want.flushed += isfinite(x[i]) && x[i] != 0 && rounded == 0;
    }
    const keel_tensor src = tensor(x, MOST, KEEL_FORMAT_F32);
    keel_tensor dst = tensor(codes, MOST, o->format);
    dst.scale = &scale;
    assert_int_equal(keel_quantize(NULL, &src, &dst, NULL, &stats, NULL), KEEL_OK);
    assert_true(isnan(stats.amax));
    assert_int_equal(stats.inf_count, want.inf_count);
    assert_int_equal(stats.nan_count, want.nan_count);
    assert_int_equal(stats.saturated, want.saturated);
    assert_int_equal(stats.flushed, want.flushed);
}

static void test_quantize__stats_count_sources_and_codes(void **state)
{
    (void)state;
    oracle_each(check_stats);
}

/* tilelang#2944: saturation must not hide that the source was infinite. */
static void test_quantize__infinities_are_counted_although_saturated(void **state)
{
    (void)state;
    float x[] = {1, -INFINITY, 3e38f, 0x1p-140f};
    unsigned char codes[4];
    const float scale = 16;
    keel_cast_stats stats;
    const keel_tensor src = tensor(x, 4, KEEL_FORMAT_F32);
    keel_tensor dst = tensor(codes, 4, KEEL_FORMAT_E5M2);
    dst.scale = &scale;
    assert_int_equal(keel_quantize(NULL, &src, &dst, NULL, &stats, NULL), KEEL_OK);
    assert_int_equal(codes[1], 0xfb);
    assert_true(isinf(stats.amax) && stats.amax > 0);
    assert_int_equal(stats.inf_count, 1);
    assert_int_equal(stats.saturated, 1); /* the product overflows in f32; the source did not */
    assert_int_equal(stats.flushed, 1);
}

static void test_quantize__amax_is_after_scale_inv_and_before_scale(void **state)
{
    (void)state;
    unsigned char source[] = {0x38, 0xc8, 0x30}; /* 1, -4, 0.5 */
    uint16_t out[3];
    const float scale_inv = 0.5f, scale = 100.0f;
    keel_cast_stats stats;
    keel_tensor src = tensor(source, 3, KEEL_FORMAT_E4M3);
    keel_tensor dst = tensor(out, 3, KEEL_FORMAT_BF16);
    src.scale_inv = &scale_inv;
    dst.scale = &scale;
    assert_int_equal(keel_quantize(NULL, &src, &dst, NULL, &stats, NULL), KEEL_OK);
    assert_true(stats.amax == 2);
    assert_int_equal(out[1], 0xc348); /* -200 */
}

static void test_quantize__in_place_gives_the_same_codes(void **state)
{
    (void)state;
    static float x[MOST], memory[MOST];
    static unsigned char codes[MOST];
    const float scale = 1.25f;
    for (int64_t i = 0; i < MOST; i++) memory[i] = x[i] = sample(i);
    for (int scaled = 0; scaled <= 1; scaled++) {
        keel_tensor src = tensor(x, MOST, KEEL_FORMAT_F32);
        keel_tensor dst = tensor(codes, MOST, KEEL_FORMAT_E4M3);
        dst.scale = scaled ? &scale : NULL;
        assert_int_equal(keel_quantize(NULL, &src, &dst, NULL, NULL, NULL), KEEL_OK);
        memcpy(memory, x, sizeof x);
        src.data = dst.data = memory;
        assert_int_equal(keel_quantize(NULL, &src, &dst, NULL, NULL, NULL), KEEL_OK);
        assert_memory_equal(memory, codes, sizeof codes);
    }
    memcpy(memory, x, sizeof x);
    const keel_tensor same = tensor(memory, MOST, KEEL_FORMAT_F32);
    assert_int_equal(keel_dequantize(NULL, &same, memory, NULL), KEEL_OK);
    for (int64_t i = 0; i < MOST; i++)
        assert_true(isnan(x[i]) ? isnan(memory[i]) : oracle_bits(memory[i]) == oracle_bits(x[i]));
}

static void check_refused(const keel_tensor *src, const keel_tensor *dst,
                          const keel_cast_options *options, keel_status status)
{
    keel_cast_stats stats = {.amax = 5};
    assert_int_equal(keel_quantize(NULL, src, dst, options, &stats, NULL), status);
    assert_true(stats.amax == 5);
}

static void test_quantize__overlaps_are_refused(void **state)
{
    (void)state;
    float memory[64] = {0};
    unsigned char *bytes = (unsigned char *)memory;
    const keel_tensor f32 = tensor(memory, 16, KEEL_FORMAT_F32);
    const keel_tensor inside = tensor(bytes + 4, 16, KEEL_FORMAT_E4M3);
    const keel_tensor beyond = tensor(bytes + 64, 16, KEEL_FORMAT_E4M3);
    const keel_tensor narrow = tensor(memory, 16, KEEL_FORMAT_BF16);
    check_refused(&f32, &inside, NULL, KEEL_ERR_INVALID);
    check_refused(&inside, &f32, NULL, KEEL_ERR_INVALID);
    check_refused(&narrow, &f32, NULL, KEEL_ERR_INVALID);
    assert_int_equal(keel_dequantize(NULL, &narrow, memory, NULL), KEEL_ERR_INVALID);
    assert_int_equal(keel_quantize(NULL, &f32, &beyond, NULL, NULL, NULL), KEEL_OK);
    assert_int_equal(keel_quantize(NULL, &f32, &narrow, NULL, NULL, NULL), KEEL_OK);
}

static void test_quantize__bad_tensors_and_options_are_refused(void **state)
{
    (void)state;
    float x[4] = {1, 2, 3, 4};
    unsigned char codes[4] = {9, 9, 9, 9};
    const keel_tensor src = tensor(x, 4, KEEL_FORMAT_F32);
    const keel_tensor dst = tensor(codes, 4, KEEL_FORMAT_E4M3);
    keel_tensor bad = tensor(codes, 3, KEEL_FORMAT_E4M3);
    check_refused(&src, &bad, NULL, KEEL_ERR_INVALID);
    bad = tensor(NULL, 4, KEEL_FORMAT_E4M3);
    check_refused(&src, &bad, NULL, KEEL_ERR_INVALID);
    bad = tensor(codes, -4, KEEL_FORMAT_E4M3);
    check_refused(&bad, &bad, NULL, KEEL_ERR_INVALID);
    bad = tensor(codes, 4, (keel_format)50);
    check_refused(&src, &bad, NULL, KEEL_ERR_INVALID);
    bad = tensor(codes, 4, KEEL_FORMAT_E8M0);
    check_refused(&src, &bad, NULL, KEEL_ERR_UNSUPPORTED);
    bad = dst;
    bad.reserved = 1;
    check_refused(&src, &bad, NULL, KEEL_ERR_INVALID);
    check_refused(NULL, &dst, NULL, KEEL_ERR_INVALID);
    check_refused(&src, &dst, &(keel_cast_options){.overflow = (keel_overflow)3}, KEEL_ERR_INVALID);
    check_refused(&src, &dst, &(keel_cast_options){.rounding = (keel_rounding)2}, KEEL_ERR_INVALID);
    assert_int_equal(keel_dequantize(NULL, NULL, x, NULL), KEEL_ERR_INVALID);
    assert_int_equal(keel_dequantize(NULL, &dst, NULL, NULL), KEEL_ERR_INVALID);
    for (int i = 0; i < 4; i++) assert_int_equal(codes[i], 9);
}

static void test_quantize__bad_scales_are_refused(void **state)
{
    (void)state;
    float x[1] = {1};
    unsigned char codes[1] = {9};
    const float bad[] = {0, -0.0f, -1, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 6; i++) {
        keel_tensor src = tensor(x, 1, KEEL_FORMAT_F32), dst = tensor(codes, 1, KEEL_FORMAT_E4M3);
        dst.scale = &bad[i];
        check_refused(&src, &dst, NULL, KEEL_ERR_INVALID);
        dst.scale = NULL;
        src.scale_inv = &bad[i];
        check_refused(&src, &dst, NULL, KEEL_ERR_INVALID);
    }
    assert_int_equal(codes[0], 9);
}

/* halide#8906, numpy#12721: subnormals lost to the caller's FTZ or DAZ, or ties to his rounding. */
static void test_quantize__the_callers_environment_neither_matters_nor_changes(void **state)
{
    (void)state;
    static float x[MOST];
    static uint16_t want[MOST], got[MOST];
    const float scale = 0x1.8p-3f;
    for (int64_t i = 0; i < MOST; i++)
        x[i] = i % 2 ? sample(i) : oracle_float((uint32_t)i * 0x2b1du); /* subnormals */
    const keel_tensor src = tensor(x, MOST, KEEL_FORMAT_F32);
    keel_tensor dst = tensor(want, MOST, KEEL_FORMAT_BF16);
    dst.scale = &scale;
    assert_int_equal(keel_quantize(NULL, &src, &dst, NULL, NULL, NULL), KEEL_OK);
    dst.data = got;
    const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int i = 0; i < 3; i++) {
        fesetround(modes[i]);
        const keel_status status = keel_quantize(NULL, &src, &dst, NULL, NULL, NULL);
        const int mode = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(status, KEEL_OK);
        assert_int_equal(mode, modes[i]);
        assert_memory_equal(got, want, sizeof want);
    }
#if defined(__x86_64__)
    const unsigned saved = _mm_getcsr(), hostile = 0xffc0u; /* FTZ, DAZ, toward zero */
    _mm_setcsr(hostile);
    const keel_status status = keel_quantize(NULL, &src, &dst, NULL, NULL, NULL);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(saved);
    assert_int_equal(status, KEEL_OK);
    assert_int_equal(after, hostile);
    assert_memory_equal(got, want, sizeof want);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantize__any_size_and_alignment),
        cmocka_unit_test(test_quantize__dequantize_is_value_times_scale_inv),
        cmocka_unit_test(test_quantize__product_with_the_scale_is_formed_in_f32),
        cmocka_unit_test(test_quantize__the_scale_multiplies),
        cmocka_unit_test(test_quantize__zeros_stay_zeros),
        cmocka_unit_test(test_quantize__stats_count_sources_and_codes),
        cmocka_unit_test(test_quantize__infinities_are_counted_although_saturated),
        cmocka_unit_test(test_quantize__amax_is_after_scale_inv_and_before_scale),
        cmocka_unit_test(test_quantize__in_place_gives_the_same_codes),
        cmocka_unit_test(test_quantize__overlaps_are_refused),
        cmocka_unit_test(test_quantize__bad_tensors_and_options_are_refused),
        cmocka_unit_test(test_quantize__bad_scales_are_refused),
        cmocka_unit_test(test_quantize__the_callers_environment_neither_matters_nor_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

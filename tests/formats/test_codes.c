/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Codes: what the registry says of a format, every code decoded and encoded again, and single
 * values that other software got wrong. */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "oracle.h"

static uint32_t encode(keel_format format, float x, keel_overflow overflow)
{
    uint32_t code = 0xdeadbeefu;
    assert_int_equal(keel_format_encode(format, x, overflow, &code), KEEL_OK);
    return code;
}

static uint32_t encode_f64(keel_format format, double x)
{
    uint32_t code = 0xdeadbeefu;
    assert_int_equal(keel_format_encode_f64(format, x, KEEL_OVERFLOW_IEEE, &code), KEEL_OK);
    return code;
}

static uint32_t saturated(keel_format format, float x)
{
    return encode(format, x, KEEL_OVERFLOW_SATURATE);
}

static uint32_t ieee(keel_format format, float x)
{
    return encode(format, x, KEEL_OVERFLOW_IEEE);
}

static void check_info(keel_format format, double max, double min_normal, double min_subnormal,
                       double epsilon)
{
    const keel_format_info *info = keel_format_get(format);
    assert_true(info->max == max);
    assert_true(info->min_normal == min_normal);
    assert_true(info->min_subnormal == min_subnormal);
    assert_true(info->epsilon == epsilon);
}

static void test_codes__registry_states_range_and_precision(void **state)
{
    (void)state;
    check_info(KEEL_FORMAT_F32, 0x1.fffffep127, 0x1p-126, 0x1p-149, 0x1p-23);
    check_info(KEEL_FORMAT_F16, 65504, 0x1p-14, 0x1p-24, 0x1p-10);
    check_info(KEEL_FORMAT_BF16, 0x1.fep127, 0x1p-126, 0x1p-133, 0x1p-7);
    check_info(KEEL_FORMAT_E4M3, 448, 0x1p-6, 0x1p-9, 0x1p-3);
    check_info(KEEL_FORMAT_E5M2, 57344, 0x1p-14, 0x1p-16, 0x1p-2);
    check_info(KEEL_FORMAT_E8M0, 0x1p127, 0x1p-127, 0x1p-127, 0);
    check_info(KEEL_FORMAT_E3M2, 28, 0.25, 0.0625, 0x1p-2);
    check_info(KEEL_FORMAT_E2M3, 7.5, 1, 0.125, 0x1p-3);
    check_info(KEEL_FORMAT_E2M1, 6, 1, 0.5, 0x1p-1);
}

static void test_codes__unknown_formats_have_no_row(void **state)
{
    (void)state;
    assert_null(keel_format_at(-1));
    assert_null(keel_format_get(KEEL_FORMAT_NONE));
    assert_null(keel_format_get((keel_format)1000));
    assert_true(isnan(keel_format_decode((keel_format)1000, 1)));
}

static void check_every_code(oracle *o)
{
    const uint32_t count = 1u << (1 + o->exp + o->man);
    for (uint32_t code = 0; code < count; code++) {
        const double want = oracle_decode(o, code);
        const float got = keel_format_decode(o->format, code);
        assert_true(isnan(want) ? isnan(got) : (double)got == want);
        assert_int_equal(signbit(got) != 0, code >> (o->exp + o->man));
        assert_int_equal(oracle_bits(got),
                         oracle_bits(keel_format_decode(o->format, code | count)));
        if (isnan(want))
            assert_true(oracle_is_nan(o, ieee(o->format, got)));
        else
            assert_int_equal(ieee(o->format, got), code);
    }
}

static void test_codes__every_code_comes_back(void **state)
{
    (void)state;
    oracle_each(check_every_code);
}

typedef struct census {
    int nan, inf;
} census;

static census count_codes(keel_format format)
{
    census c = {0, 0};
    for (uint32_t code = 0; code < 256; code++) {
        c.nan += isnan(keel_format_decode(format, code)) != 0;
        c.inf += isinf(keel_format_decode(format, code)) != 0;
    }
    return c;
}

/* vllm-project/vllm#7210: a byte of a look-alike format, or a NaN, read as a plain number. */
static void test_codes__census_of_fp8(void **state)
{
    (void)state;
    const census e4m3 = count_codes(KEEL_FORMAT_E4M3), e5m2 = count_codes(KEEL_FORMAT_E5M2);
    assert_int_equal(e4m3.nan, 2);
    assert_int_equal(e4m3.inf, 0);
    assert_int_equal(e5m2.nan, 6);
    assert_int_equal(e5m2.inf, 2);
    assert_true(keel_format_decode(KEEL_FORMAT_E4M3, 0x48) == 4);
    assert_true(keel_format_decode(KEEL_FORMAT_E4M3, 0x7e) == 448);
    assert_true(isnan(keel_format_decode(KEEL_FORMAT_E4M3, 0x7f)));
    assert_true(isnan(keel_format_decode(KEEL_FORMAT_E4M3, 0xff)));
    assert_int_equal(oracle_bits(keel_format_decode(KEEL_FORMAT_E4M3, 0x80)), 0x80000000u);
}

static void test_codes__e8m0_decodes_and_is_not_encoded(void **state)
{
    (void)state;
    uint32_t out = 7;
    for (uint32_t code = 0; code < 255; code++)
        assert_true((double)keel_format_decode(KEEL_FORMAT_E8M0, code) ==
                    ldexp(1, (int)code - 127));
    assert_true(isnan(keel_format_decode(KEEL_FORMAT_E8M0, 255)));
    assert_int_equal(keel_format_encode(KEEL_FORMAT_E8M0, 1, KEEL_OVERFLOW_DEFAULT, &out),
                     KEEL_ERR_UNSUPPORTED);
    assert_int_equal(out, 7);
}

/* tilelang#2944, tinygrad#17087, onnx#6220: inf or overflow kept as the largest finite number where
 * the caller asked to see it. */
static void test_codes__overflow_starts_half_a_step_above_the_largest(void **state)
{
    (void)state;
    const float e5m2[] = {0x1.dffffep15f, 61440, -61440, INFINITY};
    const uint32_t e5m2_ieee[] = {0x7b, 0x7c, 0xfc, 0x7c};
    const uint32_t e5m2_saturated[] = {0x7b, 0x7b, 0xfb, 0x7b};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ieee(KEEL_FORMAT_E5M2, e5m2[i]), e5m2_ieee[i]);
        assert_int_equal(saturated(KEEL_FORMAT_E5M2, e5m2[i]), e5m2_saturated[i]);
    }
    assert_int_equal(ieee(KEEL_FORMAT_F16, 0x1.ffdffep15f), 0x7bff);
    assert_int_equal(ieee(KEEL_FORMAT_F16, 65520), 0x7c00);
    assert_int_equal(ieee(KEEL_FORMAT_F16, -65520), 0xfc00);
    assert_int_equal(ieee(KEEL_FORMAT_E4M3, 464), 0x7e);
    assert_int_equal(ieee(KEEL_FORMAT_E4M3, nextafterf(464, 500)), 0x7f);
    assert_int_equal(ieee(KEEL_FORMAT_E4M3, -INFINITY), 0xff);
    assert_int_equal(saturated(KEEL_FORMAT_E4M3, -INFINITY), 0xfe);
}

static void test_codes__the_default_mode_is_that_of_the_width(void **state)
{
    (void)state;
    assert_int_equal(encode(KEEL_FORMAT_E4M3, INFINITY, KEEL_OVERFLOW_DEFAULT), 0x7e);
    assert_int_equal(encode(KEEL_FORMAT_E5M2, 1e30f, KEEL_OVERFLOW_DEFAULT), 0x7b);
    assert_int_equal(encode(KEEL_FORMAT_F16, 1e30f, KEEL_OVERFLOW_DEFAULT), 0x7c00);
    assert_int_equal(encode(KEEL_FORMAT_BF16, -INFINITY, KEEL_OVERFLOW_DEFAULT), 0xff80);
}

/* gorse#1240, dotnet/runtime#130583: NaN turned into infinity or zero by rounding its bits. */
static void test_codes__nan_stays_nan_with_its_sign(void **state)
{
    (void)state;
    const uint32_t plus = ieee(KEEL_FORMAT_BF16, oracle_float(0x7fffffffu));
    const uint32_t minus = ieee(KEEL_FORMAT_BF16, oracle_float(0xff802000u));
    assert_true(plus > 0x7f80 && plus <= 0x7fff);
    assert_true(minus > 0xff80 && minus <= 0xffff);
    assert_int_equal(ieee(KEEL_FORMAT_BF16, oracle_float(0x7f7f8000u)), 0x7f80);
    assert_int_equal(saturated(KEEL_FORMAT_BF16, oracle_float(0x7f7f8000u)), 0x7f7f);
    assert_int_equal(ieee(KEEL_FORMAT_BF16, oracle_float(0x7f7f7fffu)), 0x7f7f);
    assert_int_equal(saturated(KEEL_FORMAT_E4M3, NAN), 0x7f);
    assert_int_equal(saturated(KEEL_FORMAT_E4M3, -NAN), 0xff);
    assert_int_equal(ieee(KEEL_FORMAT_E2M1, NAN), 0x7);
    assert_int_equal(ieee(KEEL_FORMAT_E2M1, -NAN), 0xf);
    assert_int_equal(encode_f64(KEEL_FORMAT_E4M3, -(double)NAN), 0xff);
    assert_true(isnan(oracle_float(encode_f64(KEEL_FORMAT_F32, (double)NAN))));
}

/* julia#57809, Halide#8906, oneDNN#2361: rounded twice, one code low. */
static void test_codes__a_value_just_above_a_tie_goes_up(void **state)
{
    (void)state;
    assert_int_equal(encode_f64(KEEL_FORMAT_F16, 1 + 0x1p-11 + 0x1p-40), 0x3c01);
    assert_int_equal(encode_f64(KEEL_FORMAT_BF16, 1 + 0x1p-8 + 0x1p-40), 0x3f81);
    assert_int_equal(encode_f64(KEEL_FORMAT_E4M3, 1 + 0x1p-4 + 0x1p-40), 0x39);
    assert_int_equal(encode_f64(KEEL_FORMAT_E5M2, 1 + 0x1p-3 + 0x1p-40), 0x3d);
    assert_int_equal(ieee(KEEL_FORMAT_E4M3, oracle_float(0x3f880800u)), 0x39);
}

static void check_subnormals(keel_format format, float u, uint32_t first_normal)
{
    assert_int_equal(ieee(format, u / 2), 0);
    assert_int_equal(ieee(format, u / 2 * (1 + 0x1p-23f)), 1);
    assert_int_equal(ieee(format, 1.5f * u), 2);
    assert_int_equal(ieee(format, 2.5f * u), 2);
    assert_int_equal(ieee(format, ((float)first_normal - 0.5f) * u), first_normal);
}

/* numpy#12721, tvm#20315: subnormal results lost, misrounded, or without their sticky bit. */
static void test_codes__subnormals_round_like_the_rest(void **state)
{
    (void)state;
    check_subnormals(KEEL_FORMAT_E4M3, 0x1p-9f, 0x08);
    check_subnormals(KEEL_FORMAT_E5M2, 0x1p-16f, 0x04);
    check_subnormals(KEEL_FORMAT_F16, 0x1p-24f, 0x0400);
    assert_int_equal(ieee(KEEL_FORMAT_E5M2, -2.5f * 0x1p-16f), 0x82);
}

static void test_codes__the_callers_rounding_mode_does_not_matter(void **state)
{
    (void)state;
    const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fesetround(modes[i]), 0);
        const uint32_t down = ieee(KEEL_FORMAT_E4M3, 0x1.08p0f);
        const uint32_t up = ieee(KEEL_FORMAT_E4M3, -0x1.18p0f);
        const float decoded = keel_format_decode(KEEL_FORMAT_F16, 0x0003);
        const int mode = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(down, 0x38);
        assert_int_equal(up, 0xb9);
        assert_true(decoded == 3 * 0x1p-24f);
        assert_int_equal(mode, modes[i]);
    }
}

static void test_codes__bad_arguments_are_refused(void **state)
{
    (void)state;
    uint32_t code = 7;
    assert_int_equal(keel_format_encode((keel_format)99, 1, KEEL_OVERFLOW_DEFAULT, &code),
                     KEEL_ERR_INVALID);
    assert_int_equal(keel_format_encode(KEEL_FORMAT_F16, 1, (keel_overflow)3, &code),
                     KEEL_ERR_INVALID);
    assert_int_equal(keel_format_encode_f64(KEEL_FORMAT_F16, 1, (keel_overflow)-1, &code),
                     KEEL_ERR_INVALID);
    assert_int_equal(keel_format_encode(KEEL_FORMAT_F16, 1, KEEL_OVERFLOW_DEFAULT, NULL),
                     KEEL_ERR_INVALID);
    assert_int_equal(code, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes__registry_states_range_and_precision),
        cmocka_unit_test(test_codes__unknown_formats_have_no_row),
        cmocka_unit_test(test_codes__every_code_comes_back),
        cmocka_unit_test(test_codes__census_of_fp8),
        cmocka_unit_test(test_codes__e8m0_decodes_and_is_not_encoded),
        cmocka_unit_test(test_codes__overflow_starts_half_a_step_above_the_largest),
        cmocka_unit_test(test_codes__the_default_mode_is_that_of_the_width),
        cmocka_unit_test(test_codes__nan_stays_nan_with_its_sign),
        cmocka_unit_test(test_codes__a_value_just_above_a_tie_goes_up),
        cmocka_unit_test(test_codes__subnormals_round_like_the_rest),
        cmocka_unit_test(test_codes__the_callers_rounding_mode_does_not_matter),
        cmocka_unit_test(test_codes__bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

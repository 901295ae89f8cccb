/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The scale of a block in CUDA's headers and Transformer Engine: e8m0 of amax / max, rounded up; in
 * f64, where no quotient of so few bits rounds onto a power of two, and in f32 as amax * (1 / max),
 * which comes to the same wherever the product is normal. */
#include "check.h"
#include "cuda_host.h"

static const keel_format formats[] = {KEEL_FORMAT_E4M3, KEEL_FORMAT_E5M2, KEEL_FORMAT_E3M2,
                                      KEEL_FORMAT_E2M3, KEEL_FORMAT_E2M1};

static void check_one(uint32_t bits, keel_format format, double max)
{
    uint8_t code, scale;
    const float amax = f32_of_bits(bits);
    keel_tensor t = {(void *)(uintptr_t)&amax, 1, KEEL_FORMAT_F32, 0, NULL, NULL};
    assert_ok(keel_mx_quantize(&t, 1, 1, format, KEEL_MX_CEIL, &code, &scale, NULL));
    const uint32_t exact = cuda_e8m0_up_f64((double)amax / max);
    const float product = amax * (1 / (float)max);
    const uint32_t fast = product >= 0x1p-126f ? cuda_e8m0_up(product) : exact;
    if (scale != exact || scale != fast)
        fail_msg("%s: amax %a gives %u, there %u and %u", keel_format_get(format)->name,
                 (double)amax, scale, exact, fast);
}

static void check_around(uint32_t exponent, uint32_t mantissa, keel_format format, double max)
{
    for (uint32_t near = 0; near < 128; near++)
        check_one(exponent << 23 | ((mantissa + near - 64) & 0x7fffffu), format, max);
}

/* Under every exponent: mantissas beside the maximum's and the ends, and every 8191st. */
static void test_mx_cuda__scales_are_the_same(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        const double max = keel_format_get(formats[f])->max;
        for (uint32_t exponent = 0; exponent < 255; exponent++) {
            check_around(exponent, bits_of_f32((float)max), formats[f], max);
            check_around(exponent, 0, formats[f], max);
            for (uint32_t mantissa = 0; mantissa < 1u << 23; mantissa += 8191)
                check_one(exponent << 23 | mantissa, formats[f], max);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mx_cuda__scales_are_the_same)};
    return cmocka_run_group_tests_name("formats.mx_cuda", tests, NULL, NULL);
}

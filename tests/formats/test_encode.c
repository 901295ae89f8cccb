/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Rounding: every kernel of every instruction set of this machine, and the single-value functions,
 * against the reference, around every boundary and over every 257th f32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cpu/kernels.h"
#include "oracle.h"

static uint32_t code_at(const void *codes, int32_t i, int32_t width)
{
    if (width == 1) return ((const uint8_t *)codes)[i];
    if (width == 2) return ((const uint16_t *)codes)[i];
    return ((const uint32_t *)codes)[i];
}

static void check_codes(oracle *o, const char *isa, const float *x, const void *codes, int32_t n,
                        int32_t width, bool saturate)
{
    for (int32_t i = 0; i < n; i++) {
        const uint32_t code = code_at(codes, i, width);
        if (!oracle_accepts(o, oracle_bits(x[i]), saturate, code))
            fail_msg("%s %s saturate=%d: %a (%08x) gave code %x", isa, o->name, saturate,
                     (double)x[i], oracle_bits(x[i]), code);
    }
}

static void check_counts(oracle *o, const char *isa, const float *x, int32_t n,
                         keeli_code_counts counts)
{
    keeli_code_counts want = {0, 0};
    for (int32_t i = 0; i < n; i++) {
        const uint32_t magnitude = oracle_bits(x[i]) & 0x7fffffffu;
        const uint32_t rounded = oracle_round(o, magnitude);
        want.above += rounded > o->max_code && magnitude <= 0x7f800000u;
        want.zero += rounded == 0;
    }
    if (counts.above != want.above || counts.zero != want.zero)
        fail_msg("%s %s: counted %d above, %d zero (want %d, %d) from %a on", isa, o->name,
                 counts.above, counts.zero, want.above, want.zero, (double)x[0]);
}

static void check_tile(oracle *o, const float *x, int32_t n)
{
    const keeli_cpu_kernels *k;
    const int32_t width = keel_format_get(o->format)->storage_bytes;
    uint32_t codes[KEELI_TILE];
    for (int32_t isa = 0; (k = keeli_cpu_kernels_at(isa)); isa++) {
        const keeli_codec_kernels *codec = &k->codec[o->format];
        for (int saturate = 0; saturate <= 1; saturate++) {
            codec->encode(x, 1, codes, n, saturate);
            check_codes(o, k->isa, x, codes, n, width, saturate);
        }
        check_counts(o, k->isa, x, n, codec->count(x, 1, n));
    }
}

static void check_every_257th(oracle *o)
{
    float x[KEELI_TILE];
    for (uint64_t next = 0; next < (1ull << 32);) {
        int32_t n = 0;
        for (; n < KEELI_TILE && next < (1ull << 32); next += 257)
            x[n++] = oracle_float((uint32_t)next);
        check_tile(o, x, n);
    }
}

static void test_encode__every_257th_f32_rounds_to_the_nearest_code(void **state)
{
    (void)state;
    oracle_each(check_every_257th);
}

/* Two f32 below a boundary, the boundary, two above, both signs. */
static int32_t around(uint32_t bits, float *out)
{
    int32_t n = 0;
    for (int32_t step = -2; step <= 2; step++) {
        const uint32_t magnitude = bits + (uint32_t)step;
        out[n++] = oracle_float(magnitude);
        out[n++] = oracle_float(magnitude | 0x80000000u);
    }
    return n;
}

static void check_single(oracle *o, const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        for (int mode = KEEL_OVERFLOW_SATURATE; mode <= KEEL_OVERFLOW_IEEE; mode++) {
            const bool saturate = mode == KEEL_OVERFLOW_SATURATE;
            uint32_t code, code64;
            assert_int_equal(keel_format_encode(o->format, x[i], (keel_overflow)mode, &code), 0);
            check_codes(o, "f32", &x[i], &code, 1, 4, saturate);
            assert_int_equal(
                keel_format_encode_f64(o->format, (double)x[i], (keel_overflow)mode, &code64), 0);
            assert_int_equal(code, code64);
        }
    }
}

static void check_boundaries(oracle *o)
{
    float x[KEELI_TILE];
    int32_t n = 0;
    for (uint32_t c = 0; c <= o->max_code; c++) {
        n += around(oracle_bits((float)oracle_midpoint(o, c)), x + n);
        if (n + 10 <= KEELI_TILE && c < o->max_code) continue;
        check_tile(o, x, n);
        check_single(o, x, n);
        n = 0;
    }
}

static void test_encode__boundaries_go_to_the_even_code(void **state)
{
    (void)state;
    oracle_each(check_boundaries);
}

/* An f64 next to a boundary would be on it after a step through f32. */
static void check_f64(const oracle *o, double x, uint32_t rounded)
{
    for (int negative = 0; negative <= 1; negative++) {
        uint32_t code;
        const double value = negative ? -x : x;
        assert_int_equal(keel_format_encode_f64(o->format, value, KEEL_OVERFLOW_IEEE, &code), 0);
        if (code != oracle_finish(o, rounded, negative, false))
            fail_msg("%s: f64 %a gave code %x", o->name, value, code);
    }
}

static void check_f64_boundaries(oracle *o)
{
    for (uint32_t c = 0; c <= o->max_code; c++) {
        const double middle = oracle_midpoint(o, c);
        check_f64(o, nextafter(middle, 0), c);
        check_f64(o, middle, c + c % 2);
        check_f64(o, nextafter(middle, INFINITY), c + 1);
    }
    check_f64(o, 0x1p-1074, 0);
    check_f64(o, 0x1.fffffffffffffp1023, o->max_code + 1);
    check_f64(o, INFINITY, o->max_code + 1);
}

static void test_encode__f64_is_rounded_once(void **state)
{
    (void)state;
    oracle_each(check_f64_boundaries);
}

static double random_f64(uint64_t *seed, int lowest, int highest)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    const double fraction = (double)(*seed >> 11) * 0x1p-53 + 1;
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return ldexp(fraction, lowest + (int)((*seed >> 33) % (uint64_t)(highest - lowest)));
}

/* The processor's own conversion is the reference. */
static void test_encode__f64_to_f32_equals_the_conversion_of_the_processor(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 1000000; i++) {
        const double x = random_f64(&seed, -152, 129);
        uint32_t code;
        assert_int_equal(keel_format_encode_f64(KEEL_FORMAT_F32, x, KEEL_OVERFLOW_IEEE, &code), 0);
        assert_int_equal(code, oracle_bits((float)x));
    }
}

static void test_encode__f32_to_f32_is_the_same_but_for_quiet_nan(void **state)
{
    (void)state;
    const uint32_t bits[] = {0,           0x80000000u, 1,           0x807fffffu, 0x3f800001u,
                             0x7f7fffffu, 0x7f800000u, 0xff800000u, 0x7f800001u, 0xffc12345u};
    const keeli_cpu_kernels *k;
    float x[10];
    uint32_t code[10];
    uint32_t want[10];
    for (int i = 0; i < 10; i++) x[i] = oracle_float(bits[i]);
    memcpy(want, bits, sizeof want);
    want[8] |= 0x00400000u;
    for (int32_t isa = 0; (k = keeli_cpu_kernels_at(isa)); isa++) {
        k->codec[KEEL_FORMAT_F32].encode(x, 1, code, 10, false);
        assert_memory_equal(code, want, sizeof want);
        k->codec[KEEL_FORMAT_F32].encode(x, 1, code, 10, true);
        assert_int_equal(code[6], 0x7f7fffffu);
        assert_int_equal(code[7], 0xff7fffffu);
        code[6] = bits[6], code[7] = bits[7];
        assert_memory_equal(code, want, sizeof want);
        const keeli_code_counts counts = k->codec[KEEL_FORMAT_F32].count(x, 1, 10);
        assert_int_equal(counts.above, 2);
        assert_int_equal(counts.zero, 2);
    }
}

static void check_decoder(const keeli_cpu_kernels *k, const keel_format_info *info)
{
    uint32_t codes[KEELI_TILE];
    unsigned char shifted[KEELI_TILE * 4 + 1];
    float out[KEELI_TILE];
    for (uint32_t first = 0; first < 1u << (info->bits < 16 ? 8 : 16); first += KEELI_TILE) {
        for (uint32_t i = 0; i < KEELI_TILE; i++) {
            codes[i] = info->bits == 32 ? (first + i) * 0x00010001u : first + i;
            memcpy(shifted + 1 + i * (uint32_t)info->storage_bytes, &codes[i],
                   (size_t)info->storage_bytes);
        }
        k->codec[info->id].decode(shifted + 1, out, KEELI_TILE);
        for (int32_t i = 0; i < KEELI_TILE; i++) {
            const uint32_t mask = info->storage_bytes == 1 ? 0xffu : 0xffffffffu;
            const float want = keel_format_decode(info->id, codes[i] & mask);
            assert_int_equal(oracle_bits(out[i]), oracle_bits(want));
        }
    }
}

/* Also codes with bits above the width of the format. */
static void test_encode__decode_kernels_equal_the_single_values(void **state)
{
    (void)state;
    const keeli_cpu_kernels *k;
    const keel_format_info *info;
    for (int32_t isa = 0; (k = keeli_cpu_kernels_at(isa)); isa++)
        for (int32_t i = 0; (info = keel_format_at(i)); i++) check_decoder(k, info);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode__every_257th_f32_rounds_to_the_nearest_code),
        cmocka_unit_test(test_encode__boundaries_go_to_the_even_code),
        cmocka_unit_test(test_encode__f64_is_rounded_once),
        cmocka_unit_test(test_encode__f64_to_f32_equals_the_conversion_of_the_processor),
        cmocka_unit_test(test_encode__decode_kernels_equal_the_single_values),
        cmocka_unit_test(test_encode__f32_to_f32_is_the_same_but_for_quiet_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

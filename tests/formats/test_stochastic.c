/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Stochastic rounding: up with the probability of the discarded fraction, the same draw for the
 * same (seed, index) however the work is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cpu/kernels.h"
#include "keel/quantize.h"
#include "oracle.h"

enum { DRAWS = 1 << 18 };

static void quantize(const float *x, void *codes, int64_t n, keel_format format, uint64_t seed,
                     uint64_t offset, keel_cast_stats *stats)
{
    const keel_cast_options options = {KEEL_OVERFLOW_IEEE, KEEL_ROUND_STOCHASTIC, seed, offset};
    const keel_tensor src = {(void *)(uintptr_t)x, n, KEEL_FORMAT_F32, 0, NULL, NULL};
    const keel_tensor dst = {codes, n, format, 0, NULL, NULL};
    assert_int_equal(keel_quantize(NULL, &src, &dst, &options, stats, NULL), KEEL_OK);
}

static uint32_t code_at(const oracle *o, const void *codes, int64_t i)
{
    return o->exp + o->man < 8 ? ((const uint8_t *)codes)[i] : ((const uint16_t *)codes)[i];
}

/* Of DRAWS roundings of one value, those that went up; all others must go down. */
static int64_t count_up(const oracle *o, float x, uint32_t down, uint64_t seed)
{
    static float values[DRAWS];
    static uint16_t codes[DRAWS];
    int64_t up = 0;
    for (int64_t i = 0; i < DRAWS; i++) values[i] = x;
    quantize(values, codes, DRAWS, o->format, seed, 0, NULL);
    for (int64_t i = 0; i < DRAWS; i++) {
        const uint32_t code = code_at(o, codes, i) & ~oracle_sign(o, true);
        if (code != down && code != down + 1)
            fail_msg("%s: %a gave %x (want %x or the next)", o->name, (double)x, code, down);
        up += code == down + 1;
    }
    return up;
}

/* Five standard deviations: one in two million by chance, and the seeds are fixed. */
static void check_probability(const oracle *o, uint32_t down, double fraction, double sign)
{
    const double low = oracle_magnitude(o, down), step = oracle_magnitude(o, down + 1) - low;
    const float x = (float)(sign * (low + fraction * step));
    const double exact = (fabs((double)x) - low) / step;
    const double mean = exact * DRAWS, deviation = sqrt(DRAWS * exact * (1 - exact));
    const double up = (double)count_up(o, x, down, 1000 + down);
    if (fabs(up - mean) > 5 * deviation + 1)
        fail_msg("%s: %a went up %g times of %d (want %g)", o->name, (double)x, up, DRAWS, mean);
}

static void check_format(oracle *o)
{
    const double fractions[] = {0.5, 0.25, 0.9, 0x1p-6, 0x1p-16};
    const uint32_t normal = 1u << o->man;
    const uint32_t codes[] = {0, 1, normal - 1, normal, o->max_code - 1};
    for (int c = 0; c < 5; c++)
        for (int f = 0; f < 5; f++) check_probability(o, codes[c], fractions[f], f % 2 ? -1 : 1);
}

/* oneDNN#2903: random bits not aligned with what a subnormal result discards. */
static void test_stochastic__goes_up_with_the_probability_of_the_fraction(void **state)
{
    (void)state;
    oracle_each(check_format);
}

static void check_exact_values(oracle *o)
{
    const int64_t count = (int64_t)1 << (1 + o->exp + o->man);
    float *x = malloc((size_t)count * sizeof *x);
    uint16_t *codes = malloc((size_t)count * sizeof *codes);
    for (int64_t c = 0; c < count; c++) x[c] = keel_format_decode(o->format, (uint32_t)c);
    for (uint64_t seed = 0; seed < 4; seed++) {
        quantize(x, codes, count, o->format, seed, 0, NULL);
        for (int64_t c = 0; c < count; c++) {
            if (isnan(x[c]))
                assert_true(oracle_is_nan(o, code_at(o, codes, c)));
            else
                assert_int_equal(code_at(o, codes, c), c);
        }
    }
    free(x);
    free(codes);
}

static void test_stochastic__exact_values_stay(void **state)
{
    (void)state;
    oracle_each(check_exact_values);
}

static void test_stochastic__a_cut_does_not_change_the_draws(void **state)
{
    (void)state;
    enum { N = 3000 };
    static float x[N];
    static unsigned char whole[N], parts[N];
    for (int i = 0; i < N; i++) x[i] = (float)i * 0.0137f - 20;
    quantize(x, whole, N, KEEL_FORMAT_E4M3, 42, 7, NULL);
    const int64_t cuts[] = {0, 1, 5, 1029, 2048, N};
    for (int c = 0; c < 5; c++)
        quantize(x + cuts[c], parts + cuts[c], cuts[c + 1] - cuts[c], KEEL_FORMAT_E4M3, 42,
                 7 + (uint64_t)cuts[c], NULL);
    assert_memory_equal(whole, parts, N);
    quantize(x, parts, N, KEEL_FORMAT_E4M3, 43, 7, NULL);
    assert_memory_not_equal(whole, parts, N);
    quantize(x, parts, N, KEEL_FORMAT_E4M3, 42, 8, NULL);
    assert_memory_not_equal(whole, parts, N);
}

/* A run that counts its seed up must not draw what its neighbour drew one place further on. */
static void test_stochastic__a_seed_is_not_an_offset(void **state)
{
    (void)state;
    enum { N = 1024 };
    static float x[N];
    static unsigned char one[N], other[N];
    for (int i = 0; i < N; i++) x[i] = 1 + 0.5f * 0.125f;
    for (uint64_t offset = 0; offset < 64; offset++) {
        int equal = 0;
        quantize(x, one, N, KEEL_FORMAT_E4M3, 42, offset, NULL);
        quantize(x, other, N, KEEL_FORMAT_E4M3, 43, 32, NULL);
        for (int i = 0; i < N; i++) equal += one[i] == other[i];
        assert_true(equal > N / 2 - 160 && equal < N / 2 + 160); /* ten standard deviations */
    }
}

static void test_stochastic__seeds_are_independent_at_one_index(void **state)
{
    (void)state;
    const float x = 1 + 0.25f * 0.125f;
    int64_t up = 0;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        unsigned char code;
        quantize(&x, &code, 1, KEEL_FORMAT_E4M3, seed, 0, NULL);
        up += code == 0x39;
    }
    assert_true(up > 5000 - 5 * 62 && up < 5000 + 5 * 62);
}

static void check_overflow(oracle *o)
{
    static float x[1024];
    static uint16_t codes[1024];
    keel_cast_stats stats;
    const double max = oracle_magnitude(o, o->max_code);
    const double step = oracle_magnitude(o, o->max_code + 1) - max;
    for (int i = 0; i < 1024; i++) x[i] = (float)(max + step / 2);
    quantize(x, codes, 1024, o->format, 3, 0, &stats);
    const uint32_t above = oracle_finish(o, o->max_code + 1, false, false);
    int64_t count = 0;
    for (int i = 0; i < 1024; i++) count += code_at(o, codes, i) == above;
    if (o->kind == KEEL_KIND_FINITE)
        assert_int_equal(count, 1024);
    else
        assert_int_equal(count, stats.saturated);
    assert_true(stats.saturated > 400 && stats.saturated < 624);
    assert_int_equal(stats.flushed, 0);
}

static void test_stochastic__values_between_largest_and_overflow_are_drawn_too(void **state)
{
    (void)state;
    oracle_each(check_overflow);
}

static void test_stochastic__every_instruction_set_draws_the_same(void **state)
{
    (void)state;
    static float x[KEELI_TILE];
    static uint32_t want[KEELI_TILE], got[KEELI_TILE];
    const keeli_cpu_kernels *k, *best = keeli_cpu_kernels_get();
    const keel_format_info *info;
    const keeli_draw draw = {9, 1ull << 40};
    for (int i = 0; i < KEELI_TILE; i++) x[i] = oracle_float((uint32_t)i * 2654435761u);
    for (int32_t f = 0; (info = keel_format_at(f)); f++) {
        if (!info->can_encode) continue;
        const size_t nbytes = (size_t)info->storage_bytes * KEELI_TILE;
        best->codec[info->id].encode_stochastic(x, 1, want, KEELI_TILE, true, draw);
        for (int32_t isa = 1; (k = keeli_cpu_kernels_at(isa)); isa++) {
            k->codec[info->id].encode_stochastic(x, 1, got, KEELI_TILE, true, draw);
            assert_memory_equal(got, want, nbytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stochastic__goes_up_with_the_probability_of_the_fraction),
        cmocka_unit_test(test_stochastic__exact_values_stay),
        cmocka_unit_test(test_stochastic__a_cut_does_not_change_the_draws),
        cmocka_unit_test(test_stochastic__a_seed_is_not_an_offset),
        cmocka_unit_test(test_stochastic__seeds_are_independent_at_one_index),
        cmocka_unit_test(test_stochastic__values_between_largest_and_overflow_are_drawn_too),
        cmocka_unit_test(test_stochastic__every_instruction_set_draws_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

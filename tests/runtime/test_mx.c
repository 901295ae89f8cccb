/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Block scaling: the scale of a block by its definition, the codes by single encodes of x / X, what
 * comes back, and how far off.
 *
 * ml-explore/mlx#4353: with the scale rounded down 243 of 512 blocks saturated, CEIL must not.
 * floor(log2f(x)) is one too high for thousands of f32 just below a power of two. */
#include <fenv.h>
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "random.h"

enum { BLOCK = KEEL_MX_BLOCK, ROW_MAX = 2100 };

static const keel_format formats[] = {KEEL_FORMAT_E4M3, KEEL_FORMAT_E5M2, KEEL_FORMAT_E3M2,
                                      KEEL_FORMAT_E2M3, KEEL_FORMAT_E2M1};
enum { FORMATS = sizeof formats / sizeof *formats };

static const keel_mx_rule rules[] = {KEEL_MX_CEIL, KEEL_MX_FLOOR};

static keel_tensor view(const float *x, int64_t n)
{
    const keel_tensor t = {.data = (void *)(uintptr_t)x, .numel = n, .format = KEEL_FORMAT_F32};
    return t;
}

static uint32_t scale_of(float amax, keel_format format, keel_mx_rule rule)
{
    uint8_t code, scale;
    const keel_tensor t = view(&amax, 1);
    assert_ok(keel_mx_quantize(&t, 1, 1, format, rule, &code, &scale, NULL));
    return scale;
}

/* The header's words: f64 has room for every quotient. */
static uint32_t scale_by_definition(double amax, keel_format format, keel_mx_rule rule)
{
    const double max = keel_format_get(format)->max;
    int k = -127;
    if (amax == 0) return 0;
    if (rule == KEEL_MX_CEIL)
        while (amax > ldexp(max, k)) k++;
    else
        while (ldexp(1, k + 1 + ilogb(max)) <= amax) k++;
    return (uint32_t)(k + 127);
}

static void check_scale(uint32_t bits, keel_format format)
{
    const float amax = f32_of_bits(bits);
    for (int r = 0; r < 2; r++) {
        const uint32_t got = scale_of(bits & 1 ? -amax : amax, format, rules[r]);
        const uint32_t want = scale_by_definition((double)amax, format, rules[r]);
        if (got != want)
            fail_msg("%s rule %d: amax %a gives %u, not %u", keel_format_get(format)->name,
                     (int)rules[r], (double)amax, got, want);
    }
}

/* Mantissas beside the maximum's and the ends, under every exponent. */
static void test_mx__scale_is_the_definitions(void **state)
{
    (void)state;
    random_source random = random_begin(1);
    for (int f = 0; f < FORMATS; f++) {
        const uint32_t top = bits_of_f32((float)keel_format_get(formats[f])->max) & 0x7fffffu;
        for (uint32_t exponent = 0; exponent < 255; exponent++) {
            for (uint32_t near = 0; near < 9; near++) {
                check_scale(exponent << 23 | ((top + near - 4) & 0x7fffffu), formats[f]);
                check_scale(exponent << 23 | ((near - 4) & 0x7fffffu), formats[f]);
            }
            for (int i = 0; i < 8; i++)
                check_scale(exponent << 23 | (random_word(&random) & 0x7fffffu), formats[f]);
        }
        for (int bit = 0; bit < 23; bit++) /* every exponent of a subnormal */
            for (int near = -1; near < 2; near++)
                check_scale((1u << bit) + (uint32_t)near, formats[f]);
    }
}

typedef struct matrix {
    int64_t rows, cols;
    float x[ROW_MAX], back[ROW_MAX];
    uint8_t codes[ROW_MAX], scales[ROW_MAX];
    keel_cast_stats stats;
} matrix;

static void cast(matrix *m, keel_format format, keel_mx_rule rule)
{
    const keel_tensor t = view(m->x, m->rows * m->cols);
    assert_ok(keel_mx_quantize(&t, m->rows, m->cols, format, rule, m->codes, m->scales, &m->stats));
    assert_ok(keel_mx_dequantize(m->codes, m->scales, m->rows, m->cols, format, m->back));
}

static void test_mx__blocks_of_zeros_infinities_and_nans(void **state)
{
    (void)state;
    static const float kinds[4][3] = {
        {0, -0.0f, 0}, {1, -INFINITY, 2}, {1, NAN, 2}, {INFINITY, NAN, -0.0f}};
    static const uint8_t scales[] = {0x00, 0xfe, 0xff, 0xff};
    for (int f = 0; f < FORMATS; f++) {
        static matrix m;
        m.rows = 1;
        m.cols = 4 * BLOCK;
        memset(m.x, 0, sizeof m.x);
        for (int k = 0; k < 4; k++) memcpy(m.x + k * BLOCK, kinds[k], sizeof kinds[k]);
        cast(&m, formats[f], KEEL_MX_CEIL);
        assert_memory_equal(m.scales, scales, sizeof scales);
        for (int i = 0; i < BLOCK; i++) {
            assert_same_f32(m.back[i], m.x[i]); /* -0 stays -0 */
            assert_true(isnan(m.back[2 * BLOCK + i]) && isnan(m.back[3 * BLOCK + i]));
        }
        assert_true(isinf(m.back[BLOCK + 1]) && m.back[BLOCK + 1] < 0);
        assert_true(isfinite(m.back[BLOCK]) && isfinite(m.back[BLOCK + 2]));
        assert_int_equal(m.stats.inf_count, 2);
        assert_int_equal(m.stats.nan_count, 2);
        assert_int_equal(m.stats.saturated, 0);
        assert_int_equal(m.stats.flushed, 4); /* 1 and 2 beside 2^127 */
        assert_true(isnan(m.stats.amax));
        if (!keel_format_get(formats[f])->has_nan) continue;
        for (int i = 0; i < BLOCK; i++) /* the culprit can still be found */
            assert_int_equal(isnan(keel_format_decode(formats[f], m.codes[2 * BLOCK + i])), i == 1);
    }
}

/* Blocks of all sizes of numbers, with neighbours up to 2^spread smaller. */
static void fill(matrix *m, random_source *random, int spread)
{
    int exponent = 0;
    for (int64_t i = 0; i < m->rows * m->cols; i++) {
        if (i % m->cols % BLOCK == 0) exponent = (int)random_below(random, 270) - 145;
        const double x = (double)random_unit(random);
        m->x[i] = (float)ldexp(x, exponent - (int)random_below(random, spread));
    }
}

static float block_amax(const matrix *m, int64_t row, int64_t at)
{
    float amax = 0;
    for (int64_t i = at; i < at + BLOCK && i < m->cols; i++)
        amax = fmaxf(amax, fabsf(m->x[row * m->cols + i]));
    return amax;
}

/* One element: its code is that of x / X in one rounding; it comes back within half a place. */
static void check_element(const matrix *m, int64_t i, double scale, keel_format format,
                          keel_mx_rule rule, keel_cast_stats *want)
{
    const keel_format_info *info = keel_format_get(format);
    const double x = (double)m->x[i], q = x / scale;
    uint32_t code;
    assert_ok(keel_format_encode_f64(format, q, KEEL_OVERFLOW_SATURATE, &code));
    assert_int_equal(m->codes[i], code);
    const double value = (double)keel_format_decode(format, code) * scale;
    assert_same_f64((double)m->back[i], value);

    const double bound =
        fmax(fabs(x) * ldexp(1, -info->mantissa_bits - 1), info->min_subnormal * scale / 2);
    const bool saturates = rule == KEEL_MX_FLOOR && fabs(q) > info->max;
    assert_true(fabs(x - value) <= (saturates ? fabs(x) - info->max * scale : bound));
    if (rule == KEEL_MX_CEIL) assert_true(fabs(q) <= info->max);
    want->flushed += x != 0 && value == 0;
    const double place = ldexp(1, ilogb(info->max) - info->mantissa_bits);
    want->saturated += fabs(q) > info->max + place / 2 ||
                       (fabs(q) == info->max + place / 2 && format != KEEL_FORMAT_E4M3);
}

static void check_matrix(const matrix *m, keel_format format, keel_mx_rule rule)
{
    keel_cast_stats want = {0};
    const int64_t blocks = keel_mx_scale_count(1, m->cols);
    for (int64_t row = 0; row < m->rows; row++)
        for (int64_t at = 0; at < m->cols; at += BLOCK) {
            const uint8_t scale = m->scales[row * blocks + at / BLOCK];
            const float amax = block_amax(m, row, at);
            assert_int_equal(scale, scale_by_definition((double)amax, format, rule));
            want.amax = fmaxf(want.amax, amax);
            for (int64_t i = at; i < at + BLOCK && i < m->cols; i++)
                check_element(m, row * m->cols + i, ldexp(1, (int)scale - 127), format, rule,
                              &want);
        }
    assert_memory_equal(&m->stats, &want, sizeof want);
}

static void test_mx__codes_and_errors_in_odd_shapes(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{0, 0},    {0, 5},    {7, 0},    {1, 1},
                                        {3, 31},   {2, 32},   {5, 33},   {4, 100},
                                        {1, 1023}, {2, 1025}, {1, 2081}, {63, 33}};
    random_source random = random_begin(2);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int f = 0; f < FORMATS; f++)
            for (int r = 0; r < 2; r++)
                for (int spread = 1; spread < 40; spread += 13) {
                    static matrix m;
                    m.rows = shapes[s][0];
                    m.cols = shapes[s][1];
                    fill(&m, &random, spread);
                    cast(&m, formats[f], rules[r]);
                    check_matrix(&m, formats[f], rules[r]);
                }
}

/* Every finite code under every scale that fits it comes back with its bits. */
static void check_grid(keel_format format, keel_mx_rule rule)
{
    static matrix m;
    const keel_format_info *info = keel_format_get(format);
    const uint32_t codes = 1u << info->bits;
    for (int k = -127; k <= 127 - ilogb(info->max); k++) {
        m.rows = 1;
        m.cols = 0;
        for (uint32_t code = 0; code < codes; code++) {
            const float value = keel_format_decode(format, code);
            if (!isfinite(value)) continue;
            if (m.cols % BLOCK == 0) m.x[m.cols++] = (float)ldexp(info->max, k);
            m.x[m.cols++] = (float)ldexp((double)value, k);
        }
        cast(&m, format, rule);
        for (int64_t i = 0; i < m.cols; i++) {
            assert_int_equal(m.scales[i / BLOCK], k + 127);
            assert_same_f32(m.back[i], m.x[i]);
        }
    }
}

static void test_mx__representable_values_come_back(void **state)
{
    (void)state;
    for (int f = 0; f < FORMATS; f++)
        for (int r = 0; r < 2; r++) check_grid(formats[f], rules[r]);
}

/* FLT_MAX rounds up to 2^128 in few bits: infinite, as f32 has it. */
static void test_mx__a_value_rounded_past_f32_is_infinite(void **state)
{
    (void)state;
    static matrix m = {.rows = 1, .cols = 1};
    m.x[0] = f32_of_bits(0x7f7fffffu);
    cast(&m, KEEL_FORMAT_E4M3, KEEL_MX_CEIL);
    assert_int_equal(m.stats.inf_count, 0);
    assert_true(isinf(m.back[0]));
    cast(&m, KEEL_FORMAT_E4M3, KEEL_MX_FLOOR);
    assert_same_f32(m.back[0], 448 * 0x1p119f);
}

/* Sources of other formats and with a scale are the f32 they stand for. */
static void test_mx__source_of_any_format(void **state)
{
    (void)state;
    static const keel_format sources[] = {KEEL_FORMAT_BF16, KEEL_FORMAT_F16, KEEL_FORMAT_E5M2,
                                          KEEL_FORMAT_E4M3, KEEL_FORMAT_F32};
    static matrix plain = {.rows = 9, .cols = 73}, m = {.rows = 9, .cols = 73};
    const float scale_inv = 0.7f;
    random_source random = random_begin(3);
    for (size_t s = 0; s < sizeof sources / sizeof *sources; s++) {
        unsigned char bytes[9 * 73 * 4 + 1];
        keel_tensor t = {bytes + 1, 9 * 73, sources[s], 0, NULL, NULL};
        for (int i = 0; i < 9 * 73; i++) m.x[i] = 100 * random_unit(&random);
        const keel_tensor from = view(m.x, t.numel);
        assert_ok(keel_quantize(NULL, &from, &t, NULL, NULL, NULL));
        t.scale_inv = &scale_inv;
        assert_ok(keel_dequantize(NULL, &t, plain.x, NULL));
        cast(&plain, KEEL_FORMAT_E4M3, KEEL_MX_CEIL);
        assert_ok(keel_mx_quantize(&t, 9, 73, KEEL_FORMAT_E4M3, KEEL_MX_CEIL, m.codes, m.scales,
                                   &m.stats));
        assert_memory_equal(m.codes, plain.codes, 9 * 73);
        assert_memory_equal(m.scales, plain.scales, 9 * 3);
        assert_memory_equal(&m.stats, &plain.stats, sizeof m.stats);
    }
}

static void set_environment(int rounding, bool flush)
{
    fesetround(rounding);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((__builtin_ia32_stmxcsr() & ~0x8040u) | (flush ? 0x8040u : 0));
#else
    (void)flush;
#endif
}

static void test_mx__floating_point_environment_does_not_matter(void **state)
{
    (void)state;
    static matrix plain = {.rows = 3, .cols = 500}, bent;
    random_source random = random_begin(4);
    fill(&plain, &random, 20);
    for (int f = 0; f < FORMATS; f++) {
        bent = plain;
        cast(&plain, formats[f], KEEL_MX_CEIL);
        set_environment(FE_UPWARD, true);
        cast(&bent, formats[f], KEEL_MX_CEIL);
        const int rounding = fegetround();
        set_environment(FE_TONEAREST, false);
        assert_int_equal(rounding, FE_UPWARD);
        assert_memory_equal(&bent, &plain, sizeof bent);
    }
}

static void test_mx__counts_scales(void **state)
{
    (void)state;
    assert_int_equal(keel_mx_scale_count(0, 0), 0);
    assert_int_equal(keel_mx_scale_count(INT64_MAX, 0), 0);
    assert_int_equal(keel_mx_scale_count(0, INT64_MAX), 0);
    assert_int_equal(keel_mx_scale_count(3, 1), 3);
    assert_int_equal(keel_mx_scale_count(3, 32), 3);
    assert_int_equal(keel_mx_scale_count(3, 33), 6);
    assert_int_equal(keel_mx_scale_count(-1, 3), -1);
    assert_int_equal(keel_mx_scale_count(3, -1), -1);
    assert_int_equal(keel_mx_scale_count(INT64_MAX / 2, 3), -1);
}

/* Blocks of exact size on the heap: a write past them is seen under a sanitizer. */
static void test_mx__no_columns_and_ends_of_memory(void **state)
{
    (void)state;
    const keel_tensor none = {.format = KEEL_FORMAT_F32};
    assert_ok(
        keel_mx_quantize(&none, INT64_MAX, 0, KEEL_FORMAT_E4M3, KEEL_MX_CEIL, NULL, NULL, NULL));
    assert_ok(keel_mx_dequantize(NULL, NULL, INT64_MAX, 0, KEEL_FORMAT_E4M3, NULL));
    float *x = calloc(35, sizeof *x), *out = malloc(35 * sizeof *out);
    uint8_t *codes = malloc(35), *scales = malloc(2);
    assert_true(x && out && codes && scales);
    const keel_tensor t = view(x, 35);
    assert_ok(keel_mx_quantize(&t, 1, 35, KEEL_FORMAT_E2M1, KEEL_MX_CEIL, codes, scales, NULL));
    assert_ok(keel_mx_dequantize(codes, scales, 1, 35, KEEL_FORMAT_E2M1, out));
    free(x);
    free(out);
    free(codes);
    free(scales);
}

static void test_mx__refuses_and_leaves_outputs(void **state)
{
    (void)state;
    float x[64] = {1}, out[64] = {7}, bad = NAN;
    uint8_t bytes[80], clean[80];
    keel_cast_stats stats = {.flushed = -7};
    keel_tensor t = view(x, 64), scaled = t, odd = t;
    memset(bytes, 0xa5, sizeof bytes);
    memset(clean, 0xa5, sizeof clean);
    uint8_t *codes = bytes, *scales = bytes + 64;
    scaled.scale_inv = &bad;
    odd.reserved = 1;
#define Q(t, rows, cols, format, rule, codes, scales, word)                              \
    assert_refused(keel_mx_quantize(t, rows, cols, format, rule, codes, scales, &stats), \
                   KEEL_ERR_INVALID, word)
    Q(NULL, 2, 32, KEEL_FORMAT_E4M3, KEEL_MX_CEIL, codes, scales, "src is NULL");
    Q(&t, 2, 31, KEEL_FORMAT_E4M3, KEEL_MX_CEIL, codes, scales, "src.numel=64");
    Q(&t, -2, -32, KEEL_FORMAT_E4M3, KEEL_MX_CEIL, codes, scales, "rows=-2");
    Q(&t, INT64_MAX, 32, KEEL_FORMAT_E4M3, KEEL_MX_CEIL, codes, scales, "rows=");
    Q(&t, 2, 32, KEEL_FORMAT_E8M0, KEEL_MX_CEIL, codes, scales, "format=e8m0");
    Q(&t, 2, 32, KEEL_FORMAT_BF16, KEEL_MX_CEIL, codes, scales, "format=bf16");
    Q(&t, 2, 32, (keel_format)99, KEEL_MX_CEIL, codes, scales, "format=unknown");
    Q(&t, 2, 32, KEEL_FORMAT_E4M3, (keel_mx_rule)2, codes, scales, "rule=2");
    Q(&t, 2, 32, KEEL_FORMAT_E4M3, (keel_mx_rule)-1, codes, scales, "rule=-1");
    Q(&t, 2, 32, KEEL_FORMAT_E4M3, KEEL_MX_CEIL, NULL, scales, "codes is NULL");
    Q(&t, 2, 32, KEEL_FORMAT_E4M3, KEEL_MX_CEIL, codes, NULL, "scales is NULL");
    Q(&t, 2, 32, KEEL_FORMAT_E4M3, KEEL_MX_CEIL, codes, codes + 63, "scales overlaps codes");
    Q(&t, 2, 32, KEEL_FORMAT_E4M3, KEEL_MX_CEIL, (uint8_t *)x, scales, "codes overlaps src.data");
    Q(&scaled, 2, 32, KEEL_FORMAT_E4M3, KEEL_MX_CEIL, codes, scales, "scale_inv");
    Q(&odd, 2, 32, KEEL_FORMAT_E4M3, KEEL_MX_CEIL, codes, scales, "reserved");
#undef Q
#define D(codes, scales, rows, format, out, word) \
    assert_refused(keel_mx_dequantize(codes, scales, rows, 32, format, out), KEEL_ERR_INVALID, word)
    D(codes, scales, -1, KEEL_FORMAT_E4M3, out, "rows=-1");
    D(codes, scales, 2, KEEL_FORMAT_F16, out, "format=f16");
    D(NULL, scales, 2, KEEL_FORMAT_E4M3, out, "codes is NULL");
    D(codes, NULL, 2, KEEL_FORMAT_E4M3, out, "scales is NULL");
    D(codes, scales, 2, KEEL_FORMAT_E4M3, NULL, "out is NULL");
    D((uint8_t *)out + 9, scales, 2, KEEL_FORMAT_E4M3, out, "out overlaps codes");
#undef D
    assert_memory_equal(bytes, clean, sizeof bytes);
    assert_int_equal(stats.flushed, -7);
    assert_same_f32(out[0], 7.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mx__scale_is_the_definitions),
        cmocka_unit_test(test_mx__blocks_of_zeros_infinities_and_nans),
        cmocka_unit_test(test_mx__codes_and_errors_in_odd_shapes),
        cmocka_unit_test(test_mx__representable_values_come_back),
        cmocka_unit_test(test_mx__a_value_rounded_past_f32_is_infinite),
        cmocka_unit_test(test_mx__source_of_any_format),
        cmocka_unit_test(test_mx__floating_point_environment_does_not_matter),
        cmocka_unit_test(test_mx__counts_scales),
        cmocka_unit_test(test_mx__no_columns_and_ends_of_memory),
        cmocka_unit_test(test_mx__refuses_and_leaves_outputs),
    };
    return cmocka_run_group_tests_name("runtime.mx", tests, NULL, NULL);
}

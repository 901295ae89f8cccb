/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Products that other software got wrong, by the values of the public reports. */
#include <math.h>

#include "check.h"

enum { SIDE = 16, MOST = 17 * SIDE };

static keel_tensor tensor(void *data, int64_t numel, keel_format format, const float *scale,
                          const float *scale_inv)
{
    const keel_tensor t = {data, numel, format, 0, scale, scale_inv};
    return t;
}

/* 16 x 16 of 2 times 16 x 16 of 1, dequantised by 2^-2 and 2^-3. */
typedef struct scaled {
    unsigned char a[SIDE * SIDE], b[SIDE * SIDE];
    uint16_t wide[SIDE * SIDE];
    unsigned char narrow[SIDE * SIDE];
    float scale_a, scale_b, scale_d, amax;
    keel_matmul_args args;
} scaled;

static void scaled_begin(scaled *s)
{
    memset(s, 0, sizeof *s);
    memset(s->a, 0x40, sizeof s->a);
    memset(s->b, 0x38, sizeof s->b);
    memset(s->wide, 0xa5, sizeof s->wide);
    memset(s->narrow, 0xa5, sizeof s->narrow);
    s->scale_a = 0x1p-2f, s->scale_b = 0x1p-3f, s->scale_d = 8, s->amax = -1;
    s->args = (keel_matmul_args){.m = SIDE, .n = SIDE, .k = SIDE, .out_amax = &s->amax};
    s->args.a = tensor(s->a, SIDE * SIDE, KEEL_FORMAT_E4M3, NULL, &s->scale_a);
    s->args.b = tensor(s->b, SIDE * SIDE, KEEL_FORMAT_E4M3, NULL, &s->scale_b);
    s->args.d = tensor(s->wide, SIDE * SIDE, KEEL_FORMAT_BF16, NULL, NULL);
}

/* pytorch/pytorch#190449: scales the wrong way round, the result's scale ignored. */
static void test_matmul_cases__scales_dequantise_operands_and_quantise_the_result(void **state)
{
    (void)state;
    scaled s;
    scaled_begin(&s);
    assert_ok(keel_matmul(NULL, &s.args, NULL));
    for (int i = 0; i < SIDE * SIDE; i++) assert_int_equal(s.wide[i], 0x3f80);
    s.args.d = tensor(s.narrow, SIDE * SIDE, KEEL_FORMAT_E4M3, &s.scale_d, NULL);
    assert_ok(keel_matmul(NULL, &s.args, NULL));
    for (int i = 0; i < SIDE * SIDE; i++) assert_int_equal(s.narrow[i], 0x50);
    assert_same_f32(s.amax, 1.0f);
}

/* The same report: a scale that was never filled in, in each place there is one. */
static void test_matmul_cases__refuses_scales_that_are_none(void **state)
{
    (void)state;
    const float bad[] = {0, -1, NAN, INFINITY, -3.40282347e38f, -0.0f, -INFINITY};
    float scale_bias = 1, bias[SIDE] = {0};
    scaled s;
    scaled_begin(&s);
    s.args.d = tensor(s.narrow, SIDE * SIDE, KEEL_FORMAT_E4M3, &s.scale_d, NULL);
    s.args.bias = tensor(bias, SIDE, KEEL_FORMAT_F32, NULL, &scale_bias);
    struct {
        float *scale;
        const char *word;
    } places[] = {{&s.scale_a, "a.scale_inv="},
                  {&s.scale_b, "b.scale_inv="},
                  {&s.scale_d, "d.scale="},
                  {&scale_bias, "bias.scale_inv="}};
    for (int p = 0; p < 4; p++) {
        const float good = *places[p].scale;
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            *places[p].scale = bad[i];
            assert_refused(keel_matmul(NULL, &s.args, NULL), KEEL_ERR_INVALID, places[p].word);
        }
        *places[p].scale = good;
    }
    for (int i = 0; i < SIDE * SIDE; i++) assert_int_equal(s.narrow[i], 0xa5);
    assert_same_f32(s.amax, -1.0f);
    assert_ok(keel_matmul(NULL, &s.args, NULL));
}

/* Ones in e4m3 into f32, stored with this stride, a and the bias off by some bytes. */
static void check_ones(int64_t m, int64_t n, int64_t k, int64_t stride, int a_off, int bias_off,
                       float wanted)
{
    unsigned char a[MOST + 4], b[MOST], bias[4 * SIDE + 4];
    float d[MOST];
    memset(a, 0x38, sizeof a);
    memset(b, 0x38, sizeof b);
    for (int64_t j = 0; j < n; j++) {
        const float x = bias_off ? 0.5f * (float)j : 0;
        memcpy(bias + bias_off + 4 * j, &x, sizeof x);
    }
    const int64_t ends[] = {stride ? (m - 1) * stride + k : m * k,
                            stride ? (k - 1) * stride + n : k * n,
                            stride ? (m - 1) * stride + n : m * n};
    keel_matmul_args args = {.m = m, .n = n, .k = k};
    args.a_stride = args.b_stride = args.d_stride = stride;
    args.a = tensor(a + a_off, ends[0], KEEL_FORMAT_E4M3, NULL, NULL);
    args.b = tensor(b, ends[1], KEEL_FORMAT_E4M3, NULL, NULL);
    args.d = tensor(d, ends[2], KEEL_FORMAT_F32, NULL, NULL);
    args.bias = tensor(bias + bias_off, n, KEEL_FORMAT_F32, NULL, NULL);
    assert_ok(keel_matmul(NULL, &args, NULL));
    for (int64_t i = 0; i < m * n; i++)
        assert_same_f32(d[i / n * (stride ? stride : n) + i % n],
                        wanted + (bias_off ? 0.5f * (float)(i % n) : 0));
}

/* pytorch/pytorch#141749: odd sizes, odd addresses, an odd leading dimension. */
static void test_matmul_cases__takes_odd_sizes_and_addresses(void **state)
{
    (void)state;
    check_ones(3, 5, 7, 0, 0, 0, 7);
    check_ones(SIDE, SIDE, SIDE, 0, 1, 0, 16);
    check_ones(SIDE, SIDE, SIDE, 0, 1, 2, 16);
    check_ones(SIDE, SIDE, SIDE, 17, 0, 0, 16);
}

/* deepseek-ai/DeepGEMM#37: tensor cores that drop the low bits of each product give 256. */
static void test_matmul_cases__keeps_low_bits_of_each_product(void **state)
{
    (void)state;
    unsigned char a[32], b[32];
    float d[1];
    memset(a, 0x08, sizeof a); /* 2^-6 */
    memset(b, 0x38, sizeof b);
    a[0] = 0x78; /* 256 */
    for (int32_t fast = 0; fast < 2; fast++) {
        keel_matmul_args args = {.m = 1, .n = 1, .k = 32, .fast = fast};
        args.a = tensor(a, 32, KEEL_FORMAT_E4M3, NULL, NULL);
        args.b = tensor(b, 32, KEEL_FORMAT_E4M3, NULL, NULL);
        args.d = tensor(d, 1, KEEL_FORMAT_F32, NULL, NULL);
        assert_ok(keel_matmul(NULL, &args, NULL));
        assert_same_f32(d[0], 256.484375f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_cases__scales_dequantise_operands_and_quantise_the_result),
        cmocka_unit_test(test_matmul_cases__refuses_scales_that_are_none),
        cmocka_unit_test(test_matmul_cases__takes_odd_sizes_and_addresses),
        cmocka_unit_test(test_matmul_cases__keeps_low_bits_of_each_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

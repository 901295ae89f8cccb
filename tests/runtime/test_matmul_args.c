/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Products that are refused: with the value, and nothing written. */
#include "keel/ext.h"

#include "check.h"

/* A product of 4 x 6 by 6 x 5 with a bias, in one piece of memory. */
enum { M = 4, N = 5, K = 6, ROOM = 64 };

typedef struct fixture {
    float a[ROOM], b[ROOM], d[ROOM], bias[ROOM];
    float amax, one;
    keel_matmul_args args;
} fixture;

static void fixture_begin(fixture *f)
{
    memset(f, 0, sizeof *f);
    for (int i = 0; i < ROOM; i++) f->d[i] = 7;
    f->amax = 7, f->one = 1;
    f->args = (keel_matmul_args){
        .m = M,
        .n = N,
        .k = K,
        .a = {f->a, M * K, KEEL_FORMAT_F32, 0, NULL, NULL},
        .b = {f->b, K * N, KEEL_FORMAT_F32, 0, NULL, NULL},
        .d = {f->d, M * N, KEEL_FORMAT_F32, 0, NULL, NULL},
        .bias = {f->bias, N, KEEL_FORMAT_F32, 0, NULL, NULL},
        .out_amax = &f->amax,
    };
}

static void check_fixture(fixture *f, keel_status wanted, const char *word, int line)
{
    check_refused(keel_matmul(NULL, &f->args, NULL), wanted, word, "keel_matmul", __FILE__, line);
    for (int i = 0; i < ROOM; i++) assert_same_f32(f->d[i], 7.0f);
    assert_same_f32(f->amax, 7.0f);
}

/* One field changed, and the sentence has its name and value. */
#define REFUSE_AS(status, word, change)            \
    do {                                           \
        fixture f;                                 \
        fixture_begin(&f);                         \
        change;                                    \
        check_fixture(&f, status, word, __LINE__); \
    } while (0)
#define REFUSE(word, change) REFUSE_AS(KEEL_ERR_INVALID, word, change)

static void test_matmul_args__fixture_is_accepted(void **state)
{
    (void)state;
    fixture f;
    fixture_begin(&f);
    assert_ok(keel_matmul(NULL, &f.args, NULL));
    for (int i = 0; i < ROOM; i++) assert_same_f32(f.d[i], i < M * N ? 0.0f : 7.0f);
    assert_same_f32(f.amax, 0.0f);
}

static void test_matmul_args__refuses_bad_numbers(void **state)
{
    (void)state;
    assert_refused(keel_matmul(NULL, NULL, NULL), KEEL_ERR_INVALID, "args is NULL");
    REFUSE("m=-1 ", f.args.m = -1);
    REFUSE("n=-2 ", f.args.n = -2);
    REFUSE("k=-3 ", f.args.k = -3);
    REFUSE("transpose_a=2 (want 0..1)", f.args.transpose_a = 2);
    REFUSE("transpose_b=-1 ", f.args.transpose_b = -1);
    REFUSE("accumulate=3 ", f.args.accumulate = 3);
    REFUSE("fast=9 ", f.args.fast = 9);
}

static void test_matmul_args__refuses_bad_tensors(void **state)
{
    (void)state;
    REFUSE("a.format=99 ", f.args.a.format = (keel_format)99);
    REFUSE("b.format=0 ", f.args.b.format = KEEL_FORMAT_NONE);
    REFUSE("d.format=-1 ", f.args.d.format = (keel_format)-1);
    REFUSE("bias.format=77 ", f.args.bias.format = (keel_format)77);
    REFUSE("a.numel=-24 ", f.args.a.numel = -24);
    REFUSE("b.reserved=1 ", f.args.b.reserved = 1);
    REFUSE("a.data is NULL (want 24 elements)", f.args.a.data = NULL);
    REFUSE("d.data is NULL (want 20 elements)", f.args.d.data = NULL);
    REFUSE_AS(KEEL_ERR_UNSUPPORTED, "d.format=e8m0 (described only)",
              f.args.d.format = KEEL_FORMAT_E8M0);
}

static void test_matmul_args__refuses_shapes_that_do_not_match(void **state)
{
    (void)state;
    REFUSE("a.numel=23 (want 4 rows of 6 columns)", f.args.a.numel = 23);
    REFUSE("a.numel=25 ", f.args.a.numel = 25);
    REFUSE("b.numel=30 (want 5 rows of 7 columns)",
           (f.args.transpose_b = 1, f.args.k = 7, f.args.a.numel = 28));
    REFUSE("d.numel=19 (want 4 rows of 5 columns)", f.args.d.numel = 19);
    REFUSE("bias.numel=4 (want 1 rows of 5 columns)", f.args.bias.numel = 4);
    REFUSE("a.numel=24 (want 0 rows of 6 columns)", (f.args.m = 0, f.args.d.numel = 0));
    REFUSE("a_stride=-6 ", f.args.a_stride = -6);
    REFUSE("a_stride=5 (want 0, or at least 6 columns)", f.args.a_stride = 5);
    REFUSE("b_stride=5 (want 0, or at least 6 columns)",
           (f.args.b_stride = 5, f.args.transpose_b = 1));
    REFUSE("d.numel=20 (want at least 23: 4 rows of 5 columns, 6 apart)", f.args.d_stride = 6);
}

/* Sizes whose product wraps to something small. */
static void test_matmul_args__refuses_sizes_that_overflow(void **state)
{
    (void)state;
    const int64_t huge = INT64_MAX, half = (int64_t)1 << 32;
    REFUSE("d: 4294967296 rows of 4294967296 columns",
           (f.args.m = half, f.args.n = half, f.args.d.numel = 0));
    REFUSE("a: 9223372036854775807 rows of 6 columns",
           (f.args.m = huge, f.args.d.numel = f.args.n = f.args.b.numel = f.args.bias.numel = 0));
    REFUSE("a: 4 rows of 6 columns", f.args.a_stride = huge);
    REFUSE("d.numel=9223372036854775807 ", f.args.d.numel = huge);
    REFUSE("b.numel=30 (want 2305843009213693951 rows",
           (f.args.k = INT64_MAX / 4, f.args.m = 0, f.args.d.numel = f.args.a.numel = 0,
            f.args.n = 1, f.args.bias.numel = 1));
}

static void test_matmul_args__refuses_overlap(void **state)
{
    (void)state;
    REFUSE("a overlaps d", f.args.a.data = f.d);
    REFUSE("a overlaps d", f.args.a.data = f.d + M * N - 1);
    REFUSE("b overlaps d", f.args.b.data = (char *)(f.d + M * N) - 1);
    REFUSE("bias overlaps d", f.args.bias.data = f.d + 3);
    REFUSE("out_amax lies in d", f.args.out_amax = &f.d[M * N - 1]);
    REFUSE("b overlaps d", (f.args.d_stride = 12, f.args.d.numel = 41, f.args.b.data = f.d + 5));
}

/* Side by side is no overlap, and operands may share memory. */
static void test_matmul_args__takes_neighbours(void **state)
{
    (void)state;
    fixture f;
    fixture_begin(&f);
    f.args.bias.data = f.d + M * N;
    f.args.b.data = f.a;
    f.args.out_amax = &f.d[M * N + N];
    assert_ok(keel_matmul(NULL, &f.args, NULL));
    assert_same_f32(f.d[0], 7.0f);
    assert_same_f32(f.d[M * N + N], 7.0f);
}

static void test_matmul_args__refuses_to_accumulate_into_scaled_or_narrow_results(void **state)
{
    (void)state;
    REFUSE("accumulate=1 with d.format=bf16 ",
           (f.args.accumulate = 1, f.args.d.format = KEEL_FORMAT_BF16));
    REFUSE("and a scale", (f.args.accumulate = 1, f.args.d.scale = &f.one));
    REFUSE("and a scale", (f.args.accumulate = 1, f.args.d.scale_inv = &f.one));
}

static void test_matmul_args__refuses_devices_without_a_product(void **state)
{
    (void)state;
    const keel_device device = {.ext_version = KEEL_EXT_VERSION, .name = "abacus"};
    fixture f;
    fixture_begin(&f);
    assert_refused(keel_matmul(&device, &f.args, NULL), KEEL_ERR_UNSUPPORTED, "abacus");
}

/* Nothing to multiply: bias or zeros where k is 0, amax 0 where d is empty, NULL where nothing is.
 */
static void test_matmul_args__takes_nothing(void **state)
{
    (void)state;
    fixture f;
    fixture_begin(&f);
    f.bias[2] = -3;
    f.args.k = f.args.a.numel = f.args.b.numel = 0;
    f.args.a.data = f.args.b.data = NULL;
    assert_ok(keel_matmul(NULL, &f.args, NULL));
    for (int i = 0; i < M * N; i++) assert_same_f32(f.d[i], i % N == 2 ? -3.0f : 0.0f);
    assert_same_f32(f.amax, 3.0f);
    f.args.accumulate = 1;
    assert_ok(keel_matmul(NULL, &f.args, NULL));
    for (int i = 0; i < M * N; i++) assert_same_f32(f.d[i], i % N == 2 ? -6.0f : 0.0f);
    f.args.m = f.args.d.numel = 0;
    f.args.d.data = NULL;
    assert_ok(keel_matmul(NULL, &f.args, NULL));
    assert_same_f32(f.amax, 0.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_args__fixture_is_accepted),
        cmocka_unit_test(test_matmul_args__refuses_bad_numbers),
        cmocka_unit_test(test_matmul_args__refuses_bad_tensors),
        cmocka_unit_test(test_matmul_args__refuses_shapes_that_do_not_match),
        cmocka_unit_test(test_matmul_args__refuses_sizes_that_overflow),
        cmocka_unit_test(test_matmul_args__refuses_overlap),
        cmocka_unit_test(test_matmul_args__takes_neighbours),
        cmocka_unit_test(test_matmul_args__refuses_to_accumulate_into_scaled_or_narrow_results),
        cmocka_unit_test(test_matmul_args__refuses_devices_without_a_product),
        cmocka_unit_test(test_matmul_args__takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

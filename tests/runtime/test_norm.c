/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The norm: every kernel against integers on paper, the public result against the same, and the
 * summation tree of KEEL_NORM_BLOCK against its definition.
 *
 * "The sum of squares never overflows or underflows for finite f32 input (1e30 and 1e-30 both
 * count). Mode EXACT is independent of tensor order, chunking, threads, ranks and sharding." */
#include "bigsum.h"
#include "check.h"
#include "cpu/kernels.h"
#include "limbs.h"
#include "model.h"
#include "random.h"

enum { LARGEST = 65537 };

static const int64_t sizes[] = {0,    1,    2,    3,    7,    8,     9,     15,   16,   17,
                                31,   32,   33,   255,  256,  257,   1023,  1024, 1025, 2047,
                                2048, 2049, 4095, 4097, 9999, 65535, 65536, 65537};
static float data[LARGEST];

/* Ways to fill a tensor that are hard on a sum. */
typedef void (*fill_fn)(random_source *r, float *x, int64_t n);

static void fill_any(random_source *r, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = random_finite(r);
}

static void fill_unit(random_source *r, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = random_unit(r);
}

static void fill_subnormal(random_source *r, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = f32_of_bits((uint32_t)random_word(r) & 0x807fffffu);
}

/* The largest everywhere: every partial sum is as large as it can be. */
static void fill_largest(random_source *r, float *x, int64_t n)
{
    (void)r;
    for (int64_t i = 0; i < n; i++) x[i] = i % 2 ? -0x1.fffffep127f : 0x1.fffffep127f;
}

static void fill_far_apart(random_source *r, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = random_below(r, 3) ? 1e-30f : 1e30f;
}

/* One element of each power of two in turn: no two squares share an exponent. */
static void fill_staircase(random_source *r, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = ldexpf(1 + 0x1p-23f * (float)random_below(r, 3), (int)(i % 277) - 149);
}

/* Mantissas of all ones, just below a power of two: folds round up and leave a negative rest. */
static void fill_ones(random_source *r, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = ldexpf(0x1.fffffep0f, (int)random_below(r, 64) - 32);
}

/* Random mantissas just below one power of two: sums over a whole tile need every bit of an f64. */
static void fill_alike(random_source *r, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = f32_of_bits(0x3fe00000u | (random_word(r) & 0x1fffffu));
}

static void fill_mostly_zero(random_source *r, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = random_below(r, 50) ? -0.0f : random_finite(r);
}

static const fill_fn fills[] = {fill_any,     fill_unit,      fill_subnormal,
                                fill_largest, fill_far_apart, fill_staircase,
                                fill_ones,    fill_alike,     fill_mostly_zero};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static void check_kernel(const keeli_cpu_kernels *k, const float *x, int32_t n)
{
    keeli_limbs got = {{0}};
    bigsum wanted;
    memset(&wanted, 0, sizeof wanted);
    for (int32_t i = 0; i < n; i++) bigsum_add_square(&wanted, x[i]);
    const uint32_t absmax = k->stats->absmax(x, n);
    if (absmax) k->stats->norm_exact(x, n, absmax, &got);
    keeli_limbs_carry(&got);
    for (int b = 0; b < BIGSUM_BITS; b++)
        if ((got.word[b / 32] >> b % 32 & 1) != wanted.bit[b])
            fail_msg("%s, %d elements: bit %d differs", k->isa, n, b);
}

static void each_kernel(void (*check)(const keeli_cpu_kernels *k, const float *x, int32_t n))
{
    const keeli_cpu_kernels *k;
    for (int32_t isa = 0; (k = keeli_cpu_kernels_at(isa)); isa++) {
        random_source r = random_begin(2);
        for (size_t f = 0; f < COUNT_OF(fills); f++)
            for (int32_t n = 1; n <= KEELI_TILE; n += n < 70 ? 1 : 53) {
                fills[f](&r, data, n);
                check(k, data, n);
            }
        fills[0](&r, data, KEELI_TILE);
        check(k, data, KEELI_TILE);
    }
}

static void test_norm__every_kernel_sums_exactly(void **state)
{
    (void)state;
    each_kernel(check_kernel);
}

static void check_counts(const keeli_cpu_kernels *k, const float *x, int32_t n)
{
    uint32_t max = 0;
    int32_t zeros = 0;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t magnitude = bits_of_f32(x[i]) & 0x7fffffffu;
        if (magnitude > max) max = magnitude;
        zeros += magnitude == 0;
    }
    assert_int_equal(k->stats->absmax(x, n), max);
    assert_int_equal(k->stats->count_zero(x, n), zeros);
}

static void test_norm__every_kernel_counts(void **state)
{
    (void)state;
    each_kernel(check_counts);
}

/* As keel/config.h says it: "Inside a block element i goes to lane i mod 16, lanes add in order of
 * i, then lanes j and j+8, j+4, j+2, j+1 are added." */
static double block_by_definition(const float *x, int64_t n)
{
    double lane[16] = {0};
    for (int64_t i = 0; i < n; i++) lane[i % 16] += (double)x[i] * (double)x[i];
    for (int j = 0; j < 8; j++) lane[j] += lane[j + 8];
    for (int j = 0; j < 4; j++) lane[j] += lane[j + 4];
    for (int j = 0; j < 2; j++) lane[j] += lane[j + 2];
    return lane[0] + lane[1];
}

static void check_block(const keeli_cpu_kernels *k, const float *x, int32_t n)
{
    assert_same_f64(k->stats->norm_block(x, n), block_by_definition(x, n));
}

static void test_norm__block_tree_is_the_documented_one(void **state)
{
    (void)state;
    each_kernel(check_block);
}

/* "f64 inside blocks of 1,024 logical elements, then exactly". */
static double block_norm_by_definition(const float *x, int64_t n)
{
    bigsum sum;
    memset(&sum, 0, sizeof sum);
    for (int64_t at = 0; at < n; at += 1024)
        bigsum_add_f64(&sum, block_by_definition(x + at, n - at < 1024 ? n - at : 1024));
    return sqrt(bigsum_round(&sum));
}

static double measured(const keel_tensor *grads, int64_t count)
{
    double norm = -1;
    assert_ok(keel_clip_global_norm(NULL, grads, count, INFINITY, NULL, 0, &norm));
    return norm;
}

/* Sizes around the tile and the widths of vectors. */
static void test_norm__every_size_is_exact(void **state)
{
    (void)state;
    random_source r = random_begin(3);
    for (size_t f = 0; f < COUNT_OF(fills); f++)
        for (size_t s = 0; s < COUNT_OF(sizes); s++) {
            const int64_t n = sizes[s];
            if (n > 5000 && f > 1) continue;
            const keel_tensor t = {.data = data, .numel = n, .format = KEEL_FORMAT_F32};
            fills[f](&r, data, n);
            assert_same_f64(measured(&t, 1), bigsum_norm(data, n));
        }
}

/* "1e30 and 1e-30 both count": the square of 1e-30 alone decides a tie of the sum. */
static void test_norm__small_elements_count_beside_large_ones(void **state)
{
    (void)state;
    const float large[] = {0x1p100f, 0x1p73f, 0x1p73f}; /* squares 2^200, 2^146, 2^146: a tie */
    const float with_small[] = {0x1p100f, 0x1p73f, 0x1p73f, 1e-30f};
    const keel_tensor a = {.data = (void *)(uintptr_t)large, .numel = 3, .format = KEEL_FORMAT_F32};
    keel_tensor b = a;
    b.data = (void *)(uintptr_t)with_small;
    b.numel = 4;
    assert_same_f64(measured(&a, 1), bigsum_norm(large, 3));
    assert_same_f64(measured(&b, 1), bigsum_norm(with_small, 4));
    const float both[] = {1e30f, 1e-30f};
    const keel_tensor c = {.data = (void *)(uintptr_t)both, .numel = 2, .format = KEEL_FORMAT_F32};
    assert_same_f64(measured(&c, 1), bigsum_norm(both, 2));
}

/* Any byte address, and pieces of any size in any order, give the bits of the whole. */
static void test_norm__cuts_order_and_alignment_do_not_matter(void **state)
{
    (void)state;
    enum { N = 5000 };
    static unsigned char bytes[N * sizeof(float) + 64];
    random_source r = random_begin(4);
    fill_any(&r, data, N);
    const double whole = bigsum_norm(data, N);
    for (int trial = 0; trial < 200; trial++) {
        keel_tensor pieces[N];
        int64_t count = 0;
        float *base = (float *)(void *)(bytes + random_below(&r, 64));
        memcpy(base, data, N * sizeof(float));
        for (int64_t at = 0, n; at < N; at += n) {
            n = random_below(&r, trial % 2 ? 20 : 3000);
            if (n > N - at) n = N - at;
            pieces[count++] = (keel_tensor){
                .data = (unsigned char *)base + at * 4, .numel = n, .format = KEEL_FORMAT_F32};
        }
        for (int64_t i = count - 1; i > 0; i--) {
            const int64_t j = random_below(&r, i + 1);
            const keel_tensor swap = pieces[i];
            pieces[i] = pieces[j];
            pieces[j] = swap;
        }
        assert_same_f64(measured(pieces, count), whole);
    }
}

/* "An element of a scaled format enters as fl32(decode * scale_inv)." */
static void test_norm__scaled_elements_enter_rounded_to_f32(void **state)
{
    (void)state;
    static unsigned char codes[3000];
    const float scale_inv = 0.1f;
    random_source r = random_begin(5);
    for (size_t i = 0; i < COUNT_OF(codes); i++) {
        do codes[i] = (unsigned char)random_word(&r);
        while ((codes[i] & 0x7f) == 0x7f);
        data[i] = keel_format_decode(KEEL_FORMAT_E4M3, codes[i]) * scale_inv;
    }
    const keel_tensor t = {.data = codes,
                           .numel = COUNT_OF(codes),
                           .format = KEEL_FORMAT_E4M3,
                           .scale_inv = &scale_inv};
    assert_same_f64(measured(&t, 1), bigsum_norm(data, COUNT_OF(codes)));
}

static double block_step(const keel_shard *shards, int64_t count, const float *x)
{
    model m;
    model_begin(&m);
    m.cfg.norm_mode = KEEL_NORM_BLOCK;
    for (int64_t i = 0; i < count; i++) {
        keel_param *p = model_add_f32(&m, shards[i].cols, x + shards[i].offset);
        p->shard = shards[i];
        p->id = 0;
    }
    model_create(&m);
    assert_ok(keel_step_verify(m.step));
    model_run(&m);
    const double norm = model_report(&m).norm;
    model_end(&m);
    return norm;
}

static keel_shard piece(int64_t total, int64_t offset, int64_t n)
{
    return (keel_shard){.global_numel = total,
                        .offset = offset,
                        .rows = 1,
                        .cols = n,
                        .row_stride = n,
                        .replicas = 1};
}

/* "Mode BLOCK guarantees that only for cuts at multiples of 1,024 elements; its summation tree
 * inside a block is written out." */
static void test_norm__block_mode_keeps_its_bits_for_cuts_between_blocks(void **state)
{
    (void)state;
    enum { N = 10 * 1024 + 77 };
    random_source r = random_begin(6);
    fill_any(&r, data, N);
    for (int64_t i = 0; i < N; i++) data[i] *= 0x1p-3f;
    const double wanted = block_norm_by_definition(data, N);
    const keel_shard whole[] = {piece(N, 0, N)};
    const keel_shard halves[] = {piece(N, 0, 3 * 1024), piece(N, 3 * 1024, N - 3 * 1024)};
    const keel_shard shuffled[] = {piece(N, 10 * 1024, 77), piece(N, 1024, 9 * 1024),
                                   piece(N, 0, 1024)};
    assert_same_f64(block_step(whole, 1, data), wanted);
    assert_same_f64(block_step(halves, 2, data), wanted);
    assert_same_f64(block_step(shuffled, 3, data), wanted);
}

static keel_status create_block(const keel_shard *shard, int64_t numel)
{
    model m;
    model_begin(&m);
    m.cfg.norm_mode = KEEL_NORM_BLOCK;
    model_add(&m, KEEL_FORMAT_F32, numel)->shard = *shard;
    const keel_status status = keel_step_create(&m.cfg, m.params, m.count, NULL, 0, &m.step);
    model_end(&m);
    return status;
}

/* "other cuts are refused at create" */
static void test_norm__block_mode_refuses_cuts_inside_blocks(void **state)
{
    (void)state;
    keel_shard s = piece(4096, 1, 1024);
    assert_refused(create_block(&s, 1024), KEEL_ERR_INVALID, "cuts a block");
    s = piece(4096, 1024, 1000);
    assert_refused(create_block(&s, 1000), KEEL_ERR_INVALID, "cuts a block");
    s = (keel_shard){.global_numel = 4096, .rows = 2, .cols = 1024, .row_stride = 1536};
    assert_refused(create_block(&s, 2048), KEEL_ERR_INVALID, "cuts a block");
    s.row_stride = 2048;
    assert_ok(create_block(&s, 2048));
    s.cols = 512;
    assert_refused(create_block(&s, 1024), KEEL_ERR_INVALID, "cuts a block");
    s = piece(4096, 3072, 1024);
    assert_ok(create_block(&s, 1024));
    s = piece(4100, 3072, 1028);
    assert_ok(create_block(&s, 1028));
    s = piece(4096, 5, 0);
    assert_ok(create_block(&s, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm__every_kernel_sums_exactly),
        cmocka_unit_test(test_norm__every_kernel_counts),
        cmocka_unit_test(test_norm__block_tree_is_the_documented_one),
        cmocka_unit_test(test_norm__every_size_is_exact),
        cmocka_unit_test(test_norm__small_elements_count_beside_large_ones),
        cmocka_unit_test(test_norm__cuts_order_and_alignment_do_not_matter),
        cmocka_unit_test(test_norm__scaled_elements_enter_rounded_to_f32),
        cmocka_unit_test(test_norm__block_mode_keeps_its_bits_for_cuts_between_blocks),
        cmocka_unit_test(test_norm__block_mode_refuses_cuts_inside_blocks),
    };
    return cmocka_run_group_tests_name("runtime.norm", tests, NULL, NULL);
}

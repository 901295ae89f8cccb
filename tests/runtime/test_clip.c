/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The stateless clip.
 *
 * "coef = min(1, max_norm / (norm + 1e-6))"; "max_norm = INFINITY turns clipping off; 0 gives zero
 * gradients; negative or NaN is KEEL_ERR_INVALID"; "non-finite anywhere: never inf * 0". */
#include "bigsum.h"
#include "check.h"
#include "model.h"
#include "random.h"
#include "ranks.h"

static keel_tensor f32(float *x, int64_t numel)
{
    return (keel_tensor){.data = x, .numel = numel, .format = KEEL_FORMAT_F32};
}

static double clip(float *x, int64_t numel, float max_norm)
{
    const keel_tensor t = f32(x, numel);
    double norm = -1;
    assert_ok(keel_clip_global_norm(NULL, &t, 1, max_norm, NULL, 0, &norm));
    return norm;
}

/* As the header forms it: in f64, rounded once. */
static float coef_of(double norm, float max_norm)
{
    const double coef = (double)max_norm / (norm + 1e-6);
    return coef < 1 ? (float)coef : 1.0f;
}

static void assert_near(float got, double wanted)
{
    if (fabs((double)got - wanted) > fabs(wanted) * 4e-7)
        fail_msg("%.9g, wanted %.9g", (double)got, wanted);
}

static void test_clip__scales_all_by_one_factor(void **state)
{
    (void)state;
    float a[] = {3, 4}, b[] = {12};
    const keel_tensor grads[] = {f32(a, 2), f32(b, 1)};
    const float coef = coef_of(13, 6.5f);
    double norm;
    assert_ok(keel_clip_global_norm(NULL, grads, 2, 6.5f, NULL, 0, &norm));
    assert_same_f64(norm, 13.0);
    assert_same_f32(a[0], 3 * coef);
    assert_same_f32(a[1], 4 * coef);
    assert_same_f32(b[0], 12 * coef);
}

/* "with coef 1 their bits do not change": -0, subnormals and odd formats included. */
static void test_clip__below_the_threshold_nothing_is_written(void **state)
{
    (void)state;
    float x[] = {-0.0f, 0x1p-149f, 0x1.234568p-3f, 1};
    float copy[4];
    memcpy(copy, x, sizeof x);
    for (int i = 0; i < 3; i++) {
        const float limits[] = {1.5f, 0x1p100f, INFINITY};
        (void)clip(x, 4, limits[i]);
        assert_memory_equal(x, copy, sizeof x);
    }
}

/* jax-ml/jax#39899: squares of fp16 lie above 65504; the norm is 400, its square 160000. */
static void test_clip__squares_of_f16_do_not_overflow(void **state)
{
    (void)state;
    uint16_t codes[] = {0x5b80, 0x5d00}; /* 240, 320 */
    const keel_tensor t = {.data = codes, .numel = 2, .format = KEEL_FORMAT_F16};
    double norm;
    assert_ok(keel_clip_global_norm(NULL, &t, 1, 100, NULL, 0, &norm));
    assert_same_f64(norm, 400.0);
    assert_same_f32(model_get(&t, 0), 60.0f);
    assert_same_f32(model_get(&t, 1), 80.0f);
}

/* pytorch/pytorch#194326: a square that does not fit f32 is no overflow, one below it no zero. */
static void test_clip__range_of_squares(void **state)
{
    (void)state;
    float large[] = {3 * 0x1p70f, 4 * 0x1p70f}, small[] = {3 * 0x1p-80f, 4 * 0x1p-80f};
    assert_same_f64(clip(large, 2, 5), 5 * 0x1p70);
    assert_same_f32(large[0], 3.0f);
    assert_same_f32(large[1], 4.0f);
    assert_same_f64(clip(small, 2, 1), 5 * 0x1p-80);
    assert_same_f32(small[0], 3 * 0x1p-80f);
    assert_same_f32(small[1], 4 * 0x1p-80f);
}

/* google-deepmind/optax#1752: zero limits, zero norms and infinite limits give no NaN. */
static void test_clip__degenerate_limits(void **state)
{
    (void)state;
    float zeros[] = {0, 0, 0}, some[] = {3, 4}, same[] = {3, 4}, infinite[] = {INFINITY, 3};
    assert_same_f64(clip(zeros, 3, 0), 0.0);
    for (int i = 0; i < 3; i++) assert_same_f32(zeros[i], 0.0f);
    assert_same_f64(clip(some, 2, 0), 5.0);
    assert_same_f32(some[0], 0.0f);
    assert_same_f32(some[1], 0.0f);
    assert_same_f64(clip(same, 2, INFINITY), 5.0);
    assert_same_f32(same[0], 3.0f);
    assert_same_f64(clip(infinite, 2, INFINITY), (double)INFINITY);
    assert_same_f64(clip(infinite, 2, 1), (double)INFINITY);
    assert_same_f64(clip(infinite, 2, 0), (double)INFINITY);
    assert_same_f32(infinite[0], INFINITY);
    assert_same_f32(infinite[1], 3.0f);
}

/* pytorch/pytorch#31367: a negative limit must not turn descent into ascent. */
static void test_clip__refuses_limits_that_are_none(void **state)
{
    (void)state;
    float x[] = {6, 8};
    const keel_tensor t = f32(x, 2);
    double norm = -7;
    assert_refused(keel_clip_global_norm(NULL, &t, 1, -2, NULL, 0, &norm), KEEL_ERR_INVALID,
                   "max_norm=-2");
    assert_refused(keel_clip_global_norm(NULL, &t, 1, NAN, NULL, 0, &norm), KEEL_ERR_INVALID,
                   "max_norm=");
    assert_refused(keel_clip_global_norm(NULL, &t, 1, -INFINITY, NULL, 0, &norm), KEEL_ERR_INVALID,
                   "max_norm=-inf");
    assert_same_f64(norm, -7.0);
    assert_same_f32(x[0], 6.0f);
    assert_same_f32(x[1], 8.0f);
    assert_same_f64(clip(x, 2, -0.0f), 10.0);
    assert_same_f32(x[0], 0.0f);
}

/* deepspeedai/DeepSpeed#8614: a NaN norm is reported as NaN and touches nothing. */
static void test_clip__nan_touches_nothing(void **state)
{
    (void)state;
    float x[] = {NAN, 2, INFINITY};
    assert_true(isnan(clip(x, 3, 1)));
    assert_same_f32(x[1], 2.0f);
    float zero[] = {0, 0};
    assert_same_f64(clip(zero, 2, 1), 0.0);
}

/* "max_norm / (norm + 1e-6)" for any pair, in every bit. */
static void test_clip__coefficient_is_rounded_once(void **state)
{
    (void)state;
    random_source r = random_begin(7);
    for (int trial = 0; trial < 2000; trial++) {
        float x[3], was[3];
        for (int i = 0; i < 3; i++) was[i] = x[i] = random_unit(&r) * ldexpf(1, trial % 60 - 30);
        const float max_norm = fabsf(random_unit(&r)) * ldexpf(1, (int)random_below(&r, 60) - 30);
        const double norm = clip(x, 3, max_norm);
        const float coef = coef_of(norm, max_norm);
        assert_same_f64(norm, bigsum_norm(was, 3));
        for (int i = 0; i < 3; i++) assert_same_f32(x[i], coef < 1 ? was[i] * coef : was[i]);
    }
}

/* A list of every format, read and written each in its own. */
static void test_clip__mixed_formats_in_one_list(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    keel_tensor grads[MODEL_PARAMS];
    const keel_format_info *info;
    float values[2 * MODEL_PARAMS];
    for (int32_t i = 0; (info = keel_format_at(i)); i++) {
        if (!info->can_encode) continue;
        const keel_param *p = model_add(&m, info->id, 2);
        model_set(p, 0, 1.5f);
        model_set(p, 1, -4.0f);
        values[2 * m.count - 2] = 1.5f;
        values[2 * m.count - 1] = -4.0f;
        grads[m.count - 1] = p->grad;
    }
    double norm;
    assert_ok(keel_clip_global_norm(NULL, grads, m.count, 1, NULL, 0, &norm));
    assert_same_f64(norm, bigsum_norm(values, 2 * m.count));
    const float coef = coef_of(norm, 1);
    for (int64_t i = 0; i < 2 * m.count; i++) {
        const keel_tensor *t = &grads[i / 2];
        uint32_t code;
        assert_ok(keel_format_encode(t->format, values[i] * coef, KEEL_OVERFLOW_DEFAULT, &code));
        assert_same_f32(model_get(t, i % 2), keel_format_decode(t->format, code));
    }
    model_end(&m);
}

/* A scaled format is written with its scale: stored = cast(x * scale). */
static void test_clip__scaled_gradients_keep_their_convention(void **state)
{
    (void)state;
    unsigned char codes[] = {0x70, 0x48}; /* 128, 4 */
    const float scale = 64, scale_inv = 1.0f / 64;
    const keel_tensor t = {.data = codes,
                           .numel = 2,
                           .format = KEEL_FORMAT_E4M3,
                           .scale = &scale,
                           .scale_inv = &scale_inv};
    double norm;
    assert_ok(keel_clip_global_norm(NULL, &t, 1, 1, NULL, 0, &norm));
    assert_same_f64(norm, bigsum_norm((const float[]){2, 0.0625f}, 2));
    assert_near(model_get(&t, 0), 64); /* 2 * coef * 64, rounded to e4m3 */
    assert_same_f32(model_get(&t, 1), 2.0f);
}

/* "Empty tensors, no tensors": legal. */
static void test_clip__empty_lists_and_tensors(void **state)
{
    (void)state;
    double norm = -1;
    assert_ok(keel_clip_global_norm(NULL, NULL, 0, 1, NULL, 0, &norm));
    assert_same_f64(norm, 0.0);
    float x[] = {3, 4};
    const keel_tensor grads[] = {f32(NULL, 0), f32(x, 2), f32(NULL, 0)};
    assert_ok(keel_clip_global_norm(NULL, grads, 3, INFINITY, NULL, 0, &norm));
    assert_same_f64(norm, 5.0);
}

/* "Gradients and out_norm untouched", also those before the bad one. */
static void test_clip__refuses_a_bad_list_whole(void **state)
{
    (void)state;
    float x[] = {30, 40};
    unsigned char byte = 1;
    double norm = -7;
    keel_tensor grads[] = {f32(x, 2), f32(NULL, 1)};
    assert_refused(keel_clip_global_norm(NULL, grads, 2, 1, NULL, 0, &norm), KEEL_ERR_INVALID,
                   "grads[1]");
    grads[1] = f32(x, -1);
    assert_refused(keel_clip_global_norm(NULL, grads, 2, 1, NULL, 0, &norm), KEEL_ERR_INVALID,
                   "numel=-1");
    grads[1] = (keel_tensor){.data = &byte, .numel = 1, .format = (keel_format)99};
    assert_refused(keel_clip_global_norm(NULL, grads, 2, 1, NULL, 0, &norm), KEEL_ERR_INVALID,
                   "format=99");
    grads[1] = f32(x, INT64_MAX);
    assert_refused(keel_clip_global_norm(NULL, grads, 2, 1, NULL, 0, &norm), KEEL_ERR_INVALID,
                   "grads[1].numel=9223372036854775807");
    grads[1] = (keel_tensor){.data = &byte, .numel = 1, .format = KEEL_FORMAT_E8M0};
    assert_refused(keel_clip_global_norm(NULL, grads, 2, 1, NULL, 0, &norm), KEEL_ERR_UNSUPPORTED,
                   "e8m0");
    assert_refused(keel_clip_global_norm(NULL, grads, -1, 1, NULL, 0, &norm), KEEL_ERR_INVALID,
                   "count=-1");
    assert_refused(keel_clip_global_norm(NULL, NULL, 1, 1, NULL, 0, &norm), KEEL_ERR_INVALID,
                   "count=1");
    assert_refused(keel_clip_global_norm(NULL, grads, 1, 1, NULL, 0, NULL), KEEL_ERR_INVALID,
                   "out_norm");
    assert_same_f64(norm, -7.0);
    assert_same_f32(x[0], 30.0f);
    grads[0] = grads[1]; /* e8m0 can be measured, if not written: 2^(1 - 127) */
    assert_ok(keel_clip_global_norm(NULL, grads, 1, INFINITY, NULL, 0, &norm));
    assert_same_f64(norm, 0x1p-126);
}

/* deepspeedai/DeepSpeed#8475: squares are added over owners, not norms averaged; moving elements
 * from rank to rank changes nothing. */
static void clip_shards(int32_t rank, keel_comm *comm, void *context)
{
    const int moved = *(const int *)context;
    float a[] = {3, 4}, b[] = {12};
    keel_tensor grads[2];
    int64_t count = 0;
    if ((rank == 1) == (moved == 1)) grads[count++] = f32(a, 2);
    if (rank == 1) grads[count++] = f32(b, 1);
    double norm;
    assert_ok(keel_clip_global_norm(NULL, grads, count, 6.5f, comm, 0, &norm));
    assert_same_f64(norm, 13.0);
    if (rank == moved) assert_near(a[1], 2);
    if (rank == 1) assert_near(b[0], 6);
}

static void test_clip__ranks_add_squares(void **state)
{
    (void)state;
    for (int moved = 0; moved < 2; moved++) ranks_run(2, clip_shards, &moved);
}

static void clip_differently(int32_t rank, keel_comm *comm, void *context)
{
    (void)context;
    float x[] = {3, 4};
    const keel_tensor t = f32(x, 2);
    double norm = -7;
    assert_refused(keel_clip_global_norm(NULL, &t, 1, rank == 2 ? 2 : 1, comm, 0, &norm),
                   KEEL_ERR_PEER, "max_norm");
    assert_same_f64(norm, -7.0);
    assert_same_f32(x[0], 3.0f);
    x[0] = rank == 1 ? NAN : 3; /* one rank's NaN is every rank's */
    assert_ok(keel_clip_global_norm(NULL, &t, 1, 1, comm, 0, &norm));
    assert_true(isnan(norm));
    assert_same_f32(x[1], 4.0f);
}

static void test_clip__ranks_must_agree_on_the_limit(void **state)
{
    (void)state;
    ranks_run(3, clip_differently, NULL);
}

static void clip_alone(int32_t rank, keel_comm *comm, void *context)
{
    (void)context;
    float x[] = {3, 4};
    const keel_tensor t = f32(x, 2);
    double norm = -7;
    if (rank == 1) return;
    assert_refused(keel_clip_global_norm(NULL, &t, 1, 1, comm, 20000, &norm), KEEL_ERR_COMM, "");
    assert_same_f64(norm, -7.0);
    assert_same_f32(x[0], 3.0f);
}

static void test_clip__a_missing_rank_ends_at_the_deadline(void **state)
{
    (void)state;
    ranks_run(2, clip_alone, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clip__scales_all_by_one_factor),
        cmocka_unit_test(test_clip__below_the_threshold_nothing_is_written),
        cmocka_unit_test(test_clip__squares_of_f16_do_not_overflow),
        cmocka_unit_test(test_clip__range_of_squares),
        cmocka_unit_test(test_clip__degenerate_limits),
        cmocka_unit_test(test_clip__refuses_limits_that_are_none),
        cmocka_unit_test(test_clip__nan_touches_nothing),
        cmocka_unit_test(test_clip__coefficient_is_rounded_once),
        cmocka_unit_test(test_clip__mixed_formats_in_one_list),
        cmocka_unit_test(test_clip__scaled_gradients_keep_their_convention),
        cmocka_unit_test(test_clip__empty_lists_and_tensors),
        cmocka_unit_test(test_clip__refuses_a_bad_list_whole),
        cmocka_unit_test(test_clip__ranks_add_squares),
        cmocka_unit_test(test_clip__ranks_must_agree_on_the_limit),
        cmocka_unit_test(test_clip__a_missing_rank_ends_at_the_deadline),
    };
    return cmocka_run_group_tests_name("runtime.clip", tests, NULL, NULL);
}

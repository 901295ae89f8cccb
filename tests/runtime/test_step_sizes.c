/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Sizes, addresses and formats of the tensors of a step.
 *
 * "Empty tensors, no tensors, mixed formats in one list: all legal."  keel/tensor.h: "any
 * alignment".  "An element of a scaled format enters as fl32(decode * scale_inv)." */
#include <stdlib.h>

#include "bigsum.h"
#include "check.h"
#include "model.h"
#include "random.h"

enum { LARGEST = 65537, MANY = 10000 };

static const int64_t sizes[] = {0,   1,    31,   32,   33,    255,   256,
                                257, 1023, 1024, 1025, 65535, 65536, 65537};

static const keel_format formats[] = {KEEL_FORMAT_F32, KEEL_FORMAT_F16, KEEL_FORMAT_BF16,
                                      KEEL_FORMAT_E4M3, KEEL_FORMAT_E5M2};

static float entered[LARGEST]; /* the gradient as it should enter */

/* Gradients `shift` bytes off any alignment, with scale_inv; then norm and SGD, element by element.
 */
static void check_tensor(keel_format format, int64_t numel, int shift, float scale_inv)
{
    model m;
    random_source r = random_begin((uint64_t)numel);
    model_begin(&m);
    model_group(&m, KEEL_GROUP_SGD(1));
    keel_param *p = model_add(&m, format, numel);
    const size_t width = (size_t)keel_format_get(format)->storage_bytes;
    unsigned char *memory = malloc((size_t)numel * width + 8);
    assert_non_null(memory);
    void *const owned = p->grad.data;
    p->grad.data = memory + shift;
    p->grad.scale_inv = &scale_inv;
    for (int64_t i = 0; i < numel; i++) {
        model_set(p, i, random_unit(&r) * 8);
        entered[i] = model_get(&p->grad, i) * scale_inv;
    }
    model_create(&m);
    model_run(&m);
    assert_same_f64(model_report(&m).norm, bigsum_norm(entered, numel));
    assert_int_equal(model_report(&m).elements, numel);
    for (int64_t i = 0; i < numel; i++) assert_true(p->master[i] == -entered[i]);
    if (numel > 0) { /* the last element counts like any other */
        model_set(p, numel - 1, NAN);
        model_run(&m);
        assert_int_equal(model_report(&m).applied, 0);
        assert_int_equal(model_report(&m).local_index, numel - 1);
    }
    p->grad.data = owned;
    free(memory);
    model_end(&m);
}

static void test_step_sizes__around_tiles_and_vectors(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
            check_tensor(formats[f], sizes[s], 0, 1);
}

static void test_step_sizes__unaligned_and_scaled(void **state)
{
    (void)state;
    for (size_t s = 1; s < sizeof sizes / sizeof *sizes && sizes[s] < 2000; s++)
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
            for (int shift = 0; shift < 4; shift++)
                check_tensor(formats[f], sizes[s], shift, shift % 2 ? 0.3f : 1);
}

/* 10,000 tensors of every size from 0 to 7, in all formats. */
static void test_step_sizes__ten_thousand_tensors(void **state)
{
    (void)state;
    keel_param *params = calloc(MANY, sizeof *params);
    unsigned char *gradients = calloc(MANY, 8 * sizeof(float));
    float *masters = calloc(MANY, 8 * sizeof *masters);
    assert_true(params && gradients && masters);
    int64_t total = 0;
    for (int i = 0; i < MANY; i++) {
        keel_param *p = &params[i];
        *p = KEEL_PARAM_INIT;
        p->grad.data = gradients + (size_t)i * 8 * sizeof(float);
        p->grad.numel = i % 8;
        p->grad.format = formats[i % 5];
        p->master = masters + i * 8;
        for (int64_t j = 0; j < p->grad.numel; j++) model_set(p, j, (float)(i % 13 - 6));
        for (int64_t j = 0; j < p->grad.numel; j++) entered[total++] = (float)(i % 13 - 6);
    }
    const keel_group sgd = KEEL_GROUP_SGD(1);
    keel_config cfg = KEEL_CONFIG_INIT;
    cfg.groups = &sgd;
    cfg.group_count = 1;
    cfg.loss_scale.mode = KEEL_LOSS_SCALE_OFF;
    keel_step *step;
    keel_report r;
    assert_ok(keel_step_create(&cfg, params, MANY, NULL, 0, &step));
    assert_ok(keel_step_verify(step));
    assert_ok(keel_step_run(step, NULL));
    assert_ok(keel_step_report(step, 0, &r));
    assert_same_f64(r.norm, bigsum_norm(entered, total));
    assert_int_equal(r.elements, total);
    for (int i = 0; i < MANY; i++)
        for (int64_t j = 0; j < 8; j++)
            assert_true(masters[i * 8 + j] == (j < i % 8 ? -(float)(i % 13 - 6) : 0));
    keel_step_destroy(step);
    free(params);
    free(gradients);
    free(masters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_sizes__around_tiles_and_vectors),
        cmocka_unit_test(test_step_sizes__unaligned_and_scaled),
        cmocka_unit_test(test_step_sizes__ten_thousand_tensors),
    };
    return cmocka_run_group_tests_name("runtime.step_sizes", tests, NULL, NULL);
}

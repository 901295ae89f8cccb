/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The network of `keel train` against its definition in f64, written here without its code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../bench/autocast.h"
#include "../../bench/model.h" /* tests/support has one as well */

enum { ROWS = 16 };

typedef struct fixture {
    digits data;
    model_work work;
    float params[MODEL_PARAMS], grads[MODEL_PARAMS], other[MODEL_PARAMS];
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f || !digits_load(&f->data)) return -1;
    f->work.hook.product = product_f32;
    model_init(f->params, 3);
    for (int i = 0; i < model_tensors[1].count; i++) { /* biases that matter */
        f->params[model_tensors[1].offset + i] = 0.01F * (float)(i % 7 - 3);
    }
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

static keel_status run(fixture *f, float loss_scale, float *grads)
{
    const keel_status status = model_forward(&f->work, f->params, f->data.pixels[0], ROWS);
    if (status != KEEL_OK) return status;
    return model_backward(&f->work, f->params, f->data.labels, ROWS, loss_scale, grads);
}

/* With products in the format of a recipe. */
static keel_status backward(fixture *f, const char *name, float loss_scale, float *grads)
{
    keel_recipe recipe;
    assert_int_equal(keel_recipe_find(name, &recipe), KEEL_OK);
    autocast *cast =
        autocast_create(&recipe, model_places, MODEL_LAYERS, MODEL_ROWS_MAX * MODEL_WIDTH);
    assert_non_null(cast);
    f->work.hook = autocast_hook(cast);
    const keel_status status = run(f, loss_scale, grads);
    autocast_destroy(cast);
    return status;
}

/* ---- the definition ---- */

static void dense(const double *w, const double *b, const double *in, int inputs, int outputs,
                  double *out)
{
    for (int o = 0; o < outputs; o++) {
        out[o] = b[o];
        for (int i = 0; i < inputs; i++) out[o] += in[i] * w[i * outputs + o];
    }
}

static double row_loss(const double *p, const float *pixels, int label)
{
    double x[64], h1[128], h2[128], z[10], sum = 0;
    for (int i = 0; i < 64; i++) x[i] = (double)pixels[i];
    dense(p, p + 8192, x, 64, 128, h1);
    for (int i = 0; i < 128; i++) h1[i] = fmax(h1[i], 0);
    dense(p + 8320, p + 24704, h1, 128, 128, h2);
    for (int i = 0; i < 128; i++) h2[i] = fmax(h2[i], 0);
    dense(p + 24832, p + 26112, h2, 128, 10, z);
    for (int i = 0; i < 10; i++) sum += exp(z[i]);
    return log(sum) - z[label];
}

static double mean_loss(const fixture *f, const double *p)
{
    double sum = 0;
    for (int r = 0; r < ROWS; r++) sum += row_loss(p, f->data.pixels[r], f->data.labels[r]);
    return sum / ROWS;
}

/* ---- tests ---- */

static void test_model__loss_is_the_mean_cross_entropy(void **state)
{
    fixture *f = *state;
    static double p[MODEL_PARAMS];
    for (int i = 0; i < MODEL_PARAMS; i++) p[i] = (double)f->params[i];
    assert_int_equal(model_forward(&f->work, f->params, f->data.pixels[0], ROWS), KEEL_OK);
    const double loss = (double)model_loss(&f->work, f->data.labels, ROWS);
    assert_true(fabs(loss - mean_loss(f, p)) < 1e-5);
}

/* Every tensor, at elements spread over it, against central differences of the definition. */
static void test_model__gradient_is_the_slope_of_the_loss(void **state)
{
    fixture *f = *state;
    static double p[MODEL_PARAMS];
    const double h = 1e-6;
    for (int i = 0; i < MODEL_PARAMS; i++) p[i] = (double)f->params[i];
    assert_int_equal(backward(f, "f32", 1, f->grads), KEEL_OK);
    for (int t = 0; t < MODEL_TENSORS; t++) {
        const int stride = model_tensors[t].count / 40 + 1;
        for (int k = 0; k < model_tensors[t].count; k += stride) {
            const int i = model_tensors[t].offset + k;
            const double kept = p[i];
            p[i] = kept + h;
            const double above = mean_loss(f, p);
            p[i] = kept - h;
            const double slope = (above - mean_loss(f, p)) / (2 * h);
            p[i] = kept;
            const double seen = (double)f->grads[i];
            if (!(fabs(seen - slope) < 1e-5 + 1e-4 * fabs(slope))) {
                fail_msg("%s[%d]: %g, slope %g", model_tensors[t].name, k, seen, slope);
            }
        }
    }
}

static void test_model__tensors_fill_the_parameters(void **state)
{
    (void)state;
    int end = 0;
    for (int t = 0; t < MODEL_TENSORS; t++) {
        assert_int_equal(model_tensors[t].offset, end);
        assert_int_equal(model_tensors[t].decays, model_tensors[t].name[0] == 'w');
        end += model_tensors[t].count;
    }
    assert_int_equal(end, MODEL_PARAMS);
}

/* A loss scale of a power of two changes exponents only, as long as nothing leaves the format. */
static void test_model__loss_scale_multiplies_the_gradient(void **state)
{
    fixture *f = *state;
    assert_int_equal(backward(f, "f32", 1, f->grads), KEEL_OK);
    assert_int_equal(backward(f, "f32", 1024, f->other), KEEL_OK);
    for (int i = 0; i < MODEL_PARAMS; i++) assert_true(f->other[i] == 1024 * f->grads[i]);
}

/* A recipe's format leaves its mark: another gradient than in f32, and not by much. */
static void test_model__products_are_in_the_format(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"bf16", "f16", "mxfp8"};
    assert_int_equal(run(f, 1024, f->grads), KEEL_OK);
    double norm = 0;
    for (int i = 0; i < MODEL_PARAMS; i++) norm += (double)f->grads[i] * (double)f->grads[i];
    for (int k = 0; k < 3; k++) {
        double off = 0;
        assert_int_equal(backward(f, names[k], 1024, f->other), KEEL_OK);
        for (int i = 0; i < MODEL_PARAMS; i++) {
            const double d = (double)f->other[i] - (double)f->grads[i];
            off += d * d;
        }
        assert_true(off > 0 && off < 0.05 * norm);
    }
}

/* Without a scale, part of the gradient is too small for f16 and is lost; with one, less is. */
static void test_model__f16_needs_a_scale(void **state)
{
    fixture *f = *state;
    int lost[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        assert_int_equal(backward(f, "f16", k ? 4096 : 0x1p-16F, f->grads), KEEL_OK);
        for (int i = 0; i < MODEL_PARAMS; i++) lost[k] += f->grads[i] == 0;
    }
    assert_true(lost[1] < lost[0]);
}

/* A gradient above the range is infinite, not clamped: the step is to see it. */
static void test_model__overflow_stays_visible(void **state)
{
    fixture *f = *state;
    assert_int_equal(backward(f, "f16", 0x1p30F, f->grads), KEEL_OK);
    int bad = 0;
    for (int i = 0; i < MODEL_PARAMS; i++) bad += !isfinite(f->grads[i]);
    assert_true(bad > 0);
}

/* A ReLU by maximum would turn NaN into 0 and train on. */
static void test_model__nan_reaches_the_loss(void **state)
{
    fixture *f = *state;
    f->params[0] = NAN;
    assert_int_equal(model_forward(&f->work, f->params, f->data.pixels[0], ROWS), KEEL_OK);
    assert_true(isnan(model_loss(&f->work, f->data.labels, ROWS)));
    assert_int_equal(model_hits(&f->work, f->data.labels, ROWS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model__loss_is_the_mean_cross_entropy, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_model__gradient_is_the_slope_of_the_loss, set_up,
                                        tear_down),
        cmocka_unit_test(test_model__tensors_fill_the_parameters),
        cmocka_unit_test_setup_teardown(test_model__loss_scale_multiplies_the_gradient, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_model__products_are_in_the_format, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_model__f16_needs_a_scale, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_model__overflow_stays_visible, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_model__nan_reaches_the_loss, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

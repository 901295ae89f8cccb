/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The transformer against its definition in f64, written here one position at a time and without
 * its code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpt.h"

enum { LAYERS = 2, WIDTH = 12, HEADS = 3, CONTEXT = 7, SIZE = WIDTH / HEADS, SEQUENCES = 3 };
enum { TOKENS = SEQUENCES * (CONTEXT + 1), WIDE = 4 * WIDTH };

static const gpt_config tiny = {LAYERS, WIDTH, HEADS, CONTEXT};

typedef struct fixture {
    gpt *g;
    gpt_tensor tensors[GPT_TENSORS_MAX];
    int tensor_count, param_count;
    float *params, *grad, *other;
    double *exact;
    uint8_t tokens[TOKENS];
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f || !(f->g = gpt_create(&tiny, SEQUENCES, NULL))) return -1;
    f->tensor_count = gpt_tensors(&tiny, f->tensors);
    f->param_count = gpt_param_count(&tiny);
    const size_t count = (size_t)f->param_count;
    f->params = malloc(count * sizeof *f->params);
    f->grad = malloc(count * sizeof *f->grad);
    f->other = malloc(count * sizeof *f->other);
    f->exact = malloc(count * sizeof *f->exact);
    if (!f->params || !f->grad || !f->other || !f->exact) return -1;
    gpt_init(&tiny, f->params, 5);
    /* Gains that differ, and embeddings and a head large enough to matter. */
    for (int i = 0; i < f->param_count; i++) {
        const float value = f->params[i];
        f->params[i] = value == 1 ? 0.8F + 0.05F * (float)(i % 9) : 4 * value;
        f->exact[i] = (double)f->params[i];
    }
    for (int i = 0; i < TOKENS; i++) f->tokens[i] = (uint8_t)(i * i * 7 + i % 5 * 31);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    gpt_destroy(f->g);
    free(f->params);
    free(f->grad);
    free(f->other);
    free(f->exact);
    free(f);
    return 0;
}

static float shard(fixture *f, float loss_scale, float *grad)
{
    float loss;
    assert_int_equal(gpt_shard(f->g, f->params, f->tokens, SEQUENCES, loss_scale, grad, &loss),
                     KEEL_OK);
    return loss;
}

/* ---- the definition ---- */

static int tensor_named(const fixture *f, const char *name)
{
    for (int i = 0; i < f->tensor_count; i++)
        if (strcmp(f->tensors[i].name, name) == 0) return i;
    fail_msg("no tensor %s", name);
    return -1;
}

static const double *find(const fixture *f, int layer, const char *part)
{
    char name[24];
    if (layer < 0)
        snprintf(name, sizeof name, "%s", part);
    else
        snprintf(name, sizeof name, "layers.%d.%s", layer, part);
    return f->exact + f->tensors[tensor_named(f, name)].offset;
}

static void norm(const double *x, const double *gain, double *out)
{
    double square = 0;
    for (int i = 0; i < WIDTH; i++) square += x[i] * x[i];
    for (int i = 0; i < WIDTH; i++) out[i] = x[i] / sqrt(square / WIDTH + 1e-5) * gain[i];
}

static void multiply(const double *x, const double *w, int inputs, int outputs, double *out)
{
    for (int o = 0; o < outputs; o++) {
        out[o] = 0;
        for (int i = 0; i < inputs; i++) out[o] += x[i] * w[i * outputs + o];
    }
}

/* What head h of position t sees: qkv holds queries, keys and values of all positions so far. */
static void look_back(double qkv[CONTEXT][3 * WIDTH], int t, int h, double *out)
{
    double weight[CONTEXT], sum = 0;
    for (int s = 0; s <= t; s++) {
        double dot = 0;
        for (int i = h * SIZE; i < (h + 1) * SIZE; i++) dot += qkv[t][i] * qkv[s][WIDTH + i];
        weight[s] = exp(dot / sqrt(SIZE));
        sum += weight[s];
    }
    for (int i = 0; i < SIZE; i++) {
        out[i] = 0;
        for (int s = 0; s <= t; s++) out[i] += weight[s] / sum * qkv[s][2 * WIDTH + h * SIZE + i];
    }
}

static void one_layer(const fixture *f, int l, double x[CONTEXT][WIDTH])
{
    double qkv[CONTEXT][3 * WIDTH], in[WIDTH], seen[WIDTH], part[WIDTH], hidden[WIDE];
    for (int t = 0; t < CONTEXT; t++) {
        norm(x[t], find(f, l, "norm1"), in);
        multiply(in, find(f, l, "qkv"), WIDTH, 3 * WIDTH, qkv[t]);
    }
    for (int t = 0; t < CONTEXT; t++) {
        for (int h = 0; h < HEADS; h++) look_back(qkv, t, h, seen + h * SIZE);
        multiply(seen, find(f, l, "proj"), WIDTH, WIDTH, part);
        for (int i = 0; i < WIDTH; i++) x[t][i] += part[i];
        norm(x[t], find(f, l, "norm2"), in);
        multiply(in, find(f, l, "up"), WIDTH, WIDE, hidden);
        for (int i = 0; i < WIDE; i++) hidden[i] = hidden[i] > 0 ? hidden[i] * hidden[i] : 0;
        multiply(hidden, find(f, l, "down"), WIDE, WIDTH, part);
        for (int i = 0; i < WIDTH; i++) x[t][i] += part[i];
    }
}

static double sequence_loss(const fixture *f, const uint8_t *bytes)
{
    double x[CONTEXT][WIDTH], in[WIDTH], logits[256], loss = 0;
    for (int t = 0; t < CONTEXT; t++) {
        const double *token = find(f, -1, "tokens") + bytes[t] * WIDTH;
        const double *position = find(f, -1, "positions") + t * WIDTH;
        for (int i = 0; i < WIDTH; i++) x[t][i] = token[i] + position[i];
    }
    for (int l = 0; l < LAYERS; l++) one_layer(f, l, x);
    for (int t = 0; t < CONTEXT; t++) {
        double sum = 0;
        norm(x[t], find(f, -1, "norm"), in);
        multiply(in, find(f, -1, "head"), WIDTH, 256, logits);
        for (int i = 0; i < 256; i++) sum += exp(logits[i]);
        loss += log(sum) - logits[bytes[t + 1]];
    }
    return loss;
}

static double mean_loss(const fixture *f)
{
    double sum = 0;
    for (int s = 0; s < SEQUENCES; s++) sum += sequence_loss(f, f->tokens + s * (CONTEXT + 1));
    return sum / (SEQUENCES * CONTEXT);
}

/* ---- tests ---- */

static void test_gpt__loss_is_the_mean_cross_entropy(void **state)
{
    fixture *f = *state;
    const double want = mean_loss(f);
    assert_true(fabs((double)shard(f, 1, f->grad) - want) < 2e-6 * want);
}

static double slope_at(fixture *f, int i)
{
    const double h = 1e-6, kept = f->exact[i];
    f->exact[i] = kept + h;
    const double above = mean_loss(f);
    f->exact[i] = kept - h;
    const double below = mean_loss(f);
    f->exact[i] = kept;
    return (above - below) / (2 * h);
}

static double largest_of(const float *x, int count)
{
    double top = 0;
    for (int i = 0; i < count; i++) top = fmax(top, fabs((double)x[i]));
    return top;
}

/* Every tensor, at elements spread over it; embeddings of bytes that occur among them.  An error of
 * f32 is judged by the largest element of a tensor. */
static void test_gpt__gradient_is_the_slope_of_the_loss(void **state)
{
    fixture *f = *state;
    shard(f, 1, f->grad);
    for (int t = 0; t < f->tensor_count; t++) {
        const gpt_tensor *tensor = &f->tensors[t];
        const int stride = tensor->count / 60 + 1;
        const double allowed = 5e-6 * largest_of(f->grad + tensor->offset, tensor->count);
        int moved = 0;
        for (int k = 0; k < tensor->count; k += stride) {
            const int token_at = f->tokens[k % TOKENS] * WIDTH + k % WIDTH;
            const int i = tensor->offset + (t == 0 ? token_at : k);
            const double slope = slope_at(f, i), seen = (double)f->grad[i];
            moved += fabs(slope) > 1e-5;
            if (!(fabs(seen - slope) < allowed + 1e-5 * fabs(slope)))
                fail_msg("%s[%d]: %g, slope %g", tensor->name, i - tensor->offset, seen, slope);
        }
        if (moved < 5) fail_msg("%s: only %d elements matter", tensor->name, moved);
    }
}

static void test_gpt__a_byte_that_does_not_occur_has_no_gradient(void **state)
{
    fixture *f = *state;
    shard(f, 1, f->grad);
    for (int byte = 0; byte < 256; byte++) {
        bool occurs = false, moves = false;
        for (int i = 0; i < TOKENS; i++)
            occurs |= i % (CONTEXT + 1) < CONTEXT && f->tokens[i] == byte;
        for (int i = 0; i < WIDTH; i++) moves |= f->grad[byte * WIDTH + i] != 0;
        assert_int_equal(moves, occurs);
    }
}

/* A loss scale of a power of two changes exponents only. */
static void test_gpt__loss_scale_multiplies_the_gradient(void **state)
{
    fixture *f = *state;
    shard(f, 1, f->grad);
    shard(f, 1024, f->other);
    for (int i = 0; i < f->param_count; i++) assert_true(f->other[i] == 1024 * f->grad[i]);
}

static void test_gpt__evaluate_gives_the_loss_of_shard(void **state)
{
    fixture *f = *state;
    float loss;
    assert_int_equal(gpt_evaluate(f->g, f->params, f->tokens, SEQUENCES, &loss), KEEL_OK);
    assert_true(loss == shard(f, 1, f->grad));
}

static void test_gpt__nan_and_infinity_reach_loss_and_gradient(void **state)
{
    fixture *f = *state;
    for (int t = 0; t < f->tensor_count; t++) {
        const float bad[] = {NAN, INFINITY};
        const int i =
            f->tensors[t].offset + (t == 0 ? f->tokens[3] * WIDTH : f->tensors[t].count / 3);
        const float kept = f->params[i];
        for (int k = 0; k < 2; k++) {
            f->params[i] = bad[k];
            const float loss = shard(f, 1, f->grad);
            int count = 0;
            for (int p = 0; p < f->param_count; p++) count += !isfinite(f->grad[p]);
            if (isfinite(loss) || count == 0)
                fail_msg("%s = %g: loss %g, %d bad", f->tensors[t].name, (double)bad[k],
                         (double)loss, count);
        }
        f->params[i] = kept;
    }
}

/* The same shard anywhere: another object, larger, with other work behind it. */
static void test_gpt__same_shard_gives_the_same_bits(void **state)
{
    fixture *f = *state;
    gpt *g = gpt_create(&tiny, 9, NULL);
    float loss;
    assert_non_null(g);
    assert_int_equal(gpt_shard(g, f->params, f->tokens + 8, 2, 64, f->other, &loss), KEEL_OK);
    assert_int_equal(gpt_shard(g, f->params, f->tokens, SEQUENCES, 1, f->other, &loss), KEEL_OK);
    gpt_destroy(g);
    const float here = shard(f, 1, f->grad);
    assert_memory_equal(&here, &loss, sizeof here);
    assert_memory_equal(f->grad, f->other, (size_t)f->param_count * sizeof *f->grad);
}

static void test_gpt__more_sequences_than_created_for_are_refused(void **state)
{
    fixture *f = *state;
    float loss = 7;
    const int bad[] = {0, SEQUENCES + 1};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gpt_evaluate(f->g, f->params, f->tokens, bad[i], &loss), KEEL_ERR_INVALID);
        assert_true(loss == 7);
    }
}

int main(void)
{
#define ROW(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ROW(test_gpt__loss_is_the_mean_cross_entropy),
        ROW(test_gpt__gradient_is_the_slope_of_the_loss),
        ROW(test_gpt__a_byte_that_does_not_occur_has_no_gradient),
        ROW(test_gpt__loss_scale_multiplies_the_gradient),
        ROW(test_gpt__evaluate_gives_the_loss_of_shard),
        ROW(test_gpt__nan_and_infinity_reach_loss_and_gradient),
        ROW(test_gpt__same_shard_gives_the_same_bits),
        ROW(test_gpt__more_sequences_than_created_for_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

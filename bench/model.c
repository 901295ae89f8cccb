/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The network.  All matrices are row-major, a weight matrix is [inputs][outputs]; one product with
 * a free stride serves forward, weight gradients and input gradients, and its innermost loop runs
 * over independent elements, so that it vectorises without reordering a sum. */
#include "model.h"

#include <math.h>
#include <string.h>

#include "rng.h"

typedef struct layer {
    int inputs, outputs;
    int weights, bias; /* index into model_tensors */
} layer;

static const layer layers[MODEL_LAYERS] = {
    {DIGITS_PIXELS, 128, 0, 1},
    {128, 128, 2, 3},
    {128, DIGITS_CLASSES, 4, 5},
};

const model_tensor model_tensors[MODEL_TENSORS] = {
    {"w1", 0, 64 * 128, true}, {"b1", 8192, 128, false},      {"w2", 8320, 128 * 128, true},
    {"b2", 24704, 128, false}, {"w3", 24832, 128 * 10, true}, {"b3", 26112, 10, false},
};

static int offset_of(int tensor)
{
    return model_tensors[tensor].offset;
}

void model_init(float params[MODEL_PARAMS], uint64_t seed)
{
    memset(params, 0, MODEL_PARAMS * sizeof *params);
    for (int l = 0; l < MODEL_LAYERS; l++) {
        const model_tensor *w = &model_tensors[layers[l].weights];
        const double bound = sqrt(6.0 / layers[l].inputs);
        for (int i = w->offset; i < w->offset + w->count; i++) {
            params[i] = (float)(bound * (2 * rng_uniform(seed, (uint64_t)i) - 1));
        }
    }
}

keel_status model_round(keel_format format, float *x, int count, uint16_t *codes)
{
    if (format == KEEL_FORMAT_F32) return KEEL_OK;
    const keel_tensor wide = {.data = x, .numel = count, .format = KEEL_FORMAT_F32};
    const keel_tensor narrow = {.data = codes, .numel = count, .format = format};
    const keel_status status = keel_quantize(NULL, &wide, &narrow, NULL, NULL, NULL);
    return status == KEEL_OK ? keel_dequantize(NULL, &narrow, x, NULL) : status;
}

/* c[m][n] += sum over k of a(m, k) * b[k][n], k ascending; a(m, k) = a[m * a_row + k * a_col]. */
static void add_product(int m_count, int n_count, int k_count, const float *restrict a, int a_row,
                        int a_col, const float *restrict b, float *restrict c)
{
    for (int m = 0; m < m_count; m++) {
        for (int k = 0; k < k_count; k++) {
            const float factor = a[m * a_row + k * a_col];
            for (int n = 0; n < n_count; n++) c[m * n_count + n] += factor * b[k * n_count + n];
        }
    }
}

/* ---- forward ---- */

/* NaN passes: a ReLU made of a maximum would hide it. */
static void rectify(float *x, int count)
{
    for (int i = 0; i < count; i++) x[i] = x[i] < 0 ? 0 : x[i];
}

static void apply_layer(const layer *l, const float *params, const float *in, int rows, float *out)
{
    const float *bias = params + offset_of(l->bias);
    for (int r = 0; r < rows; r++) {
        memcpy(out + r * l->outputs, bias, (size_t)l->outputs * sizeof *out);
    }
    add_product(rows, l->outputs, l->inputs, in, l->inputs, 1, params + offset_of(l->weights), out);
}

keel_status model_forward(model_work *work, const float *params, const float *pixels, int rows,
                          keel_format format)
{
    memcpy(work->in[0], pixels, (size_t)(rows * DIGITS_PIXELS) * sizeof *pixels);
    for (int l = 0; l < MODEL_LAYERS; l++) {
        float *out = work->in[l + 1];
        apply_layer(&layers[l], params, work->in[l], rows, out);
        if (l == MODEL_LAYERS - 1) break;
        rectify(out, rows * layers[l].outputs);
        const keel_status status = model_round(format, out, rows * layers[l].outputs, work->codes);
        if (status != KEEL_OK) return status;
    }
    return KEEL_OK;
}

static const float *logits_of(const model_work *work, int row)
{
    return work->in[MODEL_LAYERS] + row * DIGITS_CLASSES;
}

static int largest(const float *logits)
{
    int best = 0;
    for (int i = 1; i < DIGITS_CLASSES; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

/* exp(logits - largest) and their sum: the softmax before its division. */
static float exponentials(const float *logits, float out[DIGITS_CLASSES])
{
    const float top = logits[largest(logits)];
    float sum = 0;
    for (int i = 0; i < DIGITS_CLASSES; i++) {
        out[i] = expf(logits[i] - top);
        sum += out[i];
    }
    return sum;
}

float model_loss(const model_work *work, const uint8_t *labels, int rows)
{
    float loss = 0;
    for (int r = 0; r < rows; r++) {
        const float *logits = logits_of(work, r);
        float powers[DIGITS_CLASSES];
        const float sum = exponentials(logits, powers);
        loss += logf(sum) + (logits[largest(logits)] - logits[labels[r]]);
    }
    return loss / (float)rows;
}

int model_hits(const model_work *work, const uint8_t *labels, int rows)
{
    int hits = 0;
    for (int r = 0; r < rows; r++) {
        const float *logits = logits_of(work, r);
        const int guess = largest(logits);
        hits += isfinite(logits[guess]) && guess == labels[r];
    }
    return hits;
}

/* ---- backward ---- */

static void loss_slope(const model_work *work, const uint8_t *labels, int rows, float loss_scale,
                       float *slope)
{
    const float factor = loss_scale / (float)rows;
    for (int r = 0; r < rows; r++) {
        float powers[DIGITS_CLASSES];
        const float sum = exponentials(logits_of(work, r), powers);
        for (int i = 0; i < DIGITS_CLASSES; i++) {
            const float wanted = i == labels[r] ? 1 : 0;
            slope[r * DIGITS_CLASSES + i] = (powers[i] / sum - wanted) * factor;
        }
    }
}

static void parameter_gradients(const layer *l, const float *in, const float *slope, int rows,
                                float *grads)
{
    float *bias = grads + offset_of(l->bias);
    add_product(l->inputs, l->outputs, rows, in, 1, l->inputs, slope,
                grads + offset_of(l->weights));
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < l->outputs; i++) bias[i] += slope[r * l->outputs + i];
    }
}

/* Through the weights, then through the ReLU that made this layer's input. */
static void input_slope(const layer *l, model_work *work, const float *params, const float *in,
                        const float *slope, int rows, float *out)
{
    const float *w = params + offset_of(l->weights);
    for (int i = 0; i < l->inputs; i++) {
        for (int k = 0; k < l->outputs; k++)
            work->turned[k * l->inputs + i] = w[i * l->outputs + k];
    }
    memset(out, 0, (size_t)(rows * l->inputs) * sizeof *out);
    add_product(rows, l->inputs, l->outputs, slope, l->outputs, 1, work->turned, out);
    for (int i = 0; i < rows * l->inputs; i++) out[i] = in[i] == 0 ? 0 : out[i];
}

keel_status model_backward(model_work *work, const float *params, const uint8_t *labels, int rows,
                           keel_format format, float loss_scale, float grads[MODEL_PARAMS])
{
    memset(grads, 0, MODEL_PARAMS * sizeof *grads);
    loss_slope(work, labels, rows, loss_scale, work->slope[0]);
    for (int l = MODEL_LAYERS - 1; l >= 0; l--) {
        float *slope = work->slope[(MODEL_LAYERS - 1 - l) % 2];
        float *next = work->slope[(MODEL_LAYERS - l) % 2];
        const keel_status status =
            model_round(format, slope, rows * layers[l].outputs, work->codes);
        if (status != KEEL_OK) return status;
        parameter_gradients(&layers[l], work->in[l], slope, rows, grads);
        if (l > 0) input_slope(&layers[l], work, params, work->in[l], slope, rows, next);
    }
    return model_round(format, grads, MODEL_PARAMS, work->codes);
}

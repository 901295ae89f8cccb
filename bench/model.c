/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The network.  All matrices are row-major, a weight matrix is [inputs][outputs]. */
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

const product_place model_places[MODEL_LAYERS] = {
    {"w1", KEEL_OP_LINEAR, 0},
    {"w2", KEEL_OP_LINEAR, 1},
    {"w3", KEEL_OP_HEAD, 2},
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

/* A product of layer l; roles follow from the sides. */
static keel_status run(model_work *work, int l, product_operand a, product_operand b, float *d,
                       int m, int n, int k, bool accumulate)
{
    const product p = {.place = &model_places[l],
                       .place_index = l,
                       .a = a,
                       .b = b,
                       .d = d,
                       .m = m,
                       .n = n,
                       .k = k,
                       .batch = 1,
                       .accumulate = accumulate};
    return work->hook.product(work->hook.context, &p);
}

static product_operand input_of(const float *data, bool transposed)
{
    return (product_operand){data, KEEL_OPERAND_INPUT, PRODUCT_LEFT, transposed};
}

static product_operand weight_of(const float *params, int l, bool transposed)
{
    return (product_operand){params + offset_of(layers[l].weights), KEEL_OPERAND_WEIGHT,
                             PRODUCT_RIGHT, transposed};
}

static product_operand slope_of(const float *data)
{
    return (product_operand){data, KEEL_OPERAND_GRADIENT, PRODUCT_BACK, false};
}

/* ---- forward ---- */

/* NaN passes: a ReLU made of a maximum would hide it. */
static void rectify(float *x, int count)
{
    for (int i = 0; i < count; i++) x[i] = x[i] < 0 ? 0 : x[i];
}

static keel_status apply_layer(model_work *work, int l, const float *params, int rows)
{
    const float *bias = params + offset_of(layers[l].bias);
    const int outputs = layers[l].outputs;
    float *out = work->in[l + 1];
    for (int r = 0; r < rows; r++) memcpy(out + r * outputs, bias, (size_t)outputs * sizeof *out);
    return run(work, l, input_of(work->in[l], false), weight_of(params, l, false), out, rows,
               outputs, layers[l].inputs, true);
}

keel_status model_forward(model_work *work, const float *params, const float *pixels, int rows)
{
    memcpy(work->in[0], pixels, (size_t)(rows * DIGITS_PIXELS) * sizeof *pixels);
    for (int l = 0; l < MODEL_LAYERS; l++) {
        const keel_status status = apply_layer(work, l, params, rows);
        if (status != KEEL_OK) return status;
        if (l < MODEL_LAYERS - 1) rectify(work->in[l + 1], rows * layers[l].outputs);
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

static keel_status parameter_gradients(model_work *work, int l, const float *slope, int rows,
                                       float *grads)
{
    const layer *at = &layers[l];
    float *bias = grads + offset_of(at->bias);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < at->outputs; i++) bias[i] += slope[r * at->outputs + i];
    return run(work, l, input_of(work->in[l], true), slope_of(slope),
               grads + offset_of(at->weights), at->inputs, at->outputs, rows, false);
}

/* Through the weights, then through the ReLU that made this layer's input. */
static keel_status input_slope(model_work *work, int l, const float *params, const float *slope,
                               int rows, float *out)
{
    const int inputs = layers[l].inputs, count = rows * inputs;
    const keel_status status = run(work, l, slope_of(slope), weight_of(params, l, true), out, rows,
                                   inputs, layers[l].outputs, false);
    for (int i = 0; i < count; i++) out[i] = work->in[l][i] == 0 ? 0 : out[i];
    return status;
}

keel_status model_backward(model_work *work, const float *params, const uint8_t *labels, int rows,
                           float loss_scale, float grads[MODEL_PARAMS])
{
    memset(grads, 0, MODEL_PARAMS * sizeof *grads);
    loss_slope(work, labels, rows, loss_scale, work->slope[0]);
    for (int l = MODEL_LAYERS - 1; l >= 0; l--) {
        float *slope = work->slope[(MODEL_LAYERS - 1 - l) % 2];
        float *next = work->slope[(MODEL_LAYERS - l) % 2];
        keel_status status = parameter_gradients(work, l, slope, rows, grads);
        if (!status && l > 0) status = input_slope(work, l, params, slope, rows, next);
        if (status) return status;
    }
    return KEEL_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The transformer from the logits' slope to the gradient.  g->dx is the slope by the residual
 * stream, from the last layer down to the embeddings; every tensor's gradient is written once. */
#include <math.h>
#include <string.h>

#include "gpt_math.h"
#include "gpt_work.h"

/* For out = x * w: dx = dout * w^T, dw = x^T * dout. */
static keel_status linear_back(const gpt_call *c, gpt_linear l, const float *x, const float *dout,
                               float *dx)
{
    const keel_status status =
        gpt_run(c, l.place, 1,
                (product){.a = {dout, KEEL_OPERAND_GRADIENT, PRODUCT_BACK, false},
                          .b = {gpt_param(c, l.tensor), KEEL_OPERAND_WEIGHT, PRODUCT_RIGHT, true},
                          .d = dx,
                          .m = c->rows,
                          .n = l.inputs,
                          .k = l.outputs});
    if (status) return status;
    return gpt_run(c, l.place, 1,
                   (product){.a = {x, KEEL_OPERAND_INPUT, PRODUCT_LEFT, true},
                             .b = {dout, KEEL_OPERAND_GRADIENT, PRODUCT_BACK, false},
                             .d = gpt_grad(c, l.tensor),
                             .m = l.inputs,
                             .n = l.outputs,
                             .k = c->rows});
}

static void norm_back(const gpt_call *c, int tensor, const float *x, const float *dout)
{
    gpt_norm_back(x, gpt_param(c, tensor), dout, c->rows, c->g->config.width, c->g->dx,
                  gpt_grad(c, tensor));
}

static keel_status perceptron_back(const gpt_call *c, int layer)
{
    gpt *g = c->g;
    const gpt_layer *w = &g->layers[layer];
    keel_status status =
        linear_back(c, gpt_linear_at(g, layer, GPT_PLACE_DOWN), w->active, g->dx, g->wide);
    if (status) return status;
    gpt_square_relu_back(w->up, (int64_t)c->rows * g->config.width * GPT_MLP, g->wide);
    status = linear_back(c, gpt_linear_at(g, layer, GPT_PLACE_UP), w->norm2, g->wide, g->narrow);
    if (status) return status;
    norm_back(c, gpt_tensor_index(layer, GPT_NORM2), w->middle, g->narrow);
    return KEEL_OK;
}

/* Slopes by probabilities, into g->scores, and by values. */
static keel_status values_back(const gpt_call *c, int layer)
{
    const gpt *g = c->g;
    const gpt_layer *w = &g->layers[layer];
    const int place = layer * GPT_LAYER_PLACES + GPT_PLACE_VALUES;
    const int squares = c->sequences * g->config.heads;
    const int side = g->config.context, size = g->config.width / g->config.heads;
    const product_operand back = {g->head_out, KEEL_OPERAND_GRADIENT, PRODUCT_BACK, false};
    const keel_status status =
        gpt_run(c, place, squares,
                (product){.a = back,
                          .b = {w->heads[GPT_VALUE], KEEL_OPERAND_INPUT, PRODUCT_RIGHT, true},
                          .d = g->scores,
                          .m = side,
                          .n = side,
                          .k = size});
    if (status) return status;
    return gpt_run(c, place, squares,
                   (product){.a = {w->probabilities, KEEL_OPERAND_INPUT, PRODUCT_LEFT, true},
                             .b = back,
                             .d = g->heads[GPT_VALUE],
                             .m = side,
                             .n = size,
                             .k = side});
}

/* Slopes by queries and keys. */
static keel_status scores_back(const gpt_call *c, int layer)
{
    const gpt *g = c->g;
    const gpt_layer *w = &g->layers[layer];
    const int place = layer * GPT_LAYER_PLACES + GPT_PLACE_SCORES;
    const int squares = c->sequences * g->config.heads;
    const int side = g->config.context, size = g->config.width / g->config.heads;
    const keel_status status =
        gpt_run(c, place, squares,
                (product){.a = {g->scores, KEEL_OPERAND_GRADIENT, PRODUCT_BACK, false},
                          .b = {w->heads[GPT_KEY], KEEL_OPERAND_INPUT, PRODUCT_RIGHT, false},
                          .d = g->heads[GPT_QUERY],
                          .m = side,
                          .n = size,
                          .k = side});
    if (status) return status;
    return gpt_run(c, place, squares,
                   (product){.a = {g->scores, KEEL_OPERAND_GRADIENT, PRODUCT_BACK, true},
                             .b = {w->heads[GPT_QUERY], KEEL_OPERAND_INPUT, PRODUCT_LEFT, false},
                             .d = g->heads[GPT_KEY],
                             .m = side,
                             .n = size,
                             .k = side});
}

static keel_status attention_back(const gpt_call *c, int layer)
{
    gpt *g = c->g;
    const gpt_layer *w = &g->layers[layer];
    const int side = g->config.context, size = g->config.width / g->config.heads;
    keel_status status =
        linear_back(c, gpt_linear_at(g, layer, GPT_PLACE_PROJ), w->merged, g->dx, g->narrow);
    if (status) return status;
    gpt_split_heads(c, g->narrow, 1, &g->head_out);
    status = values_back(c, layer);
    if (status) return status;
    gpt_softmax_back(w->probabilities, 1 / sqrtf((float)size), c->sequences * g->config.heads, side,
                     g->scores);
    status = scores_back(c, layer);
    if (status) return status;
    gpt_merge_heads(c, g->heads, GPT_KINDS, g->wide);
    status = linear_back(c, gpt_linear_at(g, layer, GPT_PLACE_QKV), w->norm1, g->wide, g->narrow);
    if (status) return status;
    norm_back(c, gpt_tensor_index(layer, GPT_NORM1), w->in, g->narrow);
    return KEEL_OK;
}

static void embed_back(const gpt_call *c)
{
    const gpt_config *config = &c->g->config;
    float *tokens = gpt_grad(c, 0), *positions = gpt_grad(c, 1);
    const float *dx = c->g->dx;
    for (int m = 0; m < c->rows; m++, dx += config->width) {
        float *token = tokens + c->g->inputs[m] * config->width;
        float *position = positions + m % config->context * config->width;
        for (int i = 0; i < config->width; i++) token[i] += dx[i];
        for (int i = 0; i < config->width; i++) position[i] += dx[i];
    }
}

keel_status gpt_backward(const gpt_call *c)
{
    gpt *g = c->g;
    memset(c->grad, 0, (size_t)g->param_count * sizeof *c->grad);
    memset(g->dx, 0, (size_t)c->rows * (size_t)g->config.width * sizeof *g->dx);
    keel_status status = linear_back(c, gpt_linear_head(g), g->norm, g->logits, g->narrow);
    if (status) return status;
    norm_back(c, g->tensor_count - 2, g->out, g->narrow);
    for (int l = g->config.layers - 1; l >= 0; l--) {
        status = perceptron_back(c, l);
        if (!status) status = attention_back(c, l);
        if (status) return status;
    }
    embed_back(c);
    return KEEL_OK;
}

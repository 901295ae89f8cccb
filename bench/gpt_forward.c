/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The transformer from bytes to logits, and the products that both directions share. */
#include <math.h>
#include <string.h>

#include "gpt_math.h"
#include "gpt_work.h"

/* ---- shared with the backward pass ---- */

gpt_linear gpt_linear_at(const gpt *g, int layer, int kind)
{
    static const struct {
        int tensor, inputs, outputs; /* sizes in widths */
    } rows[GPT_LAYER_PLACES] = {
        [GPT_PLACE_QKV] = {GPT_QKV, 1, GPT_KINDS},
        [GPT_PLACE_PROJ] = {GPT_PROJ, 1, 1},
        [GPT_PLACE_UP] = {GPT_UP, 1, GPT_MLP},
        [GPT_PLACE_DOWN] = {GPT_DOWN, GPT_MLP, 1},
    };
    const int width = g->config.width;
    return (gpt_linear){.place = layer * GPT_LAYER_PLACES + kind,
                        .tensor = gpt_tensor_index(layer, rows[kind].tensor),
                        .inputs = rows[kind].inputs * width,
                        .outputs = rows[kind].outputs * width};
}

gpt_linear gpt_linear_head(const gpt *g)
{
    return (gpt_linear){.place = g->config.layers * GPT_LAYER_PLACES,
                        .tensor = g->tensor_count - 1,
                        .inputs = g->config.width,
                        .outputs = GPT_VOCABULARY};
}

keel_status gpt_run(const gpt_call *c, int place, int batch, product p)
{
    p.place = &c->g->places[place];
    p.place_index = place;
    p.batch = batch;
    return c->g->hook.product(c->g->hook.context, &p);
}

/* Where row m = b * T + t of head h begins in [B][H][T][D / H]. */
static size_t head_row(const gpt_config *c, int m, int h)
{
    const size_t b = (size_t)(m / c->context), t = (size_t)(m % c->context);
    const size_t heads = (size_t)c->heads, context = (size_t)c->context;
    return ((b * heads + (size_t)h) * context + t) * (size_t)(c->width / c->heads);
}

void gpt_split_heads(const gpt_call *c, const float *rows, int count, float *const *heads)
{
    const gpt_config *config = &c->g->config;
    const int size = config->width / config->heads;
    for (int m = 0; m < c->rows; m++) {
        for (int kind = 0; kind < count; kind++) {
            for (int h = 0; h < config->heads; h++, rows += size)
                memcpy(heads[kind] + head_row(config, m, h), rows, (size_t)size * sizeof *rows);
        }
    }
}

void gpt_merge_heads(const gpt_call *c, float *const *heads, int count, float *rows)
{
    const gpt_config *config = &c->g->config;
    const int size = config->width / config->heads;
    for (int m = 0; m < c->rows; m++) {
        for (int kind = 0; kind < count; kind++) {
            for (int h = 0; h < config->heads; h++, rows += size)
                memcpy(rows, heads[kind] + head_row(config, m, h), (size_t)size * sizeof *rows);
        }
    }
}

/* ---- forward ---- */

static keel_status linear(const gpt_call *c, gpt_linear l, const float *x, float *out,
                          bool accumulate)
{
    return gpt_run(
        c, l.place, 1,
        (product){.a = {x, KEEL_OPERAND_INPUT, PRODUCT_LEFT, false},
                  .b = {gpt_param(c, l.tensor), KEEL_OPERAND_WEIGHT, PRODUCT_RIGHT, false},
                  .d = out,
                  .m = c->rows,
                  .n = l.outputs,
                  .k = l.inputs,
                  .accumulate = accumulate});
}

static void embed(const gpt_call *c, float *x)
{
    const gpt_config *config = &c->g->config;
    const float *tokens = gpt_param(c, 0), *positions = gpt_param(c, 1);
    for (int m = 0; m < c->rows; m++) {
        const float *token = tokens + c->g->inputs[m] * config->width;
        const float *position = positions + m % config->context * config->width;
        for (int i = 0; i < config->width; i++) *x++ = token[i] + position[i];
    }
}

/* Scores, softmax, values. */
static keel_status attend(const gpt_call *c, int layer)
{
    const gpt_config *config = &c->g->config;
    const gpt_layer *w = &c->g->layers[layer];
    const int place = layer * GPT_LAYER_PLACES, squares = c->sequences * config->heads;
    const int side = config->context, size = config->width / config->heads;
    const keel_status status =
        gpt_run(c, place + GPT_PLACE_SCORES, squares,
                (product){.a = {w->heads[GPT_QUERY], KEEL_OPERAND_INPUT, PRODUCT_LEFT, false},
                          .b = {w->heads[GPT_KEY], KEEL_OPERAND_INPUT, PRODUCT_RIGHT, true},
                          .d = w->probabilities,
                          .m = side,
                          .n = side,
                          .k = size});
    if (status) return status;
    gpt_softmax(w->probabilities, 1 / sqrtf((float)size), squares, side);
    return gpt_run(c, place + GPT_PLACE_VALUES, squares,
                   (product){.a = {w->probabilities, KEEL_OPERAND_INPUT, PRODUCT_LEFT, false},
                             .b = {w->heads[GPT_VALUE], KEEL_OPERAND_INPUT, PRODUCT_RIGHT, false},
                             .d = c->g->head_out,
                             .m = side,
                             .n = size,
                             .k = side});
}

static keel_status attention(const gpt_call *c, int layer)
{
    gpt *g = c->g;
    const gpt_layer *w = &g->layers[layer];
    const float *gain = gpt_param(c, gpt_tensor_index(layer, GPT_NORM1));
    gpt_norm(w->in, gain, c->rows, g->config.width, w->norm1);
    keel_status status =
        linear(c, gpt_linear_at(g, layer, GPT_PLACE_QKV), w->norm1, g->wide, false);
    if (status) return status;
    gpt_split_heads(c, g->wide, GPT_KINDS, w->heads);
    status = attend(c, layer);
    if (status) return status;
    gpt_merge_heads(c, &g->head_out, 1, w->merged);
    memcpy(w->middle, w->in, (size_t)c->rows * (size_t)g->config.width * sizeof *w->in);
    return linear(c, gpt_linear_at(g, layer, GPT_PLACE_PROJ), w->merged, w->middle, true);
}

static keel_status perceptron(const gpt_call *c, int layer, float *out)
{
    gpt *g = c->g;
    const gpt_layer *w = &g->layers[layer];
    const float *gain = gpt_param(c, gpt_tensor_index(layer, GPT_NORM2));
    const size_t count = (size_t)c->rows * (size_t)g->config.width;
    gpt_norm(w->middle, gain, c->rows, g->config.width, w->norm2);
    const keel_status status =
        linear(c, gpt_linear_at(g, layer, GPT_PLACE_UP), w->norm2, w->up, false);
    if (status) return status;
    gpt_square_relu(w->up, (int64_t)count * GPT_MLP, w->active);
    memcpy(out, w->middle, count * sizeof *out);
    return linear(c, gpt_linear_at(g, layer, GPT_PLACE_DOWN), w->active, out, true);
}

keel_status gpt_forward(const gpt_call *c)
{
    gpt *g = c->g;
    const int layers = g->config.layers;
    embed(c, g->layers[0].in);
    for (int l = 0; l < layers; l++) {
        keel_status status = attention(c, l);
        if (!status) status = perceptron(c, l, l + 1 < layers ? g->layers[l + 1].in : g->out);
        if (status) return status;
    }
    gpt_norm(g->out, gpt_param(c, g->tensor_count - 2), c->rows, g->config.width, g->norm);
    return linear(c, gpt_linear_head(g), g->norm, g->logits, false);
}

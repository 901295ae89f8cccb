/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The transformer's memory, and its calls. */
#include "gpt.h"

#include <stdlib.h>
#include <string.h>

#include "gpt_math.h"
#include "gpt_work.h"

/* Hand out the next count floats of a block; with base NULL only their number grows. */
static void take(float *base, size_t *used, float **out, size_t count)
{
    *out = base ? base + *used : NULL;
    *used += count;
}

/* All arrays of g within base; their floats in all. */
static size_t lay_out(gpt *g, float *base)
{
    const size_t rows = (size_t)g->capacity * (size_t)g->config.context;
    const size_t narrow = rows * (size_t)g->config.width, wide = narrow * GPT_MLP;
    const size_t squares = rows * (size_t)g->config.heads * (size_t)g->config.context;
    size_t used = 0;
    for (int l = 0; l < g->config.layers; l++) {
        gpt_layer *w = &g->layers[l];
        float **const of_width[] = {&w->in,       &w->norm1,  &w->heads[0], &w->heads[1],
                                    &w->heads[2], &w->merged, &w->middle,   &w->norm2};
        for (size_t i = 0; i < sizeof of_width / sizeof of_width[0]; i++)
            take(base, &used, of_width[i], narrow);
        take(base, &used, &w->probabilities, squares);
        take(base, &used, &w->up, wide);
        take(base, &used, &w->active, wide);
    }
    float **const of_width[] = {&g->out,      &g->norm,     &g->dx,       &g->narrow,
                                &g->head_out, &g->heads[0], &g->heads[1], &g->heads[2]};
    for (size_t i = 0; i < sizeof of_width / sizeof of_width[0]; i++)
        take(base, &used, of_width[i], narrow);
    take(base, &used, &g->logits, rows * GPT_VOCABULARY);
    take(base, &used, &g->wide, wide);
    take(base, &used, &g->scores, squares);
    return used;
}

static bool allocate(gpt *g)
{
    const size_t rows = (size_t)g->capacity * (size_t)g->config.context;
    g->memory = malloc(lay_out(g, NULL) * sizeof *g->memory);
    g->inputs = malloc(rows);
    g->targets = malloc(rows);
    if (!g->memory || !g->inputs || !g->targets) return false;
    lay_out(g, g->memory);
    return true;
}

gpt *gpt_create(const gpt_config *c, int sequences, const product_hook *hook)
{
    static const product_hook plain = {.product = product_f32};
    char why[GPT_WHY];
    if (!gpt_check(c, why) || sequences < 1 || sequences > GPT_SEQUENCES_MAX) return NULL;
    gpt *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->config = *c;
    g->capacity = sequences;
    g->hook = hook ? *hook : plain;
    g->tensor_count = gpt_tensors(c, g->tensors);
    g->param_count = gpt_param_count(c);
    gpt_places(c, g->places);
    if (allocate(g)) return g;
    gpt_destroy(g);
    return NULL;
}

void gpt_destroy(gpt *g)
{
    if (!g) return;
    free(g->memory);
    free(g->inputs);
    free(g->targets);
    free(g);
}

/* Every byte but the last goes in, every byte but the first is to be guessed. */
static void load_tokens(gpt *g, const uint8_t *tokens, int sequences)
{
    const size_t context = (size_t)g->config.context;
    for (size_t s = 0; s < (size_t)sequences; s++, tokens += context + 1) {
        memcpy(g->inputs + s * context, tokens, context);
        memcpy(g->targets + s * context, tokens + 1, context);
    }
}

static keel_status begin(const gpt_call *c, const uint8_t *tokens)
{
    if (c->sequences < 1 || c->sequences > c->g->capacity) return KEEL_ERR_INVALID;
    load_tokens(c->g, tokens, c->sequences);
    return gpt_forward(c);
}

/* With the slope of loss_scale times the mean in the logits' place, if there is a gradient. */
static float mean_loss(const gpt_call *c, float loss_scale)
{
    const gpt *g = c->g;
    const double sum = gpt_cross_entropy(g->logits, g->targets, c->rows,
                                         loss_scale / (float)c->rows, c->grad ? g->logits : NULL);
    return (float)(sum / c->rows);
}

keel_status gpt_shard(gpt *g, const float *params, const uint8_t *tokens, int sequences,
                      float loss_scale, float *grad, float *out_loss)
{
    const gpt_call c = {g, params, grad, sequences, sequences * g->config.context};
    keel_status status = begin(&c, tokens);
    if (status) return status;
    const float loss = mean_loss(&c, loss_scale);
    status = gpt_backward(&c);
    if (!status) *out_loss = loss;
    return status;
}

keel_status gpt_evaluate(gpt *g, const float *params, const uint8_t *tokens, int sequences,
                         float *out_loss)
{
    const gpt_call c = {g, params, NULL, sequences, sequences * g->config.context};
    const keel_status status = begin(&c, tokens);
    if (!status) *out_loss = mean_loss(&c, 1);
    return status;
}

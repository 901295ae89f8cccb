/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A small decoder-only transformer over bytes, forward and backward in f32:
 *
 *   x = tokens[byte] + positions[t]
 *   per layer:  x += proj(attention(norm1(x)));   x += down(relu(up(norm2(x)))^2)
 *   logits = head(norm(x))
 *
 * RMSNorm with a gain, causal heads, no biases.  Every matrix product goes through one function,
 * the hook, which may round its operands; softmax, norms, loss, residuals and embeddings never
 * leave f32.  All sums run in an order that the source fixes: the same input gives the same bits.
 */
#ifndef BENCH_GPT_H
#define BENCH_GPT_H

#include <stdbool.h>
#include <stdint.h>

#include "product.h"

enum {
    GPT_VOCABULARY = 256,
    GPT_LAYERS_MAX = 8,
    GPT_WIDTH_MAX = 512,
    GPT_CONTEXT_MAX = 256,
    GPT_WHY = 512,                               /* bytes of a sentence that says what is wrong */
    GPT_SEQUENCES_MAX = 64,                      /* in one call */
    GPT_PLACES_MAX = 6 * GPT_LAYERS_MAX + 1,     /* see product_place */
    GPT_TENSORS_MAX = 6 * GPT_LAYERS_MAX + 2 + 2 /* see gpt_tensors() */
};

typedef struct gpt_config {
    int layers, width, heads, context;
} gpt_config;

/* 300 steps of 1,024 tokens take about a minute on one core. */
#define GPT_CONFIG_DEFAULT ((gpt_config){.layers = 2, .width = 96, .heads = 4, .context = 64})

/* A tensor of the model: a part of one flat array.  Weight matrices are [inputs][outputs]. */
typedef struct gpt_tensor {
    char name[24]; /* "layers.0.qkv" */
    int offset, count;
    bool decays; /* weight matrices do, embeddings and gains do not */
} gpt_tensor;

/* ---- the model ---- */

/* gpt_check: false, with the field and its bounds, for what cannot be built. */
bool gpt_check(const gpt_config *c, char why[GPT_WHY]);

/* gpt_tensors, gpt_places: the tables of a checked configuration; their lengths. */
int gpt_tensors(const gpt_config *c, gpt_tensor out[GPT_TENSORS_MAX]);
int gpt_places(const gpt_config *c, product_place out[GPT_PLACES_MAX]);

/* gpt_param_count: elements of all tensors. */
int gpt_param_count(const gpt_config *c);

/* gpt_init: gains one, everything else even around zero; a function of the seed alone. */
void gpt_init(const gpt_config *c, float *params, uint64_t seed);

/* What calls compute on the way; one per thread. */
typedef struct gpt gpt;

/* gpt_create: for up to sequences sequences in a call; hook NULL = product_f32().  NULL: no
 * memory, or out of bounds. */
gpt *gpt_create(const gpt_config *c, int sequences, const product_hook *hook);
void gpt_destroy(gpt *g);

/* gpt_shard: mean cross-entropy of every next byte, and the gradient of loss_scale times it.
 * tokens  sequences rows of context + 1 bytes.   grad  overwritten.
 * Errors  the hook's, grad then half written; INVALID more sequences than created for, or none. */
keel_status gpt_shard(gpt *g, const float *params, const uint8_t *tokens, int sequences,
                      float loss_scale, float *grad, float *out_loss);

/* gpt_evaluate: the loss alone.  Errors  as gpt_shard(). */
keel_status gpt_evaluate(gpt *g, const float *params, const uint8_t *tokens, int sequences,
                         float *out_loss);

#endif

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

#include "keel/keel.h"

enum {
    GPT_VOCABULARY = 256,
    GPT_LAYERS_MAX = 8,
    GPT_WIDTH_MAX = 512,
    GPT_CONTEXT_MAX = 256,
    GPT_WHY = 512,                               /* bytes of a sentence that says what is wrong */
    GPT_SEQUENCES_MAX = 64,                      /* in one call */
    GPT_PLACES_MAX = 6 * GPT_LAYERS_MAX + 1,     /* see gpt_place */
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

/* ---- the hook ---- */

/* Kinds of product and what an operand is to it, with the numbers that recipes give them. */
typedef enum gpt_op { GPT_LINEAR = 0, GPT_ATTENTION = 1, GPT_HEAD = 2 } gpt_op;
typedef enum gpt_role { GPT_INPUT = 0, GPT_WEIGHT = 1, GPT_GRADIENT = 2 } gpt_role;

/* A product of the forward pass: its two backward products are of the same place.  Place 6 * layer
 * + k of a layer is "qkv", "scores", "values", "proj", "up", "down"; the last place is "head". */
typedef struct gpt_place {
    char name[24]; /* of the weight tensor, or "layers.0.scores" */
    gpt_op op;
    int layer; /* -1: the head */
} gpt_place;

/* Which of the three tensors of a place an operand is: two that meet forward, and the gradient of
 * what they make.  Its number over the model is 3 * place + side. */
typedef enum gpt_side { GPT_LEFT = 0, GPT_RIGHT = 1, GPT_BACK = 2 } gpt_side;

typedef struct gpt_operand {
    const float *data;
    gpt_role role;
    gpt_side side;
    bool transposed; /* it lies in memory as [columns][rows] */
} gpt_operand;

/* d = a * b, or d += a * b; batch products, whose matrices follow one another in a, b and d. */
typedef struct gpt_product {
    const gpt_place *place;
    int place_index;
    gpt_operand a, b; /* m x k, k x n */
    float *d;         /* m x n */
    int m, n, k, batch;
    bool accumulate;
} gpt_product;

typedef struct gpt_matmul {
    void *context;
    keel_status (*product)(void *context, const gpt_product *p);
} gpt_matmul;

/* gpt_product_f32: the plain product, k ascending for every element; context is not used.  A hook
 * rounds operands into memory of its own and passes them on to this. */
keel_status gpt_product_f32(void *context, const gpt_product *p);

/* ---- the model ---- */

/* gpt_check: false, with the field and its bounds, for what cannot be built. */
bool gpt_check(const gpt_config *c, char why[GPT_WHY]);

/* gpt_tensors, gpt_places: the tables of a checked configuration; their lengths. */
int gpt_tensors(const gpt_config *c, gpt_tensor out[GPT_TENSORS_MAX]);
int gpt_places(const gpt_config *c, gpt_place out[GPT_PLACES_MAX]);

/* gpt_param_count: elements of all tensors. */
int gpt_param_count(const gpt_config *c);

/* gpt_init: gains one, everything else even around zero; a function of the seed alone. */
void gpt_init(const gpt_config *c, float *params, uint64_t seed);

/* What calls compute on the way; one per thread. */
typedef struct gpt gpt;

/* gpt_create: for up to sequences sequences in a call; hook NULL = gpt_product_f32().  NULL: no
 * memory, or out of bounds. */
gpt *gpt_create(const gpt_config *c, int sequences, const gpt_matmul *hook);
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

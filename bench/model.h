/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The network for digits: 64-128-128-10 with ReLU, softmax and cross-entropy, forward and backward.
 * Every matrix product goes through the hook of product.h, which may round its operands; all else
 * is f32, in an order that the source fixes, so the same input gives the same bits. */
#ifndef BENCH_MODEL_H
#define BENCH_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "digits.h"
#include "product.h"

enum {
    MODEL_LAYERS = 3,
    MODEL_WIDTH = 128, /* of the widest layer */
    MODEL_TENSORS = 6,
    MODEL_PARAMS = 26122, /* elements of all tensors */
    MODEL_ROWS_MAX = 128, /* in one call */
};

/* A tensor of the model: a part of one flat array. */
typedef struct model_tensor {
    const char *name;
    int offset, count;
    bool decays; /* weights do, biases do not */
} model_tensor;

extern const model_tensor model_tensors[MODEL_TENSORS];

/* What a call computes on the way; one per thread. */
typedef struct model_work {
    float in[MODEL_LAYERS + 1][MODEL_ROWS_MAX * MODEL_WIDTH]; /* of each layer; last: the logits */
    float slope[2][MODEL_ROWS_MAX * MODEL_WIDTH];
    product_hook hook;
} model_work;

/* The products, one place a layer: "w1", "w2", "w3"; the last is the head. */
extern const product_place model_places[MODEL_LAYERS];

/* model_init: weights evenly within the bounds of He et al., biases zero. */
void model_init(float params[MODEL_PARAMS], uint64_t seed);

/* model_forward: logits of rows images into work->in[MODEL_LAYERS]. */
keel_status model_forward(model_work *work, const float *params, const float *pixels, int rows);

/* model_loss: mean cross-entropy of the logits of the last forward. */
float model_loss(const model_work *work, const uint8_t *labels, int rows);

/* model_hits: how many of the last forward's rows are told right. */
int model_hits(const model_work *work, const uint8_t *labels, int rows);

/* model_backward: after model_forward: the gradient of loss_scale times the mean loss. */
keel_status model_backward(model_work *work, const float *params, const uint8_t *labels, int rows,
                           float loss_scale, float grads[MODEL_PARAMS]);

#endif

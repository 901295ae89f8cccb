/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The one way a model of the bench multiplies matrices: it describes the product, and a hook
 * carries it out, perhaps after rounding the operands. */
#ifndef BENCH_PRODUCT_H
#define BENCH_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "keel/keel.h"
#include "keel/recipe.h"

/* A product of the forward pass: its two backward products are of the same place.  Place 6 * layer
 * + k of a layer is "qkv", "scores", "values", "proj", "up", "down"; the last place is "head". */
typedef struct product_place {
    char name[24]; /* of the weight tensor, or "layers.0.scores" */
    keel_op op;
    int layer; /* -1: the head */
} product_place;

/* Which of the three tensors of a place an operand is: two that meet forward, and the gradient of
 * what they make.  Its number over the model is 3 * place + side. */
typedef enum product_side { PRODUCT_LEFT = 0, PRODUCT_RIGHT = 1, PRODUCT_BACK = 2 } product_side;

typedef struct product_operand {
    const float *data;
    keel_operand role;
    product_side side;
    bool transposed; /* it lies in memory as [columns][rows] */
} product_operand;

/* d = a * b, or d += a * b; batch products, whose matrices follow one another in a, b and d. */
typedef struct product {
    const product_place *place;
    int place_index;
    product_operand a, b; /* m x k, k x n */
    float *d;             /* m x n */
    int m, n, k, batch;
    bool accumulate;
} product;

typedef struct product_hook {
    void *context;
    keel_status (*product)(void *context, const product *p);
} product_hook;

/* product_f32: the plain product, k ascending for every element; context is not used.  A hook
 * rounds operands into memory of its own and passes them on to this. */
keel_status product_f32(void *context, const product *p);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What `keel train` can train: a row of functions over one flat vector of parameters. */
#ifndef BENCH_TASK_H
#define BENCH_TASK_H

#include "gpt.h"
#include "product.h"

enum { TASK_SHARDS = 8 }; /* micro-shards of a batch, whatever the number of ranks */

typedef struct task_tensor {
    char name[24];
    int64_t offset, count;
    bool decays;
    int32_t place; /* whose weight it is; -1 = no product reads it */
} task_tensor;

typedef struct task_shape {
    int64_t param_count;
    int64_t operand_max; /* elements of the largest operand of a product */
    int32_t tensor_count, place_count;
    task_tensor tensors[GPT_TENSORS_MAX];
    product_place places[GPT_PLACES_MAX];
} task_shape;

typedef struct task_setup {
    int64_t seed;
    int64_t batch;    /* samples of a step */
    const char *text; /* of the gpt; NULL = what every Debian has */
} task_setup;

typedef struct task {
    const char *name;
    int64_t batch, steps; /* defaults */
    int64_t batch_max;
    int64_t tokens; /* of a sample, for the rate of a run */
    double lr_sgd, lr_adamw;
    int optimizer; /* default: 0 sgd, 1 adamw */
    void (*shape)(const task_setup *setup, task_shape *out);
    /* NULL: why says what is wrong. */
    void *(*create)(const task_setup *setup, const product_hook *hook, char why[GPT_WHY]);
    void (*destroy)(void *self);
    void (*init)(void *self, float *params);
    /* Mean loss of one micro-shard of a step (from 1), and its gradient times loss_scale. */
    keel_status (*shard)(void *self, const float *params, int64_t step, int shard, float loss_scale,
                         float *grad, float *out_loss);
    /* Held-out mean loss and share of right answers. */
    keel_status (*evaluate)(void *self, const float *params, double *out_loss,
                            double *out_accuracy);
} task;

extern const task task_digits, task_gpt;

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The digits as a task: samples run through shuffled epochs without a gap. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digits.h"
#include "model.h"
#include "rng.h"
#include "task.h"

typedef struct state {
    task_setup setup;
    digits data;
    int order[DIGITS_TRAIN];
    int64_t order_epoch;                          /* the epoch order is shuffled for, -1 = none */
    float pixels[MODEL_ROWS_MAX * DIGITS_PIXELS]; /* of one shard */
    uint8_t labels[MODEL_ROWS_MAX];
    model_work net;
} state;

static void shape(const task_setup *setup, task_shape *out)
{
    (void)setup;
    memset(out, 0, sizeof *out);
    out->param_count = MODEL_PARAMS;
    out->operand_max = MODEL_ROWS_MAX * MODEL_WIDTH;
    out->tensor_count = MODEL_TENSORS;
    out->place_count = MODEL_LAYERS;
    for (int t = 0; t < MODEL_TENSORS; t++) {
        const model_tensor *m = &model_tensors[t];
        task_tensor *tensor = &out->tensors[t];
        snprintf(tensor->name, sizeof tensor->name, "%s", m->name);
        tensor->offset = m->offset;
        tensor->count = m->count;
        tensor->decays = m->decays;
        tensor->place = m->decays ? t / 2 : -1;
    }
    memcpy(out->places, model_places, sizeof model_places);
}

static void *create(const task_setup *setup, const product_hook *hook, char why[GPT_WHY])
{
    state *s = calloc(1, sizeof *s);
    snprintf(why, GPT_WHY, "no memory for the digits");
    if (!s) return NULL;
    s->setup = *setup;
    s->order_epoch = -1;
    s->net.hook = *hook;
    if (digits_load(&s->data)) return s;
    snprintf(why, GPT_WHY, "the built-in digits are damaged");
    free(s);
    return NULL;
}

static void init(void *self, float *params)
{
    model_init(params, (uint64_t)((const state *)self)->setup.seed);
}

/* Fisher and Yates, from the seed and the epoch alone. */
static void shuffle_epoch(state *s, int64_t epoch)
{
    if (s->order_epoch == epoch) return;
    const uint64_t seed = rng_bits((uint64_t)s->setup.seed, (uint64_t)epoch);
    for (int i = 0; i < DIGITS_TRAIN; i++) s->order[i] = i;
    for (int i = DIGITS_TRAIN - 1; i > 0; i--) {
        const int k = rng_below(seed, (uint64_t)i, i + 1);
        const int kept = s->order[i];
        s->order[i] = s->order[k];
        s->order[k] = kept;
    }
    s->order_epoch = epoch;
}

static void load_shard(state *s, int64_t step, int shard, int rows)
{
    int64_t at = (step - 1) * s->setup.batch + (int64_t)shard * rows;
    for (int i = 0; i < rows; i++, at++) {
        shuffle_epoch(s, at / DIGITS_TRAIN);
        const int row = s->order[at % DIGITS_TRAIN];
        memcpy(s->pixels + i * DIGITS_PIXELS, s->data.pixels[row], sizeof s->data.pixels[row]);
        s->labels[i] = s->data.labels[row];
    }
}

static keel_status shard(void *self, const float *params, int64_t step, int index, float loss_scale,
                         float *grad, float *out_loss)
{
    state *s = self;
    const int rows = (int)(s->setup.batch / TASK_SHARDS);
    load_shard(s, step, index, rows);
    const keel_status status = model_forward(&s->net, params, s->pixels, rows);
    if (status) return status;
    *out_loss = model_loss(&s->net, s->labels, rows);
    return model_backward(&s->net, params, s->labels, rows, loss_scale, grad);
}

/* The held-out rows, in parts a model call can take. */
static keel_status evaluate(void *self, const float *params, double *out_loss, double *out_accuracy)
{
    state *s = self;
    double loss = 0;
    int hits = 0;
    for (int at = DIGITS_TRAIN; at < DIGITS_ROWS; at += MODEL_ROWS_MAX) {
        const int left = DIGITS_ROWS - at, rows = left < MODEL_ROWS_MAX ? left : MODEL_ROWS_MAX;
        const keel_status status = model_forward(&s->net, params, s->data.pixels[at], rows);
        if (status) return status;
        loss += (double)model_loss(&s->net, s->data.labels + at, rows) * rows;
        hits += model_hits(&s->net, s->data.labels + at, rows);
    }
    *out_loss = loss / DIGITS_HELD_OUT;
    *out_accuracy = (double)hits / DIGITS_HELD_OUT;
    return KEEL_OK;
}

const task task_digits = {
    .name = "digits",
    .batch = 128,
    .tokens = 1,
    .batch_max = MODEL_ROWS_MAX * TASK_SHARDS,
    .steps = 400,
    .lr_sgd = 0.05,
    .lr_adamw = 0.002,
    .optimizer = 0,
    .shape = shape,
    .create = create,
    .destroy = free,
    .init = init,
    .shard = shard,
    .evaluate = evaluate,
};

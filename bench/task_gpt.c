/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The transformer as a task: windows of a text, the next byte to be guessed.  A sample is a window.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpt_text.h"
#include "task.h"

enum { EVALUATE_WINDOWS_MAX = 128 };

typedef struct state {
    task_setup setup;
    gpt_config config;
    gpt_text text;
    gpt *net;
    uint8_t *windows; /* of one call */
    int capacity;
} state;

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void shape(const task_setup *setup, task_shape *out)
{
    const gpt_config c = GPT_CONFIG_DEFAULT;
    gpt_tensor tensors[GPT_TENSORS_MAX];
    memset(out, 0, sizeof *out);
    out->param_count = gpt_param_count(&c);
    out->tensor_count = gpt_tensors(&c, tensors);
    out->place_count = gpt_places(&c, out->places);
    for (int t = 0; t < out->tensor_count; t++) {
        task_tensor *tensor = &out->tensors[t];
        memcpy(tensor->name, tensors[t].name, sizeof tensor->name);
        tensor->offset = tensors[t].offset;
        tensor->count = tensors[t].count;
        tensor->decays = tensors[t].decays;
        tensor->place = -1;
        for (int p = 0; p < out->place_count; p++)
            if (strcmp(out->places[p].name, tensor->name) == 0) tensor->place = p;
    }
    const int64_t rows = setup->batch / TASK_SHARDS * c.context;
    out->operand_max = largest(largest(rows * 4 * c.width, rows * GPT_VOCABULARY),
                               largest(rows * c.heads * c.context, 4 * c.width * c.width));
}

static void destroy(void *self)
{
    state *s = self;
    if (!s) return;
    gpt_destroy(s->net);
    gpt_text_free(&s->text);
    free(s->windows);
    free(s);
}

static void *create(const task_setup *setup, const product_hook *hook, char why[GPT_WHY])
{
    state *s = calloc(1, sizeof *s);
    snprintf(why, GPT_WHY, "no memory for the transformer");
    if (!s) return NULL;
    s->setup = *setup;
    s->config = GPT_CONFIG_DEFAULT;
    s->capacity = (int)(setup->batch / TASK_SHARDS);
    s->net = gpt_create(&s->config, s->capacity, hook);
    s->windows = malloc((size_t)s->capacity * (size_t)(s->config.context + 1));
    if (s->net && s->windows && gpt_text_load(setup->text, &s->text, why)) return s;
    destroy(s);
    return NULL;
}

static void init(void *self, float *params)
{
    const state *s = self;
    gpt_init(&s->config, params, (uint64_t)s->setup.seed);
}

static uint8_t *window_at(const state *s, int index)
{
    return s->windows + (size_t)index * (size_t)(s->config.context + 1);
}

static keel_status shard(void *self, const float *params, int64_t step, int index, float loss_scale,
                         float *grad, float *out_loss)
{
    state *s = self;
    const int64_t first = (step - 1) * s->setup.batch + (int64_t)index * s->capacity;
    for (int i = 0; i < s->capacity; i++)
        gpt_text_draw(&s->text, s->config.context, (uint64_t)s->setup.seed, (uint64_t)(first + i),
                      window_at(s, i));
    return gpt_shard(s->net, params, s->windows, s->capacity, loss_scale, grad, out_loss);
}

static keel_status evaluate(void *self, const float *params, double *out_loss, double *out_accuracy)
{
    state *s = self;
    const int all = gpt_text_windows(&s->text, s->config.context);
    const int windows = all < EVALUATE_WINDOWS_MAX ? all : EVALUATE_WINDOWS_MAX;
    double sum = 0;
    for (int at = 0; at < windows; at += s->capacity) {
        const int n = windows - at < s->capacity ? windows - at : s->capacity;
        float loss;
        for (int i = 0; i < n; i++)
            gpt_text_held_out(&s->text, s->config.context, at + i, window_at(s, i));
        const keel_status status = gpt_evaluate(s->net, params, s->windows, n, &loss);
        if (status) return status;
        sum += (double)loss * n;
    }
    *out_loss = sum / windows;
    *out_accuracy = NAN; /* of next bytes nobody asks */
    return KEEL_OK;
}

enum { CONTEXT = 64 }; /* of GPT_CONFIG_DEFAULT */

const task task_gpt = {
    .name = "gpt",
    .batch = 16,
    .tokens = CONTEXT,
    .batch_max = GPT_SEQUENCES_MAX * TASK_SHARDS,
    .steps = 300,
    .lr_sgd = 0.5,
    .lr_adamw = 0.0015,
    .optimizer = 1,
    .shape = shape,
    .create = create,
    .destroy = destroy,
    .init = init,
    .shard = shard,
    .evaluate = evaluate,
};

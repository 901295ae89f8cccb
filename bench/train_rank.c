/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* One rank: it computes its micro-shards, the ranks exchange them, and every rank adds all of them
 * in shard order, so the gradient does not depend on how many ranks there are.  The exchange is an
 * integer sum in which each rank fills its own slots and zeros stand elsewhere: it moves bits
 * exactly over any communicator, and it is the barrier of a step. */
#include "train_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "digits.h"
#include "rng.h"

/* A slot holds the codes of a shard's gradient and the bits of its loss. */
typedef struct exchange {
    int64_t *words;
    int64_t slot_words;
    int64_t word_count;
} exchange;

typedef struct rank_memory {
    float params[MODEL_PARAMS];
    float moment1[MODEL_PARAMS];
    float moment2[MODEL_PARAMS];
    float grad[MODEL_PARAMS];             /* of one shard; then the sum of all */
    unsigned char copy[MODEL_PARAMS * 4]; /* params in the recipe's format */
    unsigned char sum[MODEL_PARAMS * 4];  /* summed gradient in the recipe's format */
    digits data;
    int order[DIGITS_TRAIN];
    float weights[MODEL_PARAMS]; /* the copy as matmuls see it */
} rank_memory;

typedef struct worker {
    train_rank *rank;
    const train_options *o;
    rank_memory *mem;
    keel_step *step;
    exchange ex;
    model_work *net;
    float pixels[MODEL_ROWS_MAX * DIGITS_PIXELS]; /* of one shard */
    uint8_t labels[MODEL_ROWS_MAX];
    int64_t order_epoch; /* the epoch mem->order is shuffled for, -1 = none */
} worker;

static int64_t width_of(keel_format format)
{
    return keel_format_get(format)->storage_bytes;
}

/* Fisher and Yates, from the seed and the epoch alone. */
static void shuffle_epoch(worker *w, int64_t epoch)
{
    if (w->order_epoch == epoch) return;
    const uint64_t seed = rng_bits((uint64_t)w->o->seed, (uint64_t)epoch);
    int *order = w->mem->order;
    for (int i = 0; i < DIGITS_TRAIN; i++) order[i] = i;
    for (int i = DIGITS_TRAIN - 1; i > 0; i--) {
        const int k = rng_below(seed, (uint64_t)i, i + 1);
        const int kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
    w->order_epoch = epoch;
}

/* Samples run through the epochs without a gap; step counts from 1. */
static void load_shard(worker *w, int64_t step, int shard)
{
    const int64_t samples = w->o->batch / TRAIN_SHARDS;
    int64_t at = (step - 1) * w->o->batch + shard * samples;
    for (int64_t i = 0; i < samples; i++, at++) {
        shuffle_epoch(w, at / DIGITS_TRAIN);
        const int row = w->mem->order[at % DIGITS_TRAIN];
        memcpy(w->pixels + i * DIGITS_PIXELS, w->mem->data.pixels[row],
               sizeof w->mem->data.pixels[row]);
        w->labels[i] = w->mem->data.labels[row];
    }
}

/* A wrong gradient, before it is rounded to the recipe's format. */
static void inject(const worker *w, int64_t step, int shard)
{
    const int32_t rank = keel_comm_rank(w->rank->comm);
    const int shards = TRAIN_SHARDS / (int)w->o->ranks;
    if (shard != rank * shards) return;
    for (int i = 0; i < w->o->injections.count; i++) {
        const train_injection *in = &w->o->injections.at[i];
        if (in->step != step || in->rank != rank) continue;
        if (in->fault == TRAIN_SPIKE)
            for (int k = 0; k < MODEL_PARAMS; k++) w->mem->grad[k] *= 10000.0f;
        else
            w->mem->grad[model_tensors[2].offset + 7] = in->fault == TRAIN_INF ? INFINITY : NAN;
    }
}

static unsigned char *slot_of(const worker *w, int shard)
{
    return (unsigned char *)(w->ex.words + shard * w->ex.slot_words);
}

static float *loss_of(const worker *w, int shard)
{
    return (float *)(void *)(w->ex.words + (shard + 1) * w->ex.slot_words - 1);
}

static keel_status probe(worker *w, int shard)
{
    const void *grads[MODEL_TENSORS];
    const int64_t width = width_of(w->rank->recipe->format);
    for (int t = 0; t < MODEL_TENSORS; t++)
        grads[t] = slot_of(w, shard) + model_tensors[t].offset * width;
    return keel_step_probe(w->step, 0, MODEL_TENSORS, grads, NULL);
}

/* Of the loaded shard: its mean loss, and the gradient of that times the loss scale. */
static keel_status gradient(worker *w, float loss_scale, float *out_loss)
{
    const int rows = (int)(w->o->batch / TRAIN_SHARDS);
    const keel_format format = w->rank->recipe->format;
    keel_status status = model_forward(w->net, w->mem->weights, w->pixels, rows, format);
    if (status) return status;
    *out_loss = model_loss(w->net, w->labels, rows);
    return model_backward(w->net, w->mem->weights, w->labels, rows, format, loss_scale,
                          w->mem->grad);
}

/* This rank's part of a step: its shards' gradients, rounded, in their slots. */
static keel_status compute_shards(worker *w, int64_t step, float loss_scale)
{
    const int mine = TRAIN_SHARDS / (int)w->o->ranks;
    const int first = keel_comm_rank(w->rank->comm) * mine;
    memset(w->ex.words, 0, (size_t)w->ex.word_count * sizeof *w->ex.words);
    for (int shard = first; shard < first + mine; shard++) {
        float *loss = loss_of(w, shard);
        load_shard(w, step, shard);
        keel_status status = gradient(w, loss_scale, loss);
        if (status) return status;
        inject(w, step, shard);
        const keel_tensor wide = {w->mem->grad, MODEL_PARAMS, KEEL_FORMAT_F32, 0, NULL, NULL};
        const keel_tensor slot = {
            slot_of(w, shard), MODEL_PARAMS, w->rank->recipe->format, 0, NULL, NULL};
        status = keel_quantize(NULL, &wide, &slot, NULL, NULL, NULL);
        if (!status) status = keel_step_check_loss(w->step, loss, NULL);
        if (!status && w->o->probe) status = probe(w, shard);
        if (status) return status;
    }
    return KEEL_OK;
}

/* All shards in their order, in f32, then rounded as an all-reduce in that format would leave it.
 */
static keel_status sum_shards(worker *w)
{
    const keel_format format = w->rank->recipe->format;
    float shard[MODEL_PARAMS], *sum = w->mem->grad;
    memset(sum, 0, sizeof w->mem->grad);
    for (int s = 0; s < TRAIN_SHARDS; s++) {
        const keel_tensor slot = {slot_of(w, s), MODEL_PARAMS, format, 0, NULL, NULL};
        const keel_status status = keel_dequantize(NULL, &slot, shard, NULL);
        if (status) return status;
        for (int k = 0; k < MODEL_PARAMS; k++) sum[k] += shard[k];
    }
    const keel_tensor wide = {sum, MODEL_PARAMS, KEEL_FORMAT_F32, 0, NULL, NULL};
    const keel_tensor narrow = {w->mem->sum, MODEL_PARAMS, format, 0, NULL, NULL};
    return keel_quantize(NULL, &wide, &narrow, NULL, NULL, NULL);
}

static float mean_loss(const worker *w)
{
    float sum = 0;
    for (int s = 0; s < TRAIN_SHARDS; s++) sum += *loss_of(w, s);
    return sum / (float)TRAIN_SHARDS;
}

static keel_status record(worker *w, int64_t index)
{
    train_point *p = &w->rank->points[index];
    const keel_status status = keel_step_report(w->step, 0, &p->report);
    const char *name = keel_step_param_name(w->step, p->report.culprit_tensor);
    snprintf(p->culprit, sizeof p->culprit, "%s", name ? name : "");
    p->loss = mean_loss(w);
    return status;
}

/* The low-precision copy that update wrote, as f32. */
static keel_status load_weights(worker *w)
{
    const keel_tensor copy = {w->mem->copy, MODEL_PARAMS, w->rank->recipe->format, 0, NULL, NULL};
    return keel_dequantize(NULL, &copy, w->mem->weights, NULL);
}

static keel_status one_step(worker *w, int64_t step, int64_t index)
{
    float loss_scale;
    keel_status status = keel_step_loss_scale(w->step, &loss_scale);
    if (!status) status = keel_step_set_tag(w->step, (uint64_t)step);
    if (!status) status = load_weights(w);
    if (!status) status = compute_shards(w, step, loss_scale);
    if (!status)
        status = keel_comm_reduce(w->rank->comm, w->ex.words, w->ex.word_count, NULL, 0, 0);
    if (!status) status = sum_shards(w);
    if (!status) status = keel_step_run(w->step, NULL);
    if (!status && w->rank->points) status = record(w, index);
    return status;
}

static void describe_params(worker *w, keel_param *params)
{
    const keel_format format = w->rank->recipe->format;
    const int64_t width = width_of(format);
    for (int t = 0; t < MODEL_TENSORS; t++) {
        const model_tensor *mt = &model_tensors[t];
        keel_param p = KEEL_PARAM_INIT;
        p.name = mt->name;
        p.group = mt->decays ? 0 : 1;
        p.grad.data = w->mem->sum + mt->offset * width;
        p.grad.numel = mt->count;
        p.grad.format = format;
        p.master = w->mem->params + mt->offset;
        p.moment1 = w->mem->moment1 + mt->offset;
        p.moment2 = w->mem->moment2 + mt->offset;
        p.copy = p.grad;
        p.copy.data = w->mem->copy + mt->offset * width;
        params[t] = p;
    }
}

static keel_group group_of(const train_options *o, bool decays)
{
    keel_group g = o->optimizer ? KEEL_GROUP_ADAMW(o->lr) : KEEL_GROUP_SGD(o->lr);
    if (!o->optimizer) g.momentum = 0.9;
    g.weight_decay = decays ? (o->optimizer ? 0.01 : 1e-4) : 0.0;
    return g;
}

static void log_line(void *context, keel_log_level level, const char *message)
{
    const train_rank *rank = context;
    (void)level;
    cli_note("%s: %s", rank->recipe->name, message);
}

static keel_status create_step(worker *w)
{
    const keel_group groups[2] = {group_of(w->o, true), group_of(w->o, false)};
    keel_param params[MODEL_TENSORS];
    keel_config cfg = KEEL_CONFIG_INIT;
    cfg.comm = w->rank->comm;
    cfg.max_norm = (float)w->rank->max_norm;
    cfg.loss_scale.mode = w->rank->recipe->loss_scale;
    cfg.loss_scale.init = (float)w->o->init_scale;
    cfg.loss_scale.interval = (int32_t)w->o->interval;
    cfg.groups = groups;
    cfg.group_count = 2;
    cfg.log = w->rank->points ? log_line : NULL;
    cfg.log_context = w->rank;
    describe_params(w, params);
    keel_status status = keel_step_create(&cfg, params, MODEL_TENSORS, NULL, 0, &w->step);
    if (!status) status = keel_step_set_grad_divisor(w->step, TRAIN_SHARDS, NULL);
    if (!status) status = keel_step_verify(w->step);
    return status;
}

static bool allocate(worker *w)
{
    const int64_t code_bytes = MODEL_PARAMS * width_of(w->rank->recipe->format);
    w->ex.slot_words = (code_bytes + 7) / 8 + 1; /* the last word holds the loss */
    w->ex.word_count = w->ex.slot_words * TRAIN_SHARDS;
    w->ex.words = malloc((size_t)w->ex.word_count * sizeof *w->ex.words);
    w->mem = calloc(1, sizeof *w->mem);
    w->net = malloc(sizeof *w->net);
    w->order_epoch = -1;
    return w->ex.words && w->mem && w->net;
}

static keel_status train(worker *w)
{
    train_rank *rank = w->rank;
    for (int64_t step = rank->first_step; step <= w->o->steps; step++) {
        const keel_status status = one_step(w, step, rank->count);
        if (status) return status;
        rank->count++;
        if (rank->progress) rank->progress(step, w->o->steps);
    }
    return KEEL_OK;
}

/* The held-out rows, in parts a model call can take. */
static keel_status evaluate(worker *w)
{
    const keel_format format = w->rank->recipe->format;
    double loss = 0;
    int hits = 0;
    keel_status status = load_weights(w);
    for (int at = DIGITS_TRAIN; at < DIGITS_ROWS && !status; at += MODEL_ROWS_MAX) {
        const int left = DIGITS_ROWS - at, rows = left < MODEL_ROWS_MAX ? left : MODEL_ROWS_MAX;
        const uint8_t *labels = w->mem->data.labels + at;
        status = model_forward(w->net, w->mem->weights, w->mem->data.pixels[at], rows, format);
        loss += (double)model_loss(w->net, labels, rows) * rows;
        hits += model_hits(w->net, labels, rows);
    }
    w->rank->loss = loss / DIGITS_HELD_OUT;
    w->rank->accuracy = (double)hits / DIGITS_HELD_OUT;
    return status;
}

static keel_status conclude(worker *w)
{
    train_rank *rank = w->rank;
    keel_report last;
    keel_status status = keel_step_loss_scale(w->step, &rank->loss_scale);
    if (!status) status = keel_step_counters(w->step, &rank->counters);
    if (!status && rank->count > 0) {
        status = keel_step_report(w->step, 0, &last);
        rank->applied = last.applied_steps;
        rank->skipped = last.skipped_steps;
    }
    rank->params_crc = train_crc32(w->mem->params, sizeof w->mem->params);
    if (!status && rank->points) status = evaluate(w);
    return status;
}

static train_checkpoint checkpoint_of(worker *w, int64_t step)
{
    const train_checkpoint c = {w->mem->params, w->mem->moment1, w->mem->moment2,
                                w->step,        w->rank->recipe, step};
    return c;
}

static int load(worker *w, train_checkpoint *c)
{
    const bool speaks = w->rank->points != NULL; /* one rank does, for all */
    const int code = train_load(w->o->load, c, speaks);
    if (code || c->step < w->o->steps) return code;
    return speaks ? cli_fail(CLI_USAGE, "--steps=%d (want more than the %d of %s)",
                             (int)w->o->steps, (int)c->step, w->o->load)
                  : CLI_USAGE;
}

/* Start from the seed, or from where another run stopped. */
static keel_status prepare(worker *w)
{
    train_rank *rank = w->rank;
    if (!digits_load(&w->mem->data)) {
        rank->exit_code = rank->points
                              ? cli_fail(CLI_ENVIRONMENT, "the built-in digits are damaged")
                              : CLI_ENVIRONMENT;
        return KEEL_OK;
    }
    model_init(w->mem->params, (uint64_t)w->o->seed);
    keel_status status = create_step(w);
    if (!status && w->o->load) {
        train_checkpoint c = checkpoint_of(w, 0);
        rank->exit_code = load(w, &c);
        rank->first_step = c.step + 1;
    }
    if (!status && !rank->exit_code) status = keel_step_prime(w->step, NULL);
    return status;
}

static keel_status run(worker *w)
{
    keel_status status = prepare(w);
    if (status || w->rank->exit_code) return status;
    status = train(w);
    if (!status) status = conclude(w);
    if (!status && w->rank->points && w->o->save) {
        const train_checkpoint c = checkpoint_of(w, w->o->steps);
        w->rank->exit_code = train_save(w->o->save, &c);
    }
    return status;
}

static void release(worker *w)
{
    keel_step_destroy(w->step);
    free(w->net);
    free(w->mem);
    free(w->ex.words);
}

void *train_rank_main(void *argument)
{
    train_rank *rank = argument;
    worker w = {.rank = rank, .o = rank->options};
    rank->first_step = 1;
    if (allocate(&w)) {
        rank->status = run(&w);
        if (rank->status) snprintf(rank->error, sizeof rank->error, "%s", keel_last_error());
    } else {
        rank->status = KEEL_ERR_NO_MEMORY;
        snprintf(rank->error, sizeof rank->error, "no memory for a rank of the training");
    }
    release(&w);
    keel_comm_destroy(rank->comm); /* the others must not wait for a rank that failed */
    return rank;
}

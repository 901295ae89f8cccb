/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* One rank: it computes its micro-shards, the ranks exchange them, and every rank adds all of them in
 * shard order, so the gradient does not depend on how many ranks there are.  The exchange is an
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
    float pixels[DIGITS_ROWS][MODEL_INPUTS];
    uint8_t labels[DIGITS_ROWS];
    uint32_t order[TRAIN_ROWS];
} rank_memory;

typedef struct worker {
    train_rank *rank;
    const train_options *o;
    rank_memory *mem;
    model *net;
    keel_step *step;
    exchange ex;
    float *batch_x;
    uint8_t *batch_labels;
    int64_t order_epoch; /* the epoch mem->order is shuffled for, -1 = none */
} worker;

static int64_t width_of(keel_format format)
{
    return keel_format_get(format)->storage_bytes;
}

/* The same rows in the same order for every seed: what is held out never changes. */
static void load_digits(rank_memory *mem)
{
    uint32_t rows[DIGITS_ROWS];
    rng r = rng_begin(0, 2);
    for (uint32_t i = 0; i < DIGITS_ROWS; i++) {
        const uint32_t j = rng_below(&r, i + 1);
        rows[i] = rows[j];
        rows[j] = i;
    }
    for (int i = 0; i < DIGITS_ROWS; i++) {
        uint8_t raw[DIGITS_PIXELS];
        digits_pixels((int)rows[i], raw);
        for (int k = 0; k < DIGITS_PIXELS; k++) mem->pixels[i][k] = (float)raw[k] / 16.0f;
        mem->labels[i] = (uint8_t)digits_label((int)rows[i]);
    }
}

static void shuffle_epoch(worker *w, int64_t epoch)
{
    if (w->order_epoch == epoch) return;
    rng r = rng_begin((uint64_t)w->o->seed, 1000 + (uint64_t)epoch);
    for (uint32_t i = 0; i < TRAIN_ROWS; i++) {
        const uint32_t j = rng_below(&r, i + 1);
        w->mem->order[i] = w->mem->order[j];
        w->mem->order[j] = i;
    }
    w->order_epoch = epoch;
}

/* Samples run through the epochs without a gap; step counts from 1. */
static void load_shard(worker *w, int64_t step, int shard)
{
    const int64_t samples = w->o->batch / TRAIN_SHARDS;
    int64_t at = (step - 1) * w->o->batch + shard * samples;
    for (int64_t i = 0; i < samples; i++, at++) {
        shuffle_epoch(w, at / TRAIN_ROWS);
        const uint32_t row = w->mem->order[at % TRAIN_ROWS];
        memcpy(w->batch_x + i * MODEL_INPUTS, w->mem->pixels[row], sizeof w->mem->pixels[row]);
        w->batch_labels[i] = w->mem->labels[row];
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
            for (int k = 0; k < MODEL_PARAMS; k++) w->mem->grad[k] *= 1000.0f;
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

/* This rank's part of a step: its shards' gradients, rounded, in their slots. */
static keel_status compute_shards(worker *w, int64_t step, float loss_scale)
{
    const int mine = TRAIN_SHARDS / (int)w->o->ranks;
    const int first = keel_comm_rank(w->rank->comm) * mine;
    memset(w->ex.words, 0, (size_t)w->ex.word_count * sizeof *w->ex.words);
    for (int shard = first; shard < first + mine; shard++) {
        float *loss = loss_of(w, shard);
        load_shard(w, step, shard);
        *loss = model_shard(w->net, w->batch_x, w->batch_labels,
                            (int32_t)(w->o->batch / TRAIN_SHARDS), loss_scale, w->mem->grad);
        inject(w, step, shard);
        const keel_tensor wide = {w->mem->grad, MODEL_PARAMS, KEEL_FORMAT_F32, 0, NULL, NULL};
        const keel_tensor slot = {slot_of(w, shard), MODEL_PARAMS, w->rank->recipe->format, 0,
                                  NULL, NULL};
        keel_status status = keel_quantize(NULL, &wide, &slot, NULL, NULL, NULL);
        if (!status) status = keel_step_check_loss(w->step, loss, NULL);
        if (!status && w->o->probe) status = probe(w, shard);
        if (status) return status;
    }
    return KEEL_OK;
}

/* All shards in their order, in f32, then rounded as an all-reduce in that format would leave it. */
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

static keel_status one_step(worker *w, int64_t step, int64_t index)
{
    float loss_scale;
    keel_status status = keel_step_loss_scale(w->step, &loss_scale);
    if (!status) status = keel_step_set_tag(w->step, (uint64_t)step);
    model_load(w->net, w->mem->copy, w->rank->recipe->format);
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
        p.group = t % 2; /* weights decay, biases do not */
        p.grad.data = w->mem->sum + mt->offset * width;
        p.grad.numel = mt->numel;
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
    const int64_t samples = w->o->batch / TRAIN_SHARDS;
    const int64_t code_bytes = MODEL_PARAMS * width_of(w->rank->recipe->format);
    w->ex.slot_words = (code_bytes + 7) / 8 + 1; /* the last word holds the loss */
    w->ex.word_count = w->ex.slot_words * TRAIN_SHARDS;
    w->ex.words = malloc((size_t)w->ex.word_count * sizeof *w->ex.words);
    w->mem = calloc(1, sizeof *w->mem);
    w->batch_x = malloc((size_t)samples * MODEL_INPUTS * sizeof *w->batch_x);
    w->batch_labels = malloc((size_t)samples);
    w->net = model_create(w->rank->recipe->format,
                          samples > DIGITS_ROWS - TRAIN_ROWS ? (int32_t)samples
                                                             : DIGITS_ROWS - TRAIN_ROWS);
    w->order_epoch = -1;
    return w->ex.words && w->mem && w->batch_x && w->batch_labels && w->net;
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

static void evaluate(worker *w)
{
    const int32_t rows = DIGITS_ROWS - TRAIN_ROWS;
    int32_t correct = 0;
    model_load(w->net, w->mem->copy, w->rank->recipe->format);
    w->rank->loss = (double)model_evaluate(w->net, w->mem->pixels[TRAIN_ROWS],
                                           w->mem->labels + TRAIN_ROWS, rows, &correct);
    w->rank->accuracy = (double)correct / (double)rows;
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
    if (rank->points) evaluate(w);
    return status;
}

static train_checkpoint checkpoint_of(worker *w, int64_t step)
{
    const train_checkpoint c = {w->mem->params, w->mem->moment1, w->mem->moment2,
                                w->step,        w->rank->recipe, step};
    return c;
}

/* Start from the seed, or from where another run stopped. */
static keel_status prepare(worker *w)
{
    train_rank *rank = w->rank;
    load_digits(w->mem);
    model_init(w->mem->params, (uint64_t)w->o->seed);
    keel_status status = create_step(w);
    if (!status && w->o->load) {
        train_checkpoint c = checkpoint_of(w, 0);
        rank->exit_code = train_load(w->o->load, &c, rank->points != NULL);
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
    model_destroy(w->net);
    free(w->batch_labels);
    free(w->batch_x);
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

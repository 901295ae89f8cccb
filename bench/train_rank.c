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

#include "autocast.h"
#include "cli.h"

/* A slot holds the codes of a shard's gradient and the bits of its loss. */
typedef struct exchange {
    int64_t *words;
    int64_t slot_words;
    int64_t word_count;
} exchange;

typedef struct worker {
    train_rank *rank;
    const train_options *o;
    task_shape shape;
    keel_format grad_format;
    void *task;
    autocast *cast;
    keel_step *step;
    exchange ex;
    autocast_weight weights[GPT_TENSORS_MAX];

    float *params, *moment1, *moment2;
    float *grad;         /* of one shard; then the sum of all */
    float *decoded;      /* a shard's gradient on its way into the sum */
    unsigned char *sum;  /* the sum in grad_format */
    unsigned char *copy; /* low-precision weights, 4 bytes apart per element */
    float *memory;
} worker;

static int64_t width_of(keel_format format)
{
    return keel_format_get(format)->storage_bytes;
}

static keel_tensor tensor_of(void *data, int64_t numel, keel_format format)
{
    const keel_tensor t = {data, numel, format, 0, NULL, NULL};
    return t;
}

/* A wrong gradient, before it is rounded to the format the ranks exchange. */
static void inject(const worker *w, int64_t step, int shard)
{
    const int32_t rank = keel_comm_rank(w->rank->comm);
    const int shards = TASK_SHARDS / (int)w->o->ranks;
    if (shard != rank * shards) return;
    const task_tensor *target = &w->shape.tensors[2];
    for (int i = 0; i < w->o->injections.count; i++) {
        const train_injection *in = &w->o->injections.at[i];
        if (in->step != step || in->rank != rank) continue;
        if (in->fault == TRAIN_SPIKE)
            for (int64_t k = 0; k < w->shape.param_count; k++) w->grad[k] *= 10000.0f;
        else
            w->grad[target->offset + 7] = in->fault == TRAIN_INF ? INFINITY : NAN;
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
    const void *grads[GPT_TENSORS_MAX];
    const int64_t width = width_of(w->grad_format);
    for (int t = 0; t < w->shape.tensor_count; t++)
        grads[t] = slot_of(w, shard) + w->shape.tensors[t].offset * width;
    return keel_step_probe(w->step, 0, w->shape.tensor_count, grads, NULL);
}

static keel_status compute_shard(worker *w, int64_t step, int shard, float loss_scale)
{
    const int64_t n = w->shape.param_count;
    float *loss = loss_of(w, shard);
    keel_status status =
        w->o->task->shard(w->task, w->params, step, shard, loss_scale, w->grad, loss);
    if (status) return status;
    inject(w, step, shard);
    const keel_tensor wide = tensor_of(w->grad, n, KEEL_FORMAT_F32);
    const keel_tensor slot = tensor_of(slot_of(w, shard), n, w->grad_format);
    status = keel_quantize(NULL, &wide, &slot, NULL, NULL, NULL);
    if (!status) status = keel_step_check_loss(w->step, loss, NULL);
    if (!status && w->o->probe) status = probe(w, shard);
    return status;
}

/* This rank's part of a step: its shards' gradients in their slots. */
static keel_status compute_shards(worker *w, int64_t step, float loss_scale)
{
    const int mine = TASK_SHARDS / (int)w->o->ranks;
    const int first = keel_comm_rank(w->rank->comm) * mine;
    memset(w->ex.words, 0, (size_t)w->ex.word_count * sizeof *w->ex.words);
    for (int shard = first; shard < first + mine; shard++) {
        const keel_status status = compute_shard(w, step, shard, loss_scale);
        if (status) return status;
    }
    return KEEL_OK;
}

/* All shards in their order, in f32, then rounded as an all-reduce in that format would leave it.
 */
static keel_status sum_shards(worker *w)
{
    const int64_t n = w->shape.param_count;
    memset(w->grad, 0, (size_t)n * sizeof *w->grad);
    for (int s = 0; s < TASK_SHARDS; s++) {
        const keel_tensor slot = tensor_of(slot_of(w, s), n, w->grad_format);
        const keel_status status = keel_dequantize(NULL, &slot, w->decoded, NULL);
        if (status) return status;
        for (int64_t k = 0; k < n; k++) w->grad[k] += w->decoded[k];
    }
    const keel_tensor wide = tensor_of(w->grad, n, KEEL_FORMAT_F32);
    const keel_tensor narrow = tensor_of(w->sum, n, w->grad_format);
    return keel_quantize(NULL, &wide, &narrow, NULL, NULL, NULL);
}

static float mean_loss(const worker *w)
{
    float sum = 0;
    for (int s = 0; s < TASK_SHARDS; s++) sum += *loss_of(w, s);
    return sum / (float)TASK_SHARDS;
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
    if (!status) status = compute_shards(w, step, loss_scale);
    if (!status)
        status = keel_comm_reduce(w->rank->comm, w->ex.words, w->ex.word_count, NULL, 0, 0);
    if (!status) status = sum_shards(w);
    if (!status) status = keel_step_run(w->step, NULL);
    if (!status && w->rank->points) status = record(w, index);
    return status;
}

/* The copy of a weight that products read: in its recipe's format, with its slot. */
static void describe_copy(worker *w, int t, keel_param *p)
{
    const task_tensor *tensor = &w->shape.tensors[t];
    autocast_weight *weight = &w->weights[t];
    weight->offset = tensor->offset;
    weight->copy.data = NULL;
    if (tensor->place < 0) return;
    const keel_recipe_cell cell =
        autocast_cell(w->rank->recipe, &w->shape.places[tensor->place], PRODUCT_RIGHT);
    if (cell.scaling == KEEL_CELL_MX || cell.format == KEEL_FORMAT_F32) return;
    weight->copy = tensor_of(w->copy + 4 * tensor->offset, tensor->count, cell.format);
    p->copy = weight->copy;
    p->copy_slot = autocast_slot_of(w->cast, tensor->place, PRODUCT_RIGHT);
    p->copy_scale_inv = &weight->scale_inv;
    if (p->copy_slot >= 0) weight->copy.scale_inv = &weight->scale_inv;
}

static void describe_params(worker *w, keel_param *params)
{
    const int64_t width = width_of(w->grad_format);
    for (int t = 0; t < w->shape.tensor_count; t++) {
        const task_tensor *tensor = &w->shape.tensors[t];
        keel_param p = KEEL_PARAM_INIT;
        p.name = tensor->name;
        p.group = tensor->decays ? 0 : 1;
        p.grad = tensor_of(w->sum + tensor->offset * width, tensor->count, w->grad_format);
        p.master = w->params + tensor->offset;
        p.moment1 = w->moment1 + tensor->offset;
        p.moment2 = w->moment2 + tensor->offset;
        describe_copy(w, t, &p);
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
    keel_param params[GPT_TENSORS_MAX];
    keel_config cfg = KEEL_CONFIG_INIT;
    cfg.comm = w->rank->comm;
    cfg.max_norm = (float)w->rank->max_norm;
    cfg.loss_scale = w->rank->recipe->loss_scale;
    cfg.loss_scale.init = (float)w->o->init_scale;
    cfg.loss_scale.interval = (int32_t)w->o->interval;
    cfg.groups = groups;
    cfg.group_count = 2;
    cfg.slots = autocast_slots(w->cast, &cfg.slot_count);
    cfg.log = w->rank->points ? log_line : NULL;
    cfg.log_context = w->rank;
    describe_params(w, params);
    keel_status status = keel_step_create(&cfg, params, w->shape.tensor_count, NULL, 0, &w->step);
    if (!status) status = keel_step_set_grad_divisor(w->step, TASK_SHARDS, NULL);
    if (!status) status = keel_step_verify(w->step);
    return status;
}

/* Gradients travel in the format of gradients where that needs no scale of its own. */
static keel_format grad_format_of(const keel_recipe *recipe)
{
    const keel_recipe_cell cell = recipe->cell[KEEL_OP_LINEAR][KEEL_OPERAND_GRADIENT];
    return cell.scaling == KEEL_CELL_NONE ? cell.format : KEEL_FORMAT_F32;
}

static bool allocate(worker *w)
{
    const int64_t n = w->shape.param_count;
    float *at = calloc(7 * (size_t)n, sizeof *at);
    w->memory = at;
    w->ex.slot_words = (n * width_of(w->grad_format) + 7) / 8 + 1; /* the last holds the loss */
    w->ex.word_count = w->ex.slot_words * TASK_SHARDS;
    w->ex.words = malloc((size_t)w->ex.word_count * sizeof *w->ex.words);
    w->cast = autocast_create(w->rank->recipe, w->shape.places, w->shape.place_count,
                              w->shape.operand_max);
    if (!at || !w->ex.words || !w->cast) return false;
    w->params = at;
    w->moment1 = at + n;
    w->moment2 = at + 2 * n;
    w->grad = at + 3 * n;
    w->decoded = at + 4 * n;
    w->sum = (unsigned char *)(at + 5 * n);
    w->copy = (unsigned char *)(at + 6 * n);
    return true;
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

static keel_status report_slots(worker *w)
{
    static const char *const sides[] = {"input", "weight", "gradient"};
    train_rank *rank = w->rank;
    for (int32_t i = 0; i < 3 * w->shape.place_count; i++) {
        const product_place *place = &w->shape.places[i / 3];
        const int32_t slot = autocast_slot_of(w->cast, i / 3, (product_side)(i % 3));
        if (slot < 0) continue;
        train_slot *out = &rank->slots[rank->slot_count++];
        snprintf(out->name, sizeof out->name, "%s.%s", place->name, sides[i % 3]);
        const keel_status status = keel_step_slot_report(w->step, slot, &out->report);
        if (status) return status;
    }
    return KEEL_OK;
}

/* What is asked of rank 0 alone, after all that ranks are compared by. */
static keel_status conclude_first(worker *w)
{
    keel_status status = report_slots(w);
    if (!status && w->o->save) {
        const train_checkpoint c = {w->params, w->moment1,      w->moment2, w->shape.param_count,
                                    w->step,   w->rank->recipe, w->o->steps};
        w->rank->exit_code = train_save(w->o->save, &c);
    }
    if (!status)
        status = w->o->task->evaluate(w->task, w->params, &w->rank->loss, &w->rank->accuracy);
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
    rank->params_crc = train_crc32(w->params, (size_t)w->shape.param_count * sizeof *w->params);
    if (!status && rank->points) status = conclude_first(w);
    return status;
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
    w->o->task->init(w->task, w->params);
    keel_status status = create_step(w);
    if (status) return status;
    autocast_bind(w->cast, w->step, w->params, w->weights, w->shape.tensor_count);
    if (w->o->load) {
        train_checkpoint c = {w->params, w->moment1,   w->moment2, w->shape.param_count,
                              w->step,   rank->recipe, 0};
        rank->exit_code = load(w, &c);
        rank->first_step = c.step + 1;
    }
    return rank->exit_code ? KEEL_OK : keel_step_prime(w->step, NULL);
}

static keel_status run(worker *w)
{
    const task_setup setup = {w->o->seed, w->o->batch, w->o->text};
    w->o->task->shape(&setup, &w->shape);
    w->grad_format = grad_format_of(w->rank->recipe);
    if (!allocate(w)) return KEEL_ERR_NO_MEMORY;
    const product_hook hook = autocast_hook(w->cast);
    char why[GPT_WHY];
    w->task = w->o->task->create(&setup, &hook, why);
    if (!w->task) {
        const bool speaks = w->rank->points != NULL; /* one rank does, for all */
        w->rank->exit_code = speaks ? cli_fail(CLI_ENVIRONMENT, "%s", why) : CLI_ENVIRONMENT;
        return KEEL_OK;
    }
    keel_status status = prepare(w);
    if (status || w->rank->exit_code) return status;
    status = train(w);
    return status ? status : conclude(w);
}

static void release(worker *w)
{
    keel_step_destroy(w->step);
    w->o->task->destroy(w->task);
    autocast_destroy(w->cast);
    free(w->ex.words);
    free(w->memory);
}

void *train_rank_main(void *argument)
{
    train_rank *rank = argument;
    worker *w = calloc(1, sizeof *w);
    rank->first_step = 1;
    if (w) {
        w->rank = rank;
        w->o = rank->options;
        rank->status = run(w);
        release(w);
        free(w);
    } else {
        rank->status = KEEL_ERR_NO_MEMORY;
    }
    if (rank->status == KEEL_ERR_NO_MEMORY)
        snprintf(rank->error, sizeof rank->error, "no memory for a rank of the training");
    else if (rank->status)
        snprintf(rank->error, sizeof rank->error, "%s", keel_last_error());
    keel_comm_destroy(rank->comm); /* the others must not wait for a rank that failed */
    return rank;
}

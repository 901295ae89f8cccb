/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Tensors as callers hand them in, and the parameters handed to create: checks, shards, and the
 * rows kernels read. */
#include <stdio.h>

#include "config.h"
#include "internal.h"

/* Sizes in bytes, whatever the format, must not overflow. */
#define NUMEL_MAX (INT64_MAX / 8)

keel_status keeli_tensor_check(const char *fn, const char *what, const keel_tensor *t)
{
    if (!t) return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s is NULL", what);
    if (!keel_format_get(t->format))
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s.format=%d (want one of the registry)", what,
                             (int)t->format);
    if (t->numel < 0 || t->numel > NUMEL_MAX)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s.numel=%lld (want 0..%lld)", what,
                             (long long)t->numel, (long long)NUMEL_MAX);
    if (t->reserved != 0)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s.reserved=%d (want 0)", what,
                             (int)t->reserved);
    if (!t->data && t->numel > 0)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s.data is NULL (want %lld elements)", what,
                             (long long)t->numel);
    return KEEL_OK;
}

/* A parameter as sentences name it: "param 3 'layers.0.w'". */
typedef struct label {
    char text[96];
} label;

static label label_of(const keel_param *param, int64_t index)
{
    label l;
    snprintf(l.text, sizeof l.text, "param %lld '%.60s'", (long long)index,
             param->name ? param->name : "");
    return l;
}

#define FAIL_PARAM(format, ...)                                                           \
    return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s " format, label_of(param, index).text, \
                         __VA_ARGS__)

static int64_t id_of(const keel_param *param, int64_t index)
{
    return param->id < 0 ? index : param->id;
}

static keel_status check_tensor(const char *fn, const keel_param *param, int64_t index,
                                const char *what, const keel_tensor *t)
{
    char name[sizeof(label) + 8];
    snprintf(name, sizeof name, "%s %s", label_of(param, index).text, what);
    return keeli_tensor_check(fn, name, t);
}

static keel_status check_copy(const char *fn, const keel_param *param, int64_t index)
{
    const keel_tensor *copy = &param->copy;
    if (!copy->data) return KEEL_OK;
    TRY(check_tensor(fn, param, index, "copy", copy));
    if (!keel_format_get(copy->format)->can_encode)
        return keel_ext_fail(KEEL_ERR_UNSUPPORTED, fn, "%s copy.format=%s is described only",
                             label_of(param, index).text, keel_format_get(copy->format)->name);
    if (copy->numel != param->grad.numel)
        FAIL_PARAM("copy.numel=%lld (want %lld)", (long long)copy->numel,
                   (long long)param->grad.numel);
    if (!param->master && copy->numel > 0) FAIL_PARAM("has a copy and no %s", "master");
    return KEEL_OK;
}

/* A copy with a slot takes the slot's format and scale, and remembers the inverse it was written
 * with. */
static keel_status check_copy_slot(const char *fn, const keel_config *cfg, const keel_param *param,
                                   int64_t index)
{
    if (!param->copy.data || param->copy_slot == -1) return KEEL_OK;
    if (param->copy_slot < 0 || param->copy_slot >= cfg->slot_count)
        FAIL_PARAM("copy_slot=%d (want -1 or a slot below %d)", param->copy_slot, cfg->slot_count);
    const keel_slot *slot = &cfg->slots[param->copy_slot];
    if (slot->role != KEEL_SLOT_WEIGHT)
        FAIL_PARAM("copy_slot=%d has role %d (want a WEIGHT slot)", param->copy_slot,
                   (int)slot->role);
    if (slot->format != param->copy.format)
        FAIL_PARAM("copy.format=%s (want %s, as its slot %d)",
                   keel_format_get(param->copy.format)->name, keel_format_get(slot->format)->name,
                   param->copy_slot);
    if (!param->copy_scale_inv)
        FAIL_PARAM("copy_scale_inv is NULL with copy_slot=%d", param->copy_slot);
    return KEEL_OK;
}

static keel_status check_transposed(const char *fn, const keel_param *param, int64_t index)
{
    const int64_t columns = param->copy_columns, numel = param->copy.numel;
    if (!param->copy_transposed) return KEEL_OK;
    if (!param->copy.data && numel > 0) FAIL_PARAM("has copy_transposed and no %s", "copy");
    if (param->copy_transposed == param->copy.data) FAIL_PARAM("%s is the copy", "copy_transposed");
    if (numel > 0 && (columns < 1 || numel % columns != 0))
        FAIL_PARAM("copy_columns=%lld (want a divisor of %lld)", (long long)columns,
                   (long long)numel);
    return KEEL_OK;
}

static keel_status check_memory(const char *fn, const keel_param *param, int64_t index,
                                const keel_group *group)
{
    const bool adamw = group->optimizer == KEEL_OPTIMIZER_ADAMW;
    const bool sgd = group->optimizer == KEEL_OPTIMIZER_SGD;
    if (param->grad.numel == 0) return KEEL_OK;
    if ((adamw || sgd) && !param->master) FAIL_PARAM("%s is NULL", "master");
    if ((adamw || (sgd && group->momentum > 0)) && !param->moment1)
        FAIL_PARAM("%s is NULL", "moment1");
    if (adamw && !param->moment2) FAIL_PARAM("%s is NULL", "moment2");
    return KEEL_OK;
}

keel_shard keeli_shard_resolve(const keel_param *param, const keel_comm *comm)
{
    keel_shard s = param->shard;
    if (s.rows == 0) {
        s.rows = 1;
        s.cols = param->grad.numel;
    }
    if (s.rows == 1) s.row_stride = s.cols;
    if (s.global_numel == 0) s.global_numel = param->grad.numel;
    if (s.replicas == 0) {
        s.replica = keel_comm_rank(comm);
        s.replicas = keel_comm_size(comm);
    }
    return s;
}

/* Blocks of 1,024 logical elements must not be cut. */
static bool keeps_blocks(const keel_shard *s)
{
    const int64_t block = 1024, end = s->offset + (s->rows - 1) * s->row_stride + s->cols;
    const bool rows_fit = s->rows == 1 || (s->cols % block == 0 && s->row_stride % block == 0);
    return s->offset % block == 0 && rows_fit && (end % block == 0 || end == s->global_numel);
}

static keel_status check_shard(const char *fn, const keel_config *cfg, const keel_param *param,
                               int64_t index)
{
    const keel_shard *raw = &param->shard;
    if (raw->global_numel < 0 || raw->offset < 0 || raw->rows < 0 || raw->cols < 0 ||
        raw->row_stride < 0)
        FAIL_PARAM("shard has a negative %s", "field");
    if (raw->replicas < 0 ||
        (raw->replicas > 0 && (raw->replica < 0 || raw->replica >= raw->replicas)))
        FAIL_PARAM("shard.replica=%d (want 0..%d)", raw->replica, raw->replicas - 1);
    const keel_shard s = keeli_shard_resolve(param, cfg->comm);
    if (s.cols > 0 ? param->grad.numel % s.cols != 0 || s.rows != param->grad.numel / s.cols
                   : param->grad.numel != 0)
        FAIL_PARAM("shard rows*cols=%lld*%lld (want numel=%lld)", (long long)s.rows,
                   (long long)s.cols, (long long)param->grad.numel);
    if (s.row_stride < s.cols)
        FAIL_PARAM("shard.row_stride=%lld (want >= cols=%lld)", (long long)s.row_stride,
                   (long long)s.cols);
    if (s.cols > 0 &&
        (s.offset > s.global_numel - s.cols ||
         (s.rows > 1 && (s.rows - 1) > (s.global_numel - s.cols - s.offset) / s.row_stride)))
        FAIL_PARAM("shard reaches past global_numel=%lld", (long long)s.global_numel);
    if (cfg->norm_mode == KEEL_NORM_BLOCK && param->grad.numel > 0 && !keeps_blocks(&s))
        FAIL_PARAM(
            "shard at offset %lld cuts a block of %d elements; norm mode EXACT takes any cut",
            (long long)s.offset, 1024);
    return KEEL_OK;
}

static keel_status check_param(const char *fn, const keel_config *cfg, const keel_group *groups,
                               int32_t group_count, const keel_param *param, int64_t index)
{
    if (param->group < 0 || param->group >= group_count)
        FAIL_PARAM("group=%d (want 0..%d)", param->group, group_count - 1);
    if (param->id < -1 || param->id > UINT32_MAX)
        FAIL_PARAM("id=%lld (want -1..2^32-1)", (long long)param->id);
    if (cfg->global_params > 0 && id_of(param, index) >= cfg->global_params)
        FAIL_PARAM("id=%lld (want below cfg.global_params=%lld)", (long long)id_of(param, index),
                   (long long)cfg->global_params);
    if (param->reserved != 0) FAIL_PARAM("reserved=%d (want 0)", param->reserved);
    TRY(check_tensor(fn, param, index, "grad", &param->grad));
    TRY(check_copy(fn, param, index));
    TRY(check_copy_slot(fn, cfg, param, index));
    TRY(check_transposed(fn, param, index));
    TRY(check_memory(fn, param, index, &groups[param->group]));
    return check_shard(fn, cfg, param, index);
}

keel_status keeli_params_check(const char *fn, const keel_config *cfg, const keel_group *groups,
                               int32_t group_count, const keel_param *params, int64_t count)
{
    if (count < 0 || count > UINT32_MAX || (count > 0 && !params))
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "count=%lld with params=%p", (long long)count,
                             (const void *)params);
    for (int64_t i = 0; i < count; i++)
        TRY(check_param(fn, cfg, groups, group_count, &params[i], i));
    return KEEL_OK;
}

keeli_row keeli_row_make(const keel_param *param, int64_t index, const keel_comm *comm)
{
    keeli_row row;
    memset(&row, 0, sizeof row);
    row.grad = param->grad;
    row.copy = param->copy;
    row.master = param->master;
    row.moment1 = param->moment1;
    row.moment2 = param->moment2;
    row.id = id_of(param, index);
    row.group = param->group;
    row.copy_slot = param->copy.data ? param->copy_slot : -1;
    row.copy_scale_inv = param->copy_scale_inv;
    row.copy_transposed = param->copy.data ? param->copy_transposed : NULL;
    row.copy_columns = param->copy_columns;
    row.counts = keeli_shard_resolve(param, comm).replica == 0;
    return row;
}

/* Carve one part off a block of memory, on its own cache line. */
static void *carve(unsigned char *base, size_t *used, size_t nbytes)
{
    void *part = base ? base + *used : NULL;
    *used += (nbytes + 63) / 64 * 64;
    return part;
}

size_t keeli_step_mem_place(keeli_step_mem *mem, void *base)
{
    const size_t rows = (size_t)mem->settings.row_count;
    const size_t groups = (size_t)mem->settings.group_count;
    const size_t slots = (size_t)mem->settings.slot_count;
    size_t used = 0;
    mem->rows = carve(base, &used, rows * sizeof *mem->rows);
    mem->inputs = carve(base, &used, sizeof *mem->inputs);
    mem->groups = carve(base, &used, groups * sizeof *mem->groups);
    mem->partial = carve(base, &used, sizeof *mem->partial);
    mem->packet = carve(base, &used, sizeof *mem->packet + slots * sizeof *mem->slot_words);
    mem->slot_packet_words = base ? (uint64_t *)(mem->packet + 1) : NULL;
    mem->decision = carve(base, &used, sizeof *mem->decision);
    mem->scalars = carve(base, &used, groups * sizeof *mem->scalars);
    mem->state = carve(base, &used, sizeof *mem->state);
    mem->saved = carve(base, &used, sizeof *mem->saved);
    mem->group_state = carve(base, &used, groups * sizeof *mem->group_state);
    mem->group_saved = carve(base, &used, groups * sizeof *mem->group_saved);
    mem->ring = carve(base, &used, (size_t)mem->settings.report_capacity * sizeof *mem->ring);
    mem->slots = carve(base, &used, slots * sizeof *mem->slots);
    mem->slot_live = carve(base, &used, slots * sizeof *mem->slot_live);
    mem->slot_saved = carve(base, &used, slots * sizeof *mem->slot_saved);
    mem->slot_counts = carve(base, &used, slots * sizeof *mem->slot_counts);
    mem->slot_words = carve(base, &used, slots * sizeof *mem->slot_words);
    mem->histories = carve(base, &used, (size_t)mem->history_total * sizeof *mem->histories);
    return used;
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Birth and end of a step: everything is checked and allocated here, so that no later call has to.
 */
#include <stdio.h>
#include <stdlib.h>

#include "collectives.h"
#include "config.h"
#include "decide.h"
#include "step_object.h"

static const keel_group no_optimizer; /* what a caller without groups has */

/* The arguments of create after their checks. */
typedef struct request {
    keel_config cfg;
    const keel_group *groups;
    int32_t group_count;
    const keel_param *params;
    int64_t count;
} request;

static keel_status check(const char *fn, request *r, const keel_config *cfg,
                         const keel_param *params, int64_t count)
{
    TRY(keeli_config_check(fn, &r->cfg, cfg));
    r->groups = r->cfg.group_count > 0 ? r->cfg.groups : &no_optimizer;
    r->group_count = r->cfg.group_count > 0 ? r->cfg.group_count : 1;
    r->params = params;
    r->count = count;
    for (int32_t g = 0; g < r->cfg.group_count; g++) TRY(keeli_group_check(fn, &r->groups[g], g));
    return keeli_params_check(fn, &r->cfg, r->groups, r->group_count, params, count);
}

static uint64_t slot_hash(uint64_t hash, const keel_slot *s)
{
    hash = keeli_hash_mix(hash, (uint64_t)s->role << 32 | (uint32_t)s->format);
    return keeli_hash_mix(hash, (uint64_t)s->policy);
}

/* What cannot change between steps and must be alike on all ranks. */
static uint64_t frozen_hash(const request *r)
{
    const uint64_t words[] = {
        KEEL_EXT_VERSION,
        KEELI_NSUM,
        KEELI_NMAX,
        (uint64_t)r->cfg.norm_mode,
    };
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) hash = keeli_hash_mix(hash, words[i]);
    for (int32_t i = 0; i < r->cfg.slot_count; i++) hash = slot_hash(hash, &r->cfg.slots[i]);
    return hash;
}

static keeli_settings settings_of(const request *r)
{
    keeli_settings s;
    memset(&s, 0, sizeof s);
    s.loss_scale = r->cfg.loss_scale;
    s.norm_mode = r->cfg.norm_mode;
    s.rank = keel_comm_rank(r->cfg.comm);
    s.nranks = keel_comm_size(r->cfg.comm);
    s.rate_window = r->cfg.rate_window;
    s.report_capacity = r->cfg.report_capacity;
    s.group_count = r->group_count;
    s.slot_count = r->cfg.slot_count;
    s.row_count = r->count;
    s.hash = frozen_hash(r);
    return s;
}

static int64_t history_total(const request *r)
{
    int64_t total = 0;
    for (int32_t i = 0; i < r->cfg.slot_count; i++) total += r->cfg.slots[i].history;
    return total;
}

keel_status keel_step_workspace_size(const keel_config *cfg, const keel_param *params,
                                     int64_t count, size_t *out_bytes)
{
    if (!out_bytes) FAIL(KEEL_ERR_INVALID, "out_bytes is NULL");
    request r;
    TRY(check(__func__, &r, cfg, params, count));
    keeli_step_mem mem;
    mem.settings = settings_of(&r);
    mem.history_total = history_total(&r);
    *out_bytes = keeli_step_mem_place(&mem, NULL);
    return KEEL_OK;
}

static char *name_copy(const keel_param *param, int64_t index)
{
    char fallback[32];
    snprintf(fallback, sizeof fallback, "#%lld", (long long)index);
    const char *name = param->name ? param->name : fallback;
    char *copy = malloc(strlen(name) + 1);
    if (copy) strcpy(copy, name);
    return copy;
}

static void fill_slots(keeli_slot_row *rows, const request *r)
{
    int64_t offset = 0;
    for (int32_t i = 0; i < r->cfg.slot_count; i++) {
        rows[i].slot = r->cfg.slots[i];
        rows[i].slot.name = NULL;
        rows[i].fmt_max = (float)keel_format_get(rows[i].slot.format)->max;
        rows[i].capacity = rows[i].slot.history;
        rows[i].history_offset = offset;
        offset += rows[i].slot.history;
    }
}

static size_t longest_history(const request *r)
{
    int32_t longest = 0;
    for (int32_t i = 0; i < r->cfg.slot_count; i++)
        if (r->cfg.slots[i].history > longest) longest = r->cfg.slots[i].history;
    return (size_t)longest;
}

/* The host's half; a NULL member tells the caller that memory ran out. */
static bool fill_host(keel_step *step, const request *r)
{
    const size_t rows = (size_t)r->count, groups = (size_t)r->group_count;
    step->rows = calloc(rows + 1, sizeof *step->rows);
    step->shards = calloc(rows + 1, sizeof *step->shards);
    step->groups = calloc(groups, sizeof *step->groups);
    step->slots = calloc((size_t)r->cfg.slot_count + 1, sizeof *step->slots);
    step->rings = calloc(2 * longest_history(r) + 1, sizeof *step->rings);
    step->visited = calloc(rows + 1, 1);
    step->names = calloc(rows + 1, sizeof *step->names);
    if (!step->rows || !step->shards || !step->groups || !step->slots || !step->rings ||
        !step->visited || !step->names)
        return false;
    fill_slots(step->slots, r);
    memcpy(step->groups, r->groups, groups * sizeof *step->groups);
    for (int64_t i = 0; i < r->count; i++) {
        step->rows[i] = keeli_row_make(&r->params[i], i, r->cfg.comm);
        step->shards[i] = keeli_shard_resolve(&r->params[i], r->cfg.comm);
        step->names[i] = name_copy(&r->params[i], i);
        if (!step->names[i]) return false;
    }
    for (int32_t g = 0; g < r->group_count; g++)
        step->has_optimizer |= r->groups[g].optimizer != KEEL_OPTIMIZER_NONE;
    step->inputs.max_norm = r->cfg.max_norm;
    step->inputs.skip_norm = r->cfg.skip_norm;
    step->inputs.divisor = 1.0;
    step->inputs_stale = true;
    step->rows_stale_to = r->count;
    return true;
}

static keel_status fill_device_slots(keel_step *step)
{
    const keeli_step_mem *mem = &step->mem;
    const keel_device *device = step->device;
    const keeli_slot_live live = {.state.scale = 1.0f, .scale = 1.0f, .scale_inv = 1.0f};
    const keeli_slot_counts none = {0};
    const uint64_t word = 0;
    const float entry = 0.0f;
    TRY(device->upload(device, mem->slots, step->slots,
                       (size_t)mem->settings.slot_count * sizeof *step->slots, NULL));
    for (int32_t i = 0; i < mem->settings.slot_count; i++) {
        keeli_slot_live first = live;
        keeli_publish_scale(&step->slots[i].slot, &first,
                            mem->settings.loss_scale.mode == KEEL_LOSS_SCALE_OFF
                                ? 1.0f
                                : mem->settings.loss_scale.init);
        TRY(device->upload(device, &mem->slot_live[i], &first, sizeof first, NULL));
        TRY(device->upload(device, &mem->slot_counts[i], &none, sizeof none, NULL));
        TRY(device->upload(device, &mem->slot_words[i], &word, sizeof word, NULL));
    }
    for (int64_t i = 0; i < mem->history_total; i++)
        TRY(device->upload(device, &mem->histories[i], &entry, sizeof entry, NULL));
    return KEEL_OK;
}

/* The device's half as it is before the first step. */
static keel_status fill_device(keel_step *step)
{
    const keeli_step_mem *mem = &step->mem;
    const keel_device *device = step->device;
    static const keeli_partial empty;
    keeli_state state;
    memset(&state, 0, sizeof state);
    TRY(keel_loss_scale_begin(&mem->settings.loss_scale, &state.loss_scale));
    const keel_decision decision = {.loss_scale = state.loss_scale.scale};
    const keeli_group_state fresh = keeli_group_begin();
    const keel_report blank = {0};

    TRY(device->upload(device, mem->partial, &empty, sizeof empty, NULL));
    TRY(device->upload(device, mem->state, &state, sizeof state, NULL));
    TRY(device->upload(device, mem->decision, &decision, sizeof decision, NULL));
    for (int32_t g = 0; g < mem->settings.group_count; g++)
        TRY(device->upload(device, &mem->group_state[g], &fresh, sizeof fresh, NULL));
    for (int32_t i = 0; i < mem->settings.report_capacity; i++)
        TRY(device->upload(device, &mem->ring[i], &blank, sizeof blank, NULL));
    return fill_device_slots(step);
}

static keel_status place(const char *fn, keel_step *step, void *workspace, size_t workspace_bytes)
{
    const size_t needed = keeli_step_mem_place(&step->mem, NULL);
    if (workspace && workspace_bytes < needed)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "workspace_bytes=%zu (want >= %zu)",
                             workspace_bytes, needed);
    if (workspace && (uintptr_t)workspace % 256 != 0)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "workspace=%p (want aligned to 256)", workspace);
    if (!workspace) {
        TRY(step->device->alloc(step->device, needed, &step->owned_workspace));
        workspace = step->owned_workspace;
    }
    keeli_step_mem_place(&step->mem, workspace);
    return fill_device(step);
}

keel_status keel_step_create(const keel_config *cfg, const keel_param *params, int64_t count,
                             void *workspace, size_t workspace_bytes, keel_step **out_step)
{
    if (!out_step) FAIL(KEEL_ERR_INVALID, "out_step is NULL");
    request r;
    TRY(check(__func__, &r, cfg, params, count));
    keel_step *step = calloc(1, sizeof *step);
    if (!step) FAIL(KEEL_ERR_NO_MEMORY, "step, %zu bytes", sizeof *step);
    step->cfg = r.cfg;
    step->cfg.groups = NULL; /* the copies are step->groups */
    step->cfg.slots = NULL;  /* and step->slots */
    step->device = r.cfg.device ? r.cfg.device : keel_cpu_device();
    step->comm = r.cfg.comm ? r.cfg.comm : keeli_comm_self();
    step->mem.settings = settings_of(&r);
    step->mem.history_total = history_total(&r);
    if (!fill_host(step, &r)) {
        keel_step_destroy(step);
        FAIL(KEEL_ERR_NO_MEMORY, "table of %lld params", (long long)count);
    }
    const keel_status status = place(__func__, step, workspace, workspace_bytes);
    if (status != KEEL_OK) {
        keel_step_destroy(step);
        return status;
    }
    *out_step = step;
    return KEEL_OK;
}

void keel_step_destroy(keel_step *step)
{
    if (!step) return;
    if (step->owned_workspace) step->device->free(step->device, step->owned_workspace);
    for (int64_t i = 0; step->names && i < step->mem.settings.row_count; i++) free(step->names[i]);
    free(step->names);
    free(step->visited);
    free(step->rings);
    free(step->slots);
    free(step->groups);
    free(step->shards);
    free(step->rows);
    free(step);
}

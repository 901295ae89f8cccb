/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A step's slots as their caller sees them: cast, change, ask. */
#include <math.h>

#include "config.h"
#include "decide_slots.h"
#include "step_object.h"

static keel_status want_slot(const char *fn, const keel_step *step, int32_t slot)
{
    if (slot < 0 || slot >= step->mem.settings.slot_count)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "slot=%d (want 0..%d)", slot,
                             step->mem.settings.slot_count - 1);
    return KEEL_OK;
}

/* A tensor is read again for its own amax.  Whether a slot has none to go by yet is known to the
 * device, and here only where that is at hand. */
static int64_t passes_of(const keel_step *step, int32_t slot)
{
    const keeli_slot_row *row = &step->slots[slot];
    const bool twice = step->device->synchronous
                           ? keeli_casts_by_current(row, &step->mem.slot_live[slot])
                           : row->slot.scaling == KEEL_SCALING_CURRENT;
    return twice ? 2 : 1;
}

keel_status keel_step_quantize(keel_step *step, int32_t slot, const keel_tensor *src,
                               const keel_tensor *dst, float *out_scale_inv, keel_stream stream)
{
    if (!step || !out_scale_inv)
        FAIL(KEEL_ERR_INVALID, "%s is NULL", step ? "out_scale_inv" : "step");
    TRY(want_slot(__func__, step, slot));
    TRY(keeli_step_want_open(step, __func__));
    TRY(keeli_cast_check(__func__, src, dst));
    const keel_format format = step->slots[slot].slot.format;
    if (dst->format != format)
        FAIL(KEEL_ERR_INVALID, "dst.format=%s (want %s, as slot %d)",
             keel_format_get(dst->format)->name, keel_format_get(format)->name, slot);
    TRY(step->device->slot_quantize(step->device, &step->mem, slot, src, dst, out_scale_inv,
                                    stream));
    keeli_step_begin(step);
    step->counters.launches++;
    step->counters.slot_elements_read += src->numel * passes_of(step, slot);
    return KEEL_OK;
}

static keel_status read_slot(keel_step *step, int32_t slot, keeli_slot_live *live)
{
    step->counters.host_syncs += !step->device->synchronous;
    return step->device->download(step->device, live, &step->mem.slot_live[slot], sizeof *live,
                                  NULL);
}

/* The newest entries that fit, oldest first, from the start of the ring. */
static void repack(const float *old, const keel_slot_state *from, int32_t old_length, float *fresh,
                   keel_slot_state *to, int32_t length)
{
    const int32_t kept = from->filled < length ? from->filled : length;
    for (int32_t i = 0; i < kept; i++) {
        const int32_t back = kept - i; /* steps before the next entry */
        fresh[i] = old[((from->next - back) % old_length + old_length) % old_length];
    }
    to->filled = kept;
    to->next = kept == length ? 0 : kept;
}

static keel_status resize(keel_step *step, int32_t slot, int32_t length)
{
    const keeli_slot_row *row = &step->slots[slot];
    float *old = step->rings, *fresh = step->rings + row->capacity;
    const keel_device *device = step->device;
    float *ring = step->mem.histories + row->history_offset;
    const size_t nbytes = (size_t)row->capacity * sizeof *ring;
    keeli_slot_live live;
    TRY(read_slot(step, slot, &live));
    TRY(device->download(device, old, ring, nbytes, NULL));
    keel_slot_state state = live.state;
    memset(fresh, 0, nbytes);
    repack(old, &live.state, row->slot.history, fresh, &state, length);
    live.state = state;
    TRY(device->upload(device, ring, fresh, nbytes, NULL));
    return device->upload(device, &step->mem.slot_live[slot], &live, sizeof live, NULL);
}

keel_status keel_step_set_slot(keel_step *step, int32_t slot, const keel_slot *config)
{
    if (!step || !config) FAIL(KEEL_ERR_INVALID, "%s is NULL", step ? "config" : "step");
    TRY(want_slot(__func__, step, slot));
    TRY(keeli_step_want_between(step, __func__));
    TRY(keeli_slot_check(__func__, config));
    keeli_slot_row row = step->slots[slot];
    if (config->role != row.slot.role || config->format != row.slot.format ||
        config->policy != row.slot.policy)
        FAIL(KEEL_ERR_INVALID, "role=%d format=%d policy=%d (want %d, %d, %d: they cannot change)",
             (int)config->role, (int)config->format, (int)config->policy, (int)row.slot.role,
             (int)row.slot.format, (int)row.slot.policy);
    if (config->history > row.capacity)
        FAIL(KEEL_ERR_INVALID, "history=%d (want 1..%d, the history at create)", config->history,
             row.capacity);
    if (config->history != row.slot.history) TRY(resize(step, slot, config->history));
    row.slot = *config;
    row.slot.name = NULL;
    step->slots[slot] = row;
    return step->device->upload(step->device, &step->mem.slots[slot], &row, sizeof row, NULL);
}

keel_status keel_step_slot_report(keel_step *step, int32_t slot, keel_slot_report *out_report)
{
    if (!step || !out_report) FAIL(KEEL_ERR_INVALID, "%s is NULL", step ? "out_report" : "step");
    TRY(want_slot(__func__, step, slot));
    keeli_slot_live live;
    keeli_slot_counts counts;
    TRY(read_slot(step, slot, &live));
    TRY(step->device->download(step->device, &counts, &step->mem.slot_counts[slot], sizeof counts,
                               NULL));
    const keeli_slot_row *row = &step->slots[slot];
    const keel_slot_report report = {
        .role = row->slot.role,
        .format = row->slot.format,
        .amax = live.state.amax,
        .scale = live.scale,
        .scale_inv = live.scale_inv,
        .headroom = live.state.amax > 0
                        ? (float)log2((double)row->fmt_max /
                                      ((double)live.state.amax * (double)live.state.scale))
                        : NAN,
        .updates = live.state.updates,
        .nonfinite_updates = live.state.nonfinite_updates,
        .casts = counts.casts,
        .saturated = counts.saturated,
        .flushed = counts.flushed,
        .nonfinite = counts.nonfinite,
    };
    *out_report = report;
    return KEEL_OK;
}

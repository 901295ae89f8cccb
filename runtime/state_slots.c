/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The slots' part of a state blob: per slot its configuration, state, scale of the next cast, and
 * the ring of its history, as long as it was at create. */
#include "blob.h"
#include "config.h"

enum { CHUNK = 256 };

static void walk_slot(keeli_cursor *c, keel_slot *s, int32_t *capacity, keeli_slot_live *live)
{
    FIELD(c, s->role);
    FIELD(c, s->format);
    FIELD(c, s->scaling);
    FIELD(c, s->algorithm);
    FIELD(c, s->policy);
    FIELD(c, s->history);
    FIELD(c, s->margin);
    FIELD(c, s->power_of_two);
    FIELD(c, s->veto);
    FIELD(c, s->count);
    FIELD(c, *capacity);
    FIELD(c, live->state.scale);
    FIELD(c, live->state.amax);
    FIELD(c, live->state.next);
    FIELD(c, live->state.filled);
    FIELD(c, live->state.updates);
    FIELD(c, live->state.nonfinite_updates);
    FIELD(c, live->scale);
    FIELD(c, live->scale_inv);
}

void keeli_blob_measure_slots(const keel_step *step, keeli_cursor *c)
{
    for (int32_t i = 0; i < step->mem.settings.slot_count; i++) {
        keeli_slot_row row = step->slots[i];
        keeli_slot_live live;
        walk_slot(c, &row.slot, &row.capacity, &live);
        c->used += (size_t)row.capacity * sizeof(float);
    }
}

/* The ring goes straight into the blob, then each entry into the blob's byte order. */
static keel_status save_ring(keel_step *step, const keeli_slot_row *row, keeli_cursor *c)
{
    TRY(step->device->download(step->device, c->at + c->used,
                               step->mem.histories + row->history_offset,
                               (size_t)row->capacity * sizeof(float), NULL));
    for (int32_t i = 0; i < row->capacity; i++) {
        float entry;
        memcpy(&entry, c->at + c->used, sizeof entry);
        FIELD(c, entry);
    }
    return KEEL_OK;
}

keel_status keeli_blob_save_slots(keel_step *step, keeli_cursor *c)
{
    for (int32_t i = 0; i < step->mem.settings.slot_count; i++) {
        keeli_slot_row row = step->slots[i];
        keeli_slot_live live;
        TRY(step->device->download(step->device, &live, &step->mem.slot_live[i], sizeof live,
                                   NULL));
        walk_slot(c, &row.slot, &row.capacity, &live);
        TRY(save_ring(step, &row, c));
    }
    return KEEL_OK;
}

#define REFUSE(...) return keel_ext_fail(KEEL_ERR_STATE, "keel_step_state_load", __VA_ARGS__)

static bool is_scale(float x)
{
    return x > 0 && keeli_is_finite_amax(x);
}

static bool state_agrees(const keel_slot *s, const keeli_slot_live *live)
{
    const keel_slot_state *state = &live->state;
    return is_scale(state->scale) && is_scale(live->scale) && is_scale(live->scale_inv) &&
           !(state->amax < 0) && state->next >= 0 && state->next < s->history &&
           state->filled >= 0 && state->filled <= s->history && state->updates >= 0 &&
           state->nonfinite_updates >= 0 && state->nonfinite_updates <= state->updates;
}

static bool entry_agrees(const keel_slot *s, float entry)
{
    return s->policy == KEEL_SLOT_POLICY_TE || (entry >= 0 && keeli_is_finite_amax(entry));
}

static keel_status check_slot(const keeli_slot_row *mine, int32_t index, keeli_cursor *c)
{
    keel_slot s;
    keeli_slot_live live;
    int32_t capacity = 0;
    memset(&s, 0, sizeof s);
    memset(&live, 0, sizeof live);
    walk_slot(c, &s, &capacity, &live);
    if (s.role != mine->slot.role || s.format != mine->slot.format ||
        s.policy != mine->slot.policy || capacity != mine->capacity)
        REFUSE("slot %d has role %d, format %d, policy %d, history %d (this step %d, %d, %d, %d)",
               index, (int)s.role, (int)s.format, (int)s.policy, capacity, (int)mine->slot.role,
               (int)mine->slot.format, (int)mine->slot.policy, mine->capacity);
    if (keeli_slot_check("keel_step_state_load", &s) != KEEL_OK || s.history > capacity)
        REFUSE("slot %d is out of bounds", index);
    if (!state_agrees(&s, &live)) REFUSE("slot %d contradicts itself", index);
    for (int32_t i = 0; i < capacity; i++) {
        float entry = 0;
        FIELD(c, entry);
        if (!entry_agrees(&s, entry)) REFUSE("slot %d remembers %g", index, (double)entry);
    }
    return KEEL_OK;
}

keel_status keeli_blob_check_slots(const keel_step *step, keeli_cursor *c)
{
    for (int32_t i = 0; i < step->mem.settings.slot_count; i++)
        TRY(check_slot(&step->slots[i], i, c));
    return KEEL_OK;
}

static keel_status apply_ring(keel_step *step, const keeli_slot_row *row, keeli_cursor *c)
{
    float chunk[CHUNK];
    for (int32_t at = 0; at < row->capacity; at += CHUNK) {
        const int32_t left = row->capacity - at, n = left < CHUNK ? left : CHUNK;
        for (int32_t i = 0; i < n; i++) FIELD(c, chunk[i]);
        TRY(step->device->upload(step->device, step->mem.histories + row->history_offset + at,
                                 chunk, (size_t)n * sizeof *chunk, NULL));
    }
    return KEEL_OK;
}

keel_status keeli_blob_apply_slots(keel_step *step, keeli_cursor *c)
{
    const keel_device *device = step->device;
    const uint64_t none = 0;
    for (int32_t i = 0; i < step->mem.settings.slot_count; i++) {
        keeli_slot_row *row = &step->slots[i];
        keeli_slot_live live;
        memset(&live, 0, sizeof live);
        walk_slot(c, &row->slot, &row->capacity, &live);
        TRY(device->upload(device, &step->mem.slots[i], row, sizeof *row, NULL));
        TRY(device->upload(device, &step->mem.slot_live[i], &live, sizeof live, NULL));
        TRY(device->upload(device, &step->mem.slot_words[i], &none, sizeof none, NULL));
        TRY(apply_ring(step, row, c));
    }
    return KEEL_OK;
}

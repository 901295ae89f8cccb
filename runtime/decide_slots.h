/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The slots' part of a decision: agreed amax words in, scales of the next step out.
 *
 *   word 0               no rank cast through the slot in this step
 *   word bits(amax) + 1  largest |x| over ranks; bits order NaN above infinity above numbers */
#ifndef KEELI_DECIDE_SLOTS_H
#define KEELI_DECIDE_SLOTS_H

#include "step_mem.h"

KEELI_HD uint64_t keeli_amax_word(float amax)
{
    return (uint64_t)(keeli_bits_of(amax) & 0x7fffffffu) + 1;
}

KEELI_HD float keeli_word_amax(uint64_t word)
{
    return word == 0 ? 0.0f : keeli_float_of((uint32_t)(word - 1));
}

KEELI_HD void keeli_note_amax(uint64_t *word, float amax)
{
    const uint64_t seen = keeli_amax_word(amax);
    if (seen > *word) *word = seen;
}

/* Whether the amax it remembers is that of the gradient the model has, not of the scaled one. */
KEELI_HD int keeli_is_unscaled_slot(const keel_slot *slot)
{
    return slot->role == KEEL_SLOT_GRADIENT && slot->policy == KEEL_SLOT_POLICY_KEEL;
}

/* Copies are written by update with the scale of their slot and keep it while steps are skipped;
 * the amax of the last write waits with them. */
KEELI_HD int keeli_waits_on_skip(const keel_slot *slot)
{
    return slot->role == KEEL_SLOT_WEIGHT;
}

KEELI_HD void keeli_publish_scale(const keel_slot *slot, keeli_slot_live *live, float loss_scale)
{
    live->scale = keeli_is_unscaled_slot(slot) ? keeli_bound_scale(live->state.scale / loss_scale)
                                               : live->state.scale;
    live->scale_inv = 1.0f / live->scale;
}

KEELI_HD void keeli_update_slot(const keeli_slot_row *row, keeli_slot_live *live, float *history,
                                uint64_t word, int skip, float loss_scale)
{
    const int unscaled = keeli_is_unscaled_slot(&row->slot);
    float amax = keeli_word_amax(word);
    int ran = word != 0 && !(skip && keeli_waits_on_skip(&row->slot));
    /* A skipped step's gradients are nothing to go by; that they were not finite still counts. */
    if (skip && unscaled && keeli_is_finite_amax(amax)) ran = 0;
    if (unscaled) amax = amax / loss_scale;
    keeli_slot_update(&row->slot, &live->state, history, row->fmt_max, ran, amax);
}

KEELI_HD void keeli_update_slots(const keeli_step_mem *mem, int skip, float loss_scale,
                                 float loss_scale_next)
{
    for (int i = 0; i < mem->settings.slot_count; i++) {
        const keeli_slot_row *row = &mem->slots[i];
        keeli_update_slot(row, &mem->slot_live[i], mem->histories + row->history_offset,
                          mem->slot_packet_words[i], skip, loss_scale);
        keeli_publish_scale(&row->slot, &mem->slot_live[i], loss_scale_next);
    }
}

KEELI_HD void keeli_forget_slot_words(const keeli_step_mem *mem, int skip)
{
    for (int i = 0; i < mem->settings.slot_count; i++)
        if (!(skip && keeli_waits_on_skip(&mem->slots[i].slot))) mem->slot_words[i] = 0;
}

KEELI_HD void keeli_save_slots(const keeli_step_mem *mem)
{
    for (int i = 0; i < mem->settings.slot_count; i++) {
        const keeli_slot_live *live = &mem->slot_live[i];
        mem->slot_saved[i].live = *live;
        mem->slot_saved[i].word = mem->slot_words[i];
        mem->slot_saved[i].entry = mem->histories[mem->slots[i].history_offset + live->state.next];
    }
}

/* Copies outlive the step, and so does what is known of them. */
KEELI_HD void keeli_restore_slots(const keeli_step_mem *mem)
{
    for (int i = 0; i < mem->settings.slot_count; i++) {
        const keeli_slot_saved *saved = &mem->slot_saved[i];
        mem->slot_live[i] = saved->live;
        mem->slot_words[i] = keeli_waits_on_skip(&mem->slots[i].slot) ? saved->word : 0;
        mem->histories[mem->slots[i].history_offset + saved->live.state.next] = saved->entry;
    }
}

/* A cast goes by its own amax when it is asked to, or when there is no history yet. */
KEELI_HD int keeli_casts_by_current(const keeli_slot_row *row, const keeli_slot_live *live)
{
    const int untaught = row->slot.policy == KEEL_SLOT_POLICY_KEEL && live->state.filled == 0;
    return row->slot.scaling == KEEL_SCALING_CURRENT || untaught;
}

#endif

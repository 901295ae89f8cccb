/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A row's low-precision copy on its way from the master: tile by tile in the pass that updates it
 * where the scale is known before, behind that pass where it follows from the new amax. */
#ifndef KEELI_COPY_H
#define KEELI_COPY_H

#include "cpu.h"
#include "decide_slots.h"

typedef struct keeli_copier {
    const keeli_cpu_kernels *k;
    const keeli_row *row;
    const keeli_slot_row *slot; /* NULL: the caller's own scale, no amax asked for */
    float scale;
    uint32_t absmax;
    bool deferred;
} keeli_copier;

static inline keeli_copier keeli_copy_begin(const keeli_cpu_kernels *k, const keeli_step_mem *mem,
                                            const keeli_row *row)
{
    keeli_copier c = {k, row, NULL, row->copy.scale ? *row->copy.scale : 1.0f, 0, false};
    if (row->copy_slot < 0) return c;
    const keeli_slot_live *live = &mem->slot_live[row->copy_slot];
    c.slot = &mem->slots[row->copy_slot];
    c.scale = live->scale;
    c.deferred = keeli_casts_by_current(c.slot, live);
    return c;
}

/* The tile's codes, still in the cache, to where the transposed matrix has them. */
static inline void keeli_copy_turn(const keeli_row *row, int64_t at, int32_t n)
{
    const size_t width = (size_t)keel_format_get(row->copy.format)->storage_bytes;
    const unsigned char *from = (const unsigned char *)row->copy.data + (size_t)at * width;
    unsigned char *to = row->copy_transposed;
    const int64_t columns = row->copy_columns, rows = row->copy.numel / columns;
    for (int32_t i = 0; i < n; i++) {
        const int64_t turned = (at + i) % columns * rows + (at + i) / columns;
        memcpy(to + (size_t)turned * width, from + (size_t)i * width, width);
    }
}

static inline void keeli_copy_store(const keeli_copier *c, int64_t at, int32_t n)
{
    keel_tensor copy = c->row->copy;
    copy.scale = &c->scale;
    keeli_tile_store(c->k, &copy, at, n, c->row->master + at);
    if (c->row->copy_transposed) keeli_copy_turn(c->row, at, n);
}

static inline void keeli_copy_tile(keeli_copier *c, int64_t at, int32_t n)
{
    if (!c->row->copy.data) return;
    if (c->slot) {
        const uint32_t absmax = c->k->stats->absmax(c->row->master + at, n);
        if (absmax > c->absmax) c->absmax = absmax;
    }
    if (!c->deferred) keeli_copy_store(c, at, n);
}

static inline void keeli_copy_count(const keeli_copier *c, keeli_slot_counts *counts)
{
    const keeli_codec_kernels *codec = &c->k->codec[c->row->copy.format];
    counts->casts++;
    if (!c->slot->slot.count) return;
    KEELI_FOR_TILES (at, n, c->row->copy.numel) {
        const float *x = c->row->master + at;
        const keeli_code_counts codes = codec->count(x, c->scale, (int32_t)n);
        counts->saturated += codes.above;
        counts->flushed += codes.zero - c->k->stats->count_zero(x, (int32_t)n);
    }
}

static inline void keeli_copy_end(keeli_copier *c, const keeli_step_mem *mem)
{
    if (!c->row->copy.data || !c->slot) return;
    const int32_t slot = c->row->copy_slot;
    const float amax = keeli_float_of(c->absmax);
    if (c->deferred) {
        c->scale = keeli_current_scale(&c->slot->slot, c->slot->fmt_max, amax);
        KEELI_FOR_TILES (at, n, c->row->copy.numel) keeli_copy_store(c, at, (int32_t)n);
    }
    keeli_note_amax(&mem->slot_words[slot], amax);
    *c->row->copy_scale_inv = 1.0f / c->scale;
    keeli_copy_count(c, &mem->slot_counts[slot]);
}

#endif

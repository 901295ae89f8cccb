/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Casts through a slot: by its scale in one pass, or by the tensor's own amax in two. */
#include <math.h>

#include "cpu.h"
#include "decide_slots.h"

float keeli_cpu_amax(const keel_tensor *t, bool skip_nan)
{
    const keeli_cpu_kernels *k = keeli_cpu_kernels_get();
    float buffer[KEELI_TILE], amax = 0.0f;
    KEELI_FOR_TILES (at, n, t->numel) {
        const float *x = keeli_tile_load(k, t, at, (int32_t)n, buffer);
        const uint32_t bits = k->stats->absmax(x, (int32_t)n);
        float tile = keeli_float_of(bits);
        if (skip_nan && isnan(tile)) {
            tile = 0.0f;
            for (int64_t i = 0; i < n; i++) tile = fabsf(x[i]) > tile ? fabsf(x[i]) : tile;
        }
        if (!(tile <= amax)) amax = tile; /* a NaN is taken, and stays */
        if (isnan(amax)) break;
    }
    return amax;
}

static float scale_for(const keeli_slot_row *row, const keeli_slot_live *live,
                       const keel_tensor *src)
{
    if (!keeli_casts_by_current(row, live)) return live->scale;
    return keeli_current_scale(&row->slot, row->fmt_max, keeli_cpu_amax(src, false));
}

/* Saturation must not hide an overflow: what a gradient's source held joins the step's verdict. */
static void note_nonfinite(const keeli_step_mem *mem, int32_t slot, const keel_cast_stats *stats)
{
    const keel_slot *s = &mem->slots[slot].slot;
    keeli_finite_partial *finite = &mem->partial->finite;
    const bool vetoes = s->role == KEEL_SLOT_GRADIENT || s->veto;
    if (!vetoes || stats->inf_count + stats->nan_count == 0) return;
    finite->inf_count += stats->inf_count;
    finite->nan_count += stats->nan_count;
    if (finite->bad_slot == 0 || slot + 1 < finite->bad_slot) finite->bad_slot = slot + 1;
}

static void note_cast(const keeli_step_mem *mem, int32_t slot, float amax,
                      const keel_cast_stats *stats)
{
    keeli_slot_counts *counts = &mem->slot_counts[slot];
    keeli_note_amax(&mem->slot_words[slot], amax);
    counts->casts++;
    counts->saturated += stats->saturated;
    counts->flushed += stats->flushed;
    counts->nonfinite += stats->inf_count + stats->nan_count;
    note_nonfinite(mem, slot, stats);
}

keel_status keeli_cpu_slot_quantize(const keel_device *device, const keeli_step_mem *mem,
                                    int32_t slot, const keel_tensor *src, const keel_tensor *dst,
                                    float *out_scale_inv, keel_stream stream)
{
    (void)device;
    (void)stream;
    const keeli_slot_row *row = &mem->slots[slot];
    const keel_cast_options defaults = {KEEL_OVERFLOW_DEFAULT, KEEL_ROUND_NEAREST_EVEN, 0, 0};
    /* Transformer Engine's maximum passes over NaN: another pass for tensors with one; a cast in
     * place overwrites what it would read. */
    const bool drops_nan = row->slot.policy == KEEL_SLOT_POLICY_TE;
    const bool in_place = dst->data == src->data;
    const keeli_fp_env env = keeli_fp_begin();
    const float before = drops_nan && in_place ? keeli_cpu_amax(src, true) : 0.0f;
    const float scale = scale_for(row, &mem->slot_live[slot], src);
    const float scale_inv = 1.0f / scale;
    keeli_fp_end(env);

    keel_tensor scaled = *dst;
    keel_cast_stats stats = {0};
    scaled.scale = &scale;
    TRY(keeli_cpu_cast(src, &scaled, &defaults,
                       row->slot.count ? KEELI_CAST_COUNTS : KEELI_CAST_AMAX, &stats));
    float amax = stats.amax;
    if (drops_nan && isnan(amax)) amax = in_place ? before : keeli_cpu_amax(src, true);
    note_cast(mem, slot, amax, &stats);
    *out_scale_inv = scale_inv;
    return KEEL_OK;
}

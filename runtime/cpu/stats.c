/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* accumulate and probe: one read of a gradient, tile by tile, while every lane sees the tile. */
#include <math.h>

#include "cpu.h"

enum {
    TILES_PER_CARRY = 1 << 14 /* a tile adds at most 16 folds' sums: far below KEELI_LIMB_ADDS */
};

static void count_nonfinite(const float *x, int32_t n, keeli_finite_partial *finite)
{
    for (int32_t i = 0; i < n; i++) {
        finite->nan_count += isnan(x[i]) != 0;
        finite->inf_count += isinf(x[i]) != 0;
    }
}

static int32_t first_nonfinite(const float *x, int32_t n)
{
    int32_t i = 0;
    while (i < n && isfinite(x[i])) i++;
    return i;
}

static bool has_nonfinite(uint32_t absmax)
{
    return absmax >= 0x7f800000u;
}

static void add_squares(const keeli_cpu_kernels *k, keel_norm_mode mode, const float *x, int32_t n,
                        uint32_t absmax, keeli_limbs *squares)
{
    if (absmax == 0) return;
    if (mode == KEEL_NORM_BLOCK)
        keeli_limbs_add(squares, k->stats->norm_block(x, n));
    else
        k->stats->norm_exact(x, n, absmax, squares);
}

static void accumulate_row(const keeli_cpu_kernels *k, const keeli_step_mem *mem, int64_t index)
{
    const keeli_row *row = &mem->rows[index];
    keeli_norm_partial *norm = &mem->partial->norm;
    keeli_finite_partial *finite = &mem->partial->finite;
    float buffer[KEELI_TILE];
    int64_t tiles = 0;
    KEELI_FOR_TILES (at, n, row->grad.numel) {
        const float *x = keeli_tile_load(k, &row->grad, at, (int32_t)n, buffer);
        int32_t zeros;
        const uint32_t absmax = k->stats->scan(x, (int32_t)n, &zeros);
        if (has_nonfinite(absmax)) {
            count_nonfinite(x, (int32_t)n, finite);
            keeli_first_bad_note(&finite->seen, index, row->id,
                                 at + first_nonfinite(x, (int32_t)n));
        } else if (row->counts) {
            add_squares(k, mem->settings.norm_mode, x, (int32_t)n, absmax, &norm->squares);
        }
        if (row->counts) norm->zeros += zeros;
        if (++tiles % TILES_PER_CARRY == 0) keeli_limbs_carry(&norm->squares);
    }
    keeli_limbs_carry(&norm->squares);
    if (row->counts) norm->elements += row->grad.numel;
}

keel_status keeli_cpu_accumulate(const keel_device *device, const keeli_step_mem *mem,
                                 int64_t first, int64_t count, keel_stream stream)
{
    (void)device;
    (void)stream;
    const keeli_cpu_kernels *k = keeli_cpu_kernels_get();
    const keeli_fp_env env = keeli_fp_begin();
    for (int64_t i = first; i < first + count; i++) accumulate_row(k, mem, i);
    keeli_fp_end(env);
    return KEEL_OK;
}

static void probe_row(const keeli_cpu_kernels *k, const keeli_step_mem *mem, int64_t index,
                      const void *data)
{
    const keeli_row *row = &mem->rows[index];
    keeli_finite_partial *finite = &mem->partial->finite;
    keel_tensor grad = row->grad;
    if (data) grad.data = (void *)(uintptr_t)data;
    float buffer[KEELI_TILE];
    finite->probed_elements += grad.numel;
    KEELI_FOR_TILES (at, n, grad.numel) {
        const float *x = keeli_tile_load(k, &grad, at, (int32_t)n, buffer);
        if (!has_nonfinite(k->stats->absmax(x, (int32_t)n))) continue;
        keeli_first_bad_note(&finite->probed, index, row->id, at + first_nonfinite(x, (int32_t)n));
    }
}

keel_status keeli_cpu_probe(const keel_device *device, const keeli_step_mem *mem, int64_t first,
                            int64_t count, const void *const *grads, keel_stream stream)
{
    (void)device;
    (void)stream;
    const keeli_cpu_kernels *k = keeli_cpu_kernels_get();
    const keeli_fp_env env = keeli_fp_begin();
    for (int64_t i = 0; i < count; i++) probe_row(k, mem, first + i, grads ? grads[i] : NULL);
    keeli_fp_end(env);
    return KEEL_OK;
}

keel_status keeli_cpu_vote(const keel_device *device, const keeli_step_mem *mem, const float *loss,
                           keel_stream stream)
{
    (void)device;
    (void)stream;
    if (loss)
        mem->partial->vote.loss += !isfinite(*loss);
    else
        mem->partial->vote.veto++;
    return KEEL_OK;
}

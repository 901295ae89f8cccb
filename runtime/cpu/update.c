/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* update, scale, prime: what is written after the decision.  Gradients are read once more; masters,
 * moments and copies of a tile are touched while it is in the cache. */
#include "copy.h"

typedef void (*optimizer_fn)(const keeli_cpu_kernels *k, const keeli_row *row, int64_t at,
                             int32_t n, float *g, const keeli_group_scalars *s);

static void apply_adamw(const keeli_cpu_kernels *k, const keeli_row *row, int64_t at, int32_t n,
                        float *g, const keeli_group_scalars *s)
{
    k->update->adamw(g, row->master + at, row->moment1 + at, row->moment2 + at, n, s);
}

static void apply_sgd(const keeli_cpu_kernels *k, const keeli_row *row, int64_t at, int32_t n,
                      float *g, const keeli_group_scalars *s)
{
    k->update->sgd(g, row->master + at, row->moment1 ? row->moment1 + at : NULL, n, s);
}

static const optimizer_fn optimizers[] = {
    [KEEL_OPTIMIZER_NONE] = NULL,
    [KEEL_OPTIMIZER_SGD] = apply_sgd,
    [KEEL_OPTIMIZER_ADAMW] = apply_adamw,
};

/* g in the buffer, where the optimizer may work on it. */
static void load_gradient(const keeli_cpu_kernels *k, const keeli_row *row, int64_t at, int32_t n,
                          float *buffer)
{
    const float *g = keeli_tile_load(k, &row->grad, at, n, buffer);
    if (g != buffer) memcpy(buffer, g, (size_t)n * sizeof *buffer);
}

static void update_row(const keeli_cpu_kernels *k, const keeli_step_mem *mem, const keeli_row *row,
                       optimizer_fn optimize)
{
    const keeli_group_scalars *s = &mem->scalars[row->group];
    keeli_copier copier = keeli_copy_begin(k, mem, row);
    float buffer[KEELI_TILE];
    KEELI_FOR_TILES (at, n, row->grad.numel) {
        load_gradient(k, row, at, (int32_t)n, buffer);
        optimize(k, row, at, (int32_t)n, buffer, s);
        keeli_copy_tile(&copier, at, (int32_t)n);
    }
    keeli_copy_end(&copier, mem);
}

keel_status keeli_cpu_update(const keel_device *device, const keeli_step_mem *mem,
                             keel_stream stream)
{
    (void)device;
    (void)stream;
    if (mem->decision->skip) return KEEL_OK;
    const keeli_cpu_kernels *k = keeli_cpu_kernels_get();
    const keeli_fp_env env = keeli_fp_begin();
    for (int64_t i = 0; i < mem->settings.row_count; i++) {
        const keeli_row *row = &mem->rows[i];
        const optimizer_fn optimize = optimizers[mem->groups[row->group].optimizer];
        if (optimize) update_row(k, mem, row, optimize);
    }
    keeli_fp_end(env);
    return KEEL_OK;
}

static void scale_row(const keeli_cpu_kernels *k, const keeli_row *row, const keel_decision *d)
{
    float buffer[KEELI_TILE];
    KEELI_FOR_TILES (at, n, row->grad.numel) {
        load_gradient(k, row, at, (int32_t)n, buffer);
        k->stats->multiply(buffer, d->inv_scale, (int32_t)n);
        k->stats->multiply(buffer, d->clip_coef, (int32_t)n);
        keeli_tile_store(k, &row->grad, at, (int32_t)n, buffer);
    }
}

keel_status keeli_cpu_scale(const keel_device *device, const keeli_step_mem *mem,
                            keel_stream stream)
{
    (void)device;
    (void)stream;
    if (mem->decision->skip) return KEEL_OK;
    const keeli_cpu_kernels *k = keeli_cpu_kernels_get();
    const keeli_fp_env env = keeli_fp_begin();
    for (int64_t i = 0; i < mem->settings.row_count; i++)
        scale_row(k, &mem->rows[i], mem->decision);
    keeli_fp_end(env);
    return KEEL_OK;
}

keel_status keeli_cpu_prime(const keel_device *device, const keeli_step_mem *mem,
                            keel_stream stream)
{
    (void)device;
    (void)stream;
    const keeli_cpu_kernels *k = keeli_cpu_kernels_get();
    const keeli_fp_env env = keeli_fp_begin();
    for (int64_t i = 0; i < mem->settings.row_count; i++) {
        const keeli_row *row = &mem->rows[i];
        keeli_copier copier = keeli_copy_begin(k, mem, row);
        KEELI_FOR_TILES (at, n, row->copy.numel) keeli_copy_tile(&copier, at, (int32_t)n);
        keeli_copy_end(&copier, mem);
    }
    keeli_fp_end(env);
    return KEEL_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The operations of the CPU device, one file each; device.c puts them into the table of
 * keel/ext.h, where each is described. */
#ifndef KEELI_CPU_H
#define KEELI_CPU_H

#include "internal.h"
#include "kernels.h"
#include "step_mem.h"

keel_status keeli_cpu_quantize(const keel_device *device, const keel_tensor *src,
                               const keel_tensor *dst, const keel_cast_options *options,
                               keel_cast_stats *out_stats, keel_stream stream);

/* What a cast measures on its way. */
typedef enum keeli_cast_depth {
    KEELI_CAST_PLAIN = 0,
    KEELI_CAST_AMAX = 1,  /* amax, infinities, NaNs */
    KEELI_CAST_COUNTS = 2 /* and what became of the codes */
} keeli_cast_depth;

keel_status keeli_cpu_cast(const keel_tensor *src, const keel_tensor *dst,
                           const keel_cast_options *options, keeli_cast_depth depth,
                           keel_cast_stats *out_stats);
/* Largest |x| of a tensor, NaN if any is; or passing over NaN. */
float keeli_cpu_amax(const keel_tensor *t, bool skip_nan);

keel_status keeli_cpu_slot_quantize(const keel_device *device, const keeli_step_mem *mem,
                                    int32_t slot, const keel_tensor *src, const keel_tensor *dst,
                                    float *out_scale_inv, keel_stream stream);

keel_status keeli_cpu_matmul(const keel_device *device, const keel_matmul_args *args,
                             keel_stream stream);
keel_status keeli_cpu_accumulate(const keel_device *device, const keeli_step_mem *mem,
                                 int64_t first, int64_t count, keel_stream stream);
keel_status keeli_cpu_probe(const keel_device *device, const keeli_step_mem *mem, int64_t first,
                            int64_t count, const void *const *grads, keel_stream stream);
keel_status keeli_cpu_vote(const keel_device *device, const keeli_step_mem *mem, const float *loss,
                           keel_stream stream);
keel_status keeli_cpu_pack(const keel_device *device, const keeli_step_mem *mem,
                           keel_stream stream);
keel_status keeli_cpu_decide(const keel_device *device, const keeli_step_mem *mem,
                             keel_stream stream);
keel_status keeli_cpu_restore(const keel_device *device, const keeli_step_mem *mem,
                              keel_stream stream);
keel_status keeli_cpu_update(const keel_device *device, const keeli_step_mem *mem,
                             keel_stream stream);
keel_status keeli_cpu_scale(const keel_device *device, const keeli_step_mem *mem,
                            keel_stream stream);
keel_status keeli_cpu_prime(const keel_device *device, const keeli_step_mem *mem,
                            keel_stream stream);

/* Elements [at, at + n) of a tensor as f32: decoded and multiplied by its scale_inv.  Returns
 * buffer, or the tensor's own memory where that already is what is asked for. */
static inline const float *keeli_tile_load(const keeli_cpu_kernels *k, const keel_tensor *t,
                                           int64_t at, int32_t n, float *buffer)
{
    const int64_t width = keel_format_get(t->format)->storage_bytes;
    const unsigned char *src = (const unsigned char *)t->data + at * width;
    const bool scaled = t->scale_inv && *t->scale_inv != 1.0f;
    if (t->format == KEEL_FORMAT_F32 && !scaled && (uintptr_t)src % _Alignof(float) == 0)
        return (const float *)(const void *)src;
    k->codec[t->format].decode(src, buffer, n);
    if (scaled) k->stats->multiply(buffer, *t->scale_inv, n);
    return buffer;
}

/* The reverse: x times scale, in the tensor's format and overflow mode. */
static inline void keeli_tile_store(const keeli_cpu_kernels *k, const keel_tensor *t, int64_t at,
                                    int32_t n, const float *x)
{
    const keel_format_info *info = keel_format_get(t->format);
    k->codec[t->format].encode(x, t->scale ? *t->scale : 1.0f,
                               (unsigned char *)t->data + at * info->storage_bytes, n,
                               info->bits <= 8);
}

#define KEELI_FOR_TILES(at, n, numel) \
    for (int64_t at = 0, n = 0;       \
         n = (numel)-at < KEELI_TILE ? (numel)-at : KEELI_TILE, at < (numel); at += n)

#endif

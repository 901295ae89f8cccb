/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Bulk casts between formats, with scale, amax and counts in one pass. */
#ifndef KEEL_QUANTIZE_H
#define KEEL_QUANTIZE_H

#include "keel/device.h"
#include "keel/tensor.h"

KEEL_BEGIN_DECLS

typedef enum keel_rounding {
    KEEL_ROUND_NEAREST_EVEN = 0,
    KEEL_ROUND_STOCHASTIC = 1, /* up with the probability of the discarded fraction */
    KEEL_ROUNDING_FORCE_32BIT = 0x7fffffff
} keel_rounding;

/* How to cast; all zero is round to nearest even with the format's own overflow mode. */
typedef struct keel_cast_options {
    keel_overflow overflow;
    keel_rounding rounding;
    uint64_t seed; /* stochastic: element i draws from (seed, offset + i) and nothing else */
    uint64_t offset;
} keel_cast_options;

/* What a cast saw, written by the device. */
typedef struct keel_cast_stats {
    float amax; /* largest |x| of the source, unscaled; NaN if any NaN, else inf if any */
    int32_t reserved;
    int64_t inf_count; /* of the source */
    int64_t nan_count; /* of the source */
    int64_t saturated; /* finite sources whose rounded value lies above the target's maximum */
    int64_t flushed;   /* finite non-zero sources whose code is a zero */
} keel_cast_stats;

/* keel_quantize: dst.data[i] = cast(fl32(src value i * dst scale)), one rounding from that f32.
 * device     NULL = CPU.
 * src, dst   equal numel; any formats, dst encodable; any alignment.  dst.data may equal src.data
 *            where an element of dst is no wider than one of src; any other overlap is refused.
 * options    NULL = all zero.
 * out_stats  device memory or NULL; with it the cast also counts.
 * Shapes     flat; 0 elements are legal (amax 0).
 * Reads      src once.   Writes  dst once.   Owns  nothing.
 * Units      amax in units of the source value, after src.scale_inv and before dst.scale.
 * Async      enqueues on stream; CPU: done on return.  No allocation.  The caller's floating-point
 *            environment (FTZ, DAZ, rounding) neither matters nor changes.
 * Threads    safe for distinct dst.
 * Errors     INVALID sizes, pointers, overlap, options; UNSUPPORTED dst format is described only;
 *            DEVICE launch failed.  dst untouched.
 * Since      0.1 */
KEEL_API keel_status keel_quantize(const keel_device *device, const keel_tensor *src,
                                   const keel_tensor *dst, const keel_cast_options *options,
                                   keel_cast_stats *out_stats, keel_stream stream);

/* keel_dequantize: out[i] = fl32(decode(src[i]) * src.scale_inv).
 * out     src.numel floats, not overlapping src unless src is f32 at the same address.
 * Errors  as keel_quantize().
 * Since   0.1 */
KEEL_API keel_status keel_dequantize(const keel_device *device, const keel_tensor *src, float *out,
                                     keel_stream stream);

KEEL_END_DECLS
#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Block scaling after the OCP Microscaling formats: 32 neighbours of a row share one power of two,
 * stored as e8m0.  For reading, and for comparing with per-tensor scaling on a CPU. */
#ifndef KEEL_MX_H
#define KEEL_MX_H

#include "keel/quantize.h"

KEEL_BEGIN_DECLS

enum { KEEL_MX_BLOCK = 32 };

/* How the scale X of a block follows from its amax; value = decode(code) * X.
 * CEIL   smallest power of two with amax / X <= the format's maximum: nothing saturates (the rule
 *        of cuBLAS and Transformer Engine).
 * FLOOR  2^(floor(log2 amax) - exponent of the format's maximum): the OCP document's; what lies
 *        above the maximum in the top binade saturates.
 * Both stop at 2^-127, the smallest e8m0. */
typedef enum keel_mx_rule {
    KEEL_MX_CEIL = 0,
    KEEL_MX_FLOOR = 1,
    KEEL_MX_RULE_FORCE_32BIT = 0x7fffffff
} keel_mx_rule;

/* keel_mx_scale_count: scales of a matrix, rows * ceil(cols / 32); -1 for sizes that are negative
 * or whose product is beyond any memory.
 * Errors  none.
 * Since   0.1 */
KEEL_API int64_t keel_mx_scale_count(int64_t rows, int64_t cols);

/* keel_mx_quantize: codes[i] = cast(x[i] / X of its block), round to nearest even, saturating.
 * src        rows * cols elements of any format, row-major; blocks run along a row, the last may be
 *            short.
 * format     of the codes, one per byte: e4m3, e5m2, e3m2, e2m3 or e2m1.
 * codes, scales  rows * cols bytes; keel_mx_scale_count() e8m0 codes, row by row.  Nothing in
 *            common with src or each other.
 * out_stats  NULL or what the cast saw, as keel_quantize() counts.
 * A block of zeros gets scale 0x00; one with an infinity 0xfe, under which infinities come back as
 * such and the rest is coarse; one with a NaN 0xff, which makes all of it NaN, and 0xfe's codes.
 * Async      CPU only; done on return.  No allocation.  The caller's floating-point environment
 *            neither matters nor changes.
 * Errors     INVALID sizes, pointers, overlap, format, rule; outputs untouched.
 * Since      0.1 */
KEEL_API keel_status keel_mx_quantize(const keel_tensor *src, int64_t rows, int64_t cols,
                                      keel_format format, keel_mx_rule rule, uint8_t *codes,
                                      uint8_t *scales, keel_cast_stats *out_stats);

/* keel_mx_dequantize: out[i] = decode(codes[i]) * X, exact, or infinite from 2^128 on.
 * Errors  as keel_mx_quantize().
 * Since   0.1 */
KEEL_API keel_status keel_mx_dequantize(const uint8_t *codes, const uint8_t *scales, int64_t rows,
                                        int64_t cols, keel_format format, float *out);

KEEL_END_DECLS
#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Matrix product of low-precision operands with their scales. */
#ifndef KEEL_MATMUL_H
#define KEEL_MATMUL_H

#include "keel/device.h"
#include "keel/tensor.h"

KEEL_BEGIN_DECLS

/* Row-major, d is m x n:
 *   sum[i][j] = f32 sum of a[i][p] * b[p][j] over p, of the operands as stored
 *   y[i][j]   = sum[i][j] * a.scale_inv * b.scale_inv + bias[j]  (+ d[i][j] with accumulate)
 *   d[i][j]   = cast(fl32(y[i][j]) * d.scale)
 * The scales meet the sum, not the elements, as on tensor cores: a scale_inv neither costs an
 * element a rounding nor keeps a sum below the largest f32. */
typedef struct keel_matmul_args {
    int64_t m, n, k;  /* 0 is legal: k 0 gives bias or zeros */
    keel_tensor a;    /* [m][k]; any registered format, also another than that of b */
    keel_tensor b;    /* [k][n]; both are read with scale_inv */
    keel_tensor d;    /* [m][n]; written with scale, overflow as its format has it */
    keel_tensor bias; /* n elements, read with scale_inv; data NULL = none */
    /* Elements from a stored row to the next.  0 = dense: numel is rows times columns.  Otherwise
     * at least the columns, and numel covers the last element; gaps between rows are left alone. */
    int64_t a_stride;
    int64_t b_stride;
    int64_t d_stride;
    int32_t transpose_a; /* 1: a is stored [k][m] */
    int32_t transpose_b; /* 1: b is stored [n][k] */
    int32_t accumulate;  /* 1: add to what d holds; d must be f32 without scales */
    int32_t fast;        /* 1: the device may sum with fewer bits (fp8 tensor cores): each product
                            may lose 2^-13 of the largest partial sum.  CPU: no difference */
    float *out_amax;     /* one f32 the device writes: largest |y|, before d.scale; NaN if any NaN,
                            else inf if any; 0 of nothing.  NULL = not asked */
} keel_matmul_args;

/* keel_matmul: d = a * b with scales, bias, amax; see keel_matmul_args.
 * device   NULL = CPU: each element's sum starts from 0 and runs in ascending p, every product and
 *          every addition rounded to f32; scales, bias and old d join it in f64, and one rounding
 *          gives y.  The bits depend on neither blocking, instruction set nor machine; those of a
 *          NaN may.
 * Shapes   any, 0 and odd ones included; any alignment.
 * Reads    a, b, bias.   Writes  d, out_amax.   d overlaps no operand, gaps between rows included.
 * Units    fl32(y) differs from the exact value by at most
 *          (k + 4) * 2^-24 * (sum |a||b| scales + |bias| + |old d|), k < 2^22, and where products
 *          or y are subnormal by k * 2^-149 * scales + 2^-149 more.
 * Async    enqueues on stream; CPU: done on return.  No allocation.  The caller's floating-point
 *          environment neither matters nor changes.
 * Threads  safe for distinct d.
 * Errors   INVALID shapes, strides, pointers, flags, overlap, and where the host can read them
 *          scales that are not finite and > 0; UNSUPPORTED format of d is described only, or the
 *          device has no product; DEVICE.  d untouched.
 * Since    0.1 */
KEEL_API keel_status keel_matmul(const keel_device *device, const keel_matmul_args *args,
                                 keel_stream stream);

/* What keel_set_sgemm() takes: c = op(a) * op(b) in f32, row-major, op by the flags a transpose;
 * lda, ldb, ldc are elements between stored rows, and gaps in c are left alone.  m, n, k > 0.
 * Returns KEEL_OK, or anything else with c untouched: the built-in loop does it then. */
typedef keel_status (*keel_sgemm_fn)(void *context, int32_t transpose_a, int32_t transpose_b,
                                     int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                                     const float *b, int64_t ldb, float *c, int64_t ldc);

/* keel_set_sgemm: let the CPU device form sums of f32 operands into an f32 d, without accumulate,
 * by somebody else's product, such as keel_blas_use() installs.  Other formats keep the built-in
 * loop.
 * sgemm    NULL = the built-in loop again.   context  handed to it.
 * Units    order and rounding of the sums are then those of sgemm.
 * Threads  process-wide; not while a product runs.
 * Errors   none.
 * Since    0.1 */
KEEL_API void keel_set_sgemm(keel_sgemm_fn sgemm, void *context);

KEEL_END_DECLS
#endif

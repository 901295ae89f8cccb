/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The global-norm clip by itself, for callers without a step. */
#ifndef KEEL_CLIP_H
#define KEEL_CLIP_H

#include "keel/comm.h"
#include "keel/device.h"
#include "keel/tensor.h"

KEEL_BEGIN_DECLS

/* keel_clip_global_norm: scale all gradients by one factor so that their joint L2 norm is at most
 * max_norm; stateless, in place.
 *   coef = min(1, max_norm / (norm + 1e-6)) in f64, rounded once to f32, as
 *   torch.nn.utils.clip_grad_norm_ forms it;  g' = cast(fl32(g * coef)).
 * device     NULL = CPU.
 * grads      unscaled gradients, any mix of formats; with coef 1 their bits do not change.
 * max_norm   >= 0; INFINITY only measures; 0 gives zeros.
 * comm       NULL = one rank; else each rank passes the elements that only it owns.
 * timeout_us of the round; 0 = wait for ever.
 * out_norm   the norm before clipping, the same bits on every rank; NaN or inf if any element
 *            is: then no gradient is touched.
 * Reads      grads twice.   Writes  grads once, and not at all with coef 1.
 * Async      blocks.   Collective  yes.
 * Errors     INVALID max_norm negative or NaN, a tensor that does not fit; UNSUPPORTED a format
 *            that cannot be written; COMM, PEER the round failed.  Gradients and out_norm
 *            untouched.
 * Since      0.1 */
KEEL_API keel_status keel_clip_global_norm(const keel_device *device, const keel_tensor *grads,
                                           int64_t count, float max_norm, keel_comm *comm,
                                           int64_t timeout_us, double *out_norm);

KEEL_END_DECLS
#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The component keel_blas (keel::blas, pkg-config keel_blas): f32 products by a CBLAS.  Built where
 * CMake finds one; the core needs none. */
#ifndef KEEL_BLAS_H
#define KEEL_BLAS_H

#include "keel/export.h"

KEEL_BEGIN_DECLS

/* keel_blas_use: from now on the CPU device forms sums of f32 products by the CBLAS that keel_blas
 * was built with; see keel_set_sgemm(), whose NULL undoes it.  Sizes beyond that library's integers
 * stay with the built-in loop.
 * Units    order, fused steps and threads are that library's: the bits may differ between machines.
 * Threads  process-wide; not while a product runs.
 * Errors   none.
 * Since    0.1 */
KEEL_API void keel_blas_use(void);

KEEL_END_DECLS
#endif

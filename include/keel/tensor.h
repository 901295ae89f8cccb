/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A typed view of the caller's memory, and what a stream is. */
#ifndef KEEL_TENSOR_H
#define KEEL_TENSOR_H

#include <stdint.h>

#include "keel/export.h"
#include "keel/formats.h"

KEEL_BEGIN_DECLS

/* A device's queue, as its own interface passes it (a cudaStream_t); NULL is the default one.
 * The CPU device runs every call at once and ignores it. */
typedef void *keel_stream;

/* keel_tensor: contiguous elements in the caller's memory, readable by the device in use.
 * Scale convention: stored = cast(x * scale); value = stored * scale_inv. */
typedef struct keel_tensor {
    void *data;    /* any alignment; may be NULL when numel is 0 */
    int64_t numel; /* elements, >= 0 */
    keel_format format;
    int32_t reserved;       /* 0 */
    const float *scale;     /* one f32 the device reads when it writes data; NULL = 1 */
    const float *scale_inv; /* one f32 the device reads when it reads data; NULL = 1 */
} keel_tensor;

KEEL_END_DECLS
#endif

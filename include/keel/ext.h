/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* UNSTABLE tier: what a device and a transport implement.  The in-tree ones use nothing else of the
 * core; KEEL_EXT_VERSION changes with any change here. */
#ifndef KEEL_EXT_H
#define KEEL_EXT_H

#include <stdbool.h>

#include "keel/keel.h"

KEEL_BEGIN_DECLS

#define KEEL_EXT_VERSION 1u

struct keeli_step_mem; /* runtime/step_mem.h */

/* A device: memory, casts, and the operations of a step on the step's own memory.  Every operation
 * only enqueues on the stream; download waits for it. */
struct keel_device {
    uint32_t ext_version;
    bool synchronous; /* memory is the host's, and an operation is done when it returns */
    const char *name;
    void *self;

    keel_status (*alloc)(const keel_device *device, size_t nbytes, void **out_memory);
    void (*free)(const keel_device *device, void *memory);
    keel_status (*upload)(const keel_device *device, void *dst_dev, const void *src_host,
                          size_t nbytes, keel_stream stream);
    keel_status (*download)(const keel_device *device, void *dst_host, const void *src_dev,
                            size_t nbytes, keel_stream stream);

    /* Arguments are checked by keel_quantize(). */
    keel_status (*quantize)(const keel_device *device, const keel_tensor *src,
                            const keel_tensor *dst, const keel_cast_options *options,
                            keel_cast_stats *out_stats, keel_stream stream);
    /* Arguments are checked by keel_matmul() and strides filled in.  NULL = not supported. */
    keel_status (*matmul)(const keel_device *device, const keel_matmul_args *args,
                          keel_stream stream);

    /* A cast through a slot; arguments are checked by keel_step_quantize(). */
    keel_status (*slot_quantize)(const keel_device *device, const struct keeli_step_mem *mem,
                                 int32_t slot, const keel_tensor *src, const keel_tensor *dst,
                                 float *out_scale_inv, keel_stream stream);

    /* Rows [first, first + count) of the table into the partial results. */
    keel_status (*accumulate)(const keel_device *device, const struct keeli_step_mem *mem,
                              int64_t first, int64_t count, keel_stream stream);
    /* Finiteness only, of other pointers (NULL = those of the table). */
    keel_status (*probe)(const keel_device *device, const struct keeli_step_mem *mem, int64_t first,
                         int64_t count, const void *const *grads, keel_stream stream);
    /* A vote to skip: loss NULL is a veto, else one if *loss is not finite. */
    keel_status (*vote)(const keel_device *device, const struct keeli_step_mem *mem,
                        const float *loss, keel_stream stream);
    /* Partial results into the packet; reduced packet into decision, state and report. */
    keel_status (*pack)(const keel_device *device, const struct keeli_step_mem *mem,
                        keel_stream stream);
    keel_status (*decide)(const keel_device *device, const struct keeli_step_mem *mem,
                          keel_stream stream);
    /* Put back the state that decide changed, for keel_step_abandon(). */
    keel_status (*restore)(const keel_device *device, const struct keeli_step_mem *mem,
                           keel_stream stream);
    /* Obey the decision: optimizer and copies, or gradients in place. */
    keel_status (*update)(const keel_device *device, const struct keeli_step_mem *mem,
                          keel_stream stream);
    keel_status (*scale)(const keel_device *device, const struct keeli_step_mem *mem,
                         keel_stream stream);
    /* Every low-precision copy from its master. */
    keel_status (*prime)(const keel_device *device, const struct keeli_step_mem *mem,
                         keel_stream stream);
};

/* A transport: one round reduces two flat integer arrays in place.  One round at a time; enqueue
 * starts it, poll asks, finish waits and writes the arrays.  A failed round breaks the communicator:
 * every later call fails with COMM and the sentence of the first failure.
 * enqueue     copies the arrays or keeps them borrowed until finish; never waits for other ranks.
 * poll        out_done true when finish would not wait; progresses the round.
 * finish      waits until done or deadline_ns on CLOCK_MONOTONIC (0 = for ever); arrays are written
 *             only with KEEL_OK, and all ranks of a round get KEEL_OK or none does.
 * abort       ends the round in hand for all ranks; never waits.
 * destroy     frees the handle; never waits.
 * Enqueue with a round in hand, poll and finish without one are ORDER. */
struct keel_comm {
    uint32_t ext_version;
    int32_t rank;
    int32_t nranks;
    bool on_stream; /* enqueue orders the round on the stream; finish only reports errors */
    const char *name;

    keel_status (*enqueue)(keel_comm *comm, int64_t *sum, int64_t nsum, uint64_t *max, int64_t nmax,
                           keel_stream stream);
    keel_status (*poll)(keel_comm *comm, bool *out_done);
    keel_status (*finish)(keel_comm *comm, int64_t deadline_ns);
    void (*abort)(keel_comm *comm);
    void (*destroy)(keel_comm *comm);
};

/* keel_ext_fail: record "fn: sentence" as this thread's last error and return status.
 * Errors  none.
 * Since   0.1 */
KEEL_API keel_status keel_ext_fail(keel_status status, const char *fn, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4), cold))
#endif
    ;

KEEL_END_DECLS
#endif

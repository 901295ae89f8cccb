/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* How ranks agree.  A communicator is made from what the caller has; what a transport implements
 * stands in keel/ext.h. */
#ifndef KEEL_COMM_H
#define KEEL_COMM_H

#include <stdint.h>

#include "keel/export.h"
#include "keel/status.h"

KEEL_BEGIN_DECLS

typedef struct keel_comm keel_comm;

/* keel_comm_threads: ranks that are threads of this process.
 * nranks     1..KEEL_COMM_THREADS_MAX.
 * out_comms  nranks handles; entry r belongs to rank r and is used by one thread at a time.
 * Owns       the caller destroys each handle; shared memory goes with the last of them.
 * Errors     INVALID nranks; NO_MEMORY.  out_comms untouched.
 * Since      0.1 */
#define KEEL_COMM_THREADS_MAX 1024
KEEL_API keel_status keel_comm_threads(int32_t nranks, keel_comm **out_comms);

/* keel_comm_rank, keel_comm_size, keel_comm_name: this rank, how many there are, the transport's
 * name ("self", "threads").  A NULL communicator is the only rank: 0, 1, "self".
 * Errors  none.
 * Since   0.1 */
KEEL_API int32_t keel_comm_rank(const keel_comm *comm);
KEEL_API int32_t keel_comm_size(const keel_comm *comm);
KEEL_API const char *keel_comm_name(const keel_comm *comm);

/* keel_comm_reduce: one round outside a step, for sums the caller needs the ranks to agree on
 * (a count of tokens, the entries of an integer checksum).
 * sum, max  arrays reduced in place by addition (wrapping) and by maximum; equal lengths on every
 *           rank, either may be empty.  Integers only: a float sum depends on its order.
 * timeout_us  0 = wait for ever.
 * Async     blocks until all ranks have come or the deadline has passed.
 * Collective  yes: every rank, in the same order as its other rounds.
 * Errors    INVALID sizes, pointers or a negative timeout; UNSUPPORTED the transport reduces device
 *           memory; COMM a rank did not come in time, or an earlier round failed: the communicator
 *           stays broken; PEER lengths differ.  Arrays untouched.
 * Since     0.1 */
KEEL_API keel_status keel_comm_reduce(keel_comm *comm, int64_t *sum, int64_t nsum, uint64_t *max,
                                      int64_t nmax, int64_t timeout_us);

/* keel_comm_destroy: give a handle back.  Never blocks: a rank that leaves makes every round that
 * still waits for it fail with COMM at once.
 * comm    may be NULL.
 * Errors  none.
 * Since   0.1 */
KEEL_API void keel_comm_destroy(keel_comm *comm);

KEEL_END_DECLS
#endif

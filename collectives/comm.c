/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The public face of every communicator; NULL is the only rank. */
#include <time.h>

#include "collectives.h"
#include "internal.h"

int32_t keel_comm_rank(const keel_comm *comm)
{
    return comm ? comm->rank : 0;
}

int32_t keel_comm_size(const keel_comm *comm)
{
    return comm ? comm->nranks : 1;
}

const char *keel_comm_name(const keel_comm *comm)
{
    return comm ? comm->name : keeli_comm_self()->name;
}

int64_t keeli_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t keeli_deadline_ns(int64_t timeout_us)
{
    if (timeout_us == 0) return 0;
    /* A timeout of centuries must not wrap into the past. */
    const int64_t now_ns = keeli_now_ns();
    const int64_t room_us = (INT64_MAX - now_ns) / 1000;
    return timeout_us < room_us ? now_ns + timeout_us * 1000 : INT64_MAX;
}

keel_status keel_comm_reduce(keel_comm *comm, int64_t *sum, int64_t nsum, uint64_t *max,
                             int64_t nmax, int64_t timeout_us)
{
    if (nsum < 0 || nmax < 0 || (nsum > 0 && !sum) || (nmax > 0 && !max))
        FAIL(KEEL_ERR_INVALID, "nsum=%lld sum=%p nmax=%lld max=%p", (long long)nsum, (void *)sum,
             (long long)nmax, (void *)max);
    if (timeout_us < 0)
        FAIL(KEEL_ERR_INVALID, "timeout_us=%lld (want >= 0)", (long long)timeout_us);
    if (!comm) comm = keeli_comm_self();
    if (comm->on_stream) FAIL(KEEL_ERR_UNSUPPORTED, "comm '%s' reduces device memory", comm->name);
    const int64_t deadline_ns = keeli_deadline_ns(timeout_us);
    TRY(comm->enqueue(comm, sum, nsum, max, nmax, NULL));
    return comm->finish(comm, deadline_ns);
}

void keel_comm_destroy(keel_comm *comm)
{
    if (comm) comm->destroy(comm);
}

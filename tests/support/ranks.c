/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Ranks as threads. */
#include <pthread.h>

#include "check.h"
#include "ranks.h"

typedef struct seat {
    int32_t rank;
    keel_comm *comm;
    rank_fn fn;
    void *context;
} seat;

static void *sit(void *arg)
{
    const seat *s = arg;
    s->fn(s->rank, s->comm, s->context);
    return NULL;
}

void ranks_run(int32_t nranks, rank_fn fn, void *context)
{
    keel_comm *comms[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    seat seats[RANKS_MAX];
    assert_in_range(nranks, 1, RANKS_MAX);
    assert_ok(keel_comm_threads(nranks, comms));
    for (int32_t r = 0; r < nranks; r++) {
        seats[r] = (seat){r, comms[r], fn, context};
        assert_int_equal(pthread_create(&threads[r], NULL, sit, &seats[r]), 0);
    }
    for (int32_t r = 0; r < nranks; r++) assert_int_equal(pthread_join(threads[r], NULL), 0);
    for (int32_t r = 0; r < nranks; r++) keel_comm_destroy(comms[r]);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Ranks that are threads of one process.
 *
 *   hub    mutex, condition; slot per rank; result of the last committed round
 *   round  each rank deposits a copy in its slot; the last one adds them up and commits
 *
 * A round ends once for all, under the mutex: committed by the last rank to arrive, or the hub is
 * broken by the first that runs out of time, aborts or leaves.  A rank starts a round only after it
 * has finished the one before, so a committed result is overwritten only when every rank has it.
 * Deposits are copies: a rank that gave up may free its arrays while late ranks still come. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives.h"
#include "internal.h"

/* Two arrays that grow to the largest round. */
typedef struct packet {
    int64_t *sum;
    uint64_t *max;
    int64_t nsum, nmax;
    int64_t sum_capacity, max_capacity;
} packet;

typedef struct slot {
    packet deposit;
    bool arrived; /* in the round in hand */
    bool left;
} slot;

typedef struct hub {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int32_t nranks;
    int32_t handles;
    int32_t arrived;
    int64_t committed; /* rounds */
    packet result;
    keel_status broken; /* KEEL_OK while it works */
    char reason[256];
    slot *slots;
} hub;

typedef struct member {
    keel_comm comm; /* first, so that a keel_comm is a member */
    hub *hub;
    int64_t round; /* the one in hand, from 1 */
    bool pending;
    int64_t *sum; /* the caller's, until finish */
    uint64_t *max;
} member;

/* The first reason stands. */
static void break_hub(hub *h, keel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void break_hub(hub *h, keel_status status, const char *format, ...)
{
    if (h->broken != KEEL_OK) return;
    va_list args;
    va_start(args, format);
    vsnprintf(h->reason, sizeof h->reason, format, args);
    va_end(args);
    h->broken = status;
    pthread_cond_broadcast(&h->changed);
}

/* The mutex is held: the reason is copied into this thread's last error. */
static keel_status fail_broken(const member *m, const char *fn)
{
    return keel_ext_fail(m->hub->broken, fn, "rank %d/%d: %s", m->comm.rank, m->comm.nranks,
                         m->hub->reason);
}

static bool reserve(packet *p, int64_t nsum, int64_t nmax)
{
    if (nsum > p->sum_capacity) {
        int64_t *grown = realloc(p->sum, (size_t)nsum * sizeof *grown);
        if (!grown) return false;
        p->sum = grown;
        p->sum_capacity = nsum;
    }
    if (nmax > p->max_capacity) {
        uint64_t *grown = realloc(p->max, (size_t)nmax * sizeof *grown);
        if (!grown) return false;
        p->max = grown;
        p->max_capacity = nmax;
    }
    p->nsum = nsum;
    p->nmax = nmax;
    return true;
}

static void copy_words(void *dst, const void *src, int64_t n)
{
    if (n > 0) memcpy(dst, src, (size_t)n * 8);
}

static void add_deposit(packet *result, const packet *deposit)
{
    for (int64_t i = 0; i < result->nsum; i++)
        result->sum[i] = (int64_t)((uint64_t)result->sum[i] + (uint64_t)deposit->sum[i]);
    for (int64_t i = 0; i < result->nmax; i++)
        if (deposit->max[i] > result->max[i]) result->max[i] = deposit->max[i];
}

/* The last rank's work: every deposit is there, and nobody can give up while the mutex is held. */
static void commit(hub *h)
{
    const packet *first = &h->slots[0].deposit;
    for (int32_t r = 1; r < h->nranks; r++) {
        const packet *d = &h->slots[r].deposit;
        if (d->nsum == first->nsum && d->nmax == first->nmax) continue;
        break_hub(h, KEEL_ERR_PEER,
                  "rank 0 reduces %lld sums and %lld maxima, rank %d %lld and %lld",
                  (long long)first->nsum, (long long)first->nmax, r, (long long)d->nsum,
                  (long long)d->nmax);
        return;
    }
    if (!reserve(&h->result, first->nsum, first->nmax)) {
        break_hub(h, KEEL_ERR_NO_MEMORY, "a round of %lld words",
                  (long long)(first->nsum + first->nmax));
        return;
    }
    copy_words(h->result.sum, first->sum, first->nsum);
    copy_words(h->result.max, first->max, first->nmax);
    for (int32_t r = 1; r < h->nranks; r++) add_deposit(&h->result, &h->slots[r].deposit);
    for (int32_t r = 0; r < h->nranks; r++) h->slots[r].arrived = false;
    h->arrived = 0;
    h->committed++;
    pthread_cond_broadcast(&h->changed);
}

static bool is_over(const member *m)
{
    return m->hub->committed >= m->round || m->hub->broken != KEEL_OK;
}

static void break_if_left(hub *h)
{
    for (int32_t r = 0; r < h->nranks; r++)
        if (h->slots[r].left && !h->slots[r].arrived)
            break_hub(h, KEEL_ERR_COMM, "rank %d has left the communicator", r);
}

static keel_status deposit(member *m, int64_t nsum, int64_t nmax)
{
    hub *h = m->hub;
    slot *mine = &h->slots[m->comm.rank];
    break_if_left(h);
    if (h->broken != KEEL_OK) return fail_broken(m, "keel_comm");
    if (!reserve(&mine->deposit, nsum, nmax))
        FAIL(KEEL_ERR_NO_MEMORY, "a round of %lld words", (long long)(nsum + nmax));
    copy_words(mine->deposit.sum, m->sum, nsum);
    copy_words(mine->deposit.max, m->max, nmax);
    mine->arrived = true;
    m->round = h->committed + 1;
    m->pending = true;
    if (++h->arrived == h->nranks) commit(h);
    return KEEL_OK;
}

static keel_status threads_enqueue(keel_comm *comm, int64_t *sum, int64_t nsum, uint64_t *max,
                                   int64_t nmax, keel_stream stream)
{
    (void)stream;
    member *m = (member *)comm;
    if (m->pending) FAIL(KEEL_ERR_ORDER, "a round is in hand; expected finish");
    m->sum = sum;
    m->max = max;
    pthread_mutex_lock(&m->hub->mutex);
    const keel_status status = deposit(m, nsum, nmax);
    pthread_mutex_unlock(&m->hub->mutex);
    return status;
}

static keel_status threads_poll(keel_comm *comm, bool *out_done)
{
    member *m = (member *)comm;
    if (!m->pending) FAIL(KEEL_ERR_ORDER, "no round is in hand; expected enqueue");
    pthread_mutex_lock(&m->hub->mutex);
    *out_done = is_over(m);
    pthread_mutex_unlock(&m->hub->mutex);
    return KEEL_OK;
}

/* "ranks 2, 5" of those the round still waits for. */
static void name_late(const hub *h, char *text, size_t size)
{
    size_t used = 0;
    int named = 0;
    text[0] = 0;
    for (int32_t r = 0; r < h->nranks && used + 16 < size; r++) {
        if (h->slots[r].arrived) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%d", named++ ? ", " : "", r);
    }
}

static void wait_until(member *m, int64_t deadline_ns)
{
    hub *h = m->hub;
    const struct timespec until = {(time_t)(deadline_ns / 1000000000),
                                   (long)(deadline_ns % 1000000000)};
    while (!is_over(m)) {
        if (deadline_ns == 0) {
            pthread_cond_wait(&h->changed, &h->mutex);
        } else if (pthread_cond_timedwait(&h->changed, &h->mutex, &until) == ETIMEDOUT &&
                   !is_over(m)) {
            char late[160];
            name_late(h, late, sizeof late);
            break_hub(h, KEEL_ERR_COMM, "rank %s of %d did not come before the deadline", late,
                      h->nranks);
        }
    }
}

static keel_status threads_finish(keel_comm *comm, int64_t deadline_ns)
{
    member *m = (member *)comm;
    hub *h = m->hub;
    if (!m->pending) FAIL(KEEL_ERR_ORDER, "no round is in hand; expected enqueue");
    keel_status status = KEEL_OK;
    pthread_mutex_lock(&h->mutex);
    wait_until(m, deadline_ns);
    if (h->committed >= m->round) {
        copy_words(m->sum, h->result.sum, h->result.nsum);
        copy_words(m->max, h->result.max, h->result.nmax);
    } else {
        status = fail_broken(m, "keel_comm");
    }
    pthread_mutex_unlock(&h->mutex);
    m->pending = false;
    return status;
}

static void threads_abort(keel_comm *comm)
{
    member *m = (member *)comm;
    pthread_mutex_lock(&m->hub->mutex);
    break_hub(m->hub, KEEL_ERR_COMM, "rank %d aborted the round", comm->rank);
    pthread_mutex_unlock(&m->hub->mutex);
}

static void packet_free(packet *p)
{
    free(p->sum);
    free(p->max);
}

static void hub_free(hub *h)
{
    for (int32_t r = 0; r < h->nranks; r++) packet_free(&h->slots[r].deposit);
    packet_free(&h->result);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->mutex);
    free(h->slots);
    free(h);
}

static void threads_destroy(keel_comm *comm)
{
    member *m = (member *)comm;
    hub *h = m->hub;
    pthread_mutex_lock(&h->mutex);
    h->slots[comm->rank].left = true;
    if (h->arrived > 0) break_if_left(h); /* somebody waits */
    const bool last = --h->handles == 0;
    pthread_mutex_unlock(&h->mutex);
    if (last) hub_free(h);
    free(m);
}

static hub *hub_create(int32_t nranks)
{
    hub *h = calloc(1, sizeof *h);
    slot *slots = calloc((size_t)nranks, sizeof *slots);
    if (!h || !slots) {
        free(h);
        free(slots);
        return NULL;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&h->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&h->mutex, NULL);
    h->nranks = nranks;
    h->handles = nranks;
    h->slots = slots;
    return h;
}

static member *member_create(hub *h, int32_t rank)
{
    member *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->hub = h;
    m->comm = (keel_comm){
        .ext_version = KEEL_EXT_VERSION,
        .rank = rank,
        .nranks = h->nranks,
        .name = "threads",
        .enqueue = threads_enqueue,
        .poll = threads_poll,
        .finish = threads_finish,
        .abort = threads_abort,
        .destroy = threads_destroy,
    };
    return m;
}

keel_status keel_comm_threads(int32_t nranks, keel_comm **out_comms)
{
    if (!out_comms) FAIL(KEEL_ERR_INVALID, "out_comms is NULL");
    if (nranks < 1 || nranks > KEEL_COMM_THREADS_MAX)
        FAIL(KEEL_ERR_INVALID, "nranks=%d (want 1..%d)", nranks, KEEL_COMM_THREADS_MAX);
    hub *h = hub_create(nranks);
    member **members = h ? calloc((size_t)nranks, sizeof *members) : NULL;
    bool complete = members != NULL;
    for (int32_t r = 0; complete && r < nranks; r++)
        complete = (members[r] = member_create(h, r)) != NULL;
    if (complete) {
        for (int32_t r = 0; r < nranks; r++) out_comms[r] = &members[r]->comm;
        free(members);
        return KEEL_OK;
    }
    for (int32_t r = 0; members && r < nranks; r++) free(members[r]);
    free(members);
    if (h) hub_free(h);
    FAIL(KEEL_ERR_NO_MEMORY, "communicator of %d threads", nranks);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Ranks that are threads of this process.
 *
 * A rank that comes adds its arrays to the tally of its round; the last one to come commits the
 * round, and then each copies the result into its own arrays.  Nobody reads or writes the arrays of
 * another rank, so a rank that has returned owns its memory again whatever the others do.
 *
 *   tallies[round % 2]    words[ sums: nsum | maxima: nmax ]
 *
 * Two tallies are enough for fast ranks to run ahead: the first rank enters round r + 2 after r + 1
 * is committed, so after every rank has entered r + 1, so after every rank has copied r out.
 *
 * A round has one verdict, given under the lock: the last arrival commits it, or the first
 * timeout, abort, departure or mismatch breaks the communicator.  Whichever comes first holds for
 * all ranks; a committed round stays committed for those who have not copied it yet. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives.h"
#include "internal.h"

enum {
    MAX_NAMED = 8,
    SENTENCE_SIZE = 256,
    ROOM = 128 /* words: the packet of a step fits, so a step's rounds never allocate */
};

typedef struct tally {
    uint64_t *words; /* room, or memory of its own */
    int64_t capacity;
    int64_t nsum, nmax;
    int32_t arrived;
    int32_t first; /* the rank whose lengths these are */
    uint64_t room[ROOM];
} tally;

struct team;

typedef struct member {
    keel_comm comm;
    struct team *team;
    int64_t round; /* entered so far; the others read it under the lock */
    bool in_hand;  /* between enqueue and finish */
    int64_t entered_ns;
    int64_t *sum; /* borrowed while in hand */
    uint64_t *max;
} member;

typedef struct team {
    pthread_mutex_t lock;
    pthread_cond_t settled; /* broadcast when a round is committed or the team breaks */
    int32_t nranks;
    int32_t handles; /* not yet destroyed */
    int64_t committed;
    int64_t broken_round; /* 0 = whole; the first round that cannot be committed */
    keel_status broken_status;
    char sentence[SENTENCE_SIZE];
    tally tallies[2];
    member members[];
} team;

/* The table is the member's first field. */
static member *member_of(keel_comm *comm)
{
    return (member *)comm;
}

/* The verdict "broken", unless an earlier failure has given it.  Under the lock. */
static void break_team(team *t, keel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void break_team(team *t, keel_status status, const char *format, ...)
{
    if (t->broken_round) return;
    t->broken_round = t->committed + 1;
    t->broken_status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(t->sentence, sizeof t->sentence, format, args);
    va_end(args);
    pthread_cond_broadcast(&t->settled);
}

/* Fail with the sentence of the first failure.  Under the lock. */
static keel_status fail_broken(const member *me, keel_status status)
{
    return keel_ext_fail(status, me->comm.name, "rank %d/%d: %s", me->comm.rank, me->comm.nranks,
                         me->team->sentence);
}

/* The ranks of the broken round itself learn its cause; later rounds only that it is too late. */
static keel_status broken_verdict(const member *me)
{
    const team *t = me->team;
    return fail_broken(me, me->round == t->broken_round ? t->broken_status : KEEL_ERR_COMM);
}

static keel_status no_round(const member *me)
{
    if (me->team->broken_round) return fail_broken(me, KEEL_ERR_COMM);
    return keel_ext_fail(KEEL_ERR_ORDER, me->comm.name, "rank %d/%d: no round in hand",
                         me->comm.rank, me->comm.nranks);
}

/* "ranks 1, 3 and 12 more": those that have not entered a round. */
static void name_late(const team *t, int64_t round, char *text, size_t size)
{
    int32_t late = 0;
    size_t used = 0;
    for (int32_t r = 0; r < t->nranks; r++) {
        if (t->members[r].round >= round) continue;
        if (late++ < MAX_NAMED)
            used += (size_t)snprintf(text + used, size - used, late > 1 ? ", %d" : "%d", r);
    }
    if (late > MAX_NAMED) snprintf(text + used, size - used, " and %d more", late - MAX_NAMED);
}

static void break_late(const member *me, int64_t deadline_ns)
{
    char late[128] = "";
    const int64_t waited_us = (deadline_ns - me->entered_ns + 999) / 1000;
    name_late(me->team, me->round, late, sizeof late);
    break_team(me->team, KEEL_ERR_COMM, "rank%s %s of %d did not come within %lld us",
               strchr(late, ',') ? "s" : "", late, me->team->nranks,
               (long long)(waited_us > 0 ? waited_us : 0));
}

static void tally_init(tally *y)
{
    y->words = y->room;
    y->capacity = ROOM;
}

static void tally_free(tally *y)
{
    if (y->words != y->room) free(y->words);
}

/* The first rank of a round says how long it is; its memory only ever grows. */
static bool tally_begin(tally *y, int32_t rank, int64_t nsum, int64_t nmax)
{
    if (nsum > y->capacity - nmax) {
        uint64_t *words = calloc((size_t)nsum + (size_t)nmax, sizeof *words);
        if (!words) return false;
        tally_free(y);
        y->words = words;
        y->capacity = nsum + nmax;
    }
    y->first = rank;
    y->nsum = nsum;
    y->nmax = nmax;
    if (nsum + nmax > 0) memset(y->words, 0, (size_t)(nsum + nmax) * sizeof *y->words);
    return true;
}

static void tally_add(tally *y, const int64_t *sum, const uint64_t *max)
{
    for (int64_t i = 0; i < y->nsum; i++) y->words[i] += (uint64_t)sum[i];
    for (int64_t i = 0; i < y->nmax; i++) {
        uint64_t *best = &y->words[y->nsum + i];
        if (max[i] > *best) *best = max[i];
    }
}

static void copy_out(const member *me)
{
    const tally *y = &me->team->tallies[me->round % 2];
    if (y->nsum) memcpy(me->sum, y->words, (size_t)y->nsum * sizeof *me->sum);
    if (y->nmax) memcpy(me->max, y->words + y->nsum, (size_t)y->nmax * sizeof *me->max);
}

/* Add to the tally of this rank's next round.  Under the lock. */
static keel_status enter(member *me, const int64_t *sum, int64_t nsum, const uint64_t *max,
                         int64_t nmax)
{
    team *t = me->team;
    me->round++;
    if (t->broken_round) return broken_verdict(me);

    tally *y = &t->tallies[me->round % 2];
    if (y->arrived == 0 && !tally_begin(y, me->comm.rank, nsum, nmax))
        break_team(t, KEEL_ERR_COMM, "rank %d of %d found no memory for %lld sums and %lld maxima",
                   me->comm.rank, t->nranks, (long long)nsum, (long long)nmax);
    else if (nsum != y->nsum || nmax != y->nmax)
        break_team(t, KEEL_ERR_PEER,
                   "rank %d of %d brings %lld sums and %lld maxima, rank %d brought %lld and %lld",
                   me->comm.rank, t->nranks, (long long)nsum, (long long)nmax, y->first,
                   (long long)y->nsum, (long long)y->nmax);
    if (t->broken_round) return broken_verdict(me);

    tally_add(y, sum, max);
    if (++y->arrived == t->nranks) {
        y->arrived = 0;
        t->committed = me->round;
        pthread_cond_broadcast(&t->settled);
    }
    return KEEL_OK;
}

static keel_status enqueue(keel_comm *comm, int64_t *sum, int64_t nsum, uint64_t *max, int64_t nmax,
                           keel_stream stream)
{
    (void)stream;
    member *me = member_of(comm);
    if (me->in_hand)
        return keel_ext_fail(KEEL_ERR_ORDER, comm->name, "rank %d/%d: a round is in hand already",
                             comm->rank, comm->nranks);
    me->entered_ns = keeli_now_ns();
    me->sum = sum;
    me->max = max;
    pthread_mutex_lock(&me->team->lock);
    const keel_status status = enter(me, sum, nsum, max, nmax);
    pthread_mutex_unlock(&me->team->lock);
    me->in_hand = status == KEEL_OK;
    return status;
}

static bool is_settled(const member *me)
{
    return me->team->committed >= me->round || me->team->broken_round;
}

static keel_status poll(keel_comm *comm, bool *out_done)
{
    const member *me = member_of(comm);
    keel_status status = KEEL_OK;
    pthread_mutex_lock(&me->team->lock);
    if (me->in_hand)
        *out_done = is_settled(me);
    else
        status = no_round(me);
    pthread_mutex_unlock(&me->team->lock);
    return status;
}

/* Wait for the verdict, or give it when the deadline passes first.  Under the lock. */
static keel_status verdict(const member *me, int64_t deadline_ns)
{
    team *t = me->team;
    const struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                                      .tv_nsec = (long)(deadline_ns % 1000000000)};
    while (!is_settled(me)) {
        if (!deadline_ns)
            pthread_cond_wait(&t->settled, &t->lock);
        else if (pthread_cond_timedwait(&t->settled, &t->lock, &deadline) && !is_settled(me))
            break_late(me, deadline_ns);
    }
    return t->committed >= me->round ? KEEL_OK : broken_verdict(me);
}

static keel_status finish(keel_comm *comm, int64_t deadline_ns)
{
    member *me = member_of(comm);
    pthread_mutex_lock(&me->team->lock);
    const keel_status status = me->in_hand ? verdict(me, deadline_ns) : no_round(me);
    pthread_mutex_unlock(&me->team->lock);
    me->in_hand = false;
    if (status == KEEL_OK) copy_out(me);
    return status;
}

static void abort_round(keel_comm *comm)
{
    team *t = member_of(comm)->team;
    pthread_mutex_lock(&t->lock);
    break_team(t, KEEL_ERR_COMM, "rank %d of %d aborted", comm->rank, comm->nranks);
    pthread_mutex_unlock(&t->lock);
}

static void destroy_team(team *t)
{
    pthread_cond_destroy(&t->settled);
    pthread_mutex_destroy(&t->lock);
    for (int i = 0; i < 2; i++) tally_free(&t->tallies[i]);
    free(t);
}

static void destroy(keel_comm *comm)
{
    team *t = member_of(comm)->team;
    pthread_mutex_lock(&t->lock);
    break_team(t, KEEL_ERR_COMM, "rank %d of %d has left", comm->rank, comm->nranks);
    const bool last = --t->handles == 0;
    pthread_mutex_unlock(&t->lock);
    if (last) destroy_team(t);
}

static const keel_comm table = {
    .ext_version = KEEL_EXT_VERSION,
    .name = "threads",
    .enqueue = enqueue,
    .poll = poll,
    .finish = finish,
    .abort = abort_round,
    .destroy = destroy,
};

/* The clock of deadlines: a wall clock that is set would stretch them. */
static bool init_monotonic(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr)) return false;
    const bool ok =
        !pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) && !pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return ok;
}

keel_status keel_comm_threads(int32_t nranks, keel_comm **out_comms)
{
    if (nranks < 1 || nranks > KEEL_COMM_THREADS_MAX)
        FAIL(KEEL_ERR_INVALID, "nranks=%d (want 1..%d)", nranks, KEEL_COMM_THREADS_MAX);
    if (!out_comms) FAIL(KEEL_ERR_INVALID, "out_comms is NULL");
    team *t = calloc(1, sizeof *t + (size_t)nranks * sizeof t->members[0]);
    if (!t) FAIL(KEEL_ERR_NO_MEMORY, "nranks=%d", nranks);
    if (!init_monotonic(&t->settled)) goto free_team;
    if (pthread_mutex_init(&t->lock, NULL)) goto destroy_cond;

    t->nranks = t->handles = nranks;
    for (int i = 0; i < 2; i++) tally_init(&t->tallies[i]);
    for (int32_t r = 0; r < nranks; r++) {
        member *m = &t->members[r];
        m->comm = table;
        m->comm.rank = r;
        m->comm.nranks = nranks;
        m->team = t;
        out_comms[r] = &m->comm;
    }
    return KEEL_OK;

destroy_cond:
    pthread_cond_destroy(&t->settled);
free_team:
    free(t);
    FAIL(KEEL_ERR_NO_MEMORY, "nranks=%d: no lock", nranks);
}

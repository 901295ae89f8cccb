/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Rounds that fail: late, leaving, aborting and disagreeing ranks.  A round fails for all or for
 * none, says who was to blame, and leaves the arrays alone. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "check.h"
#include "crew.h"
#include "random.h"

enum { RANKS_MOST = 64, N = 4 };

static keel_comm *comms[RANKS_MOST];
static hand hands[RANKS_MOST];
static int64_t sums[RANKS_MOST];
static uint64_t maxima[RANKS_MOST];

static void begin(int32_t nranks)
{
    assert_ok(keel_comm_threads(nranks, comms));
    for (int32_t r = 0; r < nranks; r++) {
        sums[r] = r + 1;
        maxima[r] = (uint64_t)r + 1;
    }
}

static void end(int32_t nranks)
{
    for (int32_t r = 0; r < nranks; r++) keel_comm_destroy(comms[r]);
}

static keel_status enqueue(int32_t r)
{
    return comms[r]->enqueue(comms[r], &sums[r], 1, &maxima[r], 1, NULL);
}

static keel_status finish(int32_t r, int64_t deadline_ns)
{
    return comms[r]->finish(comms[r], deadline_ns);
}

static void assert_untouched(int32_t nranks)
{
    for (int32_t r = 0; r < nranks; r++)
        assert_true(sums[r] == r + 1 && maxima[r] == (uint64_t)r + 1);
}

/* Every call on every rank fails at once with the sentence of the first failure. */
static void assert_broken(int32_t nranks, const char *sentence)
{
    for (int32_t r = 0; r < nranks; r++) {
        bool done;
        assert_refused(enqueue(r), KEEL_ERR_COMM, sentence);
        assert_refused(comms[r]->poll(comms[r], &done), KEEL_ERR_COMM, sentence);
        assert_refused(finish(r, 0), KEEL_ERR_COMM, sentence);
        assert_refused(keel_comm_reduce(comms[r], NULL, 0, NULL, 0, 0), KEEL_ERR_COMM, sentence);
    }
    assert_untouched(nranks);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void test_faults__a_late_rank_is_named(void **state)
{
    (void)state;
    for (int32_t late = 0; late < N; late++) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "rank %d of %d did not come within ", late, N);
        begin(N);
        for (int32_t r = 0; r < N; r++)
            if (r != late) assert_ok(enqueue(r));
        /* One's deadline is over; the others would wait for ever. */
        const int32_t first = late == 0 ? 1 : 0;
        assert_refused(finish(first, now_ns() - 1), KEEL_ERR_COMM, sentence);
        for (int32_t r = 0; r < N; r++)
            if (r != late && r != first) assert_refused(finish(r, 0), KEEL_ERR_COMM, sentence);
        assert_broken(N, sentence);
        end(N);
    }
}

static void test_faults__many_late_ranks_are_named_and_counted(void **state)
{
    (void)state;
    begin(3);
    assert_ok(enqueue(1));
    assert_refused(finish(1, 1), KEEL_ERR_COMM, "ranks 0, 2 of 3 did not come");
    end(3);
    begin(RANKS_MOST);
    assert_ok(enqueue(0));
    assert_refused(finish(0, 1), KEEL_ERR_COMM, "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 55 more of 64");
    end(RANKS_MOST);
}

static void test_faults__the_sentence_tells_the_timeout(void **state)
{
    (void)state;
    static const char words[] = "rank 0/2: rank 1 of 2 did not come within ";
    begin(2);
    assert_refused(keel_comm_reduce(comms[0], sums, 1, maxima, 1, 5000), KEEL_ERR_COMM, words);
    /* What was left of it when the rank entered; a busy machine may have taken some. */
    const long us = strtol(strstr(keel_last_error(), words) + strlen(words), NULL, 10);
    assert_in_range(us, 1, 5000);
    end(2);
}

/* A rank that comes when the others have given up finds the round over, and does not reach into
 * arrays that they may have freed. */
static void test_faults__a_late_rank_touches_no_memory_of_others(void **state)
{
    (void)state;
    int64_t *sum = calloc(1, sizeof *sum);
    begin(2);
    assert_ok(comms[0]->enqueue(comms[0], sum, 1, NULL, 0, NULL));
    assert_refused(finish(0, 1), KEEL_ERR_COMM, "rank 1 of 2");
    free(sum);
    assert_refused(keel_comm_reduce(comms[1], &sums[1], 1, NULL, 0, 0), KEEL_ERR_COMM,
                   "rank 1/2: rank 1 of 2 did not come");
    assert_untouched(2);
    end(2);
}

static void test_faults__a_committed_round_stays_committed(void **state)
{
    (void)state;
    begin(2);
    assert_ok(enqueue(0));
    assert_ok(enqueue(1));
    assert_ok(finish(0, 1)); /* all are there: a deadline long past does not matter */
    assert_int_equal(sums[0], 3);
    assert_ok(enqueue(0));
    assert_refused(finish(0, 1), KEEL_ERR_COMM, "rank 1 of 2 did not come");
    assert_refused(enqueue(0), KEEL_ERR_COMM, "rank 1 of 2 did not come");
    assert_ok(finish(1, 1)); /* of the first round, though the second has failed */
    assert_int_equal(sums[1], 3);
    assert_refused(enqueue(1), KEEL_ERR_COMM, "rank 1 of 2 did not come");
    end(2);
}

static void test_faults__abort_ends_the_round_for_all(void **state)
{
    (void)state;
    for (int32_t culprit = 0; culprit < N; culprit++) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "rank %d of %d aborted", culprit, N);
        begin(N);
        for (int32_t r = 0; r < N - 1; r++) assert_ok(enqueue(r));
        comms[culprit]->abort(comms[culprit]);
        comms[0]->abort(comms[0]); /* the first failure is the one that is told */
        for (int32_t r = 0; r < N - 1; r++) assert_refused(finish(r, 0), KEEL_ERR_COMM, sentence);
        assert_broken(N, sentence);
        end(N);
    }
}

/* Lengths that differ are the failure of all ranks of that round, early and late ones. */
static void test_faults__lengths_that_differ_are_told_to_all(void **state)
{
    (void)state;
    static const char sentence[] = "rank 1 of 4 brings 2 sums and 0 maxima, rank 0 brought 1 and 1";
    int64_t two[2] = {8, 9};
    begin(N);
    assert_ok(enqueue(0));
    assert_refused(comms[1]->enqueue(comms[1], two, 2, NULL, 0, NULL), KEEL_ERR_PEER, sentence);
    assert_refused(finish(0, 0), KEEL_ERR_PEER, sentence);
    assert_refused(enqueue(2), KEEL_ERR_PEER, sentence);
    assert_refused(keel_comm_reduce(comms[3], &sums[3], 1, &maxima[3], 1, 0), KEEL_ERR_PEER,
                   sentence);
    assert_true(two[0] == 8 && two[1] == 9);
    assert_broken(N, sentence);
    end(N);
}

static void test_faults__leaving_between_rounds_fails_the_next(void **state)
{
    (void)state;
    begin(2);
    assert_ok(enqueue(0));
    assert_ok(enqueue(1));
    assert_ok(finish(1, 0));
    keel_comm_destroy(comms[1]);
    assert_ok(finish(0, 0)); /* the round it took part in stands */
    assert_int_equal(sums[0], 3);
    assert_refused(enqueue(0), KEEL_ERR_COMM, "rank 1 of 2 has left");
    keel_comm_destroy(comms[0]);
}

static void wait_or_leave(hand *me)
{
    const int32_t leaver = *(const int32_t *)me->job;
    if (me->rank == leaver) {
        const struct timespec a_moment = {0, 2000000};
        nanosleep(&a_moment, NULL);
        keel_comm_destroy(me->comm);
        return;
    }
    note(me, keel_comm_reduce(me->comm, &sums[me->rank], 1, &maxima[me->rank], 1, 0));
    keel_comm_destroy(me->comm); /* each as it goes: the last one frees what they share */
}

/* They wait for ever, so this ends only if leaving wakes them. */
static void test_faults__a_leaving_rank_frees_those_that_wait(void **state)
{
    (void)state;
    for (int32_t leaver = 0; leaver < N; leaver++) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "rank %d of %d has left", leaver, N);
        begin(N);
        crew_run(comms, N, wait_or_leave, &leaver, hands);
        for (int32_t r = 0; r < N; r++) {
            if (r == leaver) continue;
            assert_int_equal(hands[r].status, KEEL_ERR_COMM);
            assert_non_null(strstr(hands[r].sentence, sentence));
        }
        assert_untouched(N);
    }
}

enum { DEADLINE_US = 100000 }; /* far above what a busy machine delays a thread */

static void wait_with_deadline(hand *me)
{
    const int32_t absent = *(const int32_t *)me->job;
    if (me->rank == absent) return;
    const int64_t before = now_ns();
    note(me, keel_comm_reduce(me->comm, &sums[me->rank], 1, &maxima[me->rank], 1, DEADLINE_US));
    const int64_t waited_us = (now_ns() - before) / 1000;
    if (waited_us > 10 * DEADLINE_US) complain(me, "waited %lld us", (long long)waited_us);
}

static void test_faults__the_deadline_holds_whoever_is_absent(void **state)
{
    (void)state;
    for (int32_t absent = 0; absent < N; absent++) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "rank %d of %d did not come within", absent, N);
        const int64_t before = now_ns();
        begin(N);
        crew_run(comms, N, wait_with_deadline, &absent, hands);
        assert_true(now_ns() - before >= (int64_t)DEADLINE_US * 1000);
        for (int32_t r = 0; r < N; r++)
            if (r != absent) assert_int_equal(hands[r].status, KEEL_ERR_COMM);
        assert_broken(N, sentence);
        end(N);
    }
}

/* Trials with a straggler that comes around the deadline of the others. */
enum { TRIALS = 3000, SIDES = 3, STRAGGLE_US = 200 };

typedef struct trial {
    keel_comm *comms[SIDES];
    keel_status status[SIDES];
    keel_status next[SIDES]; /* of a round after it, without a deadline */
    int64_t sum[SIDES];
    uint64_t max[SIDES];
} trial;

typedef struct trials {
    pthread_barrier_t start;
    trial trial[TRIALS];
} trials;

static void straggle(hand *me)
{
    trials *all = me->job;
    for (int i = 0; i < TRIALS; i++) {
        trial *t = &all->trial[i];
        const int32_t r = me->rank;
        t->sum[r] = 1;
        pthread_barrier_wait(&all->start);
        const bool straggler = r == i % SIDES;
        /* From at once to twice the deadline, most of them close to it. */
        random_source random = random_begin((uint64_t)i);
        const int64_t range = i % 8 ? STRAGGLE_US / 4 : STRAGGLE_US;
        const int64_t delay_us = STRAGGLE_US - range + random_below(&random, 2 * range);
        const int64_t until = now_ns() + (straggler ? delay_us * 1000 : 0);
        while (now_ns() < until) continue;
        t->status[r] = keel_comm_reduce(t->comms[r], &t->sum[r], 1, &t->max[r], 1, STRAGGLE_US);
        t->next[r] = keel_comm_reduce(t->comms[r], NULL, 0, NULL, 0, 0);
    }
}

static void test_faults__a_straggler_at_the_deadline_splits_no_verdict(void **state)
{
    (void)state;
    static trials all;
    int outcomes[2] = {0, 0};
    assert_int_equal(pthread_barrier_init(&all.start, NULL, SIDES), 0);
    for (int i = 0; i < TRIALS; i++) assert_ok(keel_comm_threads(SIDES, all.trial[i].comms));
    crew_run(all.trial[0].comms, SIDES, straggle, &all, hands);
    for (int i = 0; i < TRIALS; i++) {
        const trial *t = &all.trial[i];
        for (int r = 0; r < SIDES; r++) {
            assert_int_equal(t->status[r], t->status[0]);
            assert_int_equal(t->next[r], t->status[0]);
            assert_int_equal(t->sum[r], t->status[0] == KEEL_OK ? SIDES : 1);
        }
        outcomes[t->status[0] == KEEL_OK]++;
        for (int r = 0; r < SIDES; r++) keel_comm_destroy(t->comms[r]);
    }
    pthread_barrier_destroy(&all.start);
    print_message("%d rounds committed, %d given up, 0 split\n", outcomes[1], outcomes[0]);
    assert_true(outcomes[0] > 0 && outcomes[1] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults__a_late_rank_is_named),
        cmocka_unit_test(test_faults__many_late_ranks_are_named_and_counted),
        cmocka_unit_test(test_faults__the_sentence_tells_the_timeout),
        cmocka_unit_test(test_faults__a_late_rank_touches_no_memory_of_others),
        cmocka_unit_test(test_faults__a_committed_round_stays_committed),
        cmocka_unit_test(test_faults__abort_ends_the_round_for_all),
        cmocka_unit_test(test_faults__lengths_that_differ_are_told_to_all),
        cmocka_unit_test(test_faults__leaving_between_rounds_fails_the_next),
        cmocka_unit_test(test_faults__a_leaving_rank_frees_those_that_wait),
        cmocka_unit_test(test_faults__the_deadline_holds_whoever_is_absent),
        cmocka_unit_test(test_faults__a_straggler_at_the_deadline_splits_no_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

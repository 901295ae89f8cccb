/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Rounds that succeed: the right numbers, on every rank, whoever is fast. */
#include <sched.h>

#include "check.h"
#include "crew.h"
#include "random.h"

enum { RANKS_MOST = 64, WORDS_MOST = 48 };

static keel_comm *comms[RANKS_MOST];
static hand hands[RANKS_MOST];

static void begin(int32_t nranks)
{
    assert_ok(keel_comm_threads(nranks, comms));
}

static void end(int32_t nranks)
{
    for (int32_t r = 0; r < nranks; r++) keel_comm_destroy(comms[r]);
}

/* What a rank brings to a round follows from (round, rank) alone, so each rank can work out the
 * result by itself.  Lengths differ from round to round and may be 0. */
typedef struct packet {
    int64_t nsum, nmax;
    int64_t sum[WORDS_MOST];
    uint64_t max[WORDS_MOST];
} packet;

static packet packet_of(int64_t round, int32_t rank)
{
    random_source lengths = random_begin((uint64_t)round);
    random_source r = random_begin((uint64_t)round * 1000003u + (uint64_t)rank + 1);
    packet p = {.nsum = random_below(&lengths, WORDS_MOST + 1),
                .nmax = random_below(&lengths, WORDS_MOST + 1)};
    for (int64_t i = 0; i < p.nsum; i++) p.sum[i] = (int64_t)random_word(&r);
    for (int64_t i = 0; i < p.nmax; i++) p.max[i] = random_word(&r) >> random_below(&r, 64);
    return p;
}

static packet expected(int64_t round, int32_t nranks)
{
    packet total = packet_of(round, 0);
    for (int32_t r = 1; r < nranks; r++) {
        const packet p = packet_of(round, r);
        for (int64_t i = 0; i < p.nsum; i++)
            total.sum[i] = (int64_t)((uint64_t)total.sum[i] + (uint64_t)p.sum[i]);
        for (int64_t i = 0; i < p.nmax; i++)
            total.max[i] = total.max[i] > p.max[i] ? total.max[i] : p.max[i];
    }
    return total;
}

static void random_rounds(hand *me)
{
    const int64_t rounds = *(const int64_t *)me->job;
    for (int64_t round = 0; round < rounds; round++) {
        packet mine = packet_of(round, me->rank);
        const packet wanted = expected(round, me->nranks);
        if (keel_comm_reduce(me->comm, mine.sum, mine.nsum, mine.max, mine.nmax, 0) != KEEL_OK)
            complain(me, "round %lld: %s", (long long)round, keel_last_error());
        if (memcmp(&mine, &wanted, sizeof mine) != 0)
            complain(me, "round %lld: wrong result", (long long)round);
    }
}

static void test_rounds__equal_a_plain_reference_for_any_number_of_ranks(void **state)
{
    (void)state;
    for (int32_t nranks = 1; nranks <= 8; nranks++) {
        int64_t rounds = 300;
        begin(nranks);
        crew_run(comms, nranks, random_rounds, &rounds, hands);
        end(nranks);
    }
    int64_t rounds = 50;
    begin(RANKS_MOST);
    crew_run(comms, RANKS_MOST, random_rounds, &rounds, hands);
    end(RANKS_MOST);
}

/* Some ranks run, others dawdle, and they change places, so that fast ranks enter a round while
 * slow ones still copy the one before. */
static void uneven_rounds(hand *me)
{
    const int64_t rounds = *(const int64_t *)me->job;
    random_source r = random_begin((uint64_t)me->rank + 77);
    for (int64_t round = 0; round < rounds; round++) {
        int64_t sum[2] = {round, 1};
        uint64_t max[1] = {(uint64_t)(round * 8 + me->rank)};
        while (random_below(&r, 4) == 0) sched_yield();
        if (keel_comm_reduce(me->comm, sum, 2, max, 1, 0) != KEEL_OK)
            complain(me, "round %lld: %s", (long long)round, keel_last_error());
        if (sum[0] != round * me->nranks || sum[1] != me->nranks ||
            max[0] != (uint64_t)(round * 8 + me->nranks - 1))
            complain(me, "round %lld: sum %lld of %lld ranks, maximum %llu", (long long)round,
                     (long long)sum[0], (long long)sum[1], (unsigned long long)max[0]);
    }
}

static void test_rounds__ten_thousand_follow_each_other(void **state)
{
    (void)state;
    int64_t rounds = 10000;
    begin(4);
    crew_run(comms, 4, uneven_rounds, &rounds, hands);
    end(4);
}

static keel_status enqueue(int32_t rank, int64_t *sum, uint64_t *max)
{
    return comms[rank]->enqueue(comms[rank], sum, 1, max, 1, NULL);
}

/* The order that only luck gives to threads, played on one: rank 0 has entered round 2, and rank 1
 * copies round 1 out after it. */
static void test_rounds__a_fast_rank_does_not_disturb_the_result_of_a_slow_one(void **state)
{
    (void)state;
    int64_t fast[1] = {1}, slow[1] = {10};
    uint64_t fast_max[1] = {3}, slow_max[1] = {2};
    begin(2);
    assert_ok(enqueue(0, fast, fast_max));
    assert_ok(enqueue(1, slow, slow_max));
    for (int round = 1; round <= 4; round++) {
        assert_ok(comms[0]->finish(comms[0], 1));
        assert_true(fast[0] == 11 && fast_max[0] == 3);
        fast[0] = 1;
        assert_ok(enqueue(0, fast, fast_max));
        fast[0] = fast_max[0] = 99; /* a copy has been taken */
        assert_ok(comms[1]->finish(comms[1], 1));
        assert_true(slow[0] == 11 && slow_max[0] == 3);
        slow[0] = 10;
        slow_max[0] = 2;
        assert_ok(enqueue(1, slow, slow_max));
    }
    end(2);
}

static void test_rounds__poll_says_when_finish_would_not_wait(void **state)
{
    (void)state;
    int64_t sum[2] = {1, 2};
    uint64_t max[2] = {3, 4};
    bool done = true;
    begin(2);
    assert_ok(enqueue(0, &sum[0], &max[0]));
    assert_ok(comms[0]->poll(comms[0], &done));
    assert_false(done);
    assert_ok(enqueue(1, &sum[1], &max[1]));
    for (int r = 0; r < 2; r++) {
        assert_ok(comms[r]->poll(comms[r], &done));
        assert_true(done);
        assert_int_equal(sum[r], r + 1); /* written by finish, not before */
        assert_ok(comms[r]->finish(comms[r], 0));
        assert_int_equal(sum[r], 3);
    }
    end(2);
}

static void test_rounds__one_at_a_time(void **state)
{
    (void)state;
    int64_t sum[1] = {1};
    uint64_t max[1] = {1};
    bool done;
    begin(1);
    assert_refused(comms[0]->finish(comms[0], 0), KEEL_ERR_ORDER, "no round");
    assert_refused(comms[0]->poll(comms[0], &done), KEEL_ERR_ORDER, "no round");
    assert_ok(enqueue(0, sum, max));
    assert_refused(enqueue(0, sum, max), KEEL_ERR_ORDER, "in hand");
    assert_ok(comms[0]->finish(comms[0], 0));
    assert_refused(comms[0]->finish(comms[0], 0), KEEL_ERR_ORDER, "no round");
    end(1);
}

/* One round of values given per rank, played on one thread; every rank must see the same result. */
static void play(int32_t nranks, int64_t *sum, uint64_t *max)
{
    begin(nranks);
    for (int32_t r = 0; r < nranks; r++) assert_ok(enqueue(r, &sum[r], &max[r]));
    for (int32_t r = 0; r < nranks; r++) assert_ok(comms[r]->finish(comms[r], 1));
    for (int32_t r = 1; r < nranks; r++) assert_true(sum[r] == sum[0] && max[r] == max[0]);
    end(nranks);
}

static void test_rounds__sums_wrap_around(void **state)
{
    (void)state;
    int64_t over[2] = {INT64_MAX, 1}, under[3] = {INT64_MIN, -1, -1};
    uint64_t max[3] = {0, 0, 0};
    play(2, over, max);
    assert_true(over[0] == INT64_MIN);
    play(3, under, max);
    assert_true(under[0] == INT64_MAX - 1);
}

/* ml-explore/mlx#4072: a NaN of amax gets lost in a maximum, depending on the rank that holds it.
 * As an integer its bits lie above every finite number and above infinity. */
static void test_rounds__nan_bits_survive_the_maximum_on_every_rank(void **state)
{
    (void)state;
    static const uint32_t one = 0x3f800000u, nan = 0x7fc00000u, three = 0x40400000u;
    const uint64_t orders[6][3] = {{one, nan, three}, {one, three, nan}, {nan, one, three},
                                   {nan, three, one}, {three, one, nan}, {three, nan, one}};
    for (int i = 0; i < 6; i++) {
        int64_t sum[3] = {0, 0, 0};
        uint64_t max[3] = {orders[i][0], orders[i][1], orders[i][2]};
        play(3, sum, max);
        assert_true(max[0] == nan);
    }
    uint64_t top[2] = {UINT64_MAX, (uint64_t)INT64_MAX};
    play(2, (int64_t[2]){0, 0}, top);
    assert_true(top[0] == UINT64_MAX); /* unsigned, not -1 */
}

static void test_rounds__either_array_may_be_empty(void **state)
{
    (void)state;
    int64_t sum[2] = {1, 2};
    uint64_t max[2] = {1, 2};
    begin(2);
    for (int r = 0; r < 2; r++) assert_ok(comms[r]->enqueue(comms[r], NULL, 0, NULL, 0, NULL));
    for (int r = 0; r < 2; r++) assert_ok(comms[r]->finish(comms[r], 1));
    for (int r = 0; r < 2; r++) assert_ok(comms[r]->enqueue(comms[r], NULL, 0, &max[r], 1, NULL));
    for (int r = 0; r < 2; r++) assert_ok(comms[r]->finish(comms[r], 1));
    for (int r = 0; r < 2; r++) assert_ok(comms[r]->enqueue(comms[r], &sum[r], 1, NULL, 0, NULL));
    for (int r = 0; r < 2; r++) assert_ok(comms[r]->finish(comms[r], 1));
    assert_true(sum[0] == 3 && sum[1] == 3 && max[0] == 2 && max[1] == 2);
    end(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds__equal_a_plain_reference_for_any_number_of_ranks),
        cmocka_unit_test(test_rounds__ten_thousand_follow_each_other),
        cmocka_unit_test(test_rounds__a_fast_rank_does_not_disturb_the_result_of_a_slow_one),
        cmocka_unit_test(test_rounds__poll_says_when_finish_would_not_wait),
        cmocka_unit_test(test_rounds__one_at_a_time),
        cmocka_unit_test(test_rounds__sums_wrap_around),
        cmocka_unit_test(test_rounds__nan_bits_survive_the_maximum_on_every_rank),
        cmocka_unit_test(test_rounds__either_array_may_be_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Memory of communicators: none is taken once the largest round has been seen, and a refusal of the
 * allocator is an error that leaves nothing behind. */
#include <stdatomic.h>
#include <stdlib.h>

#include "check.h"
#include "crew.h"

enum { N = 3, WORDS = 300 };

static atomic_long taken;
static atomic_long refuse_after = -1; /* allocations that still succeed; -1 = all */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

/* More than this no allocator grants, but a sanitizer's ends the program over it. */
#define GRANTED_AT_MOST ((size_t)1 << 40)

static bool refused(size_t count, size_t size)
{
    if (size > 0 && count > GRANTED_AT_MOST / size) return true;
    atomic_fetch_add(&taken, 1);
    const long left = atomic_load(&refuse_after);
    if (left > 0) atomic_fetch_sub(&refuse_after, 1);
    return left == 0;
}

void *__wrap_malloc(size_t size)
{
    return refused(1, size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return refused(count, size) ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return refused(1, size) ? NULL : __real_realloc(memory, size);
}

static void rounds(hand *me)
{
    const int count = *(const int *)me->job;
    for (int i = 0; i < count; i++) {
        int64_t sum[WORDS] = {1};
        uint64_t max[WORDS] = {0};
        const int64_t n = i < 2 ? WORDS : i % WORDS; /* the largest first: two tallies take turns */
        if (keel_comm_reduce(me->comm, sum, n, max, n, 0) != KEEL_OK)
            complain(me, "%s", keel_last_error());
    }
}

static long taken_by_rounds(int count)
{
    keel_comm *comms[N];
    hand hands[N];
    assert_ok(keel_comm_threads(N, comms));
    const long before = atomic_load(&taken);
    crew_run(comms, N, rounds, &count, hands);
    const long during = atomic_load(&taken) - before;
    for (int r = 0; r < N; r++) keel_comm_destroy(comms[r]);
    return during;
}

static void test_memory__rounds_take_none_in_the_long_run(void **state)
{
    (void)state;
    const long few = taken_by_rounds(2), many = taken_by_rounds(2002);
    print_message("%ld allocations in 2 rounds, %ld in 2002\n", few, many);
    assert_true(few > 0); /* or the count does not see the library */
    assert_int_equal(few, many);
}

static void test_memory__no_memory_for_a_communicator(void **state)
{
    (void)state;
    keel_comm *const before = (keel_comm *)&before;
    keel_status status = KEEL_ERR_NO_MEMORY;
    int failures = -1;
    for (long k = 0; status != KEEL_OK; k++, failures++) {
        keel_comm *comms[N] = {before, before, before};
        atomic_store(&refuse_after, k);
        status = keel_comm_threads(N, comms);
        atomic_store(&refuse_after, -1);
        for (int r = 0; r < N; r++)
            status == KEEL_OK ? keel_comm_destroy(comms[r]) : assert_ptr_equal(comms[r], before);
        if (status != KEEL_OK) assert_int_equal(status, KEEL_ERR_NO_MEMORY);
    }
    assert_true(failures > 0);
}

/* The ranks that have memory must not wait for the one that has none. */
static void test_memory__no_memory_for_a_round_fails_it_for_all(void **state)
{
    (void)state;
    keel_comm *comms[2];
    int64_t sum[2][WORDS] = {{1}, {2}}; /* more than a communicator keeps room for */
    assert_ok(keel_comm_threads(2, comms));
    atomic_store(&refuse_after, 0);
    const keel_status status = comms[0]->enqueue(comms[0], sum[0], WORDS, NULL, 0, NULL);
    atomic_store(&refuse_after, -1);
    assert_int_equal(status, KEEL_ERR_COMM);
    assert_refused(keel_comm_reduce(comms[1], sum[1], WORDS, NULL, 0, 0), KEEL_ERR_COMM,
                   "rank 0 of 2 found no memory for 300 sums and 0 maxima");
    assert_true(sum[0][0] == 1 && sum[1][0] == 2);
    for (int r = 0; r < 2; r++) keel_comm_destroy(comms[r]);
}

/* A length that no memory can hold is refused as such, whatever its product with 8 wraps to. */
static void test_memory__absurd_lengths_are_refused(void **state)
{
    (void)state;
    keel_comm *comms[1];
    int64_t sum[1] = {1};
    uint64_t max[1] = {1};
    assert_ok(keel_comm_threads(1, comms));
    assert_refused(comms[0]->enqueue(comms[0], sum, INT64_MAX, max, INT64_MAX, NULL), KEEL_ERR_COMM,
                   "found no memory");
    keel_comm_destroy(comms[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory__rounds_take_none_in_the_long_run),
        cmocka_unit_test(test_memory__no_memory_for_a_communicator),
        cmocka_unit_test(test_memory__no_memory_for_a_round_fails_it_for_all),
        cmocka_unit_test(test_memory__absurd_lengths_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

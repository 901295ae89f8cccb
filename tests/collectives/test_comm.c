/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The public calls: the rank that is alone, arguments, a transport of somebody else's. */
#include "check.h"
#include "keel/ext.h"

static void test_comm__null_is_the_only_rank(void **state)
{
    (void)state;
    assert_int_equal(keel_comm_rank(NULL), 0);
    assert_int_equal(keel_comm_size(NULL), 1);
    assert_string_equal(keel_comm_name(NULL), "self");
    keel_comm_destroy(NULL);
}

static void test_comm__a_round_of_one_rank_is_the_identity(void **state)
{
    (void)state;
    int64_t sum[2] = {INT64_MIN, 7};
    uint64_t max[2] = {0, UINT64_MAX};
    assert_ok(keel_comm_reduce(NULL, sum, 2, max, 2, 1));
    assert_ok(keel_comm_reduce(NULL, NULL, 0, NULL, 0, 0));
    assert_true(sum[0] == INT64_MIN && sum[1] == 7);
    assert_true(max[0] == 0 && max[1] == UINT64_MAX);
}

static void test_comm__every_rank_knows_its_place(void **state)
{
    (void)state;
    keel_comm *comms[3];
    assert_ok(keel_comm_threads(3, comms));
    for (int32_t r = 0; r < 3; r++) {
        assert_int_equal(keel_comm_rank(comms[r]), r);
        assert_int_equal(keel_comm_size(comms[r]), 3);
        assert_string_equal(keel_comm_name(comms[r]), "threads");
        assert_int_equal(comms[r]->ext_version, KEEL_EXT_VERSION);
    }
    for (int32_t r = 0; r < 3; r++) keel_comm_destroy(comms[r]);
}

static void test_comm__counts_of_ranks_out_of_bounds_are_refused(void **state)
{
    (void)state;
    static const int32_t wrong[] = {0, -1, INT32_MIN, KEEL_COMM_THREADS_MAX + 1, INT32_MAX};
    keel_comm *const before = (keel_comm *)&before;
    keel_comm *comms[1] = {before};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(keel_comm_threads(wrong[i], comms), KEEL_ERR_INVALID, "1..1024");
    assert_ptr_equal(comms[0], before);
    assert_refused(keel_comm_threads(1, NULL), KEEL_ERR_INVALID, "out_comms");
}

static void test_comm__the_largest_count_of_ranks_is_made(void **state)
{
    (void)state;
    static keel_comm *comms[KEEL_COMM_THREADS_MAX];
    assert_ok(keel_comm_threads(KEEL_COMM_THREADS_MAX, comms));
    for (int32_t r = 0; r < KEEL_COMM_THREADS_MAX; r++) keel_comm_destroy(comms[r]);
}

static void test_comm__wrong_arguments_do_not_enter_a_round(void **state)
{
    (void)state;
    keel_comm *comms[1];
    int64_t sum[1] = {5};
    uint64_t max[1] = {6};
    assert_ok(keel_comm_threads(1, comms));
    assert_refused(keel_comm_reduce(comms[0], sum, -1, max, 1, 0), KEEL_ERR_INVALID, "nsum=-1");
    assert_refused(keel_comm_reduce(comms[0], sum, 1, max, -2, 0), KEEL_ERR_INVALID, "nmax=-2");
    assert_refused(keel_comm_reduce(comms[0], NULL, 1, max, 1, 0), KEEL_ERR_INVALID, "sum=");
    assert_refused(keel_comm_reduce(comms[0], sum, 1, NULL, 1, 0), KEEL_ERR_INVALID, "max=");
    assert_refused(keel_comm_reduce(comms[0], sum, 1, max, 1, -1), KEEL_ERR_INVALID, "timeout_us");
    assert_ok(keel_comm_reduce(comms[0], sum, 1, max, 1, INT64_MAX));
    assert_true(sum[0] == 5 && max[0] == 6);
    keel_comm_destroy(comms[0]);
}

/* A transport whose rounds lie on a stream would return before the arrays are written. */
static void test_comm__a_stream_transport_does_not_reduce_host_memory(void **state)
{
    (void)state;
    keel_comm stream = {.ext_version = KEEL_EXT_VERSION, .nranks = 1, .on_stream = true};
    stream.name = "somewhere";
    int64_t sum[1] = {1};
    assert_refused(keel_comm_reduce(&stream, sum, 1, NULL, 0, 0), KEEL_ERR_UNSUPPORTED,
                   "somewhere");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm__null_is_the_only_rank),
        cmocka_unit_test(test_comm__a_round_of_one_rank_is_the_identity),
        cmocka_unit_test(test_comm__every_rank_knows_its_place),
        cmocka_unit_test(test_comm__counts_of_ranks_out_of_bounds_are_refused),
        cmocka_unit_test(test_comm__the_largest_count_of_ranks_is_made),
        cmocka_unit_test(test_comm__wrong_arguments_do_not_enter_a_round),
        cmocka_unit_test(test_comm__a_stream_transport_does_not_reduce_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

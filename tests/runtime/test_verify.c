/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* "keel_step_verify() detects with one collective any global element not counted exactly once, and
 * names the tensor." */
#include "check.h"
#include "model.h"
#include "ranks.h"

enum { PARTS = 4 };

/* What one rank holds of tensor 0, 'w', of 24 elements; rows 0 = no such part. */
typedef struct part {
    int32_t rank;
    keel_shard shard;
} part;

typedef struct scene {
    int32_t nranks;
    part parts[PARTS];
    int64_t global_params;
    keel_status wanted;
    const char *word;
} scene;

#define RANGE(first, n)                                                              \
    {                                                                                \
        .global_numel = 24, .offset = (first), .rows = 1, .cols = (n), .replicas = 1 \
    }
#define GRID(first, height, width, stride)                                        \
    {                                                                             \
        .global_numel = 24, .offset = (first), .rows = (height), .cols = (width), \
        .row_stride = (stride), .replicas = 1                                     \
    }
#define COPY(first, n)                                                                             \
    {                                                                                              \
        .global_numel = 24, .offset = (first), .rows = 1, .cols = (n), .replica = 1, .replicas = 2 \
    }

static void run_scene(int32_t rank, keel_comm *comm, void *context)
{
    const scene *s = context;
    model m;
    model_begin(&m);
    m.cfg.comm = comm;
    m.cfg.global_params = s->global_params ? s->global_params : 1;
    for (int i = 0; i < PARTS; i++) {
        const part *p = &s->parts[i];
        if (p->rank != rank || p->shard.rows == 0) continue;
        keel_param *param = model_add(&m, KEEL_FORMAT_F32, p->shard.rows * p->shard.cols);
        param->shard = p->shard;
        param->name = "w";
        param->id = 0;
    }
    model_create(&m);
    const uint64_t before = model_digest(&m);
    keel_counters counters;
    check_refused(keel_step_verify(m.step), s->wanted, s->word, "keel_step_verify", __FILE__,
                  __LINE__);
    assert_ok(keel_step_counters(m.step, &counters));
    assert_int_equal(counters.rounds, 1);
    assert_true(model_digest(&m) == before);
    model_run(&m); /* the communicator is whole, and so is the step */
    model_end(&m);
}

static const scene scenes[] = {
    {2, {{0, RANGE(0, 10)}, {1, RANGE(10, 14)}}, 0, KEEL_OK, ""},
    {3, {{2, RANGE(0, 10)}, {0, RANGE(10, 14)}}, 0, KEEL_OK, ""},
    {2, {{0, GRID(0, 4, 2, 6)}, {1, GRID(2, 4, 4, 6)}}, 0, KEEL_OK, ""},
    {2, {{0, RANGE(0, 24)}, {1, COPY(0, 24)}}, 0, KEEL_OK, ""},
    {2, {{0, RANGE(0, 24)}, {1, COPY(5, 7)}}, 0, KEEL_OK, ""},
    {1, {{0, RANGE(0, 0)}, {0, RANGE(0, 24)}, {0, RANGE(7, 0)}}, 0, KEEL_OK, ""},
    /* missing, doubled, and as many as there should be */
    {2, {{0, RANGE(0, 10)}, {1, RANGE(11, 13)}}, 0, KEEL_ERR_PEER, "counts 23 elements of 24"},
    {2, {{0, RANGE(0, 10)}, {1, RANGE(9, 15)}}, 0, KEEL_ERR_PEER, "counts 25 elements of 24"},
    {2, {{0, RANGE(0, 12)}, {1, RANGE(0, 12)}}, 0, KEEL_ERR_PEER, "24 elements of 24, some twice"},
    {2, {{0, GRID(0, 4, 3, 6)}, {1, GRID(2, 4, 3, 6)}}, 0, KEEL_ERR_PEER, "some twice"},
    {2, {{0, GRID(0, 6, 2, 4)}, {1, GRID(2, 4, 3, 6)}}, 0, KEEL_ERR_PEER, "some twice"},
    {2, {{0, RANGE(0, 24)}, {1, RANGE(0, 24)}}, 0, KEEL_ERR_PEER, "counts 48 elements of 24"},
    {2, {{0, COPY(0, 24)}, {1, COPY(0, 24)}}, 0, KEEL_ERR_PEER, "counts 0 elements of 24"},
    /* tables that differ */
    {2,
     {{0, RANGE(0, 12)},
      {1, {.global_numel = 25, .offset = 12, .rows = 1, .cols = 13, .replicas = 1}}},
     0,
     KEEL_ERR_PEER,
     "global_numel 24 on one rank and 25"},
    {2, {{0, RANGE(0, 24)}}, 3, KEEL_ERR_PEER, "no rank holds id 1"},
};

static void test_verify__every_element_counts_exactly_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        scene s = scenes[i];
        ranks_run(s.nranks, run_scene, &s);
    }
}

/* The sentence names tensor and rank, also on a rank that holds nothing of it. */
static void run_named(int32_t rank, keel_comm *comm, void *context)
{
    (void)context;
    model m;
    model_begin(&m);
    m.cfg.comm = comm;
    m.cfg.global_params = 2;
    for (int i = 0; i < 2 && rank == 0; i++) {
        keel_param *p = model_add(&m, KEEL_FORMAT_BF16, 4);
        p->name = i ? "head.w" : "embed.w";
        p->shard = (keel_shard){.global_numel = i ? 5 : 4, .replicas = 1};
    }
    model_create(&m);
    assert_refused(keel_step_verify(m.step), KEEL_ERR_PEER,
                   rank == 0 ? "rank 0/2: tensor 1 'head.w'" : "rank 1/2: tensor 1 'of another");
    model_end(&m);
}

static void test_verify__names_the_tensor(void **state)
{
    (void)state;
    ranks_run(2, run_named, NULL);
}

static void run_configured(int32_t rank, keel_comm *comm, void *context)
{
    (void)context;
    model m;
    model_begin(&m);
    m.cfg.comm = comm;
    m.cfg.loss_scale.interval = 7 + rank;
    model_add(&m, KEEL_FORMAT_F32, 4);
    model_create(&m);
    assert_refused(keel_step_verify(m.step), KEEL_ERR_PEER, "differ in configuration");
    model_end(&m);
}

static void test_verify__compares_configurations(void **state)
{
    (void)state;
    ranks_run(2, run_configured, NULL);
}

static void run_late(int32_t rank, keel_comm *comm, void *context)
{
    (void)context;
    model m;
    model_begin(&m);
    m.cfg.comm = comm;
    m.cfg.timeout_us = 20000;
    model_create(&m);
    if (rank == 0) assert_refused(keel_step_verify(m.step), KEEL_ERR_COMM, "rank");
    model_end(&m);
}

static void test_verify__ends_at_the_deadline(void **state)
{
    (void)state;
    ranks_run(2, run_late, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify__every_element_counts_exactly_once),
        cmocka_unit_test(test_verify__names_the_tensor),
        cmocka_unit_test(test_verify__compares_configurations),
        cmocka_unit_test(test_verify__ends_at_the_deadline),
    };
    return cmocka_run_group_tests_name("runtime.verify", tests, NULL, NULL);
}

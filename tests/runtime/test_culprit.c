/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Which tensor, on which rank: every place of a 4 x 8 layout in turn.
 *
 * "A non-finite gradient anywhere: every rank skips."  "Report of a step: first bad tensor, rank
 * and index, counts." */
#include <stdlib.h>

#include "check.h"
#include "model.h"
#include "ranks.h"

enum { RANKS = 4, TENSORS = 8, NUMEL = 2100, FIRST_ID = 100 };

/* A value at one element of one tensor on one rank; tensor -1: nowhere. */
typedef struct spot {
    int32_t rank;
    int tensor;
    int64_t element;
    float value;
} spot;

/* Ranks hold shards of the same tensors, or copies of them that the ranks have summed. */
typedef struct scene {
    bool summed;
    bool probe;
    spot spots[2];
    keel_report reports[RANKS];
    float moved[RANKS]; /* what the first master lost */
} scene;

static void begin(model *m, const scene *s, int32_t rank, keel_comm *comm)
{
    model_begin(m);
    m->cfg.comm = comm;
    model_group(m, KEEL_GROUP_SGD(1));
    for (int t = 0; t < TENSORS; t++) {
        keel_param *p = model_add(m, t % 2 ? KEEL_FORMAT_BF16 : KEEL_FORMAT_F32, NUMEL);
        p->id = FIRST_ID + t;
        model_set(p, 0, 1);
        if (s->summed) continue;
        p->shard = (keel_shard){.global_numel = (int64_t)RANKS * NUMEL,
                                .offset = (int64_t)rank * NUMEL,
                                .rows = 1,
                                .cols = NUMEL,
                                .replicas = 1};
    }
}

/* This rank's own gradients first; once summed, what is bad anywhere is bad everywhere. */
static void run_scene(int32_t rank, keel_comm *comm, void *context)
{
    scene *s = context;
    model *m = malloc(sizeof *m);
    assert_non_null(m);
    begin(m, s, rank, comm);
    for (int i = 0; i < 2; i++)
        if (s->spots[i].rank == rank && s->spots[i].tensor >= 0)
            model_set(&m->params[s->spots[i].tensor], s->spots[i].element, s->spots[i].value);
    model_create(m);
    if (s->probe) assert_ok(keel_step_probe(m->step, 0, TENSORS, NULL, NULL));
    for (int i = 0; s->summed && i < 2; i++)
        if (s->spots[i].tensor >= 0)
            model_set(&m->params[s->spots[i].tensor], s->spots[i].element, s->spots[i].value);
    model_run(m);
    s->reports[rank] = model_report(m);
    s->moved[rank] = m->params[0].master[0];
    model_end(m);
    free(m);
}

static void assert_skipped(const scene *s, keel_origin origin, const spot *culprit)
{
    for (int r = 0; r < RANKS; r++) {
        const keel_report *report = &s->reports[r];
        assert_int_equal(report->applied, 0);
        assert_same_f32(s->moved[r], 0.0f);
        assert_int_equal(report->origin, origin);
        assert_int_equal(report->culprit_rank, culprit->rank);
        assert_int_equal(report->culprit_tensor, FIRST_ID + culprit->tensor);
    }
}

static void assert_here(const keel_report *r, int64_t tensor, int64_t element)
{
    assert_int_equal(r->local_tensor, tensor);
    assert_int_equal(r->local_index, element);
}

static const spot nowhere = {0, -1, 0, 0};

static void test_culprit__any_rank_and_tensor_is_found(void **state)
{
    (void)state;
    for (int32_t r = 0; r < RANKS; r++)
        for (int t = 0; t < TENSORS; t++) {
            const bool nan = (r + t) % 2;
            const int64_t element = (r * 523 + t * 97) % NUMEL;
            const spot bad = {r, t, element, nan ? NAN : -INFINITY};
            scene s = {.spots = {bad, nowhere}};
            ranks_run(RANKS, run_scene, &s);
            assert_skipped(&s, KEEL_ORIGIN_RANK, &bad);
            for (int32_t i = 0; i < RANKS; i++) {
                const keel_report *report = &s.reports[i];
                assert_int_equal(report->cause, nan ? KEEL_CAUSE_NAN : KEEL_CAUSE_INF);
                assert_int_equal(report->nan_count, nan);
                assert_int_equal(report->inf_count, !nan);
                assert_int_equal(report->bad_ranks, 1);
                assert_int_equal(report->probed, 0);
                if (nan) assert_true(isnan(report->norm));
                if (!nan) assert_same_f64(report->norm, (double)INFINITY);
                assert_here(report, i == r ? t : -1, i == r ? element : -1);
            }
        }
}

/* "the lowest rank's first bad tensor": rank before tensor, NaN and infinity alike. */
static void test_culprit__lowest_rank_then_first_tensor(void **state)
{
    (void)state;
    const spot a = {2, 1, 5, NAN}, b = {1, 6, 2099, INFINITY};
    scene s = {.spots = {a, b}};
    ranks_run(RANKS, run_scene, &s);
    assert_skipped(&s, KEEL_ORIGIN_RANK, &b);
    assert_int_equal(s.reports[0].bad_ranks, 2);
    assert_int_equal(s.reports[0].cause, KEEL_CAUSE_NAN);
    assert_here(&s.reports[2], 1, 5);
    assert_here(&s.reports[1], 6, 2099);

    const spot c = {3, 4, 1500, INFINITY}, d = {3, 4, 1023, NAN};
    s = (scene){.spots = {c, d}};
    ranks_run(RANKS, run_scene, &s);
    assert_here(&s.reports[3], 4, 1023);
    assert_int_equal(s.reports[0].bad_ranks, 1);
    s.spots[1].tensor = 3;
    ranks_run(RANKS, run_scene, &s);
    assert_here(&s.reports[3], 3, 1023);
}

/* keel_origin SHARED: "every rank saw it in its already summed gradients, and none probed". */
static void test_culprit__summed_gradients_do_not_tell(void **state)
{
    (void)state;
    const spot bad = {2, 5, 1024, NAN}, seen = {0, 5, 1024, NAN};
    scene s = {.summed = true, .spots = {bad, nowhere}};
    ranks_run(RANKS, run_scene, &s);
    assert_skipped(&s, KEEL_ORIGIN_SHARED, &seen);
    assert_int_equal(s.reports[1].bad_ranks, RANKS);
    assert_int_equal(s.reports[1].nan_count, RANKS);
    assert_here(&s.reports[1], 5, 1024);
}

/* "keel_step_probe: so that the report can name the rank where it began." */
static void test_culprit__a_probe_tells(void **state)
{
    (void)state;
    for (int32_t r = 0; r < RANKS; r++) {
        const spot bad = {r, 5, 1024, INFINITY}, late = {3, 2, 7, NAN};
        scene s = {.summed = true, .probe = true, .spots = {bad, late}};
        ranks_run(RANKS, run_scene, &s);
        const spot *first = r <= 2 ? &bad : &late;
        assert_skipped(&s, KEEL_ORIGIN_RANK, first);
        assert_int_equal(s.reports[0].probed, TENSORS * NUMEL);
        assert_here(&s.reports[first->rank], first->tensor, first->element);
    }
}

/* A probe alone is no verdict: what it saw and the gradients of the step do not hold, is gone. */
static void test_culprit__a_probe_does_not_skip(void **state)
{
    (void)state;
    const float bad[NUMEL] = {1, INFINITY};
    const void *const grads[] = {bad};
    scene s = {.spots = {nowhere, nowhere}};
    model *m = malloc(sizeof *m);
    assert_non_null(m);
    begin(m, &s, 0, NULL);
    model_create(m);
    assert_ok(keel_step_probe(m->step, 0, 1, grads, NULL));
    model_run(m);
    assert_int_equal(model_report(m).applied, 1);
    assert_int_equal(model_report(m).probed, NUMEL);
    model_run(m); /* and it is forgotten */
    assert_int_equal(model_report(m).probed, 0);
    const keel_report r = model_report(m);
    assert_here(&r, -1, -1);
    model_end(m);
    free(m);
}

/* "may be called once per micro-batch": of all that was seen the first place is told, in whatever
 * order it was seen. */
static void test_culprit__first_place_in_any_order(void **state)
{
    (void)state;
    static const int order[3][2] = {{6, 40}, {2, 9}, {2, 4}}; /* tensor, element */
    const scene s = {.spots = {nowhere, nowhere}};
    for (int probe = 0; probe < 2; probe++) {
        model *m = malloc(sizeof *m);
        assert_non_null(m);
        begin(m, &s, 0, NULL);
        for (int i = 0; i < (probe ? 0 : 3); i++)
            model_set(&m->params[order[i][0]], order[i][1], NAN);
        model_create(m);
        for (int i = 0; i < (probe ? 3 : 0); i++) {
            float *batch = calloc(NUMEL, sizeof *batch);
            const void *const grads[] = {batch};
            assert_non_null(batch);
            batch[order[i][1]] = NAN; /* tensors of even index are f32 */
            assert_ok(keel_step_probe(m->step, order[i][0], 1, grads, NULL));
            free(batch);
        }
        for (int t = TENSORS - 1; t >= 0; t--) assert_ok(keel_step_accumulate(m->step, t, 1, NULL));
        model_run(m);
        const keel_report r = model_report(m);
        assert_here(&r, 2, 4);
        model_end(m);
        free(m);
    }
}

/* keel/report.h: "for LOSS and VETO the lowest voter". */
static void run_votes(int32_t rank, keel_comm *comm, void *context)
{
    const bool veto = *(const bool *)context;
    const float loss = rank == 1 || rank == 3 ? NAN : 1;
    model m;
    model_begin(&m);
    m.cfg.comm = comm;
    model_create(&m);
    for (int i = 0; i < 3; i++) /* votes count ranks, not calls */
        if (!veto)
            assert_ok(keel_step_check_loss(m.step, &loss, NULL));
        else if (rank >= 2)
            assert_ok(keel_step_veto(m.step, NULL));
    model_run(&m);
    const keel_report r = model_report(&m);
    assert_int_equal(r.cause, veto ? KEEL_CAUSE_VETO : KEEL_CAUSE_LOSS);
    assert_int_equal(r.culprit_rank, veto ? 2 : 1);
    assert_int_equal(r.culprit_tensor, -1);
    assert_int_equal(r.loss_votes, veto ? 0 : 2);
    assert_int_equal(r.veto_votes, veto ? 2 : 0);
    assert_int_equal(r.origin, KEEL_ORIGIN_NONE);
    model_end(&m);
}

static void test_culprit__votes_name_the_lowest_voter(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool veto = i;
        ranks_run(RANKS, run_votes, &veto);
    }
}

/* One rank lost its loss, a lower one probed a NaN that the sum does not show: the tensor named
 * must be one of the rank named. */
static void run_vote_and_probe(int32_t rank, keel_comm *comm, void *context)
{
    (void)context;
    const float loss = rank == 1 ? NAN : 1, bad[] = {NAN};
    const void *probed[] = {bad};
    model m;
    model_begin(&m);
    m.cfg.comm = comm;
    model_add_f32(&m, 1, (float[]){1});
    model_create(&m);
    if (rank == 0) assert_ok(keel_step_probe(m.step, 0, 1, probed, NULL));
    assert_ok(keel_step_check_loss(m.step, &loss, NULL));
    model_run(&m);
    const keel_report r = model_report(&m);
    assert_int_equal(r.cause, KEEL_CAUSE_LOSS);
    assert_int_equal(r.culprit_rank, 1);
    assert_int_equal(r.culprit_tensor, -1);
    assert_int_equal(r.local_tensor, rank == 0 ? 0 : -1);
    model_end(&m);
}

static void test_culprit__a_vote_names_no_tensor_of_another_rank(void **state)
{
    (void)state;
    ranks_run(2, run_vote_and_probe, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_culprit__any_rank_and_tensor_is_found),
        cmocka_unit_test(test_culprit__lowest_rank_then_first_tensor),
        cmocka_unit_test(test_culprit__summed_gradients_do_not_tell),
        cmocka_unit_test(test_culprit__a_probe_tells),
        cmocka_unit_test(test_culprit__a_probe_does_not_skip),
        cmocka_unit_test(test_culprit__first_place_in_any_order),
        cmocka_unit_test(test_culprit__a_vote_names_no_tensor_of_another_rank),
        cmocka_unit_test(test_culprit__votes_name_the_lowest_voter),
    };
    return cmocka_run_group_tests_name("runtime.culprit", tests, NULL, NULL);
}

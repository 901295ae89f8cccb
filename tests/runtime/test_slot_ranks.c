/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Slots over ranks: one scale for all, and one verdict with the rank and the slot it came from. */
#include <math.h>
#include <stdlib.h>

#include "model.h"
#include "random.h"
#include "ranks.h"
#include "slots.h"

enum { ACT, GRAD, VETOING, SLOTS, STEPS = 12, RANKS = 8 };

/* What each rank casts through a slot in each step; NAN: it does not cast at all. */
typedef struct scene {
    float amax[STEPS][RANKS][SLOTS];
    keel_slot_report seen[STEPS][RANKS][SLOTS];
    keel_report reports[STEPS][RANKS];
    keel_slot_policy policy;
    int32_t nranks;
} scene;

static void run_rank(int32_t rank, keel_comm *comm, void *context)
{
    scene *s = context;
    keel_slot slots[SLOTS] = {
        slot_of(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3, 3),
        slot_of(KEEL_SLOT_GRADIENT, KEEL_FORMAT_E5M2, 3),
        slot_of(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3, 3),
    };
    model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    model_begin(m);
    model_group(m, KEEL_GROUP_SGD(0.5));
    model_add_f32(m, 2, (const float[]){1, 2});
    slots[VETOING].veto = 1;
    for (int i = 0; i < SLOTS; i++) slots[i].policy = s->policy;
    m->cfg.slots = slots;
    m->cfg.slot_count = SLOTS;
    m->cfg.comm = comm;
    m->cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
    m->cfg.loss_scale.init = 256;
    m->cfg.loss_scale.interval = 2;
    model_create(m);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < SLOTS; i++)
            if (!isnan(s->amax[step][rank][i]))
                slot_quantize_one(m->step, i, s->amax[step][rank][i]);
        model_run(m);
        s->reports[step][rank] = slot_last_report(m->step);
        for (int i = 0; i < SLOTS; i++) s->seen[step][rank][i] = slot_report(m->step, i);
    }
    model_end(m);
    free(m);
}

static void check_same_everywhere(const scene *s)
{
    for (int step = 0; step < STEPS; step++)
        for (int32_t r = 1; r < s->nranks; r++)
            for (int i = 0; i < SLOTS; i++) {
                const keel_slot_report *a = &s->seen[step][0][i], *b = &s->seen[step][r][i];
                assert_same_f32(b->scale, a->scale);
                assert_same_f32(b->scale_inv, a->scale_inv);
                assert_same_f32(b->amax, a->amax);
                assert_int_equal(b->updates, a->updates);
                assert_int_equal(b->nonfinite_updates, a->nonfinite_updates);
            }
}

static void fill(scene *s, random_source *r)
{
    for (int step = 0; step < STEPS; step++)
        for (int32_t rank = 0; rank < s->nranks; rank++)
            for (int i = 0; i < SLOTS; i++) {
                const float x = ldexpf(1 + fabsf(random_unit(r)), (int)random_below(r, 20) - 10);
                s->amax[step][rank][i] = random_below(r, 3) ? (random_below(r, 9) ? x : 0) : NAN;
            }
}

/* The one rank that has them all. */
static void gather(const scene *s, scene *alone)
{
    alone->nranks = 1;
    alone->policy = s->policy;
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < SLOTS; i++) {
            float largest = NAN;
            for (int32_t rank = 0; rank < s->nranks; rank++)
                largest = fmaxf(largest, s->amax[step][rank][i]); /* which passes over NaN */
            alone->amax[step][0][i] = largest;
        }
}

/* Ranks with different local maxima, some without a cast, stand at one scale after every step, the
 * scale of a single rank that saw the largest of each. */
static void test_slot_ranks__agree_on_one_scale(void **state)
{
    (void)state;
    static scene s, alone;
    for (uint64_t trial = 0; trial < 60; trial++) {
        random_source r = random_begin(trial);
        s.nranks = 1 + (int32_t)(trial % RANKS);
        s.policy = (keel_slot_policy)(trial / RANKS % 2);
        fill(&s, &r);
        gather(&s, &alone);
        ranks_run(s.nranks, run_rank, &s);
        ranks_run(1, run_rank, &alone);
        check_same_everywhere(&s);
        for (int step = 0; step < STEPS; step++)
            for (int i = 0; i < SLOTS; i++)
                assert_same_f32(s.seen[step][0][i].scale, alone.seen[step][0][i].scale);
    }
}

typedef struct bad {
    int slot;
    float value;
    bool skips;
} bad;

/* A source that is not finite, on one rank: all skip and name rank and slot, or none does. */
static void test_slot_ranks__name_rank_and_slot(void **state)
{
    (void)state;
    static scene s;
    static const bad bads[] = {{GRAD, INFINITY, true},
                               {GRAD, -INFINITY, true},
                               {VETOING, INFINITY, true},
                               {ACT, INFINITY, false}};
    for (int b = 0; b < 4; b++)
        for (int32_t nranks = 1; nranks <= RANKS; nranks++) {
            const int32_t where = (3 * nranks + b) % nranks;
            s.nranks = nranks;
            s.policy = KEEL_SLOT_POLICY_KEEL;
            for (int step = 0; step < STEPS; step++)
                for (int32_t rank = 0; rank < nranks; rank++)
                    for (int i = 0; i < SLOTS; i++) s.amax[step][rank][i] = 1;
            s.amax[5][where][bads[b].slot] = bads[b].value;
            ranks_run(nranks, run_rank, &s);
            check_same_everywhere(&s);
            for (int32_t rank = 0; rank < nranks; rank++) {
                const keel_report *r = &s.reports[5][rank];
                assert_int_equal(r->applied, !bads[b].skips);
                assert_int_equal(r->cause, bads[b].skips ? KEEL_CAUSE_INF : KEEL_CAUSE_NONE);
                assert_int_equal(r->culprit_rank, bads[b].skips ? where : -1);
                assert_int_equal(r->culprit_slot, bads[b].skips ? bads[b].slot : -1);
                assert_int_equal(r->culprit_tensor, -1);
                assert_int_equal(r->bad_ranks, bads[b].skips);
                assert_int_equal(s.reports[6][rank].applied, 1);
                assert_int_equal(s.seen[5][rank][bads[b].slot].nonfinite, rank == where);
                assert_int_equal(s.seen[5][rank][bads[b].slot].nonfinite_updates, 1);
            }
        }
}

/* Several at once: the lowest rank, and of its slots the first. */
static void test_slot_ranks__lowest_rank_then_first_slot(void **state)
{
    (void)state;
    static scene s;
    s.nranks = 4;
    s.policy = KEEL_SLOT_POLICY_KEEL;
    for (int step = 0; step < STEPS; step++)
        for (int32_t rank = 0; rank < s.nranks; rank++)
            for (int i = 0; i < SLOTS; i++) s.amax[step][rank][i] = 1;
    s.amax[2][3][GRAD] = s.amax[2][1][VETOING] = INFINITY;
    s.amax[7][2][VETOING] = s.amax[7][2][GRAD] = s.amax[7][3][GRAD] = INFINITY;
    ranks_run(s.nranks, run_rank, &s);
    for (int32_t rank = 0; rank < s.nranks; rank++) {
        assert_int_equal(s.reports[2][rank].culprit_rank, 1);
        assert_int_equal(s.reports[2][rank].culprit_slot, VETOING);
        assert_int_equal(s.reports[2][rank].bad_ranks, 2);
        assert_int_equal(s.reports[7][rank].culprit_rank, 2);
        assert_int_equal(s.reports[7][rank].culprit_slot, GRAD);
    }
}

/* NVIDIA-NeMo/Megatron-Bridge#5591: a change on one rank only, at create or after it, and scales
 * would part without a word. */
typedef struct parting {
    size_t offset;
    int32_t value;
} parting;

static const parting partings[] = {
    {offsetof(keel_slot, format), KEEL_FORMAT_E5M2},
    {offsetof(keel_slot, role), KEEL_SLOT_GRADIENT},
    {offsetof(keel_slot, policy), KEEL_SLOT_POLICY_TE},
    {offsetof(keel_slot, history), 2},
    {offsetof(keel_slot, margin), -1},
    {offsetof(keel_slot, algorithm), KEEL_AMAX_MOST_RECENT},
    {offsetof(keel_slot, scaling), KEEL_SCALING_CURRENT},
    {offsetof(keel_slot, power_of_two), 1},
    {offsetof(keel_slot, veto), 1},
};

enum { PARTINGS = sizeof partings / sizeof *partings, FROZEN = 3 };

static void part(keel_slot *slot, int32_t rank, const parting *p)
{
    if (rank == 1) memcpy((char *)slot + p->offset, &p->value, sizeof p->value);
}

static void run_parting(int32_t rank, keel_comm *comm, void *context)
{
    const parting *p = context;
    const bool at_create = p < partings + FROZEN;
    keel_slot slot = slot_of(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3, 3);
    keel_config cfg = KEEL_CONFIG_INIT;
    keel_step *step;
    if (at_create) part(&slot, rank, p);
    cfg.comm = comm;
    cfg.slots = &slot;
    cfg.slot_count = 1;
    assert_ok(keel_step_create(&cfg, NULL, 0, NULL, 0, &step));
    if (!at_create) {
        assert_ok(keel_step_run(step, NULL));
        part(&slot, rank, p);
        assert_ok(keel_step_set_slot(step, 0, &slot));
    }
    assert_refused(keel_step_run(step, NULL), KEEL_ERR_PEER, "slots");
    keel_step_destroy(step);
}

/* Slots are part of what ranks must have alike; counting is a rank's own affair. */
static void test_slot_ranks__different_slots_are_refused(void **state)
{
    (void)state;
    for (int i = 0; i < PARTINGS; i++) ranks_run(2, run_parting, (void *)(uintptr_t)&partings[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot_ranks__agree_on_one_scale),
        cmocka_unit_test(test_slot_ranks__name_rank_and_slot),
        cmocka_unit_test(test_slot_ranks__lowest_rank_then_first_slot),
        cmocka_unit_test(test_slot_ranks__different_slots_are_refused),
    };
    return cmocka_run_group_tests_name("runtime.slot_ranks", tests, NULL, NULL);
}

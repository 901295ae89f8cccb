/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What every lane sees: who packs, and the facts that the reduced packet yields. */
#ifndef KEELI_LANE_H
#define KEELI_LANE_H

#include "keel/report.h"
#include "portable.h"

typedef struct keeli_lane_context {
    int32_t rank;
    int32_t nranks;
    int64_t step;  /* the number this step will bear */
    uint64_t hash; /* of everything the ranks must have in common */
} keeli_lane_context;

/* The same on every rank. */
typedef struct keeli_outcome {
    double sum_of_squares; /* of the counted finite elements, rounded once */
    int64_t elements;
    int64_t zero_count;
    int64_t inf_count;
    int64_t nan_count;
    int64_t bad_ranks;
    int64_t loss_votes;
    int64_t veto_votes;
    keel_origin origin;
    int32_t culprit_rank;   /* -1 = none */
    int64_t culprit_tensor; /* -1 = none */
    int64_t culprit_slot;   /* -1 = none */
    int32_t loss_rank;      /* lowest voter, -1 = none */
    int32_t veto_rank;
    int32_t agreed; /* all ranks came, at one step, with one configuration */
} keeli_outcome;

/* A key whose maximum is the lowest rank, then the lowest tensor id; 0 stands for none. */
KEELI_HD uint64_t keeli_culprit_key(int32_t rank, int64_t tensor)
{
    return ~((uint64_t)(uint32_t)rank << 32 | (uint32_t)tensor);
}

KEELI_HD int32_t keeli_culprit_rank(uint64_t key)
{
    return key == 0 ? -1 : (int32_t)(~key >> 32);
}

KEELI_HD int64_t keeli_culprit_tensor(uint64_t key)
{
    return key == 0 ? -1 : (int64_t)(~key & 0xffffffffu);
}

#endif

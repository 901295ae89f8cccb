/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Lane norm: the exact sum of squares and the elements it ran over, counted copies only. */
#ifndef KEELI_LANE_NORM_H
#define KEELI_LANE_NORM_H

#include "lane.h"
#include "limbs.h"

typedef struct keeli_norm_partial {
    keeli_limbs squares;
    int64_t elements;
    int64_t zeros;
} keeli_norm_partial;

KEELI_HD void keeli_norm_pack(const keeli_norm_partial *p, const keeli_lane_context *context,
                              int64_t *sum, uint64_t *max)
{
    (void)context;
    (void)max;
    keeli_limbs carried = p->squares; /* 32 bits a word leave room for 2^31 ranks */
    keeli_limbs_carry(&carried);
    for (int i = 0; i < KEELI_LIMBS; i++) sum[i] = carried.word[i];
    sum[KEELI_LIMBS] = p->elements;
    sum[KEELI_LIMBS + 1] = p->zeros;
}

KEELI_HD void keeli_norm_finish(const int64_t *sum, const uint64_t *max,
                                const keeli_lane_context *context, keeli_outcome *outcome)
{
    (void)context;
    (void)max;
    keeli_limbs total;
    for (int i = 0; i < KEELI_LIMBS; i++) total.word[i] = sum[i];
    keeli_limbs_carry(&total);
    outcome->sum_of_squares = keeli_limbs_round(&total);
    outcome->elements = sum[KEELI_LIMBS];
    outcome->zero_count = sum[KEELI_LIMBS + 1];
}

#endif

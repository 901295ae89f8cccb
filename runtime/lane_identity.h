/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Lane identity: proof that all ranks came to the same step with the same configuration.  A word
 * and its complement travel through the maximum together: max(x) == ~max(~x) only if all x are
 * equal. */
#ifndef KEELI_LANE_IDENTITY_H
#define KEELI_LANE_IDENTITY_H

#include "lane.h"

typedef struct keeli_identity_partial {
    int64_t unused;
} keeli_identity_partial;

KEELI_HD void keeli_identity_pack(const keeli_identity_partial *p,
                                  const keeli_lane_context *context, int64_t *sum, uint64_t *max)
{
    (void)p;
    sum[0] = 1;
    max[0] = (uint64_t)context->step;
    max[1] = ~(uint64_t)context->step;
    max[2] = context->hash;
    max[3] = ~context->hash;
}

KEELI_HD void keeli_identity_finish(const int64_t *sum, const uint64_t *max,
                                    const keeli_lane_context *context, keeli_outcome *outcome)
{
    outcome->agreed = sum[0] == context->nranks && max[0] == ~max[1] && max[2] == ~max[3];
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Lane vote: ranks that want the step skipped for a reason other than their gradients. */
#ifndef KEELI_LANE_VOTE_H
#define KEELI_LANE_VOTE_H

#include "lane.h"

typedef struct keeli_vote_partial {
    int64_t loss; /* losses of this rank that were not finite */
    int64_t veto;
} keeli_vote_partial;

KEELI_HD void keeli_vote_pack(const keeli_vote_partial *p, const keeli_lane_context *context,
                              int64_t *sum, uint64_t *max)
{
    sum[0] = p->loss > 0;
    sum[1] = p->veto > 0;
    max[0] = p->loss > 0 ? keeli_culprit_key(context->rank, 0) : 0;
    max[1] = p->veto > 0 ? keeli_culprit_key(context->rank, 0) : 0;
}

KEELI_HD void keeli_vote_finish(const int64_t *sum, const uint64_t *max,
                                const keeli_lane_context *context, keeli_outcome *outcome)
{
    (void)context;
    outcome->loss_votes = sum[0];
    outcome->veto_votes = sum[1];
    outcome->loss_rank = keeli_culprit_rank(max[0]);
    outcome->veto_rank = keeli_culprit_rank(max[1]);
}

#endif

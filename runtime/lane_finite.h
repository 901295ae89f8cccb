/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Lane finite: elements that are not, counted.  A count travels as a sum, because a maximum of
 * floats drops NaN; all local copies count, owned or not, because any of them would be applied. */
#ifndef KEELI_LANE_FINITE_H
#define KEELI_LANE_FINITE_H

#include "lane.h"

/* The first bad element of this rank: lowest tensor index, then lowest element index. */
typedef struct keeli_first_bad {
    int64_t tensor; /* index in the table + 1; 0 = none */
    int64_t id;
    int64_t element;
} keeli_first_bad;

typedef struct keeli_finite_partial {
    int64_t inf_count;
    int64_t nan_count;
    keeli_first_bad seen;
    keeli_first_bad probed; /* in gradients the ranks had not summed yet */
    int64_t probed_elements;
    int64_t bad_slot; /* lowest slot whose source was not finite and may veto, + 1; 0 = none */
} keeli_finite_partial;

KEELI_HD void keeli_first_bad_note(keeli_first_bad *first, int64_t tensor, int64_t id,
                                   int64_t element)
{
    const int earlier = first->tensor == 0 || tensor + 1 < first->tensor ||
                        (tensor + 1 == first->tensor && element < first->element);
    if (!earlier) return;
    first->tensor = tensor + 1;
    first->id = id;
    first->element = element;
}

KEELI_HD void keeli_finite_pack(const keeli_finite_partial *p, const keeli_lane_context *context,
                                int64_t *sum, uint64_t *max)
{
    sum[0] = p->inf_count;
    sum[1] = p->nan_count;
    sum[2] = p->inf_count + p->nan_count > 0;
    max[0] = p->seen.tensor ? keeli_culprit_key(context->rank, p->seen.id) : 0;
    max[1] = p->probed.tensor ? keeli_culprit_key(context->rank, p->probed.id) : 0;
    max[2] = p->bad_slot ? keeli_culprit_key(context->rank, p->bad_slot - 1) : 0;
}

KEELI_HD void keeli_finite_finish(const int64_t *sum, const uint64_t *max,
                                  const keeli_lane_context *context, keeli_outcome *outcome)
{
    outcome->inf_count = sum[0];
    outcome->nan_count = sum[1];
    outcome->bad_ranks = sum[2];
    const uint64_t tensor_key = max[1] ? max[1] : max[0];
    const uint64_t local_key = max[1] ? max[1] : max[2]; /* seen before the ranks summed */
    const uint64_t key = local_key ? local_key : tensor_key;
    const int shared = !local_key && context->nranks > 1 && sum[2] == context->nranks;
    outcome->origin = !key ? KEEL_ORIGIN_NONE : shared ? KEEL_ORIGIN_SHARED : KEEL_ORIGIN_RANK;
    outcome->culprit_rank = keeli_culprit_rank(key);
    outcome->culprit_tensor = keeli_culprit_tensor(tensor_key);
    outcome->culprit_slot = keeli_culprit_tensor(max[2]);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The packet of a round, expanded from lanes.def: where each lane's words lie, and the partial
 * results of all lanes side by side. */
#ifndef KEELI_PACKET_H
#define KEELI_PACKET_H

#include "lane_finite.h"
#include "lane_identity.h"
#include "lane_norm.h"
#include "lane_vote.h"

enum {
#define X(lane, nsum, nmax) KEELI_SUM_##lane, KEELI_SUM_LAST_##lane = KEELI_SUM_##lane + (nsum)-1,
#include "lanes.def"
#undef X
    KEELI_NSUM
};

enum {
#define X(lane, nsum, nmax) KEELI_MAX_##lane, KEELI_MAX_LAST_##lane = KEELI_MAX_##lane + (nmax)-1,
#include "lanes.def"
#undef X
    KEELI_NMAX
};

typedef struct keeli_packet {
    int64_t sum[KEELI_NSUM];
    uint64_t max[KEELI_NMAX];
} keeli_packet;

/* All zero is the start of a step. */
typedef struct keeli_partial {
#define X(lane, nsum, nmax) keeli_##lane##_partial lane;
#include "lanes.def"
#undef X
} keeli_partial;

KEELI_HD void keeli_packet_pack(const keeli_partial *partial, const keeli_lane_context *context,
                                keeli_packet *packet)
{
#define X(lane, nsum, nmax)                                                      \
    keeli_##lane##_pack(&partial->lane, context, packet->sum + KEELI_SUM_##lane, \
                        packet->max + KEELI_MAX_##lane);
#include "lanes.def"
#undef X
}

KEELI_HD void keeli_packet_finish(const keeli_packet *packet, const keeli_lane_context *context,
                                  keeli_outcome *outcome)
{
#define X(lane, nsum, nmax)                                                                        \
    keeli_##lane##_finish(packet->sum + KEELI_SUM_##lane, packet->max + KEELI_MAX_##lane, context, \
                          outcome);
#include "lanes.def"
#undef X
}

#endif

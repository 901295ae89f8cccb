/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* One rank of a run. */
#ifndef BENCH_TRAIN_RANK_H
#define BENCH_TRAIN_RANK_H

#include <pthread.h>

#include "train.h"

typedef struct train_rank {
    const train_options *options;
    const keel_recipe *recipe;
    double max_norm;
    keel_comm *comm;
    train_progress progress; /* of rank 0, else NULL */
    train_point *points;     /* of rank 0, else NULL */

    /* Filled in by the rank. */
    int exit_code;
    keel_status status;
    char error[512];
    int64_t first_step, count;
    int64_t applied, skipped;
    float loss_scale;
    uint32_t params_crc;
    double accuracy, loss; /* rank 0 */
    keel_counters counters;
    int32_t slot_count;
    train_slot *slots; /* of rank 0, else NULL */
    pthread_t thread;
} train_rank;

/* train_rank_main: the body of a rank's thread; argument and result are its train_rank. */
void *train_rank_main(void *rank);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Ranks as threads of the test.  An assertion that fails in one of them ends the whole program, and
 * cmocka keeps its place to itself: CMOCKA_TEST_ABORT=1 and a debugger show it. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include "keel/comm.h"

typedef void (*rank_fn)(int32_t rank, keel_comm *comm, void *context);

enum { RANKS_MAX = 16 };

/* Run fn on each of nranks threads with a communicator of its own, and wait for all. */
void ranks_run(int32_t nranks, rank_fn fn, void *context);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A thread per rank.  The threads assert nothing, since cmocka can fail only the thread it runs on:
 * what one finds wrong it writes down, and the test fails when all have come back. */
#ifndef TESTS_CREW_H
#define TESTS_CREW_H

#include "keel/ext.h"

typedef struct hand {
    int32_t rank;
    int32_t nranks;
    keel_comm *comm;
    void *job;
    keel_status status; /* for the test to read; the crew does not use it */
    char sentence[256];
    char complaint[256];
} hand;

typedef void (*hand_fn)(hand *me);

/* Run fn on a thread per communicator and wait for all; fails the test at any complaint.  hands has
 * nranks entries and keeps what they wrote. */
void crew_run(keel_comm **comms, int32_t nranks, hand_fn fn, void *job, hand *hands);

/* The first complaint stands. */
void complain(hand *me, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Keep the status of a call, with its sentence. */
void note(hand *me, keel_status status);

#endif

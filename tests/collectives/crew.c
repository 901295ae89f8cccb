/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A thread per rank. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "crew.h"

typedef struct task {
    hand *hand;
    hand_fn fn;
    pthread_t thread;
} task;

static void *work(void *arg)
{
    const task *t = arg;
    t->fn(t->hand);
    return NULL;
}

void crew_run(keel_comm **comms, int32_t nranks, hand_fn fn, void *job, hand *hands)
{
    task *tasks = calloc((size_t)nranks, sizeof *tasks);
    assert_non_null(tasks);
    for (int32_t r = 0; r < nranks; r++) {
        hands[r] = (hand){.rank = r, .nranks = nranks, .comm = comms[r], .job = job};
        tasks[r] = (task){.hand = &hands[r], .fn = fn};
        assert_int_equal(pthread_create(&tasks[r].thread, NULL, work, &tasks[r]), 0);
    }
    for (int32_t r = 0; r < nranks; r++) assert_int_equal(pthread_join(tasks[r].thread, NULL), 0);
    free(tasks);
    for (int32_t r = 0; r < nranks; r++)
        if (hands[r].complaint[0]) fail_msg("rank %d/%d: %s", r, nranks, hands[r].complaint);
}

void complain(hand *me, const char *format, ...)
{
    if (me->complaint[0]) return;
    va_list args;
    va_start(args, format);
    vsnprintf(me->complaint, sizeof me->complaint, format, args);
    va_end(args);
}

void note(hand *me, keel_status status)
{
    me->status = status;
    snprintf(me->sentence, sizeof me->sentence, "%s", status == KEEL_OK ? "" : keel_last_error());
}

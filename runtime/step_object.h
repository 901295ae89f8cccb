/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The step object, shared by the files that implement its calls: step.c (order and data flow),
 * step_create.c, verify.c, state.c. */
#ifndef KEELI_STEP_OBJECT_H
#define KEELI_STEP_OBJECT_H

#include "internal.h"
#include "step_mem.h"

typedef enum keeli_phase {
    KEELI_OPEN = 0,   /* between steps, or taking gradients in */
    KEELI_DECIDED = 1 /* update, scale or abandon is expected */
} keeli_phase;

struct keel_step {
    keel_config cfg;
    const keel_device *device;
    keel_comm *comm;
    keeli_step_mem mem;
    void *owned_workspace; /* NULL when the caller lent it */

    /* What the caller set, on the host, and whether the device has it yet. */
    keeli_inputs inputs;
    keel_group *groups;
    keeli_row *rows;
    keel_shard *shards;
    keeli_slot_row *slots;
    float *rings; /* room for two of the longest, where keel_step_set_slot() repacks one */
    bool inputs_stale;
    int64_t rows_stale_from, rows_stale_to;

    keeli_phase phase;
    bool touched;     /* anything of the step in hand has been taken in */
    uint8_t *visited; /* per row: accumulated in this step */
    int64_t visited_count;
    int64_t decided; /* number of the last step */
    int64_t loaded;  /* its number when a state was loaded: reports begin after it */
    bool has_optimizer;

    bool alerted_skip, alerted_clip;
    keel_counters counters;
    char **names;
};

/* Fails with ORDER when the step is past decide, or when it has already been begun. */
keel_status keeli_step_want_open(const keel_step *step, const char *fn);
keel_status keeli_step_want_between(const keel_step *step, const char *fn);

/* Note that a step is under way; ends a decided one whose optimizer is the caller's own. */
void keeli_step_begin(keel_step *step);

/* One round over the step's communicator, within its deadline. */
keel_status keeli_step_round(keel_step *step, int64_t *sum, int64_t nsum, uint64_t *max,
                             int64_t nmax, keel_stream stream);

keel_status keeli_group_memory_check(const char *fn, const keel_step *step, int32_t index,
                                     const keel_group *group);

#endif

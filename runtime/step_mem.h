/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The memory of a step: what its operations read and write, whatever the device.
 *
 *   host (step.c)                    workspace, device memory
 *   table and inputs as set   --->   rows, inputs, groups           changed between steps
 *                                    partial -> packet              one step's way to the round
 *                                    decision, scalars              what update obeys
 *                                    state, group_state + saved     what outlives the step
 *                                    ring                           reports
 *
 * The struct itself holds pointers and frozen facts only, so a device may copy it by value. */
#ifndef KEELI_STEP_MEM_H
#define KEELI_STEP_MEM_H

#include "keel/step.h"
#include "optim.h"
#include "packet.h"
#include "rule_delayed.h"

enum {
    KEELI_RATE_WORDS = 1024 / 64 /* largest rate_window */
};

/* One parameter as a kernel needs it. */
typedef struct keeli_row {
    keel_tensor grad;
    keel_tensor copy;
    float *master;
    float *moment1;
    float *moment2;
    int64_t id;
    float *copy_scale_inv;
    void *copy_transposed;
    int64_t copy_columns;
    int32_t copy_slot; /* -1 = none */
    int32_t group;
    int32_t counts; /* 1: this copy counts in norm and zeros */
    int32_t reserved;
} keeli_row;

/* A slot as casts and decide need it. */
typedef struct keeli_slot_row {
    keel_slot slot; /* name NULL: the host has it */
    float fmt_max;
    int32_t capacity;       /* of its ring: the history at create */
    int64_t history_offset; /* of its ring in histories */
} keeli_slot_row;

/* Moves with every update; the rings lie apart. */
typedef struct keeli_slot_live {
    keel_slot_state state;
    float scale; /* of the next cast; gradient slots: state.scale over the loss scale */
    float scale_inv;
} keeli_slot_live;

/* What decide overwrote: the state, the amax of the copies, and the one entry of the ring. */
typedef struct keeli_slot_saved {
    keeli_slot_live live;
    uint64_t word;
    float entry;
    int32_t reserved;
} keeli_slot_saved;

/* Of this rank, since create. */
typedef struct keeli_slot_counts {
    int64_t casts;
    int64_t saturated;
    int64_t flushed;
    int64_t nonfinite;
} keeli_slot_counts;

/* Frozen at create; state load may replace loss_scale. */
typedef struct keeli_settings {
    keel_loss_scale_config loss_scale;
    keel_norm_mode norm_mode;
    int32_t rank;
    int32_t nranks;
    int32_t rate_window;
    int32_t report_capacity;
    int32_t group_count;
    int32_t slot_count;
    int32_t reserved;
    int64_t row_count;
    uint64_t hash; /* of what cannot change after create */
} keeli_settings;

/* Set by the caller between steps. */
typedef struct keeli_inputs {
    float max_norm;
    float skip_norm;
    double divisor;
    const double *divisor_dev;
    uint64_t tag;
} keeli_inputs;

/* The last steps as bits, newest at position (step - 1) % window. */
typedef struct keeli_rate {
    uint64_t bits[KEELI_RATE_WORDS];
    int64_t count; /* of ones */
} keeli_rate;

/* What a checkpoint holds, together with the groups' states. */
typedef struct keeli_state {
    int64_t step; /* decided so far */
    int64_t applied;
    int64_t skipped;
    keel_loss_scale_state loss_scale;
    keeli_rate skip_rate;
    keeli_rate clip_rate;
} keeli_state;

typedef struct keeli_step_mem {
    keeli_settings settings;
    keeli_row *rows;
    keeli_inputs *inputs;
    keel_group *groups;
    keeli_partial *partial;
    keeli_packet *packet;
    keel_decision *decision;
    keeli_group_scalars *scalars; /* per group, as the inputs of the last decide had it */
    keeli_state *state;
    keeli_state *saved; /* before the last decide, for keel_step_abandon() */
    keeli_group_state *group_state;
    keeli_group_state *group_saved;
    keel_report *ring;

    keeli_slot_row *slots;
    keeli_slot_live *slot_live;
    keeli_slot_saved *slot_saved;
    keeli_slot_counts *slot_counts;
    uint64_t *slot_words;        /* this rank's part of the round: 0 = did not run */
    uint64_t *slot_packet_words; /* in the packet, behind its other maxima */
    float *histories;
    int64_t history_total; /* entries of all rings; set before placing */
} keeli_step_mem;

/* Point mem at its parts of a block of memory, by settings; base NULL only measures. */
size_t keeli_step_mem_place(keeli_step_mem *mem, void *base);

#endif

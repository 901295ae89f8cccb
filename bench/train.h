/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel train in pieces: what a run is asked, what it yields.
 *
 *   cmd_train.c       which runs, and where results go
 *   train_request.c   the options
 *   train_run.c       one run: a thread per rank, their results compared
 *   train_rank.c      one rank: shards, exchange, step
 *   task_*.c          what is trained; autocast.c takes its products through the recipe
 *   train_print.c     table and JSON; train_plot.c the picture
 *   train_files.c     report lines and checkpoints */
#ifndef BENCH_TRAIN_H
#define BENCH_TRAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "keel/keel.h"
#include "task.h"

enum { TRAIN_INJECTIONS = 16, TRAIN_CLIPS = 4, TRAIN_SLOTS = 3 * GPT_PLACES_MAX };

typedef enum train_fault { TRAIN_SPIKE, TRAIN_INF, TRAIN_NAN } train_fault;

/* One gradient gone wrong: on the first shard of a rank, at a step counted from 1. */
typedef struct train_injection {
    train_fault fault;
    int64_t step;
    int32_t rank;
} train_injection;

typedef struct train_injections {
    train_injection at[TRAIN_INJECTIONS];
    int32_t count;
} train_injections;

typedef struct train_options {
    const task *task;
    const char *text; /* of the gpt, or NULL */
    int64_t ranks;
    int64_t steps;
    int64_t batch;
    int64_t seed;
    int64_t interval;
    double lr;
    double init_scale;
    int optimizer; /* 0 sgd with momentum, 1 adamw */
    bool probe;
    train_injections injections;
    const char *load; /* checkpoint to start from, or NULL */
    FILE *save;       /* takes a checkpoint at the end, or NULL */
} train_options;

/* One step as rank 0 saw it. */
typedef struct train_point {
    float loss; /* of the batch, mean of the shards' */
    keel_report report;
    char culprit[32]; /* name of the culprit tensor, or "" */
} train_point;

/* A slot at the end of a run, as rank 0 has it. */
typedef struct train_slot {
    char name[32];
    keel_slot_report report;
} train_slot;

/* What a run yields; points are the caller's to free through train_result_free(). */
typedef struct train_result {
    const keel_recipe *recipe;
    double max_norm;
    int32_t slot_count;
    train_slot slots[TRAIN_SLOTS];
    double tokens_per_second; /* images, with the digits */
    int64_t first_step;       /* number of the first point, 1 unless resumed */
    int64_t count;            /* points */
    train_point *points;
    int64_t applied;
    int64_t skipped;
    float loss_scale;
    double accuracy; /* on the held-out rows */
    double loss;     /* there */
    double norm_median;
    double clip_rate; /* of the applied steps */
    double last_norm;
    uint32_t params_crc;
    keel_counters counters; /* of rank 0 */
} train_result;

typedef void (*train_progress)(int64_t done, int64_t total);

/* train_run: 0, or an exit code after saying why. */
int train_run(const train_options *o, const keel_recipe *recipe, double max_norm,
              train_progress progress, train_result *out);
void train_result_free(train_result *r);

/* train_crc32: of a block of memory (IEEE 802.3). */
uint32_t train_crc32(const void *bytes, size_t n);

/* train_inject_parse: "inf@50:2,spike@100" into an injection list; NULL, or what was wanted. */
const char *train_inject_parse(const char *text, void *injections);

/* A rank's memory that outlives the process, saved and loaded as a whole. */
typedef struct train_checkpoint {
    float *params;
    float *moment1;
    float *moment2;
    int64_t param_count;
    keel_step *rules;
    const keel_recipe *recipe;
    int64_t step; /* the last one done */
} train_checkpoint;

/* train_load: 0, or an exit code (nothing loaded); only one rank says why. */
int train_load(const char *path, train_checkpoint *c, bool speaks);

/* train_save: 0, or an exit code after saying why; the file is the caller's to commit. */
int train_save(FILE *file, const train_checkpoint *c);

/* train_report_line: one step as a line of JSON. */
void train_report_line(FILE *file, const train_result *r, const train_options *o, int64_t index);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The command line of keel train, and what is made of the runs it asks for. */
#ifndef BENCH_TRAIN_REQUEST_H
#define BENCH_TRAIN_REQUEST_H

#include "cli.h"
#include "train.h"

enum { TRAIN_RECIPES = 16, TRAIN_RUNS = TRAIN_RECIPES * TRAIN_CLIPS };

/* What the command line asks for. */
typedef struct train_request {
    train_options train;
    int model; /* index into tasks */
    keel_recipe recipes[TRAIN_RECIPES];
    int recipe_count;
    double max_norms[TRAIN_CLIPS];
    int max_norm_count;
    const char *report;
    const char *plot;
    const char *save;
    bool slots, curve, blas;
    bool json;
} train_request;

/* train_request_parse: false: stop with *exit_code.  What no option spoke of has its default. */
bool train_request_parse(int argc, char **argv, train_request *r, int *exit_code);

/* train_request_check: CLI_OK, or an exit code after saying what no table of options can. */
int train_request_check(const train_request *r);

/* The runs as text, as JSON, and as a picture (0 or an exit code). */
void train_print_table(const train_request *r, const train_result *results, int count);
void train_print_json(const train_request *r, const train_result *results, int count);
int train_draw(const train_request *r, const train_result *results, int count, FILE *file);

#endif

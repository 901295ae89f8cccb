/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel train: runs of the recipes and thresholds asked for, and where their results go. */
#include "commands.h"

#include <math.h>
#include <string.h>

#include "train_request.h"
#ifdef KEEL_BENCH_BLAS
#    include "keel/blas.h"
#endif

static const char *progress_label;

static void show_progress(int64_t done, int64_t total)
{
    cli_progress(progress_label, done, total);
}

static int run_all(const train_request *r, train_result *results, int *count)
{
    for (int i = 0; i < r->recipe_count; i++) {
        for (int c = 0; c < r->max_norm_count; c++) {
            progress_label = r->recipes[i].name;
            const int code = train_run(&r->train, &r->recipes[i], r->max_norms[c], show_progress,
                                       &results[(*count)++]);
            if (code) return code;
        }
    }
    return CLI_OK;
}

static int write_report(cli_output *out, const train_request *r, const train_result *results,
                        int count)
{
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < results[i].count; k++)
            train_report_line(out->file, &results[i], &r->train, k);
    return cli_output_commit(out);
}

/* Files are opened before the training, so that a path that cannot be written costs no time. */
static int run_and_write(train_request *r, train_result *results, int *count)
{
    cli_output report = {0}, picture = {0}, checkpoint = {0};
    int code = cli_output_open(&report, r->report);
    if (!code) code = cli_output_open(&picture, r->plot);
    if (!code) code = cli_output_open(&checkpoint, r->save);
    r->train.save = checkpoint.file;
    if (!code) code = run_all(r, results, count);
    if (!code && r->report) code = write_report(&report, r, results, *count);
    if (!code && r->plot) code = train_draw(r, results, *count, picture.file);
    if (!code) code = cli_output_commit(&picture);
    if (!code) code = cli_output_commit(&checkpoint);
    cli_output_discard(&report);
    cli_output_discard(&picture);
    cli_output_discard(&checkpoint);
    return code;
}

static int use_blas(void)
{
#ifdef KEEL_BENCH_BLAS
    keel_blas_use();
    return CLI_OK;
#else
    return cli_fail(CLI_ENVIRONMENT, "--blas: this build found no BLAS");
#endif
}

int cmd_train(int argc, char **argv)
{
    static train_request r; /* recipes make it large */
    static train_result results[TRAIN_RUNS];
    r = (train_request){.train = {.ranks = 1,
                                  .seed = 1,
                                  .interval = 100,
                                  .optimizer = -1,
                                  .lr = NAN,
                                  .init_scale = 65536,
                                  .probe = true}};
    int code = CLI_USAGE;
    if (!train_request_parse(argc, argv, &r, &code)) return code;
    code = train_request_check(&r);
    if (!code && r.blas) code = use_blas();
    if (code) return code;

    int count = 0;
    code = run_and_write(&r, results, &count);
    if (!code && r.json) train_print_json(&r, results, count);
    if (!code && !r.json) train_print_table(&r, results, count);
    for (int i = 0; i < count; i++) train_result_free(&results[i]);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel train: every recipe learns, the number of ranks does not matter, and each fault that can be
 * ordered ends as it should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"
#include "strict_json.h"

enum { RECIPES = 6 }; /* built in */

/* ---- what a run says ---- */

static outcome train_json(const char *options)
{
    char arguments[512];
    snprintf(arguments, sizeof arguments, "train --json %s", options);
    outcome o = run_keel(arguments);
    if (o.code != 0) fail_msg("%s: exit %d\n%s", arguments, o.code, o.err);
    const char *fault = json_fault(o.out);
    if (fault) fail_msg("%s: not JSON at: %.40s", arguments, fault);
    return o;
}

static double number_of(const outcome *o, int run, const char *field)
{
    char path[64];
    snprintf(path, sizeof path, "runs[%d].%s", run, field);
    const double value = json_number_at(o->out, path);
    if (isnan(value)) fail_msg("%s is no number in %s", path, o->out);
    return value;
}

/* The spelling of a short value, quotes included. */
static void text_of(const outcome *o, int run, const char *field, char out[32])
{
    char path[64];
    snprintf(path, sizeof path, "runs[%d].%s", run, field);
    const char *at = json_find(o->out, path);
    if (!at) fail_msg("no %s in %s", path, o->out);
    snprintf(out, 32, "%.*s", (int)strcspn(at, ",}"), at);
}

static void expect_same(const outcome *a, const outcome *b, int run, const char *field)
{
    char of_a[32], of_b[32];
    text_of(a, run, field, of_a);
    text_of(b, run, field, of_b);
    if (strcmp(of_a, of_b) != 0) fail_msg("run %d, %s: %s and %s", run, field, of_a, of_b);
}

/* ---- files of a test ---- */

static char folder[] = "/tmp/keel-train-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char line[64];
    snprintf(line, sizeof line, "rm -r %s", folder);
    outcome o = run_shell(line);
    const int code = o.code;
    outcome_free(&o);
    return code;
}

static int file_count(void)
{
    char line[64];
    snprintf(line, sizeof line, "ls -A %s | wc -l", folder);
    outcome o = run_shell(line);
    const int count = atoi(o.out);
    outcome_free(&o);
    return count;
}

/* The only line of the report that holds a text. */
static outcome report_line(const char *text)
{
    char line[128];
    snprintf(line, sizeof line, "grep '%s' %s/report", text, folder);
    outcome o = run_shell(line);
    if (o.code != 0 || strchr(o.out, '\n') != strrchr(o.out, '\n')) fail_msg("report: %s", o.out);
    return o;
}

/* ---- learning ---- */

static void test_train__every_recipe_learns(void **state)
{
    (void)state;
    outcome o = train_json("--recipe all --ranks 4 --seed 1");
    assert_int_equal(json_count(o.out, "runs"), RECIPES);
    assert_true(json_is(o.out, "runs[0].recipe", "\"f32\""));
    for (int run = 0; run < RECIPES; run++) {
        const double accuracy = number_of(&o, run, "accuracy");
        assert_true(accuracy >= 0.95);
        assert_true(fabs(accuracy - number_of(&o, 0, "accuracy")) <= 0.01);
        assert_true(number_of(&o, run, "applied") + number_of(&o, run, "skipped") ==
                    number_of(&o, run, "steps"));
    }
    outcome_free(&o);
}

/* The optimum of one rank is the optimum of eight, bit for bit: norm and parameters. */
static void test_train__ranks_change_no_bit(void **state)
{
    (void)state;
    outcome one = train_json("--steps 24 --ranks 1");
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        char options[64];
        snprintf(options, sizeof options, "--steps 24 --ranks %d", ranks);
        outcome many = train_json(options);
        for (int run = 0; run < RECIPES; run++) {
            expect_same(&one, &many, run, "norm_bits");
            expect_same(&one, &many, run, "params_crc");
        }
        outcome_free(&many);
    }
    outcome other = train_json("--steps 24 --seed 2");
    char crc[32], of_other[32];
    text_of(&one, 0, "params_crc", crc);
    text_of(&other, 0, "params_crc", of_other);
    assert_string_not_equal(crc, of_other);
    outcome_free(&other);
    outcome_free(&one);
}

/* ---- faults ---- */

/* One infinity on rank 2: all four ranks skip, the scale halves, and the report names rank 2. */
static void test_train__an_infinity_costs_one_step(void **state)
{
    (void)state;
    char options[128];
    snprintf(options, sizeof options, "--fp16 --ranks 4 --inject inf@50:2 --report %s/report",
             folder);
    outcome clean = train_json("--fp16 --ranks 4 --steps 60");
    outcome hit = train_json(options);
    assert_true(json_is(clean.out, "runs[0].skips[0].step", "1"));
    assert_true(json_is(hit.out, "runs[0].skips[0].step", "1"));
    assert_true(json_is(hit.out, "runs[0].skips[1].step", "50"));
    assert_true(json_is(hit.out, "runs[0].skips[1].rank", "2"));
    assert_true(number_of(&clean, 0, "skipped") == 1);
    assert_true(number_of(&hit, 0, "accuracy") >= 0.95);
    outcome_free(&hit);
    outcome_free(&clean);

    /* The-OpenROAD-Project/OpenROAD#2715: a norm that is not finite is null with a text. */
    outcome line = report_line("\"step\":50,");
    assert_null(json_fault(line.out));
    assert_true(json_is(line.out, "report.applied", "false"));
    assert_true(json_is(line.out, "report.cause", "\"inf\""));
    assert_true(json_is(line.out, "report.norm", "null"));
    assert_true(json_is(line.out, "report.norm_text", "\"inf\""));
    assert_true(json_is(line.out, "report.origin", "\"rank\""));
    assert_true(json_is(line.out, "report.culprit_rank", "2"));
    assert_true(json_is(line.out, "report.bad_ranks", "4"));
    const double scale = json_number_at(line.out, "report.loss_scale");
    assert_true(json_number_at(line.out, "report.loss_scale_next") == scale / 2);
    outcome_free(&line);
}

/* Without the probe the sum has spread it before anyone looked, and the report says so. */
static void test_train__without_probe_nobody_is_accused(void **state)
{
    (void)state;
    outcome o = train_json("--bf16 --ranks 4 --steps 5 --inject nan@3:2 --no-probe");
    assert_true(json_is(o.out, "runs[0].skips[0].cause", "\"nan\""));
    assert_true(json_is(o.out, "runs[0].skips[0].shared", "true"));
    outcome_free(&o);
    o = train_json("--bf16 --ranks 4 --steps 5 --inject nan@3:2");
    assert_true(json_is(o.out, "runs[0].skips[0].shared", "false"));
    assert_true(json_is(o.out, "runs[0].skips[0].rank", "2"));
    outcome_free(&o);
}

static void test_train__a_clip_contains_the_spike(void **state)
{
    (void)state;
    outcome o = train_json("--recipe f32,bf16 --inject spike@100 --max-norm 1,inf --ranks 2");
    assert_int_equal(json_count(o.out, "runs"), 4);
    for (int run = 0; run < 4; run += 2) {
        assert_true(number_of(&o, run, "accuracy") >= 0.95);
        assert_true(number_of(&o, run + 1, "accuracy") < 0.8);
        assert_true(
            json_is(o.out, run ? "runs[3].max_norm_text" : "runs[1].max_norm_text", "\"inf\""));
    }
    outcome_free(&o);
}

/* ---- checkpoints ---- */

/* huggingface/accelerate#4289: a resumed run goes on in the middle of a growth interval.  Another
 * number of ranks takes it up. */
static void expect_resumes(const char *what)
{
    char options[256];
    snprintf(options, sizeof options, "%s --interval 10 --steps 35 --ranks 2", what);
    outcome whole = train_json(options);
    snprintf(options, sizeof options, "%s --interval 10 --steps 23 --ranks 4 --save %s/half", what,
             folder);
    outcome half = train_json(options);
    snprintf(options, sizeof options, "%s --interval 10 --steps 35 --ranks 8 --load %s/half", what,
             folder);
    outcome resumed = train_json(options);
    expect_same(&whole, &resumed, 0, "norm_bits");
    expect_same(&whole, &resumed, 0, "params_crc");
    expect_same(&whole, &resumed, 0, "loss_scale");
    expect_same(&whole, &resumed, 0, "applied");
    outcome_free(&resumed);
    outcome_free(&half);
    outcome_free(&whole);
}

/* "Resume from a state blob at any step gives bit-identical continuation, for every recipe"; a skip
 * just before the save is where copies and their slots could part. */
static void test_train__resume_changes_no_bit(void **state)
{
    (void)state;
    static const char *const runs[] = {
        "--recipe f32",
        "--bf16",
        "--fp16",
        "--recipe fp8-delayed",
        "--recipe fp8-current",
        "--recipe mxfp8",
        "--recipe fp8-delayed --inject inf@23",
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) expect_resumes(runs[i]);
}

static void expect_refused(const char *change)
{
    char line[512];
    snprintf(line, sizeof line,
             "\"$KEEL\" train --bf16 --steps 2 --save %s/c >/dev/null && cd %s && %s && "
             "\"$KEEL\" train --bf16 --steps 4 --load d",
             folder, folder, change);
    outcome o = run_shell(line);
    if (o.code != 3 || *o.out || !*o.err) fail_msg("%s: exit %d\n%s", change, o.code, o.err);
    outcome_free(&o);
}

/* rwth-i6/returnn#1444: a checkpoint that is not whole is refused, not half applied. */
static void test_train__damaged_checkpoints_are_refused(void **state)
{
    (void)state;
    expect_refused("head -c 1000 c >d");
    expect_refused("head -c 10 c >d");
    expect_refused(": >d");
    expect_refused("{ cat c; echo; } >d");
    expect_refused("{ head -c 50000 c; echo; tail -c +50002 c; } >d");
    expect_refused("rm -f d");
}

/* ---- files and mistakes ---- */

static void test_train__pictures_are_whole(void **state)
{
    (void)state;
    char arguments[128];
    snprintf(arguments, sizeof arguments, "train --steps 20 --plot %s/p.svg", folder);
    outcome o = run_keel(arguments);
    assert_int_equal(o.code, 0);
    outcome_free(&o);
    snprintf(arguments, sizeof arguments, "cat %s/p.svg", folder);
    o = run_shell(arguments);
    assert_int_equal(strncmp(o.out, "<svg ", 5), 0);
    assert_non_null(strstr(o.out, "</svg>\n"));
    assert_non_null(strstr(o.out, ">f16<"));
    outcome_free(&o);
}

/* Said before any training, and nothing is left behind. */
static void test_train__paths_that_cannot_be_written(void **state)
{
    (void)state;
    const int before = file_count();
    static const char *const wrong[] = {"--report", "--plot", "--save"};
    for (int i = 0; i < 3; i++) {
        char arguments[160];
        snprintf(arguments, sizeof arguments,
                 "train --bf16 --steps 1000000 --plot %s/q.svg --report %s/q %s %s/none/x", folder,
                 folder, wrong[i], folder);
        outcome o = run_keel(arguments);
        if (o.code != 3) fail_msg("%s: exit %d\n%s", arguments, o.code, o.err);
        assert_non_null(strstr(o.err, "none/x"));
        outcome_free(&o);
    }
    assert_int_equal(file_count(), before);
}

/* One path for two outputs would lose one of them; a device takes both. */
static void test_train__an_output_is_not_lost_to_another(void **state)
{
    (void)state;
    const int before = file_count();
    char arguments[160];
    snprintf(arguments, sizeof arguments, "train --bf16 --steps 1000000 --report %s/t --save %s/t",
             folder, folder);
    outcome o = run_keel(arguments);
    if (o.code != 2) fail_msg("%s: exit %d\n%s", arguments, o.code, o.err);
    assert_non_null(strstr(o.err, "twice"));
    outcome_free(&o);
    assert_int_equal(file_count(), before);
    o = run_keel("train --bf16 --steps 1 --report /dev/null --save /dev/null");
    assert_int_equal(o.code, 0);
    outcome_free(&o);
}

/* "Output files are whole or absent", also where the file may not grow that long. */
static void test_train__a_file_at_its_limit_is_an_error(void **state)
{
    (void)state;
    const int before = file_count();
    char line[160];
    snprintf(line, sizeof line, "ulimit -f 1; \"$KEEL\" train --bf16 --steps 9 --report %s/limit",
             folder);
    outcome o = run_shell(line);
    if (o.code != 3) fail_msg("%s: exit %d\n%s", line, o.code, o.err);
    outcome_free(&o);
    assert_int_equal(file_count(), before);
}

static void expect_usage_error(const char *options, const char *sentence)
{
    char arguments[128];
    snprintf(arguments, sizeof arguments, "train --steps 10 %s", options);
    outcome o = run_keel(arguments);
    if (o.code != 2 || *o.out || !strstr(o.err, sentence)) {
        fail_msg("%s: exit %d\n%s", arguments, o.code, o.err);
    }
    outcome_free(&o);
}

static void test_train__mistakes_are_usage_errors(void **state)
{
    (void)state;
    expect_usage_error("--ranks 0", "--ranks");
    expect_usage_error("--ranks 3", "1, 2, 4 or 8");
    expect_usage_error("--ranks 1000000", "--ranks");
    expect_usage_error("--steps 0", "--steps=0");
    expect_usage_error("--steps=-5", "--steps=-5");
    expect_usage_error("--recipe fp8", "e4m3 or e5m2");
    expect_usage_error("--recipe e4m3", "f32, bf16, f16");
    expect_usage_error("--max-norm=-1", "--max-norm=-1");
    expect_usage_error("--max-grad-norm nan", "--max-norm=nan");
    expect_usage_error("--inject inf@11", "11");
    expect_usage_error("--inject inf@5:4 --ranks 4", "rank 4");
    expect_usage_error("--inject inf@0", "inf@0");
    expect_usage_error("--inject flip@3", "spike, inf or nan");
    expect_usage_error("--batch 100", "--batch");
}

/* Whole runs are for optimised builds: they stand behind an argument. */
int main(int argc, char **argv)
{
    const struct CMUnitTest whole[] = {
        cmocka_unit_test(test_train__every_recipe_learns),
        cmocka_unit_test(test_train__an_infinity_costs_one_step),
        cmocka_unit_test(test_train__a_clip_contains_the_spike),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train__ranks_change_no_bit),
        cmocka_unit_test(test_train__without_probe_nobody_is_accused),
        cmocka_unit_test(test_train__resume_changes_no_bit),
        cmocka_unit_test(test_train__damaged_checkpoints_are_refused),
        cmocka_unit_test(test_train__pictures_are_whole),
        cmocka_unit_test(test_train__paths_that_cannot_be_written),
        cmocka_unit_test(test_train__an_output_is_not_lost_to_another),
        cmocka_unit_test(test_train__a_file_at_its_limit_is_an_error),
        cmocka_unit_test(test_train__mistakes_are_usage_errors),
    };
    if (argc > 1 && strcmp(argv[1], "whole") == 0)
        return cmocka_run_group_tests(whole, make_folder, remove_folder);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

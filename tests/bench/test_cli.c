/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The option parser and the output files, called directly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

typedef struct settings {
    bool probe, json;
    int64_t steps;
    double max_norm;
    const char *path;
    int mode;
    int events;
} settings;

static const char *const modes[] = {"exact", "block", NULL};

static const char *count_events(const char *text, void *dest)
{
    if (strchr(text, '@') == NULL) return "want KIND@STEP";
    ++*(int *)dest;
    return NULL;
}

/* Parses up to seven arguments. */
static bool parse(settings *s, const char *operands, cli_args *args, char **list)
{
    const cli_option rows[] = {
        {.name = "probe", .kind = CLI_FLAG, .dest = &s->probe, .help = "p"},
        {.name = "steps",
         .alias = "max-steps",
         .letter = 'n',
         .kind = CLI_INT,
         .dest = &s->steps,
         .lo = 1,
         .hi = 100,
         .help = "s"},
        {.name = "max-norm", .kind = CLI_REAL, .dest = &s->max_norm, .hi = INFINITY, .help = "m"},
        {.name = "report", .kind = CLI_TEXT, .dest = &s->path, .help = "r"},
        {.name = "mode", .kind = CLI_CHOICE, .dest = &s->mode, .choices = modes, .help = "o"},
        {.name = "block", .kind = CLI_SHORTHAND, .means = "mode=block"},
        {.name = "inject",
         .kind = CLI_PARSED,
         .dest = &s->events,
         .parse = count_events,
         .help = "i"},
        CLI_JSON(&s->json),
        {.name = NULL},
    };
    const cli_usage usage = {.operands = operands, .options = rows};
    int argc = 0;
    while (list[argc]) argc++;
    *s = (settings){.probe = true, .steps = 7, .max_norm = 1};
    cli_command_name("test", "");
    return cli_parse(&usage, argc, list, args);
}

#define PARSE(s, operands, args, ...) \
    parse(s, operands, args, (char *[]){(char[]){"test"}, __VA_ARGS__, NULL})

static void test_cli__takes_every_form(void **state)
{
    (void)state;
    settings s;
    cli_args args;
    assert_true(PARSE(&s, NULL, &args, "--steps", "5", "--max-norm=inf", "--json"));
    assert_int_equal(s.steps, 5);
    assert_true(isinf(s.max_norm));
    assert_true(s.json);
    assert_true(PARSE(&s, NULL, &args, "--max-steps=6", "--no-probe", "--block"));
    assert_int_equal(s.steps, 6);
    assert_false(s.probe);
    assert_int_equal(s.mode, 1);
    assert_true(
        PARSE(&s, NULL, &args, "-n", "8", "--max-norm", "2^-3", "--inject=a@1", "--inject", "b@2"));
    assert_int_equal(s.steps, 8);
    assert_true(s.max_norm == 0.125);
    assert_int_equal(s.events, 2);
    assert_true(PARSE(&s, NULL, &args, "-n9", "--steps", "10"));
    assert_int_equal(s.steps, 10);
}

static void test_cli__operands_may_be_negative_numbers(void **state)
{
    (void)state;
    settings s;
    cli_args args;
    assert_true(PARSE(&s, "[V]", &args, "-1.5", "--steps", "3", "-inf", "--", "--json"));
    assert_int_equal(args.count, 3);
    assert_string_equal(args.operands[0], "-1.5");
    assert_string_equal(args.operands[1], "-inf");
    assert_string_equal(args.operands[2], "--json");
    assert_false(s.json);
}

static void expect_refused(char *first, char *second)
{
    settings s;
    cli_args args;
    assert_false(PARSE(&s, NULL, &args, first, second));
    assert_int_equal(args.exit_code, CLI_USAGE);
    assert_int_equal(s.steps, 7);
    assert_true(s.max_norm == 1);
}

static void test_cli__refuses_what_is_not_wholly_a_value(void **state)
{
    (void)state;
    static char *const rows[][2] = {
        {"--steps", "5x"},
        {"--steps", ""},
        {"--steps", "0"},
        {"--steps", "101"},
        {"--steps", " 5"},
        {"--steps", "1e1"},
        {"--steps", "9223372036854775808"},
        {"--max-norm", "-1"},
        {"--max-norm", "nan"},
        {"--max-norm", "1e999"},
        {"--max-norm", "1,5"},
        {"--max-norm", "2^"},
        {"--mode", "exac"},
        {"--inject", "spike"},
        {"--report", ""},
        {"--steps", NULL},
        {"--report", "--json"},
        {"--json=1", NULL},
        {"--stepps", "5"},
        {"-x", NULL},
        {"operand", NULL},
        {"--no-steps", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_refused(rows[i][0], rows[i][1]);
}

static void test_cli__suggests_the_nearest_name(void **state)
{
    (void)state;
    const char *const names[] = {"max-norm", "init-scale", "steps", "seed"};
    assert_string_equal(cli_nearest("max-nrom", names, 4), "max-norm");
    assert_string_equal(cli_nearest("maxnorm=3", names, 4), "max-norm");
    assert_string_equal(cli_nearest("step", names, 4), "steps");
    assert_string_equal(cli_nearest("init", names, 4), "init-scale");
    assert_null(cli_nearest("verbose", names, 4));
    assert_null(cli_nearest("x", names, 4));
}

/* ---- output files ---- */

static char folder[] = "/tmp/keel_test_XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void expect_empty_folder(void)
{
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void expect_content(const char *path, const char *content)
{
    char text[64] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text - 1, file), strlen(content));
    fclose(file);
    assert_string_equal(text, content);
}

static void write_file(const char *path, const char *content, bool commit)
{
    cli_output out;
    assert_int_equal(cli_output_open(&out, path), CLI_OK);
    fputs(content, out.file);
    if (commit) {
        assert_int_equal(cli_output_commit(&out), CLI_OK);
    } else {
        cli_output_discard(&out);
    }
}

/* rwth-i6/returnn#1444: the old file stands until the new one is whole. */
static void test_cli__output_is_whole_or_absent(void **state)
{
    (void)state;
    const char *path = in_folder("out");
    write_file(path, "lost", false);
    assert_int_equal(access(path, F_OK), -1);
    write_file(path, "first", true);
    write_file(path, "lost", false);
    expect_content(path, "first");
    write_file(path, "second", true);
    expect_content(path, "second");
    assert_int_equal(unlink(path), 0);
    expect_empty_folder();
}

static void test_cli__output_keeps_rights_and_links(void **state)
{
    (void)state;
    struct stat s;
    char path[128];
    snprintf(path, sizeof path, "%s", in_folder("target"));
    write_file(path, "a", true);
    assert_int_equal(stat(path, &s), 0);
    const mode_t mask = umask(022);
    umask(mask);
    assert_int_equal(s.st_mode & 0777, 0666 & ~mask);
    assert_int_equal(symlink("target", in_folder("link")), 0);
    write_file(in_folder("link"), "b", true);
    expect_content(path, "b");
    assert_int_equal(lstat(in_folder("link"), &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    assert_int_equal(unlink(in_folder("link")), 0);
    assert_int_equal(unlink(path), 0);
    expect_empty_folder();
}

static void test_cli__output_says_early_that_it_cannot(void **state)
{
    (void)state;
    cli_output out;
    assert_int_equal(cli_output_open(&out, in_folder("none/out")), CLI_ENVIRONMENT);
    assert_null(out.file);
    assert_int_equal(cli_output_open(&out, folder), CLI_ENVIRONMENT);
    assert_int_equal(cli_output_open(&out, NULL), CLI_OK);
    assert_int_equal(cli_output_commit(&out), CLI_OK);
    cli_output_discard(&out);
}

static void test_cli__output_reports_a_full_disk(void **state)
{
    (void)state;
    cli_output out;
    if (access("/dev/full", W_OK) != 0) skip();
    assert_int_equal(cli_output_open(&out, "/dev/full"), CLI_OK);
    fputs("x", out.file);
    assert_int_equal(cli_output_commit(&out), CLI_ENVIRONMENT);
}

/* rwth-i6/returnn#1444: killed while writing, the command leaves the old file alone. */
static void test_cli__output_vanishes_with_a_signal(void **state)
{
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        cli_output out;
        cli_output_open(&out, in_folder("out"));
        fputs("half", out.file);
        fflush(out.file);
        raise(SIGTERM);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    expect_empty_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cli__takes_every_form),
        cmocka_unit_test(test_cli__operands_may_be_negative_numbers),
        cmocka_unit_test(test_cli__refuses_what_is_not_wholly_a_value),
        cmocka_unit_test(test_cli__suggests_the_nearest_name),
        cmocka_unit_test(test_cli__output_is_whole_or_absent),
        cmocka_unit_test(test_cli__output_keeps_rights_and_links),
        cmocka_unit_test(test_cli__output_says_early_that_it_cannot),
        cmocka_unit_test(test_cli__output_reports_a_full_disk),
        cmocka_unit_test(test_cli__output_vanishes_with_a_signal),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

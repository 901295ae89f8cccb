/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The frame of the built command: help, exit codes, streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

static void expect_code(const char *line, int code)
{
    outcome o = run_shell(line);
    if (o.code != code) fail_msg("%s: exit %d, wanted %d\n%s", line, o.code, code, o.err);
    outcome_free(&o);
}

/* The data stream says out, the talk stream err; NULL = nothing at all. */
static void expect_said(const char *arguments, int code, const char *out, const char *err)
{
    outcome o = run_keel(arguments);
    const int as_wanted = o.code == code && (out ? strstr(o.out, out) != NULL : !*o.out) &&
                          (err ? strstr(o.err, err) != NULL : !*o.err);
    if (!as_wanted) fail_msg("%s: exit %d\n%s\n%s", arguments, o.code, o.out, o.err);
    outcome_free(&o);
}

static void test_command__help_and_version(void **state)
{
    (void)state;
    expect_said("--help", 0, "formats", NULL);
    expect_said("help", 0, "usage: keel <command>", NULL);
    expect_said("--version", 0, "keel 0.", NULL);
    expect_said("demo --help", 0, "--init-scale S", NULL);
    expect_said("demo --help", 0, "(default 65536)", NULL);
    expect_said("help formats", 0, "examples:", NULL);
    expect_said("doctor --json --help", 0, "usage: keel doctor", NULL);
}

static void test_command__mistakes_are_usage_errors(void **state)
{
    (void)state;
    expect_said("", 2, NULL, "usage");
    expect_said("fromats", 2, NULL, "did you mean 'formats'");
    expect_said("quux", 2, NULL, "unknown command 'quux'");
    expect_said("demo --max-nrom 3", 2, NULL, "did you mean --max-norm");
    expect_said("demo --max-norm=-2", 2, NULL, "--max-norm=-2 (want a number in 0..inf)");
    expect_said("demo --max-norm nan", 2, NULL, "--max-norm=nan");
    expect_said("demo --steps 3.5", 2, NULL, "--steps=3.5 (want a whole number");
    expect_said("demo --steps", 2, NULL, "--steps needs a value");
    expect_said("doctor extra", 2, NULL, "unexpected 'extra'");
}

static void test_command__output_that_cannot_be_written(void **state)
{
    (void)state;
    expect_code("\"$KEEL\" formats >&-", 3);
    expect_code("\"$KEEL\" formats --json >&-", 3);
    expect_code("\"$KEEL\" --help >&-", 3);
    expect_code("{ \"$KEEL\" demo; echo $? >&2; } 2>/dev/null | exec true", 0);
    if (access("/dev/full", W_OK) == 0) expect_code("\"$KEEL\" formats >/dev/full", 3);
    expect_code("\"$KEEL\" nothing 2>&-", 2);
}

static void expect_colour(const char *line, int wanted)
{
    outcome o = run_terminal(line);
    const int coloured = strstr(o.out, "\033[") != NULL;
    if (coloured != wanted) fail_msg("%s: colour %d", line, coloured);
    outcome_free(&o);
}

static void test_command__colour_only_where_wanted(void **state)
{
    (void)state;
    expect_colour("TERM=xterm \"$KEEL\" --help", 1);
    expect_colour("TERM=xterm NO_COLOR=1 \"$KEEL\" --help", 0);
    expect_colour("TERM=dumb \"$KEEL\" --help", 0);
    expect_colour("unset TERM; \"$KEEL\" --help", 0);
    expect_colour("TERM=xterm \"$KEEL\" --help | cat", 0);
    expect_colour("TERM=xterm \"$KEEL\" nothing", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command__help_and_version),
        cmocka_unit_test(test_command__mistakes_are_usage_errors),
        cmocka_unit_test(test_command__output_that_cannot_be_written),
        cmocka_unit_test(test_command__colour_only_where_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel demo: the numbers of the lesson, and what changes with one option. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "run.h"
#include "strict_json.h"

static outcome demo_json(const char *options)
{
    char arguments[128];
    snprintf(arguments, sizeof arguments, "demo --json %s", options);
    outcome o = run_keel(arguments);
    if (o.code != 0) fail_msg("%s: exit %d\n%s", arguments, o.code, o.err);
    const char *fault = json_fault(o.out);
    if (fault) fail_msg("%s: not JSON at: %.40s", arguments, fault);
    return o;
}

static void expect_near(const outcome *o, const char *path, double wanted, double tolerance)
{
    const double seen = json_number_at(o->out, path);
    if (!(fabs(seen - wanted) <= tolerance)) fail_msg("%s is %.17g", path, seen);
}

static void test_demo__clip_by_one_norm(void **state)
{
    (void)state;
    outcome o = demo_json("--max-norm 6.5");
    expect_near(&o, "clip.norm", 13, 0);
    expect_near(&o, "clip.clipped[0][0]", 1.5, 1e-6);
    expect_near(&o, "clip.clipped[0][1]", 2, 1e-6);
    expect_near(&o, "clip.clipped[1][0]", 6, 1e-6);
    expect_near(&o, "exercise[0].norm", 10, 0);
    expect_near(&o, "exercise[0].clipped[0][0]", 3, 1e-6);
    expect_near(&o, "exercise[0].clipped[0][1]", 4, 1e-6);
    expect_near(&o, "exercise[1].clipped[0][0]", 6, 0);
    expect_near(&o, "exercise[1].clipped[0][1]", 8, 0);
    outcome_free(&o);
    o = demo_json("--max-norm 20");
    expect_near(&o, "clip.clipped[1][0]", 12, 0);
    outcome_free(&o);
}

static void test_demo__what_half_precision_loses(void **state)
{
    (void)state;
    outcome o = demo_json("");
    assert_true(json_is(o.out, "casts[0].stored_text", "\"inf\""));
    assert_true(json_is(o.out, "casts[2].stored", "0"));
    expect_near(&o, "casts[3].stored", 6.552e-4, 5e-8);
    assert_true(json_is(o.out, "casts[4].stored", "1"));
    expect_near(&o, "flush[0].share", 0.234, 0.005);
    expect_near(&o, "flush[1].share", 0, 3e-5); /* P(abs(x) < 2^-41) is 4e-6 */
    assert_true(json_is(o.out, "flush[2].share", "0"));
    outcome_free(&o);
    o = run_keel("demo");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, "norm 13 "));
    assert_non_null(strstr(o.out, "6.552e-04"));
    outcome_free(&o);
}

/* Three clean steps double the scale; the batch of step 6 overflows, is skipped, and halves it. */
static void test_demo__trace_of_the_loss_scale(void **state)
{
    (void)state;
    static const int exponents[] = {16, 16, 16, 17, 17, 17, 16, 16, 16, 17,
                                    17, 17, 18, 18, 18, 19, 19, 19, 20, 20};
    outcome o = demo_json("");
    assert_int_equal(json_count(o.out, "trace.steps"), 20);
    for (int i = 0; i < 20; i++) {
        char path[64];
        snprintf(path, sizeof path, "trace.steps[%d].loss_scale", i);
        expect_near(&o, path, ldexp(1, exponents[i]), 0);
        snprintf(path, sizeof path, "trace.steps[%d].applied", i);
        assert_true(json_is(o.out, path, i == 5 ? "false" : "true"));
    }
    assert_true(json_is(o.out, "trace.steps[5].cause", "\"inf\""));
    expect_near(&o, "trace.skips", 1, 0);
    expect_near(&o, "trace.last_skip", 6, 0);
    outcome_free(&o);
}

static void test_demo__each_what_if_is_one_option(void **state)
{
    (void)state;
    outcome o = demo_json("--init-scale 2^24");
    outcome same = demo_json("--init-scale=16777216");
    assert_string_equal(o.out, same.out);
    expect_near(&o, "trace.steps[0].loss_scale", 16777216, 0);
    expect_near(&o, "trace.skips_to_fit", 9, 0);
    expect_near(&o, "trace.fitting_scale", 32768, 0);
    outcome_free(&same);
    outcome_free(&o);
    o = demo_json("--grad-size 1e-5");
    expect_near(&o, "flush[0].share", 0.00238, 0.0005); /* erf(2^-25 / (1e-5 sqrt 2)) */
    outcome_free(&o);
    o = demo_json("--interval 100 --steps 20");
    expect_near(&o, "trace.final_loss_scale", 32768, 0);
    outcome_free(&o);
}

static void test_demo__a_clip_contains_the_spike(void **state)
{
    (void)state;
    outcome o = demo_json("");
    assert_true(json_number_at(o.out, "descent.unclipped.largest_loss_after_spike") > 100);
    assert_true(json_number_at(o.out, "descent.clipped.largest_loss_after_spike") < 0.5);
    outcome_free(&o);
}

static void expect_shell(const char *line, int code)
{
    outcome o = run_shell(line);
    if (o.code != code) fail_msg("%s: exit %d\n%s%s", line, o.code, o.out, o.err);
    outcome_free(&o);
}

static void test_demo__picture_is_whole_or_absent(void **state)
{
    (void)state;
    expect_shell("d=$(mktemp -d) && \"$KEEL\" demo --plot $d/a.svg >/dev/null &&"
                 " grep -q '</svg>' $d/a.svg && grep -q 'skipped step' $d/a.svg &&"
                 " test \"$(ls $d)\" = a.svg && rm -r $d",
                 0);
    expect_shell(
        "d=$(mktemp -d); \"$KEEL\" demo --steps 0 --plot $d/a.svg; test $? = 2 && rmdir $d", 0);
    expect_shell("\"$KEEL\" demo --plot /nowhere/a.svg", 3);
    /* The picture must not land in a closed stdout's place, nor its failure go unseen. */
    expect_shell(
        "d=$(mktemp -d); \"$KEEL\" demo --steps 999 --plot $d/a.svg >&-; test $? = 3 || exit 1;"
        " grep -q 'One norm' $d/a.svg && exit 1; rm -r $d",
        0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_demo__clip_by_one_norm),
        cmocka_unit_test(test_demo__what_half_precision_loses),
        cmocka_unit_test(test_demo__trace_of_the_loss_scale),
        cmocka_unit_test(test_demo__each_what_if_is_one_option),
        cmocka_unit_test(test_demo__a_clip_contains_the_spike),
        cmocka_unit_test(test_demo__picture_is_whole_or_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel doctor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "run.h"
#include "strict_json.h"

static void test_doctor__all_is_well_here(void **state)
{
    (void)state;
    outcome o = run_keel("doctor");
    if (o.code != 0) fail_msg("exit %d\n%s\n%s", o.code, o.out, o.err);
    assert_null(strstr(o.out, "FAIL"));
    assert_non_null(strstr(o.out, "instructions"));
    assert_non_null(strstr(o.out, "ok   four-ranks"));
    outcome_free(&o);
}

static void test_doctor__json_names_every_check(void **state)
{
    (void)state;
    outcome o = run_keel("doctor --json");
    assert_int_equal(o.code, 0);
    assert_null(json_fault(o.out));
    assert_true(json_is(o.out, "ok", "true"));
    assert_int_equal(json_count(o.out, "checks"), 5);
    assert_true(json_is(o.out, "checks[0].name", "\"formats\""));
    assert_true(json_is(o.out, "checks[0].ok", "true"));
    assert_true(json_is(o.out, "devices[0]", "\"cpu\""));
    assert_true(json_is(o.out, "communicators[1]", "\"threads\""));
    assert_true(json_number_at(o.out, "cores") >= 1);
    outcome_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doctor__all_is_well_here),
        cmocka_unit_test(test_doctor__json_names_every_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The sentence behind a status, whoever writes it. */
#include <stdio.h>

#include "check.h"
#include "keel/ext.h"

static void test_error__any_length_is_cut_to_fit(void **state)
{
    (void)state;
    char name[2000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(keel_ext_fail(KEEL_ERR_DEVICE, name, "%s", name), KEEL_ERR_DEVICE);
    const size_t length = strlen(keel_last_error());
    assert_true(length > 100 && length < sizeof name);
    assert_int_equal(keel_ext_fail(KEEL_ERR_COMM, "f", "%s", "short"), KEEL_ERR_COMM);
    assert_string_equal(keel_last_error(), "f: short");
}

/* A device or transport may put its own words before those of the call that failed below it. */
static void test_error__a_sentence_may_quote_the_last_one(void **state)
{
    (void)state;
    keel_ext_fail(KEEL_ERR_DEVICE, "inner", "code=%d", 7);
    keel_ext_fail(KEEL_ERR_DEVICE, "outer", "queue 3: %s", keel_last_error());
    assert_string_equal(keel_last_error(), "outer: queue 3: inner: code=7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error__any_length_is_cut_to_fit),
        cmocka_unit_test(test_error__a_sentence_may_quote_the_last_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

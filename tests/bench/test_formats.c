/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel formats. */
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

static void expect_said(const char *arguments, int code, const char *out, const char *err)
{
    outcome o = run_keel(arguments);
    const int as_wanted =
        o.code == code && strstr(o.out, out) != NULL && strstr(o.err, err) != NULL;
    if (!as_wanted) fail_msg("%s: exit %d\n%s\n%s", arguments, o.code, o.out, o.err);
    outcome_free(&o);
}

static outcome valid_json(const char *arguments)
{
    outcome o = run_keel(arguments);
    assert_int_equal(o.code, 0);
    const char *fault = json_fault(o.out);
    if (fault) fail_msg("%s: not JSON at: %.40s", arguments, fault);
    return o;
}

static void test_formats__json_holds_every_row(void **state)
{
    (void)state;
    outcome o = valid_json("formats --json");
    assert_int_equal(json_count(o.out, "formats"), 9);
    assert_true(json_is(o.out, "formats[3].name", "\"e4m3\""));
    assert_true(json_is(o.out, "formats[3].bits", "8"));
    assert_true(json_is(o.out, "formats[3].exponent_bits", "4"));
    assert_true(json_is(o.out, "formats[3].mantissa_bits", "3"));
    assert_true(json_is(o.out, "formats[3].bias", "7"));
    assert_true(json_is(o.out, "formats[3].max", "448"));
    assert_true(json_is(o.out, "formats[3].min_normal", "0.015625"));
    assert_true(json_is(o.out, "formats[3].min_subnormal", "0.001953125"));
    assert_true(json_is(o.out, "formats[3].epsilon", "0.125"));
    assert_true(json_is(o.out, "formats[3].has_inf", "false"));
    assert_true(json_is(o.out, "formats[3].has_nan", "true"));
    assert_true(json_is(o.out, "formats[3].names.torch", "\"float8_e4m3fn\""));
    assert_true(json_is(o.out, "formats[3].codes.torch", "24"));
    assert_true(json_is(o.out, "formats[4].max", "57344"));
    assert_true(json_number_at(o.out, "formats[0].min_subnormal") == 0x1p-149);
    outcome_free(&o);
}

static void test_formats__a_code_taken_apart(void **state)
{
    (void)state;
    expect_said("formats 0x7e --as e4m3", 0,
                "0x7e as e4m3: 448 (normal)\n"
                "  sign 0  exponent 1111 (15)  mantissa 110 (6)",
                "");
    expect_said("formats 0x7f --as e4m3", 0, "(NaN)", "");
    expect_said("formats 0x80 --as e4m3", 0, "-0 (zero)", "");
    expect_said("formats 0xfc --as e5m2", 0, "-inf (infinity)", "");
    expect_said("formats 0x01 --as f16", 0, "5.9604644775390625e-08 (subnormal)", "");
    expect_said("formats 0x00 --as e8m0", 0, "exponent 00000000 (0)\n", "");
    expect_said("formats 0x7e --as float8_e4m3fn", 0, "448", "");
    expect_said("formats 0x17e --as e4m3", 2, "", "wider than 8 bits of e4m3");
    outcome o = valid_json("formats 0x7e 0x7f --as e4m3 --json");
    assert_true(json_is(o.out, "codes[0].value", "448"));
    assert_true(json_is(o.out, "codes[0].mantissa", "6"));
    assert_true(json_is(o.out, "codes[1].value", "null"));
    assert_true(json_is(o.out, "codes[1].value_text", "\"nan\""));
    outcome_free(&o);
}

static void test_formats__a_value_in_every_format(void **state)
{
    (void)state;
    expect_said("formats 448.1", 0, "e4m3    0x7e        448", "");
    expect_said("formats 70000", 0, "overflow: saturate 65504, ieee inf (default)", "");
    expect_said("formats 1e-8", 0, "flushed to zero", "");
    expect_said("formats -1.5", 0, "f16     0xbe00      -1.5             exact", "");
    expect_said("formats -- -1.5", 0, "0xbe00", "");
    expect_said("formats -inf nan", 0, "0xfc00", "");
    outcome o = valid_json("formats 1e6 --as e4m3 --json");
    assert_true(json_is(o.out, "values[0].formats[0].overflow", "true"));
    assert_true(json_is(o.out, "values[0].formats[0].code", "\"0x7e\""));
    assert_true(json_is(o.out, "values[0].formats[0].saturate.value", "448"));
    assert_true(json_is(o.out, "values[0].formats[0].ieee.value_text", "\"nan\""));
    outcome_free(&o);
    o = valid_json("formats inf --json");
    assert_true(json_is(o.out, "values[0].formats[1].overflow", "false")); /* f16 holds it */
    assert_true(json_is(o.out, "values[0].formats[4].name", "\"e5m2\""));
    assert_true(json_is(o.out, "values[0].formats[4].overflow", "true"));
    outcome_free(&o);
    /* Finite formats clamp in every mode; 6.9 only rounds to the maximum, 7 is past it. */
    o = valid_json("formats 6.9 7 --as e2m1 --json");
    assert_true(json_is(o.out, "values[0].formats[0].overflow", "false"));
    assert_true(json_is(o.out, "values[1].formats[0].overflow", "true"));
    outcome_free(&o);
}

static void test_formats__names_that_mislead(void **state)
{
    (void)state;
    expect_said("formats fp8", 2, "", "fp8");
    expect_said("formats 0x7e --as fp8", 2, "", "fp8");
    expect_said("formats 0x7e --as float8_e4m3fnuz", 2, "", "fnuz");
    expect_said("formats 0x7e --as float8_e4m3", 0, "448", "note: ");
    expect_said("formats e4m3", 0, "float8_e4m3fn", "");
    expect_said("formats nonsense", 2, "", "nonsense");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats__json_holds_every_row),
        cmocka_unit_test(test_formats__a_code_taken_apart),
        cmocka_unit_test(test_formats__a_value_in_every_format),
        cmocka_unit_test(test_formats__names_that_mislead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

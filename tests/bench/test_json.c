/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The JSON writer, read back by the strict reader, and the strict reader itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "strict_json.h"

/* What body() writes as the members of one object. */
static char *written(void (*body)(json *j))
{
    FILE *file = tmpfile();
    assert_non_null(file);
    json j;
    json_begin(&j, file);
    json_object(&j, NULL);
    body(&j);
    json_end(&j);
    const long size = ftell(file);
    char *text = calloc((size_t)size + 1, 1);
    assert_non_null(text);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    fclose(file);
    assert_null(json_fault(text));
    return text;
}

static void write_bad_numbers(json *j)
{
    json_real(j, "norm", INFINITY);
    json_real(j, "low", -INFINITY);
    json_real32(j, "loss", NAN);
    json_array(j, "list");
    json_real(j, NULL, NAN);
    json_real(j, NULL, 2);
    json_end(j);
}

/* The-OpenROAD-Project/OpenROAD#2715: bare NaN and Infinity make a document unreadable. */
static void test_json__numbers_that_are_not_finite(void **state)
{
    (void)state;
    char *text = written(write_bad_numbers);
    assert_true(json_is(text, "norm", "null"));
    assert_true(json_is(text, "norm_text", "\"inf\""));
    assert_true(json_is(text, "low_text", "\"-inf\""));
    assert_true(json_is(text, "loss", "null"));
    assert_true(json_is(text, "loss_text", "\"nan\""));
    assert_true(json_is(text, "list[0]", "null"));
    assert_true(json_is(text, "list[1]", "2"));
    free(text);
}

static void test_json__numbers_are_short_and_exact(void **state)
{
    (void)state;
    const struct {
        double value;
        const char *text;
    } rows[] = {
        {0.1, "0.1"},    {1e-9, "1e-09"},    {100000, "100000"},
        {-0.0, "-0"},    {65536, "65536"},   {1.0 / 3, "0.3333333333333333"},
        {DBL_MAX, NULL}, {5e-324, "5e-324"},
    };
    char buffer[JSON_NUMBER_SIZE];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_number(rows[i].value, buffer);
        if (rows[i].text) assert_string_equal(buffer, rows[i].text);
        assert_true(strtod(buffer, NULL) == rows[i].value);
        assert_null(json_fault(buffer));
    }
    assert_string_equal(json_number32(0.1f, buffer), "0.1");
    assert_string_equal(json_number32(FLT_MIN, buffer), "1.1754944e-38");
}

static void write_texts(json *j)
{
    json_text(j, "quote\"d", "tab\tline\nback\\slash \"q\"");
    json_text(j, "none", NULL);
    json_hex64(j, "bits", 0x1fu);
    json_bool(j, "yes", true);
    json_int(j, "low", INT64_MIN);
    json_object(j, "empty");
    json_end(j);
}

static void test_json__texts_are_escaped(void **state)
{
    (void)state;
    char *text = written(write_texts);
    assert_true(json_is(text, "none", "null"));
    assert_true(json_is(text, "bits", "\"000000000000001f\""));
    assert_true(json_is(text, "low", "-9223372036854775808"));
    assert_int_equal(json_count(text, "empty"), 0);
    assert_int_equal(json_count(text, ""), 6);
    assert_non_null(strstr(text, "tab\\u0009line\\u000aback\\\\slash \\\"q\\\""));
    assert_null(strchr(text, '\t'));
    free(text);
}

static void test_json__reader_is_strict(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",      "NaN",    "Infinity",   "-",     "01",      "1.",       ".5",      "+1",
        "1e",    "[1,]",   "{\"a\":1,}", "{a:1}", "[1 2]",   "\"a\nb\"", "\"\\x\"", "[",
        "{} {}", "\"open", "tru",        "'a'",   "{\"a\"}", "[,1]",     "0x10",    "\"\\u12g4\"",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (!json_fault(bad[i])) fail_msg("accepted: %s", bad[i]);
    }
    static const char *const good[] = {"0", "-0.5e+3", "[]", " { \"a\" : [ 1 , {} ] } ",
                                       "\"\\u12a4\""};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (json_fault(good[i])) fail_msg("refused: %s", good[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json__numbers_that_are_not_finite),
        cmocka_unit_test(test_json__numbers_are_short_and_exact),
        cmocka_unit_test(test_json__texts_are_escaped),
        cmocka_unit_test(test_json__reader_is_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

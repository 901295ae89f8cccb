/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Names and numbers of formats in other software: what is taken, what is refused and why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "keel/formats.h"

typedef enum use { USE_NAME, USE_ALIAS, USE_WRITE, USE_REFUSE } use;

typedef struct row {
    keel_ecosystem ecosystem;
    const char *name;
    int32_t code;
    keel_format format;
    use use;
} row;

static const row rows[] = {
#define X(ECOSYSTEM, name, code, FORMAT, use, NOTE) \
    {KEEL_ECOSYSTEM_##ECOSYSTEM, name, code, KEEL_FORMAT_##FORMAT, USE_##use},
#include "names.def"
};

enum { ROWS = sizeof rows / sizeof *rows };

static keel_format find(const char *name)
{
    keel_format format = KEEL_FORMAT_NONE;
    const char *note;
    if (keel_format_find(name, &format, &note) != KEEL_OK) return KEEL_FORMAT_NONE;
    return format;
}

static void check_refused(const char *name, const char *reason)
{
    keel_format format = KEEL_FORMAT_F16;
    const char *note = "untouched";
    if (keel_format_find(name, &format, &note) != KEEL_ERR_INVALID)
        fail_msg("%s was taken for format %d", name, format);
    assert_int_equal(format, KEEL_FORMAT_F16);
    assert_string_equal(note, "untouched");
    if (!strstr(keel_last_error(), reason) || !strstr(keel_last_error(), name))
        fail_msg("%s: \"%s\" does not say %s", name, keel_last_error(), reason);
}

/* Each row means what it says although other rows spell alike: no two clash. */
static void test_names__every_row_reads_as_it_says(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        const bool readable = rows[i].use == USE_NAME || rows[i].use == USE_ALIAS;
        const keel_format want = readable ? rows[i].format : KEEL_FORMAT_NONE;
        if (find(rows[i].name) != want)
            fail_msg("%s in %s: found %d, want %d", rows[i].name,
                     keel_ecosystem_name(rows[i].ecosystem), find(rows[i].name), want);
    }
}

static void test_names__every_row_writes_as_it_says(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        const row *r = &rows[i];
        keel_format format = KEEL_FORMAT_NONE;
        if (r->use == USE_NAME || r->use == USE_WRITE) {
            assert_string_equal(keel_format_name_in(r->format, r->ecosystem), r->name);
            assert_int_equal(keel_format_code_in(r->format, r->ecosystem), r->code);
        }
        if (r->code < 0) continue;
        const keel_status status = keel_format_from_code(r->ecosystem, r->code, &format);
        assert_int_equal(status, r->use == USE_NAME ? KEEL_OK : KEEL_ERR_INVALID);
        assert_int_equal(format, r->use == USE_NAME ? r->format : KEEL_FORMAT_NONE);
    }
}

static void test_names__every_format_has_its_own_name(void **state)
{
    (void)state;
    const keel_format_info *info;
    for (int32_t i = 0; (info = keel_format_at(i)); i++) {
        assert_string_equal(keel_format_name_in(info->id, KEEL_ECOSYSTEM_KEEL), info->name);
        assert_int_equal(find(info->name), info->id);
    }
}

static void test_names__letter_case_does_not_matter(void **state)
{
    (void)state;
    assert_int_equal(find("E4M3"), KEEL_FORMAT_E4M3);
    assert_int_equal(find("Float8_E4M3FN"), KEEL_FORMAT_E4M3);
    assert_int_equal(find("NCCLBFLOAT16"), KEEL_FORMAT_BF16);
    assert_int_equal(find("f8_e4m3"), KEEL_FORMAT_E4M3);
}

/* One underscore and the width of a prefix separate three meanings. */
static void test_names__spellings_that_look_alike_are_kept_apart(void **state)
{
    (void)state;
    assert_int_equal(find("F8_E4M3"), KEEL_FORMAT_E4M3);
    assert_int_equal(find("f8E4M3FN"), KEEL_FORMAT_E4M3);
    check_refused("f8E4M3", "240");
    check_refused("F8E4M3", "240");
    assert_int_equal(find("F4"), KEEL_FORMAT_E2M1);
    check_refused("f4", "numpy");
    assert_int_equal(find("<f4"), KEEL_FORMAT_F32);
}

static void test_names__what_people_type_is_found(void **state)
{
    (void)state;
    const struct {
        const char *name;
        keel_format format;
    } typed[] = {
        {"fp32", KEEL_FORMAT_F32},        {"float", KEEL_FORMAT_F32},
        {"float32", KEEL_FORMAT_F32},     {"fp16", KEEL_FORMAT_F16},
        {"half", KEEL_FORMAT_F16},        {"float16", KEEL_FORMAT_F16},
        {"bfloat16", KEEL_FORMAT_BF16},   {"bf16", KEEL_FORMAT_BF16},
        {"fp8_e4m3", KEEL_FORMAT_E4M3},   {"e4m3fn", KEEL_FORMAT_E4M3},
        {"float8e4nv", KEEL_FORMAT_E4M3}, {"fp8_e5m2", KEEL_FORMAT_E5M2},
        {"e5m2", KEEL_FORMAT_E5M2},       {"e8m0", KEEL_FORMAT_E8M0},
    };
    for (size_t i = 0; i < sizeof typed / sizeof *typed; i++)
        assert_int_equal(find(typed[i].name), typed[i].format);
}

static void test_names__a_name_of_two_formats_is_taken_with_a_note(void **state)
{
    (void)state;
    keel_format format;
    const char *note = NULL;
    assert_int_equal(keel_format_find("float8_e4m3", &format, &note), KEEL_OK);
    assert_int_equal(format, KEEL_FORMAT_E4M3);
    assert_non_null(strstr(note, "448"));
    assert_non_null(strstr(note, "240"));
    assert_int_equal(keel_format_find("float8_e4m3fn", &format, &note), KEEL_OK);
    assert_null(note);
    assert_int_equal(keel_format_find("float8_e4m3", &format, NULL), KEEL_OK);
}

/* vllm-project/vllm#7210: fnuz and IEEE bytes read as fn are off by 2x or lose their NaN. */
static void test_names__look_alikes_are_refused_with_the_reason(void **state)
{
    (void)state;
    check_refused("float8_e4m3fnuz", "bias");
    check_refused("float8_e5m2fnuz", "bias");
    check_refused("FLOAT8E4M3FNUZ", "bias");
    check_refused("float8_e4m3b11fnuz", "bias 11");
    check_refused("float8_e3m4", "not one of ours");
    check_refused("kDLFloat8_e4m3", "240");
    check_refused("MXFP4", "block");
}

static void test_names__names_of_several_formats_are_refused(void **state)
{
    (void)state;
    check_refused("fp8", "e4m3 or e5m2");
    check_refused("float8", "e4m3 or e5m2");
    check_refused("f8", "numpy");
    check_refused("fp6", "e3m2 or e2m3");
    check_refused("fp4", "e2m1");
    check_refused("<V1", "one byte");
}

static void test_names__unknown_names_are_refused(void **state)
{
    (void)state;
    check_refused("double", "want a format");
    check_refused("e4m", "want a format");
    check_refused("e4m3 ", "want a format");
    check_refused("", "want a format");
    keel_format format;
    assert_int_equal(keel_format_find(NULL, &format, NULL), KEEL_ERR_INVALID);
    assert_int_equal(keel_format_find("e4m3", NULL, NULL), KEEL_ERR_INVALID);
}

static void test_names__numbers_of_other_formats_are_refused_by_name(void **state)
{
    (void)state;
    keel_format format = KEEL_FORMAT_NONE;
    assert_int_equal(keel_format_from_code(KEEL_ECOSYSTEM_DLPACK, 8, &format), KEEL_ERR_INVALID);
    assert_non_null(strstr(keel_last_error(), "240"));
    assert_int_equal(keel_format_from_code(KEEL_ECOSYSTEM_DLPACK, 2, &format), KEEL_ERR_INVALID);
    assert_non_null(strstr(keel_last_error(), "widths"));
    assert_int_equal(keel_format_from_code(KEEL_ECOSYSTEM_TORCH, 99, &format), KEEL_ERR_INVALID);
    assert_int_equal(keel_format_from_code(KEEL_ECOSYSTEM_TORCH, -1, &format), KEEL_ERR_INVALID);
    assert_int_equal(keel_format_from_code((keel_ecosystem)99, 1, &format), KEEL_ERR_INVALID);
    assert_int_equal(format, KEEL_FORMAT_NONE);
    assert_int_equal(keel_format_from_code(KEEL_ECOSYSTEM_CUDA, 28, NULL), KEEL_ERR_INVALID);
}

static void test_names__what_has_no_name_there_is_said_so(void **state)
{
    (void)state;
    assert_null(keel_format_name_in(KEEL_FORMAT_E4M3, KEEL_ECOSYSTEM_GGUF));
    assert_int_equal(keel_format_code_in(KEEL_FORMAT_E4M3, KEEL_ECOSYSTEM_GGUF), -1);
    assert_null(keel_format_name_in(KEEL_FORMAT_NONE, KEEL_ECOSYSTEM_TORCH));
    assert_null(keel_format_name_in((keel_format)77, KEEL_ECOSYSTEM_TORCH));
    assert_null(keel_ecosystem_name((keel_ecosystem)-1));
}

static void test_names__ecosystems_count_without_gaps(void **state)
{
    (void)state;
    int32_t count = 0;
    while (keel_ecosystem_name((keel_ecosystem)count)) count++;
    assert_int_equal(count, KEEL_ECOSYSTEM_TRITON + 1);
    assert_string_equal(keel_ecosystem_name(KEEL_ECOSYSTEM_TORCH), "torch");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names__every_row_reads_as_it_says),
        cmocka_unit_test(test_names__every_row_writes_as_it_says),
        cmocka_unit_test(test_names__every_format_has_its_own_name),
        cmocka_unit_test(test_names__letter_case_does_not_matter),
        cmocka_unit_test(test_names__spellings_that_look_alike_are_kept_apart),
        cmocka_unit_test(test_names__what_people_type_is_found),
        cmocka_unit_test(test_names__a_name_of_two_formats_is_taken_with_a_note),
        cmocka_unit_test(test_names__look_alikes_are_refused_with_the_reason),
        cmocka_unit_test(test_names__names_of_several_formats_are_refused),
        cmocka_unit_test(test_names__unknown_names_are_refused),
        cmocka_unit_test(test_names__numbers_of_other_formats_are_refused_by_name),
        cmocka_unit_test(test_names__what_has_no_name_there_is_said_so),
        cmocka_unit_test(test_names__ecosystems_count_without_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

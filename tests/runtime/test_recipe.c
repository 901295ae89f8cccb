/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Recipes: the built-in table, what an operand takes, and JSON there and back.  Mistakes are told
 * with their line and leave the output alone. */
#include <fenv.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "../bench/strict_json.h"
#include "check.h"
#include "random.h"

enum { TEXT_MAX = 8192 };

static keel_recipe find(const char *name)
{
    keel_recipe r;
    memset(&r, 0xa5, sizeof r);
    assert_ok(keel_recipe_find(name, &r));
    return r;
}

static size_t write(const keel_recipe *r, char *text)
{
    size_t len = 0;
    assert_ok(keel_recipe_to_json(r, text, TEXT_MAX, &len));
    assert_int_equal(strlen(text), len);
    return len;
}

static keel_recipe read(const char *text)
{
    keel_recipe r;
    memset(&r, 0xa5, sizeof r);
    assert_ok(keel_recipe_from_json(text, strlen(text), &r));
    return r;
}

static void assert_cell(const keel_recipe *r, keel_op op, keel_operand operand, const char *name,
                        keel_format format, keel_cell_scaling scaling)
{
    const keel_recipe_cell cell = keel_recipe_cell_of(r, op, operand, name);
    assert_int_equal(cell.format, format);
    assert_int_equal(cell.scaling, scaling);
}

/* "e4m3 forward, e5m2 for gradients; attention and head stay bf16"; "bypassed (S = 1) for bf16 and
 * fp8 recipes". */
static void test_recipe__built_in_table(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        keel_loss_scale_mode mode;
        keel_format forward, gradient, other;
        keel_cell_scaling scaling;
    } rows[] = {
        {"f32", KEEL_LOSS_SCALE_OFF, KEEL_FORMAT_F32, KEEL_FORMAT_F32, KEEL_FORMAT_F32,
         KEEL_CELL_NONE},
        {"bf16", KEEL_LOSS_SCALE_OFF, KEEL_FORMAT_BF16, KEEL_FORMAT_BF16, KEEL_FORMAT_BF16,
         KEEL_CELL_NONE},
        {"f16", KEEL_LOSS_SCALE_DYNAMIC, KEEL_FORMAT_F16, KEEL_FORMAT_F16, KEEL_FORMAT_F16,
         KEEL_CELL_NONE},
        {"fp8-delayed", KEEL_LOSS_SCALE_OFF, KEEL_FORMAT_E4M3, KEEL_FORMAT_E5M2, KEEL_FORMAT_BF16,
         KEEL_CELL_DELAYED},
        {"fp8-current", KEEL_LOSS_SCALE_OFF, KEEL_FORMAT_E4M3, KEEL_FORMAT_E5M2, KEEL_FORMAT_BF16,
         KEEL_CELL_CURRENT},
        {"mxfp8", KEEL_LOSS_SCALE_OFF, KEEL_FORMAT_E4M3, KEEL_FORMAT_E4M3, KEEL_FORMAT_BF16,
         KEEL_CELL_MX},
    };
    const int32_t count = sizeof rows / sizeof *rows;
    for (int32_t i = 0; i < count; i++) {
        const keel_recipe r = find(rows[i].name);
        assert_string_equal(keel_recipe_name(i), rows[i].name);
        assert_string_equal(r.name, rows[i].name);
        assert_int_equal(r.loss_scale.mode, rows[i].mode);
        assert_same_f32(r.loss_scale.init, 65536.0f);
        assert_int_equal(r.slot.history, 1024);
        assert_int_equal(r.exception_count, 0);
        for (int operand = 0; operand < KEEL_OPERAND_COUNT; operand++) {
            const keel_format format =
                operand == KEEL_OPERAND_GRADIENT ? rows[i].gradient : rows[i].forward;
            assert_cell(&r, KEEL_OP_LINEAR, operand, NULL, format, rows[i].scaling);
            assert_cell(&r, KEEL_OP_ATTENTION, operand, NULL, rows[i].other, KEEL_CELL_NONE);
            assert_cell(&r, KEEL_OP_HEAD, operand, "w", rows[i].other, KEEL_CELL_NONE);
        }
    }
    assert_null(keel_recipe_name(count));
    assert_null(keel_recipe_name(-1));
    keel_recipe r = {.mx_rule = 7};
    assert_refused(keel_recipe_find("fp8", &r), KEEL_ERR_INVALID, "f32, bf16, f16, fp8-delayed");
    assert_refused(keel_recipe_find(NULL, &r), KEEL_ERR_INVALID, "name is NULL");
    assert_refused(keel_recipe_find("f32", NULL), KEEL_ERR_INVALID, "out_recipe is NULL");
    assert_int_equal(r.mx_rule, 7);
}

static void test_recipe__patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool fits;
    } rows[] = {
        {"*", "", true},
        {"*", "anything", true},
        {"w", "w", true},
        {"w", "W", false},
        {"w", "ww", false},
        {"w*", "w", true},
        {"*w", "b.w", true},
        {"*w", "b.w.", false},
        {"a*c", "abcbc", true},
        {"a*b*c", "a.c.b", false},
        {"a*b*c", "a.b.c.b.c", true},
        {"*.head.*", "x.head.w", true},
        {"*.head.*", "head.w", false},
        {"**", "x", true},
        {"a**b", "ab", true},
        {"layers.1.*", "layers.10.w", false},
        {"*ab", "aab", true},
        {"?", "x", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        keel_recipe r = find("f32");
        r.exception_count = 1;
        snprintf(r.exception[0].pattern, sizeof r.exception[0].pattern, "%s", rows[i].pattern);
        for (int k = 0; k < KEEL_OPERAND_COUNT; k++)
            r.exception[0].cell[k].format = KEEL_FORMAT_F16;
        assert_cell(&r, KEEL_OP_LINEAR, KEEL_OPERAND_WEIGHT, rows[i].name,
                    rows[i].fits ? KEEL_FORMAT_F16 : KEEL_FORMAT_F32, KEEL_CELL_NONE);
        assert_cell(&r, KEEL_OP_LINEAR, KEEL_OPERAND_WEIGHT, NULL, KEEL_FORMAT_F32, KEEL_CELL_NONE);
    }
    const keel_recipe r = find("f32");
    assert_cell(&r, KEEL_OP_COUNT, KEEL_OPERAND_INPUT, NULL, KEEL_FORMAT_NONE, KEEL_CELL_NONE);
    assert_cell(&r, KEEL_OP_HEAD, (keel_operand)-1, NULL, KEEL_FORMAT_NONE, KEEL_CELL_NONE);
}

/* All fields away from their defaults, numbers that take all their digits. */
static keel_recipe full(void)
{
    keel_recipe r = find("fp8-delayed");
    memset(r.name, 'n', sizeof r.name - 1);
    memcpy(r.name, "\xe2\x82\xac\"\\\n\x7f", 7);
    assert_ok(keel_loss_scale_preset("deepspeed-consecutive", &r.loss_scale));
    r.loss_scale.mode = KEEL_LOSS_SCALE_STATIC;
    r.loss_scale.init = 1234.5677f;
    r.loss_scale.growth = 1.0000001f;
    r.loss_scale.backoff = 0.1f;
    r.loss_scale.min = 0x1p-126f;
    r.loss_scale.interval = INT32_MAX;
    r.slot.algorithm = KEEL_AMAX_MOST_RECENT;
    r.slot.policy = KEEL_SLOT_POLICY_TE;
    r.slot.history = KEEL_HISTORY_MAX;
    r.slot.margin = -32;
    r.slot.power_of_two = r.slot.veto = r.slot.count = 1;
    r.mx_rule = KEEL_MX_FLOOR;
    r.exception_count = KEEL_RECIPE_EXCEPTIONS;
    for (int i = 0; i < KEEL_RECIPE_EXCEPTIONS; i++) {
        memset(r.exception[i].pattern, 'a' + i, KEEL_RECIPE_PATTERN_MAX - 1);
        for (int k = 0; k < KEEL_OPERAND_COUNT; k++)
            r.exception[i].cell[k] =
                (keel_recipe_cell){KEEL_FORMAT_E2M1, (keel_cell_scaling)(i % 4)};
    }
    return r;
}

static void check_round_trip(const keel_recipe *r)
{
    char text[TEXT_MAX];
    write(r, text);
    assert_null(json_fault(text));
    const keel_recipe back = read(text);
    assert_memory_equal(&back, r, sizeof back);
}

static void test_recipe__comes_back_bit_for_bit(void **state)
{
    (void)state;
    for (int32_t i = 0; keel_recipe_name(i); i++) {
        const keel_recipe r = find(keel_recipe_name(i));
        check_round_trip(&r);
    }
    const keel_recipe r = full();
    check_round_trip(&r);
}

static void test_recipe__floats_of_any_bits_come_back(void **state)
{
    (void)state;
    random_source random = random_begin(5);
    keel_recipe r = find("f16");
    for (int i = 0; i < 3000; i++) {
        do r.loss_scale.init = fabsf(random_finite(&random));
        while (!(r.loss_scale.init >= 0x1p-24f && r.loss_scale.init <= 0x1p126f));
        check_round_trip(&r);
    }
}

/* Neither a decimal comma nor a rounding mode reaches the document. */
static void test_recipe__locale_and_rounding_do_not_matter(void **state)
{
    (void)state;
    static const char *const commas[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ps_AF", "C"};
    static const int roundings[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
    const keel_recipe r = full();
    char plain[TEXT_MAX], text[TEXT_MAX];
    write(&r, plain);
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 4; k++) {
            if (!setlocale(LC_NUMERIC, commas[i])) continue;
            fesetround(roundings[k]);
            write(&r, text);
            const keel_recipe back = read(text);
            assert_int_equal(fegetround(), roundings[k]);
            fesetround(FE_TONEAREST);
            assert_string_equal(text, plain);
            assert_memory_equal(&back, &r, sizeof r);
        }
    setlocale(LC_NUMERIC, "C");
}

static void test_recipe__the_example(void **state)
{
    (void)state;
    char text[TEXT_MAX] = "";
    FILE *file = fopen(RECIPE_EXAMPLE, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    const keel_recipe r = read(text);
    assert_string_equal(r.name, "fp8-but-the-ends");
    assert_cell(&r, KEEL_OP_LINEAR, KEEL_OPERAND_INPUT, "layers.1.up", KEEL_FORMAT_E4M3,
                KEEL_CELL_DELAYED);
    assert_cell(&r, KEEL_OP_LINEAR, KEEL_OPERAND_WEIGHT, "layers.1.up", KEEL_FORMAT_E4M3,
                KEEL_CELL_CURRENT);
    assert_cell(&r, KEEL_OP_LINEAR, KEEL_OPERAND_WEIGHT, "layers.0.up", KEEL_FORMAT_BF16,
                KEEL_CELL_NONE);
    assert_cell(&r, KEEL_OP_LINEAR, KEEL_OPERAND_GRADIENT, "layers.1.router.w", KEEL_FORMAT_F32,
                KEEL_CELL_NONE);
    assert_int_equal(r.slot.history, 16);
    assert_int_equal(r.slot.algorithm, KEEL_AMAX_MOST_RECENT);
    assert_int_equal(r.loss_scale.mode, KEEL_LOSS_SCALE_OFF);
    check_round_trip(&r);
}

/* Keys come in any order, base last as well; strings may be escaped. */
static void test_recipe__order_blanks_and_escapes(void **state)
{
    (void)state;
    const keel_recipe a =
        read("\t{\"head\":{\"input\":\"e4m3 mx\"},\r\n\"base\":\"mxfp8\",\"name\":"
             "\"\\u20ac\\ud83d\\udea2\\/\\u000a\" , \"keel_recipe\":1.0e0} \n");
    assert_string_equal(a.name, "\xe2\x82\xac\xf0\x9f\x9a\xa2/\n");
    assert_cell(&a, KEEL_OP_HEAD, KEEL_OPERAND_INPUT, NULL, KEEL_FORMAT_E4M3, KEEL_CELL_MX);
    assert_cell(&a, KEEL_OP_LINEAR, KEEL_OPERAND_GRADIENT, NULL, KEEL_FORMAT_E4M3, KEEL_CELL_MX);
    const keel_recipe b = read("{\"keel_recipe\": 1}"), f32 = find("f32");
    assert_memory_equal(&b, &f32, sizeof b);
}

static void test_recipe__mistakes_are_told_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } rows[] = {
        {"", "line 1: the text ends (want '{')"},
        {"\n\n  ", "line 3: the text ends"},
        {"[]", "line 1: '[' (want '{')"},
        {"\xef\xbb\xbf{}", "line 1: byte 0xef (want '{')"},
        {"{\n}", "line 2: no \"keel_recipe\": 1"},
        {"{\"keel_recipe\":2}", "line 1: keel_recipe=2 (want 1..1)"},
        {"{\"keel_recipe\":01}", "line 1: '0' (want a number)"},
        {"{\"keel_recipe\":1.}", "want a number"},
        {"{\"keel_recipe\":+1}", "'+' (want a number)"},
        {"{\"keel_recipe\":true}", "'t' (want a number)"},
        {"{\"keel_recipe\":1,}", "'}' (want a string)"},
        {"{\"keel_recipe\":1 \"name\":\"x\"}", "'\"' (want ',')"},
        {"{\"keel_recipe\":1}\n\nx", "line 3: 'x' (want nothing more)"},
        {"{\"keel_recipe\":1,\n\"colour\":1}", "line 2: unknown key \"colour\""},
        {"{\"keel_recipe\":1,\n\"keel_recipe\"\n:1}", "line 2: \"keel_recipe\" a second time"},
        {"{\"base\":\n\"fp8\"}", "line 2: keel_recipe_find: name='fp8' (want one of f32"},
        {"{\"name\":\"12345678901234567890123456789012\"}", "a string of more than 31 bytes"},
        {"{\"name\":\"\xff\"}", "byte 0xff in a string"},
        {"{\"name\":\"\t\"}", "byte 0x09 in a string"},
        {"{\"name\":\"\\x\"}", "'x' (want an escape)"},
        {"{\"name\":\"\\u0000\"}", "\\u0000 in a string"},
        {"{\"name\":\"\\ud800x\"}", "half a surrogate pair"},
        {"{\"name\":\"\\udc00\"}", "half a surrogate pair"},
        {"{\"name\":\"\\u12g4\"}", "'g' (want four hexadecimal digits)"},
        {"{\"name\":\"x", "the text ends inside a string"},
        {"{\"linear\":{\n\"weight\":\"e4m9\"}}", "line 2: keel_format_find:"},
        {"{\"linear\":{\"weight\":\"fp8\"}}", "keel_format_find:"},
        {"{\"linear\":{\"weight\":\"e8m0\"}}", "weight has a format that is described only"},
        {"{\"linear\":{\"weight\":\"bf16 mx\"}}", "more than 8 bits"},
        {"{\"linear\":{\"weight\":\"e4m3 later\"}}",
         "scaling 'later' (want none, delayed, current, mx)"},
        {"{\"linear\":{\"weight\":\"e4m3  mx\"}}", "scaling ' mx'"},
        {"{\"linear\":{\"weight\":{\"scaling\":\"mx\"}}}", "weight has no format"},
        {"{\"linear\":{\"bias\":\"f32\"}}", "unknown key \"bias\""},
        {"{\"linear\":\"f32\"}", "'\"' (want '{')"},
        {"{\"slot\":{\n\n\"history\":0}}", "line 3: history=0 (want 1..65536)"},
        {"{\"slot\":{\"history\":1e9}}", "history=1e+09"},
        {"{\"slot\":{\"history\":1.5}}", "history=1.5 (want an integer)"},
        {"{\"slot\":{\"algorithm\":\"mean\"}}", "algorithm 'mean' (want max, most_recent)"},
        {"{\"slot\":{\"veto\":true}}", "want a number"},
        {"{\"mx_rule\":\"round\"}", "mx_rule 'round' (want ceil, floor)"},
        {"{\"keel_recipe\":1,\n\"loss_scale\":{\n\"growth\":1}\n}",
         "line 2: keel_loss_scale_begin"},
        {"{\"keel_recipe\":1,\"loss_scale\":{\"init\":1e39}}", "init=1e+39"},
        {"{\"keel_recipe\":1,\"loss_scale\":{\"init\":1e999}}", "init=inf"},
        {"{\"keel_recipe\":1,\"loss_scale\":{\"min\":4,\"max\":2}}", "min=4 (want <= max=2)"},
        {"{\"loss_scale\":{\"init\":0."
         "0000000000000000000000000000000000000000000000000000000000000000000001"
         "}}",
         "a number of more than 64 characters"},
        {"{\"exceptions\":[{}]}", "an exception without pattern"},
        {"{\"exceptions\":[{\"pattern\":\"x\",\"input\":\"f32\",\"weight\":\"f32\"}]}",
         "an exception without gradient"},
        {"{\"exceptions\":[{\"pattern\":\"\",\"input\":\"f32\",\"weight\":\"f32\",\"gradient\":"
         "\"f32\"}]}",
         "an empty pattern"},
        {"{\"exceptions\":[,]}", "',' (want '{')"},
        {"[[[[[[[[", "want '{'"},
    };
    keel_recipe r, untouched;
    memset(&r, 0xa5, sizeof r);
    memset(&untouched, 0xa5, sizeof untouched);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_refused(keel_recipe_from_json(rows[i].text, strlen(rows[i].text), &r),
                       KEEL_ERR_INVALID, rows[i].sentence);
        assert_memory_equal(&r, &untouched, sizeof r);
    }
    assert_refused(keel_recipe_from_json("{\"name\":\"a\0b\"}", 14, &r), KEEL_ERR_INVALID, "0x00");
    assert_refused(keel_recipe_from_json("\0{}", 3, &r), KEEL_ERR_INVALID, "byte 0x00");
    assert_refused(keel_recipe_from_json(NULL, 0, &r), KEEL_ERR_INVALID, "text is NULL");
    assert_refused(keel_recipe_from_json("{}", 2, NULL), KEEL_ERR_INVALID, "out_recipe is NULL");
}

/* Exactly as many bytes on the heap as the text has, so that a read past them is seen.  What is
 * taken is written and read again as the same. */
static bool try_bytes(const char *text, size_t size)
{
    keel_recipe r, untouched;
    char *exact = malloc(size + (size == 0));
    assert_non_null(exact);
    memcpy(exact, text, size);
    memset(&r, 0xa5, sizeof r);
    memset(&untouched, 0xa5, sizeof untouched);
    const keel_status status = keel_recipe_from_json(exact, size, &r);
    free(exact);
    if (status == KEEL_OK) {
        check_round_trip(&r);
        return true;
    }
    assert_int_equal(status, KEEL_ERR_INVALID);
    assert_memory_equal(&r, &untouched, sizeof r);
    assert_non_null(strstr(keel_last_error(), "line "));
    return false;
}

static const char document[] =
    "{\"keel_recipe\": 1, \"name\": \"m\\u20ac\", \"base\": \"fp8-delayed\",\n"
    "\"linear\": {\"input\": \"e4m3 mx\", \"gradient\": {\"format\": \"e5m2\"}},\n"
    "\"loss_scale\": {\"mode\": \"off\", \"init\": 1.5e2},\n"
    "\"slot\": {\"history\": 16, \"margin\": -1, \"algorithm\": \"max\"}, \"mx_rule\": \"floor\",\n"
    "\"exceptions\": [{\"pattern\": \"*.h\", \"input\": \"f32\", \"weight\": \"f16\",\n"
    "\"gradient\": \"bf16\"}]}";

static void test_recipe__every_prefix_is_refused(void **state)
{
    (void)state;
    assert_true(try_bytes(document, sizeof document - 1));
    for (size_t size = 0; size < sizeof document - 1; size++)
        assert_false(try_bytes(document, size));
}

static void test_recipe__every_changed_byte_is_refused_or_stable(void **state)
{
    (void)state;
    char text[sizeof document];
    int taken = 0, refused = 0;
    for (size_t i = 0; i < sizeof document - 1; i++)
        for (int byte = 0; byte < 256; byte++) {
            memcpy(text, document, sizeof text);
            text[i] = (char)byte;
            const bool ok = try_bytes(text, sizeof document - 1);
            taken += ok;
            refused += !ok;
        }
    assert_true(taken > 1000 && refused > taken);
}

static void refuse_writing(const keel_recipe *r, const char *word)
{
    char text[TEXT_MAX] = "mark";
    size_t len = 77;
    assert_refused(keel_recipe_to_json(r, text, sizeof text, &len), KEEL_ERR_INVALID, word);
    assert_string_equal(text, "mark");
    assert_int_equal(len, 77);
}

static void test_recipe__writing_refuses_what_reading_would(void **state)
{
    (void)state;
#define BAD(change, word)         \
    do {                          \
        keel_recipe r = full();   \
        change;                   \
        refuse_writing(&r, word); \
    } while (0)
    BAD(memset(r.name, 'x', sizeof r.name), "name has no end");
    BAD(r.name[3] = (char)0xff, "name has byte 0xff at 3");
    BAD(r.cell[1][2].format = KEEL_FORMAT_NONE, "attention.gradient has a format of no registry");
    BAD(r.cell[0][0].format = KEEL_FORMAT_E8M0, "linear.input has a format that is described only");
    BAD(r.cell[2][1].scaling = KEEL_CELL_MX, "head.weight has a scaled format");
    BAD(r.cell[0][1].scaling = (keel_cell_scaling)4, "linear.weight has an unknown scaling");
    BAD(r.loss_scale.mode = (keel_loss_scale_mode)3, "mode=3 (want 0..2)");
    BAD(r.loss_scale.rule = (keel_loss_scale_rule)-1, "rule=-1");
    BAD(r.loss_scale.growth = NAN, "growth");
    BAD(r.slot.history = 0, "history=0");
    BAD(r.slot.policy = (keel_slot_policy)2, "policy=2");
    BAD(r.mx_rule = (keel_mx_rule)2, "mx_rule=2");
    BAD(r.exception_count = -1, "exception_count=-1");
    BAD(r.exception_count = KEEL_RECIPE_EXCEPTIONS + 1, "exception_count=17");
    BAD(r.exception[3].pattern[0] = 0, "exception[3].pattern is empty");
    BAD(memset(r.exception[3].pattern, 'x', KEEL_RECIPE_PATTERN_MAX), "pattern has no end");
    BAD(r.exception[15].cell[0].format = KEEL_FORMAT_F32 + 90, "a format of no registry row");
#undef BAD
    assert_refused(keel_recipe_to_json(NULL, NULL, 0, NULL), KEEL_ERR_INVALID, "recipe is NULL");
}

static void test_recipe__fits_or_says_how_long(void **state)
{
    (void)state;
    const keel_recipe r = find("f32");
    size_t len = 0, again = 0;
    assert_ok(keel_recipe_to_json(&r, NULL, 0, &len));
    for (size_t size = 1; size <= len + 2; size++) {
        char *buffer = malloc(size);
        assert_non_null(buffer);
        assert_int_equal(keel_recipe_to_json(&r, buffer, size, &again),
                         size > len ? KEEL_OK : KEEL_ERR_INVALID);
        assert_int_equal(again, len);
        free(buffer);
    }
    assert_refused(keel_recipe_to_json(&r, NULL, 5, NULL), KEEL_ERR_INVALID, "buffer is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recipe__built_in_table),
        cmocka_unit_test(test_recipe__patterns),
        cmocka_unit_test(test_recipe__comes_back_bit_for_bit),
        cmocka_unit_test(test_recipe__floats_of_any_bits_come_back),
        cmocka_unit_test(test_recipe__locale_and_rounding_do_not_matter),
        cmocka_unit_test(test_recipe__the_example),
        cmocka_unit_test(test_recipe__order_blanks_and_escapes),
        cmocka_unit_test(test_recipe__mistakes_are_told_with_their_line),
        cmocka_unit_test(test_recipe__every_prefix_is_refused),
        cmocka_unit_test(test_recipe__every_changed_byte_is_refused_or_stable),
        cmocka_unit_test(test_recipe__writing_refuses_what_reading_would),
        cmocka_unit_test(test_recipe__fits_or_says_how_long),
    };
    return cmocka_run_group_tests_name("runtime.recipe", tests, NULL, NULL);
}

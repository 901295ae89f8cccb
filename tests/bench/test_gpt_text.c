/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The text of the transformer: what is read, what is refused with which sentence, and windows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpt_text.h"

static char folder[64], why[GPT_WHY];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/keel_text_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* count bytes that all are first, or go up from it. */
static void write_file(const char *name, int count, int first, int increment)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    for (int i = 0; i < count; i++) fputc((first + i * increment) & 255, file);
    assert_int_equal(fclose(file), 0);
}

static int tear_down(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "link", ".hidden", "sub"};
    for (int i = 0; i < 6; i++) remove(path_of(names[i]));
    return rmdir(folder);
}

static void expect_refusal(const char *path, const char *sentence)
{
    gpt_text text = {.count = 7};
    assert_false(gpt_text_load(path, &text, why));
    if (strncmp(why, path, strlen(path)) != 0 || strcmp(why + strlen(path) + 2, sentence) != 0)
        fail_msg("\"%s\" is not the path and \"%s\"", why, sentence);
    assert_true(text.count == 7 && !text.bytes);
}

static void test_gpt_text__file_is_read_whole_and_cut_once(void **state)
{
    (void)state;
    gpt_text text;
    write_file("a", 300007, 0, 1);
    assert_true(gpt_text_load(path_of("a"), &text, why));
    assert_int_equal(text.count, 300007);
    assert_int_equal(text.train, 270007);
    for (int i = 0; i < text.count; i++) assert_int_equal(text.bytes[i], i & 255);
    gpt_text_free(&text);
    assert_null(text.bytes);
}

static void test_gpt_text__folder_is_its_regular_files_by_name(void **state)
{
    (void)state;
    gpt_text text;
    write_file("c", 100000, 3, 0);
    write_file("a", 150000, 1, 0);
    write_file("b", 4, 2, 0);
    write_file(".hidden", 100, 9, 0);
    char target[128];
    snprintf(target, sizeof target, "%s", path_of("c"));
    assert_int_equal(symlink(target, path_of("link")), 0);
    assert_int_equal(mkdir(path_of("sub"), 0700), 0);
    assert_true(gpt_text_load(folder, &text, why));
    assert_int_equal(text.count, GPT_TEXT_FOLDER_MAX);
    for (int i = 0; i < text.count; i++)
        assert_int_equal(text.bytes[i], i < 150000 ? 1 : i < 150004 ? 2 : 3);
    gpt_text_free(&text);
}

static void test_gpt_text__what_cannot_be_read_is_named(void **state)
{
    (void)state;
    expect_refusal(path_of("none"),
                   "No such file or directory (want a text file or a folder of them)");
    expect_refusal("/dev/null", "neither file nor folder (want a text file or a folder of them)");
    expect_refusal(folder, "0 bytes of text (want 4096 or more)");
    write_file("a", GPT_TEXT_MIN - 1, 0, 1);
    expect_refusal(path_of("a"), "4095 bytes of text (want 4096 or more)");
    assert_int_equal(truncate(path_of("a"), GPT_TEXT_FILE_MAX + 1), 0);
    expect_refusal(path_of("a"), "67108865 bytes (want 67108864 or less)");
}

static void test_gpt_text__default_is_there_or_named(void **state)
{
    (void)state;
    gpt_text text;
    if (access(GPT_TEXT_DEFAULT, R_OK) == 0) {
        assert_true(gpt_text_load(NULL, &text, why));
        assert_in_range(text.count, GPT_TEXT_MIN, GPT_TEXT_FOLDER_MAX);
        gpt_text_free(&text);
        return;
    }
    expect_refusal(GPT_TEXT_DEFAULT,
                   "No such file or directory (want a text file or a folder of them)");
}

enum { CONTEXT = 10 };

/* The shortest text: windows of both parts reach their ends and never over the cut. */
static void test_gpt_text__windows_stay_in_their_part(void **state)
{
    (void)state;
    uint8_t bytes[50], window[CONTEXT + 1];
    gpt_text text = {bytes, sizeof bytes, 29};
    for (int i = 0; i < 50; i++) bytes[i] = (uint8_t)i;
    int first = 255, last = 0;
    for (uint64_t n = 0; n < 500; n++) {
        gpt_text_draw(&text, CONTEXT, 1, n, window);
        for (int i = 0; i <= CONTEXT; i++) assert_int_equal(window[i], window[0] + i);
        if (window[0] < first) first = window[0];
        if (window[CONTEXT] > last) last = window[CONTEXT];
    }
    assert_int_equal(first, 0);
    assert_int_equal(last, 28);
    assert_int_equal(gpt_text_windows(&text, CONTEXT), 2);
    for (int w = 0; w < 2; w++) {
        gpt_text_held_out(&text, CONTEXT, w, window);
        for (int i = 0; i <= CONTEXT; i++) assert_int_equal(window[i], 29 + w * CONTEXT + i);
    }
}

static void test_gpt_text__draws_depend_on_seed_and_index(void **state)
{
    (void)state;
    static uint8_t bytes[5000];
    uint8_t one[CONTEXT + 1], other[CONTEXT + 1];
    gpt_text text = {bytes, sizeof bytes, 4500};
    for (int i = 0; i < 5000; i++) bytes[i] = (uint8_t)(i * i >> 4);
    gpt_text_draw(&text, CONTEXT, 1, 5, one);
    gpt_text_draw(&text, CONTEXT, 1, 5, other);
    assert_memory_equal(one, other, sizeof one);
    gpt_text_draw(&text, CONTEXT, 1, 6, other);
    assert_memory_not_equal(one, other, sizeof one);
    gpt_text_draw(&text, CONTEXT, 2, 5, other);
    assert_memory_not_equal(one, other, sizeof one);
}

int main(void)
{
#define ROW(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ROW(test_gpt_text__file_is_read_whole_and_cut_once),
        ROW(test_gpt_text__folder_is_its_regular_files_by_name),
        ROW(test_gpt_text__what_cannot_be_read_is_named),
        cmocka_unit_test(test_gpt_text__default_is_there_or_named),
        cmocka_unit_test(test_gpt_text__windows_stay_in_their_part),
        cmocka_unit_test(test_gpt_text__draws_depend_on_seed_and_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

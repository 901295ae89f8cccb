/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The embedded digits: what data/README.md says of them holds, and the cut never moves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "data/digits_data.h"
#include "digits.h"

enum { LINE = DIGITS_PIXELS + 2 };

static digits loaded;

static int load(void **state)
{
    (void)state;
    return digits_load(&loaded) ? 0 : -1;
}

/* IEEE 802.3, as `gzip -lv` and zlib print it. */
static uint32_t crc32_of(const unsigned char *bytes, size_t n)
{
    uint32_t crc = ~UINT32_C(0);
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}

/* A loaded row in the notation of the file. */
static void write_line(const digits *d, int row, unsigned char line[LINE])
{
    for (int i = 0; i < DIGITS_PIXELS; i++) {
        line[i] = (unsigned char)"0123456789abcdefg"[(int)(d->pixels[row][i] * 16)];
    }
    line[DIGITS_PIXELS] = (unsigned char)('0' + d->labels[row]);
    line[LINE - 1] = '\n';
}

static void test_digits__embedded_bytes_are_the_file(void **state)
{
    (void)state;
    assert_int_equal(digits_data_size, DIGITS_ROWS * LINE);
    assert_int_equal(crc32_of(digits_data, digits_data_size), 0x1043796b);
}

static void test_digits__values_are_sixteenths(void **state)
{
    (void)state;
    int sum = 0;
    for (int row = 0; row < DIGITS_ROWS; row++) {
        for (int i = 0; i < DIGITS_PIXELS; i++) {
            const float value = loaded.pixels[row][i] * 16;
            assert_true(value >= 0 && value <= 16 && value == (float)(int)value);
            sum += (int)value;
        }
    }
    assert_int_equal(sum, 561718);
}

static void test_digits__as_many_of_each_as_the_source_has(void **state)
{
    (void)state;
    static const int want[DIGITS_CLASSES] = {178, 182, 177, 183, 181, 182, 181, 179, 174, 180};
    int seen[DIGITS_CLASSES] = {0};
    for (int row = 0; row < DIGITS_ROWS; row++) {
        assert_in_range(loaded.labels[row], 0, DIGITS_CLASSES - 1);
        seen[loaded.labels[row]]++;
    }
    assert_memory_equal(seen, want, sizeof want);
}

static int compare_lines(const void *a, const void *b)
{
    return memcmp(a, b, LINE);
}

/* No row is lost, doubled or given the label of another. */
static void test_digits__shuffle_keeps_every_row(void **state)
{
    (void)state;
    static unsigned char rows[DIGITS_ROWS][LINE], want[DIGITS_ROWS][LINE];
    for (int row = 0; row < DIGITS_ROWS; row++) write_line(&loaded, row, rows[row]);
    memcpy(want, digits_data, sizeof want);
    assert_memory_not_equal(rows, want, sizeof want);
    qsort(rows, DIGITS_ROWS, LINE, compare_lines);
    qsort(want, DIGITS_ROWS, LINE, compare_lines);
    assert_memory_equal(rows, want, sizeof want);
}

/* Accuracies of two runs compare only while the same rows are held out. */
static void test_digits__cut_is_fixed(void **state)
{
    (void)state;
    assert_int_equal(DIGITS_TRAIN + DIGITS_HELD_OUT, DIGITS_ROWS);
    assert_int_equal(crc32_of(loaded.labels, sizeof loaded.labels), 0xd92dd22b);
    int seen[DIGITS_CLASSES] = {0};
    for (int row = DIGITS_TRAIN; row < DIGITS_ROWS; row++) seen[loaded.labels[row]]++;
    for (int digit = 0; digit < DIGITS_CLASSES; digit++) assert_in_range(seen[digit], 20, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digits__embedded_bytes_are_the_file),
        cmocka_unit_test(test_digits__values_are_sixteenths),
        cmocka_unit_test(test_digits__as_many_of_each_as_the_source_has),
        cmocka_unit_test(test_digits__shuffle_keeps_every_row),
        cmocka_unit_test(test_digits__cut_is_fixed),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}

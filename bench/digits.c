/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* From the embedded text to shuffled rows. */
#include "digits.h"

#include <string.h>

#include "data/digits_data.h"
#include "rng.h"

enum {
    LINE = DIGITS_PIXELS + 2, /* values, label, newline */
    SHUFFLE_SEED = 1797,
};

static int value_of(unsigned char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'g' ? c - 'a' + 10 : -1;
}

static bool read_line(const unsigned char *line, float *pixels, uint8_t *label)
{
    for (int i = 0; i < DIGITS_PIXELS; i++) {
        const int value = value_of(line[i]);
        if (value < 0) return false;
        pixels[i] = (float)value / 16;
    }
    const int digit = value_of(line[DIGITS_PIXELS]);
    *label = (uint8_t)digit;
    return digit >= 0 && digit < DIGITS_CLASSES && line[LINE - 1] == '\n';
}

/* Fisher and Yates. */
static void shuffle(int order[DIGITS_ROWS])
{
    for (int i = 0; i < DIGITS_ROWS; i++) order[i] = i;
    for (int i = DIGITS_ROWS - 1; i > 0; i--) {
        const int k = rng_below(SHUFFLE_SEED, (uint64_t)i, i + 1);
        const int kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

bool digits_load(digits *out)
{
    if (digits_data_size != (size_t)DIGITS_ROWS * LINE) return false;
    int order[DIGITS_ROWS];
    shuffle(order);
    for (int i = 0; i < DIGITS_ROWS; i++) {
        const unsigned char *line = digits_data + (size_t)order[i] * LINE;
        if (!read_line(line, out->pixels[i], &out->labels[i])) return false;
    }
    return true;
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Handwritten digits to train on (data/README.md), cut into a part to learn from and a part held
 * out.  The cut is a fixed shuffle, the same for every seed of a run. */
#ifndef BENCH_DIGITS_H
#define BENCH_DIGITS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    DIGITS_ROWS = 1797,
    DIGITS_PIXELS = 64,
    DIGITS_CLASSES = 10,
    DIGITS_TRAIN = 1500, /* the first rows after the shuffle */
    DIGITS_HELD_OUT = DIGITS_ROWS - DIGITS_TRAIN,
};

typedef struct digits {
    float pixels[DIGITS_ROWS][DIGITS_PIXELS]; /* 0..1 in steps of 1/16: exact in every recipe */
    uint8_t labels[DIGITS_ROWS];
} digits;

/* digits_load: false if the embedded data is not what digits.h says. */
bool digits_load(digits *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A slow reference for sums of squares: a number written out bit by bit, bit i worth 2^(i - 320),
 * to which integers are added as on paper.  Nothing in it is shared with the library. */
#ifndef TESTS_BIGSUM_H
#define TESTS_BIGSUM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BIGSUM_BITS = 640, BIGSUM_UNIT = -320 };

typedef struct bigsum {
    uint8_t bit[BIGSUM_BITS];
} bigsum;

static inline void bigsum_add_bit(bigsum *sum, int at)
{
    while (sum->bit[at]) sum->bit[at++] = 0;
    sum->bit[at] = 1;
}

/* value * 2^exponent */
static inline void bigsum_add_integer(bigsum *sum, uint64_t value, int exponent)
{
    for (int i = 0; i < 64; i++)
        if (value >> i & 1) bigsum_add_bit(sum, exponent - BIGSUM_UNIT + i);
}

/* The square of any finite f32. */
static inline void bigsum_add_square(bigsum *sum, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t fraction = bits & 0x7fffffu, biased = bits >> 23 & 0xff;
    const uint64_t m = biased ? fraction | 0x800000u : fraction;
    bigsum_add_integer(sum, m * m, 2 * ((biased ? (int)biased : 1) - 150));
}

/* Any f64 >= 0 that is a multiple of 2^-320. */
static inline void bigsum_add_f64(bigsum *sum, double x)
{
    int exponent;
    const double fraction = frexp(x, &exponent);
    uint64_t m = (uint64_t)ldexp(fraction, 53);
    for (exponent -= 53; m && !(m & 1); exponent++) m >>= 1;
    bigsum_add_integer(sum, m, exponent);
}

/* To nearest even, by hand. */
static inline double bigsum_round(const bigsum *sum)
{
    int top = BIGSUM_BITS - 1;
    while (top >= 0 && !sum->bit[top]) top--;
    uint64_t mantissa = 0;
    int at = top;
    for (; at >= 0 && at > top - 53; at--) mantissa = mantissa << 1 | sum->bit[at];
    if (at >= 0 && sum->bit[at]) {
        int sticky = 0;
        for (int i = 0; i < at; i++) sticky |= sum->bit[i];
        mantissa += sticky || (mantissa & 1);
    }
    return ldexp((double)mantissa, at + 1 + BIGSUM_UNIT);
}

/* The exact sum over a list, as the norm it stands for. */
static inline double bigsum_norm(const float *x, int64_t n)
{
    bigsum sum;
    memset(&sum, 0, sizeof sum);
    for (int64_t i = 0; i < n; i++) bigsum_add_square(&sum, x[i]);
    return sqrt(bigsum_round(&sum));
}

#endif

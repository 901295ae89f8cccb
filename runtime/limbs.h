/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* An exact sum of f64 values as a wide fixed-point integer.
 *
 *   word[0]              word[1]                  ...   word[19]
 *   units of 2^-320      units of 2^-288                units of 2^288
 *
 * Every square of an f32 is a multiple of 2^-298 below 2^256, so any number of them fits, and since
 * integers add in any order the sum does not depend on how it was cut.  Words are signed and hold
 * 32 bits after keeli_limbs_carry(); the other 31 bits are head-room for sums over ranks. */
#ifndef KEELI_LIMBS_H
#define KEELI_LIMBS_H

#include "portable.h"

enum {
    KEELI_LIMBS = 20,
    KEELI_LIMB_EXPONENT = -320, /* of the unit of word[0] */
    KEELI_LIMB_ADDS = 1 << 28   /* adds that are safe between two carries */
};

typedef struct keeli_limbs {
    int64_t word[KEELI_LIMBS];
} keeli_limbs;

/* x is finite, a multiple of 2^-320 and below 2^290; either sign. */
KEELI_HD void keeli_limbs_add(keeli_limbs *sum, double x)
{
    const uint64_t bits = keeli_bits_of_f64(x);
    const int biased = (int)(bits >> 52 & 0x7ff);
    if (biased == 0) return; /* only zero: subnormal f64 lie below the unit */
    const uint64_t mantissa = (bits & 0xfffffffffffffu) | 0x10000000000000u;
    const int shift = biased - 1075 - KEELI_LIMB_EXPONENT; /* x = mantissa * unit * 2^shift */
    const uint64_t m = shift < 0 ? mantissa >> -shift : mantissa;
    const int bit = shift < 0 ? 0 : shift & 31;
    const uint64_t low = (m & 0xffffffffu) << bit, high = (m >> 32) << bit;
    int64_t *word = sum->word + (shift < 0 ? 0 : shift >> 5);
    const int64_t sign = bits >> 63 ? -1 : 1;
    word[0] += sign * (int64_t)(low & 0xffffffffu);
    word[1] += sign * (int64_t)((low >> 32) + (high & 0xffffffffu));
    word[2] += sign * (int64_t)(high >> 32);
}

/* Bring every word but the last into [0, 2^32). */
KEELI_HD void keeli_limbs_carry(keeli_limbs *sum)
{
    for (int i = 0; i + 1 < KEELI_LIMBS; i++) {
        const int64_t low = sum->word[i] & 0xffffffff;
        sum->word[i + 1] += (sum->word[i] - low) / 4294967296;
        sum->word[i] = low;
    }
}

/* The sum, carried and not negative, rounded once to nearest even. */
KEELI_HD double keeli_limbs_round(const keeli_limbs *sum)
{
    int top = KEELI_LIMBS - 1;
    while (top > 0 && sum->word[top] == 0) top--;
    uint64_t window = (uint64_t)sum->word[top] << 32 | (top > 0 ? (uint64_t)sum->word[top - 1] : 0);
    if (window == 0) return 0.0;
    uint64_t below = top > 1 ? (uint64_t)sum->word[top - 2] << 32 : 0;
    int shift = 0;
    for (; !(window >> 63); shift++) {
        window = window << 1 | below >> 63;
        below <<= 1;
    }
    for (int i = 0; i < top - 2; i++) below |= (uint64_t)sum->word[i] != 0;

    const uint64_t half = 1u << 10, rest = window & 0x7ff;
    uint64_t mantissa = window >> 11;
    mantissa += rest > half || (rest == half && (below != 0 || (mantissa & 1)));
    const int exponent = 32 * (top - 1) - shift + 11 + KEELI_LIMB_EXPONENT;
    return (double)mantissa * keeli_f64_of((uint64_t)(exponent + 1023) << 52);
}

#endif

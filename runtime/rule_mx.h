/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The shared power of two of a block, from the bits of its amax and of the format's maximum.
 * Exponents are read, compared and subtracted; a logarithm in f32 is one too high just below
 * powers of two. */
#ifndef KEELI_RULE_MX_H
#define KEELI_RULE_MX_H

#include "codec.h"
#include "keel/mx.h"

enum { KEELI_MX_NAN = 0xff, KEELI_MX_LARGEST = 0xfe };

/* A positive f32 as 2^exponent * (1 + mantissa / 2^23), subnormals normalised; exponents biased. */
typedef struct keeli_mx_number {
    int32_t exponent;
    uint32_t mantissa;
} keeli_mx_number;

KEELI_HD keeli_mx_number keeli_mx_number_of(uint32_t bits)
{
    keeli_mx_number x;
    x.exponent = (int32_t)(bits >> KEELI_F32_MAN);
    x.mantissa = bits & 0x007fffffu;
    if (x.exponent > 0 || x.mantissa == 0) return x;
    for (x.exponent = 1; x.mantissa >> KEELI_F32_MAN == 0; x.exponent--) x.mantissa <<= 1;
    x.mantissa &= 0x007fffffu;
    return x;
}

/* amax: bits of |x|; max: of the format's largest value, a normal number.  The quotient of their
 * powers of two is X, unless amax has the larger mantissa: then CEIL needs twice that. */
KEELI_HD uint32_t keeli_mx_scale(uint32_t amax, uint32_t max, keel_mx_rule rule)
{
    if (amax > KEELI_F32_INF) return KEELI_MX_NAN;
    if (amax == KEELI_F32_INF) return KEELI_MX_LARGEST;
    if (amax == 0) return 0;
    const keeli_mx_number a = keeli_mx_number_of(amax), m = keeli_mx_number_of(max);
    const int32_t up = rule == KEEL_MX_CEIL && a.mantissa > m.mantissa;
    const int32_t code = a.exponent - m.exponent + KEELI_F32_BIAS + up;
    return code > 0 ? (uint32_t)code : 0;
}

/* 1 / X, a power of two as well; what a block is multiplied by.  A block that is NaN is cast like
 * one with an infinity, so that its codes still show which element it was. */
KEELI_HD float keeli_mx_inverse(uint32_t scale)
{
    return keeli_decode_scale(KEELI_MX_LARGEST - (scale < KEELI_MX_NAN ? scale : KEELI_MX_LARGEST));
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The one definition of decode and encode, for every row of formats.def and for host and device.
 * With a constant layout everything but a dozen integer operations folds away; no call, no table
 * and no branch remains, so loops over the inlines are vectorised for any instruction set.
 *
 * Two ways to round:
 *   keeli_round_nearest  for loops: one f32 addition does the rounding, so the caller sets round to
 *                        nearest (keeli_fp_begin); flushing of subnormals does not reach it.
 *   keeli_round_fixed    integers only, whatever the environment; from f32 or f64, with a choice
 *                        of what is added before the cut: nearest even, or random bits.
 * Both give the magnitude code of the value rounded to an unbounded exponent, cut off at one past
 * the largest finite code; keeli_finish makes an overflow mode out of that. */
#ifndef KEELI_CODEC_H
#define KEELI_CODEC_H

#include "keel/formats.h"
#include "portable.h"

enum { KEELI_F32_MAN = 23, KEELI_F32_BIAS = 127 };
#define KEELI_F32_INF 0x7f800000u
#define KEELI_F32_NAN 0x7fc00000u

/* The columns of a row that codecs need. */
typedef struct keeli_layout {
    int32_t exp;
    int32_t man;
    int32_t bias;
    keel_format_kind kind;
} keeli_layout;

KEELI_HD keeli_layout keeli_layout_of(int32_t exp, int32_t man, int32_t bias, keel_format_kind kind)
{
    keeli_layout f;
    f.exp = exp;
    f.man = man;
    f.bias = bias;
    f.kind = kind;
    return f;
}

KEELI_HD uint32_t keeli_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

KEELI_HD uint32_t keeli_max(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Magnitude codes: all ones, the largest finite value, NaN (the largest value where there is no
 * NaN). */
KEELI_HD uint32_t keeli_all_ones(keeli_layout f)
{
    return (1u << (f.exp + f.man)) - 1u;
}

KEELI_HD uint32_t keeli_max_code(keeli_layout f)
{
    return f.kind == KEEL_KIND_IEEE     ? keeli_all_ones(f) - (1u << f.man)
           : f.kind == KEEL_KIND_FINITE ? keeli_all_ones(f)
                                        : keeli_all_ones(f) - 1u;
}

KEELI_HD uint32_t keeli_nan_code(keeli_layout f)
{
    return f.kind == KEEL_KIND_IEEE ? keeli_max_code(f) + 1u + (1u << f.man >> 1)
                                    : keeli_all_ones(f);
}

/* The f32 that has a magnitude code's exponent and mantissa; its value where the code is normal,
 * also for the first code past the largest. */
KEELI_HD uint32_t keeli_widen(uint32_t code, keeli_layout f)
{
    return (code << (KEELI_F32_MAN - f.man)) + ((uint32_t)(KEELI_F32_BIAS - f.bias) << 23);
}

/* The exponent field of an f32 as large as the smallest normal value. */
KEELI_HD uint32_t keeli_min_exponent(keeli_layout f)
{
    return (uint32_t)(KEELI_F32_BIAS + 1 - f.bias);
}

/* 2^(1 - bias - man), the value of code 1; formats with narrow exponents only. */
KEELI_HD float keeli_smallest(keeli_layout f)
{
    return keeli_float_of((uint32_t)(KEELI_F32_BIAS + 1 - f.bias - f.man) << 23);
}

KEELI_HD float keeli_decode_scale(uint32_t code)
{
    const uint32_t power = code & 0xffu;
    const uint32_t bits = power == 0 ? 0x00400000u : power << 23; /* 2^-127 is subnormal */
    return keeli_float_of(power == 0xffu ? KEELI_F32_NAN : bits);
}

KEELI_HD float keeli_decode(uint32_t code, keeli_layout f)
{
    if (f.kind == KEEL_KIND_SCALE) return keeli_decode_scale(code);
    if (f.exp == 8) return keeli_float_of(code << (KEELI_F32_MAN - f.man));

    const uint32_t magnitude = code & keeli_all_ones(f);
    const uint32_t sign = (code >> (f.exp + f.man) & 1u) << 31;
    /* Exact, and no operand or result is a subnormal f32: no environment can change it. */
    const uint32_t subnormal = keeli_bits_of((float)(int32_t)magnitude * keeli_smallest(f));
    uint32_t bits = magnitude >> f.man == 0 ? subnormal : keeli_widen(magnitude, f);
    if (f.kind != KEEL_KIND_FINITE) {
        const uint32_t first_special = keeli_max_code(f) + 1u;
        const uint32_t special =
            f.kind == KEEL_KIND_IEEE && magnitude == first_special ? KEELI_F32_INF : KEELI_F32_NAN;
        bits = magnitude >= first_special ? special : bits;
    }
    return keeli_float_of(bits | sign);
}

/* bits: of |x|.  With m = 2^(23 - man) times the power of two below x, the sum x + m has its last
 * place where the code has it, so the addition rounds x and leaves the code in the low bits. */
KEELI_HD uint32_t keeli_round_nearest(uint32_t bits, keeli_layout f)
{
    const int32_t cut = KEELI_F32_MAN - f.man;
    if (f.exp == 8) { /* f32 itself, or the upper half of it; m would overflow */
        return cut == 0 ? bits : (bits + (1u << cut >> 1) - 1u + (bits >> cut & 1u)) >> cut;
    }
    const uint32_t smallest = keeli_min_exponent(f) << 23;
    const uint32_t x = keeli_min(bits, keeli_widen(keeli_max_code(f) + 1u, f));
    const uint32_t power = keeli_max(x & KEELI_F32_INF, smallest);
    const uint32_t m = power + ((uint32_t)cut << 23);
    const uint32_t sum = keeli_bits_of(keeli_float_of(x) + keeli_float_of(m));
    return sum - m + ((power - smallest) >> cut);
}

/* A magnitude in integers, the same for f32 and f64: value = significand * 2^(exponent - 127 - 55),
 * the leading one at bit 55, exponents counted as in f32. */
typedef struct keeli_magnitude {
    uint64_t significand;
    int32_t exponent;
    int32_t is_nan;
} keeli_magnitude;

KEELI_HD keeli_magnitude keeli_magnitude_of_f32(uint32_t bits)
{
    const uint32_t field = bits >> 23 & 0xffu;
    const uint64_t one = (uint64_t)(field != 0) << 23;
    keeli_magnitude x;
    x.significand = ((bits & 0x007fffffu) | one) << 32;
    x.exponent = (int32_t)keeli_max(field, 1u);
    x.is_nan = (bits & 0x7fffffffu) > KEELI_F32_INF;
    return x;
}

KEELI_HD keeli_magnitude keeli_magnitude_of_f64(uint64_t bits)
{
    const int32_t field = (int32_t)(bits >> 52 & 0x7ffu);
    const uint64_t one = (uint64_t)(field != 0) << 52;
    keeli_magnitude x;
    x.significand = ((bits & 0x000fffffffffffffu) | one) << 3;
    x.exponent = (field != 0 ? field : 1) - 1023 + KEELI_F32_BIAS;
    x.is_nan = (bits & 0x7fffffffffffffffu) > 0x7ff0000000000000u;
    return x;
}

/* The value in units of the code's last place as a number with 32 fraction bits, the last of which
 * also stands for all that lies below it; *out_base is the code of the binade's first value less
 * the leading one. */
KEELI_HD uint64_t keeli_fixed(keeli_magnitude x, keeli_layout f, uint32_t *out_base)
{
    const int32_t smallest = (int32_t)keeli_min_exponent(f);
    const int32_t exponent = x.exponent < 255 ? x.exponent : 255; /* more is beyond any format */
    const int32_t binade = exponent > smallest ? exponent : smallest;
    const int32_t distance = KEELI_F32_MAN - f.man + binade - exponent;
    const int32_t cut = distance < 63 ? distance : 63;
    const uint64_t lost = x.significand & (((uint64_t)1 << cut) - 1u);
    *out_base = (uint32_t)(binade - smallest) << f.man;
    return x.significand >> cut | (uint64_t)(lost != 0);
}

KEELI_HD uint32_t keeli_round_fixed_nearest(keeli_magnitude x, keeli_layout f)
{
    uint32_t base;
    const uint64_t fixed = keeli_fixed(x, f, &base);
    return base + (uint32_t)((fixed + 0x7fffffffu + (fixed >> 32 & 1u)) >> 32);
}

/* Up with probability fraction / 2^32, random being uniform. */
KEELI_HD uint32_t keeli_round_fixed_random(keeli_magnitude x, keeli_layout f, uint32_t random)
{
    uint32_t base;
    const uint64_t fixed = keeli_fixed(x, f, &base);
    return base + (uint32_t)((fixed + random) >> 32);
}

KEELI_HD uint32_t keeli_finish(uint32_t rounded, uint32_t sign, uint32_t nan_code, bool is_nan,
                               keeli_layout f, bool saturate)
{
    const uint32_t clamps = saturate || f.kind == KEEL_KIND_FINITE;
    const uint32_t magnitude = keeli_min(rounded, keeli_max_code(f) + 1u - clamps);
    return (is_nan ? nan_code : magnitude) | sign << (f.exp + f.man);
}

/* f32 to itself keeps the payload of a NaN, made quiet as a product would: whether there was one
 * does not show. */
KEELI_HD uint32_t keeli_finish_f32(uint32_t rounded, uint32_t bits, keeli_layout f, bool saturate)
{
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t nan_code = f.man == KEELI_F32_MAN ? magnitude | 0x00400000u : keeli_nan_code(f);
    return keeli_finish(rounded, bits >> 31, nan_code, magnitude > KEELI_F32_INF, f, saturate);
}

/* In loops, under round to nearest. */
KEELI_HD uint32_t keeli_encode(float x, keeli_layout f, bool saturate)
{
    const uint32_t bits = keeli_bits_of(x);
    return keeli_finish_f32(keeli_round_nearest(bits & 0x7fffffffu, f), bits, f, saturate);
}

KEELI_HD uint32_t keeli_encode_stochastic(float x, keeli_layout f, bool saturate, uint32_t random)
{
    const uint32_t bits = keeli_bits_of(x);
    const keeli_magnitude magnitude = keeli_magnitude_of_f32(bits);
    return keeli_finish_f32(keeli_round_fixed_random(magnitude, f, random), bits, f, saturate);
}

/* Single values, in any environment. */
KEELI_HD uint32_t keeli_encode_f32_bits(uint32_t bits, keeli_layout f, bool saturate)
{
    const keeli_magnitude magnitude = keeli_magnitude_of_f32(bits);
    return keeli_finish_f32(keeli_round_fixed_nearest(magnitude, f), bits, f, saturate);
}

KEELI_HD uint32_t keeli_encode_f64_bits(uint64_t bits, keeli_layout f, bool saturate)
{
    const keeli_magnitude magnitude = keeli_magnitude_of_f64(bits);
    return keeli_finish(keeli_round_fixed_nearest(magnitude, f), (uint32_t)(bits >> 63),
                        keeli_nan_code(f), magnitude.is_nan != 0, f, saturate);
}

/* Random bits as a function of (seed, index) alone: SplitMix64, after Steele, Lea and Flood 2014,
 * started at a mixed seed, so that neighbouring seeds do not give shifted copies of one sequence.
 */
KEELI_HD uint64_t keeli_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

KEELI_HD uint64_t keeli_random_key(uint64_t seed)
{
    return keeli_mix(seed + 0x9e3779b97f4a7c15u);
}

KEELI_HD uint32_t keeli_random(uint64_t key, uint64_t index)
{
    return (uint32_t)(keeli_mix(key + index * 0x9e3779b97f4a7c15u) >> 32);
}

#endif

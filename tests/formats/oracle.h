/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A slow reference for every format, from the definition alone: enumerate the codes, put a boundary
 * half way between neighbours, give a tie to the even code.  Shares nothing with formats/codec.h
 * but the table. */
#ifndef KEELI_TEST_ORACLE_H
#define KEELI_TEST_ORACLE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "keel/formats.h"

typedef struct oracle {
    keel_format format;
    const char *name;
    int exp, man, bias;
    keel_format_kind kind;
    uint32_t max_code;
    uint32_t *from; /* [c]: bits of the smallest f32 that rounds to c or more, c <= max_code + 1 */
    uint32_t cursor;
} oracle;

static inline uint32_t oracle_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float oracle_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The number a magnitude code stands for were no code special. */
static inline double oracle_magnitude(const oracle *o, uint32_t code)
{
    const int e = (int)(code >> o->man);
    const double fraction = (double)(code & ((1u << o->man) - 1u));
    if (e == 0) return ldexp(fraction, 1 - o->bias - o->man);
    return ldexp(ldexp(1, o->man) + fraction, e - o->bias - o->man);
}

static inline double oracle_midpoint(const oracle *o, uint32_t code)
{
    return (oracle_magnitude(o, code) + oracle_magnitude(o, code + 1)) / 2;
}

static inline bool oracle_is_inf(const oracle *o, uint32_t code)
{
    return o->kind == KEEL_KIND_IEEE && (code & ((1u << (o->exp + o->man)) - 1)) == o->max_code + 1;
}

static inline bool oracle_is_nan(const oracle *o, uint32_t code)
{
    const uint32_t magnitude = code & ((1u << (o->exp + o->man)) - 1);
    return magnitude > o->max_code && !oracle_is_inf(o, code);
}

static inline double oracle_decode(const oracle *o, uint32_t code)
{
    const uint32_t magnitude = code & ((1u << (o->exp + o->man)) - 1);
    const double sign = (code >> (o->exp + o->man)) & 1 ? -1.0 : 1.0;
    if (oracle_is_nan(o, code)) return NAN;
    if (oracle_is_inf(o, code)) return sign * INFINITY;
    return sign * oracle_magnitude(o, magnitude);
}

/* The code at or above max_code + 1 means overflow.  Fast where bits come in rising order. */
static inline uint32_t oracle_round(oracle *o, uint32_t magnitude_bits)
{
    uint32_t c = o->cursor;
    if (magnitude_bits < o->from[c]) c = 0;
    while (c <= o->max_code && magnitude_bits >= o->from[c + 1]) c++;
    return o->cursor = c;
}

static inline uint32_t oracle_sign(const oracle *o, bool negative)
{
    return (uint32_t)negative << (o->exp + o->man);
}

/* What a rounded magnitude becomes; not for NaN. */
static inline uint32_t oracle_finish(const oracle *o, uint32_t rounded, bool negative,
                                     bool saturate)
{
    const bool clamp = saturate || o->kind == KEEL_KIND_FINITE;
    if (rounded > o->max_code) rounded = clamp ? o->max_code : o->max_code + 1;
    return rounded | oracle_sign(o, negative);
}

/* Whether code is right for the f32 with these bits; any NaN code of the sign is right for NaN. */
static inline bool oracle_accepts(oracle *o, uint32_t bits, bool saturate, uint32_t code)
{
    const bool negative = bits >> 31;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u && o->kind != KEEL_KIND_FINITE)
        return oracle_is_nan(o, code) && code >> (o->exp + o->man) == (uint32_t)negative;
    return code == oracle_finish(o, oracle_round(o, magnitude), negative, saturate);
}

static inline uint32_t oracle_boundary(const oracle *o, uint32_t code)
{
    return oracle_bits((float)oracle_midpoint(o, code)) + (code % 2 == 0);
}

/* For up to 16 bits: f32 is itself. */
static inline oracle oracle_open(const keel_format_info *info)
{
    const uint32_t all = (1u << (info->exponent_bits + info->mantissa_bits)) - 1;
    oracle o = {.format = info->id,
                .name = info->name,
                .exp = info->exponent_bits,
                .man = info->mantissa_bits,
                .bias = info->bias,
                .kind = info->kind};
    o.max_code = o.kind == KEEL_KIND_FINITE ? all
                 : o.kind == KEEL_KIND_FN   ? all - 1
                                            : all - (1u << o.man);
    o.from = malloc(((size_t)o.max_code + 2) * sizeof *o.from);
    if (!o.from) abort();
    o.from[0] = 0;
    for (uint32_t c = 0; c <= o.max_code; c++) o.from[c + 1] = oracle_boundary(&o, c);
    return o;
}

static inline void oracle_close(oracle *o)
{
    free(o->from);
}

/* Every format that can be encoded, f32 aside. */
static inline void oracle_each(void (*check)(oracle *o))
{
    const keel_format_info *info;
    for (int32_t i = 0; (info = keel_format_at(i)); i++) {
        if (!info->can_encode || info->bits > 16) continue;
        oracle o = oracle_open(info);
        check(&o);
        oracle_close(&o);
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Reproducible random numbers: a failing trial is named by its seed. */
#ifndef TESTS_RANDOM_H
#define TESTS_RANDOM_H

#include <stdint.h>
#include <string.h>

typedef struct random_source {
    uint64_t state;
} random_source;

static inline random_source random_begin(uint64_t seed)
{
    const random_source r = {seed * 0xd1342543de82ef95u + 1};
    return r;
}

static inline uint64_t random_word(random_source *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 .. n - 1. */
static inline int64_t random_below(random_source *r, int64_t n)
{
    return (int64_t)(random_word(r) % (uint64_t)n);
}

static inline float random_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Any finite f32: every exponent alike, subnormals and both zeros included. */
static inline float random_finite(random_source *r)
{
    const uint32_t bits = (uint32_t)random_word(r);
    return random_float_of((bits & 0x7f800000u) == 0x7f800000u ? bits & 0x807fffffu : bits);
}

/* Between -1 and 1. */
static inline float random_unit(random_source *r)
{
    return (float)((double)(int64_t)random_word(r) * 0x1p-63);
}

#endif

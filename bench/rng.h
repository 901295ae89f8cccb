/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Random numbers without a state: the n-th number of a seed is a function of both, so that a
 * resumed run draws what the first would have drawn. */
#ifndef BENCH_RNG_H
#define BENCH_RNG_H

#include <stdint.h>

/* The finaliser of splitmix64 (Steele, Lea and Flood). */
static inline uint64_t rng_mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Mixing the seed first keeps the streams of neighbouring seeds from being shifts of one another.
 */
static inline uint64_t rng_bits(uint64_t seed, uint64_t n)
{
    return rng_mix(rng_mix(seed) + (n + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* From [0, 1). */
static inline double rng_uniform(uint64_t seed, uint64_t n)
{
    return (double)(rng_bits(seed, n) >> 11) * 0x1p-53;
}

/* From [0, bound); bound is small, so its bias is far below 2^-32. */
static inline int rng_below(uint64_t seed, uint64_t n, int bound)
{
    return (int)((rng_bits(seed, n) >> 32) * (uint64_t)bound >> 32);
}

#endif

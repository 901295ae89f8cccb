/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What lets one inline serve C, g++ and nvcc. */
#ifndef KEELI_PORTABLE_H
#define KEELI_PORTABLE_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#    define KEELI_HD __host__ __device__ static __forceinline__
#else
#    define KEELI_HD static inline __attribute__((always_inline, unused))
#endif

KEELI_HD uint32_t keeli_bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

KEELI_HD float keeli_float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

KEELI_HD uint64_t keeli_bits_of_f64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

KEELI_HD double keeli_f64_of(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

#endif

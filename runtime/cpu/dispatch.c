/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Which of the compiled instruction sets this machine can run, found out once. */
#include <pthread.h>

#include "internal.h"
#include "kernels.h"

#if defined(__x86_64__)

#    include <cpuid.h>

/* Compilers name the levels of x86-64 only since gcc 12 and clang 17, and older ones not every
 * feature; what stands in neither list is read from the processor.  The vector features imply that
 * the system saves their registers. */
static bool has_lzcnt_movbe_f16c(void)
{
    const unsigned lzcnt = 1u << 5, movbe = 1u << 22, f16c = 1u << 29;
    unsigned a, b, basic, extended, d;
    if (!__get_cpuid(1, &a, &b, &basic, &d)) return false;
    if (!__get_cpuid(0x80000001u, &a, &b, &extended, &d)) return false;
    return (basic & movbe) && (basic & f16c) && (extended & lzcnt);
}

static bool has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") &&
           has_lzcnt_movbe_f16c();
}

static bool has_v4(void)
{
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

#endif

static bool has_baseline(void)
{
    return true;
}

#define KERNELS(text, set)                                                                        \
    {                                                                                             \
        text, keeli_codec_kernels_##set, &keeli_stats_kernels_##set, &keeli_update_kernels_##set, \
            &keeli_matmul_kernels_##set                                                           \
    }

/* Best first. */
static const struct {
    bool (*usable)(void);
    keeli_cpu_kernels kernels;
} compiled[] = {
#ifdef KEELI_HAVE_v4
    {has_v4, KERNELS("x86-64-v4", v4)},
#endif
#ifdef KEELI_HAVE_v3
    {has_v3, KERNELS("x86-64-v3", v3)},
#endif
    {has_baseline, KERNELS("baseline", baseline)},
};

enum { COMPILED = sizeof compiled / sizeof *compiled };

static const keeli_cpu_kernels *usable[COMPILED];
static pthread_once_t found = PTHREAD_ONCE_INIT;

static void find_usable(void)
{
    int32_t count = 0;
    for (int32_t i = 0; i < COMPILED; i++)
        if (compiled[i].usable()) usable[count++] = &compiled[i].kernels;
}

const keeli_cpu_kernels *keeli_cpu_kernels_at(int32_t index)
{
    pthread_once(&found, find_usable);
    return index >= 0 && index < COMPILED ? usable[index] : NULL;
}

const keeli_cpu_kernels *keeli_cpu_kernels_get(void)
{
    return keeli_cpu_kernels_at(0);
}

const char *keel_cpu_isa(void)
{
    return keeli_cpu_kernels_get()->isa;
}

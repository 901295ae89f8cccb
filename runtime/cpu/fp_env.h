/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The floating-point environment the kernels compute in, whatever the caller's is: round to
 * nearest, subnormals kept, no traps.  Set once per call; end puts back every bit of the caller's,
 * status flags included.  A compiler does not know that arithmetic depends on the environment, so
 * memory is fenced on both sides: what is loaded after begin and stored before end stays inside. */
#ifndef KEELI_FP_ENV_H
#define KEELI_FP_ENV_H

#if defined(__x86_64__)

#    include <xmmintrin.h>

#    define KEELI_FP_FENCE() __asm__ volatile("" ::: "memory")

typedef struct keeli_fp_env {
    unsigned saved;
} keeli_fp_env;

static inline keeli_fp_env keeli_fp_begin(void)
{
    const keeli_fp_env env = {_mm_getcsr()};
    _mm_setcsr(0x1f80u);
    KEELI_FP_FENCE();
    return env;
}

static inline void keeli_fp_end(keeli_fp_env env)
{
    KEELI_FP_FENCE();
    _mm_setcsr(env.saved);
}

#else

#    include <fenv.h>

typedef struct keeli_fp_env {
    fenv_t saved;
} keeli_fp_env;

static inline keeli_fp_env keeli_fp_begin(void)
{
    keeli_fp_env env;
    fegetenv(&env.saved);
    fesetenv(FE_DFL_ENV);
    return env;
}

static inline void keeli_fp_end(keeli_fp_env env)
{
    fesetenv(&env.saved);
}

#endif
#endif

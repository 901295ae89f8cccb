/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The tile kernels of the CPU device: straight loops over at most KEELI_TILE elements that stay in
 * the L1 cache.  tile_*.c are compiled once per instruction set from the same source; every
 * build gives the same bits, so the choice at run time is only one of speed.  Drivers in the other
 * files of this folder walk tensors tile by tile: memory is read once, and each kernel sees the
 * tile while it is hot. */
#ifndef KEELI_KERNELS_H
#define KEELI_KERNELS_H

#include "keel/ext.h"
#include "fp_env.h"
#include "optim.h"

enum {
    KEELI_TILE = 1024 /* also the block of KEEL_NORM_BLOCK */
};

/* What an encode does: codes above the largest finite one, infinite values included and NaN not;
 * codes that are a zero, zero values included. */
typedef struct keeli_code_counts {
    int32_t above;
    int32_t zero;
} keeli_code_counts;

/* Of stochastic rounding: element i draws from (seed, offset + i). */
typedef struct keeli_draw {
    uint64_t seed;
    uint64_t offset;
} keeli_draw;

/* What is encoded is fl32(x[i] * scale).  Code memory may have any alignment; it does not overlap x
 * or out.  All but decode are NULL where a format is described only. */
typedef struct keeli_codec_kernels {
    void (*decode)(const void *src, float *out, int32_t n);
    void (*encode)(const float *x, float scale, void *dst, int32_t n, bool saturate);
    void (*encode_stochastic)(const float *x, float scale, void *dst, int32_t n, bool saturate,
                              keeli_draw draw);
    keeli_code_counts (*count)(const float *x, float scale, int32_t n);
    keeli_code_counts (*count_stochastic)(const float *x, float scale, int32_t n, keeli_draw draw);
} keeli_codec_kernels;

/* One tile of an exact sum of squares: what lies in [.., 2^top) as two f64 whose sum is exact, see
 * lane_norm.h. */
struct keeli_limbs;

typedef struct keeli_stats_kernels {
    void (*multiply)(float *x, float factor, int32_t n); /* x[i] = fl32(x[i] * factor) */
    uint32_t (*absmax)(const float *x, int32_t n); /* max of bits(|x[i]|): NaN > inf > finite */
    int32_t (*count_zero)(const float *x, int32_t n);
    uint32_t (*scan)(const float *x, int32_t n, int32_t *zeros); /* absmax, and count_zero aside */
    void (*norm_exact)(const float *x, int32_t n, uint32_t absmax, struct keeli_limbs *sum);
    double (*norm_block)(const float *x, int32_t n); /* all finite */
} keeli_stats_kernels;

typedef struct keeli_update_kernels {
    void (*adamw)(float *g, float *p, float *m, float *v, int32_t n, const keeli_group_scalars *s);
    void (*sgd)(float *g, float *p, float *buf, int32_t n, const keeli_group_scalars *s);
} keeli_update_kernels;

/* Panels of a matrix product: a is [KEELI_PANEL_M][KEELI_PANEL_K], b [K][N], c [M][N].  Loops run
 * over whole registers, so m and n are rounded up to the padding, and what lies there is written.
 */
enum {
    KEELI_PANEL_M = 128,
    KEELI_PANEL_N = 128,
    KEELI_PANEL_K = 64,
    KEELI_PANEL_PAD_M = 8,
    KEELI_PANEL_PAD_N = 32
};

typedef struct keeli_matmul_kernels {
    /* c[i][j] += a[i][p] * b[p][j] for p = 0 .. k - 1 in this order, each step two f32 roundings */
    void (*multiply_add)(const float *a, const float *b, float *c, int32_t m, int32_t n, int32_t k);
    /* c[j] = fl32(c[j] * scale + bias[j] + old[j]), inside in f64 */
    void (*finish)(float *c, int32_t n, double scale, const float *bias, const float *old);
} keeli_matmul_kernels;

/* Each tile_*.c exports one table per instruction set it is compiled for, named after it:
 *   const keeli_stats_kernels KEELI_ISA_NAME(keeli_stats_kernels) = {...};
 * KEELI_ISA is given by the build: baseline, v3 or v4. */
#define KEELI_PASTE_(stem, isa) stem##_##isa
#define KEELI_PASTE(stem, isa)  KEELI_PASTE_(stem, isa)
#define KEELI_ISA_NAME(stem)    KEELI_PASTE(stem, KEELI_ISA)

#define KEELI_ISA_TABLES(isa)                                     \
    extern const keeli_codec_kernels keeli_codec_kernels_##isa[]; \
    extern const keeli_stats_kernels keeli_stats_kernels_##isa;   \
    extern const keeli_update_kernels keeli_update_kernels_##isa; \
    extern const keeli_matmul_kernels keeli_matmul_kernels_##isa;
KEELI_ISA_TABLES(baseline)
KEELI_ISA_TABLES(v3)
KEELI_ISA_TABLES(v4)

typedef struct keeli_cpu_kernels {
    const char *isa;
    const keeli_codec_kernels *codec; /* indexed by keel_format */
    const keeli_stats_kernels *stats;
    const keeli_update_kernels *update;
    const keeli_matmul_kernels *matmul;
} keeli_cpu_kernels;

/* Every set this machine can run, best first; NULL past the last one. */
const keeli_cpu_kernels *keeli_cpu_kernels_at(int32_t index);

/* The best set this machine has; chosen once. */
const keeli_cpu_kernels *keeli_cpu_kernels_get(void);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The loops of a matrix product on packed panels.
 *
 * Every element of the result has one f32 accumulator, and its products are rounded and added one
 * by one in ascending k.  Registers, panels and instruction sets only choose which elements run
 * side by side, so they cannot change a bit.  That rules out a fused multiply-add, which the
 * baseline does not have, and costs half the speed of one. */
#include "kernels.h"

/* A register, and as many rows of two registers as there are registers for. */
#if defined(__AVX512F__)
#    define LANES 16
#    define ROWS  8
#elif defined(__AVX__)
#    define LANES 8
#    define ROWS  4
#else
#    define LANES 4
#    define ROWS  4
#endif

enum { COLS = 2 * LANES };

_Static_assert(KEELI_PANEL_PAD_M % ROWS == 0 && KEELI_PANEL_PAD_N % COLS == 0, "padding fits");

typedef float f32_lanes __attribute__((vector_size(LANES * 4)));

static inline __attribute__((always_inline)) void load(const float *x, f32_lanes *lanes)
{
    memcpy(lanes, x, sizeof *lanes);
}

/* ROWS x COLS elements; the accumulators stay in registers for the panel's whole depth. */
static inline __attribute__((always_inline)) void
micro(const float *restrict a, const float *restrict b, float *restrict c, int32_t k)
{
    f32_lanes sum[ROWS][2];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 2; j++) load(c + i * KEELI_PANEL_N + j * LANES, &sum[i][j]);
    for (int32_t p = 0; p < k; p++) {
        f32_lanes row[2];
        for (int j = 0; j < 2; j++) load(b + p * KEELI_PANEL_N + j * LANES, &row[j]);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < 2; j++) sum[i][j] += a[i * KEELI_PANEL_K + p] * row[j];
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 2; j++)
            memcpy(c + i * KEELI_PANEL_N + j * LANES, &sum[i][j], sizeof sum[i][j]);
}

/* clang halves wide registers unless a function says that it means them. */
#if defined(__clang__) && defined(__AVX512F__)
#    define WIDE __attribute__((min_vector_width(512)))
#else
#    define WIDE
#endif

/* Columns outside: their slice of b stays in the L1 cache while the rows of a pass by. */
WIDE static void multiply_add(const float *a, const float *b, float *c, int32_t m, int32_t n,
                              int32_t k)
{
    for (int32_t j = 0; j < n; j += COLS)
        for (int32_t i = 0; i < m; i += ROWS)
            micro(a + i * KEELI_PANEL_K, b + j, c + i * KEELI_PANEL_N + j, k);
}

static void finish(float *c, int32_t n, double scale, const float *bias, const float *old)
{
    for (int32_t j = 0; j < n; j++)
        c[j] = (float)((double)c[j] * scale + (double)bias[j] + (double)old[j]);
}

extern const keeli_matmul_kernels KEELI_ISA_NAME(keeli_matmul_kernels);
const keeli_matmul_kernels KEELI_ISA_NAME(keeli_matmul_kernels) = {
    .multiply_add = multiply_add,
    .finish = finish,
};

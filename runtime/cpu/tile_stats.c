/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Statistics of a tile: largest magnitude, zeros, sum of squares.
 *
 * The exact sum.  The square of an f32 is exact in f64.  With every square below 2^top, adding and
 * subtracting 1.5 * 2^(unit + 52) rounds it to a multiple of 2^unit; what was rounded off is exact
 * again.  Two such folds split each square into
 *
 *      2^top        2^(top-42)     2^(top-84)
 *      | high, 43 bits | low, 42 bits | rest
 *
 * and 1,024 highs or lows still add up exactly in one f64.  A rest is left only by elements below
 * 2^-18 of the tile's largest; then the tile is folded again, two folds at a time, from what was
 * left, until nothing is.  Integer arithmetic on wide words would give the same number. */
#include "kernels.h"
#include "limbs.h"

/* As wide as a register: gcc spills vectors that are wider. */
#if defined(__AVX512F__)
#    define LANES 8
#elif defined(__AVX__)
#    define LANES 4
#else
#    define LANES 2
#endif

enum { FOLD_BITS = 42, TREE_LANES = 16 };

/* GNU C vectors: one source for every instruction set. */
typedef float f32_lanes __attribute__((vector_size(LANES * 4)));
typedef double f64_lanes __attribute__((vector_size(LANES * 8)));
typedef int64_t i64_lanes __attribute__((vector_size(LANES * 8)));

static void multiply(float *x, float factor, int32_t n)
{
    for (int32_t i = 0; i < n; i++) x[i] *= factor;
}

static uint32_t absmax(const float *x, int32_t n)
{
    uint32_t max = 0;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t magnitude = keeli_bits_of(x[i]) & 0x7fffffffu;
        max = magnitude > max ? magnitude : max;
    }
    return max;
}

static int32_t count_zero(const float *x, int32_t n)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) count += (keeli_bits_of(x[i]) & 0x7fffffffu) == 0;
    return count;
}

/* Both of the above in one pass over the tile. */
static uint32_t scan(const float *x, int32_t n, int32_t *zeros)
{
    uint32_t max = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t magnitude = keeli_bits_of(x[i]) & 0x7fffffffu;
        max = magnitude > max ? magnitude : max;
        count += magnitude == 0;
    }
    *zeros = count;
    return max;
}

/* Adding this and taking it away rounds to a multiple of 2^unit. */
static double fold_constant(int unit)
{
    return 1.5 * keeli_f64_of((uint64_t)(unit + 52 + 1023) << 52);
}

typedef struct fold {
    f64_lanes constant;
    f64_lanes sum;
} fold;

static inline fold fold_begin(int unit)
{
    fold f;
    const f64_lanes zero = {0};
    f.constant = zero + fold_constant(unit);
    f.sum = zero;
    return f;
}

/* Take the multiple of the fold's unit out of value; return what is left. */
static inline __attribute__((always_inline)) void fold_take(fold *f, f64_lanes *value)
{
    const f64_lanes rounded = (*value + f->constant) - f->constant;
    f->sum += rounded;
    *value -= rounded;
}

static void fold_end(const fold *f, keeli_limbs *sum)
{
    double total = 0; /* exact: at most 53 bits in all */
    for (int i = 0; i < LANES; i++) total += f->sum[i];
    keeli_limbs_add(sum, total);
}

/* By pointer: vectors wider than the registers have no calling convention. */
static inline __attribute__((always_inline)) void squares_at(const float *x, f64_lanes *squares)
{
    f32_lanes narrow;
    memcpy(&narrow, x, sizeof narrow);
    const f64_lanes wide = __builtin_convertvector(narrow, f64_lanes);
    *squares = wide * wide;
}

static inline int any(const i64_lanes *bits)
{
    int64_t all = 0;
    for (int i = 0; i < LANES; i++) all |= (*bits)[i];
    return all != 0;
}

/* What two folds left of the squares: fold it again. */
static void fold_rest(f64_lanes *rest, int32_t groups, int unit, keeli_limbs *sum)
{
    for (int more = 1; more; unit -= 2 * FOLD_BITS) {
        fold high = fold_begin(unit - FOLD_BITS), low = fold_begin(unit - 2 * FOLD_BITS);
        i64_lanes left = {0};
        for (int32_t i = 0; i < groups; i++) {
            fold_take(&high, &rest[i]);
            fold_take(&low, &rest[i]);
            left |= (i64_lanes)rest[i];
        }
        fold_end(&high, sum);
        fold_end(&low, sum);
        more = any(&left);
    }
}

/* Exponent e with 2^e <= |x| < 2^(e+1); subnormals count as the smallest normals. */
static int exponent_of(uint32_t magnitude)
{
    const int biased = (int)(magnitude >> 23);
    return (biased ? biased : 1) - 127;
}

/* n is padded with zeros to whole groups by the copy of the last few. */
static void norm_exact(const float *x, int32_t n, uint32_t max, keeli_limbs *sum)
{
    f64_lanes rest[KEELI_TILE / LANES];
    float tail[LANES] = {0};
    const int32_t whole = n / LANES, groups = (n + LANES - 1) / LANES;
    memcpy(tail, x + whole * LANES, (size_t)(n - whole * LANES) * sizeof *x);

    const int top = 2 * exponent_of(max) + 2;
    fold high = fold_begin(top - FOLD_BITS), low = fold_begin(top - 2 * FOLD_BITS);
    i64_lanes left = {0};
    for (int32_t i = 0; i < groups; i++) {
        squares_at(i < whole ? x + i * LANES : tail, &rest[i]);
        fold_take(&high, &rest[i]);
        fold_take(&low, &rest[i]);
        left |= (i64_lanes)rest[i];
    }
    fold_end(&high, sum);
    fold_end(&low, sum);
    if (any(&left)) fold_rest(rest, groups, top - 2 * FOLD_BITS, sum);
}

/* The tree of KEEL_NORM_BLOCK: 16 lanes in order, then halves onto halves. */
static inline __attribute__((always_inline)) void add_row(const float *x, f64_lanes *sum)
{
    for (int i = 0; i < TREE_LANES / LANES; i++) {
        f64_lanes squares;
        squares_at(x + i * LANES, &squares);
        sum[i] += squares;
    }
}

static double norm_block(const float *x, int32_t n)
{
    f64_lanes sum[TREE_LANES / LANES] = {{0}};
    const int32_t whole = n / TREE_LANES * TREE_LANES;
    for (int32_t i = 0; i < whole; i += TREE_LANES) add_row(x + i, sum);
    float tail[TREE_LANES] = {0};
    memcpy(tail, x + whole, (size_t)(n - whole) * sizeof *x);
    add_row(tail, sum);

    double s[TREE_LANES];
    memcpy(s, sum, sizeof s);
    for (int half = TREE_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) s[i] += s[i + half];
    return s[0];
}

extern const keeli_stats_kernels KEELI_ISA_NAME(keeli_stats_kernels);
const keeli_stats_kernels KEELI_ISA_NAME(keeli_stats_kernels) = {
    .multiply = multiply,
    .absmax = absmax,
    .count_zero = count_zero,
    .scan = scan,
    .norm_exact = norm_exact,
    .norm_block = norm_block,
};

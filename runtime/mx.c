/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Block scaling on the CPU: each tile of a row is decoded once, and its blocks are measured, scaled
 * and encoded while it lies in the L1 cache. */
#include "cpu/cpu.h"
#include "internal.h"
#include "keel/mx.h"
#include "rule_mx.h"

/* More than memory holds, and small enough that counts and sizes in bytes stay in int64_t. */
#define NUMEL_MAX (INT64_MAX / 64)

static int64_t blocks_of(int64_t cols)
{
    return cols / KEEL_MX_BLOCK + (cols % KEEL_MX_BLOCK != 0);
}

int64_t keel_mx_scale_count(int64_t rows, int64_t cols)
{
    if (rows < 0 || cols < 0 || (cols > 0 && rows > NUMEL_MAX / cols)) return -1;
    return rows * blocks_of(cols);
}

/* Rows to visit: a matrix without columns may have any number. */
static int64_t rows_of(int64_t rows, int64_t cols)
{
    return cols > 0 ? rows : 0;
}

static keel_status check_format(const char *fn, keel_format format)
{
    const keel_format_info *info = keel_format_get(format);
    if (!info || !info->can_encode || info->bits > 8)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "format=%s (want e4m3, e5m2, e3m2, e2m3, e2m1)",
                             info ? info->name : "unknown");
    return KEEL_OK;
}

static keel_status check_sizes(const char *fn, int64_t rows, int64_t cols)
{
    if (keel_mx_scale_count(rows, cols) < 0)
        return keel_ext_fail(KEEL_ERR_INVALID, fn,
                             "rows=%lld, cols=%lld (want >= 0, product <= %lld)", (long long)rows,
                             (long long)cols, (long long)NUMEL_MAX);
    return KEEL_OK;
}

/* By its bits: a caller's DAZ would call a subnormal scale 0. */
static keel_status check_src(const char *fn, const keel_tensor *src, int64_t rows, int64_t cols,
                             keel_mx_rule rule)
{
    TRY(keeli_tensor_check(fn, "src", src));
    if (src->numel != rows * cols)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "src.numel=%lld (want rows * cols = %lld)",
                             (long long)src->numel, (long long)(rows * cols));
    const uint32_t inv = src->scale_inv ? keeli_bits_of(*src->scale_inv) : keeli_bits_of(1.0f);
    if (inv == 0 || inv >= KEELI_F32_INF)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "src.scale_inv=%g (want finite and > 0)",
                             (double)*src->scale_inv);
    if ((uint32_t)rule > KEEL_MX_FLOOR)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "rule=%d (want 0..%d)", (int)rule,
                             (int)KEEL_MX_FLOOR);
    return KEEL_OK;
}

typedef struct span {
    const char *name;
    const void *at;
    int64_t nbytes;
} span;

/* Every span is there, and no two have a byte in common. */
static keel_status check_spans(const char *fn, const span *spans)
{
    for (int i = 0; i < 3; i++) {
        const uintptr_t at = (uintptr_t)spans[i].at;
        if (!at && spans[i].nbytes > 0)
            return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s is NULL (want %lld bytes)",
                                 spans[i].name, (long long)spans[i].nbytes);
        for (int k = 0; k < i && spans[i].nbytes > 0; k++) {
            const uintptr_t from = (uintptr_t)spans[k].at;
            if (at + (uintptr_t)spans[i].nbytes <= from || from + (uintptr_t)spans[k].nbytes <= at)
                continue;
            return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s overlaps %s (want nothing in common)",
                                 spans[i].name, spans[k].name);
        }
    }
    return KEEL_OK;
}

typedef struct caster {
    const keeli_cpu_kernels *kernels;
    const keeli_codec_kernels *codec;
    uint32_t max; /* bits of the format's largest value */
    keel_mx_rule rule;
    keel_cast_stats *stats; /* NULL: do not count */
} caster;

static void count_source(const caster *c, const float *x, int32_t n, uint32_t absmax)
{
    if (absmax > keeli_bits_of(c->stats->amax)) c->stats->amax = keeli_float_of(absmax);
    if (absmax < KEELI_F32_INF) return;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t magnitude = keeli_bits_of(x[i]) & 0x7fffffffu;
        c->stats->inf_count += magnitude == KEELI_F32_INF;
        c->stats->nan_count += magnitude > KEELI_F32_INF;
    }
}

static void cast_block(const caster *c, const float *x, int32_t n, uint8_t *codes, uint8_t *scale)
{
    const uint32_t absmax = c->kernels->stats->absmax(x, n);
    *scale = (uint8_t)keeli_mx_scale(absmax, c->max, c->rule);
    const float inverse = keeli_mx_inverse(*scale);
    c->codec->encode(x, inverse, codes, n, true);
    if (!c->stats) return;
    const keeli_code_counts counts = c->codec->count(x, inverse, n);
    count_source(c, x, n, absmax);
    c->stats->saturated += counts.above;
    c->stats->flushed += counts.zero - c->kernels->stats->count_zero(x, n);
}

static int32_t shorter(int64_t left, int32_t most)
{
    return left < most ? (int32_t)left : most;
}

static void cast_row(const caster *c, const keel_tensor *src, int64_t first, int64_t cols,
                     uint8_t *codes, uint8_t *scales)
{
    _Alignas(64) float buffer[KEELI_TILE];
    KEELI_FOR_TILES (at, n, cols) {
        const float *x = keeli_tile_load(c->kernels, src, first + at, (int32_t)n, buffer);
        for (int32_t i = 0; i < n; i += KEEL_MX_BLOCK)
            cast_block(c, x + i, shorter(n - i, KEEL_MX_BLOCK), codes + at + i,
                       scales + (at + i) / KEEL_MX_BLOCK);
    }
}

keel_status keel_mx_quantize(const keel_tensor *src, int64_t rows, int64_t cols, keel_format format,
                             keel_mx_rule rule, uint8_t *codes, uint8_t *scales,
                             keel_cast_stats *out_stats)
{
    TRY(check_sizes(__func__, rows, cols));
    TRY(check_format(__func__, format));
    TRY(check_src(__func__, src, rows, cols, rule));
    const int64_t width = keel_format_get(src->format)->storage_bytes;
    const span spans[] = {{"src.data", src->data, src->numel * width},
                          {"codes", codes, rows * cols},
                          {"scales", scales, keel_mx_scale_count(rows, cols)}};
    TRY(check_spans(__func__, spans));

    const keeli_cpu_kernels *kernels = keeli_cpu_kernels_get();
    keel_cast_stats stats = {0};
    const caster c = {kernels, &kernels->codec[format],
                      keeli_bits_of((float)keel_format_get(format)->max), rule,
                      out_stats ? &stats : NULL};
    const keeli_fp_env env = keeli_fp_begin();
    for (int64_t row = 0; row < rows_of(rows, cols); row++)
        cast_row(&c, src, row * cols, cols, codes + row * cols, scales + row * blocks_of(cols));
    keeli_fp_end(env);
    stats.saturated -= stats.inf_count;
    if (out_stats) *out_stats = stats;
    return KEEL_OK;
}

/* Products are exact: no format has bits below 2^-22, and X none below 2^-127. */
keel_status keel_mx_dequantize(const uint8_t *codes, const uint8_t *scales, int64_t rows,
                               int64_t cols, keel_format format, float *out)
{
    TRY(check_sizes(__func__, rows, cols));
    TRY(check_format(__func__, format));
    const span spans[] = {{"codes", codes, rows * cols},
                          {"scales", scales, keel_mx_scale_count(rows, cols)},
                          {"out", out, rows * cols * (int64_t)sizeof *out}};
    TRY(check_spans(__func__, spans));

    const keeli_cpu_kernels *kernels = keeli_cpu_kernels_get();
    const keeli_fp_env env = keeli_fp_begin();
    for (int64_t row = 0; row < rows_of(rows, cols); row++)
        for (int64_t at = 0; at < cols; at += KEEL_MX_BLOCK, scales++) {
            const int32_t n = shorter(cols - at, KEEL_MX_BLOCK);
            const int64_t i = row * cols + at;
            kernels->codec[format].decode(codes + i, out + i, n);
            kernels->stats->multiply(out + i, keeli_decode_scale(*scales), n);
        }
    keeli_fp_end(env);
    return KEEL_OK;
}

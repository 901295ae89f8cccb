/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Casts on the CPU: each tile of the source is decoded, measured, scaled and encoded while it lies
 * in the L1 cache, so that memory is read once and written once. */
#include "codec.h"
#include "cpu.h"

typedef struct cast {
    const keeli_cpu_kernels *kernels;
    const keeli_codec_kernels *codec; /* of dst */
    const keel_tensor *src;
    const keel_tensor *dst;
    const keel_cast_options *options;
    int64_t dst_bytes; /* of an element */
    float scale;
    bool saturate;
    bool stochastic;
} cast;

/* The host can read the scales, so a bad one is refused before it makes garbage of the data.  By
 * its bits: a caller's DAZ would call a subnormal scale 0. */
static keel_status check_scale(const char *name, const float *scale)
{
    const uint32_t bits = scale ? keeli_bits_of(*scale) : keeli_bits_of(1.0f);
    if (bits == 0 || bits >= KEELI_F32_INF)
        return keel_ext_fail(KEEL_ERR_INVALID, "keel_quantize", "%s=%g (want finite and > 0)", name,
                             (double)*scale);
    return KEEL_OK;
}

static void count_nonfinite(const float *x, int32_t n, keel_cast_stats *stats)
{
    int32_t inf = 0, nan = 0;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t magnitude = keeli_bits_of(x[i]) & 0x7fffffffu;
        inf += magnitude == KEELI_F32_INF;
        nan += magnitude > KEELI_F32_INF;
    }
    stats->inf_count += inf;
    stats->nan_count += nan;
}

static void count_source(const cast *c, const float *x, int32_t n, keel_cast_stats *stats)
{
    const uint32_t absmax = c->kernels->stats->absmax(x, n);
    if (absmax > keeli_bits_of(stats->amax)) stats->amax = keeli_float_of(absmax);
    if (absmax >= KEELI_F32_INF) count_nonfinite(x, n, stats);
}

static keeli_draw draw_at(const cast *c, int64_t at)
{
    const keeli_draw draw = {c->options->seed, c->options->offset + (uint64_t)at};
    return draw;
}

/* Codes are counted whole, so that a product which overflows or underflows already in f32 counts;
 * sources that were infinite or zero before are taken off. */
static void count_codes(const cast *c, const float *x, int64_t at, int32_t n,
                        keel_cast_stats *stats)
{
    const keeli_code_counts codes = c->stochastic
                                        ? c->codec->count_stochastic(x, c->scale, n, draw_at(c, at))
                                        : c->codec->count(x, c->scale, n);
    stats->saturated += codes.above;
    stats->flushed += codes.zero - c->kernels->stats->count_zero(x, n);
}

static void encode(const cast *c, const float *x, int64_t at, int32_t n)
{
    unsigned char *dst = (unsigned char *)c->dst->data + at * c->dst_bytes;
    if (c->stochastic)
        c->codec->encode_stochastic(x, c->scale, dst, n, c->saturate, draw_at(c, at));
    else
        c->codec->encode(x, c->scale, dst, n, c->saturate);
}

static void cast_tile(const cast *c, int64_t at, int32_t n, keeli_cast_depth depth,
                      keel_cast_stats *stats)
{
    _Alignas(64) float buffer[KEELI_TILE];
    const float *x = keeli_tile_load(c->kernels, c->src, at, n, buffer);
    if (x != buffer && c->dst->data == c->src->data) x = memcpy(buffer, x, (size_t)n * sizeof *x);
    if (depth >= KEELI_CAST_AMAX) count_source(c, x, n, stats);
    if (depth >= KEELI_CAST_COUNTS) count_codes(c, x, at, n, stats);
    encode(c, x, at, n);
}

static cast prepare(const keel_tensor *src, const keel_tensor *dst,
                    const keel_cast_options *options)
{
    const keel_format_info *info = keel_format_get(dst->format);
    const keeli_cpu_kernels *kernels = keeli_cpu_kernels_get();
    const cast c = {
        .kernels = kernels,
        .codec = &kernels->codec[dst->format],
        .src = src,
        .dst = dst,
        .options = options,
        .dst_bytes = info->storage_bytes,
        .scale = dst->scale ? *dst->scale : 1.0f,
        .saturate = options->overflow == KEEL_OVERFLOW_DEFAULT
                        ? info->bits <= 8
                        : options->overflow == KEEL_OVERFLOW_SATURATE,
        .stochastic = options->rounding == KEEL_ROUND_STOCHASTIC,
    };
    return c;
}

keel_status keeli_cpu_cast(const keel_tensor *src, const keel_tensor *dst,
                           const keel_cast_options *options, keeli_cast_depth depth,
                           keel_cast_stats *out_stats)
{
    TRY(check_scale("src.scale_inv", src->scale_inv));
    TRY(check_scale("dst.scale", dst->scale));
    const cast c = prepare(src, dst, options);
    keel_cast_stats stats = {0};
    const keeli_fp_env env = keeli_fp_begin();
    KEELI_FOR_TILES (at, n, src->numel) cast_tile(&c, at, (int32_t)n, depth, &stats);
    keeli_fp_end(env);
    if (depth >= KEELI_CAST_COUNTS) stats.saturated -= stats.inf_count;
    if (out_stats) *out_stats = stats;
    return KEEL_OK;
}

keel_status keeli_cpu_quantize(const keel_device *device, const keel_tensor *src,
                               const keel_tensor *dst, const keel_cast_options *options,
                               keel_cast_stats *out_stats, keel_stream stream)
{
    (void)device;
    (void)stream;
    return keeli_cpu_cast(src, dst, options, out_stats ? KEELI_CAST_COUNTS : KEELI_CAST_PLAIN,
                          out_stats);
}

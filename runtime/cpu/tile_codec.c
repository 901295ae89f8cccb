/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Decode and encode of a tile, for every row of formats.def: the inlines of codec.h in loops that
 * the compiler vectorises.  A function below takes a layout; the expansions at the end make it a
 * constant, so each kernel is compiled for its format. */
#include "codec.h"
#include "kernels.h"

static const int32_t storage_bytes[] = {
#define X(NAME, id, text, bits, exp, man, bias, kind) [id] = (bits + 7) / 8,
#include "keel/formats.def"
#undef X
};

/* One code at index i of memory of any alignment; width is a constant. */
KEELI_HD uint32_t load_code(const unsigned char *src, int32_t i, int32_t width)
{
    uint16_t half;
    uint32_t word;
    if (width == 1) return src[i];
    if (width == 2) {
        memcpy(&half, src + (size_t)i * sizeof half, sizeof half);
        return half;
    }
    memcpy(&word, src + (size_t)i * sizeof word, sizeof word);
    return word;
}

KEELI_HD void store_code(unsigned char *dst, int32_t i, int32_t width, uint32_t code)
{
    const uint16_t half = (uint16_t)code;
    if (width == 1)
        dst[i] = (unsigned char)code;
    else if (width == 2)
        memcpy(dst + (size_t)i * sizeof half, &half, sizeof half);
    else
        memcpy(dst + (size_t)i * sizeof code, &code, sizeof code);
}

KEELI_HD void decode(const unsigned char *restrict src, float *restrict out, int32_t n,
                     keeli_layout f, int32_t width)
{
    for (int32_t i = 0; i < n; i++) out[i] = keeli_decode(load_code(src, i, width), f);
}

/* Without a product, subnormals of the source cost nothing. */
KEELI_HD void encode(const float *restrict x, float scale, unsigned char *restrict dst, int32_t n,
                     bool saturate, keeli_layout f, int32_t width)
{
    if (scale == 1.0f)
        for (int32_t i = 0; i < n; i++) store_code(dst, i, width, keeli_encode(x[i], f, saturate));
    else
        for (int32_t i = 0; i < n; i++)
            store_code(dst, i, width, keeli_encode(x[i] * scale, f, saturate));
}

KEELI_HD void encode_stochastic(const float *restrict x, float scale, unsigned char *restrict dst,
                                int32_t n, bool saturate, keeli_draw draw, keeli_layout f,
                                int32_t width)
{
    const uint64_t key = keeli_random_key(draw.seed);
    for (int32_t i = 0; i < n; i++) {
        const uint32_t random = keeli_random(key, draw.offset + (uint64_t)i);
        store_code(dst, i, width, keeli_encode_stochastic(x[i] * scale, f, saturate, random));
    }
}

KEELI_HD void count_code(keeli_code_counts *counts, uint32_t bits, uint32_t rounded, keeli_layout f)
{
    counts->above += (rounded > keeli_max_code(f)) & (bits <= KEELI_F32_INF);
    counts->zero += rounded == 0;
}

KEELI_HD keeli_code_counts count(const float *x, float scale, int32_t n, keeli_layout f)
{
    keeli_code_counts counts = {0, 0};
    for (int32_t i = 0; i < n; i++) {
        const uint32_t bits = keeli_bits_of(x[i] * scale) & 0x7fffffffu;
        count_code(&counts, bits, keeli_round_nearest(bits, f), f);
    }
    return counts;
}

KEELI_HD keeli_code_counts count_stochastic(const float *x, float scale, int32_t n, keeli_draw draw,
                                            keeli_layout f)
{
    const uint64_t key = keeli_random_key(draw.seed);
    keeli_code_counts counts = {0, 0};
    for (int32_t i = 0; i < n; i++) {
        const uint32_t bits = keeli_bits_of(x[i] * scale) & 0x7fffffffu;
        const uint32_t random = keeli_random(key, draw.offset + (uint64_t)i);
        const keeli_magnitude magnitude = keeli_magnitude_of_f32(bits);
        count_code(&counts, bits, keeli_round_fixed_random(magnitude, f, random), f);
    }
    return counts;
}

#define LAYOUT(exp, man, bias, kind) keeli_layout_of(exp, man, bias, KEEL_KIND_##kind)

#define X(NAME, id, text, bits, exp, man, bias, kind)                                           \
    static void decode_##NAME(const void *src, float *out, int32_t n)                           \
    {                                                                                           \
        decode(src, out, n, LAYOUT(exp, man, bias, kind), storage_bytes[id]);                   \
    }                                                                                           \
    static void encode_##NAME(const float *x, float scale, void *dst, int32_t n, bool saturate) \
    {                                                                                           \
        encode(x, scale, dst, n, saturate, LAYOUT(exp, man, bias, kind), storage_bytes[id]);    \
    }                                                                                           \
    static void encode_stochastic_##NAME(const float *x, float scale, void *dst, int32_t n,     \
                                         bool saturate, keeli_draw draw)                        \
    {                                                                                           \
        encode_stochastic(x, scale, dst, n, saturate, draw, LAYOUT(exp, man, bias, kind),       \
                          storage_bytes[id]);                                                   \
    }                                                                                           \
    static keeli_code_counts count_##NAME(const float *x, float scale, int32_t n)               \
    {                                                                                           \
        return count(x, scale, n, LAYOUT(exp, man, bias, kind));                                \
    }                                                                                           \
    static keeli_code_counts count_stochastic_##NAME(const float *x, float scale, int32_t n,    \
                                                     keeli_draw draw)                           \
    {                                                                                           \
        return count_stochastic(x, scale, n, draw, LAYOUT(exp, man, bias, kind));               \
    }
#include "keel/formats.def"
#undef X

#define CAN_ENCODE(kind) (KEEL_KIND_##kind != KEEL_KIND_SCALE)

const keeli_codec_kernels KEELI_ISA_NAME(keeli_codec_kernels)[] = {
#define X(NAME, id, text, bits, exp, man, bias, kind)                            \
    [id] = {                                                                     \
        .decode = decode_##NAME,                                                 \
        .encode = CAN_ENCODE(kind) ? encode_##NAME : NULL,                       \
        .encode_stochastic = CAN_ENCODE(kind) ? encode_stochastic_##NAME : NULL, \
        .count = CAN_ENCODE(kind) ? count_##NAME : NULL,                         \
        .count_stochastic = CAN_ENCODE(kind) ? count_stochastic_##NAME : NULL,   \
    },
#include "keel/formats.def"
#undef X
};

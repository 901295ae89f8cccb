/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Norm, activation, softmax and loss of the transformer.  The exponential is written out here: a C
 * library's own may differ in its last bit from one processor to the next. */
#include "gpt_math.h"

#include <math.h>
#include <string.h>

#include "gpt.h"

/* ---- norm ---- */

static float inverse_root(const float *x, int width)
{
    float sum = 0;
    for (int i = 0; i < width; i++) sum += x[i] * x[i];
    return 1 / sqrtf(sum / (float)width + 1e-5F);
}

void gpt_norm(const float *x, const float *gain, int rows, int width, float *out)
{
    for (int r = 0; r < rows; r++, x += width, out += width) {
        const float inverse = inverse_root(x, width);
        for (int i = 0; i < width; i++) out[i] = x[i] * inverse * gain[i];
    }
}

void gpt_norm_back(const float *x, const float *gain, const float *dout, int rows, int width,
                   float *dx, float *dgain)
{
    for (int r = 0; r < rows; r++, x += width, dout += width, dx += width) {
        const float inverse = inverse_root(x, width);
        float along = 0; /* how far the slope points along x */
        for (int i = 0; i < width; i++) along += gain[i] * dout[i] * x[i];
        along *= inverse * inverse / (float)width;
        for (int i = 0; i < width; i++) {
            dgain[i] += dout[i] * x[i] * inverse;
            dx[i] += (gain[i] * dout[i] - x[i] * along) * inverse;
        }
    }
}

/* ---- activation ---- */

/* NaN passes: a ReLU made of a maximum would hide it. */
static inline float rectify(float x)
{
    return x < 0 ? 0 : x;
}

void gpt_square_relu(const float *x, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++) out[i] = rectify(x[i]) * rectify(x[i]);
}

void gpt_square_relu_back(const float *x, int64_t count, float *d)
{
    for (int64_t i = 0; i < count; i++) d[i] *= 2 * rectify(x[i]);
}

/* ---- softmax ---- */

/* e^x for x <= 0, to within two ulps; what is below -87 counts as -87, so 2^n stays normal.  Adding
 * 1.5 * 2^23 leaves the nearest whole number n of x / ln 2 in the low bits of the sum; the rest is
 * a polynomial over +-ln 2 / 2.  Only bits are taken as integers, so NaN is no special case. */
static inline float exponential(float x)
{
    const float bounded = x < -87 ? -87 : x;
    const float shifted = bounded * 0x1.715476p0F + 0x1.8p23F;
    const float n = shifted - 0x1.8p23F;
    const float rest = (bounded - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
    float sum = 1.0F / 5040;
    sum = sum * rest + 1.0F / 720;
    sum = sum * rest + 1.0F / 120;
    sum = sum * rest + 1.0F / 24;
    sum = sum * rest + 1.0F / 6;
    sum = sum * rest + 0.5F;
    sum = sum * rest + 1;
    sum = sum * rest + 1;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + UINT32_C(0x3f800000);
    float power;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

static float largest(const float *x, int count)
{
    float top = x[0];
    for (int i = 1; i < count; i++) top = x[i] > top ? x[i] : top;
    return top;
}

/* out = e^(x - top); their sum.  out may be x. */
static float exponentials(const float *x, int count, float top, float *out)
{
    float sum = 0;
    for (int i = 0; i < count; i++) out[i] = exponential(x[i] - top);
    for (int i = 0; i < count; i++) sum += out[i];
    return sum;
}

void gpt_softmax(float *x, float scale, int64_t count, int side)
{
    for (int64_t r = 0; r < count * side; r++, x += side) {
        const int seen = (int)(r % side) + 1;
        for (int i = 0; i < seen; i++) x[i] *= scale;
        const float sum = exponentials(x, seen, largest(x, seen), x);
        for (int i = 0; i < seen; i++) x[i] /= sum;
        memset(x + seen, 0, (size_t)(side - seen) * sizeof *x);
    }
}

void gpt_softmax_back(const float *probabilities, float scale, int64_t count, int side, float *d)
{
    const float *p = probabilities;
    for (int64_t r = 0; r < count * side; r++, p += side, d += side) {
        const int seen = (int)(r % side) + 1;
        float mean = 0;
        for (int i = 0; i < seen; i++) mean += p[i] * d[i];
        for (int i = 0; i < seen; i++) d[i] = p[i] * (d[i] - mean) * scale;
        memset(d + seen, 0, (size_t)(side - seen) * sizeof *d);
    }
}

/* ---- loss ---- */

double gpt_cross_entropy(const float *logits, const uint8_t *targets, int rows, float factor,
                         float *slope)
{
    double loss = 0;
    for (int r = 0; r < rows; r++, logits += GPT_VOCABULARY) {
        float powers[GPT_VOCABULARY];
        const float top = largest(logits, GPT_VOCABULARY);
        const float sum = exponentials(logits, GPT_VOCABULARY, top, powers);
        loss += log((double)sum) + (double)(top - logits[targets[r]]);
        if (!slope) continue;
        for (int i = 0; i < GPT_VOCABULARY; i++) {
            const float wanted = i == targets[r] ? 1 : 0;
            slope[i] = (powers[i] / sum - wanted) * factor;
        }
        slope += GPT_VOCABULARY;
    }
    return loss;
}

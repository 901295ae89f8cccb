/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What the transformer does outside its products, in f32: each part forward and backward.  NaN and
 * infinities pass or become NaN; nothing hides them. */
#ifndef BENCH_GPT_MATH_H
#define BENCH_GPT_MATH_H

#include <stdint.h>

/* out = x * gain / sqrt(mean(x^2) + 1e-5), per row of width. */
void gpt_norm(const float *x, const float *gain, int rows, int width, float *out);

/* dx += slope by x, dgain += slope by gain, for the slope dout by out. */
void gpt_norm_back(const float *x, const float *gain, const float *dout, int rows, int width,
                   float *dx, float *dgain);

/* out = relu(x)^2. */
void gpt_square_relu(const float *x, int64_t count, float *out);

/* d: the slope by out on entry, by x on return. */
void gpt_square_relu_back(const float *x, int64_t count, float *d);

/* Scores of count causal squares of side t into probabilities, in place; x is multiplied by scale
 * first, what lies above the diagonal is not read and becomes 0. */
void gpt_softmax(float *x, float scale, int64_t count, int side);

/* d: the slope by the probabilities on entry, by the scores on return; 0 above the diagonal. */
void gpt_softmax_back(const float *probabilities, float scale, int64_t count, int side, float *d);

/* Sum over rows of the cross-entropy of GPT_VOCABULARY logits.  slope not NULL: where its gradient
 * times factor goes; may be logits itself. */
double gpt_cross_entropy(const float *logits, const uint8_t *targets, int rows, float factor,
                         float *slope);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A matrix product with memory of its own, and what it must give: the bits by a loop without
 * blocks, and the bound by f64. */
#ifndef TESTS_RUNTIME_PRODUCT_H
#define TESTS_RUNTIME_PRODUCT_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "check.h"
#include "random.h"

/* One matrix: memory of exactly its bytes, so that a sanitizer sees a step beyond, at an address
 * that shift bytes spoil. */
typedef struct matrix {
    unsigned char *memory;
    unsigned char *data;
    float *values;              /* as read: decoded, not scaled, [row][col] of the product */
    int64_t rows, cols, stride; /* as stored */
    bool transposed;
    keel_format format;
    float scale; /* scale_inv of an operand, scale of a result */
} matrix;

typedef struct product_shape {
    int64_t m, n, k;
    keel_format a, b, d, bias; /* bias NONE = none */
    bool transpose_a, transpose_b, accumulate;
    int64_t gap; /* elements between rows */
    int32_t shift;
    float scale_a, scale_b, scale_d, scale_bias; /* 0 = NULL */
    float spread;                                /* magnitudes 2^-spread .. 2^spread */
} product_shape;

typedef struct product {
    matrix a, b, d, bias;
    unsigned char *before; /* d before the call */
    keel_matmul_args args;
    float amax;
} product;

static inline int64_t width_of(keel_format format)
{
    return keel_format_get(format)->storage_bytes;
}

static inline int64_t numel_of(const matrix *x)
{
    return x->rows && x->cols ? (x->rows - 1) * x->stride + x->cols : 0;
}

static inline uint32_t code_at(const unsigned char *data, int64_t i, keel_format format)
{
    uint32_t code = 0;
    for (int64_t byte = 0; byte < width_of(format); byte++)
        code |= (uint32_t)data[i * width_of(format) + byte] << (8 * byte);
    return code;
}

static inline void put_code(unsigned char *data, int64_t i, keel_format format, uint32_t code)
{
    for (int64_t byte = 0; byte < width_of(format); byte++)
        data[i * width_of(format) + byte] = (unsigned char)(code >> (8 * byte));
}

static inline float value_at(const matrix *x, int64_t row, int64_t col)
{
    return x->values[row * (x->transposed ? x->rows : x->cols) + col];
}

static inline void decode_values(matrix *x)
{
    x->values = malloc((size_t)(x->rows * x->cols) * sizeof *x->values + 1);
    assert_non_null(x->values);
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->cols; j++)
            x->values[x->transposed ? j * x->rows + i : i * x->cols + j] =
                keel_format_decode(x->format, code_at(x->data, i * x->stride + j, x->format));
}

static inline float scale_or_1(const matrix *x)
{
    return x->scale > 0 ? x->scale : 1.0f;
}

/* A finite value's code, sign and magnitude at random, saturated where it does not fit. */
static inline uint32_t random_code(random_source *r, keel_format format, float spread)
{
    uint32_t code = (uint32_t)(126 + random_below(r, 3)); /* e8m0 is not encoded */
    const float x = random_unit(r) * exp2f(spread * random_unit(r));
    if (keel_format_get(format)->can_encode)
        assert_ok(keel_format_encode(format, x, KEEL_OVERFLOW_SATURATE, &code));
    return code;
}

static inline matrix matrix_make(int64_t rows, int64_t cols, bool transposed, keel_format format,
                                 const product_shape *s, float scale, random_source *r)
{
    matrix x = {.rows = transposed ? cols : rows,
                .cols = transposed ? rows : cols,
                .transposed = transposed,
                .format = format,
                .scale = scale};
    x.stride = x.cols + s->gap;
    x.memory = malloc((size_t)(numel_of(&x) * width_of(format) + s->shift + 1));
    assert_non_null(x.memory);
    x.data = x.memory + s->shift;
    for (int64_t i = 0; i < numel_of(&x); i++)
        put_code(x.data, i, format, random_code(r, format, s->spread));
    decode_values(&x);
    return x;
}

static inline keel_tensor tensor_of(const matrix *x, bool written)
{
    const float *scale = x->scale > 0 ? &x->scale : NULL;
    const keel_tensor t = {
        x->data, numel_of(x), x->format, 0, written ? scale : NULL, written ? NULL : scale};
    return t;
}

static inline void product_begin(product *p, const product_shape *s, uint64_t seed)
{
    random_source r = random_begin(seed);
    product_shape dense = *s;
    dense.gap = 0;
    memset(p, 0, sizeof *p);
    p->a = matrix_make(s->m, s->k, s->transpose_a, s->a, s, s->scale_a, &r);
    p->b = matrix_make(s->k, s->n, s->transpose_b, s->b, s, s->scale_b, &r);
    p->d = matrix_make(s->m, s->n, false, s->d, s, s->scale_d, &r);
    const size_t nd = (size_t)(numel_of(&p->d) * width_of(s->d));
    p->before = malloc(nd + 1);
    assert_non_null(p->before);
    memcpy(p->before, p->d.data, nd);
    p->args = (keel_matmul_args){.m = s->m, .n = s->n, .k = s->k};
    p->args.a = tensor_of(&p->a, false);
    p->args.b = tensor_of(&p->b, false);
    p->args.d = tensor_of(&p->d, true);
    if (s->bias != KEEL_FORMAT_NONE) {
        p->bias = matrix_make(1, s->n, false, s->bias, &dense, s->scale_bias, &r);
        p->args.bias = tensor_of(&p->bias, false);
    }
    if (s->gap) {
        p->args.a_stride = p->a.stride;
        p->args.b_stride = p->b.stride;
        p->args.d_stride = p->d.stride;
    }
    p->args.transpose_a = s->transpose_a;
    p->args.transpose_b = s->transpose_b;
    p->args.accumulate = s->accumulate;
    p->args.out_amax = &p->amax;
}

static inline void product_end(product *p)
{
    matrix *all[] = {&p->a, &p->b, &p->d, &p->bias};
    for (int i = 0; i < 4; i++) {
        free(all[i]->memory);
        free(all[i]->values);
    }
    free(p->before);
}

/* What joins the sum of column j: bias as the library reads it, and what d held. */
static inline double addend(const product *p, int64_t i, int64_t j, double *magnitude)
{
    const keel_format f32 = KEEL_FORMAT_F32;
    const float bias = p->bias.data ? value_at(&p->bias, 0, j) * scale_or_1(&p->bias) : 0;
    const float old = p->args.accumulate
                          ? keel_format_decode(f32, code_at(p->before, i * p->d.stride + j, f32))
                          : 0;
    *magnitude = fabs((double)bias) + fabs((double)old);
    return (double)bias + (double)old;
}

/* y by the rule of the header: one accumulator, ascending, each step rounded. */
static inline float expected(const product *p, int64_t i, int64_t j)
{
    const double scale = (double)scale_or_1(&p->a) * (double)scale_or_1(&p->b);
    double magnitude;
    float sum = 0;
    for (int64_t t = 0; t < p->args.k; t++) {
        const float term = value_at(&p->a, i, t) * value_at(&p->b, t, j);
        sum = sum + term;
    }
    const double more = addend(p, i, j, &magnitude);
    return (float)((double)sum * scale + more);
}

/* |y - exact| within the bound of the header. */
static inline void check_bound(const product *p, int64_t i, int64_t j, float y)
{
    const double scale = (double)scale_or_1(&p->a) * (double)scale_or_1(&p->b);
    double sum = 0, size = 0, magnitude;
    for (int64_t t = 0; t < p->args.k; t++) {
        const double term = (double)value_at(&p->a, i, t) * (double)value_at(&p->b, t, j);
        sum += term;
        size += fabs(term);
    }
    sum = sum * scale + addend(p, i, j, &magnitude);
    const double k = (double)p->args.k;
    const double bound =
        (k + 4) * 0x1p-24 * (size * scale + magnitude) + (k * scale + 1) * 0x1p-149;
    if (fabs((double)y - sum) > bound)
        fail_msg("element %lld,%lld: %a, exact %a, off by more than %a", (long long)i, (long long)j,
                 (double)y, sum, bound);
}

/* Element (i, j) of d, to the bit. */
static inline float check_element(const product *p, int64_t i, int64_t j)
{
    const float y = expected(p, i, j);
    const keel_format format = p->d.format;
    uint32_t wanted;
    assert_ok(keel_format_encode(format, y * scale_or_1(&p->d), KEEL_OVERFLOW_DEFAULT, &wanted));
    const uint32_t got = code_at(p->d.data, i * p->d.stride + j, format);
    const float g = keel_format_decode(format, got), w = keel_format_decode(format, wanted);
    if (got != wanted && !(isnan(g) && isnan(w)))
        fail_msg("%lldx%lldx%lld element %lld,%lld: %x (%a), wanted %x (%a)", (long long)p->args.m,
                 (long long)p->args.n, (long long)p->args.k, (long long)i, (long long)j, got,
                 (double)g, wanted, (double)w);
    return y;
}

static inline void check_gaps(const product *p)
{
    const int64_t width = width_of(p->d.format);
    for (int64_t i = p->d.cols, n = numel_of(&p->d); i < n; i += p->d.stride)
        assert_memory_equal(p->d.data + i * width, p->before + i * width,
                            (size_t)((p->d.stride - p->d.cols) * width));
}

/* Run, and hold every element, gap and amax to the rule, and what is finite to the bound. */
static inline void product_check(product *p)
{
    float amax = 0;
    assert_ok(keel_matmul(NULL, &p->args, NULL));
    for (int64_t i = 0; i < p->d.rows; i++) {
        for (int64_t j = 0; j < p->d.cols; j++) {
            const float y = check_element(p, i, j);
            if (isfinite(y)) check_bound(p, i, j, y);
            amax = fabsf(y) > amax || isnan(y) ? fabsf(y) : amax;
        }
    }
    check_gaps(p);
    assert_same_f32(p->amax, amax);
}

static inline void product_try(const product_shape *s, uint64_t seed)
{
    product p;
    product_begin(&p, s, seed);
    product_check(&p);
    product_end(&p);
}

#endif

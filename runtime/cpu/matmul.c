/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Matrix products on the CPU: a block of the result at a time, operands decoded into panels on the
 * stack.  A block sees the whole of k before it is finished, so that blocking leaves no trace in
 * the sums. */
#include "codec.h"
#include "cpu.h"

/* What keel_set_sgemm() left here. */
static struct {
    keel_sgemm_fn call;
    void *context;
} sgemm;

void keel_set_sgemm(keel_sgemm_fn call, void *context)
{
    sgemm.call = call;
    sgemm.context = context;
}

typedef struct product {
    const keeli_cpu_kernels *kernels;
    const keel_matmul_args *args;
    double scale; /* of a sum: exact, as the product of two f32 */
    uint32_t amax;
} product;

/* A row of a panel and one of its columns are at most this long. */
enum { LONGEST = KEELI_PANEL_N > KEELI_PANEL_M ? KEELI_PANEL_N : KEELI_PANEL_M };

typedef struct panels {
    _Alignas(64) float a[KEELI_PANEL_M * KEELI_PANEL_K];
    float b[KEELI_PANEL_K * KEELI_PANEL_N];
    float c[KEELI_PANEL_M * KEELI_PANEL_N];
} panels;

static int32_t least(int64_t x, int32_t y)
{
    return x < y ? (int32_t)x : y;
}

static int32_t padded(int32_t n, int32_t pad)
{
    return (n + pad - 1) / pad * pad;
}

/* Elements (row, col) .. of an operand, by their place in the product. */
typedef struct window {
    const keel_tensor *tensor;
    int64_t stride;
    int64_t row;
    int64_t col;
    int32_t rows;
    int32_t cols;
    bool transposed;
} window;

/* Decode a window into a panel whose rows are panel_stride apart; no scale. */
static void pack(const keeli_cpu_kernels *k, const window *w, float *panel, int32_t panel_stride)
{
    const keel_format format = w->tensor->format;
    const int64_t width = keel_format_get(format)->storage_bytes;
    const unsigned char *data = w->tensor->data;
    if (!w->transposed) {
        for (int32_t i = 0; i < w->rows; i++)
            k->codec[format].decode(data + ((w->row + i) * w->stride + w->col) * width,
                                    panel + i * panel_stride, w->cols);
        return;
    }
    for (int32_t j = 0; j < w->cols; j++) {
        float line[LONGEST];
        k->codec[format].decode(data + ((w->col + j) * w->stride + w->row) * width, line, w->rows);
        for (int32_t i = 0; i < w->rows; i++) panel[i * panel_stride + j] = line[i];
    }
}

/* Sums start from 0.  Padding is multiplied too, but never packed: it is cleared once. */
static void clear(panels *x, int32_t m, int32_t n)
{
    const int32_t rows = padded(m, KEELI_PANEL_PAD_M), cols = padded(n, KEELI_PANEL_PAD_N);
    memset(x->c, 0, (size_t)rows * KEELI_PANEL_N * sizeof *x->c);
    memset(x->a + m * KEELI_PANEL_K, 0, (size_t)(rows - m) * KEELI_PANEL_K * sizeof *x->a);
    for (int32_t p = 0; p < KEELI_PANEL_K && n < cols; p++)
        memset(x->b + p * KEELI_PANEL_N + n, 0, (size_t)(cols - n) * sizeof *x->b);
}

/* The block's sums, through all of k. */
static void sum_block(const product *p, int64_t i0, int64_t j0, int32_t m, int32_t n, panels *x)
{
    const keel_matmul_args *args = p->args;
    clear(x, m, n);
    for (int64_t at = 0; at < args->k; at += KEELI_PANEL_K) {
        const int32_t depth = least(args->k - at, KEELI_PANEL_K);
        const window a = {&args->a, args->a_stride, i0, at, m, depth, args->transpose_a};
        const window b = {&args->b, args->b_stride, at, j0, depth, n, args->transpose_b};
        pack(p->kernels, &a, x->a, KEELI_PANEL_K);
        pack(p->kernels, &b, x->b, KEELI_PANEL_N);
        p->kernels->matmul->multiply_add(x->a, x->b, x->c, padded(m, KEELI_PANEL_PAD_M),
                                         padded(n, KEELI_PANEL_PAD_N), depth);
    }
}

/* Sums of part of a row into d: scales, bias, what d held, amax, and the cast. */
static void finish(product *p, int64_t i, int64_t j, int32_t n, float *sums, const float *bias)
{
    static const float zeros[KEELI_PANEL_N];
    const keel_tensor *d = &p->args->d;
    const int64_t at = i * p->args->d_stride + j;
    float old[KEELI_PANEL_N];
    if (p->args->accumulate) memcpy(old, (const char *)d->data + at * 4, (size_t)n * sizeof *old);
    p->kernels->matmul->finish(sums, n, p->scale, bias ? bias : zeros,
                               p->args->accumulate ? old : zeros);
    const uint32_t amax = p->kernels->stats->absmax(sums, n);
    if (amax > p->amax) p->amax = amax;
    keeli_tile_store(p->kernels, d, at, n, sums);
}

static void multiply(product *p)
{
    const keel_matmul_args *args = p->args;
    for (int64_t j = 0; j < args->n; j += KEELI_PANEL_N) {
        const int32_t n = least(args->n - j, KEELI_PANEL_N);
        float buffer[KEELI_PANEL_N];
        const float *bias =
            args->bias.data ? keeli_tile_load(p->kernels, &args->bias, j, n, buffer) : NULL;
        for (int64_t i = 0; i < args->m; i += KEELI_PANEL_M) {
            const int32_t m = least(args->m - i, KEELI_PANEL_M);
            panels x;
            sum_block(p, i, j, m, n, &x);
            for (int32_t row = 0; row < m; row++)
                finish(p, i + row, j, n, x.c + row * KEELI_PANEL_N, bias);
        }
    }
}

static bool is_plain_f32(const keel_tensor *t)
{
    return t->format == KEEL_FORMAT_F32 && (uintptr_t)t->data % _Alignof(float) == 0;
}

/* The sums by the caller's product, right in d, and then finished there. */
static bool multiply_by_sgemm(product *p)
{
    const keel_matmul_args *args = p->args;
    if (!sgemm.call || args->accumulate || args->m == 0 || args->n == 0 || args->k == 0 ||
        !is_plain_f32(&args->a) || !is_plain_f32(&args->b) || !is_plain_f32(&args->d))
        return false;
    float *d = args->d.data;
    if (sgemm.call(sgemm.context, args->transpose_a, args->transpose_b, args->m, args->n, args->k,
                   args->a.data, args->a_stride, args->b.data, args->b_stride, d,
                   args->d_stride) != KEEL_OK)
        return false;
    for (int64_t j = 0; j < args->n; j += KEELI_PANEL_N) {
        const int32_t n = least(args->n - j, KEELI_PANEL_N);
        float buffer[KEELI_PANEL_N], sums[KEELI_PANEL_N];
        const float *bias =
            args->bias.data ? keeli_tile_load(p->kernels, &args->bias, j, n, buffer) : NULL;
        for (int64_t i = 0; i < args->m; i++) {
            memcpy(sums, d + i * args->d_stride + j, (size_t)n * sizeof *sums);
            finish(p, i, j, n, sums, bias);
        }
    }
    return true;
}

/* The host can read the scales.  By their bits: a caller's DAZ would call a subnormal one 0. */
static keel_status check_scales(const keel_matmul_args *args)
{
    const struct {
        const char *name;
        const float *scale;
    } scales[] = {
        {"a.scale_inv", args->a.scale_inv},
        {"b.scale_inv", args->b.scale_inv},
        {"bias.scale_inv", args->bias.data ? args->bias.scale_inv : NULL},
        {"d.scale", args->d.scale},
    };
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        const uint32_t bits = keeli_bits_of(scales[i].scale ? *scales[i].scale : 1.0f);
        if (bits == 0 || bits >= KEELI_F32_INF)
            return keel_ext_fail(KEEL_ERR_INVALID, "keel_matmul", "%s=%g (want finite and > 0)",
                                 scales[i].name, (double)*scales[i].scale);
    }
    return KEEL_OK;
}

static double scale_of(const keel_tensor *t)
{
    return t->scale_inv ? (double)*t->scale_inv : 1.0;
}

keel_status keeli_cpu_matmul(const keel_device *device, const keel_matmul_args *args,
                             keel_stream stream)
{
    (void)device;
    (void)stream;
    TRY(check_scales(args));
    const keeli_fp_env env = keeli_fp_begin();
    product p = {keeli_cpu_kernels_get(), args, scale_of(&args->a) * scale_of(&args->b), 0};
    if (!multiply_by_sgemm(&p)) multiply(&p);
    keeli_fp_end(env);
    if (args->out_amax) *args->out_amax = keeli_float_of(p.amax);
    return KEEL_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Matrix products: what every device may take for granted is checked here, then the device
 * multiplies. */
#include "internal.h"

/* A tensor as a matrix of stored rows; bias is one row. */
typedef struct matrix {
    const char *name;
    const keel_tensor *tensor;
    int64_t rows;
    int64_t cols;
    int64_t stride; /* as given: 0 = dense */
} matrix;

#define FAIL_MATRIX(format, ...) \
    return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s" format, x->name, __VA_ARGS__)

static keel_status check_tensor(const char *fn, const matrix *x)
{
    const keel_tensor *t = x->tensor;
    if (!keel_format_get(t->format))
        FAIL_MATRIX(".format=%d (want one of the registry)", (int)t->format);
    if (t->numel < 0 || t->numel > INT64_MAX / 8)
        FAIL_MATRIX(".numel=%lld (want 0..%lld)", (long long)t->numel, (long long)(INT64_MAX / 8));
    if (t->reserved != 0) FAIL_MATRIX(".reserved=%d (want 0)", (int)t->reserved);
    if (!t->data && t->numel > 0)
        FAIL_MATRIX(".data is NULL (want %lld elements)", (long long)t->numel);
    return KEEL_OK;
}

/* Elements from the first to the last; -1 where that does not fit. */
static int64_t extent_of(const matrix *x)
{
    int64_t extent;
    if (x->rows == 0 || x->cols == 0) return 0;
    const int64_t stride = x->stride ? x->stride : x->cols;
    if (__builtin_mul_overflow(x->rows - 1, stride, &extent) ||
        __builtin_add_overflow(extent, x->cols, &extent))
        return -1;
    return extent;
}

static keel_status check_shape(const char *fn, const matrix *x)
{
    const int64_t extent = extent_of(x), numel = x->tensor->numel;
    if (x->stride < 0 || (x->stride > 0 && x->stride < x->cols))
        FAIL_MATRIX("_stride=%lld (want 0, or at least %lld columns)", (long long)x->stride,
                    (long long)x->cols);
    if (extent < 0)
        FAIL_MATRIX(": %lld rows of %lld columns (want at most %lld elements)", (long long)x->rows,
                    (long long)x->cols, (long long)(INT64_MAX / 8));
    if (x->stride == 0 && numel != extent)
        FAIL_MATRIX(".numel=%lld (want %lld rows of %lld columns)", (long long)numel,
                    (long long)x->rows, (long long)x->cols);
    if (numel < extent)
        FAIL_MATRIX(".numel=%lld (want at least %lld: %lld rows of %lld columns, %lld apart)",
                    (long long)numel, (long long)extent, (long long)x->rows, (long long)x->cols,
                    (long long)x->stride);
    return KEEL_OK;
}

static int64_t nbytes_of(const matrix *x)
{
    return extent_of(x) * keel_format_get(x->tensor->format)->storage_bytes;
}

static bool overlaps(const void *x, int64_t nx, const void *y, int64_t ny)
{
    const uintptr_t from = (uintptr_t)x, to = (uintptr_t)y;
    return nx > 0 && ny > 0 && from < to + (uintptr_t)ny && to < from + (uintptr_t)nx;
}

static keel_status check_matrix(const char *fn, const matrix *x, const matrix *d)
{
    TRY(check_tensor(fn, x));
    TRY(check_shape(fn, x));
    if (x != d && overlaps(x->tensor->data, nbytes_of(x), d->tensor->data, nbytes_of(d)))
        FAIL_MATRIX(" overlaps %s (want no byte in common)", d->name);
    return KEEL_OK;
}

static keel_status check_result(const char *fn, const keel_matmul_args *args)
{
    const keel_format_info *info = keel_format_get(args->d.format);
    if (!info->can_encode)
        return keel_ext_fail(KEEL_ERR_UNSUPPORTED, fn, "d.format=%s (described only)", info->name);
    if (args->accumulate &&
        (args->d.format != KEEL_FORMAT_F32 || args->d.scale || args->d.scale_inv))
        return keel_ext_fail(KEEL_ERR_INVALID, fn,
                             "accumulate=1 with d.format=%s%s (want f32 without scales)",
                             info->name, args->d.scale || args->d.scale_inv ? " and a scale" : "");
    return KEEL_OK;
}

static keel_status check_numbers(const char *fn, const keel_matmul_args *args)
{
    const struct {
        const char *name;
        int64_t value;
        int64_t most;
    } numbers[] = {
        {"m", args->m, INT64_MAX},
        {"n", args->n, INT64_MAX},
        {"k", args->k, INT64_MAX},
        {"transpose_a", args->transpose_a, 1},
        {"transpose_b", args->transpose_b, 1},
        {"accumulate", args->accumulate, 1},
        {"fast", args->fast, 1},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value < 0 || numbers[i].value > numbers[i].most)
            return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s=%lld (want 0..%lld)", numbers[i].name,
                                 (long long)numbers[i].value, (long long)numbers[i].most);
    return KEEL_OK;
}

static keel_status check(const char *fn, const keel_matmul_args *args)
{
    const int64_t m = args->m, n = args->n, k = args->k;
    const bool ta = args->transpose_a, tb = args->transpose_b;
    const matrix d = {"d", &args->d, m, n, args->d_stride};
    const matrix operands[] = {
        {"a", &args->a, ta ? k : m, ta ? m : k, args->a_stride},
        {"b", &args->b, tb ? n : k, tb ? k : n, args->b_stride},
        {"bias", &args->bias, 1, n, 0},
    };
    TRY(check_numbers(fn, args));
    TRY(check_matrix(fn, &d, &d));
    TRY(check_result(fn, args));
    for (int32_t i = 0; i < (args->bias.data ? 3 : 2); i++) TRY(check_matrix(fn, &operands[i], &d));
    if (overlaps(args->out_amax, sizeof *args->out_amax, args->d.data, nbytes_of(&d)))
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "out_amax lies in d (want it elsewhere)");
    return KEEL_OK;
}

/* Devices see no stride of 0. */
static keel_matmul_args with_strides(keel_matmul_args args)
{
    if (!args.a_stride) args.a_stride = args.transpose_a ? args.m : args.k;
    if (!args.b_stride) args.b_stride = args.transpose_b ? args.k : args.n;
    if (!args.d_stride) args.d_stride = args.n;
    return args;
}

keel_status keel_matmul(const keel_device *device, const keel_matmul_args *args, keel_stream stream)
{
    if (!device) device = keel_cpu_device();
    if (!args) FAIL(KEEL_ERR_INVALID, "args is NULL");
    if (!device->matmul) FAIL(KEEL_ERR_UNSUPPORTED, "device %s has no product", device->name);
    TRY(check(__func__, args));
    const keel_matmul_args filled = with_strides(*args);
    return device->matmul(device, &filled, stream);
}

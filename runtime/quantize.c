/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Bulk casts: what every device may take for granted is checked here, then the device casts. */
#include "internal.h"

static int64_t nbytes_of(const keel_tensor *t)
{
    return t->numel * keel_format_get(t->format)->storage_bytes;
}

static keel_status check_options(const char *fn, const keel_cast_options *options)
{
    if ((uint32_t)options->overflow > KEEL_OVERFLOW_IEEE)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "options.overflow=%d (want 0..%d)",
                             (int)options->overflow, (int)KEEL_OVERFLOW_IEEE);
    if ((uint32_t)options->rounding > KEEL_ROUND_STOCHASTIC)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "options.rounding=%d (want 0..%d)",
                             (int)options->rounding, (int)KEEL_ROUND_STOCHASTIC);
    return KEEL_OK;
}

/* In place, tile by tile, a narrower result never reaches source elements still to be read. */
static keel_status check_overlap(const char *fn, const keel_tensor *src, const keel_tensor *dst)
{
    const uintptr_t from = (uintptr_t)src->data, to = (uintptr_t)dst->data;
    const int64_t nsrc = nbytes_of(src), ndst = nbytes_of(dst);
    if (src->numel == 0 || from + (uintptr_t)nsrc <= to || to + (uintptr_t)ndst <= from)
        return KEEL_OK;
    if (from != to)
        return keel_ext_fail(
            KEEL_ERR_INVALID, fn,
            "dst.data overlaps src.data (want the same address or none in common)");
    if (ndst > nsrc)
        return keel_ext_fail(KEEL_ERR_INVALID, fn,
                             "dst.data == src.data with dst.format=%s wider than src.format=%s",
                             keel_format_get(dst->format)->name,
                             keel_format_get(src->format)->name);
    return KEEL_OK;
}

keel_status keeli_cast_check(const char *fn, const keel_tensor *src, const keel_tensor *dst)
{
    TRY(keeli_tensor_check(fn, "src", src));
    TRY(keeli_tensor_check(fn, "dst", dst));
    if (src->numel != dst->numel)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "dst.numel=%lld (want src.numel=%lld)",
                             (long long)dst->numel, (long long)src->numel);
    if (!keel_format_get(dst->format)->can_encode)
        return keel_ext_fail(KEEL_ERR_UNSUPPORTED, fn, "dst.format=%s (described only)",
                             keel_format_get(dst->format)->name);
    return check_overlap(fn, src, dst);
}

static keel_status cast(const char *fn, const keel_device *device, const keel_tensor *src,
                        const keel_tensor *dst, const keel_cast_options *options,
                        keel_cast_stats *out_stats, keel_stream stream)
{
    const keel_cast_options defaults = {KEEL_OVERFLOW_DEFAULT, KEEL_ROUND_NEAREST_EVEN, 0, 0};
    if (!device) device = keel_cpu_device();
    if (!options) options = &defaults;
    TRY(check_options(fn, options));
    TRY(keeli_cast_check(fn, src, dst));
    return device->quantize(device, src, dst, options, out_stats, stream);
}

keel_status keel_quantize(const keel_device *device, const keel_tensor *src, const keel_tensor *dst,
                          const keel_cast_options *options, keel_cast_stats *out_stats,
                          keel_stream stream)
{
    return cast(__func__, device, src, dst, options, out_stats, stream);
}

keel_status keel_dequantize(const keel_device *device, const keel_tensor *src, float *out,
                            keel_stream stream)
{
    if (!src) FAIL(KEEL_ERR_INVALID, "src is NULL");
    const keel_tensor dst = {out, src->numel, KEEL_FORMAT_F32, 0, NULL, NULL};
    return cast(__func__, device, src, &dst, NULL, NULL, stream);
}

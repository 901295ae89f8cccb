/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What a number is: the registry of formats, their names in other software, single values. */
#ifndef KEEL_FORMATS_H
#define KEEL_FORMATS_H

#include <stdbool.h>
#include <stdint.h>

#include "keel/export.h"
#include "keel/status.h"

KEEL_BEGIN_DECLS

/* How a format spends its highest codes.
 * IEEE    top exponent is infinity and NaN (f32, f16, bf16, e5m2).
 * FN      no infinity; only the all-ones magnitude is NaN (e4m3).
 * FINITE  every code is a number (e2m1, e2m3, e3m2).
 * SCALE   no sign, no zero, a power of two; all ones is NaN (e8m0). */
typedef enum keel_format_kind {
    KEEL_KIND_IEEE = 0,
    KEEL_KIND_FN = 1,
    KEEL_KIND_FINITE = 2,
    KEEL_KIND_SCALE = 3,
    KEEL_KIND_FORCE_32BIT = 0x7fffffff
} keel_format_kind;

/* One value per row of keel/formats.def; the numbers are ABI and stand in checkpoints. */
typedef enum keel_format {
    KEEL_FORMAT_NONE = 0,
#define X(NAME, id, text, bits, exp, man, bias, kind) KEEL_FORMAT_##NAME = id,
#include "keel/formats.def"
#undef X
    KEEL_FORMAT_FORCE_32BIT = 0x7fffffff
} keel_format;

/* One registry row, with everything that follows from it. */
typedef struct keel_format_info {
    keel_format id;
    const char *name;      /* Keel's own name: "e4m3" */
    int32_t bits;          /* of a code; formats of 4 and 6 bits lie one code per byte here */
    int32_t storage_bytes; /* of one element in memory */
    int32_t exponent_bits;
    int32_t mantissa_bits;
    int32_t bias;
    keel_format_kind kind;
    bool has_inf;
    bool has_nan;
    bool can_encode; /* false: described and decodable only */
    double max;      /* largest finite value */
    double min_normal;
    double min_subnormal; /* smallest value above zero */
    double epsilon;       /* spacing at 1; 0 where 1 + epsilon is no code (e8m0) */
} keel_format_info;

/* Where a name or a number of a format is used; rows in formats/names.def. */
typedef enum keel_ecosystem {
#define X(NAME, id, text) KEEL_ECOSYSTEM_##NAME = id,
#include "keel/ecosystems.def"
#undef X
    KEEL_ECOSYSTEM_FORCE_32BIT = 0x7fffffff
} keel_ecosystem;

/* keel_format_at: the rows of the registry in order.
 * index   from 0.
 * Owns    static storage; NULL past the last row, so a loop needs no count.
 * Errors  none.
 * Since   0.1 */
KEEL_API const keel_format_info *keel_format_at(int32_t index);

/* keel_format_get: the row of one format.
 * Owns    static storage; NULL for KEEL_FORMAT_NONE and for unknown values.
 * Errors  none.
 * Since   0.1 */
KEEL_API const keel_format_info *keel_format_get(keel_format format);

/* keel_format_find: a format by its name in any ecosystem (keel, torch, safetensors, ...), letter
 * case ignored.
 * out_format  written on success.
 * out_note    may be NULL; on success NULL or a static sentence to show to the user: the name is
 *             borne by two formats and this one was taken (float8_e4m3 means the IEEE variant with
 *             maximum 240 elsewhere).
 * Errors      INVALID: unknown name, a name that means several formats ("fp8"), or a format that
 *             looks alike and is not one of ours (fnuz); the sentence says which and why.
 * Since       0.1 */
KEEL_API keel_status keel_format_find(const char *name, keel_format *out_format,
                                      const char **out_note);

/* keel_format_name_in: what an ecosystem calls a format.
 * Owns    static storage; NULL where the ecosystem has no name for it.
 * Errors  none.
 * Since   0.1 */
KEEL_API const char *keel_format_name_in(keel_format format, keel_ecosystem ecosystem);

/* keel_format_code_in: the number an ecosystem gives a format (c10 code, cudaDataType, ...), -1
 * where it has none.
 * Errors  none.
 * Since   0.1 */
KEEL_API int32_t keel_format_code_in(keel_format format, keel_ecosystem ecosystem);

/* keel_format_from_code: a format by an ecosystem's number for it.
 * Errors  INVALID: no format of ours has that number there; look-alikes are named.
 * Since   0.1 */
KEEL_API keel_status keel_format_from_code(keel_ecosystem ecosystem, int32_t code,
                                           keel_format *out_format);

/* keel_ecosystem_name: "torch", "safetensors", ...; NULL for unknown values.  Ecosystems count
 * from 0 without gaps, so a loop ends at NULL.
 * Errors  none.
 * Since   0.1 */
KEEL_API const char *keel_ecosystem_name(keel_ecosystem ecosystem);

/* What becomes of values above the range of the target.
 * DEFAULT   the format's own: SATURATE for formats of 8 bits and less, IEEE for wider ones, where
 *           overflow must stay visible.
 * SATURATE  finite and infinite alike become +-max.
 * IEEE      +-infinity, or NaN in formats without infinity (e4m3); formats of kind FINITE clamp.
 * NaN stays NaN with its sign in every mode; formats without NaN take +-max. */
typedef enum keel_overflow {
    KEEL_OVERFLOW_DEFAULT = 0,
    KEEL_OVERFLOW_SATURATE = 1,
    KEEL_OVERFLOW_IEEE = 2,
    KEEL_OVERFLOW_FORCE_32BIT = 0x7fffffff
} keel_overflow;

/* keel_format_decode: the value of one code; bits above the format's width are ignored.
 * Exact: every value of every format is an f32.  NaN keeps its sign.
 * Returns  NaN for unknown formats as well.
 * Errors   none.
 * Since    0.1 */
KEEL_API float keel_format_decode(keel_format format, uint32_t code);

/* keel_format_encode: the code of one value, rounded to nearest even from the f32 in one rounding.
 * The caller's floating-point environment neither matters nor changes.
 * Errors  INVALID: unknown format or mode.  UNSUPPORTED: the format is described only (e8m0).
 * Since   0.1 */
KEEL_API keel_status keel_format_encode(keel_format format, float value, keel_overflow overflow,
                                        uint32_t *out_code);

/* keel_format_encode_f64: the same from an f64, still one rounding (never through f32).
 * Errors  as keel_format_encode().
 * Since   0.1 */
KEEL_API keel_status keel_format_encode_f64(keel_format format, double value,
                                            keel_overflow overflow, uint32_t *out_code);

KEEL_END_DECLS
#endif

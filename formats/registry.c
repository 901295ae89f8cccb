/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The registry: formats.def and names.def as tables, look-up in them, and single values. */
#include <string.h>

#include "codec.h"
#include "internal.h"

/* 2^n as a constant expression, for -255..255. */
#define POW2_ABS(n)                                                              \
    (((n)&1 ? 0x1p1 : 1.0) * ((n)&2 ? 0x1p2 : 1.0) * ((n)&4 ? 0x1p4 : 1.0) *     \
     ((n)&8 ? 0x1p8 : 1.0) * ((n)&16 ? 0x1p16 : 1.0) * ((n)&32 ? 0x1p32 : 1.0) * \
     ((n)&64 ? 0x1p64 : 1.0) * ((n)&128 ? 0x1p128 : 1.0))
#define POW2(n) ((n) < 0 ? 1.0 / POW2_ABS(-(n)) : POW2_ABS(n))

/* What follows from a row.  The top exponent belongs to values unless the kind takes it whole; of
 * the top mantissa, FN takes one code; the only NaN of SCALE is the top exponent itself. */
#define IS(kind, other) (KEEL_KIND_##kind == KEEL_KIND_##other)
#define TOP_EXPONENT(exp, bias, kind) \
    ((1 << (exp)) - 1 - (bias) - (IS(kind, IEEE) || IS(kind, SCALE)))
#define TOP_MANTISSA(man, kind) (2.0 - POW2(-(man)) * (IS(kind, FN) ? 2.0 : 1.0))
#define MAX_VALUE(exp, man, bias, kind) \
    (TOP_MANTISSA(man, kind) * POW2(TOP_EXPONENT(exp, bias, kind)))
#define MIN_NORMAL(bias, kind) POW2((IS(kind, SCALE) ? 0 : 1) - (bias))

#define X(NAME, id, text, bits, exp, man, bias, kind)                                              \
    _Static_assert((bits) == !IS(kind, SCALE) + (exp) + (man), text ": sign, exponent, mantissa"); \
    _Static_assert((exp) >= 2 && (exp) <= 8 && (man) <= KEELI_F32_MAN, text ": not within f32");   \
    _Static_assert((exp) < 8 || (bias) == KEELI_F32_BIAS, text ": not the exponent of f32");       \
    _Static_assert((exp) == 8 || (bias) + (man) < KEELI_F32_BIAS, text ": subnormal in f32");      \
    _Static_assert(!IS(kind, SCALE) || ((exp) == 8 && (man) == 0), text ": not a power of two");   \
    _Static_assert(!IS(kind, IEEE) || (man) > 0, text ": no code for NaN");
#include "keel/formats.def"
#undef X

static const keel_format_info formats[] = {
#define X(NAME, number, text, width, exp, man, b, k)      \
    {                                                     \
        .id = KEEL_FORMAT_##NAME,                         \
        .name = text,                                     \
        .bits = width,                                    \
        .storage_bytes = ((width) + 7) / 8,               \
        .exponent_bits = exp,                             \
        .mantissa_bits = man,                             \
        .bias = b,                                        \
        .kind = KEEL_KIND_##k,                            \
        .has_inf = IS(k, IEEE),                           \
        .has_nan = !IS(k, FINITE),                        \
        .can_encode = !IS(k, SCALE),                      \
        .max = MAX_VALUE(exp, man, b, k),                 \
        .min_normal = MIN_NORMAL(b, k),                   \
        .min_subnormal = MIN_NORMAL(b, k) * POW2(-(man)), \
        .epsilon = IS(k, SCALE) ? 0.0 : POW2(-(man)),     \
    },
#include "keel/formats.def"
#undef X
};

enum { FORMATS = sizeof formats / sizeof *formats };

const keel_format_info *keel_format_at(int32_t index)
{
    return index >= 0 && index < FORMATS ? &formats[index] : NULL;
}

const keel_format_info *keel_format_get(keel_format format)
{
    for (int32_t i = 0; i < FORMATS; i++)
        if (formats[i].id == format) return &formats[i];
    return NULL;
}

/* Names. */

enum {
#define NOTE(id, text) NOTE_##id,
#include "names.def"
};

static const char *const notes[] = {
#define NOTE(id, text) [NOTE_##id] = text,
#include "names.def"
};

typedef enum name_use { USE_NAME, USE_ALIAS, USE_WRITE, USE_REFUSE } name_use;

typedef struct name_row {
    keel_ecosystem ecosystem;
    const char *name;
    int32_t code;
    keel_format format;
    name_use use;
    int32_t note;
} name_row;

static const name_row names[] = {
#define X(ECOSYSTEM, name, code, FORMAT, use, NOTE) \
    {KEEL_ECOSYSTEM_##ECOSYSTEM, name, code, KEEL_FORMAT_##FORMAT, USE_##use, NOTE_##NOTE},
#include "names.def"
};

static const char *const ecosystems[] = {
#define X(NAME, id, text) [id] = text,
#include "keel/ecosystems.def"
#undef X
};

enum { NAMES = sizeof names / sizeof *names, ECOSYSTEMS = sizeof ecosystems / sizeof *ecosystems };

const char *keel_ecosystem_name(keel_ecosystem ecosystem)
{
    return (uint32_t)ecosystem < ECOSYSTEMS ? ecosystems[ecosystem] : NULL;
}

/* ASCII alone: names do not change meaning with the caller's locale. */
static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool equal_in_any_case(const char *a, const char *b)
{
    while (*a && lower(*a) == lower(*b)) a++, b++;
    return lower(*a) == lower(*b);
}

static const name_row *find_name(const char *name)
{
    for (int32_t i = 0; i < NAMES; i++)
        if (strcmp(names[i].name, name) == 0) return &names[i];
    for (int32_t i = 0; i < NAMES; i++)
        if (equal_in_any_case(names[i].name, name)) return &names[i];
    return NULL;
}

static bool is_readable(const name_row *row)
{
    return row->use == USE_NAME || row->use == USE_ALIAS;
}

keel_status keel_format_find(const char *name, keel_format *out_format, const char **out_note)
{
    if (!name || !out_format) FAIL(KEEL_ERR_INVALID, "name or out_format is NULL");
    const name_row *row = find_name(name);
    if (!row)
        FAIL(KEEL_ERR_INVALID, "name=\"%.64s\" (want a format, such as e4m3, e5m2, bf16, f16, f32)",
             name);
    if (!is_readable(row))
        FAIL(KEEL_ERR_INVALID, "name=\"%s\" (refused: %s)", row->name, notes[row->note]);
    *out_format = row->format;
    if (out_note) *out_note = notes[row->note];
    return KEEL_OK;
}

static const name_row *find_written(keel_format format, keel_ecosystem ecosystem)
{
    for (int32_t i = 0; i < NAMES; i++) {
        const name_row *row = &names[i];
        if (row->ecosystem == ecosystem && row->format == format && format != KEEL_FORMAT_NONE &&
            (row->use == USE_NAME || row->use == USE_WRITE))
            return row;
    }
    return NULL;
}

const char *keel_format_name_in(keel_format format, keel_ecosystem ecosystem)
{
    const name_row *row = find_written(format, ecosystem);
    return row ? row->name : NULL;
}

int32_t keel_format_code_in(keel_format format, keel_ecosystem ecosystem)
{
    const name_row *row = find_written(format, ecosystem);
    return row ? row->code : -1;
}

static const name_row *find_code(keel_ecosystem ecosystem, int32_t code)
{
    for (int32_t i = 0; i < NAMES; i++)
        if (names[i].ecosystem == ecosystem && names[i].code == code && code >= 0) return &names[i];
    return NULL;
}

keel_status keel_format_from_code(keel_ecosystem ecosystem, int32_t code, keel_format *out_format)
{
    if (!out_format) FAIL(KEEL_ERR_INVALID, "out_format is NULL");
    const char *where = keel_ecosystem_name(ecosystem);
    if (!where) FAIL(KEEL_ERR_INVALID, "ecosystem=%d (want 0..%d)", (int)ecosystem, ECOSYSTEMS - 1);
    const name_row *row = find_code(ecosystem, code);
    if (!row) FAIL(KEEL_ERR_INVALID, "code=%d (no format of ours in %s)", code, where);
    if (!is_readable(row))
        FAIL(KEEL_ERR_INVALID, "code=%d (%s in %s, refused: %s)", code, row->name, where,
             notes[row->note]);
    *out_format = row->format;
    return KEEL_OK;
}

/* Single values. */

static keeli_layout layout_of(const keel_format_info *info)
{
    return keeli_layout_of(info->exponent_bits, info->mantissa_bits, info->bias, info->kind);
}

float keel_format_decode(keel_format format, uint32_t code)
{
    const keel_format_info *info = keel_format_get(format);
    return info ? keeli_decode(code, layout_of(info)) : keeli_float_of(KEELI_F32_NAN);
}

static keel_status check_encode(const char *fn, const keel_format_info *info, keel_format format,
                                keel_overflow overflow, const uint32_t *out_code)
{
    if (!info)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "format=%d (want one of the registry)",
                             (int)format);
    if ((uint32_t)overflow > KEEL_OVERFLOW_IEEE)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "overflow=%d (want 0..%d)", (int)overflow,
                             (int)KEEL_OVERFLOW_IEEE);
    if (!out_code) return keel_ext_fail(KEEL_ERR_INVALID, fn, "out_code is NULL");
    if (!info->can_encode)
        return keel_ext_fail(KEEL_ERR_UNSUPPORTED, fn, "format=%s (described only)", info->name);
    return KEEL_OK;
}

static bool saturates(const keel_format_info *info, keel_overflow overflow)
{
    return overflow == KEEL_OVERFLOW_DEFAULT ? info->bits <= 8 : overflow == KEEL_OVERFLOW_SATURATE;
}

keel_status keel_format_encode(keel_format format, float value, keel_overflow overflow,
                               uint32_t *out_code)
{
    const keel_format_info *info = keel_format_get(format);
    TRY(check_encode(__func__, info, format, overflow, out_code));
    *out_code =
        keeli_encode_f32_bits(keeli_bits_of(value), layout_of(info), saturates(info, overflow));
    return KEEL_OK;
}

keel_status keel_format_encode_f64(keel_format format, double value, keel_overflow overflow,
                                   uint32_t *out_code)
{
    const keel_format_info *info = keel_format_get(format);
    TRY(check_encode(__func__, info, format, overflow, out_code));
    *out_code =
        keeli_encode_f64_bits(keeli_bits_of_f64(value), layout_of(info), saturates(info, overflow));
    return KEEL_OK;
}

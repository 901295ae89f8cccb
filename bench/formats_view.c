/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* One code taken apart, and one value as every format holds it. */
#include "formats_view.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Enough for every f32 in full: the smallest has 105 digits that count. */
#define EXACT_DIGITS 120
#define EXACT_SIZE   192

/* A code with as many hexadecimal digits as the format's bits need. */
static const char *code_text(const keel_format_info *f, uint32_t code, char buffer[16])
{
    snprintf(buffer, 16, "0x%0*" PRIx32, (f->bits + 3) / 4, code);
    return buffer;
}

bool format_fits(const keel_format_info *format, uint32_t code)
{
    return format->bits == 32 || code >> format->bits == 0;
}

/* ---- one code ---- */

typedef struct fields {
    bool has_sign;
    uint32_t sign, exponent, mantissa;
    float value;
    const char *class_name;
    char exact[EXACT_SIZE];
} fields;

static const char *class_of(const keel_format_info *f, float value)
{
    if (isnan(value)) return "NaN";
    if (isinf(value)) return "infinity";
    if (value == 0) return "zero";
    return fabs((double)value) < f->min_normal ? "subnormal" : "normal";
}

static fields take_apart(const keel_format_info *f, uint32_t code)
{
    fields out = {
        .has_sign = f->bits > f->exponent_bits + f->mantissa_bits,
        .exponent = code >> f->mantissa_bits & ((1u << f->exponent_bits) - 1),
        .mantissa = code & ((1u << f->mantissa_bits) - 1),
        .value = keel_format_decode(f->id, code),
    };
    if (out.has_sign) out.sign = code >> (f->bits - 1) & 1;
    out.class_name = class_of(f, out.value);
    /* Every value is a binary fraction, so the decimal ends by itself. */
    snprintf(out.exact, sizeof out.exact, "%.*g", EXACT_DIGITS, (double)out.value);
    return out;
}

static const char *binary(uint32_t value, int32_t bits, char buffer[33])
{
    for (int32_t i = 0; i < bits; i++) buffer[i] = (char)('0' + (value >> (bits - 1 - i) & 1));
    buffer[bits] = 0;
    return buffer;
}

void show_code(const keel_format_info *format, uint32_t code)
{
    const fields f = take_apart(format, code);
    char text[16], exponent[33], mantissa[33];
    printf("%s as %s: %s (%s)\n  ", code_text(format, code, text), format->name, f.exact,
           f.class_name);
    if (f.has_sign) printf("sign %" PRIu32 "  ", f.sign);
    printf("exponent %s (%" PRIu32 ")", binary(f.exponent, format->exponent_bits, exponent),
           f.exponent);
    if (format->mantissa_bits) {
        printf("  mantissa %s (%" PRIu32 ")", binary(f.mantissa, format->mantissa_bits, mantissa),
               f.mantissa);
    }
    putchar('\n');
}

void json_code(json *j, const keel_format_info *format, uint32_t code)
{
    const fields f = take_apart(format, code);
    char text[16];
    json_object(j, NULL);
    json_text(j, "format", format->name);
    json_text(j, "code", code_text(format, code, text));
    if (f.has_sign) json_int(j, "sign", f.sign);
    json_int(j, "exponent", f.exponent);
    json_int(j, "mantissa", f.mantissa);
    json_real32(j, "value", f.value);
    json_text(j, "exact", f.exact);
    json_text(j, "class", f.class_name);
    json_end(j);
}

/* ---- one value ---- */

typedef struct held {
    uint32_t saturate, ieee, code; /* code: in the format's own overflow mode */
    float value;                   /* of code */
    bool overflow, flushed;
} held;

/* Formats without infinity and NaN clamp in every mode, so the codes do not show an overflow:
 * it is one where the next value up, if there were one, would be nearer than the maximum. */
static bool clamps(const keel_format_info *f, double value, uint32_t max_code)
{
    const double below = (double)keel_format_decode(f->id, max_code - 1);
    return fabs(value) - f->max >= (f->max - below) / 2;
}

static bool overflows(const keel_format_info *f, double value, const held *h)
{
    if (isnan(value) || fabs(value) <= f->max) return false;
    if (isinf(value)) return !isinf(h->value);
    if (f->kind != KEEL_KIND_FINITE) return h->saturate != h->ieee;
    return clamps(f, value, h->saturate & ~(1u << (f->bits - 1)));
}

static bool hold(const keel_format_info *f, double value, held *out)
{
    const keel_format id = f->id;
    memset(out, 0, sizeof *out);
    if (keel_format_encode_f64(id, value, KEEL_OVERFLOW_SATURATE, &out->saturate) != KEEL_OK ||
        keel_format_encode_f64(id, value, KEEL_OVERFLOW_IEEE, &out->ieee) != KEEL_OK ||
        keel_format_encode_f64(id, value, KEEL_OVERFLOW_DEFAULT, &out->code) != KEEL_OK) {
        return false;
    }
    out->value = keel_format_decode(id, out->code);
    out->overflow = overflows(f, value, out);
    out->flushed = value != 0 && out->value == 0;
    return true;
}

static double relative_error(double value, float kept)
{
    if ((double)kept == value) return 0;
    return ((double)kept - value) / fabs(value);
}

static void show_overflow(const keel_format_info *f, const held *h)
{
    char saturate[JSON_NUMBER_SIZE], ieee[JSON_NUMBER_SIZE];
    if (h->saturate == h->ieee) {
        printf("  overflow: clamps in every mode");
        return;
    }
    const bool is_saturate = h->code == h->saturate;
    printf("  overflow: saturate %s%s, ieee %s%s",
           json_number32(keel_format_decode(f->id, h->saturate), saturate),
           is_saturate ? " (default)" : "", json_number32(keel_format_decode(f->id, h->ieee), ieee),
           is_saturate ? "" : " (default)");
}

static void show_held(const keel_format_info *f, double value)
{
    held h;
    if (!hold(f, value, &h)) {
        printf("  %-6s  described and decoded only\n", f->name);
        return;
    }
    char code[16], number[JSON_NUMBER_SIZE], error[32] = "-";
    const double relative = relative_error(value, h.value);
    if (relative == 0) {
        snprintf(error, sizeof error, "exact");
    } else if (isfinite(relative)) {
        snprintf(error, sizeof error, "%+.2e", relative);
    }
    const bool nan_lost = isnan(value) && !f->has_nan;
    const bool noted = h.overflow || h.flushed || nan_lost;
    printf("  %-6s  %-10s  %-15s  %-*s", f->name, code_text(f, h.code, code),
           json_number32(h.value, number), noted ? 9 : 0, error);
    if (h.overflow) show_overflow(f, &h);
    if (h.flushed) printf("  flushed to zero");
    if (nan_lost) printf("  no NaN here: becomes the maximum");
    putchar('\n');
}

void show_value(double value, const keel_format_info *only)
{
    char number[JSON_NUMBER_SIZE];
    printf("%s\n  %-6s  %-10s  %-15s  %s\n", json_number(value, number), "format", "code", "value",
           "relative error");
    for (int32_t i = 0; keel_format_at(i); i++) {
        if (!only || only == keel_format_at(i)) show_held(keel_format_at(i), value);
    }
}

static void json_mode(json *j, const keel_format_info *f, const char *key, uint32_t code)
{
    char text[16];
    json_object(j, key);
    json_text(j, "code", code_text(f, code, text));
    json_real32(j, "value", keel_format_decode(f->id, code));
    json_end(j);
}

static void json_held(json *j, const keel_format_info *f, double value)
{
    held h;
    if (!hold(f, value, &h)) return;
    char text[16];
    json_object(j, NULL);
    json_text(j, "name", f->name);
    json_text(j, "code", code_text(f, h.code, text));
    json_real32(j, "value", h.value);
    json_real(j, "relative_error", relative_error(value, h.value));
    json_bool(j, "overflow", h.overflow);
    json_bool(j, "flushed", h.flushed);
    json_mode(j, f, "saturate", h.saturate);
    json_mode(j, f, "ieee", h.ieee);
    json_end(j);
}

void json_value(json *j, double value, const keel_format_info *only)
{
    json_object(j, NULL);
    json_real(j, "value", value);
    json_array(j, "formats");
    for (int32_t i = 0; keel_format_at(i); i++) {
        if (!only || only == keel_format_at(i)) json_held(j, keel_format_at(i), value);
    }
    json_end(j);
    json_end(j);
}

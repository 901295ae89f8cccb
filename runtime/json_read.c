/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
#include <fenv.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_read.h"
#include "utf8.h"

enum { NUMBER_MAX = 64 };

keeli_json keeli_json_begin(const char *fn, const char *text, size_t size)
{
    const keeli_json j = {fn, text, text + size, 1};
    return j;
}

keel_status keeli_json_fail(const keeli_json *j, const char *format, ...)
{
    char sentence[400];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return keel_ext_fail(KEEL_ERR_INVALID, j->fn, "line %d: %s", (int)j->line, sentence);
}

char keeli_json_peek(keeli_json *j)
{
    for (; j->at < j->end; j->at++) {
        if (*j->at != ' ' && *j->at != '\t' && *j->at != '\r' && *j->at != '\n') return *j->at;
        j->line += *j->at == '\n';
    }
    return 0;
}

/* What was found instead. */
static keel_status fail_found(keeli_json *j, const char *wanted)
{
    const char c = keeli_json_peek(j);
    if (j->at == j->end) return keeli_json_fail(j, "the text ends (want %s)", wanted);
    if (c > ' ' && c < 0x7f) return keeli_json_fail(j, "'%c' (want %s)", c, wanted);
    return keeli_json_fail(j, "byte 0x%02x (want %s)", (unsigned)(unsigned char)c, wanted);
}

keel_status keeli_json_expect(keeli_json *j, char c)
{
    const char wanted[] = {'\'', c, '\'', 0};
    if (keeli_json_peek(j) != c || j->at == j->end) return fail_found(j, wanted);
    j->at++;
    return KEEL_OK;
}

keel_status keeli_json_finish(keeli_json *j)
{
    keeli_json_peek(j);
    return j->at == j->end ? KEEL_OK : fail_found(j, "nothing more");
}

/* The four digits of \u. */
static keel_status read_hex(keeli_json *j, unsigned *out)
{
    static const char digits[] = "0123456789abcdef";
    *out = 0;
    for (int i = 0; i < 4; i++, j->at++) {
        if (j->at == j->end) return fail_found(j, "four hexadecimal digits");
        const char c = *j->at >= 'A' && *j->at <= 'F' ? (char)(*j->at + 32) : *j->at;
        const char *digit = c ? strchr(digits, c) : NULL;
        if (!digit) return fail_found(j, "four hexadecimal digits");
        *out = *out << 4 | (unsigned)(digit - digits);
    }
    return KEEL_OK;
}

/* \u and a second \u where the first is half of a pair. */
static keel_status read_point(keeli_json *j, unsigned *out)
{
    unsigned low = 0;
    TRY(read_hex(j, out));
    if (*out == 0) return keeli_json_fail(j, "\\u0000 in a string");
    if (*out < 0xd800 || *out > 0xdfff) return KEEL_OK;
    if (*out < 0xdc00 && j->end - j->at >= 2 && j->at[0] == '\\' && j->at[1] == 'u') {
        j->at += 2;
        TRY(read_hex(j, &low));
    }
    if (low < 0xdc00 || low > 0xdfff) return keeli_json_fail(j, "half a surrogate pair");
    *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    return KEEL_OK;
}

static keel_status read_escape(keeli_json *j, char *out, int *out_n)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (j->at == j->end) return fail_found(j, "an escape");
    if (*j->at == 'u') {
        unsigned point;
        j->at++;
        TRY(read_point(j, &point));
        *out_n = keeli_utf8_put(out, point);
        return KEEL_OK;
    }
    const char *name = *j->at ? strchr(names, *j->at) : NULL;
    if (!name) return fail_found(j, "an escape");
    j->at++;
    *out = values[name - names];
    *out_n = 1;
    return KEEL_OK;
}

/* One character of a string into at most 4 bytes. */
static keel_status read_character(keeli_json *j, char *out, int *out_n)
{
    if (j->at == j->end) return keeli_json_fail(j, "the text ends inside a string");
    if (*j->at == '\\') {
        j->at++;
        return read_escape(j, out, out_n);
    }
    *out_n = keeli_utf8_length(j->at, j->end - j->at);
    if (*out_n == 0 || (unsigned char)*j->at < 0x20)
        return keeli_json_fail(j, "byte 0x%02x in a string (want UTF-8, controls escaped)",
                               (unsigned)(unsigned char)*j->at);
    memcpy(out, j->at, (size_t)*out_n);
    j->at += *out_n;
    return KEEL_OK;
}

keel_status keeli_json_string(keeli_json *j, char *out, size_t size)
{
    size_t used = 0;
    if (keeli_json_peek(j) != '"') return fail_found(j, "a string");
    j->at++;
    while (j->at == j->end || *j->at != '"') {
        char c[4];
        int n = 0;
        TRY(read_character(j, c, &n));
        if (used + (size_t)n >= size)
            return keeli_json_fail(j, "a string of more than %zu bytes", size - 1);
        memcpy(out + used, c, (size_t)n);
        used += (size_t)n;
    }
    out[used] = 0;
    j->at++;
    return KEEL_OK;
}

static size_t digits_at(const char *at, const char *end)
{
    const char *c = at;
    while (c < end && *c >= '0' && *c <= '9') c++;
    return (size_t)(c - at);
}

/* Characters of the number at the cursor, 0 if it is none: -?(0|[1-9][0-9]*)(.[0-9]+)?(e[+-]?..)?
 */
static size_t number_length(const keeli_json *j)
{
    const char *c = j->at, *end = j->end;
    c += c < end && *c == '-';
    const size_t whole = digits_at(c, end);
    if (whole == 0 || (whole > 1 && *c == '0')) return 0;
    c += whole;
    if (c < end && *c == '.') {
        const size_t n = digits_at(++c, end);
        if (n == 0) return 0;
        c += n;
    }
    if (c < end && (*c == 'e' || *c == 'E')) {
        c++;
        c += c < end && (*c == '+' || *c == '-');
        const size_t n = digits_at(c, end);
        if (n == 0) return 0;
        c += n;
    }
    return (size_t)(c - j->at);
}

/* strtod wants the point of the process's locale: the bytes that printf puts into a half. */
static double number_of(const char *token, size_t n)
{
    char half[16], text[NUMBER_MAX + sizeof half];
    const int points = snprintf(half, sizeof half, "%.1f", 0.5) - 2;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (token[i] == '.') {
            memcpy(text + used, half + 1, (size_t)points);
            used += (size_t)points;
        } else {
            text[used++] = token[i];
        }
    }
    text[used] = 0;
    const int rounding = fegetround();
    fesetround(FE_TONEAREST);
    const double value = strtod(text, NULL);
    fesetround(rounding);
    return value;
}

keel_status keeli_json_number(keeli_json *j, double *out)
{
    keeli_json_peek(j);
    const size_t n = number_length(j);
    if (n == 0) return fail_found(j, "a number");
    if (n > NUMBER_MAX)
        return keeli_json_fail(j, "a number of more than %d characters", (int)NUMBER_MAX);
    *out = number_of(j->at, n);
    j->at += n;
    return KEEL_OK;
}

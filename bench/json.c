/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The JSON writer. */
#include "json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void write_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(file, "\\%c", *c);
        } else if (*c < 0x20) {
            fprintf(file, "\\u%04x", *c);
        } else {
            fputc(*c, file);
        }
    }
    fputc('"', file);
}

static void begin_value(json *j, const char *key)
{
    const int level = j->depth - 1;
    if (level < 0) return;
    if (j->more[level]) fputc(',', j->file);
    j->more[level] = true;
    if (!key) return;
    write_string(j->file, key);
    fputc(':', j->file);
}

static void open_level(json *j, const char *key, char opener, char closer)
{
    assert(j->depth < JSON_DEPTH);
    begin_value(j, key);
    fputc(opener, j->file);
    j->closer[j->depth] = closer;
    j->more[j->depth] = false;
    j->depth++;
}

void json_begin(json *j, FILE *file)
{
    memset(j, 0, sizeof *j);
    j->file = file;
}

void json_object(json *j, const char *key)
{
    open_level(j, key, '{', '}');
}

void json_array(json *j, const char *key)
{
    open_level(j, key, '[', ']');
}

void json_end(json *j)
{
    assert(j->depth > 0);
    j->depth--;
    fputc(j->closer[j->depth], j->file);
    if (j->depth == 0) fputc('\n', j->file);
}

void json_raw(json *j, const char *key, const char *document)
{
    begin_value(j, key);
    fputs(document, j->file);
}

void json_text(json *j, const char *key, const char *value)
{
    begin_value(j, key);
    if (value) {
        write_string(j->file, value);
    } else {
        fputs("null", j->file);
    }
}

void json_int(json *j, const char *key, int64_t value)
{
    begin_value(j, key);
    fprintf(j->file, "%" PRId64, value);
}

void json_bool(json *j, const char *key, bool value)
{
    json_raw(j, key, value ? "true" : "false");
}

void json_hex64(json *j, const char *key, uint64_t value)
{
    begin_value(j, key);
    fprintf(j->file, "\"%016" PRIx64 "\"", value);
}

static const char *nonfinite_text(double value)
{
    if (isnan(value)) return "nan";
    return value > 0 ? "inf" : "-inf";
}

static void write_real(json *j, const char *key, double value, const char *text)
{
    if (isfinite(value)) {
        json_raw(j, key, text);
        return;
    }
    json_raw(j, key, "null");
    if (!key) return;
    char text_key[64];
    snprintf(text_key, sizeof text_key, "%s_text", key);
    json_text(j, text_key, text);
}

void json_real(json *j, const char *key, double value)
{
    char buffer[JSON_NUMBER_SIZE];
    write_real(j, key, value, json_number(value, buffer));
}

void json_real32(json *j, const char *key, float value)
{
    char buffer[JSON_NUMBER_SIZE];
    write_real(j, key, value, json_number32(value, buffer));
}

/* Whole numbers of moderate size are written out: 100000, not 1e+05. */
static bool is_plain_integer(double value)
{
    return value == trunc(value) && fabs(value) < 1e15 && !(value == 0 && signbit(value));
}

const char *json_number(double value, char buffer[JSON_NUMBER_SIZE])
{
    if (!isfinite(value)) return strcpy(buffer, nonfinite_text(value));
    if (is_plain_integer(value)) {
        snprintf(buffer, JSON_NUMBER_SIZE, "%.0f", value);
        return buffer;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buffer, JSON_NUMBER_SIZE, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value) break;
    }
    return buffer;
}

const char *json_number32(float value, char buffer[JSON_NUMBER_SIZE])
{
    if (!isfinite(value)) return strcpy(buffer, nonfinite_text((double)value));
    if (is_plain_integer((double)value)) {
        snprintf(buffer, JSON_NUMBER_SIZE, "%.0f", (double)value);
        return buffer;
    }
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(buffer, JSON_NUMBER_SIZE, "%.*g", digits, (double)value);
        if (strtof(buffer, NULL) == value) break;
    }
    return buffer;
}

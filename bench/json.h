/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A streaming JSON writer (RFC 8259), one line per document.  The caller opens and closes; commas,
 * escapes and numbers are its own.  A number that is not finite becomes null, with a text field
 * "<key>_text" beside it.  Numbers are the shortest that read back to the same bits. */
#ifndef BENCH_JSON_H
#define BENCH_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH 16

typedef struct json {
    FILE *file;
    int depth;
    char closer[JSON_DEPTH]; /* '}' or ']' of each open level */
    bool more[JSON_DEPTH];   /* a comma is due there */
} json;

/* json_begin: a document on file; its first value is json_object(&j, NULL) or json_array. */
void json_begin(json *j, FILE *file);

/* In an object key names the value; in an array and at the top it is NULL. */
void json_object(json *j, const char *key);
void json_array(json *j, const char *key);

/* json_end: close the innermost level; closing the last one ends the line. */
void json_end(json *j);

void json_text(json *j, const char *key, const char *value); /* NULL value = null */
void json_int(json *j, const char *key, int64_t value);
void json_bool(json *j, const char *key, bool value);
void json_real(json *j, const char *key, double value);
void json_real32(json *j, const char *key, float value);   /* shortest for an f32 */
void json_hex64(json *j, const char *key, uint64_t value); /* "0123456789abcdef" */
void json_raw(json *j, const char *key, const char *document);

/* json_number, json_number32: the shortest text of a value, also for tables; "nan", "inf", "-inf"
 * where it is not finite.  Returns buffer. */
#define JSON_NUMBER_SIZE 40
const char *json_number(double value, char buffer[JSON_NUMBER_SIZE]);
const char *json_number32(float value, char buffer[JSON_NUMBER_SIZE]);

#endif

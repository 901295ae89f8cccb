/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* JSON into the caller's buffer: what fits is written, everything is counted. */
#ifndef KEELI_JSON_WRITE_H
#define KEELI_JSON_WRITE_H

#include <stddef.h>

typedef struct keeli_json_out {
    char *at;
    size_t size;
    size_t used;
} keeli_json_out;

/* As printf does. */
void keeli_json_put(keeli_json_out *out, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* A finite number, in the digits that printf writes in round to nearest, with JSON's point. */
void keeli_json_put_digits(keeli_json_out *out, double value, int digits);

/* In quotes; what is no UTF-8 becomes the replacement character. */
void keeli_json_put_quoted(keeli_json_out *out, const char *text);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A strict reader of small JSON documents whose shape is known.  The caller asks for what should
 * come next; anything else fails with the line.  Nothing is skipped, so nesting goes no deeper than
 * the caller's questions, without a stack, and nothing is allocated. */
#ifndef KEELI_JSON_READ_H
#define KEELI_JSON_READ_H

#include "internal.h"

typedef struct keeli_json {
    const char *fn; /* of the sentences */
    const char *at;
    const char *end;
    int32_t line; /* of at; from 1 */
} keeli_json;

keeli_json keeli_json_begin(const char *fn, const char *text, size_t size);

/* INVALID, with the line of what was read last. */
keel_status keeli_json_fail(const keeli_json *j, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3), cold))
#endif
    ;

/* The first character of what comes next, 0 at the end. */
char keeli_json_peek(keeli_json *j);

/* Decoded, valid UTF-8 without a 0 in it, terminated; fails where it takes size bytes or more. */
keel_status keeli_json_string(keeli_json *j, char *out, size_t size);

/* Nearest f64, infinite beyond it, whatever the process's locale and rounding mode. */
keel_status keeli_json_number(keeli_json *j, double *out);

/* Walk through '{' '}' or '[' ']': open, then next before each element until *out_more is false. */
keel_status keeli_json_open(keeli_json *j, char bracket);
keel_status keeli_json_next(keeli_json *j, char bracket, bool first, bool *out_more);

/* One character and the blanks before it. */
keel_status keeli_json_expect(keeli_json *j, char c);

/* Nothing but blanks is left. */
keel_status keeli_json_finish(keeli_json *j);

/* A key of an object: how its value is read, and what the reader needs to know. */
typedef struct keeli_json_key {
    const char *name;
    keel_status (*read)(keeli_json *j, const struct keeli_json_key *key, void *object);
    size_t offset;            /* of the field in the object */
    double lo, hi;            /* of a number */
    const char *const *words; /* of an enumeration, ended by NULL */
} keeli_json_key;

/* An object with these keys, ended by one without a name, at most 32, in any order; unknown and
 * repeated ones fail.  out_seen: NULL or a bit per key that was there. */
keel_status keeli_json_object(keeli_json *j, const keeli_json_key *keys, void *object,
                              uint32_t *out_seen);

/* Readers for keys: an int32_t, an f32, an int32_t or enum that is the place of its word, an array
 * of hi characters, filled up with 0. */
keel_status keeli_json_read_int(keeli_json *j, const keeli_json_key *key, void *object);
keel_status keeli_json_read_float(keeli_json *j, const keeli_json_key *key, void *object);
keel_status keeli_json_read_word(keeli_json *j, const keeli_json_key *key, void *object);
keel_status keeli_json_read_text(keeli_json *j, const keeli_json_key *key, void *object);

/* The place of a word in a list; fails with the list. */
keel_status keeli_json_find_word(const keeli_json *j, const char *what, const char *word,
                                 const char *const *words, int32_t *out_index);

#endif

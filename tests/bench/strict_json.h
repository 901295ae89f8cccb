/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A strict reader of JSON (RFC 8259) for tests: it accepts nothing more, and finds values by path
 * ("runs[1].accuracy") by scanning the text again, so there is nothing to free. */
#ifndef TESTS_STRICT_JSON_H
#define TESTS_STRICT_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* NULL if text is one valid document, else where it stops being one. */
const char *json_fault(const char *text);

/* The value at a path of a valid document; NULL if there is none. */
const char *json_find(const char *text, const char *path);

/* Of the value at path: elements of an array or members of an object; -1 if neither. */
int json_count(const char *text, const char *path);

/* NaN if path is no number. */
double json_number_at(const char *text, const char *path);

/* Is the value at path spelt exactly so ("true", "null", "\"inf\"")? */
bool json_is(const char *text, const char *path, const char *spelling);

#endif

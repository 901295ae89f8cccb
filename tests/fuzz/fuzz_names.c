/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel_format_find: any text.  Found, and then it is a format, and in capitals never another one (a
 * few are refused in one of the two spellings: f4 means two things, F4 one); or refused with a
 * sentence, and the outputs are untouched. */
#include <ctype.h>

#include "fuzz.h"

static const char mark[] = "mark";

static keel_status find(const char *name, keel_format *out_format)
{
    const char *note = mark;
    *out_format = (keel_format)-7;
    const keel_status status = keel_format_find(name, out_format, &note);
    MUST(status == KEEL_OK || status == KEEL_ERR_INVALID);
    if (status == KEEL_OK) {
        MUST(keel_format_get(*out_format));
        MUST(note != mark);
        return status;
    }
    MUST(*out_format == (keel_format)-7);
    MUST(note == mark);
    MUST(strlen(keel_last_error()) > 0);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    keel_format format, again;
    char *name = malloc(size + 1);
    MUST(name);
    if (size > 0) memcpy(name, data, size);
    name[size] = 0;
    const keel_status status = find(name, &format);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)name[i] < 0x80) name[i] = (char)toupper((unsigned char)name[i]);
    if (find(name, &again) == KEEL_OK && status == KEEL_OK) MUST(again == format);
    free(name);
    return 0;
}

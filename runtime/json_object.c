/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Objects and arrays of the strict JSON reader: a table of keys says what an object may have. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json_read.h"

enum { WORD_MAX = 48, TEXT_MAX = 64 };

keel_status keeli_json_open(keeli_json *j, char bracket)
{
    return keeli_json_expect(j, bracket);
}

keel_status keeli_json_next(keeli_json *j, char bracket, bool first, bool *out_more)
{
    *out_more = keeli_json_peek(j) != bracket;
    if (!*out_more)
        j->at++;
    else if (!first)
        TRY(keeli_json_expect(j, ','));
    return KEEL_OK;
}

static keel_status read_key(keeli_json *j, const keeli_json_key *keys, uint32_t *seen, int *out_k)
{
    char name[WORD_MAX];
    int k = 0;
    TRY(keeli_json_string(j, name, sizeof name));
    while (keys[k].name && strcmp(keys[k].name, name) != 0) k++;
    if (!keys[k].name) return keeli_json_fail(j, "unknown key \"%s\"", name);
    if (*seen >> k & 1u) return keeli_json_fail(j, "\"%s\" a second time", name);
    *seen |= 1u << k;
    *out_k = k;
    return keeli_json_expect(j, ':');
}

keel_status keeli_json_object(keeli_json *j, const keeli_json_key *keys, void *object,
                              uint32_t *out_seen)
{
    uint32_t seen = 0;
    bool more = true;
    int k = 0;
    TRY(keeli_json_open(j, '{'));
    for (bool first = true;; first = false) {
        TRY(keeli_json_next(j, '}', first, &more));
        if (!more) break;
        TRY(read_key(j, keys, &seen, &k));
        TRY(keys[k].read(j, &keys[k], object));
    }
    if (out_seen) *out_seen = seen;
    return KEEL_OK;
}

static keel_status read_bounded(keeli_json *j, const keeli_json_key *key, double *out)
{
    TRY(keeli_json_number(j, out));
    if (!(*out >= key->lo && *out <= key->hi))
        return keeli_json_fail(j, "%s=%.9g (want %.9g..%.9g)", key->name, *out, key->lo, key->hi);
    return KEEL_OK;
}

keel_status keeli_json_read_int(keeli_json *j, const keeli_json_key *key, void *object)
{
    double value;
    TRY(read_bounded(j, key, &value));
    if (value != floor(value))
        return keeli_json_fail(j, "%s=%.9g (want an integer)", key->name, value);
    const int32_t integer = (int32_t)value;
    memcpy((char *)object + key->offset, &integer, sizeof integer);
    return KEEL_OK;
}

/* By integers: the caller's rounding mode does not reach it. */
keel_status keeli_json_read_float(keeli_json *j, const keeli_json_key *key, void *object)
{
    double value;
    uint32_t bits;
    TRY(read_bounded(j, key, &value));
    TRY(keel_format_encode_f64(KEEL_FORMAT_F32, value, KEEL_OVERFLOW_IEEE, &bits));
    memcpy((char *)object + key->offset, &bits, sizeof bits);
    return KEEL_OK;
}

keel_status keeli_json_find_word(const keeli_json *j, const char *what, const char *word,
                                 const char *const *words, int32_t *out_index)
{
    char known[160] = "";
    for (int32_t i = 0; words[i]; i++) {
        *out_index = i;
        if (strcmp(words[i], word) == 0) return KEEL_OK;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", words[i]);
    }
    return keeli_json_fail(j, "%s '%s' (want %s)", what, word, known);
}

keel_status keeli_json_read_word(keeli_json *j, const keeli_json_key *key, void *object)
{
    char word[WORD_MAX];
    int32_t index = 0;
    TRY(keeli_json_string(j, word, sizeof word));
    TRY(keeli_json_find_word(j, key->name, word, key->words, &index));
    memcpy((char *)object + key->offset, &index, sizeof index);
    return KEEL_OK;
}

keel_status keeli_json_read_text(keeli_json *j, const keeli_json_key *key, void *object)
{
    char text[TEXT_MAX] = "";
    const size_t size = (size_t)key->hi;
    TRY(keeli_json_string(j, text, size));
    const size_t used = strlen(text);
    memset(text + used, 0, sizeof text - used);
    memcpy((char *)object + key->offset, text, size);
    return KEEL_OK;
}

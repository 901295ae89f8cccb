/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Fields of a state blob, little-endian, walked in one direction or the other. */
#ifndef KEELI_BLOB_H
#define KEELI_BLOB_H

#include "step_object.h"

typedef enum keeli_blob_way { KEELI_MEASURE, KEELI_SAVE, KEELI_LOAD } keeli_blob_way;

typedef struct keeli_cursor {
    unsigned char *at;
    size_t used;
    keeli_blob_way way;
} keeli_cursor;

static inline void keeli_field(keeli_cursor *c, void *value, size_t width)
{
    uint64_t word = 0;
    if (c->way == KEELI_SAVE) {
        if (width == 4) {
            uint32_t narrow;
            memcpy(&narrow, value, 4);
            word = narrow;
        } else {
            memcpy(&word, value, 8);
        }
        for (size_t i = 0; i < width; i++) c->at[c->used + i] = (unsigned char)(word >> 8 * i);
    } else if (c->way == KEELI_LOAD) {
        for (size_t i = 0; i < width; i++) word |= (uint64_t)c->at[c->used + i] << 8 * i;
        const uint32_t narrow = (uint32_t)word;
        memcpy(value, width == 4 ? (const void *)&narrow : (const void *)&word, width);
    }
    c->used += width;
}

#define FIELD(c, lvalue)                                                                        \
    do {                                                                                        \
        _Static_assert(sizeof(lvalue) == 4 || sizeof(lvalue) == 8, "a field has 4 or 8 bytes"); \
        keeli_field((c), &(lvalue), sizeof(lvalue));                                            \
    } while (0)

/* state_slots.c: the slots' part of a blob.  check reads and judges, apply takes over what check
 * accepted. */
void keeli_blob_measure_slots(const keel_step *step, keeli_cursor *c);
keel_status keeli_blob_save_slots(keel_step *step, keeli_cursor *c);
keel_status keeli_blob_check_slots(const keel_step *step, keeli_cursor *c);
keel_status keeli_blob_apply_slots(keel_step *step, keeli_cursor *c);

#endif

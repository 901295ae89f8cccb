/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Casts through the slots of a step, and what a slot says afterwards. */
#ifndef TESTS_SLOTS_H
#define TESTS_SLOTS_H

#include "check.h"

enum { SLOT_CAST_MAX = 64 };

/* The outcome of a cast: codes of 8 bits, and the inverse they were written with. */
typedef struct slot_cast {
    unsigned char codes[SLOT_CAST_MAX];
    int64_t count;
    keel_format format;
    float scale_inv;
} slot_cast;

static inline keel_report slot_last_report(keel_step *step)
{
    keel_report r;
    assert_ok(keel_step_report(step, 0, &r));
    return r;
}

static inline keel_slot_report slot_report(keel_step *step, int32_t slot)
{
    keel_slot_report r;
    assert_ok(keel_step_slot_report(step, slot, &r));
    return r;
}

static inline slot_cast slot_quantize(keel_step *step, int32_t slot, const float *values,
                                      int64_t count)
{
    slot_cast c = {.count = count, .format = slot_report(step, slot).format};
    const keel_tensor src = {
        .data = (void *)(uintptr_t)values, .numel = count, .format = KEEL_FORMAT_F32};
    const keel_tensor dst = {.data = c.codes, .numel = count, .format = c.format};
    assert_in_range(count, 0, SLOT_CAST_MAX);
    assert_ok(keel_step_quantize(step, slot, &src, &dst, &c.scale_inv, NULL));
    return c;
}

/* The same of one value; the scale it was cast with is the inverse's inverse where that is exact.
 */
static inline slot_cast slot_quantize_one(keel_step *step, int32_t slot, float value)
{
    return slot_quantize(step, slot, &value, 1);
}

/* Element i as its reader has it. */
static inline float slot_value(const slot_cast *c, int64_t i)
{
    return keel_format_decode(c->format, c->codes[i]) * c->scale_inv;
}

static inline keel_slot slot_of(keel_slot_role role, keel_format format, int32_t history)
{
    keel_slot s = KEEL_SLOT_INIT(role, format);
    s.history = history;
    s.count = 1;
    return s;
}

#endif

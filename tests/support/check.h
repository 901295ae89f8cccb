/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* cmocka with the headers it wants first, and assertions on what every call returns. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "keel/keel.h"

static inline void check_ok(keel_status status, const char *call, const char *file, int line)
{
    if (status == KEEL_OK) return;
    print_error("%s: %s\n", call, keel_last_error());
    _fail(file, line);
}

static inline void check_refused(keel_status status, keel_status wanted, const char *word,
                                 const char *call, const char *file, int line)
{
    const char *sentence = status == KEEL_OK ? "" : keel_last_error();
    if (status == wanted && strstr(sentence, word)) return;
    print_error("%s: %s (%s)\n  wanted: %s, with \"%s\"\n", call, keel_status_string(status),
                sentence, keel_status_string(wanted), word);
    _fail(file, line);
}

/* The call succeeds; or it fails with this status and a sentence that has this word. */
#define assert_ok(call) check_ok((call), #call, __FILE__, __LINE__)
#define assert_refused(call, status, word) \
    check_refused((call), (status), (word), #call, __FILE__, __LINE__)

static inline uint32_t bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t bits_of_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline void check_f64(double got, double wanted, const char *text, const char *file,
                             int line)
{
    if (bits_of_f64(got) == bits_of_f64(wanted)) return;
    print_error("%s: %a (%.17g), wanted %a (%.17g)\n", text, got, got, wanted, wanted);
    _fail(file, line);
}

/* Equal bits: -0 is not 0, and no tolerance. */
#define assert_same_f64(got, wanted) check_f64((got), (wanted), #got, __FILE__, __LINE__)
#define assert_same_f32(got, wanted) \
    check_f64((double)(got), (double)(wanted), #got, __FILE__, __LINE__)

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* An entry for any bytes at all.  libFuzzer calls it in a target of its own; smoke.c calls it with
 * made-up bytes as an ordinary test. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "keel/keel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold for every input. */
#define MUST(condition)                                                         \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, \
                    keel_last_error());                                         \
            abort();                                                            \
        }                                                                       \
    } while (0)

#endif

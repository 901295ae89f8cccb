/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The self-test of `keel doctor`: what must hold on any machine, through the public interface. */
#ifndef BENCH_DOCTOR_CHECKS_H
#define BENCH_DOCTOR_CHECKS_H

#include <stddef.h>

typedef struct doctor_check {
    const char *name;
    const char *claim; /* what holds when it passes */
    /* NULL when the claim holds, else what was seen instead; written into text if it varies. */
    const char *(*run)(char *text, size_t size);
} doctor_check;

/* Ends with a NULL name. */
extern const doctor_check doctor_checks[];

#endif

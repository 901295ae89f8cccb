/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The host conversions of the CUDA headers as a second opinion: one row a format.  They drop the
 * sign of a NaN, so NaN compares as a class. */
#ifndef KEELI_TEST_CUDA_HOST_H
#define KEELI_TEST_CUDA_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "keel/formats.h"

KEEL_BEGIN_DECLS

typedef struct cuda_host {
    keel_format format;
    uint32_t (*encode)(float x, bool saturate);
    float (*decode)(uint32_t code);
    bool has_saturate; /* false: one overflow mode, IEEE or, for kind FINITE, clamping */
} cuda_host;

enum { CUDA_HOSTS = 7 };

extern const cuda_host cuda_hosts[CUDA_HOSTS];

/* f64 to e4m3 and e5m2 in IEEE overflow mode. */
uint32_t cuda_encode_f64(keel_format format, double x);

/* The e8m0 code of the smallest power of two from |x| on. */
uint32_t cuda_e8m0_up(float x);
uint32_t cuda_e8m0_up_f64(double x);

KEEL_END_DECLS

#endif

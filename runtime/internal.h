/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What every .c file of the core shares: failing with a sentence, forwarding failures. */
#ifndef KEELI_INTERNAL_H
#define KEELI_INTERNAL_H

#include "keel/ext.h"

/* Who first knows the error writes the sentence; callers forward it with TRY. */
#define FAIL(status, ...) return keel_ext_fail((status), __func__, __VA_ARGS__)
#define TRY(call)                                       \
    do {                                                \
        const keel_status try_status_ = (call);         \
        if (try_status_ != KEEL_OK) return try_status_; \
    } while (0)

/* A view of memory as every call wants it; fn and what name it in the sentence. */
keel_status keeli_tensor_check(const char *fn, const char *what, const keel_tensor *t);

/* Source and target of a cast: sizes, formats, overlap. */
keel_status keeli_cast_check(const char *fn, const keel_tensor *src, const keel_tensor *dst);

#endif

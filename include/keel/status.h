/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Status codes and the sentence behind the last one. */
#ifndef KEEL_STATUS_H
#define KEEL_STATUS_H

#include "keel/export.h"

KEEL_BEGIN_DECLS

/* X(NAME, value, text). Values are ABI: never changed, never reused. They come in blocks by what
 * is lost: the call (-1..), memory (-20..), the device (-40..), the other ranks (-60..).
 * A skipped step is a result, not an error. */
#define KEEL_STATUS_LIST(X)                                              \
    X(OK, 0, "success")                                                  \
    X(ERR_INVALID, -1, "invalid argument")                               \
    X(ERR_ORDER, -2, "call out of order for this step")                  \
    X(ERR_ABI, -3, "caller and library disagree on a struct")            \
    X(ERR_UNSUPPORTED, -4, "not supported by this build or device")      \
    X(ERR_STATE, -5, "state blob refused")                               \
    X(ERR_NOT_FOUND, -6, "no such entry")                                \
    X(ERR_NO_MEMORY, -20, "out of memory")                               \
    X(ERR_DEVICE, -40, "device runtime error")                           \
    X(ERR_UNAVAILABLE, -41, "no such device or library on this machine") \
    X(ERR_COMM, -60, "a rank is late or dead, or the transport failed")  \
    X(ERR_PEER, -61, "the ranks disagree")

typedef enum keel_status {
#define X(name, value, text) KEEL_##name = value,
    KEEL_STATUS_LIST(X)
#undef X
        KEEL_STATUS_FORCE_32BIT = 0x7fffffff
} keel_status;

/* keel_status_string: the fixed text of a status, "unknown status" for a value not in the list.
 * Owns    static storage.
 * Errors  none.
 * Since   0.1 */
KEEL_API const char *keel_status_string(keel_status status);

/* keel_last_error: one sentence about the last failing call of this thread, with the offending
 * value: "keel_step_create: cfg.max_norm=-1 (want 0..inf)". Empty before the first failure;
 * successful calls leave it alone.
 * Owns    thread-local storage, overwritten by this thread's next failure.
 * Errors  none.
 * Since   0.1 */
KEEL_API const char *keel_last_error(void);

KEEL_END_DECLS
#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

static _Thread_local char last_error[512];

const char *keel_last_error(void)
{
    return last_error;
}

keel_status keel_ext_fail(keel_status status, const char *fn, const char *format, ...)
{
    char sentence[sizeof last_error]; /* an argument may be the last sentence itself */
    const int used = snprintf(sentence, sizeof sentence, "%.64s: ", fn);
    va_list args;
    va_start(args, format);
    vsnprintf(sentence + used, sizeof sentence - (size_t)used, format, args);
    va_end(args);
    memcpy(last_error, sentence, sizeof sentence);
    return status;
}

const char *keel_status_string(keel_status status)
{
    switch (status) {
#define X(name, value, text) \
    case KEEL_##name:        \
        return text;
        KEEL_STATUS_LIST(X)
#undef X
    default:
        return "unknown status";
    }
}

unsigned keel_version(void)
{
    return KEEL_VERSION_NUM;
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
#include <fenv.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "json_write.h"
#include "utf8.h"

void keeli_json_put(keeli_json_out *out, const char *format, ...)
{
    char *at = out->used < out->size ? out->at + out->used : NULL;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(at, at ? out->size - out->used : 0, format, args);
    va_end(args);
    out->used += n > 0 ? (size_t)n : 0;
}

/* The point of the process's locale may be another one, of several bytes even. */
void keeli_json_put_digits(keeli_json_out *out, double value, int digits)
{
    char text[40];
    bool in_point = false;
    const int rounding = fegetround();
    fesetround(FE_TONEAREST);
    snprintf(text, sizeof text, "%.*g", digits, value);
    fesetround(rounding);
    for (const char *c = text; *c; c++) {
        const bool is_point = !strchr("+-0123456789e", *c);
        if (!is_point || !in_point) keeli_json_put(out, "%c", is_point ? '.' : *c);
        in_point = is_point;
    }
}

void keeli_json_put_quoted(keeli_json_out *out, const char *text)
{
    keeli_json_put(out, "\"");
    for (int n; *text; text += n ? n : 1) {
        n = keeli_utf8_length(text, 4); /* stops at the terminating 0 */
        if (*text == '"' || *text == '\\')
            keeli_json_put(out, "\\%c", *text);
        else if (n == 0)
            keeli_json_put(out, "\\ufffd");
        else if (n == 1 && *text < 0x20)
            keeli_json_put(out, "\\u%04x", (unsigned)*text);
        else
            keeli_json_put(out, "%.*s", n, text);
    }
    keeli_json_put(out, "\"");
}

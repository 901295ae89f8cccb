/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A report as one line of JSON.  Fields are rows, so a new one is a line here. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

enum { SCHEMA = 1 };

const char *keel_cause_string(keel_cause cause)
{
    switch (cause) {
#define X(name, value, text) \
    case KEEL_CAUSE_##name:  \
        return text;
        KEEL_CAUSE_LIST(X)
#undef X
    default:
        return "unknown";
    }
}

static const char *origin_string(keel_origin origin)
{
    return origin == KEEL_ORIGIN_RANK ? "rank" : origin == KEEL_ORIGIN_SHARED ? "shared" : "none";
}

/* Writes what fits, counts everything. */
typedef struct line {
    char *at;
    size_t size;
    size_t used;
} line;

static void put(line *l, const char *format, ...)
{
    char *at = l->used < l->size ? l->at + l->used : NULL;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(at, at ? l->size - l->used : 0, format, args);
    va_end(args);
    l->used += n > 0 ? (size_t)n : 0;
}

static void put_int(line *l, const char *name, int64_t value)
{
    put(l, ",\"%s\":%" PRId64, name, value);
}

/* Digits as printf writes them, but with JSON's decimal point: that of the process's locale may be
 * another one, of several bytes even. */
static void put_digits(line *l, double value, int digits)
{
    char text[40];
    bool in_point = false;
    snprintf(text, sizeof text, "%.*g", digits, value);
    for (const char *c = text; *c; c++) {
        const bool is_point = !strchr("+-0123456789e", *c);
        if (!is_point || !in_point) put(l, "%c", is_point ? '.' : *c);
        in_point = is_point;
    }
}

/* JSON has no word for what is not finite: null, and the word beside it. */
static void put_number(line *l, const char *name, double value, int digits)
{
    put(l, ",\"%s\":", name);
    if (isfinite(value))
        put_digits(l, value, digits);
    else
        put(l, "null,\"%s_text\":\"%s\"", name, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

/* Bytes of the UTF-8 character at text, 0 if it is none. */
static int utf8_length(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    const int n = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    for (int i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80) return 0;
    const bool overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    const bool too_large = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
    return overlong || too_large || c[0] > 0xf4 ? 0 : n;
}

/* Names are the caller's: what is no UTF-8 becomes the replacement character. */
static void put_text(line *l, const char *name, const char *text)
{
    put(l, ",\"%s\":\"", name);
    for (int n; *text; text += n ? n : 1) {
        n = utf8_length(text);
        if (*text == '"' || *text == '\\')
            put(l, "\\%c", *text);
        else if (n == 0)
            put(l, "\\ufffd");
        else if (n == 1 && *text < 0x20)
            put(l, "\\u%04x", *text);
        else
            put(l, "%.*s", n, text);
    }
    put(l, "\"");
}

static void put_report(line *l, const keel_report *r, const char *culprit_name)
{
    put(l, "{\"keel_report\":%d", SCHEMA);
    put_int(l, "step", r->step);
    put(l, ",\"tag\":%" PRIu64, r->tag);
    put(l, ",\"applied\":%s", r->applied ? "true" : "false");
    put_text(l, "cause", keel_cause_string(r->cause));
    put_number(l, "norm", r->norm, 17);
    put_number(l, "clip_coef", (double)r->clip_coef, 9);
    put_number(l, "loss_scale", (double)r->loss_scale, 9);
    put_number(l, "loss_scale_next", (double)r->loss_scale_next, 9);
    put(l, ",\"loss_scale_stuck\":%s", r->loss_scale_stuck ? "true" : "false");
    put_int(l, "elements", r->elements);
    put_int(l, "zero_count", r->zero_count);
    put_int(l, "inf_count", r->inf_count);
    put_int(l, "nan_count", r->nan_count);
    put_int(l, "bad_ranks", r->bad_ranks);
    put_int(l, "loss_votes", r->loss_votes);
    put_int(l, "veto_votes", r->veto_votes);
    put_text(l, "origin", origin_string(r->origin));
    put_int(l, "culprit_rank", r->culprit_rank);
    put_int(l, "culprit_tensor", r->culprit_tensor);
    if (culprit_name) put_text(l, "culprit_name", culprit_name);
    put_int(l, "culprit_slot", r->culprit_slot);
    put_int(l, "local_tensor", r->local_tensor);
    put_int(l, "local_index", r->local_index);
    put_int(l, "probed", r->probed);
    put_int(l, "applied_steps", r->applied_steps);
    put_int(l, "skipped_steps", r->skipped_steps);
    put_number(l, "skip_rate", r->skip_rate, 17);
    put_number(l, "clip_rate", r->clip_rate, 17);
    put(l, "}");
}

keel_status keel_report_json(const keel_report *report, const char *culprit_name, char *buffer,
                             size_t size, size_t *out_len)
{
    if (!report || (!buffer && size > 0))
        FAIL(KEEL_ERR_INVALID, "%s is NULL", report ? "buffer" : "report");
    line l = {buffer, size, 0};
    put_report(&l, report, culprit_name);
    if (out_len) *out_len = l.used;
    if (size > 0 && l.used >= size)
        FAIL(KEEL_ERR_INVALID, "size=%zu (want >= %zu)", size, l.used + 1);
    return KEEL_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A report as one line of JSON.  Fields are rows, so a new one is a line here. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "internal.h"
#include "json_write.h"

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

static void put_int(keeli_json_out *l, const char *name, int64_t value)
{
    keeli_json_put(l, ",\"%s\":%" PRId64, name, value);
}

/* JSON has no word for what is not finite: null, and the word beside it. */
static void put_number(keeli_json_out *l, const char *name, double value, int digits)
{
    keeli_json_put(l, ",\"%s\":", name);
    if (isfinite(value))
        keeli_json_put_digits(l, value, digits);
    else
        keeli_json_put(l, "null,\"%s_text\":\"%s\"", name,
                       isnan(value) ? "nan"
                       : value > 0  ? "inf"
                                    : "-inf");
}

/* Names are the caller's, in whatever encoding. */
static void put_text(keeli_json_out *l, const char *name, const char *text)
{
    keeli_json_put(l, ",\"%s\":", name);
    keeli_json_put_quoted(l, text);
}

static void put_report(keeli_json_out *l, const keel_report *r, const char *culprit_name)
{
    keeli_json_put(l, "{\"keel_report\":%d", SCHEMA);
    put_int(l, "step", r->step);
    keeli_json_put(l, ",\"tag\":%" PRIu64, r->tag);
    keeli_json_put(l, ",\"applied\":%s", r->applied ? "true" : "false");
    put_text(l, "cause", keel_cause_string(r->cause));
    put_number(l, "norm", r->norm, 17);
    put_number(l, "clip_coef", (double)r->clip_coef, 9);
    put_number(l, "loss_scale", (double)r->loss_scale, 9);
    put_number(l, "loss_scale_next", (double)r->loss_scale_next, 9);
    keeli_json_put(l, ",\"loss_scale_stuck\":%s", r->loss_scale_stuck ? "true" : "false");
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
    keeli_json_put(l, "}");
}

keel_status keel_report_json(const keel_report *report, const char *culprit_name, char *buffer,
                             size_t size, size_t *out_len)
{
    if (!report || (!buffer && size > 0))
        FAIL(KEEL_ERR_INVALID, "%s is NULL", report ? "buffer" : "report");
    keeli_json_out l = {buffer, size, 0};
    put_report(&l, report, culprit_name);
    if (out_len) *out_len = l.used;
    if (size > 0 && l.used >= size)
        FAIL(KEEL_ERR_INVALID, "size=%zu (want >= %zu)", size, l.used + 1);
    return KEEL_OK;
}

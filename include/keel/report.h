/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What a step decided and why. */
#ifndef KEEL_REPORT_H
#define KEEL_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "keel/export.h"
#include "keel/status.h"

KEEL_BEGIN_DECLS

/* Why a step was skipped, the first that holds in this order.  X(NAME, value, text). */
#define KEEL_CAUSE_LIST(X)   \
    X(NONE, 0, "none")       \
    X(NAN, 1, "nan")         \
    X(INF, 2, "inf")         \
    X(LOSS, 3, "loss")       \
    X(VETO, 4, "veto")       \
    X(DIVISOR, 5, "divisor") \
    X(SKIP_NORM, 6, "skip_norm")

typedef enum keel_cause {
#define X(name, value, text) KEEL_CAUSE_##name = value,
    KEEL_CAUSE_LIST(X)
#undef X
        KEEL_CAUSE_FORCE_32BIT = 0x7fffffff
} keel_cause;

/* keel_cause_string: "none", "nan", "inf", ...; "unknown" for a value not in the list.
 * Errors  none.
 * Since   0.1 */
KEEL_API const char *keel_cause_string(keel_cause cause);

/* How sure the named culprit is.
 * NONE    nothing non-finite.
 * RANK    seen on some ranks only, or by keel_step_probe(): the named rank is where it began.
 * SHARED  every rank saw it in its already summed gradients, and none probed: it may have begun on
 *         any of them; culprit_rank is just the lowest. */
typedef enum keel_origin {
    KEEL_ORIGIN_NONE = 0,
    KEEL_ORIGIN_RANK = 1,
    KEEL_ORIGIN_SHARED = 2,
    KEEL_ORIGIN_FORCE_32BIT = 0x7fffffff
} keel_origin;

/* The record of one step.  All but the fields marked "here" are the same on every rank. */
typedef struct keel_report {
    int64_t step;    /* from 1 */
    uint64_t tag;    /* the caller's, of this rank (here) */
    int32_t applied; /* 1 or 0 */
    keel_cause cause;
    double norm;      /* L2, unscaled, before clipping; NaN or inf as the elements are */
    float clip_coef;  /* <= 1; 0 when skipped */
    float loss_scale; /* this step's */
    float loss_scale_next;
    int32_t loss_scale_stuck; /* 1: overflow at the minimum */
    int64_t elements;         /* counted once each over all ranks */
    int64_t zero_count;       /* of them */
    int64_t inf_count;        /* in all local copies of all ranks, replicas included */
    int64_t nan_count;
    int64_t bad_ranks;  /* ranks with a non-finite gradient element */
    int64_t loss_votes; /* ranks whose loss was not finite */
    int64_t veto_votes; /* ranks that vetoed */
    keel_origin origin;
    int32_t culprit_rank; /* lowest rank concerned, -1 = none; for LOSS and VETO the lowest voter */
    int64_t culprit_tensor; /* id of that rank's first bad tensor, -1 = none */
    int64_t culprit_slot; /* first slot with a non-finite source, of the lowest rank with one; -1 */
    int64_t local_tensor; /* first bad tensor here: index in the table, -1 = none (here) */
    int64_t local_index;  /* its first bad element (here) */
    int64_t probed;       /* elements this rank read in keel_step_probe() (here) */
    int64_t applied_steps; /* so far, this one included */
    int64_t skipped_steps;
    double skip_rate; /* over the last rate_window steps, or as many as there were */
    double clip_rate;
} keel_report;

/* keel_report_json: one line of JSON (RFC 8259), without newline.  Schema: "keel_report": 1, then
 * the fields above by name; a number that is not finite is null, with "<name>_text" beside it.
 * culprit_name  may be NULL; the name of culprit_tensor, written when given.
 * buffer    NULL with size 0 asks for the length only.
 * out_len   characters without the terminating 0, also when the buffer is too small; may be NULL.
 * Errors    INVALID report NULL, or the buffer is too small (contents then unspecified).
 * Since     0.1 */
KEEL_API keel_status keel_report_json(const keel_report *report, const char *culprit_name,
                                      char *buffer, size_t size, size_t *out_len);

KEEL_END_DECLS
#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The self-test: codecs, decision, norm and state on this machine. */
#include "doctor_checks.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keel/keel.h"

static const char *library_said(keel_status status)
{
    return status == KEEL_OK ? NULL : keel_last_error();
}

/* ---- every code of every format, through the device's codecs ---- */

enum { CODES = 65536 };

typedef struct code_table {
    uint8_t codes[CODES * 4], back[CODES * 4];
    float values[CODES];
} code_table;

/* 8 and 16 bits are run through in full; of f32, codes far apart. */
static int64_t fill_codes(code_table *t, const keel_format_info *f)
{
    const int64_t count = f->bits < 16 ? INT64_C(1) << f->bits : CODES;
    for (uint32_t i = 0; i < (uint32_t)count; i++) {
        const uint32_t code = f->bits == 32 ? i * 65537u : i;
        for (int b = 0; b < f->storage_bytes; b++) {
            t->codes[i * (uint32_t)f->storage_bytes + (uint32_t)b] = (uint8_t)(code >> (8 * b));
        }
    }
    return count;
}

/* NaN is compared as a class; its payload need not survive. */
static bool same_code(const code_table *t, const keel_format_info *f, int64_t i)
{
    const size_t width = (size_t)f->storage_bytes;
    const size_t at = (size_t)i * width;
    if (memcmp(t->codes + at, t->back + at, width) == 0) return true;
    uint32_t code = 0;
    for (size_t b = 0; b < width; b++) code |= (uint32_t)t->back[at + b] << (8 * b);
    return isnan(t->values[i]) && isnan(keel_format_decode(f->id, code));
}

static const char *round_trip(code_table *t, const keel_format_info *f, char *text, size_t size)
{
    const int64_t count = fill_codes(t, f);
    const keel_tensor codes = {.data = t->codes, .numel = count, .format = f->id};
    const keel_tensor values = {.data = t->values, .numel = count, .format = KEEL_FORMAT_F32};
    const keel_tensor back = {.data = t->back, .numel = count, .format = f->id};
    const keel_cast_options ieee = {.overflow = KEEL_OVERFLOW_IEEE};
    keel_status status = keel_dequantize(NULL, &codes, t->values, NULL);
    if (status == KEEL_OK) status = keel_quantize(NULL, &values, &back, &ieee, NULL, NULL);
    if (status != KEEL_OK) return keel_last_error();
    for (int64_t i = 0; i < count; i++) {
        if (same_code(t, f, i)) continue;
        snprintf(text, size, "%s: code number %" PRId64 " comes back as another", f->name, i);
        return text;
    }
    return NULL;
}

static const char *check_formats(char *text, size_t size)
{
    code_table *t = malloc(sizeof *t);
    if (!t) return "out of memory";
    const char *wrong = NULL;
    for (int32_t i = 0; !wrong && keel_format_at(i); i++) {
        if (keel_format_at(i)->can_encode) wrong = round_trip(t, keel_format_at(i), text, size);
    }
    free(t);
    return wrong;
}

/* ---- one overflow among ranks ---- */

enum { RANKS_MAX = 4, ELEMENTS = 3 };

typedef struct rank {
    int32_t index, count;
    keel_comm *comm;
    float grad[ELEMENTS], master[ELEMENTS];
    keel_report clean, bad;
    pthread_t thread;
    keel_status status;
    char said[256];
} rank;

static keel_status run_twice(rank *r, keel_step *step)
{
    keel_status status = keel_step_run(step, NULL);
    if (status == KEEL_OK) status = keel_step_report(step, 0, &r->clean);
    if (r->index == r->count - 1) r->grad[1] = INFINITY;
    if (status == KEEL_OK) status = keel_step_run(step, NULL);
    if (status == KEEL_OK) status = keel_step_report(step, 0, &r->bad);
    return status;
}

static void *run_rank(void *argument)
{
    rank *r = argument;
    const keel_group sgd = KEEL_GROUP_SGD(1.0);
    keel_config cfg = KEEL_CONFIG_INIT;
    cfg.comm = r->comm;
    cfg.loss_scale.init = 4;
    cfg.group_count = 1;
    cfg.groups = &sgd;
    keel_param param = KEEL_PARAM_INIT;
    param.grad = (keel_tensor){.data = r->grad, .numel = ELEMENTS, .format = KEEL_FORMAT_F32};
    param.master = r->master;
    for (int i = 0; i < ELEMENTS; i++) r->grad[i] = 4; /* 1, at scale 4 */

    keel_step *step = NULL;
    r->status = keel_step_create(&cfg, &param, 1, NULL, 0, &step);
    if (r->status == KEEL_OK) r->status = run_twice(r, step);
    if (r->status != KEEL_OK) snprintf(r->said, sizeof r->said, "%s", keel_last_error());
    keel_step_destroy(step);
    /* A rank that failed must not keep the others waiting. */
    keel_comm_destroy(r->comm);
    return NULL;
}

static const char *judge_rank(const rank *r)
{
    if (r->status != KEEL_OK) return r->said;
    if (!r->clean.applied) return "a clean step was skipped";
    if (r->bad.applied) return "a step with an infinity was applied";
    if (r->bad.cause != KEEL_CAUSE_INF) return "the skip does not name the infinity";
    if (r->bad.culprit_rank != r->count - 1) return "the skip names the wrong rank";
    if (r->bad.loss_scale_next != 2) return "the loss scale was not halved";
    for (int i = 0; i < ELEMENTS; i++) {
        if (r->master[i] != -1) return "a skipped step moved a parameter";
    }
    return NULL;
}

static const char *run_ranks(int32_t count, char *text, size_t size)
{
    rank ranks[RANKS_MAX] = {0};
    keel_comm *comms[RANKS_MAX];
    const keel_status status = keel_comm_threads(count, comms);
    if (status != KEEL_OK) return keel_last_error();
    int32_t started = 0;
    for (; started < count; started++) {
        rank *r = &ranks[started];
        r->index = started;
        r->count = count;
        r->comm = comms[started];
        if (pthread_create(&r->thread, NULL, run_rank, r) != 0) break;
    }
    for (int32_t i = started; i < count; i++) keel_comm_destroy(comms[i]);
    for (int32_t i = 0; i < started; i++) pthread_join(ranks[i].thread, NULL);
    if (started < count) return "no more threads";
    for (int32_t i = 0; i < count; i++) {
        const char *wrong = judge_rank(&ranks[i]);
        if (!wrong) continue;
        snprintf(text, size, "rank %" PRId32 " of %" PRId32 ": %s", i, count, wrong);
        return text;
    }
    return NULL;
}

static const char *check_one_rank(char *text, size_t size)
{
    return run_ranks(1, text, size);
}

static const char *check_four_ranks(char *text, size_t size)
{
    return run_ranks(4, text, size);
}

/* ---- a step over a list of cuts of the same numbers ---- */

enum { NUMBERS = 5000, CUTS_MAX = 5 };

typedef struct cut_run {
    float grads[NUMBERS], masters[NUMBERS], m1[NUMBERS], m2[NUMBERS];
    keel_param params[CUTS_MAX];
    keel_step *step;
} cut_run;

/* Magnitudes from 2^-10 to 2^10 and both signs, the same on every machine. */
static void fill_numbers(cut_run *run)
{
    uint32_t x = 12345;
    for (int i = 0; i < NUMBERS; i++) {
        x = x * 1664525u + 1013904223u;
        const float magnitude = ldexpf(1 + (float)(x >> 9) * 0x1p-23f, (int)(x >> 4 & 15) - 10);
        run->grads[i] = x >> 31 ? -magnitude : magnitude;
    }
}

static const char *begin_cuts(cut_run *run, const int64_t *ends)
{
    const keel_group adamw = KEEL_GROUP_ADAMW(1e-3);
    keel_config cfg = KEEL_CONFIG_INIT;
    cfg.max_norm = 1;
    cfg.loss_scale.init = 1;
    cfg.loss_scale.interval = 3;
    cfg.group_count = 1;
    cfg.groups = &adamw;
    int64_t count = 0;
    for (int64_t at = 0; at < NUMBERS; at = ends[count++]) {
        keel_param *p = &run->params[count];
        *p = KEEL_PARAM_INIT;
        p->grad = (keel_tensor){
            .data = run->grads + at, .numel = ends[count] - at, .format = KEEL_FORMAT_F32};
        p->master = run->masters + at;
        p->moment1 = run->m1 + at;
        p->moment2 = run->m2 + at;
    }
    fill_numbers(run);
    return library_said(keel_step_create(&cfg, run->params, count, NULL, 0, &run->step));
}

static const char *same_norm(cut_run *a, cut_run *b)
{
    keel_report ra, rb;
    const char *wrong = library_said(keel_step_run(a->step, NULL));
    if (!wrong) wrong = library_said(keel_step_run(b->step, NULL));
    if (!wrong) wrong = library_said(keel_step_report(a->step, 0, &ra));
    if (!wrong) wrong = library_said(keel_step_report(b->step, 0, &rb));
    if (wrong) return wrong;
    if (memcmp(&ra.norm, &rb.norm, sizeof ra.norm) != 0) return "the norms of two cuts differ";
    if (memcmp(a->masters, b->masters, sizeof a->masters) != 0) return "the updates differ";
    return NULL;
}

static const char *check_cuts(char *text, size_t size)
{
    (void)text, (void)size;
    cut_run *runs = calloc(2, sizeof *runs);
    if (!runs) return "out of memory";
    const char *wrong = begin_cuts(&runs[0], (const int64_t[]){NUMBERS});
    if (!wrong) wrong = begin_cuts(&runs[1], (const int64_t[]){1, 8, 1000, 4001, NUMBERS});
    if (!wrong) wrong = same_norm(&runs[0], &runs[1]);
    keel_step_destroy(runs[0].step);
    keel_step_destroy(runs[1].step);
    free(runs);
    return wrong;
}

/* ---- saved and loaded in the middle of an interval ---- */

static const char *compare_states(const cut_run *a, const cut_run *b, unsigned char *blobs,
                                  size_t size)
{
    const char *wrong = library_said(keel_step_state_save(a->step, blobs, size));
    if (!wrong) wrong = library_said(keel_step_state_save(b->step, blobs + size, size));
    if (wrong) return wrong;
    if (memcmp(blobs, blobs + size, size) != 0) return "the resumed run has another state";
    if (memcmp(a->masters, b->masters, sizeof a->masters) != 0) return "the resumed run differs";
    return NULL;
}

static const char *resume(cut_run *a, cut_run *b, unsigned char *blobs, size_t size)
{
    const char *wrong = library_said(keel_step_run(a->step, NULL));
    if (!wrong) wrong = library_said(keel_step_state_save(a->step, blobs, size));
    if (!wrong) wrong = library_said(keel_step_state_load(b->step, blobs, size));
    memcpy(b->masters, a->masters, sizeof a->masters);
    memcpy(b->m1, a->m1, sizeof a->m1);
    memcpy(b->m2, a->m2, sizeof a->m2);
    for (int i = 0; !wrong && i < 3; i++) wrong = same_norm(a, b);
    return wrong ? wrong : compare_states(a, b, blobs, size);
}

static const char *check_state(char *text, size_t size)
{
    (void)text, (void)size;
    cut_run *runs = calloc(2, sizeof *runs);
    if (!runs) return "out of memory";
    const char *wrong = begin_cuts(&runs[0], (const int64_t[]){NUMBERS});
    if (!wrong) wrong = begin_cuts(&runs[1], (const int64_t[]){NUMBERS});
    const size_t bytes = wrong ? 0 : keel_step_state_size(runs[0].step);
    unsigned char *blobs = calloc(2, bytes + 1);
    if (!wrong) wrong = blobs ? resume(&runs[0], &runs[1], blobs, bytes) : "out of memory";
    free(blobs);
    keel_step_destroy(runs[0].step);
    keel_step_destroy(runs[1].step);
    free(runs);
    return wrong;
}

const doctor_check doctor_checks[] = {
    {"formats", "every code comes back through decode and encode", check_formats},
    {"one-rank", "an infinity skips the step and halves the loss scale", check_one_rank},
    {"four-ranks", "one rank's infinity skips all four, and is named", check_four_ranks},
    {"norm", "two cuts of the same numbers have the same bits", check_cuts},
    {"state", "saved and loaded, a run continues bit for bit", check_state},
    {NULL, NULL, NULL},
};

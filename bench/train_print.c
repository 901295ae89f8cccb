/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The runs of keel train as a table and as JSON. */
#include <inttypes.h>
#include <string.h>

#include "json.h"
#include "train_request.h"

static void print_slots(const train_result *t)
{
    char amax[JSON_NUMBER_SIZE], scale[JSON_NUMBER_SIZE];
    if (t->slot_count > 0)
        printf("\n%-24s format amax         scale        headroom saturated flushed  nonfinite\n",
               t->recipe->name);
    for (int32_t i = 0; i < t->slot_count; i++) {
        const keel_slot_report *s = &t->slots[i].report;
        printf("  %-22s %-6s %-12s %-12s %-8.2f %-9" PRId64 " %-8" PRId64 " %" PRId64 "\n",
               t->slots[i].name, keel_format_get(s->format)->name, json_number32(s->amax, amax),
               json_number32(s->scale, scale), (double)s->headroom, s->saturated, s->flushed,
               s->nonfinite);
    }
}

void train_print_table(const train_request *r, const train_result *results, int count)
{
    const bool lists_clip = r->max_norm_count > 1;
    char number[JSON_NUMBER_SIZE];
    printf("%s%-12s%s accuracy  loss     applied skipped loss scale  norm median clip rate %s%s\n",
           cli_style(stdout, CLI_BOLD), "recipe", lists_clip ? " max-norm" : "",
           r->train.task->tokens > 1 ? "tokens/s" : "images/s", cli_style(stdout, CLI_RESET));
    for (int i = 0; i < count; i++) {
        const train_result *t = &results[i];
        printf("%-12s", t->recipe->name);
        if (lists_clip) printf(" %-8s", json_number(t->max_norm, number));
        printf(" %-9.4f %-8.4f %-7" PRId64 " %-7" PRId64 " %-11s %-11.4g %-9.3f %.0f\n",
               t->accuracy, t->loss, t->applied, t->skipped, json_number32(t->loss_scale, number),
               t->norm_median, t->clip_rate, t->tokens_per_second);
    }
    for (int i = 0; r->slots && i < count; i++) print_slots(&results[i]);
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void json_slots(json *j, const train_result *t)
{
    static const char *const roles[] = {"forward", "weight", "gradient"};
    json_array(j, "slots");
    for (int32_t i = 0; i < t->slot_count; i++) {
        const keel_slot_report *s = &t->slots[i].report;
        json_object(j, NULL);
        json_text(j, "name", t->slots[i].name);
        json_text(j, "role", roles[s->role]);
        json_text(j, "format", keel_format_get(s->format)->name);
        json_real32(j, "amax", s->amax);
        json_real32(j, "scale", s->scale);
        json_real32(j, "headroom", s->headroom);
        json_int(j, "saturated", s->saturated);
        json_int(j, "flushed", s->flushed);
        json_int(j, "nonfinite", s->nonfinite);
        json_end(j);
    }
    json_end(j);
}

static void json_curve(json *j, const train_result *t)
{
    json_array(j, "curve");
    for (int64_t i = 0; i < t->count; i++) json_real32(j, NULL, t->points[i].loss);
    json_end(j);
}

static void json_run(json *j, const train_request *r, const train_result *t)
{
    const train_options *o = &r->train;
    char crc[9];
    snprintf(crc, sizeof crc, "%08" PRIx32, t->params_crc);
    json_object(j, NULL);
    json_text(j, "recipe", t->recipe->name);
    json_int(j, "ranks", o->ranks);
    json_int(j, "steps", o->steps);
    json_int(j, "applied", t->applied);
    json_int(j, "skipped", t->skipped);
    json_real(j, "accuracy", t->accuracy);
    json_real(j, "loss", t->loss);
    json_real32(j, "loss_scale", t->loss_scale);
    json_real(j, "norm_median", t->norm_median);
    json_real(j, "clip_rate", t->clip_rate);
    json_hex64(j, "norm_bits", bits_of(t->last_norm));
    json_text(j, "params_crc", crc);
    json_real(j, "max_norm", t->max_norm);
    json_text(j, "model", o->task->name);
    json_real(j, "tokens_per_second", t->tokens_per_second);
    if (r->slots) json_slots(j, t);
    if (r->curve) json_curve(j, t);
    json_array(j, "skips");
    for (int64_t i = 0; i < t->count; i++) {
        const keel_report *report = &t->points[i].report;
        if (report->applied) continue;
        json_object(j, NULL);
        json_int(j, "step", report->step);
        json_text(j, "cause", keel_cause_string(report->cause));
        json_int(j, "rank", report->culprit_rank);
        json_text(j, "tensor", t->points[i].culprit);
        json_bool(j, "shared", report->origin == KEEL_ORIGIN_SHARED);
        json_end(j);
    }
    json_end(j);
    json_end(j);
}

void train_print_json(const train_request *r, const train_result *results, int count)
{
    json j;
    json_begin(&j, stdout);
    json_object(&j, NULL);
    json_array(&j, "runs");
    for (int i = 0; i < count; i++) json_run(&j, r, &results[i]);
    json_end(&j);
    json_end(&j);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The demo's results as one JSON document. */
#include "demo.h"
#include "json.h"

static void json_tensors(json *j, const char *key, const demo_clip *c, const float values[2][2])
{
    json_array(j, key);
    for (int i = 0; i < 2; i++) {
        json_array(j, NULL);
        for (int32_t k = 0; k < c->counts[i]; k++) json_real32(j, NULL, values[i][k]);
        json_end(j);
    }
    json_end(j);
}

static void json_clip(json *j, const char *key, const demo_clip *c)
{
    json_object(j, key);
    json_tensors(j, "grads", c, c->grads);
    json_real(j, "max_norm", c->max_norm);
    json_real(j, "norm", c->norm);
    json_tensors(j, "clipped", c, c->clipped);
    json_real(j, "norm_after", c->norm_after);
    json_end(j);
}

static void json_casts(json *j, const demo_results *r)
{
    json_array(j, "casts");
    for (int i = 0; i < DEMO_CASTS; i++) {
        const demo_cast *c = &r->casts[i];
        json_object(j, NULL);
        json_real(j, "value", c->value);
        json_real(j, "scale", c->scale);
        json_text(j, "format", keel_format_get(c->format)->name);
        json_int(j, "code", c->code);
        json_real32(j, "stored", c->stored);
        json_end(j);
    }
    json_end(j);
}

static void json_step(json *j, const demo_step *s)
{
    json_object(j, NULL);
    json_int(j, "step", s->report.step);
    json_real(j, "grad_size", s->size);
    json_bool(j, "applied", s->report.applied);
    json_text(j, "cause", keel_cause_string(s->report.cause));
    json_real32(j, "loss_scale", s->report.loss_scale);
    json_real32(j, "loss_scale_next", s->report.loss_scale_next);
    json_real(j, "norm", s->report.norm);
    json_int(j, "zeros", s->report.zero_count);
    json_int(j, "elements", s->report.elements);
    json_end(j);
}

static void json_trace(json *j, const demo_results *r)
{
    const demo_trace *t = &r->trace;
    json_object(j, "trace");
    json_real(j, "init_scale", r->options.init_scale);
    json_int(j, "interval", r->options.interval);
    json_real(j, "grad_size", r->options.grad_size);
    json_array(j, "steps");
    for (int64_t i = 0; i < t->count; i++) json_step(j, &t->steps[i]);
    json_end(j);
    json_int(j, "skips", t->skips);
    json_int(j, "last_skip", t->last_skip);
    json_real32(j, "final_loss_scale", t->final_scale);
    json_int(j, "skips_to_fit", t->skips_to_fit);
    json_real32(j, "fitting_scale", t->fitting_scale);
    json_end(j);
}

static void json_flushes(json *j, const demo_results *r)
{
    json_array(j, "flush");
    for (int i = 0; i < DEMO_FLUSHES; i++) {
        const demo_flush *f = &r->flushes[i];
        json_object(j, NULL);
        json_text(j, "format", keel_format_get(f->format)->name);
        json_real(j, "scale", f->scale);
        json_int(j, "count", f->count);
        json_int(j, "flushed", f->flushed);
        json_real(j, "share", (double)f->flushed / (double)f->count);
        json_end(j);
    }
    json_end(j);
}

static void json_descent(json *j, const char *key, const demo_descent *d)
{
    json_object(j, key);
    json_real(j, "max_norm", d->max_norm);
    json_real(j, "largest_loss_after_spike", d->largest_after);
    json_array(j, "loss");
    for (int i = 0; i <= DEMO_DESCENT_STEPS; i++) json_real(j, NULL, d->loss[i]);
    json_end(j);
    json_end(j);
}

void demo_json(const demo_results *results, FILE *file)
{
    json j;
    json_begin(&j, file);
    json_object(&j, NULL);
    json_clip(&j, "clip", &results->clip);
    json_casts(&j, results);
    json_trace(&j, results);
    json_flushes(&j, results);
    json_object(&j, "descent");
    json_int(&j, "spike_step", DEMO_DESCENT_SPIKE);
    json_real(&j, "spike_factor", DEMO_DESCENT_FACTOR);
    json_descent(&j, "unclipped", &results->unclipped);
    json_descent(&j, "clipped", &results->clipped);
    json_end(&j);
    json_array(&j, "exercise");
    for (int i = 0; i < 2; i++) json_clip(&j, NULL, &results->exercise[i]);
    json_end(&j);
    json_end(&j);
}

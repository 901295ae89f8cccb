/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel demo: the lesson as text. */
#include "commands.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli.h"
#include "demo.h"
#include "json.h"

static void title(int number, const char *text)
{
    printf("%s%s%d. %s%s\n", number > 1 ? "\n" : "", cli_style(stdout, CLI_BOLD), number, text,
           cli_style(stdout, CLI_RESET));
}

/* A scale as a power of two where it is one. */
static const char *scale_text(double scale, char buffer[JSON_NUMBER_SIZE])
{
    int exponent;
    if (scale == 1 || frexp(scale, &exponent) != 0.5) return json_number(scale, buffer);
    snprintf(buffer, JSON_NUMBER_SIZE, "2^%d", exponent - 1);
    return buffer;
}

static void print_tensors(const demo_clip *c, const float values[2][2], bool exact)
{
    for (int i = 0; i < 2; i++) {
        printf("%s[", i ? " " : "");
        for (int32_t k = 0; k < c->counts[i]; k++) {
            printf(exact ? "%s%g" : "%s%.6g", k ? ", " : "", (double)values[i][k]);
        }
        printf("]");
    }
}

static void print_clip(const demo_clip *c)
{
    char number[JSON_NUMBER_SIZE];
    const bool untouched = memcmp(c->grads, c->clipped, sizeof c->grads) == 0;
    printf("  gradients ");
    print_tensors(c, c->grads, true);
    printf("  norm %s  max-norm %s\n", json_number(c->norm, number),
           json_number(c->max_norm, (char[JSON_NUMBER_SIZE]){0}));
    printf("  clipped   ");
    print_tensors(c, c->clipped, false);
    printf("  norm %.6g%s\n", c->norm_after, untouched ? "  (untouched)" : "");
}

static void print_casts(const demo_results *r)
{
    char scale[JSON_NUMBER_SIZE], stored[JSON_NUMBER_SIZE];
    for (int i = 0; i < DEMO_CASTS; i++) {
        const demo_cast *c = &r->casts[i];
        const bool scaled = c->scale != 1;
        printf("  %-7.9g", c->value);
        if (scaled) printf(" x %s", scale_text(c->scale, scale));
        const int width = scaled ? 0 : 7;
        const double size = fabs((double)c->stored);
        if (scaled || (size > 0 && size < 0.1)) {
            snprintf(stored, sizeof stored, "%.3e", (double)c->stored);
        } else {
            json_number32(c->stored, stored);
        }
        printf("%*s in %-5s %s", width, "", keel_format_get(c->format)->name, stored);
        if (scaled) printf("  (/ %s = %.3e)", scale, (double)c->stored / c->scale);
        putchar('\n');
    }
}

static void print_step(const demo_step *s)
{
    const keel_report *r = &s->report;
    char now[JSON_NUMBER_SIZE], next[JSON_NUMBER_SIZE];
    const bool moves = r->loss_scale_next != r->loss_scale;
    printf("  %4" PRId64 "  %s%s%s  gradients near %-6.3g scale %-6s", r->step,
           cli_style(stdout, r->applied ? CLI_GREEN : CLI_RED), r->applied ? "STEP" : "SKIP",
           cli_style(stdout, CLI_RESET), s->size, scale_text((double)r->loss_scale, now));
    if (r->applied) {
        printf("  norm %.3e", r->norm);
    } else {
        printf("  %-14s", keel_cause_string(r->cause));
    }
    if (moves) printf("  next scale %s", scale_text((double)r->loss_scale_next, next));
    if (r->zero_count > 0) printf("  %" PRId64 " of %" PRId64 " are 0", r->zero_count, r->elements);
    putchar('\n');
}

static void print_trace(const demo_results *r)
{
    const demo_trace *t = &r->trace;
    char init[JSON_NUMBER_SIZE], last[JSON_NUMBER_SIZE];
    for (int64_t i = 0; i < t->count; i++) print_step(&t->steps[i]);
    printf("  %" PRId64 " of %" PRId64 " steps skipped", t->skips, t->count);
    if (t->skips > 0) printf(", the last at step %" PRId64, t->last_skip);
    printf("; the scale ends at %s\n", scale_text((double)t->final_scale, last));
    printf("  if every batch had gradients of 1: from %s, %" PRId64 " skip%s before it settles at "
           "%s\n",
           scale_text(r->options.init_scale, init), t->skips_to_fit,
           t->skips_to_fit == 1 ? "" : "s", scale_text((double)t->fitting_scale, last));
}

static void print_flushes(const demo_results *r)
{
    char scale[JSON_NUMBER_SIZE];
    for (int i = 0; i < DEMO_FLUSHES; i++) {
        const demo_flush *f = &r->flushes[i];
        const double share = (double)f->flushed / (double)f->count;
        printf("  %-4s scale %-6s %.4f become 0\n", keel_format_get(f->format)->name,
               scale_text(f->scale, scale), share);
    }
}

static void print_descent(const demo_descent *d)
{
    char label[JSON_NUMBER_SIZE + 16], number[JSON_NUMBER_SIZE];
    snprintf(label, sizeof label, "max-norm %s", json_number(d->max_norm, number));
    printf("  %-13s largest loss after the spike %-8.4g at the end %.3g\n", label, d->largest_after,
           d->loss[DEMO_DESCENT_STEPS]);
}

static void print_results(const demo_results *r)
{
    title(1, "One norm over all tensors, one factor for all of them");
    print_clip(&r->clip);
    title(2, "What half precision cannot hold");
    print_casts(r);
    title(3, "A loss scale at work: f16 gradients, a skip on overflow, growth after clean steps");
    print_trace(r);
    title(4, "How much of a normal distribution becomes zero");
    printf("  deviation %g, %" PRId64 " samples\n", r->options.grad_size, r->flushes[0].count);
    print_flushes(r);
    title(5, "One wrong gradient");
    printf("  f(x) = x^2/2 from x = 1, SGD with rate 0.1, the gradient of step %d times %d\n",
           DEMO_DESCENT_SPIKE, DEMO_DESCENT_FACTOR);
    print_descent(&r->unclipped);
    print_descent(&r->clipped);
    title(6, "Exercise: the same two gradients under max-norm 5 and 20");
    for (int i = 0; i < 2; i++) print_clip(&r->exercise[i]);
}

static keel_status run_all(demo_results *r)
{
    static keel_status (*const lessons[])(demo_results *) = {
        demo_run_clips, demo_run_casts, demo_run_trace, demo_run_flushes, demo_run_descents,
    };
    for (size_t i = 0; i < sizeof lessons / sizeof lessons[0]; i++) {
        const keel_status status = lessons[i](r);
        if (status != KEEL_OK) return status;
    }
    return KEEL_OK;
}

static int demo(demo_results *r, bool as_json, cli_output *picture)
{
    const keel_status status = run_all(r);
    if (status == KEEL_ERR_NO_MEMORY) return cli_fail(CLI_ENVIRONMENT, "out of memory");
    if (status != KEEL_OK) return cli_library_error(status);
    if (as_json) {
        demo_json(r, stdout);
    } else {
        print_results(r);
    }
    if (picture->file && !demo_plot(r, picture->file)) {
        return cli_fail(CLI_ENVIRONMENT, "out of memory");
    }
    return cli_output_commit(picture);
}

int cmd_demo(int argc, char **argv)
{
    demo_results r = {.options = {.max_norm = 1,
                                  .init_scale = 65536,
                                  .grad_size = 1e-7,
                                  .interval = 3,
                                  .steps = 20,
                                  .seed = 1}};
    demo_options *o = &r.options;
    const char *plot_path = NULL;
    bool as_json = false;
    const cli_option rows[] = {
        {.name = "max-norm",
         .alias = "max-grad-norm",
         .kind = CLI_REAL,
         .dest = &o->max_norm,
         .hi = INFINITY,
         .value = "F",
         .help = "clip threshold; inf = no clip"},
        {.name = "init-scale",
         .kind = CLI_REAL,
         .dest = &o->init_scale,
         .lo = 0x1p-24,
         .hi = 0x1p126,
         .value = "S",
         .help = "first loss scale, as 65536 or 2^16"},
        {.name = "interval",
         .alias = "growth-interval",
         .kind = CLI_INT,
         .dest = &o->interval,
         .lo = 1,
         .hi = INT32_MAX,
         .value = "N",
         .help = "clean steps before the loss scale grows"},
        {.name = "grad-size",
         .kind = CLI_REAL,
         .dest = &o->grad_size,
         .lo = 1e-30,
         .hi = 1e30,
         .value = "F",
         .help = "size of the true gradients"},
        {.name = "steps",
         .kind = CLI_INT,
         .dest = &o->steps,
         .lo = 1,
         .hi = 100000,
         .value = "N",
         .help = "steps of the loss scale's trace"},
        {.name = "seed",
         .kind = CLI_INT,
         .dest = &o->seed,
         .hi = 0x1p53,
         .value = "N",
         .help = "of the random gradients"},
        {.name = "plot",
         .kind = CLI_TEXT,
         .dest = &plot_path,
         .value = "FILE",
         .help = "write the loss scale and the descents as an SVG"},
        CLI_JSON(&as_json),
        {.name = NULL},
    };
    const cli_usage usage = {
        .about = "Every number comes from the library; each what-if is one option.",
        .examples = "keel demo\n"
                    "keel demo --max-norm 10\n"
                    "keel demo --init-scale 2^24\n"
                    "keel demo --grad-size 1e-5\n",
        .options = rows,
    };
    cli_args args;
    if (!cli_parse(&usage, argc, argv, &args)) return args.exit_code;
    cli_output picture;
    int code = cli_output_open(&picture, plot_path);
    if (code != CLI_OK) return code;
    code = demo(&r, as_json, &picture);
    cli_output_discard(&picture);
    demo_free(&r);
    return code;
}

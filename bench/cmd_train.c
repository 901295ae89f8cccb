/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel train: options, and the runs as table, JSON, report lines and picture. */
#include "commands.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "json.h"
#include "plot.h"
#include "train.h"
#ifdef KEEL_BENCH_BLAS
#    include "keel/blas.h"
#endif

enum { RECIPES = 16, RUNS = RECIPES * TRAIN_CLIPS };

typedef struct request {
    train_options train;
    int model; /* index into tasks */
    keel_recipe recipes[RECIPES];
    int recipe_count;
    double max_norms[TRAIN_CLIPS];
    int max_norm_count;
    const char *report;
    const char *plot;
    const char *save;
    bool slots, curve, blas;
    bool json;
} request;

static const task *const tasks[] = {&task_digits, &task_gpt};

/* Splits at commas; NULL when every part parsed, else what was wanted. */
static const char *each_part(const char *text, const char *(*take)(const char *part, void *dest),
                             void *dest)
{
    char part[64];
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, ",");
        if (n >= sizeof part) return "want shorter parts";
        memcpy(part, at, n);
        part[n] = 0;
        const char *wanted = take(part, dest);
        if (wanted) return wanted;
        at += n;
        if (*at == 0) return NULL;
    }
}

/* A recipe by the name of its format, as people say it: "float16", "half". */
static bool find_by_format(const char *name, keel_recipe *out)
{
    keel_format format;
    if (keel_format_find(name, &format, NULL) != KEEL_OK) return false;
    const keel_format_info *info = keel_format_get(format);
    return info->storage_bytes > 1 && keel_recipe_find(info->name, out) == KEEL_OK;
}

/* What was wanted, and the registry's own sentence where it knows and refuses the name. */
static const char *recipe_refusal(const char *name)
{
    static char text[700];
    keel_format format;
    size_t used = (size_t)snprintf(text, sizeof text, "want all");
    for (int32_t i = 0; keel_recipe_name(i); i++)
        used += (size_t)snprintf(text + used, sizeof text - used, ", %s", keel_recipe_name(i));
    used += (size_t)snprintf(text + used, sizeof text - used, " or a file.json");
    if (keel_format_find(name, &format, NULL) != KEEL_OK)
        snprintf(text + used, sizeof text - used, "; %s", keel_last_error());
    return text;
}

static const char *recipe_from_file(const char *path, keel_recipe *out)
{
    static char text[64 * 1024];
    FILE *file = fopen(path, "rb");
    if (!file) return "want a file that can be read";
    const size_t size = fread(text, 1, sizeof text, file);
    fclose(file);
    if (size == sizeof text) return "want a recipe below 64 KiB";
    return keel_recipe_from_json(text, size, out) == KEEL_OK ? NULL : keel_last_error();
}

static const char *add_recipe(request *r, const keel_recipe *recipe)
{
    if (r->recipe_count == RECIPES) return "want at most 16 recipes";
    r->recipes[r->recipe_count++] = *recipe;
    return NULL;
}

static const char *take_recipe(const char *name, void *dest)
{
    request *r = dest;
    keel_recipe recipe;
    const char *dot = strrchr(name, '.');
    if (strcmp(name, "all") == 0) {
        const char *wrong = NULL;
        for (int32_t i = 0; keel_recipe_name(i) && !wrong; i++)
            wrong = take_recipe(keel_recipe_name(i), r);
        return wrong;
    }
    if (dot && strcmp(dot, ".json") == 0) {
        const char *wrong = recipe_from_file(name, &recipe);
        return wrong ? wrong : add_recipe(r, &recipe);
    }
    if (keel_recipe_find(name, &recipe) == KEEL_OK || find_by_format(name, &recipe))
        return add_recipe(r, &recipe);
    return recipe_refusal(name);
}

static const char *parse_recipe(const char *text, void *dest)
{
    return each_part(text, take_recipe, dest);
}

static const char *take_max_norm(const char *text, void *dest)
{
    request *r = dest;
    double value;
    if (!cli_real(text, &value) || !(value >= 0)) return "want numbers >= 0, or inf for no clip";
    if (r->max_norm_count == TRAIN_CLIPS) return "want at most 4 values";
    r->max_norms[r->max_norm_count++] = value;
    return NULL;
}

static const char *parse_max_norm(const char *text, void *dest)
{
    return each_part(text, take_max_norm, dest);
}

static const char *take_injection(const char *text, void *dest)
{
    static const char *const faults[] = {"spike", "inf", "nan"};
    static const char wanted[] = "want FAULT@STEP[:RANK] with spike, inf or nan";
    train_injections *list = dest;
    train_injection in = {0};
    const char *at = strchr(text, '@');
    char *end;
    if (!at) return wanted;
    int fault = 0;
    while (fault < 3 && (strlen(faults[fault]) != (size_t)(at - text) ||
                         strncmp(text, faults[fault], (size_t)(at - text)) != 0))
        fault++;
    if (fault == 3) return wanted;
    in.fault = (train_fault)fault;
    if (at[1] < '0' || at[1] > '9') return wanted;
    in.step = strtoll(at + 1, &end, 10);
    if (*end == ':') {
        if (end[1] < '0' || end[1] > '9') return wanted;
        const long rank = strtol(end + 1, &end, 10);
        if (rank >= TASK_SHARDS) return "want a rank below 8";
        in.rank = (int32_t)rank;
    }
    if (*end != 0 || in.step < 1) return wanted;
    if (list->count == TRAIN_INJECTIONS) return "want at most 16 faults";
    list->at[list->count++] = in;
    return NULL;
}

static const char *parse_injections(const char *text, void *dest)
{
    return each_part(text, take_injection, dest);
}

/* What the table of options cannot say alone. */
static int check(const request *r)
{
    const train_options *o = &r->train;
    if (TASK_SHARDS % o->ranks != 0)
        return cli_fail(CLI_USAGE, "--ranks %d: want 1, 2, 4 or 8, a divisor of the %d shards",
                        (int)o->ranks, TASK_SHARDS);
    if (o->batch > o->task->batch_max)
        return cli_fail(CLI_USAGE, "--batch %d: want at most %d with --model %s", (int)o->batch,
                        (int)o->task->batch_max, o->task->name);
    if (o->batch % TASK_SHARDS != 0)
        return cli_fail(CLI_USAGE, "--batch %d: want a multiple of %d", (int)o->batch, TASK_SHARDS);
    for (int i = 0; i < o->injections.count; i++) {
        const train_injection *in = &o->injections.at[i];
        if (in->step > o->steps || in->rank >= o->ranks)
            return cli_fail(CLI_USAGE,
                            "--inject at step %" PRId64 " on rank %d: there are %d steps "
                            "and %d ranks",
                            in->step, in->rank, (int)o->steps, (int)o->ranks);
    }
    const int runs = r->recipe_count * r->max_norm_count;
    if ((o->load || r->save) && runs != 1)
        return cli_fail(CLI_USAGE, "--load and --save go with one recipe and one --max-norm");
    return CLI_OK;
}

static bool parse(int argc, char **argv, request *r, int *exit_code)
{
    static const char *const optimizers[] = {"sgd", "adamw", NULL};
    static const char *const models[] = {"digits", "gpt", NULL};
    train_options *o = &r->train;
    const cli_option rows[] = {
        {.name = "recipe",
         .kind = CLI_PARSED,
         .dest = r,
         .parse = parse_recipe,
         .value = "NAME",
         .default_text = "all",
         .help = "f32, bf16, f16, fp8-delayed, fp8-current, mxfp8, all or FILE.json; commas join"},
        {.name = "model",
         .kind = CLI_CHOICE,
         .dest = &r->model,
         .choices = models,
         .value = "NAME",
         .help = "a perceptron on digits, or a small transformer on text"},
        {.name = "text",
         .kind = CLI_TEXT,
         .dest = &o->text,
         .value = "FILE",
         .default_text = "the licences every Debian has",
         .help = "what the gpt reads: a file, or the files of a folder"},
        {.name = "fp16", .kind = CLI_SHORTHAND, .means = "recipe=f16", .help = "the f16 recipe"},
        {.name = "bf16", .kind = CLI_SHORTHAND, .means = "recipe=bf16", .help = "the bf16 recipe"},
        {.name = "ranks",
         .kind = CLI_INT,
         .dest = &o->ranks,
         .lo = 1,
         .hi = TASK_SHARDS,
         .value = "N",
         .help = "data-parallel ranks, threads of this process: 1, 2, 4 or 8"},
        {.name = "steps",
         .kind = CLI_INT,
         .dest = &o->steps,
         .lo = 1,
         .hi = 1e6,
         .value = "N",
         .default_text = "400, gpt 300",
         .help = "steps to run"},
        {.name = "batch",
         .kind = CLI_INT,
         .dest = &o->batch,
         .lo = TASK_SHARDS,
         .hi = 1024,
         .value = "N",
         .default_text = "128, gpt 16",
         .help = "samples of a step (windows of text), cut into 8 micro-shards"},
        {.name = "seed",
         .kind = CLI_INT,
         .dest = &o->seed,
         .lo = 0,
         .hi = 9e15,
         .value = "N",
         .help = "of the initial weights and the order of samples"},
        {.name = "max-norm",
         .alias = "max-grad-norm",
         .kind = CLI_PARSED,
         .dest = r,
         .parse = parse_max_norm,
         .value = "X",
         .default_text = "1",
         .help = "clip threshold; inf = no clip; a list X,Y runs each"},
        {.name = "optimizer",
         .kind = CLI_CHOICE,
         .dest = &o->optimizer,
         .choices = optimizers,
         .value = "NAME",
         .default_text = "sgd, gpt adamw",
         .help = "sgd (momentum 0.9) or adamw"},
        {.name = "lr",
         .kind = CLI_REAL,
         .dest = &o->lr,
         .lo = 0,
         .hi = 1e3,
         .value = "X",
         .help = "learning rate",
         .default_text = "0.05, adamw 0.002; gpt 0.5, 0.0015"},
        {.name = "init-scale",
         .kind = CLI_REAL,
         .dest = &o->init_scale,
         .lo = 0x1p-24,
         .hi = 0x1p126,
         .value = "X",
         .help = "first loss scale of f16"},
        {.name = "interval",
         .kind = CLI_INT,
         .dest = &o->interval,
         .lo = 1,
         .hi = INT32_MAX,
         .value = "N",
         .help = "clean steps before the loss scale grows"},
        {.name = "inject",
         .kind = CLI_PARSED,
         .dest = &o->injections,
         .parse = parse_injections,
         .value = "F@K[:R]",
         .default_text = "",
         .help = "a wrong gradient at step K on rank R: spike, inf or nan; commas join them"},
        {.name = "probe",
         .kind = CLI_FLAG,
         .dest = &o->probe,
         .help = "look at each rank's gradients before the sum, to name a culprit"},
        {.name = "report",
         .kind = CLI_TEXT,
         .dest = &r->report,
         .value = "FILE",
         .default_text = "",
         .help = "write a line of JSON for every step"},
        {.name = "plot",
         .kind = CLI_TEXT,
         .dest = &r->plot,
         .value = "FILE",
         .default_text = "",
         .help = "draw loss, norm and loss scale as SVG"},
        {.name = "save",
         .kind = CLI_TEXT,
         .dest = &r->save,
         .value = "FILE",
         .default_text = "",
         .help = "write a checkpoint at the end"},
        {.name = "load",
         .kind = CLI_TEXT,
         .dest = &o->load,
         .value = "FILE",
         .default_text = "",
         .help = "go on from a checkpoint, up to --steps"},
        {.name = "slots",
         .kind = CLI_FLAG,
         .dest = &r->slots,
         .default_text = "",
         .help = "add each slot's amax, scale and counts"},
        {.name = "curve",
         .kind = CLI_FLAG,
         .dest = &r->curve,
         .default_text = "",
         .help = "add the losses of all steps to the JSON"},
        {.name = "blas",
         .kind = CLI_FLAG,
         .dest = &r->blas,
         .default_text = "",
         .help = "f32 products by a BLAS, where this build has one: faster, other bits"},
        CLI_JSON(&r->json),
        {.name = NULL},
    };
    const cli_usage usage = {
        .about =
            "Train 64-128-128-10 on handwritten digits (UCI, 1,500 rows to learn from, 297 held "
            "out), or a transformer on bytes of text; matmuls in each recipe's format, everything "
            "else through the step.",
        .examples =
            "keel train --recipe all --ranks 4\n"
            "keel train --fp16 --inject inf@50:2 --report steps.jsonl\n"
            "keel train --recipe fp8-delayed --slots\n"
            "keel train --model gpt --recipe f32,fp8-delayed --plot gpt.svg\n"
            "keel train --recipe f32 --inject spike@100 --max-norm 1,inf --plot train.svg\n",
        .options = rows,
    };
    cli_args args;
    if (!cli_parse(&usage, argc, argv, &args)) {
        *exit_code = args.exit_code;
        return false;
    }
    return true;
}

/* What stays as it is when no option speaks of it. */
static void fill_defaults(request *r)
{
    train_options *o = &r->train;
    o->task = tasks[r->model];
    if (r->recipe_count == 0) (void)take_recipe("all", r);
    if (r->max_norm_count == 0) r->max_norms[r->max_norm_count++] = 1.0;
    if (o->steps == 0) o->steps = o->task->steps;
    if (o->batch == 0) o->batch = o->task->batch;
    if (o->optimizer < 0) o->optimizer = o->task->optimizer;
    if (isnan(o->lr)) o->lr = o->optimizer ? o->task->lr_adamw : o->task->lr_sgd;
}

static const char *progress_label;

static void show_progress(int64_t done, int64_t total)
{
    cli_progress(progress_label, done, total);
}

static int run_all(const request *r, train_result *results, int *count)
{
    for (int i = 0; i < r->recipe_count; i++) {
        for (int c = 0; c < r->max_norm_count; c++) {
            progress_label = r->recipes[i].name;
            const int code = train_run(&r->train, &r->recipes[i], r->max_norms[c], show_progress,
                                       &results[(*count)++]);
            if (code) return code;
        }
    }
    return CLI_OK;
}

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

static void print_table(const request *r, const train_result *results, int count)
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

static void json_run(json *j, const request *r, const train_result *t)
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

static void print_json(const request *r, const train_result *results, int count)
{
    json j;
    json_begin(&j, stdout);
    json_object(&j, NULL);
    json_array(&j, "runs");
    for (int i = 0; i < count; i++) json_run(&j, r, &results[i]);
    json_end(&j);
    json_end(&j);
}

/* The three curves of a run, and the marks of its skipped steps. */
typedef struct curves {
    char name[64];
    double *loss, *norm, *scale;
    bool *skipped;
} curves;

static bool curves_fill(curves *c, const request *r, const train_result *t)
{
    const size_t n = (size_t)t->count + 1;
    c->loss = malloc(n * sizeof *c->loss);
    c->norm = malloc(n * sizeof *c->norm);
    c->scale = malloc(n * sizeof *c->scale);
    c->skipped = malloc(n * sizeof *c->skipped);
    if (!c->loss || !c->norm || !c->scale || !c->skipped) return false;
    char number[JSON_NUMBER_SIZE];
    if (r->max_norm_count == 1)
        snprintf(c->name, sizeof c->name, "%s", t->recipe->name);
    else if (isinf(t->max_norm))
        snprintf(c->name, sizeof c->name, "%s, no clip", t->recipe->name);
    else
        snprintf(c->name, sizeof c->name, "%s, clip %.12s", t->recipe->name,
                 json_number(t->max_norm, number));
    for (int64_t i = 0; i < t->count; i++) {
        const train_point *p = &t->points[i];
        c->loss[i] = (double)p->loss;
        c->norm[i] = p->report.norm;
        c->scale[i] = (double)p->report.loss_scale;
        c->skipped[i] = !p->report.applied;
    }
    return true;
}

static void curves_free(curves *c)
{
    free(c->loss);
    free(c->norm);
    free(c->scale);
    free(c->skipped);
}

static void draw(const curves *c, const train_result *results, int count, FILE *file)
{
    plot_series series[RUNS];
    const double *loss[RUNS], *norm[RUNS], *scale[RUNS];
    for (int i = 0; i < count; i++) {
        series[i] = (plot_series){c[i].name, results[i].count, c[i].skipped};
        loss[i] = c[i].loss;
        norm[i] = c[i].norm;
        scale[i] = c[i].scale;
    }
    const plot_panel panels[] = {
        {.title = "Loss of the batch", .axis = PLOT_LOG10, .y = loss},
        {.title = "Gradient norm before clipping", .axis = PLOT_LOG10, .y = norm},
        {.title = "Loss scale", .axis = PLOT_LOG2, .y = scale},
    };
    const plot p = {.x_label = "step",
                    .mark_label = "skipped step",
                    .x_first = (double)results[0].first_step,
                    .series_count = count,
                    .series = series,
                    .panel_count = 3,
                    .panels = panels,
                    .columns = 1};
    plot_svg(&p, file);
}

static int write_plot(cli_output *out, const request *r, const train_result *results, int count)
{
    curves c[RUNS];
    memset(c, 0, sizeof c);
    int code = CLI_OK;
    for (int i = 0; i < count && !code; i++)
        if (!curves_fill(&c[i], r, &results[i]))
            code = cli_fail(CLI_ENVIRONMENT, "no memory for the plot");
    if (!code) draw(c, results, count, out->file);
    for (int i = 0; i < count; i++) curves_free(&c[i]);
    return code ? code : cli_output_commit(out);
}

static int write_report(cli_output *out, const request *r, const train_result *results, int count)
{
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < results[i].count; k++)
            train_report_line(out->file, &results[i], &r->train, k);
    return cli_output_commit(out);
}

/* Files are opened before the training, so that a path that cannot be written costs no time. */
static int run_and_write(request *r, train_result *results, int *count)
{
    cli_output report = {0}, picture = {0}, checkpoint = {0};
    int code = cli_output_open(&report, r->report);
    if (!code) code = cli_output_open(&picture, r->plot);
    if (!code) code = cli_output_open(&checkpoint, r->save);
    r->train.save = checkpoint.file;
    if (!code) code = run_all(r, results, count);
    if (!code && r->report) code = write_report(&report, r, results, *count);
    if (!code && r->plot) code = write_plot(&picture, r, results, *count);
    if (!code) code = cli_output_commit(&checkpoint);
    cli_output_discard(&report);
    cli_output_discard(&picture);
    cli_output_discard(&checkpoint);
    return code;
}

static int use_blas(void)
{
#ifdef KEEL_BENCH_BLAS
    keel_blas_use();
    return CLI_OK;
#else
    return cli_fail(CLI_ENVIRONMENT, "--blas: this build found no BLAS");
#endif
}

int cmd_train(int argc, char **argv)
{
    static request r; /* recipes make it large */
    static train_result results[RUNS];
    r = (request){.train = {.ranks = 1,
                            .seed = 1,
                            .interval = 100,
                            .optimizer = -1,
                            .lr = NAN,
                            .init_scale = 65536,
                            .probe = true}};
    int code = CLI_USAGE;
    if (!parse(argc, argv, &r, &code)) return code;
    fill_defaults(&r);
    code = check(&r);
    if (!code && r.blas) code = use_blas();
    if (code) return code;

    int count = 0;
    code = run_and_write(&r, results, &count);
    if (!code && r.json) print_json(&r, results, count);
    if (!code && !r.json) print_table(&r, results, count);
    for (int i = 0; i < count; i++) train_result_free(&results[i]);
    return code;
}

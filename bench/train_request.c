/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel train's options. */
#include "train_request.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static const char *add_recipe(train_request *r, const keel_recipe *recipe)
{
    if (r->recipe_count == TRAIN_RECIPES) return "want at most 16 recipes";
    r->recipes[r->recipe_count++] = *recipe;
    return NULL;
}

static const char *take_recipe(const char *name, void *dest)
{
    train_request *r = dest;
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
    train_request *r = dest;
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
int train_request_check(const train_request *r)
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

/* What stays as it is when no option speaks of it. */
static void fill_defaults(train_request *r)
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

bool train_request_parse(int argc, char **argv, train_request *r, int *exit_code)
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
    fill_defaults(r);
    return true;
}

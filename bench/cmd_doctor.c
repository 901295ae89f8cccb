/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel doctor: what this build and this machine offer, and whether it works here. */
#include "commands.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli.h"
#include "doctor_checks.h"
#include "json.h"
#include "keel/keel.h"

enum { CHECKS_MAX = 16 };

typedef struct facts {
    char version[32];
    char headers[32];
    char machine[160];
    long cores;
} facts;

static void version_text(unsigned version, char *buffer, size_t size)
{
    snprintf(buffer, size, "%u.%u.%u", version / 10000, version / 100 % 100, version % 100);
}

static void look_around(facts *out)
{
    struct utsname name;
    version_text(keel_version(), out->version, sizeof out->version);
    version_text(KEEL_VERSION_NUM, out->headers, sizeof out->headers);
    const bool known = uname(&name) >= 0;
    snprintf(out->machine, sizeof out->machine, "%.40s %.60s %.40s", known ? name.sysname : "?",
             known ? name.release : "", known ? name.machine : "");
    out->cores = sysconf(_SC_NPROCESSORS_ONLN);
}

static void show_fact(const char *label, const char *value)
{
    printf("%-14s %s\n", label, value);
}

static void show_facts(const facts *f)
{
    char text[64];
    show_fact("version", f->version);
    if (strcmp(f->version, f->headers) != 0) show_fact("headers", f->headers);
    show_fact("compiler", KEEL_BUILD_COMPILER);
    show_fact("build", *KEEL_BUILD_TYPE ? KEEL_BUILD_TYPE : "unnamed");
    if (*KEEL_BUILD_FLAGS) show_fact("flags", KEEL_BUILD_FLAGS);
    show_fact("machine", f->machine);
    snprintf(text, sizeof text, "%ld", f->cores);
    show_fact("cores", text);
    show_fact("instructions", keel_cpu_isa());
    show_fact("devices", keel_device_name(NULL));
    snprintf(text, sizeof text, "%s, threads (up to %d)", keel_comm_name(NULL),
             KEEL_COMM_THREADS_MAX);
    show_fact("communicators", text);
    putchar('\n');
}

/* A verdict: NULL = ok.  Texts live until the end of the command. */
static int run_checks(const char **verdicts, char (*texts)[256], bool show)
{
    int failures = 0;
    int count = 0;
    for (const doctor_check *c = doctor_checks; c->name; c++) count++;
    for (int i = 0; i < count; i++) {
        const doctor_check *c = &doctor_checks[i];
        cli_progress("checking", i, count);
        const char *wrong = c->run(texts[i], sizeof texts[i]);
        cli_progress("checking", count, count);
        if (wrong && wrong != texts[i]) snprintf(texts[i], sizeof texts[i], "%s", wrong);
        verdicts[i] = wrong ? texts[i] : NULL;
        failures += wrong != NULL;
        if (!show) continue;
        printf("%s%-4s%s %-11s %s\n", cli_style(stdout, wrong ? CLI_RED : CLI_GREEN),
               wrong ? "FAIL" : "ok", cli_style(stdout, CLI_RESET), c->name,
               wrong ? verdicts[i] : c->claim);
    }
    return failures;
}

static void json_report(const facts *f, const char **verdicts, int failures)
{
    json j;
    json_begin(&j, stdout);
    json_object(&j, NULL);
    json_text(&j, "version", f->version);
    json_text(&j, "headers_version", f->headers);
    json_text(&j, "compiler", KEEL_BUILD_COMPILER);
    json_text(&j, "build_type", KEEL_BUILD_TYPE);
    json_text(&j, "flags", KEEL_BUILD_FLAGS);
    json_text(&j, "machine", f->machine);
    json_int(&j, "cores", f->cores);
    json_text(&j, "isa", keel_cpu_isa());
    json_array(&j, "devices");
    json_text(&j, NULL, keel_device_name(NULL));
    json_end(&j);
    json_array(&j, "communicators");
    json_text(&j, NULL, keel_comm_name(NULL));
    json_text(&j, NULL, "threads");
    json_end(&j);
    json_array(&j, "checks");
    for (int i = 0; doctor_checks[i].name; i++) {
        json_object(&j, NULL);
        json_text(&j, "name", doctor_checks[i].name);
        json_bool(&j, "ok", !verdicts[i]);
        json_text(&j, "claim", doctor_checks[i].claim);
        if (verdicts[i]) json_text(&j, "seen", verdicts[i]);
        json_end(&j);
    }
    json_end(&j);
    json_bool(&j, "ok", failures == 0);
    json_end(&j);
}

int cmd_doctor(int argc, char **argv)
{
    bool as_json = false;
    const cli_option rows[] = {
        CLI_JSON(&as_json),
        {.name = NULL},
    };
    const cli_usage usage = {
        .about = "Exit code 1 when a check fails.",
        .examples = "keel doctor\nkeel doctor --json\n",
        .options = rows,
    };
    cli_args args;
    if (!cli_parse(&usage, argc, argv, &args)) return args.exit_code;

    facts f;
    const char *verdicts[CHECKS_MAX];
    char texts[CHECKS_MAX][256];
    look_around(&f);
    if (!as_json) show_facts(&f);
    const int failures = run_checks(verdicts, texts, !as_json);
    if (as_json) json_report(&f, verdicts, failures);
    return failures ? CLI_FINDING : CLI_OK;
}

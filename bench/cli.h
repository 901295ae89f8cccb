/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The frame every command of `keel` stands in: options as rows of a table, exit codes, talk on
 * stderr, progress, and output files that are whole or absent.
 *
 *   struct options o = {.steps = 200};
 *   const cli_option rows[] = {
 *       {.name = "steps", .kind = CLI_INT, .dest = &o.steps, .lo = 1, .hi = 1e6, .value = "N",
 *        .help = "steps to run"},
 *       CLI_JSON(&o.json),
 *       {.name = NULL},
 *   };
 *   const cli_usage usage = {.options = rows, .examples = "keel train --steps 50\n"};
 *   cli_args args;
 *   if (!cli_parse(&usage, argc, argv, &args)) return args.exit_code;
 *
 * A destination holds its default before the parse, and the help prints it from there. */
#ifndef BENCH_CLI_H
#define BENCH_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "keel/status.h"

/* Exit codes. */
enum {
    CLI_OK = 0,
    CLI_FINDING = 1,     /* the command ran and found something wrong */
    CLI_USAGE = 2,       /* it was asked wrongly */
    CLI_ENVIRONMENT = 3, /* files, memory, ranks: the machine said no */
};

typedef enum cli_kind {
    CLI_FLAG,      /* bool *      --name true, --no-name false */
    CLI_INT,       /* int64_t *   within lo..hi; 2^k is understood */
    CLI_REAL,      /* double *    within lo..hi; 2^k and inf are understood */
    CLI_TEXT,      /* const char ** */
    CLI_CHOICE,    /* int *       index into choices */
    CLI_PARSED,    /* whatever parse() makes of it; may be given more than once */
    CLI_SHORTHAND, /* stands for another option: means = "recipe=f16" */
} cli_kind;

typedef struct cli_option {
    const char *name;  /* without dashes; NULL ends a table */
    const char *alias; /* a second name, or NULL */
    char letter;       /* one-letter name, or 0 */
    cli_kind kind;
    void *dest;
    const char *value; /* what the help calls the value: "N", "FILE" */
    const char *help;
    const char *default_text;   /* NULL: printed from dest; "": none */
    double lo, hi;              /* CLI_INT, CLI_REAL */
    const char *const *choices; /* CLI_CHOICE: ends with NULL */
    const char *means;          /* CLI_SHORTHAND */
    /* CLI_PARSED: NULL when taken, else what was wanted, as in "want N@STEP". */
    const char *(*parse)(const char *text, void *dest);
} cli_option;

#define CLI_JSON(flag)                                                        \
    {                                                                         \
        .name = "json", .kind = CLI_FLAG, .dest = (flag), .default_text = "", \
        .help = "print one JSON document instead of text"                     \
    }

typedef struct cli_usage {
    const char *operands; /* as the usage line shows them, "[VALUE ...]"; NULL = none are taken */
    const char *about;    /* a paragraph for the help, or NULL */
    const char *examples; /* lines, each ended by \n, or NULL */
    const cli_option *options;
} cli_usage;

typedef struct cli_args {
    int exit_code;   /* set when cli_parse() says false */
    int count;       /* operands; numbers such as -1.5 count as operands */
    char **operands; /* within argv, in their order */
} cli_args;

/* cli_command_name: who is speaking, for messages and help; main sets it. */
void cli_command_name(const char *name, const char *summary);

/* cli_parse: argv[1..) against the table.  False: stop with out->exit_code (help was asked for, or
 * a mistake was reported). */
bool cli_parse(const cli_usage *usage, int argc, char **argv, cli_args *out);

/* cli_real, cli_int: the whole of text as a number, 2^k included; false if it is none. */
bool cli_real(const char *text, double *out);
bool cli_int(const char *text, int64_t *out);

/* cli_help: the help of the current command. */
void cli_help(const cli_usage *usage);

/* cli_nearest: of count names the one most like word, or NULL if none is near. */
const char *cli_nearest(const char *word, const char *const *names, int count);

/* cli_fail: "keel <command>: sentence" on stderr; returns code, so that it can be returned. */
int cli_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* cli_note: the same for what is only worth knowing. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* cli_library_error: report keel_last_error(); the exit code that suits the status. */
int cli_library_error(keel_status status);

/* cli_style: an escape sequence, or "" where the stream is no terminal or wants no colour. */
typedef enum cli_colour { CLI_RESET, CLI_BOLD, CLI_DIM, CLI_RED, CLI_GREEN, CLI_YELLOW } cli_colour;
const char *cli_style(FILE *stream, cli_colour colour);

/* cli_progress: a bar on stderr, only on a terminal and only once the work has taken a while.
 * done = total ends it.  One thread at a time. */
void cli_progress(const char *label, int64_t done, int64_t total);

/* An output file that appears whole or not at all: written beside its place, then renamed.  What
 * is not a regular file (/dev/stdout) is written directly. */
typedef struct cli_output {
    FILE *file; /* NULL when not open */
    char *path;
    char *temporary; /* NULL: written in place */
} cli_output;

/* cli_output_open: 0, or an exit code after saying why; path NULL leaves it closed and is 0. */
int cli_output_open(cli_output *out, const char *path);

/* cli_output_commit: make the file visible.  0, or an exit code; closed is 0. */
int cli_output_commit(cli_output *out);

/* cli_output_discard: leave no trace; closed is legal. */
void cli_output_discard(cli_output *out);

/* cli_close_stdout: code, or CLI_ENVIRONMENT if what was printed could not be written. */
int cli_close_stdout(int code);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Running the built command and keeping what it said. */
#ifndef TESTS_RUN_H
#define TESTS_RUN_H

typedef struct outcome {
    int code; /* exit code, or 128 + signal */
    char *out;
    char *err; /* of a terminal run: empty, all is in out */
} outcome;

/* run_shell: a line for sh, in which "$KEEL" is the command.  run_keel: what follows "$KEEL". */
outcome run_shell(const char *line);
outcome run_keel(const char *arguments);

/* run_terminal: the same as run_shell with stdout and stderr on a terminal. */
outcome run_terminal(const char *line);

void outcome_free(outcome *o);

#endif

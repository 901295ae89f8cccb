/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Running the built command.  Whatever goes wrong here is a failed test. */
#include "run.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static void require(int holds, const char *what)
{
    if (holds) return;
    perror(what);
    abort();
}

static void become_shell(const char *line)
{
    setenv("KEEL", KEEL_COMMAND_PATH, 1);
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

static int wait_for(pid_t child)
{
    int status = 0;
    require(waitpid(child, &status, 0) == child, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static char *read_all(FILE *file)
{
    size_t size = 0, used = 0;
    char *text = NULL;
    rewind(file);
    do {
        size += 65536;
        text = realloc(text, size + 1);
        require(text != NULL, "realloc");
        used += fread(text + used, 1, size - used, file);
    } while (used == size);
    text[used] = 0;
    return text;
}

outcome run_shell(const char *line)
{
    FILE *out = tmpfile();
    FILE *err = tmpfile();
    require(out && err, "tmpfile");
    fflush(NULL);
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
        become_shell(line);
    }
    outcome o = {.code = wait_for(child)};
    o.out = read_all(out);
    o.err = read_all(err);
    fclose(out);
    fclose(err);
    return o;
}

outcome run_keel(const char *arguments)
{
    char line[2048];
    const int length = snprintf(line, sizeof line, "\"$KEEL\" %s", arguments);
    require(length > 0 && (size_t)length < sizeof line, "run_keel");
    return run_shell(line);
}

/* What a terminal's program wrote; reading ends with an error when the program is gone. */
static char *read_terminal(int master)
{
    size_t size = 0, used = 0;
    char *text = NULL;
    for (ssize_t got = 1; got > 0; used += got > 0 ? (size_t)got : 0) {
        if (size - used < 4096) text = realloc(text, (size += 65536) + 1);
        require(text != NULL, "realloc");
        got = read(master, text + used, size - used);
    }
    text[used] = 0;
    return text;
}

outcome run_terminal(const char *line)
{
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    require(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0, "posix_openpt");
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    require(slave >= 0, "ptsname");
    fflush(NULL);
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        dup2(slave, STDOUT_FILENO);
        dup2(slave, STDERR_FILENO);
        become_shell(line);
    }
    close(slave);
    outcome o = {.out = read_terminal(master), .err = calloc(1, 1)};
    o.code = wait_for(child);
    close(master);
    return o;
}

void outcome_free(outcome *o)
{
    free(o->out);
    free(o->err);
    *o = (outcome){0};
}

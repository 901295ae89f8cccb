/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Output files that are whole or absent: written beside their place, renamed at the end, and
 * removed when a signal ends the command first. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what a signal must remove ---- */

#define SUFFIX ".XXXXXX" /* of a temporary name */
enum { PENDING_MAX = 8, SUFFIX_LENGTH = sizeof SUFFIX - 1 };
static char *volatile pending[PENDING_MAX];

static void remove_pending(int number)
{
    for (int i = 0; i < PENDING_MAX; i++) {
        if (pending[i]) unlink(pending[i]);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void watch(char *temporary)
{
    static const int fatal[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++) {
        /* What the caller ignores (nohup) stays ignored. */
        if (signal(fatal[i], remove_pending) == SIG_IGN) signal(fatal[i], SIG_IGN);
    }
    for (int i = 0; i < PENDING_MAX; i++) {
        if (pending[i]) continue;
        pending[i] = temporary;
        return;
    }
}

static void unwatch(const char *temporary)
{
    for (int i = 0; i < PENDING_MAX; i++) {
        if (pending[i] == temporary) pending[i] = NULL;
    }
}

/* Whether an output that is still open goes to this path: the later one would replace the other. */
static bool is_taken(const char *path)
{
    const size_t length = strlen(path);
    for (int i = 0; i < PENDING_MAX; i++) {
        if (!pending[i]) continue;
        if (strncmp(pending[i], path, length) == 0 && strlen(pending[i]) == length + SUFFIX_LENGTH)
            return true;
    }
    return false;
}

/* ---- open, commit, discard ---- */

/* errno 0: an earlier write failed, and why has been forgotten since. */
static int fail_file(const char *path)
{
    return cli_fail(CLI_ENVIRONMENT, "%s: cannot write: %s", path,
                    errno ? strerror(errno) : "an earlier write failed");
}

static void forget(cli_output *out)
{
    if (out->temporary) unwatch(out->temporary);
    free(out->path);
    free(out->temporary);
    *out = (cli_output){0};
}

/* mkstemp() keeps its file private; the result is to have the rights of any new file. */
static int open_temporary(char *name, mode_t mode)
{
    const int fd = mkstemp(name);
    if (fd < 0) return -1;
    if (fchmod(fd, mode) == 0) return fd;
    close(fd);
    unlink(name);
    return -1;
}

static mode_t new_file_mode(void)
{
    const mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static int open_beside(cli_output *out, mode_t mode)
{
    const size_t size = strlen(out->path) + sizeof SUFFIX;
    out->temporary = malloc(size);
    if (!out->temporary) return -1;
    snprintf(out->temporary, size, "%s" SUFFIX, out->path);
    const int fd = open_temporary(out->temporary, mode);
    if (fd >= 0) watch(out->temporary);
    return fd;
}

/* The place itself, through links; a new file's path as it was given. */
static char *resolve(const char *path)
{
    char *real = realpath(path, NULL);
    return real ? real : strdup(path);
}

int cli_output_open(cli_output *out, const char *path)
{
    *out = (cli_output){0};
    if (!path) return CLI_OK;
    struct stat place;
    const bool exists = stat(path, &place) == 0;
    out->path = resolve(path);
    if (out->path && is_taken(out->path)) {
        forget(out);
        return cli_fail(CLI_USAGE, "%s: asked for twice", path);
    }
    int fd = -1;
    if (out->path && !(exists && access(path, W_OK) != 0)) {
        const bool in_place = exists && !S_ISREG(place.st_mode);
        fd = in_place ? open(path, O_WRONLY)
                      : open_beside(out, exists ? place.st_mode & 07777 : new_file_mode());
    }
    if (fd >= 0) out->file = fdopen(fd, "w");
    if (out->file) return CLI_OK;
    const int code = fail_file(path);
    if (fd >= 0) close(fd);
    forget(out);
    return code;
}

int cli_output_commit(cli_output *out)
{
    if (!out->file) return CLI_OK;
    errno = 0;
    const bool bad = fflush(out->file) != 0 || ferror(out->file);
    const bool written = fclose(out->file) == 0 && !bad;
    out->file = NULL;
    const bool placed = written && (!out->temporary || rename(out->temporary, out->path) == 0);
    const int code = placed ? CLI_OK : fail_file(out->path);
    if (!placed && out->temporary) unlink(out->temporary);
    forget(out);
    return code;
}

void cli_output_discard(cli_output *out)
{
    if (!out->file) return;
    fclose(out->file);
    if (out->temporary) unlink(out->temporary);
    forget(out);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* How a command speaks: sentences and progress on stderr, colour where it is wanted, files that
 * are whole or absent. */
#include "cli.h"
#include "cli_name.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "keel/status.h"

cli_name cli_current;

void cli_command_name(const char *name, const char *summary)
{
    cli_current = (cli_name){name, summary};
}

static void say(cli_colour colour, const char *kind, const char *format, va_list arguments)
{
    fflush(stdout);
    fprintf(stderr, "keel%s%s: %s%s%s", cli_current.name ? " " : "",
            cli_current.name ? cli_current.name : "", cli_style(stderr, colour), kind,
            cli_style(stderr, CLI_RESET));
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

int cli_fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(CLI_RED, "error: ", format, arguments);
    va_end(arguments);
    return code;
}

void cli_note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(CLI_YELLOW, "note: ", format, arguments);
    va_end(arguments);
}

int cli_library_error(keel_status status)
{
    const bool asked_wrongly = status == KEEL_ERR_INVALID || status == KEEL_ERR_UNSUPPORTED;
    return cli_fail(asked_wrongly ? CLI_USAGE : CLI_ENVIRONMENT, "%s", keel_last_error());
}

static bool wants_colour(FILE *stream)
{
    const char *off = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    if (off && *off) return false;
    if (!terminal || strcmp(terminal, "dumb") == 0) return false;
    return isatty(fileno(stream)) == 1;
}

const char *cli_style(FILE *stream, cli_colour colour)
{
    static const char *const codes[] = {
        [CLI_RESET] = "\033[0m", [CLI_BOLD] = "\033[1m",   [CLI_DIM] = "\033[2m",
        [CLI_RED] = "\033[31m",  [CLI_GREEN] = "\033[32m", [CLI_YELLOW] = "\033[33m",
    };
    return wants_colour(stream) ? codes[colour] : "";
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void cli_progress(const char *label, int64_t done, int64_t total)
{
    enum { WIDTH = 30 };
    static const char *shown;
    static double begun, drawn;
    if (isatty(STDERR_FILENO) != 1 || total <= 0) return;
    const double t = now();
    if (shown != label) {
        shown = label;
        begun = t;
        drawn = t;
    }
    if (done >= total) {
        if (drawn > begun) fprintf(stderr, "\r\033[K");
        shown = NULL;
        return;
    }
    if (t - begun < 0.5 || t - drawn < 0.1) return;
    drawn = t;
    const int filled = (int)((double)done / (double)total * WIDTH);
    fprintf(stderr, "\r%s [%.*s%.*s] %lld/%lld", label, filled, "##############################",
            WIDTH - filled, "..............................", (long long)done, (long long)total);
    fflush(stderr);
}

static int fail_file(const char *path, const char *what)
{
    return cli_fail(CLI_ENVIRONMENT, "%s: cannot %s: %s", path, what, strerror(errno));
}

static void forget(cli_output *out)
{
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
    const size_t size = strlen(out->path) + sizeof ".XXXXXX";
    out->temporary = malloc(size);
    if (!out->temporary) return -1;
    snprintf(out->temporary, size, "%s.XXXXXX", out->path);
    return open_temporary(out->temporary, mode);
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
    int fd = -1;
    if (out->path && !(exists && access(path, W_OK) != 0)) {
        const bool in_place = exists && !S_ISREG(place.st_mode);
        fd = in_place ? open(path, O_WRONLY)
                      : open_beside(out, exists ? place.st_mode & 07777 : new_file_mode());
    }
    if (fd >= 0) out->file = fdopen(fd, "w");
    if (out->file) return CLI_OK;
    const int code = fail_file(path, "write");
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
    const int code = placed ? CLI_OK : fail_file(out->path, "write");
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

int cli_close_stdout(int code)
{
    errno = 0;
    const bool bad = fflush(stdout) != 0 || ferror(stdout);
    const bool closed = fclose(stdout) == 0;
    if (!bad && closed) return code;
    if (errno == EPIPE) return CLI_ENVIRONMENT; /* the reader left and knows */
    return cli_fail(CLI_ENVIRONMENT, "cannot write standard output: %s", strerror(errno));
}

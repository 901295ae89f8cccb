/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* How a command speaks: sentences and progress on stderr, colour where it is wanted, and whether
 * stdout took what it was given. */
#include "cli.h"
#include "cli_name.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

int cli_close_stdout(int code)
{
    errno = 0;
    const bool bad = fflush(stdout) != 0 || ferror(stdout);
    const bool closed = fclose(stdout) == 0;
    if (!bad && closed) return code;
    if (errno == EPIPE) return CLI_ENVIRONMENT; /* the reader left and knows */
    return cli_fail(CLI_ENVIRONMENT, "cannot write standard output: %s", strerror(errno));
}

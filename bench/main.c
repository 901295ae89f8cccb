/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel: find the command and run it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "commands.h"
#include "keel/version.h"

typedef struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
#define X(name, summary) {#name, summary, cmd_##name},
#include "commands.def"
#undef X
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void print_version(void)
{
    const unsigned v = keel_version();
    printf("keel %u.%u.%u\n", v / 10000, v / 100 % 100, v % 100);
}

static void print_help(FILE *stream)
{
    const char *bold = cli_style(stream, CLI_BOLD);
    const char *reset = cli_style(stream, CLI_RESET);
    fputs("keel: keeps low-precision training steps upright\n\n"
          "usage: keel <command> [options]\n\n",
          stream);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fprintf(stream, "  %s%-9s%s %s\n", bold, commands[i].name, reset, commands[i].summary);
    }
    fputs("\n  keel <command> --help   what a command takes, with examples\n"
          "  keel --version          the library's version\n\n"
          "exit codes: 0 ok, 1 something was found wrong, 2 usage, 3 files or machine\n",
          stream);
}

static int unknown_command(const char *word)
{
    const char *names[COMMAND_COUNT];
    for (int i = 0; i < COMMAND_COUNT; i++) names[i] = commands[i].name;
    const char *near = cli_nearest(word, names, COMMAND_COUNT);
    if (near) {
        return cli_fail(CLI_USAGE, "unknown command '%s'; did you mean '%s'?", word, near);
    }
    return cli_fail(CLI_USAGE, "unknown command '%s'; see keel --help", word);
}

static int run_command(int argc, char **argv)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, argv[0]) != 0) continue;
        cli_command_name(commands[i].name, commands[i].summary);
        return commands[i].run(argc, argv);
    }
    return unknown_command(argv[0]);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0) {
        print_version();
        return CLI_OK;
    }
    const bool help = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
    if (help || (strcmp(word, "help") == 0 && argc == 2)) {
        print_help(stdout);
        return CLI_OK;
    }
    if (strcmp(word, "help") == 0) {
        char *help_argv[] = {argv[2], (char[]){"--help"}, NULL};
        return run_command(2, help_argv);
    }
    return run_command(argc - 1, argv + 1);
}

/* A standard stream that the caller closed must not become the first file we open.  Opened for
 * reading, so that printing to it still fails. */
static void fill_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        if (open("/dev/null", O_RDONLY) < 0) return;
    }
}

int main(int argc, char **argv)
{
    fill_standard_streams();
    /* A reader that goes away or a file at its limit is an error we report, not a death. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    return cli_close_stdout(dispatch(argc, argv));
}

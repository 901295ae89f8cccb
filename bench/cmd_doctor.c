/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel doctor. */
#include "commands.h"

#include "cli.h"

int cmd_doctor(int argc, char **argv)
{
    const cli_option rows[] = {{.name = NULL}};
    const cli_usage usage = {.options = rows};
    cli_args args;
    if (!cli_parse(&usage, argc, argv, &args)) return args.exit_code;
    return CLI_OK;
}

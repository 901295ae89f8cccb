/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Which command is running; shared by the files of the frame alone. */
#ifndef BENCH_CLI_NAME_H
#define BENCH_CLI_NAME_H

typedef struct cli_name {
    const char *name;
    const char *summary;
} cli_name;

extern cli_name cli_current;

#endif

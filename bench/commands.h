/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The commands' entry points, from their table. */
#ifndef BENCH_COMMANDS_H
#define BENCH_COMMANDS_H

#define X(name, summary) int cmd_##name(int argc, char **argv);
#include "commands.def"
#undef X

#endif

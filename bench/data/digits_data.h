/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The bytes of data/digits.txt, as the build puts them into the program. */
#ifndef BENCH_DIGITS_DATA_H
#define BENCH_DIGITS_DATA_H

#include <stddef.h>

extern const unsigned char digits_data[];
extern const size_t digits_data_size;

#endif

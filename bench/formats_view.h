/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What `keel formats` shows of one code and of one value, as text and as JSON. */
#ifndef BENCH_FORMATS_VIEW_H
#define BENCH_FORMATS_VIEW_H

#include "json.h"
#include "keel/formats.h"

/* format_fits: false for a code with bits above the format's width. */
bool format_fits(const keel_format_info *format, uint32_t code);

void show_code(const keel_format_info *format, uint32_t code);
void json_code(json *j, const keel_format_info *format, uint32_t code);

/* What formats make of a value; only = NULL takes all of them. */
void show_value(double value, const keel_format_info *only);
void json_value(json *j, double value, const keel_format_info *only);

#endif

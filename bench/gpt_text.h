/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Text to train the transformer on: bytes of a file or of a folder, cut once into a part to train
 * on and a part held out, and windows of both. */
#ifndef BENCH_GPT_TEXT_H
#define BENCH_GPT_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "gpt.h"

/* Licence texts: English that every Debian has. */
#define GPT_TEXT_DEFAULT "/usr/share/common-licenses"

enum {
    GPT_TEXT_FOLDER_MAX = 200 * 1024, /* bytes taken from a folder */
    GPT_TEXT_FILE_MAX = 64 << 20,     /* bytes a file may have */
    GPT_TEXT_MIN = 4096,              /* bytes below which there is nothing to learn */
};

typedef struct gpt_text {
    uint8_t *bytes;
    int count;
    int train; /* the first 9/10; the rest is held out */
} gpt_text;

/* gpt_text_load: a file whole, or the regular files of a folder in the order of their names, up to
 * GPT_TEXT_FOLDER_MAX; path NULL = GPT_TEXT_DEFAULT.  False, with a sentence and out untouched: it
 * cannot be read, is too short, or is a file that is too long. */
bool gpt_text_load(const char *path, gpt_text *out, char why[GPT_WHY]);
void gpt_text_free(gpt_text *t);

/* gpt_text_draw: the index-th random window of context + 1 bytes of the part to train on: a
 * function of seed and index alone. */
void gpt_text_draw(const gpt_text *t, int context, uint64_t seed, uint64_t index, uint8_t *out);

/* gpt_text_windows: whole windows of the held-out part, each beginning with the last byte of the
 * one before; gpt_text_held_out: the index-th of them. */
int gpt_text_windows(const gpt_text *t, int context);
void gpt_text_held_out(const gpt_text *t, int context, int index, uint8_t *out);

#endif

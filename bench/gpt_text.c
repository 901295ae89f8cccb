/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Reading the text, and its windows. */
#include "gpt_text.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "keel/ext.h"
#include "rng.h"

#define FAIL(status, ...) return keel_ext_fail(status, "gpt_text_load", __VA_ARGS__)

/* Bytes read so far; room for limit of them, and no more are taken. */
typedef struct buffer {
    uint8_t *bytes;
    size_t count, limit;
} buffer;

static keel_status read_file(const char *path, buffer *b)
{
    FILE *file = fopen(path, "rb");
    if (!file) FAIL(KEEL_ERR_UNAVAILABLE, "%s: %s (want a readable file)", path, strerror(errno));
    b->count += fread(b->bytes + b->count, 1, b->limit - b->count, file);
    const int failed = ferror(file) ? errno : 0;
    fclose(file);
    if (failed) FAIL(KEEL_ERR_UNAVAILABLE, "%s: %s (want a readable file)", path, strerror(failed));
    return KEEL_OK;
}

/* Links are passed over: they would name a file twice. */
static keel_status append_entry(const char *folder, const char *name, buffer *b)
{
    char path[4096];
    struct stat info;
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length >= (int)sizeof path)
        FAIL(KEEL_ERR_INVALID, "%s: a path of %d bytes (want less than %zu)", folder, length,
             sizeof path);
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode)) return KEEL_OK;
    return read_file(path, b);
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* By bytes, in whatever locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static keel_status read_folder(const char *path, buffer *b)
{
    struct dirent **entries;
    const int count = scandir(path, &entries, visible, by_name);
    if (count < 0)
        FAIL(KEEL_ERR_UNAVAILABLE, "%s: %s (want a readable folder)", path, strerror(errno));
    keel_status status = KEEL_OK;
    for (int i = 0; i < count; i++) {
        if (!status) status = append_entry(path, entries[i]->d_name, b);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static keel_status read_into(const char *path, const struct stat *info, buffer *b)
{
    const keel_status status = S_ISDIR(info->st_mode) ? read_folder(path, b) : read_file(path, b);
    if (status) return status;
    if (b->count < GPT_TEXT_MIN)
        FAIL(KEEL_ERR_INVALID, "%s: %zu bytes of text (want %d or more)", path, b->count,
             GPT_TEXT_MIN);
    return KEEL_OK;
}

keel_status gpt_text_load(const char *path, gpt_text *out)
{
    struct stat info;
    if (!path) path = GPT_TEXT_DEFAULT;
    if (stat(path, &info) != 0)
        FAIL(KEEL_ERR_UNAVAILABLE, "%s: %s (want a text file or a folder of them)", path,
             strerror(errno));
    const bool folder = S_ISDIR(info.st_mode);
    if (!folder && !S_ISREG(info.st_mode))
        FAIL(KEEL_ERR_INVALID, "%s: neither file nor folder (want a text file or a folder of them)",
             path);
    if (!folder && info.st_size > GPT_TEXT_FILE_MAX)
        FAIL(KEEL_ERR_INVALID, "%s: %lld bytes (want %d or less)", path, (long long)info.st_size,
             GPT_TEXT_FILE_MAX);
    buffer b = {.limit = folder ? GPT_TEXT_FOLDER_MAX : (size_t)info.st_size};
    b.bytes = malloc(b.limit + 1);
    if (!b.bytes) FAIL(KEEL_ERR_NO_MEMORY, "%s: no memory for %zu bytes", path, b.limit);
    const keel_status status = read_into(path, &info, &b);
    if (status) {
        free(b.bytes);
        return status;
    }
    const int count = (int)b.count;
    *out = (gpt_text){.bytes = b.bytes, .count = count, .train = count - count / 10};
    return KEEL_OK;
}

void gpt_text_free(gpt_text *t)
{
    free(t->bytes);
    *t = (gpt_text){0};
}

void gpt_text_draw(const gpt_text *t, int context, uint64_t seed, uint64_t index, uint8_t *out)
{
    const int at = rng_below(seed, index, t->train - context);
    memcpy(out, t->bytes + at, (size_t)context + 1);
}

int gpt_text_windows(const gpt_text *t, int context)
{
    return (t->count - t->train - 1) / context;
}

void gpt_text_held_out(const gpt_text *t, int context, int index, uint8_t *out)
{
    memcpy(out, t->bytes + t->train + index * context, (size_t)context + 1);
}

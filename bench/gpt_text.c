/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Reading the text, and its windows. */
#include "gpt_text.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rng.h"

/* Bytes read so far; room for limit of them, and no more are taken. */
typedef struct buffer {
    uint8_t *bytes;
    size_t count, limit;
    char *why; /* GPT_WHY bytes */
} buffer;

/* "path: sentence"; of a long path its beginning, so that there is room for the rest. */
__attribute__((format(printf, 3, 4))) static bool refuse(buffer *b, const char *path,
                                                         const char *format, ...)
{
    const int used = snprintf(b->why, GPT_WHY, "%.300s: ", path);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(b->why + used, (size_t)(GPT_WHY - used), format, arguments);
    va_end(arguments);
    return false;
}

static bool read_file(const char *path, buffer *b)
{
    FILE *file = fopen(path, "rb");
    if (!file) return refuse(b, path, "%s (want a readable file)", strerror(errno));
    b->count += fread(b->bytes + b->count, 1, b->limit - b->count, file);
    const int failed = ferror(file) ? errno : 0;
    fclose(file);
    return !failed || refuse(b, path, "%s (want a readable file)", strerror(failed));
}

/* Links are passed over: they would name a file twice. */
static bool append_entry(const char *folder, const char *name, buffer *b)
{
    char path[4096];
    struct stat info;
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length >= (int)sizeof path)
        return refuse(b, folder, "a path of %d bytes (want less than %zu)", length, sizeof path);
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode)) return true;
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

static bool read_folder(const char *path, buffer *b)
{
    struct dirent **entries;
    const int count = scandir(path, &entries, visible, by_name);
    if (count < 0) return refuse(b, path, "%s (want a readable folder)", strerror(errno));
    bool well = true;
    for (int i = 0; i < count; i++) {
        well = well && append_entry(path, entries[i]->d_name, b);
        free(entries[i]);
    }
    free(entries);
    return well;
}

/* How many bytes there may be, as limit. */
static bool look_at(const char *path, buffer *b, bool *out_folder)
{
    static const char *const want = "(want a text file or a folder of them)";
    struct stat info;
    if (stat(path, &info) != 0) return refuse(b, path, "%s %s", strerror(errno), want);
    *out_folder = S_ISDIR(info.st_mode);
    b->limit = *out_folder ? GPT_TEXT_FOLDER_MAX : (size_t)info.st_size;
    if (!*out_folder && !S_ISREG(info.st_mode))
        return refuse(b, path, "neither file nor folder %s", want);
    if (b->limit > GPT_TEXT_FILE_MAX)
        return refuse(b, path, "%zu bytes (want %d or less)", b->limit, GPT_TEXT_FILE_MAX);
    return true;
}

static bool read_text(const char *path, buffer *b)
{
    bool folder;
    if (!look_at(path, b, &folder)) return false;
    b->bytes = malloc(b->limit + 1);
    if (!b->bytes) return refuse(b, path, "no memory for %zu bytes", b->limit);
    if (!(folder ? read_folder(path, b) : read_file(path, b))) return false;
    if (b->count < GPT_TEXT_MIN)
        return refuse(b, path, "%zu bytes of text (want %d or more)", b->count, GPT_TEXT_MIN);
    return true;
}

bool gpt_text_load(const char *path, gpt_text *out, char why[GPT_WHY])
{
    buffer b = {.why = why};
    if (!read_text(path ? path : GPT_TEXT_DEFAULT, &b)) {
        free(b.bytes);
        return false;
    }
    const int count = (int)b.count;
    *out = (gpt_text){.bytes = b.bytes, .count = count, .train = count - count / 10};
    return true;
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

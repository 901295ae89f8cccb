/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The strict JSON reader.  Each skip_ returns the first character after what it read, or NULL with
 * the fault recorded. */
#include "strict_json.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64 };

typedef struct reader {
    const char *fault;
    int depth;
} reader;

static const char *skip_value(reader *r, const char *p);

static const char *fail(reader *r, const char *p)
{
    if (!r->fault) r->fault = p;
    return NULL;
}

static const char *skip_space(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

static const char *skip_escape(reader *r, const char *p)
{
    if (*p && strchr("\"\\/bfnrt", *p)) return p + 1;
    if (*p != 'u') return fail(r, p);
    for (int i = 1; i <= 4; i++) {
        if (!isxdigit((unsigned char)p[i])) return fail(r, p);
    }
    return p + 5;
}

static const char *skip_string(reader *r, const char *p)
{
    if (*p != '"') return fail(r, p);
    p++;
    while (*p != '"') {
        if ((unsigned char)*p < 0x20) return fail(r, p);
        if (*p++ != '\\') continue;
        p = skip_escape(r, p);
        if (!p) return NULL;
    }
    return p + 1;
}

static const char *skip_digits(reader *r, const char *p)
{
    if (!isdigit((unsigned char)*p)) return fail(r, p);
    return p + strspn(p, "0123456789");
}

static const char *skip_number(reader *r, const char *p)
{
    if (*p == '-') p++;
    p = *p == '0' ? p + 1 : skip_digits(r, p);
    if (p && *p == '.') p = skip_digits(r, p + 1);
    if (p && (*p == 'e' || *p == 'E')) {
        p++;
        if (*p == '+' || *p == '-') p++;
        p = skip_digits(r, p);
    }
    return p;
}

static const char *skip_member(reader *r, const char *p)
{
    p = skip_string(r, p);
    if (!p) return NULL;
    p = skip_space(p);
    return *p == ':' ? skip_value(r, p + 1) : fail(r, p);
}

static const char *skip_level(reader *r, const char *p, char closer)
{
    if (++r->depth > DEPTH_MAX) return fail(r, p);
    p = skip_space(p + 1);
    if (*p == closer) {
        r->depth--;
        return p + 1;
    }
    for (;;) {
        p = closer == '}' ? skip_member(r, skip_space(p)) : skip_value(r, p);
        if (!p) return NULL;
        p = skip_space(p);
        if (*p == closer) break;
        if (*p != ',') return fail(r, p);
        p++;
    }
    r->depth--;
    return p + 1;
}

static const char *skip_value(reader *r, const char *p)
{
    p = skip_space(p);
    if (*p == '{') return skip_level(r, p, '}');
    if (*p == '[') return skip_level(r, p, ']');
    if (*p == '"') return skip_string(r, p);
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        const size_t length = strlen(words[i]);
        if (strncmp(p, words[i], length) == 0) return p + length;
    }
    return skip_number(r, p);
}

const char *json_fault(const char *text)
{
    reader r = {0};
    const char *end = skip_value(&r, text);
    if (!end) return r.fault;
    end = skip_space(end);
    return *end ? end : NULL;
}

/* The value of one element (name NULL) or one member of the level that begins at p. */
static const char *step_into(const char *p, const char *name, size_t length, int index)
{
    reader r = {0};
    p = skip_space(p);
    if (*p != (name ? '{' : '[')) return NULL;
    p = skip_space(p + 1);
    for (int i = 0; *p != '}' && *p != ']'; i++) {
        const char *key = p;
        if (name) p = skip_space(skip_string(&r, p)) + 1;
        p = skip_space(p);
        const bool named = name && strncmp(key + 1, name, length) == 0 && key[length + 1] == '"';
        if (named || (!name && i == index)) return p;
        p = skip_space(skip_value(&r, p));
        if (*p == ',') p = skip_space(p + 1);
    }
    return NULL;
}

const char *json_find(const char *text, const char *path)
{
    const char *p = skip_space(text);
    while (p && *path) {
        if (*path == '[') {
            char *end;
            const long index = strtol(path + 1, &end, 10);
            p = step_into(p, NULL, 0, (int)index);
            path = end + 1;
        } else {
            if (*path == '.') path++;
            const size_t length = strcspn(path, ".[");
            p = step_into(p, path, length, 0);
            path += length;
        }
    }
    return p;
}

int json_count(const char *text, const char *path)
{
    const char *p = json_find(text, path);
    if (!p || (*p != '[' && *p != '{')) return -1;
    reader r = {0};
    const bool is_object = *p == '{';
    int count = 0;
    for (p = skip_space(p + 1); *p != '}' && *p != ']'; count++) {
        p = skip_space(is_object ? skip_member(&r, p) : skip_value(&r, p));
        if (*p == ',') p = skip_space(p + 1);
    }
    return count;
}

double json_number_at(const char *text, const char *path)
{
    const char *p = json_find(text, path);
    if (!p || !(*p == '-' || isdigit((unsigned char)*p))) return NAN;
    return strtod(p, NULL);
}

bool json_is(const char *text, const char *path, const char *spelling)
{
    reader r = {0};
    const char *p = json_find(text, path);
    if (!p) return false;
    const char *end = skip_value(&r, p);
    return (size_t)(end - p) == strlen(spelling) && strncmp(p, spelling, strlen(spelling)) == 0;
}

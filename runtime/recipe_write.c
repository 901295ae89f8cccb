/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A recipe as JSON, with nothing left to a base. */
#include <inttypes.h>
#include <string.h>

#include "json_write.h"
#include "recipe.h"
#include "utf8.h"

#define X(NAME, id, text) [id] = text,
static const char *const ops[] = {KEEL_OP_LIST(X)};
static const char *const operands[] = {KEEL_OPERAND_LIST(X)};
#undef X

/* Terminated, UTF-8. */
static keel_status check_text(const char *fn, const char *what, const char *text, int32_t size)
{
    int32_t i = 0;
    while (i < size && text[i]) {
        const int n = keeli_utf8_length(text + i, size - i);
        if (n == 0)
            return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s has byte 0x%02x at %d (want UTF-8)",
                                 what, (unsigned)(unsigned char)text[i], (int)i);
        i += n;
    }
    if (i >= size)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s has no end (want at most %d bytes)", what,
                             (int)size - 1);
    return KEEL_OK;
}

static keel_status check_cells(const char *fn, const char *what, const keel_recipe_cell *cells)
{
    for (int i = 0; i < KEEL_OPERAND_COUNT; i++) {
        const char *fault = keeli_recipe_cell_fault(&cells[i]);
        if (fault)
            return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s.%s has %s", what, operands[i], fault);
    }
    return KEEL_OK;
}

static int32_t int_at(const keeli_json_key *key, const void *object)
{
    int32_t value;
    memcpy(&value, (const char *)object + key->offset, sizeof value);
    return value;
}

static int32_t words_of(const keeli_json_key *key)
{
    int32_t n = 0;
    while (key->words[n]) n++;
    return n;
}

static keel_status check_keys(const char *fn, const keeli_json_key *keys, const void *object)
{
    for (const keeli_json_key *key = keys; key->name; key++) {
        if (key->read == keeli_json_read_float) continue;
        const double lo = key->words ? 0 : key->lo, hi = key->words ? words_of(key) - 1 : key->hi;
        const int32_t value = int_at(key, object);
        if (value < lo || value > hi)
            return keel_ext_fail(KEEL_ERR_INVALID, fn, "%s=%d (want %.0f..%.0f)", key->name,
                                 (int)value, lo, hi);
    }
    return KEEL_OK;
}

static keel_status check_exceptions(const char *fn, const keel_recipe *r)
{
    if (r->exception_count < 0 || r->exception_count > KEEL_RECIPE_EXCEPTIONS)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "exception_count=%d (want 0..%d)",
                             (int)r->exception_count, (int)KEEL_RECIPE_EXCEPTIONS);
    for (int32_t i = 0; i < r->exception_count; i++) {
        const keel_recipe_exception *e = &r->exception[i];
        TRY(check_text(fn, "a pattern", e->pattern, KEEL_RECIPE_PATTERN_MAX));
        if (!e->pattern[0])
            return keel_ext_fail(KEEL_ERR_INVALID, fn, "exception[%d].pattern is empty", (int)i);
        TRY(check_cells(fn, e->pattern, e->cell));
    }
    return KEEL_OK;
}

/* The same bounds that the reader holds a document to. */
static keel_status check(const char *fn, const keel_recipe *r)
{
    keel_loss_scale_state state;
    TRY(check_text(fn, "name", r->name, KEEL_RECIPE_NAME_MAX));
    for (int op = 0; op < KEEL_OP_COUNT; op++) TRY(check_cells(fn, ops[op], r->cell[op]));
    TRY(check_keys(fn, keeli_recipe_loss_scale_keys, &r->loss_scale));
    TRY(keel_loss_scale_begin(&r->loss_scale, &state));
    TRY(check_keys(fn, keeli_recipe_slot_keys, &r->slot));
    if ((uint32_t)r->mx_rule > KEEL_MX_FLOOR)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "mx_rule=%d (want 0..%d)", (int)r->mx_rule,
                             (int)KEEL_MX_FLOOR);
    return check_exceptions(fn, r);
}

static void put_cells(keeli_json_out *out, const keel_recipe_cell *cells, const char *comma)
{
    for (int i = 0; i < KEEL_OPERAND_COUNT; i++, comma = ", ") {
        const char *format = keel_format_get(cells[i].format)->name;
        keeli_json_put(out, "%s\"%s\": \"%s", comma, operands[i], format);
        if (cells[i].scaling != KEEL_CELL_NONE)
            keeli_json_put(out, " %s", keeli_recipe_scalings[cells[i].scaling]);
        keeli_json_put(out, "\"");
    }
}

static void put_keys(keeli_json_out *out, const keeli_json_key *keys, const void *object)
{
    const char *comma = "";
    for (const keeli_json_key *key = keys; key->name; key++, comma = ", ") {
        float number;
        memcpy(&number, (const char *)object + key->offset, sizeof number);
        keeli_json_put(out, "%s\"%s\": ", comma, key->name);
        if (key->read == keeli_json_read_float)
            keeli_json_put_digits(out, (double)number, 9);
        else if (key->words)
            keeli_json_put(out, "\"%s\"", key->words[int_at(key, object)]);
        else
            keeli_json_put(out, "%" PRId32, int_at(key, object));
    }
}

static void put_exceptions(keeli_json_out *out, const keel_recipe *r)
{
    keeli_json_put(out, "  \"exceptions\": [");
    for (int32_t i = 0; i < r->exception_count; i++) {
        keeli_json_put(out, "%s\n    {\"pattern\": ", i ? "," : "");
        keeli_json_put_quoted(out, r->exception[i].pattern);
        put_cells(out, r->exception[i].cell, ", ");
        keeli_json_put(out, "}");
    }
    keeli_json_put(out, "%s]\n", r->exception_count ? "\n  " : "");
}

static void put_recipe(keeli_json_out *out, const keel_recipe *r)
{
    keeli_json_put(out, "{\n  \"keel_recipe\": %d,\n  \"name\": ", (int)KEELI_RECIPE_SCHEMA);
    keeli_json_put_quoted(out, r->name);
    for (int op = 0; op < KEEL_OP_COUNT; op++) {
        keeli_json_put(out, ",\n  \"%s\": {", ops[op]);
        put_cells(out, r->cell[op], "");
        keeli_json_put(out, "}");
    }
    keeli_json_put(out, ",\n  \"loss_scale\": {");
    put_keys(out, keeli_recipe_loss_scale_keys, &r->loss_scale);
    keeli_json_put(out, "},\n  \"slot\": {");
    put_keys(out, keeli_recipe_slot_keys, &r->slot);
    keeli_json_put(out, "},\n  \"mx_rule\": \"%s\",\n", keeli_recipe_mx_rules[r->mx_rule]);
    put_exceptions(out, r);
    keeli_json_put(out, "}\n");
}

keel_status keel_recipe_to_json(const keel_recipe *recipe, char *buffer, size_t size,
                                size_t *out_len)
{
    if (!recipe || (!buffer && size > 0))
        FAIL(KEEL_ERR_INVALID, "%s is NULL", recipe ? "buffer" : "recipe");
    TRY(check(__func__, recipe));
    keeli_json_out out = {buffer, size, 0};
    put_recipe(&out, recipe);
    if (out_len) *out_len = out.used;
    if (size > 0 && out.used >= size)
        FAIL(KEEL_ERR_INVALID, "size=%zu (want >= %zu)", size, out.used + 1);
    return KEEL_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A recipe from JSON.  The document is read twice: first for its base, then over the base, so that
 * keys may come in any order and nothing has to be skipped. */
#include <float.h>
#include <string.h>

#include "recipe.h"

enum { CELL_TEXT_MAX = 64 };

const char *const keeli_recipe_scalings[] = {
#define X(NAME, id, text) text,
    KEEL_CELL_SCALING_LIST(X)
#undef X
        NULL};
const char *const keeli_recipe_mx_rules[] = {"ceil", "floor", NULL};
static const char *const rules[] = {
    "keel", "torch",           "megatron", "deepspeed", "deepspeed-consecutive",
    "apex", "apex-hysteresis", NULL};
static const char *const modes[] = {"dynamic", "static", "off", NULL};
static const char *const algorithms[] = {"max", "most_recent", NULL};
static const char *const policies[] = {"keel", "te", NULL};

#define WORD(type, field, words)                                         \
    {                                                                    \
#        field, keeli_json_read_word, offsetof(type, field), 0, 0, words \
    }
#define INT(type, field, lo, hi)                                         \
    {                                                                    \
#        field, keeli_json_read_int, offsetof(type, field), lo, hi, NULL \
    }
#define FLOAT(type, field)                                                                       \
    {                                                                                            \
#        field, keeli_json_read_float, offsetof(type, field), -(double)FLT_MAX, (double)FLT_MAX, \
            NULL                                                                                 \
    }
#define END                       \
    {                             \
        NULL, NULL, 0, 0, 0, NULL \
    }

/* keel_loss_scale_begin() has the bounds. */
const keeli_json_key keeli_recipe_loss_scale_keys[] = {
    WORD(keel_loss_scale_config, rule, rules),
    WORD(keel_loss_scale_config, mode, modes),
    FLOAT(keel_loss_scale_config, init),
    FLOAT(keel_loss_scale_config, growth),
    FLOAT(keel_loss_scale_config, backoff),
    FLOAT(keel_loss_scale_config, min),
    FLOAT(keel_loss_scale_config, max),
    INT(keel_loss_scale_config, interval, 1, INT32_MAX),
    INT(keel_loss_scale_config, hysteresis, 1, INT32_MAX),
    END};

const keeli_json_key keeli_recipe_slot_keys[] = {WORD(keel_slot, algorithm, algorithms),
                                                 WORD(keel_slot, policy, policies),
                                                 INT(keel_slot, history, 1, KEEL_HISTORY_MAX),
                                                 INT(keel_slot, margin, -32, 32),
                                                 INT(keel_slot, power_of_two, 0, 1),
                                                 INT(keel_slot, veto, 0, 1),
                                                 INT(keel_slot, count, 0, 1),
                                                 END};

typedef struct document {
    int32_t version;
    char base[KEEL_RECIPE_NAME_MAX];
    bool over_base; /* the second reading */
    keel_recipe recipe;
} document;

/* The sentence of a failed call, with the line where its object begins. */
static keel_status forward(const keeli_json *from)
{
    return keeli_json_fail(from, "%s", keel_last_error());
}

static keel_status read_format(keeli_json *j, const keeli_json_key *key, void *object)
{
    char name[CELL_TEXT_MAX];
    keel_format *format = (keel_format *)(void *)((char *)object + key->offset);
    TRY(keeli_json_string(j, name, sizeof name));
    return keel_format_find(name, format, NULL) == KEEL_OK ? KEEL_OK : forward(j);
}

/* "e4m3" or "e4m3 delayed". */
static keel_status read_cell_text(keeli_json *j, keel_recipe_cell *cell)
{
    char text[CELL_TEXT_MAX];
    int32_t scaling = KEEL_CELL_NONE;
    TRY(keeli_json_string(j, text, sizeof text));
    char *blank = strchr(text, ' ');
    if (blank) {
        *blank = 0;
        TRY(keeli_json_find_word(j, "scaling", blank + 1, keeli_recipe_scalings, &scaling));
    }
    cell->scaling = (keel_cell_scaling)scaling;
    return keel_format_find(text, &cell->format, NULL) == KEEL_OK ? KEEL_OK : forward(j);
}

static const keeli_json_key cell_keys[] = {
    {"format", read_format, offsetof(keel_recipe_cell, format), 0, 0, NULL},
    WORD(keel_recipe_cell, scaling, keeli_recipe_scalings),
    END};

static keel_status read_cell(keeli_json *j, const keeli_json_key *key, void *object)
{
    keel_recipe_cell cell = {KEEL_FORMAT_NONE, KEEL_CELL_NONE};
    if (keeli_json_peek(j) == '{')
        TRY(keeli_json_object(j, cell_keys, &cell, NULL));
    else
        TRY(read_cell_text(j, &cell));
    if (cell.format == KEEL_FORMAT_NONE) return keeli_json_fail(j, "%s has no format", key->name);
    const char *fault = keeli_recipe_cell_fault(&cell);
    if (fault) return keeli_json_fail(j, "%s has %s", key->name, fault);
    memcpy((char *)object + key->offset, &cell, sizeof cell);
    return KEEL_OK;
}

static const keeli_json_key operand_keys[] = {
#define X(NAME, id, text) {text, read_cell, (id) * sizeof(keel_recipe_cell), 0, 0, NULL},
    KEEL_OPERAND_LIST(X)
#undef X
        END};

static keel_status read_operation(keeli_json *j, const keeli_json_key *key, void *object)
{
    return keeli_json_object(j, operand_keys, (char *)object + key->offset, NULL);
}

static const keeli_json_key exception_keys[] = {{"pattern", keeli_json_read_text,
                                                 offsetof(keel_recipe_exception, pattern), 0,
                                                 KEEL_RECIPE_PATTERN_MAX, NULL},
#define X(NAME, id, text)                                                                      \
    {text, read_cell, offsetof(keel_recipe_exception, cell) + (id) * sizeof(keel_recipe_cell), \
     0,    0,         NULL},
                                                KEEL_OPERAND_LIST(X)
#undef X
                                                    END};

static keel_status read_exception(keeli_json *j, keel_recipe_exception *exception)
{
    uint32_t seen = 0;
    TRY(keeli_json_object(j, exception_keys, exception, &seen));
    for (int k = 0; exception_keys[k].name; k++)
        if (!(seen >> k & 1u))
            return keeli_json_fail(j, "an exception without %s", exception_keys[k].name);
    if (!exception->pattern[0]) return keeli_json_fail(j, "an empty pattern");
    return KEEL_OK;
}

static keel_status read_exceptions(keeli_json *j, const keeli_json_key *key, void *object)
{
    keel_recipe *r = &((document *)object)->recipe;
    bool more = true;
    (void)key;
    r->exception_count = 0;
    memset(r->exception, 0, sizeof r->exception);
    TRY(keeli_json_open(j, '['));
    for (;;) {
        TRY(keeli_json_next(j, ']', r->exception_count == 0, &more));
        if (!more) return KEEL_OK;
        if (r->exception_count == KEEL_RECIPE_EXCEPTIONS)
            return keeli_json_fail(j, "more than %d exceptions", (int)KEEL_RECIPE_EXCEPTIONS);
        TRY(read_exception(j, &r->exception[r->exception_count]));
        r->exception_count++;
    }
}

/* Its bounds hold together, so they are judged over the base. */
static keel_status read_loss_scale(keeli_json *j, const keeli_json_key *key, void *object)
{
    document *d = object;
    keel_loss_scale_state state;
    keeli_json_peek(j);
    const keeli_json start = *j;
    (void)key;
    TRY(keeli_json_object(j, keeli_recipe_loss_scale_keys, &d->recipe.loss_scale, NULL));
    if (!d->over_base || keel_loss_scale_begin(&d->recipe.loss_scale, &state) == KEEL_OK)
        return KEEL_OK;
    return forward(&start);
}

static keel_status read_slot(keeli_json *j, const keeli_json_key *key, void *object)
{
    return keeli_json_object(j, keeli_recipe_slot_keys, (char *)object + key->offset, NULL);
}

static keel_status read_base(keeli_json *j, const keeli_json_key *key, void *object)
{
    keel_recipe base;
    TRY(keeli_json_read_text(j, key, object));
    return keel_recipe_find(((document *)object)->base, &base) == KEEL_OK ? KEEL_OK : forward(j);
}

static const keeli_json_key document_keys[] = {
    {"keel_recipe", keeli_json_read_int, offsetof(document, version), KEELI_RECIPE_SCHEMA,
     KEELI_RECIPE_SCHEMA, NULL},
    {"base", read_base, offsetof(document, base), 0, KEEL_RECIPE_NAME_MAX, NULL},
    {"name", keeli_json_read_text, offsetof(document, recipe.name), 0, KEEL_RECIPE_NAME_MAX, NULL},
#define X(NAME, id, text)                                                                   \
    {text,                                                                                  \
     read_operation,                                                                        \
     offsetof(document, recipe.cell) + (id) * sizeof(keel_recipe_cell[KEEL_OPERAND_COUNT]), \
     0,                                                                                     \
     0,                                                                                     \
     NULL},
    KEEL_OP_LIST(X)
#undef X
        {"loss_scale", read_loss_scale, 0, 0, 0, NULL},
    {"slot", read_slot, offsetof(document, recipe.slot), 0, 0, NULL},
    {"mx_rule", keeli_json_read_word, offsetof(document, recipe.mx_rule), 0, 0,
     keeli_recipe_mx_rules},
    {"exceptions", read_exceptions, 0, 0, 0, NULL},
    END};

/* Once over the recipe that d->base names. */
static keel_status read_document(const char *fn, const char *text, size_t size, document *d)
{
    keeli_json j = keeli_json_begin(fn, text, size);
    TRY(keel_recipe_find(d->base, &d->recipe));
    TRY(keeli_json_object(&j, document_keys, d, NULL));
    TRY(keeli_json_finish(&j));
    if (d->version != KEELI_RECIPE_SCHEMA)
        return keeli_json_fail(&j, "no \"keel_recipe\": %d", (int)KEELI_RECIPE_SCHEMA);
    return KEEL_OK;
}

keel_status keel_recipe_from_json(const char *text, size_t size, keel_recipe *out_recipe)
{
    document d = {.base = "f32"};
    if (!text || !out_recipe) FAIL(KEEL_ERR_INVALID, "%s is NULL", text ? "out_recipe" : "text");
    TRY(read_document(__func__, text, size, &d));
    d.over_base = true;
    TRY(read_document(__func__, text, size, &d));
    memcpy(out_recipe, &d.recipe, sizeof *out_recipe);
    return KEEL_OK;
}

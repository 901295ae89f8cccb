/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The built-in recipes, one row each, and what an operand takes. */
#include <stdio.h>
#include <string.h>

#include "keel/config.h"
#include "recipe.h"

/* Cells of the columns of KEEL_OPERAND_LIST: input, weight, gradient. */
#define CELL(format, scaling)                     \
    {                                             \
        KEEL_FORMAT_##format, KEEL_CELL_##scaling \
    }
#define ALL(format, scaling) CELL(format, scaling), CELL(format, scaling), CELL(format, scaling)
#define HYBRID(scaling)      CELL(E4M3, scaling), CELL(E4M3, scaling), CELL(E5M2, scaling)

typedef struct builtin {
    const char *name;
    keel_loss_scale_mode mode;
    keel_recipe_cell linear[KEEL_OPERAND_COUNT];
    keel_recipe_cell other[KEEL_OPERAND_COUNT]; /* attention and head */
} builtin;

static const builtin builtins[] = {
    {"f32", KEEL_LOSS_SCALE_OFF, {ALL(F32, NONE)}, {ALL(F32, NONE)}},
    {"bf16", KEEL_LOSS_SCALE_OFF, {ALL(BF16, NONE)}, {ALL(BF16, NONE)}},
    {"f16", KEEL_LOSS_SCALE_DYNAMIC, {ALL(F16, NONE)}, {ALL(F16, NONE)}},
    {"fp8-delayed", KEEL_LOSS_SCALE_OFF, {HYBRID(DELAYED)}, {ALL(BF16, NONE)}},
    {"fp8-current", KEEL_LOSS_SCALE_OFF, {HYBRID(CURRENT)}, {ALL(BF16, NONE)}},
    {"mxfp8", KEEL_LOSS_SCALE_OFF, {ALL(E4M3, MX)}, {ALL(BF16, NONE)}},
};

enum { BUILTINS = sizeof builtins / sizeof *builtins };

const char *keel_recipe_name(int32_t index)
{
    return index >= 0 && index < BUILTINS ? builtins[index].name : NULL;
}

/* Padding and the ends of strings are zero, so equal recipes have equal bytes. */
static void expand(const builtin *b, keel_recipe *out)
{
    const keel_config defaults = KEEL_CONFIG_INIT;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", b->name);
    for (int op = 0; op < KEEL_OP_COUNT; op++)
        memcpy(out->cell[op], op == KEEL_OP_LINEAR ? b->linear : b->other, sizeof out->cell[op]);
    out->loss_scale = defaults.loss_scale;
    out->loss_scale.mode = b->mode;
    out->mx_rule = KEEL_MX_CEIL;
    out->slot = KEEL_SLOT_INIT(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3);
}

keel_status keel_recipe_find(const char *name, keel_recipe *out_recipe)
{
    char known[120] = "";
    if (!name || !out_recipe) FAIL(KEEL_ERR_INVALID, "%s is NULL", name ? "out_recipe" : "name");
    for (int i = 0; i < BUILTINS; i++) {
        if (strcmp(builtins[i].name, name) == 0) {
            expand(&builtins[i], out_recipe);
            return KEEL_OK;
        }
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", builtins[i].name);
    }
    FAIL(KEEL_ERR_INVALID, "name='%.40s' (want one of %s)", name, known);
}

/* On a mismatch the last * takes one character more. */
static bool fits(const char *pattern, const char *name)
{
    const char *star = NULL, *resume = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            resume = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

keel_recipe_cell keel_recipe_cell_of(const keel_recipe *recipe, keel_op op, keel_operand operand,
                                     const char *tensor_name)
{
    const keel_recipe_cell none = {KEEL_FORMAT_NONE, KEEL_CELL_NONE};
    if ((uint32_t)op >= KEEL_OP_COUNT || (uint32_t)operand >= KEEL_OPERAND_COUNT) return none;
    for (int32_t i = 0; tensor_name && i < recipe->exception_count; i++)
        if (fits(recipe->exception[i].pattern, tensor_name))
            return recipe->exception[i].cell[operand];
    return recipe->cell[op][operand];
}

const char *keeli_recipe_cell_fault(const keel_recipe_cell *cell)
{
    const keel_format_info *info = keel_format_get(cell->format);
    if (!info) return "a format of no registry row";
    if (!info->can_encode) return "a format that is described only";
    if ((uint32_t)cell->scaling > KEEL_CELL_MX) return "an unknown scaling";
    if (cell->scaling != KEEL_CELL_NONE && info->bits > 8)
        return "a scaled format of more than 8 bits (want 'none' or no scaling)";
    return NULL;
}

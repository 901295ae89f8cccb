/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Recipes: which format each operand of each kind of operation takes, autocast as one table. */
#ifndef KEEL_RECIPE_H
#define KEEL_RECIPE_H

#include <stddef.h>

#include "keel/loss_scale.h"
#include "keel/mx.h"
#include "keel/scaling.h"

KEEL_BEGIN_DECLS

/* Operations that take low-precision operands.  Everything else (softmax, norms, loss, residuals,
 * embeddings, optimizer) is f32 in every recipe.  X(NAME, id, text) */
#define KEEL_OP_LIST(X)                                                     \
    X(LINEAR, 0, "linear")       /* hidden layers, projections, MLP */      \
    X(ATTENTION, 1, "attention") /* scores and their product with values */ \
    X(HEAD, 2, "head")           /* logits */

typedef enum keel_op {
#define X(name, id, text) KEEL_OP_##name = id,
    KEEL_OP_LIST(X)
#undef X
        KEEL_OP_COUNT
} keel_op;

/* Operands by role: what goes forward, what is learned, what comes back.  X(NAME, id, text) */
#define KEEL_OPERAND_LIST(X) \
    X(INPUT, 0, "input")     \
    X(WEIGHT, 1, "weight")   \
    X(GRADIENT, 2, "gradient")

typedef enum keel_operand {
#define X(name, id, text) KEEL_OPERAND_##name = id,
    KEEL_OPERAND_LIST(X)
#undef X
        KEEL_OPERAND_COUNT
} keel_operand;

/* How values are fitted to a format.  X(NAME, id, text) */
#define KEEL_CELL_SCALING_LIST(X)                              \
    X(NONE, 0, "none")       /* scale 1 */                     \
    X(DELAYED, 1, "delayed") /* a slot with delayed scaling */ \
    X(CURRENT, 2, "current") /* a slot with current scaling */ \
    X(MX, 3, "mx")           /* blocks of 32 */

typedef enum keel_cell_scaling {
#define X(name, id, text) KEEL_CELL_##name = id,
    KEEL_CELL_SCALING_LIST(X)
#undef X
        KEEL_CELL_SCALING_FORCE_32BIT = 0x7fffffff
} keel_cell_scaling;

/* A format and how it is scaled.  Formats of more than 8 bits take no scaling. */
typedef struct keel_recipe_cell {
    keel_format format;
    keel_cell_scaling scaling;
} keel_recipe_cell;

enum { KEEL_RECIPE_EXCEPTIONS = 16, KEEL_RECIPE_NAME_MAX = 32, KEEL_RECIPE_PATTERN_MAX = 64 };

/* All operands of tensors whose name fits: * stands for any characters, none included. */
typedef struct keel_recipe_exception {
    char pattern[KEEL_RECIPE_PATTERN_MAX];
    keel_recipe_cell cell[KEEL_OPERAND_COUNT];
} keel_recipe_exception;

typedef struct keel_recipe {
    char name[KEEL_RECIPE_NAME_MAX];
    keel_recipe_cell cell[KEEL_OP_COUNT][KEEL_OPERAND_COUNT];
    keel_loss_scale_config loss_scale;
    keel_mx_rule mx_rule;
    keel_slot slot; /* of cells with a slot: algorithm, policy, history, margin, power_of_two, veto,
                       count; role, format and scaling follow from the cell, name is NULL */
    int32_t exception_count;
    int32_t reserved; /* 0 */
    keel_recipe_exception exception[KEEL_RECIPE_EXCEPTIONS];
} keel_recipe;

/* keel_recipe_find: a built-in recipe: "f32", "bf16", "f16", "fp8-delayed", "fp8-current", "mxfp8".
 * The fp8 ones are hybrid: e4m3 forward, e5m2 for gradients; mxfp8 is e4m3 throughout, for blocks
 * bring the range.  Attention and head of all three are bf16.  Only f16 has a loss scale.
 * Errors  INVALID: unknown name; the sentence lists the known ones.
 * Since   0.1 */
KEEL_API keel_status keel_recipe_find(const char *name, keel_recipe *out_recipe);

/* keel_recipe_name: the names of the built-in recipes in order.
 * Owns    static storage; NULL past the last, so a loop needs no count.
 * Errors  none.
 * Since   0.1 */
KEEL_API const char *keel_recipe_name(int32_t index);

/* keel_recipe_cell_of: what an operand takes: of the first exception whose pattern fits the
 * tensor's name (NULL fits none), else of the table.
 * Errors  none; an operation or operand out of range has format NONE.
 * Since   0.1 */
KEEL_API keel_recipe_cell keel_recipe_cell_of(const keel_recipe *recipe, keel_op op,
                                              keel_operand operand, const char *tensor_name);

/* keel_recipe_from_json: a recipe from a JSON document:
 *
 *   {"keel_recipe": 1, "name": "mine", "base": "fp8-delayed",
 *    "linear": {"input": "e4m3 delayed", "gradient": {"format": "e5m2", "scaling": "delayed"}},
 *    "loss_scale": {"mode": "off"},
 *    "slot": {"history": 16, "margin": 0, "algorithm": "max"},
 *    "exceptions": [{"pattern": "*.head.*", "input": "bf16", "weight": "bf16",
 *                    "gradient": "bf16"}]}
 *
 * What is not said comes from base ("f32" when absent), wherever base stands; exceptions replace
 * those of the base.  A format may have any of its names, see keel_format_find().
 * Errors  INVALID: not JSON, an unknown or repeated key, a value out of bounds; the sentence has
 *         the line.  out_recipe untouched.
 * Since   0.1 */
KEEL_API keel_status keel_recipe_from_json(const char *text, size_t size, keel_recipe *out_recipe);

/* keel_recipe_to_json: the whole recipe, so that reading it gives the same again.
 * buffer, size, out_len  as keel_report_json().
 * Errors  INVALID: a field out of bounds, names that are no UTF-8, buffer too small.
 * Since   0.1 */
KEEL_API keel_status keel_recipe_to_json(const keel_recipe *recipe, char *buffer, size_t size,
                                         size_t *out_len);

KEEL_END_DECLS
#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What the table of recipes, their reader and their writer share. */
#ifndef KEELI_RECIPE_H
#define KEELI_RECIPE_H

#include "json_read.h"
#include "keel/recipe.h"

enum { KEELI_RECIPE_SCHEMA = 1 };

/* What is wrong with a cell; NULL: nothing. */
const char *keeli_recipe_cell_fault(const keel_recipe_cell *cell);

/* The keys of "loss_scale" and "slot", for reading and for writing; where a word stands for a
 * number, its place in the list. */
extern const keeli_json_key keeli_recipe_loss_scale_keys[];
extern const keeli_json_key keeli_recipe_slot_keys[];
extern const char *const keeli_recipe_scalings[];
extern const char *const keeli_recipe_mx_rules[];

#endif

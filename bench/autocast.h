/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Autocast: the hook that takes each operand of a product into the format its recipe says, through
 * the step's slots, and multiplies with keel_matmul().  One per rank. */
#ifndef BENCH_AUTOCAST_H
#define BENCH_AUTOCAST_H

#include "product.h"

/* A weight as products see it: the low-precision copy that update writes, or the master itself. */
typedef struct autocast_weight {
    int64_t offset;   /* in the flat parameter vector */
    keel_tensor copy; /* data NULL: products read the master */
    float scale_inv;  /* of the copy, written with it */
} autocast_weight;

typedef struct autocast autocast;

/* autocast_create: for the places of a model, all borrowed; NULL when memory runs out.
 * operand_max  elements of the largest operand. */
autocast *autocast_create(const keel_recipe *recipe, const product_place *places,
                          int32_t place_count, int64_t operand_max);
void autocast_destroy(autocast *a);

/* autocast_cell: what the recipe says of one side of a place. */
keel_recipe_cell autocast_cell(const keel_recipe *recipe, const product_place *place,
                               product_side side);

/* autocast_slots: the slots a step needs, one for each side that the recipe scales by its amax.
 * autocast_slot_of: which of them is a side's; -1 = none. */
const keel_slot *autocast_slots(const autocast *a, int32_t *out_count);
int32_t autocast_slot_of(const autocast *a, int32_t place, product_side side);

/* autocast_bind: the step that has the slots, and the weights; borrowed. */
void autocast_bind(autocast *a, keel_step *step, const float *params,
                   const autocast_weight *weights, int32_t weight_count);

/* autocast_hook: the hook itself. */
product_hook autocast_hook(autocast *a);

#endif

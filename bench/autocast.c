/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
#include "autocast.h"

#include <stdlib.h>
#include <string.h>

struct autocast {
    const keel_recipe *recipe;
    const product_place *places;
    int32_t place_count;
    int32_t *slot_of; /* 3 per place; -1 = none */
    keel_slot *slots;
    int32_t slot_count;

    keel_step *step;
    const float *params;
    const autocast_weight *weights;
    int32_t weight_count;

    /* Scratch of the two operands of a product. */
    struct {
        unsigned char *codes;
        float *wide;
        uint8_t *scales;
        float scale_inv;
    } scratch[2];
};

/* What an operand is to its place; see product_side. */
static keel_operand role_of(const product_place *place, product_side side)
{
    if (side == PRODUCT_BACK) return KEEL_OPERAND_GRADIENT;
    const bool weight = side == PRODUCT_RIGHT && place->op != KEEL_OP_ATTENTION;
    return weight ? KEEL_OPERAND_WEIGHT : KEEL_OPERAND_INPUT;
}

keel_recipe_cell autocast_cell(const keel_recipe *recipe, const product_place *place,
                               product_side side)
{
    return keel_recipe_cell_of(recipe, place->op, role_of(place, side), place->name);
}

static keel_slot slot_for(const keel_recipe *recipe, const product_place *place, product_side side,
                          keel_recipe_cell cell)
{
    static const keel_slot_role roles[KEEL_OPERAND_COUNT] = {
        [KEEL_OPERAND_INPUT] = KEEL_SLOT_FORWARD,
        [KEEL_OPERAND_WEIGHT] = KEEL_SLOT_WEIGHT,
        [KEEL_OPERAND_GRADIENT] = KEEL_SLOT_GRADIENT,
    };
    keel_slot s = recipe->slot;
    s.name = place->name;
    s.role = roles[role_of(place, side)];
    s.format = cell.format;
    s.scaling = cell.scaling == KEEL_CELL_CURRENT ? KEEL_SCALING_CURRENT : KEEL_SCALING_DELAYED;
    s.count = 1;
    return s;
}

static void assign_slots(autocast *a)
{
    for (int32_t i = 0; i < 3 * a->place_count; i++) {
        const product_place *place = &a->places[i / 3];
        const keel_recipe_cell cell = autocast_cell(a->recipe, place, (product_side)(i % 3));
        const bool scaled = cell.scaling == KEEL_CELL_DELAYED || cell.scaling == KEEL_CELL_CURRENT;
        a->slot_of[i] = scaled ? a->slot_count : -1;
        if (scaled)
            a->slots[a->slot_count++] = slot_for(a->recipe, place, (product_side)(i % 3), cell);
    }
}

static bool allocate(autocast *a, int64_t max_operand)
{
    const size_t operands = 3 * (size_t)a->place_count, n = (size_t)max_operand;
    a->slot_of = malloc(operands * sizeof *a->slot_of);
    a->slots = malloc(operands * sizeof *a->slots);
    bool ok = a->slot_of && a->slots;
    for (int i = 0; i < 2; i++) {
        a->scratch[i].codes = malloc(n * sizeof(float));
        a->scratch[i].wide = malloc(n * sizeof(float));
        a->scratch[i].scales = malloc(n);
        ok = ok && a->scratch[i].codes && a->scratch[i].wide && a->scratch[i].scales;
    }
    return ok;
}

autocast *autocast_create(const keel_recipe *recipe, const product_place *places,
                          int32_t place_count, int64_t max_operand)
{
    autocast *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->recipe = recipe;
    a->places = places;
    a->place_count = place_count;
    if (!allocate(a, max_operand)) {
        autocast_destroy(a);
        return NULL;
    }
    assign_slots(a);
    return a;
}

void autocast_destroy(autocast *a)
{
    if (!a) return;
    for (int i = 0; i < 2; i++) {
        free(a->scratch[i].codes);
        free(a->scratch[i].wide);
        free(a->scratch[i].scales);
    }
    free(a->slot_of);
    free(a->slots);
    free(a);
}

const keel_slot *autocast_slots(const autocast *a, int32_t *out_count)
{
    *out_count = a->slot_count;
    return a->slots;
}

int32_t autocast_slot_of(const autocast *a, int32_t place, product_side side)
{
    return a->slot_of[3 * place + (int32_t)side];
}

void autocast_bind(autocast *a, keel_step *step, const float *params,
                   const autocast_weight *weights, int32_t weight_count)
{
    a->step = step;
    a->params = params;
    a->weights = weights;
    a->weight_count = weight_count;
}

/* An operand of batch matrices as it lies in memory. */
typedef struct stored {
    keel_tensor tensor;
    int64_t rows, columns; /* of one matrix, as stored */
    bool transposed;
} stored;

static keel_tensor wide_tensor(const float *data, int64_t numel)
{
    const keel_tensor t = {(void *)(uintptr_t)data, numel, KEEL_FORMAT_F32, 0, NULL, NULL};
    return t;
}

/* The copy of a weight that update wrote; NULL where products read the master. */
static const autocast_weight *find_weight(const autocast *a, const float *data)
{
    for (int32_t i = 0; i < a->weight_count; i++)
        if (a->params + a->weights[i].offset == data)
            return a->weights[i].copy.data ? &a->weights[i] : NULL;
    return NULL;
}

static keel_status narrow(autocast *a, int which, int32_t slot, keel_format format, stored *s)
{
    const keel_tensor source = s->tensor;
    s->tensor.data = a->scratch[which].codes;
    s->tensor.format = format;
    if (slot < 0) return keel_quantize(NULL, &source, &s->tensor, NULL, NULL, NULL);
    s->tensor.scale_inv = &a->scratch[which].scale_inv;
    return keel_step_quantize(a->step, slot, &source, &s->tensor, &a->scratch[which].scale_inv,
                              NULL);
}

/* Blocks of 32 run along the sum, so a matrix that lies across it is turned first. */
static keel_status narrow_blocks(autocast *a, int which, keel_format format, bool turn, stored *s)
{
    float *wide = a->scratch[which].wide;
    const float *source = s->tensor.data;
    const int64_t rows = s->rows, columns = s->columns, matrix = rows * columns;
    if (turn) {
        for (int64_t i = 0; i < s->tensor.numel; i++) {
            const int64_t at = i % matrix;
            wide[i - at + at % columns * rows + at / columns] = source[i];
        }
        s->rows = columns;
        s->columns = rows;
        s->transposed = !s->transposed;
    } else {
        memcpy(wide, source, (size_t)s->tensor.numel * sizeof *wide);
    }
    s->tensor.data = wide;
    if (s->columns == 0) return KEEL_OK;
    const int64_t all_rows = s->tensor.numel / s->columns;
    keel_status status =
        keel_mx_quantize(&s->tensor, all_rows, s->columns, format, a->recipe->mx_rule,
                         a->scratch[which].codes, a->scratch[which].scales, NULL);
    if (status) return status;
    return keel_mx_dequantize(a->scratch[which].codes, a->scratch[which].scales, all_rows,
                              s->columns, format, wide);
}

/* x is rows x columns, stored as such or transposed; sum_by_rows: the product sums over its rows.
 */
static keel_status take(autocast *a, int which, const product *p, const product_operand *x,
                        int64_t rows, int64_t columns, bool sum_by_rows, stored *s)
{
    const keel_recipe_cell cell = autocast_cell(a->recipe, p->place, x->side);
    s->rows = x->transposed ? columns : rows;
    s->columns = x->transposed ? rows : columns;
    s->transposed = x->transposed;
    s->tensor = wide_tensor(x->data, p->batch * rows * columns);
    const autocast_weight *w = find_weight(a, x->data);
    if (w) {
        s->tensor = w->copy;
        return KEEL_OK;
    }
    if (cell.scaling == KEEL_CELL_MX)
        return narrow_blocks(a, which, cell.format, sum_by_rows != x->transposed, s);
    if (cell.format == KEEL_FORMAT_F32 && cell.scaling == KEEL_CELL_NONE) return KEEL_OK;
    return narrow(a, which, autocast_slot_of(a, p->place_index, x->side), cell.format, s);
}

static keel_tensor matrix_at(const stored *s, int64_t index)
{
    keel_tensor t = s->tensor;
    const int64_t numel = s->rows * s->columns;
    t.data = (unsigned char *)t.data + index * numel * keel_format_get(t.format)->storage_bytes;
    t.numel = numel;
    return t;
}

static keel_status multiply(void *context, const product *p)
{
    autocast *cast = context;
    stored a, b;
    keel_status status = take(cast, 0, p, &p->a, p->m, p->k, false, &a);
    if (!status) status = take(cast, 1, p, &p->b, p->k, p->n, true, &b);
    for (int64_t i = 0; i < p->batch && !status; i++) {
        keel_matmul_args args;
        memset(&args, 0, sizeof args);
        args.m = p->m;
        args.n = p->n;
        args.k = p->k;
        args.a = matrix_at(&a, i);
        args.b = matrix_at(&b, i);
        args.d = wide_tensor(p->d + i * p->m * p->n, (int64_t)p->m * p->n);
        args.transpose_a = a.transposed;
        args.transpose_b = b.transposed;
        args.accumulate = p->accumulate;
        status = keel_matmul(NULL, &args, NULL);
    }
    return status;
}

product_hook autocast_hook(autocast *a)
{
    const product_hook hook = {a, multiply};
    return hook;
}

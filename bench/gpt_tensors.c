/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What the transformer is made of: bounds of a configuration, the table of its tensors, the table
 * of its products, and the first parameters. */
#include "gpt.h"

#include <math.h>
#include <stdio.h>

#include "gpt_parts.h"
#include "rng.h"

/* How a tensor starts: evenly within +-sqrt(3) times a deviation. */
typedef enum start {
    START_ONE,      /* gains */
    START_SMALL,    /* 0.02: embeddings and head, so that the first logits are near zero */
    START_FAN_IN,   /* 1 / sqrt(inputs) */
    START_RESIDUAL, /* that over sqrt(2 * layers): as many parts add up in the residual stream */
} start;

/* Rows and columns in units of: one, width, vocabulary, context. */
typedef enum unit { ONE, WIDTH, VOCABULARY, CONTEXT } unit;

typedef struct shape {
    const char *name;
    unit rows;
    int row_factor;
    unit columns;
    int column_factor;
    start start;
    bool decays;
} shape;

static const shape before[] = {
    {"tokens", VOCABULARY, 1, WIDTH, 1, START_SMALL, false},
    {"positions", CONTEXT, 1, WIDTH, 1, START_SMALL, false},
};
static const shape layer[GPT_LAYER_TENSORS] = {
    [GPT_NORM1] = {"norm1", ONE, 1, WIDTH, 1, START_ONE, false},
    [GPT_QKV] = {"qkv", WIDTH, 1, WIDTH, 3, START_FAN_IN, true},
    [GPT_PROJ] = {"proj", WIDTH, 1, WIDTH, 1, START_RESIDUAL, true},
    [GPT_NORM2] = {"norm2", ONE, 1, WIDTH, 1, START_ONE, false},
    [GPT_UP] = {"up", WIDTH, 1, WIDTH, GPT_MLP, START_FAN_IN, true},
    [GPT_DOWN] = {"down", WIDTH, GPT_MLP, WIDTH, 1, START_RESIDUAL, true},
};
static const shape after[] = {
    {"norm", ONE, 1, WIDTH, 1, START_ONE, false},
    {"head", WIDTH, 1, VOCABULARY, 1, START_SMALL, true},
};

typedef struct place_row {
    const char *name;
    keel_op op;
} place_row;

static const place_row layer_places[GPT_LAYER_PLACES] = {
    [GPT_PLACE_QKV] = {"qkv", KEEL_OP_LINEAR},
    [GPT_PLACE_SCORES] = {"scores", KEEL_OP_ATTENTION},
    [GPT_PLACE_VALUES] = {"values", KEEL_OP_ATTENTION},
    [GPT_PLACE_PROJ] = {"proj", KEEL_OP_LINEAR},
    [GPT_PLACE_UP] = {"up", KEEL_OP_LINEAR},
    [GPT_PLACE_DOWN] = {"down", KEEL_OP_LINEAR},
};

bool gpt_check(const gpt_config *c, char why[GPT_WHY])
{
    const struct {
        const char *name;
        int value, lo, hi;
    } rows[] = {
        {"layers", c->layers, 1, GPT_LAYERS_MAX},
        {"width", c->width, 1, GPT_WIDTH_MAX},
        {"heads", c->heads, 1, c->width},
        {"context", c->context, 1, GPT_CONTEXT_MAX},
    };
    for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]); i++) {
        if (rows[i].value >= rows[i].lo && rows[i].value <= rows[i].hi) continue;
        snprintf(why, GPT_WHY, "%s=%d (want %d..%d)", rows[i].name, rows[i].value, rows[i].lo,
                 rows[i].hi);
        return false;
    }
    if (c->width % c->heads == 0) return true;
    snprintf(why, GPT_WHY, "heads=%d (want a divisor of width=%d)", c->heads, c->width);
    return false;
}

static int size_of(const gpt_config *c, unit u)
{
    const int sizes[] = {1, c->width, GPT_VOCABULARY, c->context};
    return sizes[u];
}

/* Tensor index of the table: its shape, and the layer it is of or -1. */
static const shape *shape_at(const gpt_config *c, int index, int *out_layer)
{
    *out_layer = -1;
    if (index < GPT_FIRST_LAYER) return &before[index];
    index -= GPT_FIRST_LAYER;
    if (index >= c->layers * GPT_LAYER_TENSORS) return &after[index % GPT_LAYER_TENSORS];
    *out_layer = index / GPT_LAYER_TENSORS;
    return &layer[index % GPT_LAYER_TENSORS];
}

static void name_in_layer(char name[24], int l, const char *part)
{
    if (l < 0)
        snprintf(name, 24, "%s", part);
    else
        snprintf(name, 24, "layers.%d.%s", l, part);
}

int gpt_tensors(const gpt_config *c, gpt_tensor out[GPT_TENSORS_MAX])
{
    const int count = GPT_FIRST_LAYER + c->layers * GPT_LAYER_TENSORS + 2;
    for (int i = 0, offset = 0; i < count; offset += out[i].count, i++) {
        int l;
        const shape *s = shape_at(c, i, &l);
        name_in_layer(out[i].name, l, s->name);
        out[i].offset = offset;
        out[i].count =
            size_of(c, s->rows) * s->row_factor * size_of(c, s->columns) * s->column_factor;
        out[i].decays = s->decays;
    }
    return count;
}

int gpt_places(const gpt_config *c, product_place out[GPT_PLACES_MAX])
{
    const int head = c->layers * GPT_LAYER_PLACES;
    for (int i = 0; i < head; i++) {
        const place_row *row = &layer_places[i % GPT_LAYER_PLACES];
        out[i].op = row->op;
        out[i].layer = i / GPT_LAYER_PLACES;
        name_in_layer(out[i].name, out[i].layer, row->name);
    }
    out[head] = (product_place){.name = "head", .op = KEEL_OP_HEAD, .layer = -1};
    return head + 1;
}

int gpt_param_count(const gpt_config *c)
{
    gpt_tensor tensors[GPT_TENSORS_MAX];
    const gpt_tensor *last = &tensors[gpt_tensors(c, tensors) - 1];
    return last->offset + last->count;
}

static double bound_of(const gpt_config *c, const shape *s)
{
    const double inputs = size_of(c, s->rows) * s->row_factor;
    switch (s->start) {
    case START_FAN_IN:
        return sqrt(3 / inputs);
    case START_RESIDUAL:
        return sqrt(3 / inputs / (2 * c->layers));
    default:
        return 0.02 * sqrt(3);
    }
}

void gpt_init(const gpt_config *c, float *params, uint64_t seed)
{
    gpt_tensor tensors[GPT_TENSORS_MAX];
    const int count = gpt_tensors(c, tensors);
    for (int t = 0; t < count; t++) {
        int l;
        const shape *s = shape_at(c, t, &l);
        const double bound = bound_of(c, s);
        for (int i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++) {
            params[i] = s->start == START_ONE
                            ? 1
                            : (float)(bound * (2 * rng_uniform(seed, (uint64_t)i) - 1));
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What a call of the transformer computes on the way.  B sequences of T bytes are M = B * T rows of
 * D numbers; H heads of D / H numbers each. */
#ifndef BENCH_GPT_WORK_H
#define BENCH_GPT_WORK_H

#include "gpt.h"
#include "gpt_parts.h"

/* Queries, keys, values: [B][H][T][D / H] each. */
enum { GPT_QUERY, GPT_KEY, GPT_VALUE, GPT_KINDS };

/* What the backward pass of a layer needs of the forward pass. */
typedef struct gpt_layer {
    float *in;               /* [M][D] residual stream on entry */
    float *norm1;            /* [M][D] */
    float *heads[GPT_KINDS]; /* [B][H][T][D / H] */
    float *probabilities;    /* [B][H][T][T] */
    float *merged;           /* [M][D] the heads' results side by side */
    float *middle;           /* [M][D] residual stream after attention */
    float *norm2;            /* [M][D] */
    float *up;               /* [M][4 D] */
    float *active;           /* [M][4 D] */
} gpt_layer;

struct gpt {
    gpt_config config;
    int capacity; /* sequences */
    product_hook hook;
    gpt_tensor tensors[GPT_TENSORS_MAX];
    product_place places[GPT_PLACES_MAX];
    int tensor_count, param_count;
    gpt_layer layers[GPT_LAYERS_MAX];
    float *out, *norm, *logits; /* [M][D] of the last layer, [M][D], [M][256] */
    /* Slopes; the forward pass uses wide and head_out as well. */
    float *dx, *narrow, *wide;          /* [M][D], [M][D], [M][4 D] */
    float *head_out, *heads[GPT_KINDS]; /* [B][H][T][D / H] */
    float *scores;                      /* [B][H][T][T] */
    float *memory;                      /* all of it */
    uint8_t *inputs, *targets;          /* M bytes each */
};

/* The call in hand. */
typedef struct gpt_call {
    gpt *g;
    const float *params;
    float *grad;         /* NULL in evaluate */
    int sequences, rows; /* B, M */
} gpt_call;

/* A linear place: its input, its weights and their sizes. */
typedef struct gpt_linear {
    int place, tensor;
    int inputs, outputs;
} gpt_linear;

/* gpt_linear_at: of the linear places of a layer, by its GPT_PLACE_*; gpt_linear_head: of the
 * head. */
gpt_linear gpt_linear_at(const gpt *g, int layer, int kind);
gpt_linear gpt_linear_head(const gpt *g);

/* gpt_tensor_index: of a layer's tensor, by GPT_NORM1 and so on. */
static inline int gpt_tensor_index(int layer, int kind)
{
    return GPT_FIRST_LAYER + layer * GPT_LAYER_TENSORS + kind;
}

static inline const float *gpt_param(const gpt_call *c, int tensor)
{
    return c->params + c->g->tensors[tensor].offset;
}

static inline float *gpt_grad(const gpt_call *c, int tensor)
{
    return c->grad + c->g->tensors[tensor].offset;
}

/* gpt_run: a product through the hook; place and batch by the caller, who fills the rest. */
keel_status gpt_run(const gpt_call *c, int place, int batch, product p);

/* gpt_regroup: count kinds of rows of [M][count][H][D / H] into or out of [B][H][T][D / H] each. */
void gpt_split_heads(const gpt_call *c, const float *rows, int count, float *const *heads);
void gpt_merge_heads(const gpt_call *c, float *const *heads, int count, float *rows);

/* gpt_forward: logits of g->inputs.  gpt_backward: from the logits' slope in their place. */
keel_status gpt_forward(const gpt_call *c);
keel_status gpt_backward(const gpt_call *c);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The order of tensors and products in the transformer's tables, for its own files. */
#ifndef BENCH_GPT_PARTS_H
#define BENCH_GPT_PARTS_H

enum {
    GPT_MLP = 4, /* the hidden layer is that many widths */
    GPT_FIRST_LAYER = 2,
};

/* Tensors of a layer. */
enum { GPT_NORM1, GPT_QKV, GPT_PROJ, GPT_NORM2, GPT_UP, GPT_DOWN, GPT_LAYER_TENSORS };

/* Products of a layer. */
enum {
    GPT_PLACE_QKV,
    GPT_PLACE_SCORES,
    GPT_PLACE_VALUES,
    GPT_PLACE_PROJ,
    GPT_PLACE_UP,
    GPT_PLACE_DOWN,
    GPT_LAYER_PLACES
};

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A step with the memory it works on: parameters are added one by one, then the step is made. */
#ifndef TESTS_MODEL_H
#define TESTS_MODEL_H

#include "keel/keel.h"

enum { MODEL_PARAMS = 1100, MODEL_GROUPS = 4 };

typedef struct model {
    keel_config cfg;
    keel_group groups[MODEL_GROUPS];
    keel_param params[MODEL_PARAMS];
    int64_t count;
    keel_step *step;
} model;

/* Defaults of the library, but a loss scale of 1 and no group. */
void model_begin(model *m);

/* Another group; its index. */
int32_t model_group(model *m, keel_group group);

/* Another parameter: gradient, master and moments are zero; group 0, no copy. */
keel_param *model_add(model *m, keel_format format, int64_t numel);

/* The same with an f32 gradient of these values. */
keel_param *model_add_f32(model *m, int64_t numel, const float *values);

/* Give it a low-precision copy. */
void model_copy(keel_param *param, keel_format format);

/* One element of a gradient, in its format: overflow becomes what the format has for it. */
void model_set(const keel_param *param, int64_t index, float value);
float model_get(const keel_tensor *tensor, int64_t index);

/* Make the step; it must succeed. */
void model_create(model *m);

/* accumulate, decide, update. */
void model_run(model *m);

/* The last report. */
keel_report model_report(const model *m);

/* Step, then memory. */
void model_end(model *m);

/* To compare a model with another one or with itself: gradients, masters, moments and copies; and
 * these together with the state blob. */
uint64_t model_memory_digest(const model *m);
uint64_t model_digest(model *m);

#endif

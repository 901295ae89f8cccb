/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A step with the memory it works on. */
#include <stdlib.h>

#include "check.h"
#include "model.h"

static void *zeros(int64_t count, size_t width)
{
    void *memory = calloc((size_t)count + 1, width);
    assert_non_null(memory);
    return memory;
}

void model_begin(model *m)
{
    memset(m, 0, sizeof *m);
    m->cfg = KEEL_CONFIG_INIT;
    m->cfg.loss_scale.mode = KEEL_LOSS_SCALE_OFF;
}

int32_t model_group(model *m, keel_group group)
{
    assert_in_range(m->cfg.group_count, 0, MODEL_GROUPS - 1);
    m->groups[m->cfg.group_count] = group;
    m->cfg.groups = m->groups;
    return m->cfg.group_count++;
}

static size_t width_of(keel_format format)
{
    return (size_t)keel_format_get(format)->storage_bytes;
}

keel_param *model_add(model *m, keel_format format, int64_t numel)
{
    assert_in_range(m->count, 0, MODEL_PARAMS - 1);
    keel_param *p = &m->params[m->count++];
    *p = KEEL_PARAM_INIT;
    p->grad.data = zeros(numel, width_of(format));
    p->grad.numel = numel;
    p->grad.format = format;
    p->master = zeros(numel, sizeof *p->master);
    p->moment1 = zeros(numel, sizeof *p->moment1);
    p->moment2 = zeros(numel, sizeof *p->moment2);
    return p;
}

keel_param *model_add_f32(model *m, int64_t numel, const float *values)
{
    keel_param *p = model_add(m, KEEL_FORMAT_F32, numel);
    memcpy(p->grad.data, values, (size_t)numel * sizeof *values);
    return p;
}

void model_copy(keel_param *param, keel_format format)
{
    param->copy.data = zeros(param->grad.numel, width_of(format));
    param->copy.numel = param->grad.numel;
    param->copy.format = format;
}

void model_set(const keel_param *param, int64_t index, float value)
{
    const size_t width = width_of(param->grad.format);
    uint32_t code = 0;
    assert_ok(keel_format_encode(param->grad.format, value, KEEL_OVERFLOW_IEEE, &code));
    for (size_t i = 0; i < width; i++)
        ((unsigned char *)param->grad.data)[(size_t)index * width + i] =
            (unsigned char)(code >> 8 * i);
}

float model_get(const keel_tensor *tensor, int64_t index)
{
    const size_t width = width_of(tensor->format);
    uint32_t code = 0;
    for (size_t i = 0; i < width; i++)
        code |= (uint32_t)((const unsigned char *)tensor->data)[(size_t)index * width + i] << 8 * i;
    return keel_format_decode(tensor->format, code);
}

void model_create(model *m)
{
    assert_ok(keel_step_create(&m->cfg, m->params, m->count, NULL, 0, &m->step));
}

void model_run(model *m)
{
    assert_ok(keel_step_run(m->step, NULL));
}

keel_report model_report(const model *m)
{
    keel_report report;
    assert_ok(keel_step_report(m->step, 0, &report));
    return report;
}

void model_end(model *m)
{
    keel_step_destroy(m->step);
    for (int64_t i = 0; i < m->count; i++) {
        free(m->params[i].grad.data);
        free(m->params[i].master);
        free(m->params[i].moment1);
        free(m->params[i].moment2);
        free(m->params[i].copy.data);
    }
}

static uint64_t fnv(uint64_t hash, const void *memory, size_t nbytes)
{
    const unsigned char *byte = memory;
    for (size_t i = 0; i < nbytes; i++) hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

uint64_t model_memory_digest(const model *m)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < m->count; i++) {
        const keel_param *p = &m->params[i];
        const size_t numel = (size_t)p->grad.numel;
        hash = fnv(hash, p->grad.data, numel * width_of(p->grad.format));
        hash = fnv(hash, p->master, numel * sizeof *p->master);
        hash = fnv(hash, p->moment1, numel * sizeof *p->moment1);
        hash = fnv(hash, p->moment2, numel * sizeof *p->moment2);
        if (p->copy.data) hash = fnv(hash, p->copy.data, numel * width_of(p->copy.format));
    }
    return hash;
}

uint64_t model_digest(model *m)
{
    const size_t size = keel_step_state_size(m->step);
    void *blob = zeros((int64_t)size, 1);
    assert_ok(keel_step_state_save(m->step, blob, size));
    const uint64_t hash = fnv(model_memory_digest(m), blob, size);
    free(blob);
    return hash;
}

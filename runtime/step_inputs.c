/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What a caller sets between steps, and what it asks a step afterwards.  Settings wait on the host
 * for the next call that has a stream. */
#include <math.h>

#include "config.h"
#include "step_object.h"

keel_status keel_step_rebind(keel_step *step, int64_t first, int64_t count,
                             const void *const *grads)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    const int64_t rows = step->mem.settings.row_count;
    if (first < 0 || count < 0 || first > rows || count > rows - first || (count > 0 && !grads))
        FAIL(KEEL_ERR_INVALID, "params [%lld, +%lld) of %lld, grads=%p", (long long)first,
             (long long)count, (long long)rows, (const void *)grads);
    TRY(keeli_step_want_open(step, __func__));
    for (int64_t i = 0; i < count; i++) {
        if (!grads[i] && step->rows[first + i].grad.numel > 0)
            FAIL(KEEL_ERR_INVALID, "grads[%lld] is NULL for param '%s'", (long long)i,
                 step->names[first + i]);
        if (step->visited[first + i])
            FAIL(KEEL_ERR_ORDER,
                 "param '%s' was accumulated in step %lld already; expected keel_step_decide() or "
                 "keel_step_abandon() first",
                 step->names[first + i], (long long)step->decided + 1);
    }
    if (count > 0) step->phase = KEELI_OPEN; /* the decided step's gradients are gone */
    for (int64_t i = 0; i < count; i++)
        step->rows[first + i].grad.data = (void *)(uintptr_t)grads[i];
    const bool clean = step->rows_stale_from >= step->rows_stale_to;
    if (clean || first < step->rows_stale_from) step->rows_stale_from = first;
    if (clean || first + count > step->rows_stale_to) step->rows_stale_to = first + count;
    return KEEL_OK;
}

keel_status keeli_group_memory_check(const char *fn, const keel_step *step, int32_t index,
                                     const keel_group *group)
{
    if (group->optimizer != KEEL_OPTIMIZER_SGD || !(group->momentum > 0)) return KEEL_OK;
    for (int64_t i = 0; i < step->mem.settings.row_count; i++)
        if (step->rows[i].group == index && step->rows[i].grad.numel > 0 && !step->rows[i].moment1)
            return keel_ext_fail(KEEL_ERR_INVALID, fn,
                                 "groups[%d].momentum=%g and param '%s' has no moment1", index,
                                 group->momentum, step->names[i]);
    return KEEL_OK;
}

keel_status keel_step_set_group(keel_step *step, int32_t index, const keel_group *group)
{
    if (!step || !group) FAIL(KEEL_ERR_INVALID, "%s is NULL", step ? "group" : "step");
    if (index < 0 || index >= step->mem.settings.group_count)
        FAIL(KEEL_ERR_INVALID, "index=%d (want 0..%d)", index, step->mem.settings.group_count - 1);
    TRY(keeli_step_want_open(step, __func__));
    TRY(keeli_group_check(__func__, group, index));
    if (group->optimizer != step->groups[index].optimizer)
        FAIL(KEEL_ERR_INVALID, "groups[%d].optimizer=%d (want %d: it cannot change)", index,
             (int)group->optimizer, (int)step->groups[index].optimizer);
    TRY(keeli_group_memory_check(__func__, step, index, group));
    step->groups[index] = *group;
    step->inputs_stale = true;
    return KEEL_OK;
}

keel_status keel_step_set_max_norm(keel_step *step, float max_norm)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    if (!(max_norm >= 0)) FAIL(KEEL_ERR_INVALID, "max_norm=%g (want 0..inf)", (double)max_norm);
    TRY(keeli_step_want_open(step, __func__));
    step->inputs.max_norm = max_norm;
    step->inputs_stale = true;
    return KEEL_OK;
}

keel_status keel_step_set_grad_divisor(keel_step *step, double divisor, const double *divisor_dev)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    if (!divisor_dev && !(divisor > 0 && isfinite(divisor)))
        FAIL(KEEL_ERR_INVALID, "divisor=%g (want finite and > 0)", divisor);
    TRY(keeli_step_want_open(step, __func__));
    step->inputs.divisor = divisor;
    step->inputs.divisor_dev = divisor_dev;
    step->inputs_stale = true;
    return KEEL_OK;
}

keel_status keel_step_set_tag(keel_step *step, uint64_t tag)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    TRY(keeli_step_want_open(step, __func__));
    step->inputs.tag = tag;
    step->inputs_stale = true;
    return KEEL_OK;
}

/* Device memory to the host; a wait unless the device is the host. */
static keel_status read_back(keel_step *step, void *host, const void *dev, size_t nbytes)
{
    step->counters.host_syncs += !step->device->synchronous;
    return step->device->download(step->device, host, dev, nbytes, NULL);
}

keel_status keel_step_loss_scale(keel_step *step, float *out_loss_scale)
{
    if (!step || !out_loss_scale) FAIL(KEEL_ERR_INVALID, "%s is NULL", step ? "out" : "step");
    return read_back(step, out_loss_scale, &step->mem.decision->loss_scale, sizeof *out_loss_scale);
}

keel_status keel_step_report(keel_step *step, int64_t id, keel_report *out_report)
{
    if (!step || !out_report) FAIL(KEEL_ERR_INVALID, "%s is NULL", step ? "out_report" : "step");
    const int64_t last = step->decided, wanted = id == 0 ? last : id;
    if (wanted < 1 || wanted > last)
        FAIL(KEEL_ERR_NOT_FOUND, "step %lld has no report: %lld steps are decided",
             (long long)wanted, (long long)last);
    if (wanted <= step->loaded)
        FAIL(KEEL_ERR_NOT_FOUND, "step %lld was decided before the state was loaded",
             (long long)wanted);
    keel_report report;
    TRY(read_back(step, &report, &step->mem.ring[(wanted - 1) % step->cfg.report_capacity],
                  sizeof report));
    if (report.step != wanted)
        FAIL(KEEL_ERR_NOT_FOUND, "step %lld has left the ring of %d reports", (long long)wanted,
             step->cfg.report_capacity);
    *out_report = report;
    return KEEL_OK;
}

const char *keel_step_param_name(const keel_step *step, int64_t id)
{
    if (!step || id < 0) return NULL;
    const int64_t rows = step->mem.settings.row_count;
    if (id < rows && step->rows[id].id == id) return step->names[id];
    for (int64_t i = 0; i < rows; i++)
        if (step->rows[i].id == id) return step->names[i];
    return NULL;
}

keel_status keel_step_counters(const keel_step *step, keel_counters *out_counters)
{
    if (!step || !out_counters) FAIL(KEEL_ERR_INVALID, "%s is NULL", step ? "out" : "step");
    *out_counters = step->counters;
    return KEEL_OK;
}

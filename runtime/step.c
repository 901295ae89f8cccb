/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The step as its caller sees it: which call may come when, and what each hands to the device.
 *
 *            accumulate, probe, check_loss, veto
 *                 |        ^
 *                 v        |
 *        +----> OPEN ------+
 *        |        | decide: pack, one round, decide
 *        |        v
 *        +---- DECIDED
 *          update | scale_gradients | abandon            (without an optimizer: the next OPEN call)
 */
#include <stdio.h>

#include "collectives.h"
#include "step_object.h"

static const char *name_of(const keel_step *step, int64_t index)
{
    return step->names[index];
}

keel_status keeli_step_want_open(const keel_step *step, const char *fn)
{
    if (step->phase == KEELI_DECIDED && step->has_optimizer)
        return keel_ext_fail(KEEL_ERR_ORDER, fn,
                             "step %lld is decided; expected keel_step_update(), "
                             "keel_step_scale_gradients() or keel_step_abandon()",
                             (long long)step->decided);
    return KEEL_OK;
}

keel_status keeli_step_want_between(const keel_step *step, const char *fn)
{
    TRY(keeli_step_want_open(step, fn));
    if (step->phase == KEELI_OPEN && step->touched)
        return keel_ext_fail(KEEL_ERR_ORDER, fn,
                             "step %lld has begun; expected keel_step_decide() or "
                             "keel_step_abandon() first",
                             (long long)step->decided + 1);
    return KEEL_OK;
}

static keel_status want_decided(const keel_step *step, const char *fn)
{
    if (step->phase == KEELI_OPEN)
        return keel_ext_fail(KEEL_ERR_ORDER, fn, "step %lld is not decided; expected %s",
                             (long long)step->decided + 1,
                             step->visited_count < step->mem.settings.row_count
                                 ? "keel_step_accumulate() and keel_step_decide()"
                                 : "keel_step_decide()");
    return KEEL_OK;
}

static keel_status want_range(const keel_step *step, const char *fn, int64_t first, int64_t count)
{
    const int64_t rows = step->mem.settings.row_count;
    if (first < 0 || count < 0 || first > rows || count > rows - first)
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "params [%lld, +%lld) of %lld", (long long)first,
                             (long long)count, (long long)rows);
    return KEEL_OK;
}

static void forget_visits(keel_step *step)
{
    memset(step->visited, 0, (size_t)step->mem.settings.row_count);
    step->visited_count = 0;
    step->touched = false;
}

/* A call of the next step ends a decided one whose optimizer is the caller's own. */
void keeli_step_begin(keel_step *step)
{
    if (step->phase == KEELI_DECIDED) step->phase = KEELI_OPEN;
    step->touched = true;
}

/* What the caller set since the last call goes to the device before it is needed. */
static keel_status upload_rows(keel_step *step, keel_stream stream)
{
    const int64_t from = step->rows_stale_from, to = step->rows_stale_to;
    if (from >= to) return KEEL_OK;
    TRY(step->device->upload(step->device, step->mem.rows + from, step->rows + from,
                             (size_t)(to - from) * sizeof *step->rows, stream));
    step->rows_stale_from = step->rows_stale_to = 0;
    return KEEL_OK;
}

static keel_status upload_inputs(keel_step *step, keel_stream stream)
{
    if (!step->inputs_stale) return KEEL_OK;
    const keel_device *device = step->device;
    TRY(device->upload(device, step->mem.inputs, &step->inputs, sizeof step->inputs, stream));
    TRY(device->upload(device, step->mem.groups, step->groups,
                       (size_t)step->mem.settings.group_count * sizeof *step->groups, stream));
    step->inputs_stale = false;
    return KEEL_OK;
}

static int64_t numel_of(const keel_step *step, int64_t first, int64_t count)
{
    int64_t numel = 0;
    for (int64_t i = first; i < first + count; i++) numel += step->rows[i].grad.numel;
    return numel;
}

keel_status keel_step_accumulate(keel_step *step, int64_t first, int64_t count, keel_stream stream)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    TRY(keeli_step_want_open(step, __func__));
    TRY(want_range(step, __func__, first, count));
    for (int64_t i = first; i < first + count; i++)
        if (step->phase == KEELI_OPEN && step->visited[i])
            FAIL(KEEL_ERR_ORDER,
                 "param %lld '%s' was accumulated in step %lld already; expected each once, then "
                 "keel_step_decide()",
                 (long long)i, name_of(step, i), (long long)step->decided + 1);
    TRY(upload_rows(step, stream));
    TRY(step->device->accumulate(step->device, &step->mem, first, count, stream));
    keeli_step_begin(step);
    memset(step->visited + first, 1, (size_t)count);
    step->visited_count += count;
    step->counters.launches++;
    step->counters.grad_elements_read += numel_of(step, first, count);
    return KEEL_OK;
}

keel_status keel_step_probe(keel_step *step, int64_t first, int64_t count, const void *const *grads,
                            keel_stream stream)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    TRY(keeli_step_want_open(step, __func__));
    TRY(want_range(step, __func__, first, count));
    for (int64_t i = 0; grads && i < count; i++)
        if (!grads[i] && step->rows[first + i].grad.numel > 0)
            FAIL(KEEL_ERR_INVALID, "grads[%lld] is NULL for param '%s'", (long long)i,
                 name_of(step, first + i));
    TRY(upload_rows(step, stream));
    TRY(step->device->probe(step->device, &step->mem, first, count, grads, stream));
    keeli_step_begin(step);
    step->counters.launches++;
    step->counters.probe_elements_read += numel_of(step, first, count);
    return KEEL_OK;
}

static keel_status vote(keel_step *step, const char *fn, const float *loss, keel_stream stream)
{
    TRY(keeli_step_want_open(step, fn));
    TRY(step->device->vote(step->device, &step->mem, loss, stream));
    keeli_step_begin(step);
    step->counters.launches++;
    return KEEL_OK;
}

keel_status keel_step_check_loss(keel_step *step, const float *loss, keel_stream stream)
{
    if (!step || !loss) FAIL(KEEL_ERR_INVALID, "%s is NULL", step ? "loss" : "step");
    return vote(step, __func__, loss, stream);
}

keel_status keel_step_veto(keel_step *step, keel_stream stream)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    return vote(step, __func__, NULL, stream);
}

keel_status keeli_step_round(keel_step *step, int64_t *sum, int64_t nsum, uint64_t *max,
                             int64_t nmax, keel_stream stream)
{
    keel_comm *comm = step->comm;
    const int64_t deadline_ns = keeli_deadline_ns(step->cfg.timeout_us);
    TRY(comm->enqueue(comm, sum, nsum, max, nmax, stream));
    step->counters.rounds++;
    return comm->finish(comm, deadline_ns);
}

/* On a host transport the packet lies in host memory and a disagreement is an error here; on a
 * stream the device's decide sees it and turns the step into a skip. */
static keel_status check_agreed(const keel_step *step, const char *fn)
{
    if (step->comm->on_stream) return KEEL_OK;
    const keeli_settings *set = &step->mem.settings;
    const int64_t *sum = step->mem.packet->sum + KEELI_SUM_identity;
    const uint64_t *max = step->mem.packet->max + KEELI_MAX_identity;
    if (sum[0] != set->nranks)
        return keel_ext_fail(KEEL_ERR_PEER, fn, "rank %d/%d: %lld ranks took part in the round",
                             set->rank, set->nranks, (long long)sum[0]);
    if (max[0] != ~max[1])
        return keel_ext_fail(
            KEEL_ERR_PEER, fn,
            "rank %d/%d stands at step %lld; the ranks stand at steps %llu to %llu", set->rank,
            set->nranks, (long long)step->decided + 1, (unsigned long long)~max[1],
            (unsigned long long)max[0]);
    if (max[2] != ~max[3])
        return keel_ext_fail(
            KEEL_ERR_PEER, fn,
            "rank %d/%d: the ranks differ in configuration, clip threshold, divisor, loss scale or "
            "slots (hashes %016llx to %016llx)",
            set->rank, set->nranks, (unsigned long long)~max[3], (unsigned long long)max[2]);
    return KEEL_OK;
}

static keel_status drop_partial(keel_step *step, keel_stream stream)
{
    static const keeli_partial empty;
    const keel_device *device = step->device;
    forget_visits(step);
    /* What update wrote stays written, and its amax stays to be agreed. */
    for (int32_t i = 0; i < step->mem.settings.slot_count; i++) {
        const uint64_t none = 0;
        if (step->slots[i].slot.role == KEEL_SLOT_WEIGHT) continue;
        TRY(device->upload(device, &step->mem.slot_words[i], &none, sizeof none, stream));
    }
    return device->upload(device, step->mem.partial, &empty, sizeof empty, stream);
}

static keel_status agree(keel_step *step, const char *fn, keel_stream stream)
{
    keeli_packet *packet = step->mem.packet;
    TRY(upload_rows(step, stream));
    TRY(upload_inputs(step, stream));
    TRY(step->device->pack(step->device, &step->mem, stream));
    TRY(keeli_step_round(step, packet->sum, KEELI_NSUM, packet->max,
                         KEELI_NMAX + step->mem.settings.slot_count, stream));
    TRY(check_agreed(step, fn));
    step->counters.launches += 2;
    return step->device->decide(step->device, &step->mem, stream);
}

static void log_line(const keel_step *step, keel_log_level level, const char *text)
{
    if (step->cfg.log) step->cfg.log(step->cfg.log_context, level, text);
}

static void alert_rate(const keel_step *step, const char *what, double rate, float threshold,
                       bool *alerted)
{
    const bool above = rate > (double)threshold;
    if (above && !*alerted) {
        char text[160];
        snprintf(text, sizeof text, "step %lld: %s rate %.3g over the last %d steps is above %.3g",
                 (long long)step->decided, what, rate, step->cfg.rate_window, (double)threshold);
        log_line(step, KEEL_LOG_WARNING, text);
    }
    *alerted = above;
}

static void log_skip(const keel_step *step, const keel_report *r)
{
    const char *name = keel_step_param_name(step, r->culprit_tensor);
    char text[256];
    snprintf(text, sizeof text, "step %lld skipped: %s, rank %d%s, tensor %lld '%.80s'; scale %.9g",
             (long long)r->step, keel_cause_string(r->cause), r->culprit_rank,
             r->origin == KEEL_ORIGIN_SHARED ? " and all others" : "", (long long)r->culprit_tensor,
             name ? name : "", (double)r->loss_scale_next);
    log_line(step, r->loss_scale_stuck ? KEEL_LOG_WARNING : KEEL_LOG_INFO, text);
}

/* A slot nobody casts through is legal, but more often a cast that forgot it; said once, when a
 * window of steps is full. */
static void warn_of_idle_slots(const keel_step *step)
{
    for (int32_t i = 0; i < step->mem.settings.slot_count; i++) {
        char text[160];
        if (step->mem.slot_live[i].state.updates > 0) continue;
        snprintf(text, sizeof text, "step %lld: slot %d (%s) has recorded no amax in %d steps",
                 (long long)step->decided, i, keel_format_get(step->slots[i].slot.format)->name,
                 step->cfg.rate_window);
        log_line(step, KEEL_LOG_WARNING, text);
    }
}

/* Where reports are at hand without waiting, say what a person on call wants to hear. */
static void announce(keel_step *step)
{
    if (!step->cfg.log || !step->device->synchronous) return;
    const keel_report *r = &step->mem.ring[(step->decided - 1) % step->cfg.report_capacity];
    if (!r->applied) log_skip(step, r);
    const int64_t steps = r->applied_steps + r->skipped_steps;
    if (steps == step->cfg.rate_window) warn_of_idle_slots(step);
    if (steps < step->cfg.rate_window) return;
    alert_rate(step, "skip", r->skip_rate, step->cfg.skip_rate_alert, &step->alerted_skip);
    alert_rate(step, "clip", r->clip_rate, step->cfg.clip_rate_alert, &step->alerted_clip);
}

keel_status keel_step_decide(keel_step *step, keel_stream stream)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    if (step->phase == KEELI_DECIDED && !step->has_optimizer && step->mem.settings.row_count > 0)
        FAIL(KEEL_ERR_ORDER, "step %lld is decided already; expected keel_step_accumulate()",
             (long long)step->decided);
    TRY(keeli_step_want_open(step, __func__));
    const int64_t rows = step->mem.settings.row_count;
    for (int64_t i = 0; step->visited_count < rows && i < rows; i++)
        if (!step->visited[i])
            FAIL(KEEL_ERR_ORDER,
                 "param %lld '%s' was not accumulated in step %lld; expected "
                 "keel_step_accumulate()",
                 (long long)i, name_of(step, i), (long long)step->decided + 1);
    keeli_step_begin(step); /* a rank without parameters may begin only here */
    const keel_status status = agree(step, __func__, stream);
    if (status != KEEL_OK) {
        (void)drop_partial(step, stream);
        return status;
    }
    forget_visits(step);
    step->phase = KEELI_DECIDED;
    step->decided++;
    announce(step);
    return KEEL_OK;
}

/* A decided step whose gradients are used exactly once. */
static void end(keel_step *step, int64_t read, int64_t written)
{
    step->phase = KEELI_OPEN;
    step->counters.launches++;
    step->counters.grad_elements_read += read;
    step->counters.grad_elements_written += written;
}

/* Counted from the decision where it is at hand: a skip reads nothing. */
static int64_t elements_used(const keel_step *step)
{
    if (step->device->synchronous && step->mem.decision->skip) return 0;
    return numel_of(step, 0, step->mem.settings.row_count);
}

static int64_t elements_optimized(const keel_step *step)
{
    if (step->device->synchronous && step->mem.decision->skip) return 0;
    int64_t numel = 0;
    for (int64_t i = 0; i < step->mem.settings.row_count; i++)
        if (step->groups[step->rows[i].group].optimizer != KEEL_OPTIMIZER_NONE)
            numel += step->rows[i].grad.numel;
    return numel;
}

keel_status keel_step_update(keel_step *step, keel_stream stream)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    TRY(want_decided(step, __func__));
    TRY(step->device->update(step->device, &step->mem, stream));
    end(step, elements_optimized(step), 0);
    return KEEL_OK;
}

keel_status keel_step_scale_gradients(keel_step *step, keel_stream stream)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    TRY(want_decided(step, __func__));
    for (int64_t i = 0; i < step->mem.settings.row_count; i++) {
        const keel_format_info *info = keel_format_get(step->rows[i].grad.format);
        if (!info->can_encode)
            FAIL(KEEL_ERR_UNSUPPORTED, "param %lld '%s': format %s cannot be written", (long long)i,
                 name_of(step, i), info->name);
    }
    TRY(step->device->scale(step->device, &step->mem, stream));
    const int64_t used = elements_used(step);
    end(step, used, used);
    return KEEL_OK;
}

keel_status keel_step_run(keel_step *step, keel_stream stream)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    TRY(keeli_step_want_open(step, __func__));
    const int64_t rows = step->mem.settings.row_count;
    if (step->phase == KEELI_DECIDED) keeli_step_begin(step);
    for (int64_t first = 0, next; first < rows; first = next) {
        next = first + 1;
        if (step->visited[first]) continue;
        while (next < rows && !step->visited[next]) next++;
        TRY(keel_step_accumulate(step, first, next - first, stream));
    }
    TRY(keel_step_decide(step, stream));
    return keel_step_update(step, stream);
}

keel_status keel_step_abandon(keel_step *step, keel_stream stream)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    if (step->phase == KEELI_OPEN) return drop_partial(step, stream);
    TRY(step->device->restore(step->device, &step->mem, stream));
    step->phase = KEELI_OPEN;
    return KEEL_OK;
}

keel_status keel_step_prime(keel_step *step, keel_stream stream)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    TRY(keeli_step_want_between(step, __func__));
    TRY(upload_rows(step, stream));
    TRY(step->device->prime(step->device, &step->mem, stream));
    step->counters.launches++;
    return KEEL_OK;
}

const keel_decision *keel_step_decision_dev(const keel_step *step)
{
    return step ? step->mem.decision : NULL;
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The stateless clip: the step's own lanes and formulas, without its state. */
#include <math.h>
#include <stdio.h>

#include "collectives.h"
#include "config.h"
#include "cpu/fp_env.h"
#include "decide.h"
#include "internal.h"

static keel_status check_grads(const keel_tensor *grads, int64_t count, bool writes)
{
    for (int64_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "grads[%lld]", (long long)i);
        TRY(keeli_tensor_check("keel_clip_global_norm", name, &grads[i]));
        const keel_format_info *info = keel_format_get(grads[i].format);
        if (writes && !info->can_encode)
            return keel_ext_fail(KEEL_ERR_UNSUPPORTED, "keel_clip_global_norm",
                                 "%s.format=%s cannot be written", name, info->name);
    }
    return KEEL_OK;
}

/* A step of one row at a time, on the stack. */
typedef struct scratch {
    keeli_row row;
    keeli_partial partial;
    keeli_packet packet;
    keel_decision decision;
    keeli_step_mem mem;
} scratch;

static void scratch_begin(scratch *s, const keel_comm *comm)
{
    memset(s, 0, sizeof *s);
    s->row.counts = 1;
    s->mem.settings.rank = keel_comm_rank(comm);
    s->mem.settings.nranks = keel_comm_size(comm);
    s->mem.settings.row_count = 1;
    s->mem.rows = &s->row;
    s->mem.partial = &s->partial;
    s->mem.packet = &s->packet;
    s->mem.decision = &s->decision;
}

static keel_status accumulate(const keel_device *device, scratch *s, const keel_tensor *grads,
                              int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        s->row.grad = grads[i];
        s->row.id = i;
        TRY(device->accumulate(device, &s->mem, 0, 1, NULL));
    }
    return KEEL_OK;
}

/* norm and coefficient from the reduced packet, in the kernels' environment, not the caller's. */
static void form_decision(const keeli_outcome *outcome, float max_norm, keel_decision *d)
{
    const keeli_fp_env env = keeli_fp_begin();
    d->norm = keeli_outcome_norm(outcome, 1.0);
    d->inv_scale = 1.0f;
    d->clip_coef = keeli_clip_coef(d->norm, max_norm);
    keeli_fp_end(env);
}

static keel_status agree(scratch *s, float max_norm, keel_comm *comm, int64_t timeout_us)
{
    keeli_lane_context context = {s->mem.settings.rank, s->mem.settings.nranks, 0, 0};
    keeli_outcome outcome;
    context.hash = keeli_hash_mix(0x636c6970, keeli_bits_of(fabsf(max_norm)));
    keeli_packet_pack(&s->partial, &context, &s->packet);
    TRY(keel_comm_reduce(comm, s->packet.sum, KEELI_NSUM, s->packet.max, KEELI_NMAX, timeout_us));
    keeli_packet_finish(&s->packet, &context, &outcome);
    if (!outcome.agreed)
        return keel_ext_fail(KEEL_ERR_PEER, "keel_clip_global_norm",
                             "rank %d/%d: the ranks pass different max_norm (%g here)",
                             context.rank, context.nranks, (double)max_norm);
    form_decision(&outcome, max_norm, &s->decision);
    return KEEL_OK;
}

static keel_status scale(const keel_device *device, scratch *s, const keel_tensor *grads,
                         int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        s->row.grad = grads[i];
        TRY(device->scale(device, &s->mem, NULL));
    }
    return KEEL_OK;
}

keel_status keel_clip_global_norm(const keel_device *device, const keel_tensor *grads,
                                  int64_t count, float max_norm, keel_comm *comm,
                                  int64_t timeout_us, double *out_norm)
{
    if (!out_norm) FAIL(KEEL_ERR_INVALID, "out_norm is NULL");
    if (!(max_norm >= 0)) FAIL(KEEL_ERR_INVALID, "max_norm=%g (want 0..inf)", (double)max_norm);
    if (count < 0 || (count > 0 && !grads))
        FAIL(KEEL_ERR_INVALID, "count=%lld with grads=%p", (long long)count, (const void *)grads);
    TRY(check_grads(grads, count, max_norm < INFINITY));
    if (!device) device = keel_cpu_device();
    if (!device->synchronous)
        FAIL(KEEL_ERR_UNSUPPORTED, "device %s: use a step", keel_device_name(device));

    scratch s;
    scratch_begin(&s, comm);
    TRY(accumulate(device, &s, grads, count));
    TRY(agree(&s, max_norm, comm, timeout_us));
    if (isfinite(s.decision.norm) && s.decision.clip_coef < 1.0f)
        TRY(scale(device, &s, grads, count));
    *out_norm = s.decision.norm;
    return KEEL_OK;
}

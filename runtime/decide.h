/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The decision of a step, once for every device: reduced packet and state in; decision, new state
 * and report out.  Serial and short; a device runs it on one thread after the round. */
#ifndef KEELI_DECIDE_H
#define KEELI_DECIDE_H

#include <float.h>
#include <math.h>

#include "decide_slots.h"
#include "rule_loss_scale.h"

KEELI_HD uint64_t keeli_hash_mix(uint64_t hash, uint64_t word)
{
    uint64_t z = (hash ^ word) + 0x9e3779b97f4a7c15u; /* splitmix64's finaliser */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

KEELI_HD double keeli_divisor(const keeli_inputs *inputs)
{
    return inputs->divisor_dev ? *inputs->divisor_dev : inputs->divisor;
}

/* What the ranks run: frozen at create, but for the loss scale, which a state may bring along. */
KEELI_HD uint64_t keeli_config_hash(const keeli_settings *set)
{
    const keel_loss_scale_config *c = &set->loss_scale;
    uint64_t h = keeli_hash_mix(set->hash, (uint64_t)c->rule << 32 | (uint64_t)c->mode);
    h = keeli_hash_mix(h, keeli_bits_of(c->growth));
    h = keeli_hash_mix(h, keeli_bits_of(c->backoff));
    h = keeli_hash_mix(h, keeli_bits_of(c->min));
    h = keeli_hash_mix(h, keeli_bits_of(c->max));
    h = keeli_hash_mix(h, (uint64_t)c->interval << 32 | (uint64_t)c->hysteresis);
    return keeli_hash_mix(h, (uint64_t)set->rate_window);
}

/* A slot's part of it: how its scale moves, where it stands, and whether it may veto. */
KEELI_HD uint64_t keeli_slot_hash(uint64_t h, const keel_slot *s, const keeli_slot_live *live)
{
    h = keeli_hash_mix(h, (uint64_t)s->scaling << 32 | (uint64_t)s->algorithm);
    h = keeli_hash_mix(h, (uint64_t)s->history << 32 | (uint32_t)s->margin);
    h = keeli_hash_mix(h, (uint64_t)s->power_of_two << 32 | (uint64_t)s->veto);
    return keeli_hash_mix(h, keeli_bits_of(live->state.scale));
}

/* Ranks that differ in any of this would decide differently.  -0 is a legal way to say 0. */
KEELI_HD uint64_t keeli_common_hash(const keeli_step_mem *mem)
{
    const keeli_inputs *in = mem->inputs;
    const keel_loss_scale_state *ls = &mem->state->loss_scale;
    uint64_t h = keeli_config_hash(&mem->settings);
    h = keeli_hash_mix(h, keeli_bits_of(fabsf(in->max_norm)));
    h = keeli_hash_mix(h, keeli_bits_of(fabsf(in->skip_norm)));
    h = keeli_hash_mix(h, keeli_bits_of_f64(keeli_divisor(in)));
    h = keeli_hash_mix(h, keeli_bits_of(ls->scale));
    h = keeli_hash_mix(h, (uint64_t)ls->clean);
    h = keeli_hash_mix(h, (uint64_t)ls->hysteresis_left);
    h = keeli_hash_mix(h, (uint64_t)ls->iteration);
    h = keeli_hash_mix(h, (uint64_t)ls->last_overflow);
    h = keeli_hash_mix(h, (uint64_t)mem->state->skipped);
    for (int i = 0; i < mem->settings.slot_count; i++)
        h = keeli_slot_hash(h, &mem->slots[i].slot, &mem->slot_live[i]);
    return keeli_hash_mix(h, (uint64_t)mem->state->applied);
}

KEELI_HD keeli_lane_context keeli_context(const keeli_step_mem *mem)
{
    keeli_lane_context context;
    context.rank = mem->settings.rank;
    context.nranks = mem->settings.nranks;
    context.step = mem->state->step + 1;
    context.hash = keeli_common_hash(mem);
    return context;
}

/* The last act before the round. */
KEELI_HD void keeli_pack(const keeli_step_mem *mem)
{
    const keeli_lane_context context = keeli_context(mem);
    keeli_packet_pack(mem->partial, &context, mem->packet);
    for (int i = 0; i < mem->settings.slot_count; i++)
        mem->slot_packet_words[i] = mem->slot_words[i];
}

KEELI_HD int keeli_is_normal(float x)
{
    return x >= FLT_MIN && x <= FLT_MAX;
}

/* The norm as reported: NaN before inf before the number. */
KEELI_HD double keeli_outcome_norm(const keeli_outcome *o, double divisor)
{
    if (o->nan_count > 0) return NAN;
    if (o->inf_count > 0) return INFINITY;
    return sqrt(o->sum_of_squares) / divisor;
}

KEELI_HD float keeli_clip_coef(double norm, float max_norm)
{
    const double coef = fabs((double)max_norm) / (norm + 1e-6); /* -0 is a legal way to say 0 */
    return coef < 1.0 ? (float)coef : 1.0f;
}

KEELI_HD keel_cause keeli_cause(const keeli_outcome *o, const keel_decision *d, double divisor,
                                float skip_norm)
{
    if (o->nan_count > 0) return KEEL_CAUSE_NAN;
    if (o->inf_count > 0) return KEEL_CAUSE_INF;
    if (o->loss_votes > 0) return KEEL_CAUSE_LOSS;
    if (o->veto_votes > 0) return KEEL_CAUSE_VETO;
    if (!(divisor > 0 && divisor <= DBL_MAX) || !keeli_is_normal(d->inv_scale))
        return KEEL_CAUSE_DIVISOR;
    if (d->norm > (double)skip_norm) return KEEL_CAUSE_SKIP_NORM;
    return KEEL_CAUSE_NONE;
}

/* scale and divisor are exact in the f64 product: f32 times an f64 of at most 29 bits is, and other
 * divisors round once. */
KEELI_HD void keeli_form_decision(const keeli_outcome *o, const keeli_inputs *in, float scale,
                                  keel_decision *d)
{
    const double divisor = keeli_divisor(in), total = (double)scale * divisor;
    d->norm = keeli_outcome_norm(o, total);
    d->inv_scale = (float)(1.0 / total);
    d->cause = keeli_cause(o, d, divisor, in->skip_norm);
    d->skip = d->cause != KEEL_CAUSE_NONE;
    d->clip_coef = d->skip ? 0.0f : keeli_clip_coef(d->norm, in->max_norm);
    d->multiplier = d->skip ? 0.0f : d->inv_scale * d->clip_coef;
}

/* Overflow is what a smaller loss scale can cure: non-finite gradients, and a product of scale and
 * divisor whose inverse is no longer a normal number, but would be at the smallest scale. */
KEELI_HD int keeli_overflowed(const keeli_outcome *o, const keel_decision *d, double smallest)
{
    const int curable = smallest > 0 && 1.0 / smallest >= (double)FLT_MIN;
    const int too_large = d->cause == KEEL_CAUSE_DIVISOR && d->inv_scale < FLT_MIN && curable;
    return o->inf_count + o->nan_count > 0 || too_large;
}

/* n: steps decided and not abandoned, this one included. */
KEELI_HD void keeli_rate_push(keeli_rate *rate, int64_t n, int32_t window, int bit)
{
    const int64_t at = (n - 1) % window;
    uint64_t *word = &rate->bits[at / 64];
    const uint64_t mask = (uint64_t)1 << at % 64;
    rate->count += bit - ((*word & mask) != 0);
    *word = bit ? *word | mask : *word & ~mask;
}

KEELI_HD double keeli_rate_value(const keeli_rate *rate, int64_t n, int32_t window)
{
    return (double)rate->count / (double)(n < window ? n : window);
}

KEELI_HD void keeli_save_state(const keeli_step_mem *mem)
{
    *mem->saved = *mem->state;
    for (int g = 0; g < mem->settings.group_count; g++) mem->group_saved[g] = mem->group_state[g];
    keeli_save_slots(mem);
}

/* Everything but the number of the step, whose report stays. */
KEELI_HD void keeli_restore_state(const keeli_step_mem *mem)
{
    const int64_t step = mem->state->step;
    *mem->state = *mem->saved;
    mem->state->step = step;
    for (int g = 0; g < mem->settings.group_count; g++) mem->group_state[g] = mem->group_saved[g];
    keeli_restore_slots(mem);
    mem->decision->loss_scale = mem->state->loss_scale.scale;
}

KEELI_HD void keeli_advance_state(const keeli_step_mem *mem, const keeli_outcome *o,
                                  const keel_decision *d)
{
    const keeli_settings *set = &mem->settings;
    keeli_state *state = mem->state;
    state->step++;
    state->applied += !d->skip;
    state->skipped += d->skip;
    const double smallest = (double)set->loss_scale.min * keeli_divisor(mem->inputs);
    if (o->elements > 0 || o->inf_count + o->nan_count > 0)
        keeli_loss_scale_update(&set->loss_scale, &state->loss_scale,
                                keeli_overflowed(o, d, smallest));
    const int64_t n = state->applied + state->skipped;
    keeli_rate_push(&state->skip_rate, n, set->rate_window, d->skip);
    keeli_rate_push(&state->clip_rate, n, set->rate_window, !d->skip && d->clip_coef < 1.0f);
    if (d->skip) return;
    for (int g = 0; g < set->group_count; g++) {
        keeli_group_advance(&mem->groups[g], &mem->group_state[g]);
        mem->scalars[g] =
            keeli_group_derive(&mem->groups[g], &mem->group_state[g], d->inv_scale, d->clip_coef);
    }
}

KEELI_HD void keeli_report_culprit(const keeli_outcome *o, const keeli_finite_partial *here,
                                   keel_report *r)
{
    const keeli_first_bad *first = here->probed.tensor ? &here->probed : &here->seen;
    r->origin = o->origin;
    r->culprit_rank = r->cause == KEEL_CAUSE_LOSS   ? o->loss_rank
                      : r->cause == KEEL_CAUSE_VETO ? o->veto_rank
                                                    : o->culprit_rank;
    r->culprit_tensor = r->culprit_rank == o->culprit_rank ? o->culprit_tensor : -1;
    r->culprit_slot = o->culprit_slot;
    r->local_tensor = first->tensor - 1;
    r->local_index = first->tensor ? first->element : -1;
    r->probed = here->probed_elements;
}

KEELI_HD void keeli_write_report(const keeli_step_mem *mem, const keeli_outcome *o, float scale)
{
    const keeli_settings *set = &mem->settings;
    const keeli_state *state = mem->state;
    const keel_decision *d = mem->decision;
    keel_report *r = &mem->ring[(state->step - 1) % set->report_capacity];
    r->step = state->step;
    r->tag = mem->inputs->tag;
    r->applied = !d->skip;
    r->cause = d->cause;
    r->norm = d->norm;
    r->clip_coef = d->clip_coef;
    r->loss_scale = scale;
    r->loss_scale_next = state->loss_scale.scale;
    r->loss_scale_stuck = state->loss_scale.stuck;
    r->elements = o->elements;
    r->zero_count = o->zero_count;
    r->inf_count = o->inf_count;
    r->nan_count = o->nan_count;
    r->bad_ranks = o->bad_ranks;
    r->loss_votes = o->loss_votes;
    r->veto_votes = o->veto_votes;
    keeli_report_culprit(o, &mem->partial->finite, r);
    r->applied_steps = state->applied;
    r->skipped_steps = state->skipped;
    const int64_t n = state->applied + state->skipped;
    r->skip_rate = keeli_rate_value(&state->skip_rate, n, set->rate_window);
    r->clip_rate = keeli_rate_value(&state->clip_rate, n, set->rate_window);
}

/* A round whose ranks do not agree decides nothing: state stays, and update has a skip to obey. */
KEELI_HD void keeli_refuse(const keeli_step_mem *mem)
{
    mem->decision->skip = 1;
    mem->decision->clip_coef = 0.0f;
    mem->decision->multiplier = 0.0f;
}

KEELI_HD void keeli_commit(const keeli_step_mem *mem, const keeli_outcome *outcome)
{
    const float scale = mem->state->loss_scale.scale;
    keeli_save_state(mem);
    keeli_form_decision(outcome, mem->inputs, scale, mem->decision);
    keeli_advance_state(mem, outcome, mem->decision);
    keeli_update_slots(mem, mem->decision->skip, scale, mem->state->loss_scale.scale);
    mem->decision->loss_scale = mem->state->loss_scale.scale;
    keeli_write_report(mem, outcome, scale);
}

/* The first act after the round; the partial results are used up either way. */
KEELI_HD void keeli_decide(const keeli_step_mem *mem)
{
    const keeli_lane_context context = keeli_context(mem);
    keeli_outcome outcome;
    keeli_packet_finish(mem->packet, &context, &outcome);
    if (outcome.agreed)
        keeli_commit(mem, &outcome);
    else
        keeli_refuse(mem);
    memset(mem->partial, 0, sizeof *mem->partial);
    keeli_forget_slot_words(mem, mem->decision->skip);
}

#endif

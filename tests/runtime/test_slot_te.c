/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The scaling rule over long random runs of amax, against two transcriptions: Transformer Engine's
 * update as its kernel lays the history out (a live cell in front, the window behind it), and the
 * default policy as a plain list.  Scales are compared by their bits after every update. */
#include <float.h>
#include <math.h>

#include "check.h"
#include "random.h"

enum { LONGEST = 1024 };

/* cells[0] is the live cell, cells[1] the oldest, cells[length - 1] the newest. */
typedef struct te {
    float cells[LONGEST];
    float scale;
} te;

/* As the device's fmaxf: NaN of either kind is passed over. */
static float larger(float a, float b)
{
    return isnan(b) || a > b ? a : b;
}

/* The window is the cells but the live one, moved down by one, and then what was live. */
static void te_update(te *t, int32_t length, bool most_recent, float scaled_max, float live)
{
    float amax = live;
    if (live != 0.0f) {
        float window = 0.0f;
        for (int32_t i = 0; i < length; i++) {
            const float entry = i + 1 < length ? t->cells[i + 1] : live;
            window = larger(window, entry);
            t->cells[i] = i > 0 ? entry : 0.0f;
        }
        if (!most_recent) amax = window;
    }
    if (!isfinite(amax) || !(amax > 0.0f)) return;
    t->scale = scaled_max / amax;
    if (isinf(t->scale)) t->scale = FLT_MAX;
}

/* seen[0] is the oldest. */
typedef struct plain {
    float seen[LONGEST];
    int32_t count;
    float scale;
    int64_t updates, nonfinite;
} plain;

static float clamp(float scale)
{
    return fminf(fmaxf(scale, 0x1p-126f), 0x1p126f);
}

static void plain_update(plain *p, const keel_slot *s, float scaled_max, bool ran, float amax)
{
    if (!ran) return;
    p->updates++;
    if (!isfinite(amax)) {
        p->nonfinite++;
        return;
    }
    if (p->count == s->history) memmove(p->seen, p->seen + 1, (size_t)--p->count * sizeof *p->seen);
    p->seen[p->count++] = amax;
    float largest = amax;
    for (int32_t i = 0; s->algorithm == KEEL_AMAX_MAX && i < p->count; i++)
        largest = larger(largest, p->seen[i]);
    if (largest == 0.0f) return;
    p->scale = clamp(scaled_max / largest);
    if (s->power_of_two) p->scale = ldexpf(1.0f, ilogbf(p->scale));
}

/* What a step may bring, each kind as often as the others. */
typedef enum kind { NOT_RUN, ZERO, TINY, SMALL, NORMAL, ANY, INF, NOT_A_NUMBER, KINDS } kind;

static float draw_amax(random_source *r, kind k)
{
    switch (k) {
    case TINY:
        return 0x1p-149f;
    case SMALL:
        return f32_of_bits(1 + (uint32_t)random_below(r, 0x7fffff));
    case NORMAL:
        return ldexpf(1.0f + fabsf(random_unit(r)), (int)random_below(r, 20) - 10);
    case ANY:
        return fabsf(random_finite(r));
    case INF:
        return INFINITY;
    case NOT_A_NUMBER:
        return f32_of_bits(0x7f800001u + (uint32_t)random_below(r, 0x7fffff));
    default:
        return 0.0f;
    }
}

/* Runs differ in which kinds come at all, so that each kind also meets each other one alone. */
static kind draw_kind(random_source *r, unsigned allowed)
{
    kind k = NORMAL;
    do k = (kind)random_below(r, KINDS);
    while (!(allowed >> k & 1));
    return k;
}

static int32_t draw_length(random_source *r)
{
    static const int32_t up_to[] = {1, 2, 3, 16, 16, 100, LONGEST};
    return 1 + (int32_t)random_below(r, up_to[random_below(r, 7)]);
}

/* Often enough around the ring, where that is affordable. */
static int draw_updates(random_source *r, int32_t length)
{
    return 20 + (int)random_below(r, length <= 100 ? 3 * length : 60);
}

static keel_slot draw_slot(random_source *r, keel_slot_policy policy)
{
    const keel_format format = random_below(r, 2) ? KEEL_FORMAT_E5M2 : KEEL_FORMAT_E4M3;
    keel_slot s = KEEL_SLOT_INIT(KEEL_SLOT_FORWARD, format);
    s.policy = policy;
    s.history = draw_length(r);
    s.margin = (int32_t)random_below(r, 7) - 2;
    s.algorithm = random_below(r, 2) ? KEEL_AMAX_MOST_RECENT : KEEL_AMAX_MAX;
    return s;
}

static float scaled_max_of(const keel_slot *s)
{
    return ldexpf(s->format == KEEL_FORMAT_E4M3 ? 448.0f : 57344.0f, -s->margin);
}

static void check_scale_is(float got, float wanted, const keel_slot *s, int64_t trial, int update)
{
    if (bits_of_f32(got) == bits_of_f32(wanted)) return;
    fail_msg("trial %lld, update %d: scale %a, wanted %a (history %d, margin %d, algorithm %d)",
             (long long)trial, update, (double)got, (double)wanted, s->history, s->margin,
             (int)s->algorithm);
}

static void run_te(const keel_slot *s, random_source *r, unsigned allowed, int updates,
                   int64_t trial)
{
    float history[LONGEST];
    keel_slot_state state;
    te peer = {.scale = 1.0f};
    assert_ok(keel_slot_begin(s, &state, history));
    for (int u = 0; u < updates; u++) {
        const kind k = draw_kind(r, allowed);
        const float amax = draw_amax(r, k);
        te_update(&peer, s->history, s->algorithm == KEEL_AMAX_MOST_RECENT, scaled_max_of(s), amax);
        keel_slot_update(s, &state, history, k != NOT_RUN, amax);
        check_scale_is(state.scale, peer.scale, s, trial, u);
    }
}

static void test_slot_te__preset_follows_its_peer_bit_for_bit(void **state)
{
    (void)state;
    for (int64_t trial = 0; trial < 10000; trial++) {
        random_source r = random_begin((uint64_t)trial);
        const keel_slot s = draw_slot(&r, KEEL_SLOT_POLICY_TE);
        const unsigned allowed = (unsigned)random_below(&r, 1 << KINDS) | 1u << NORMAL;
        run_te(&s, &r, allowed, draw_updates(&r, s.history), trial);
    }
    /* The default of the peer: 1,024 entries, and more than twice around them. */
    for (int64_t trial = 0; trial < 8; trial++) {
        random_source r = random_begin(0xe4 + (uint64_t)trial);
        keel_slot s = draw_slot(&r, KEEL_SLOT_POLICY_TE);
        s.history = LONGEST;
        run_te(&s, &r, 0xffu & ~(trial % 2 ? 1u << INF : 0u), 2500, trial);
    }
}

static void test_slot_te__default_follows_its_own_column(void **state)
{
    (void)state;
    float history[LONGEST];
    for (int64_t trial = 0; trial < 10000; trial++) {
        random_source r = random_begin(0x10000 + (uint64_t)trial);
        keel_slot s = draw_slot(&r, KEEL_SLOT_POLICY_KEEL);
        const unsigned allowed = (unsigned)random_below(&r, 1 << KINDS) | 1u << NORMAL;
        const int updates = draw_updates(&r, s.history);
        keel_slot_state got;
        plain wanted = {.scale = 1.0f};
        s.power_of_two = random_below(&r, 4) == 0;
        if (random_below(&r, 4) == 0) s.margin = (int32_t)random_below(&r, 65) - 32;
        assert_ok(keel_slot_begin(&s, &got, history));
        for (int u = 0; u < updates; u++) {
            const kind k = draw_kind(&r, allowed);
            const float amax = draw_amax(&r, k);
            plain_update(&wanted, &s, scaled_max_of(&s), k != NOT_RUN, amax);
            keel_slot_update(&s, &got, history, k != NOT_RUN, amax);
            check_scale_is(got.scale, wanted.scale, &s, trial, u);
            assert_int_equal(got.updates, wanted.updates);
            assert_int_equal(got.nonfinite_updates, wanted.nonfinite);
            assert_int_equal(got.filled, wanted.count);
        }
    }
}

/* Why the two policies may stand at different scales. */
typedef enum why { SAME, BOUNDED, ZERO_ROLLED_IN, NONFINITE_STAYS, EITHER, WHYS } why;

/* The kinds of the updates in which the slot ran, as far back as a window reaches. */
typedef struct trail {
    bool zero[LONGEST], nonfinite[LONGEST];
    int32_t count;
} trail;

static void trail_push(trail *t, kind k)
{
    if (k == NOT_RUN) return;
    t->zero[t->count % LONGEST] = k == ZERO;
    t->nonfinite[t->count++ % LONGEST] = k == INF || k == NOT_A_NUMBER;
}

/* Fails where the table has no row for the difference. */
static why explain(const keel_slot *s, const trail *t, float te_scale, float keel_scale)
{
    bool zero = false, nonfinite = false;
    if (bits_of_f32(te_scale) == bits_of_f32(keel_scale)) return SAME;
    if (bits_of_f32(clamp(te_scale)) == bits_of_f32(keel_scale)) return BOUNDED;
    for (int32_t i = 0; i < s->history && i < t->count; i++) {
        zero |= t->zero[(t->count - 1 - i) % LONGEST];
        nonfinite |= t->nonfinite[(t->count - 1 - i) % LONGEST];
    }
    assert_int_equal(s->algorithm, KEEL_AMAX_MAX); /* else a window does not matter */
    assert_true(zero || nonfinite);
    return zero && nonfinite ? EITHER : zero ? ZERO_ROLLED_IN : NONFINITE_STAYS;
}

static void test_slot_te__policies_differ_only_where_the_table_says(void **state)
{
    (void)state;
    float te_history[LONGEST], history[LONGEST];
    int64_t seen[WHYS] = {0};
    for (int64_t trial = 0; trial < 10000; trial++) {
        random_source r = random_begin(0x20000 + (uint64_t)trial);
        const keel_slot as_te = draw_slot(&r, KEEL_SLOT_POLICY_TE);
        const unsigned allowed = (unsigned)random_below(&r, 1 << KINDS) | 1u << NORMAL;
        const int updates = draw_updates(&r, as_te.history);
        keel_slot s = as_te;
        keel_slot_state te_state, own_state;
        trail t = {.count = 0};
        s.policy = KEEL_SLOT_POLICY_KEEL;
        assert_ok(keel_slot_begin(&as_te, &te_state, te_history));
        assert_ok(keel_slot_begin(&s, &own_state, history));
        for (int u = 0; u < updates; u++) {
            const kind k = draw_kind(&r, allowed);
            const float amax = draw_amax(&r, k);
            keel_slot_update(&as_te, &te_state, te_history, k != NOT_RUN, amax);
            keel_slot_update(&s, &own_state, history, k != NOT_RUN, amax);
            trail_push(&t, k);
            seen[explain(&s, &t, te_state.scale, own_state.scale)]++;
        }
    }
    for (int i = 0; i < WHYS; i++) assert_true(seen[i] > 1000); /* every row was met */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot_te__preset_follows_its_peer_bit_for_bit),
        cmocka_unit_test(test_slot_te__default_follows_its_own_column),
        cmocka_unit_test(test_slot_te__policies_differ_only_where_the_table_says),
    };
    return cmocka_run_group_tests_name("runtime.slot_te", tests, NULL, NULL);
}

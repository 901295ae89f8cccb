/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What the slot calls refuse, by name and without a trace; and what keel_step_set_slot() changes,
 * from when on. */
#include <math.h>
#include <stdio.h>

#include "model.h"
#include "slots.h"

enum { ACT, WEIGHT, SLOTS };

typedef struct world {
    model m;
    keel_slot slots[SLOTS];
    float scale_inv;
} world;

static void world_begin(world *w)
{
    memset(w, 0, sizeof *w);
    model_begin(&w->m);
    model_group(&w->m, KEEL_GROUP_SGD(0.5));
    keel_param *p = model_add_f32(&w->m, 2, (const float[]){1, 2});
    model_copy(p, KEEL_FORMAT_E4M3);
    p->copy_slot = WEIGHT;
    p->copy_scale_inv = &w->scale_inv;
    w->slots[ACT] = slot_of(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3, 4);
    w->slots[WEIGHT] = slot_of(KEEL_SLOT_WEIGHT, KEEL_FORMAT_E4M3, 4);
    w->slots[ACT].name = "attention";
    w->m.cfg.slots = w->slots;
    w->m.cfg.slot_count = SLOTS;
}

static float step_with(world *w, float value)
{
    slot_quantize_one(w->m.step, ACT, value);
    model_run(&w->m);
    return slot_report(w->m.step, ACT).scale;
}

/* One change to a valid world, and the word of its refusal. */
typedef struct mistake {
    void (*make)(world *w);
    const char *word;
} mistake;

#define MISTAKE(name, statement)      \
    static void make_##name(world *w) \
    {                                 \
        statement;                    \
    }

MISTAKE(history_0, w->slots[ACT].history = 0)
MISTAKE(history_over, w->slots[ACT].history = KEEL_HISTORY_MAX + 1)
MISTAKE(margin, w->slots[ACT].margin = 33)
MISTAKE(format, w->slots[ACT].format = KEEL_FORMAT_E8M0)
MISTAKE(no_slots, w->m.cfg.slots = NULL)
MISTAKE(negative_count, w->m.cfg.slot_count = -1)
MISTAKE(copy_role, w->m.params[0].copy_slot = ACT)
MISTAKE(copy_range, w->m.params[0].copy_slot = SLOTS)
MISTAKE(copy_negative, w->m.params[0].copy_slot = -2)
MISTAKE(copy_format, w->slots[WEIGHT].format = KEEL_FORMAT_E5M2)
MISTAKE(copy_inverse, w->m.params[0].copy_scale_inv = NULL)

static const mistake mistakes[] = {
    {make_history_0, "'attention' history=0"},
    {make_history_over, "'attention' history=65537"},
    {make_margin, "'attention' margin=33"},
    {make_format, "'attention' format=e8m0"},
    {make_no_slots, "slots"},
    {make_negative_count, "slot_count=-1"},
    {make_copy_role, "copy_slot=0 has role 0"},
    {make_copy_range, "copy_slot=2"},
    {make_copy_negative, "copy_slot=-2"},
    {make_copy_format, "copy.format=e4m3"},
    {make_copy_inverse, "copy_scale_inv is NULL"},
};

static void test_slot_args__create_refuses_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        static world w;
        size_t bytes = 7;
        world_begin(&w);
        mistakes[i].make(&w);
        assert_refused(keel_step_create(&w.m.cfg, w.m.params, 1, NULL, 0, &w.m.step),
                       KEEL_ERR_INVALID, mistakes[i].word);
        assert_null(w.m.step);
        assert_refused(keel_step_workspace_size(&w.m.cfg, w.m.params, 1, &bytes), KEEL_ERR_INVALID,
                       mistakes[i].word);
        assert_int_equal(bytes, 7);
        model_end(&w.m);
    }
}

/* One refused cast: nothing written, nothing counted, and the step not begun by it. */
static void check_cast(world *w, int32_t slot, const keel_tensor *src, const keel_tensor *dst,
                       const char *word)
{
    unsigned char before[8];
    float scale_inv = 7;
    if (dst && dst->data) memcpy(before, dst->data, sizeof before);
    assert_refused(keel_step_quantize(w->m.step, slot, src, dst, &scale_inv, NULL),
                   KEEL_ERR_INVALID, word);
    assert_same_f32(scale_inv, 7.0f);
    if (dst && dst->data) assert_memory_equal(before, dst->data, sizeof before);
    assert_int_equal(slot_report(w->m.step, ACT).casts, 0);
    assert_ok(keel_step_set_slot(w->m.step, ACT, &w->slots[ACT])); /* only between steps */
}

static void test_slot_args__quantize_refuses_by_name(void **state)
{
    (void)state;
    static world w;
    float values[2] = {1, 2}, zero = 0, scale_inv = 7;
    unsigned char codes[8] = {1, 2, 3};
    const keel_tensor src = {.data = values, .numel = 2, .format = KEEL_FORMAT_F32};
    const keel_tensor dst = {.data = codes, .numel = 2, .format = KEEL_FORMAT_E4M3};
    keel_tensor t;
    world_begin(&w);
    model_create(&w.m);
    check_cast(&w, -1, &src, &dst, "slot=-1 (want 0..1)");
    check_cast(&w, SLOTS, &src, &dst, "slot=2 (want 0..1)");
    check_cast(&w, ACT, NULL, &dst, "src");
    check_cast(&w, ACT, &src, NULL, "dst");
    check_cast(&w, ACT, &src, (t = dst, t.format = KEEL_FORMAT_E5M2, &t),
               "dst.format=e5m2 (want e4m3");
    check_cast(&w, ACT, &src, (t = dst, t.numel = 3, &t), "numel");
    check_cast(&w, ACT, (t = src, t.scale_inv = &zero, &t), &dst, "scale_inv=0");
    check_cast(&w, ACT, (t = src, t.data = NULL, &t), &dst, "data");
    assert_refused(keel_step_quantize(w.m.step, ACT, &src, &dst, NULL, NULL), KEEL_ERR_INVALID,
                   "out_scale_inv is NULL");
    assert_refused(keel_step_quantize(NULL, ACT, &src, &dst, &scale_inv, NULL), KEEL_ERR_INVALID,
                   "step is NULL");
    assert_ok(keel_step_accumulate(w.m.step, 0, 1, NULL));
    assert_ok(keel_step_decide(w.m.step, NULL));
    assert_refused(keel_step_quantize(w.m.step, ACT, &src, &dst, &scale_inv, NULL), KEEL_ERR_ORDER,
                   "keel_step_update()");
    assert_int_equal(codes[0], 1);
    assert_same_f32(scale_inv, 7.0f);
    model_end(&w.m);
}

static void test_slot_args__report_refuses_by_name(void **state)
{
    (void)state;
    static world w;
    keel_slot_report r = {.casts = 7};
    world_begin(&w);
    model_create(&w.m);
    assert_refused(keel_step_slot_report(NULL, 0, &r), KEEL_ERR_INVALID, "step is NULL");
    assert_refused(keel_step_slot_report(w.m.step, 0, NULL), KEEL_ERR_INVALID, "out_report");
    assert_refused(keel_step_slot_report(w.m.step, SLOTS, &r), KEEL_ERR_INVALID, "slot=2");
    assert_refused(keel_step_slot_report(w.m.step, -1, &r), KEEL_ERR_INVALID, "slot=-1");
    assert_int_equal(r.casts, 7);
    model_end(&w.m);
}

/* A refused change changes nothing: the next update is that of the slot as it was. */
static void check_change(world *w, keel_slot to, const char *word)
{
    const float before = slot_report(w->m.step, ACT).scale;
    assert_refused(keel_step_set_slot(w->m.step, ACT, &to), KEEL_ERR_INVALID, word);
    assert_same_f32(slot_report(w->m.step, ACT).scale, before);
    assert_same_f32(step_with(w, 2), before);
}

static void test_slot_args__set_slot_refuses_by_name(void **state)
{
    (void)state;
    static world w;
    world_begin(&w);
    model_create(&w.m);
    step_with(&w, 2);
    keel_slot s = w.slots[ACT];
    check_change(&w, (s.role = KEEL_SLOT_GRADIENT, s), "role=2");
    s = w.slots[ACT];
    check_change(&w, (s.format = KEEL_FORMAT_E5M2, s), "format=5");
    s = w.slots[ACT];
    check_change(&w, (s.policy = KEEL_SLOT_POLICY_TE, s), "policy=1");
    s = w.slots[ACT];
    check_change(&w, (s.history = 5, s), "history=5 (want 1..4");
    check_change(&w, (s.history = 0, s), "history=0");
    s = w.slots[ACT];
    check_change(&w, (s.margin = -33, s), "margin=-33");
    assert_refused(keel_step_set_slot(w.m.step, 0, NULL), KEEL_ERR_INVALID, "config is NULL");
    assert_refused(keel_step_set_slot(NULL, 0, &s), KEEL_ERR_INVALID, "step is NULL");
    assert_refused(keel_step_set_slot(w.m.step, SLOTS, &s), KEEL_ERR_INVALID, "slot=2");
    slot_quantize_one(w.m.step, ACT, 2);
    assert_refused(keel_step_set_slot(w.m.step, ACT, &w.slots[ACT]), KEEL_ERR_ORDER, "has begun");
    assert_ok(keel_step_accumulate(w.m.step, 0, 1, NULL));
    assert_ok(keel_step_decide(w.m.step, NULL));
    assert_refused(keel_step_set_slot(w.m.step, ACT, &w.slots[ACT]), KEEL_ERR_ORDER, "decided");
    model_end(&w.m);
}

/* "A changed margin or algorithm takes effect at the next update." */
static void test_slot_args__a_change_waits_for_the_next_update(void **state)
{
    (void)state;
    static world w;
    world_begin(&w);
    model_create(&w.m);
    step_with(&w, 16);
    assert_same_f32(step_with(&w, 4), 28.0f);
    w.slots[ACT].algorithm = KEEL_AMAX_MOST_RECENT;
    w.slots[ACT].margin = 1;
    assert_ok(keel_step_set_slot(w.m.step, ACT, &w.slots[ACT]));
    assert_same_f32(slot_report(w.m.step, ACT).scale, 28.0f);
    model_run(&w.m); /* an update without the slot is none of its updates */
    assert_same_f32(slot_report(w.m.step, ACT).scale, 28.0f);
    assert_same_f32(slot_quantize_one(w.m.step, ACT, 4).scale_inv, 1.0f / 28.0f);
    model_run(&w.m);
    assert_same_f32(slot_report(w.m.step, ACT).scale, 56.0f);
    model_end(&w.m);
}

/* "A shorter history keeps the newest entries", wherever the ring stood; grown again it keeps what
 * is left.  Amax falls, so the oldest entry of a window shows in the scale. */
static void test_slot_args__shrinking_keeps_the_newest(void **state)
{
    (void)state;
    for (int steps = 1; steps <= 9; steps++)
        for (int length = 1; length <= 4; length++) {
            static world w;
            world_begin(&w);
            model_create(&w.m);
            for (int i = 0; i < steps; i++) step_with(&w, ldexpf(1, -i));
            w.slots[ACT].history = length;
            assert_ok(keel_step_set_slot(w.m.step, ACT, &w.slots[ACT]));
            w.slots[ACT].history = 4;
            assert_ok(keel_step_set_slot(w.m.step, ACT, &w.slots[ACT]));
            int oldest = steps > length ? steps - length : 0;
            for (int i = steps; i < steps + 8; i++) {
                if (i - oldest == 4) oldest++;
                assert_same_f32(step_with(&w, ldexpf(1, -i)), 448.0f * ldexpf(1, oldest));
            }
            model_end(&w.m);
        }
}

/* And while it is short, the window is short. */
static void test_slot_args__a_short_history_is_short(void **state)
{
    (void)state;
    static world w;
    world_begin(&w);
    model_create(&w.m);
    for (int i = 0; i < 6; i++) step_with(&w, ldexpf(1, -i));
    w.slots[ACT].history = 2;
    assert_ok(keel_step_set_slot(w.m.step, ACT, &w.slots[ACT]));
    for (int i = 6; i < 12; i++)
        assert_same_f32(step_with(&w, ldexpf(1, -i)), 448.0f * ldexpf(1, i - 1));
    model_end(&w.m);
}

/* An abandoned step leaves scale, counters and history as they were; the entry it overwrote shows
 * where the history grows before it is overwritten again. */
static void test_slot_args__abandon_restores_the_history(void **state)
{
    (void)state;
    for (int decided = 0; decided < 2; decided++) {
        static world w;
        world_begin(&w);
        model_create(&w.m);
        w.slots[ACT].history = 3;
        assert_ok(keel_step_set_slot(w.m.step, ACT, &w.slots[ACT]));
        for (int i = 0; i < 3; i++) step_with(&w, ldexpf(1, -i));
        const keel_slot_report before = slot_report(w.m.step, ACT);
        slot_quantize_one(w.m.step, ACT, 1024);
        assert_ok(keel_step_accumulate(w.m.step, 0, 1, NULL));
        if (decided) {
            assert_ok(keel_step_decide(w.m.step, NULL));
            assert_same_f32(slot_report(w.m.step, ACT).amax, 1024.0f);
        }
        assert_ok(keel_step_abandon(w.m.step, NULL));
        const keel_slot_report after = slot_report(w.m.step, ACT);
        assert_same_f32(after.scale, before.scale);
        assert_same_f32(after.scale_inv, before.scale_inv);
        assert_same_f32(after.amax, before.amax);
        assert_int_equal(after.updates, before.updates);
        w.slots[ACT].history = 4;
        assert_ok(keel_step_set_slot(w.m.step, ACT, &w.slots[ACT]));
        assert_same_f32(step_with(&w, 0.125f), 448.0f);
        assert_same_f32(step_with(&w, 0.125f), 896.0f);
        model_end(&w.m);
    }
}

typedef struct heard {
    int lines;
    char last[256];
} heard;

static void hear(void *context, keel_log_level level, const char *message)
{
    heard *h = context;
    assert_int_equal(level, KEEL_LOG_WARNING);
    h->lines++;
    snprintf(h->last, sizeof h->last, "%s", message);
}

/* An amax that is never recorded is said by the slot's number, once a run, when a window is full.
 */
static void test_slot_args__an_idle_slot_is_told_once(void **state)
{
    (void)state;
    for (int idle = 0; idle < 2; idle++) {
        static world w;
        heard h = {0};
        world_begin(&w);
        w.m.cfg.log = hear;
        w.m.cfg.log_context = &h;
        w.m.cfg.rate_window = 5;
        model_create(&w.m);
        for (int step = 1; step <= 12; step++) {
            if (!idle) slot_quantize_one(w.m.step, ACT, 1.0f);
            model_run(&w.m);
            assert_int_equal(h.lines, idle && step >= 5);
        }
        if (idle) assert_non_null(strstr(h.last, "slot 0 (e4m3) has recorded no amax in 5 steps"));
        model_end(&w.m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot_args__create_refuses_by_name),
        cmocka_unit_test(test_slot_args__quantize_refuses_by_name),
        cmocka_unit_test(test_slot_args__report_refuses_by_name),
        cmocka_unit_test(test_slot_args__set_slot_refuses_by_name),
        cmocka_unit_test(test_slot_args__a_change_waits_for_the_next_update),
        cmocka_unit_test(test_slot_args__shrinking_keeps_the_newest),
        cmocka_unit_test(test_slot_args__a_short_history_is_short),
        cmocka_unit_test(test_slot_args__abandon_restores_the_history),
        cmocka_unit_test(test_slot_args__an_idle_slot_is_told_once),
    };
    return cmocka_run_group_tests_name("runtime.slot_args", tests, NULL, NULL);
}

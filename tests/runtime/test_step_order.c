/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The order of calls.
 *
 * "Calls out of order fail with KEEL_ERR_ORDER and a sentence saying which call was expected."
 * Every call is made in every phase of a step; a refused one must leave the step as a twin that
 * never saw the call. */
#include "check.h"
#include "model.h"

enum { ROWS = 2, NUMEL = 5 };

typedef enum phase { FRESH, PARTLY, COMPLETE, DECIDED, UPDATED, PHASES } phase;

static const char *const phase_name[] = {"fresh", "partly accumulated", "accumulated", "decided",
                                         "updated"};
static unsigned char fresh_blob[4096];
static size_t fresh_size;

static const float one_loss = 1.0f;

static keel_status call_accumulate_first(model *m)
{
    return keel_step_accumulate(m->step, 0, 1, NULL);
}

static keel_status call_accumulate_all(model *m)
{
    return keel_step_accumulate(m->step, 0, ROWS, NULL);
}

static keel_status call_accumulate_last(model *m)
{
    return keel_step_accumulate(m->step, 1, 1, NULL);
}

static keel_status call_probe(model *m)
{
    return keel_step_probe(m->step, 0, ROWS, NULL, NULL);
}

static keel_status call_check_loss(model *m)
{
    return keel_step_check_loss(m->step, &one_loss, NULL);
}

static keel_status call_veto(model *m)
{
    return keel_step_veto(m->step, NULL);
}

static keel_status call_decide(model *m)
{
    return keel_step_decide(m->step, NULL);
}

static keel_status call_update(model *m)
{
    return keel_step_update(m->step, NULL);
}

static keel_status call_scale(model *m)
{
    return keel_step_scale_gradients(m->step, NULL);
}

static keel_status call_run(model *m)
{
    return keel_step_run(m->step, NULL);
}

static keel_status call_abandon(model *m)
{
    return keel_step_abandon(m->step, NULL);
}

static keel_status call_prime(model *m)
{
    return keel_step_prime(m->step, NULL);
}

static keel_status call_verify(model *m)
{
    return keel_step_verify(m->step);
}

static keel_status call_rebind(model *m)
{
    const void *grads[] = {m->params[0].grad.data};
    return keel_step_rebind(m->step, 0, 1, grads);
}

static keel_status call_set_group(model *m)
{
    keel_group group = m->groups[0];
    if (m->cfg.group_count > 0) group.lr = 0.25;
    return keel_step_set_group(m->step, 0, &group);
}

static keel_status call_set_max_norm(model *m)
{
    return keel_step_set_max_norm(m->step, 0.5f);
}

static keel_status call_set_divisor(model *m)
{
    return keel_step_set_grad_divisor(m->step, 8, NULL);
}

static keel_status call_set_tag(model *m)
{
    return keel_step_set_tag(m->step, 77);
}

static keel_status call_save(model *m)
{
    unsigned char blob[4096];
    return keel_step_state_save(m->step, blob, sizeof blob);
}

static keel_status call_load(model *m)
{
    return keel_step_state_load(m->step, fresh_blob, fresh_size);
}

static keel_status call_loss_scale(model *m)
{
    float scale;
    return keel_step_loss_scale(m->step, &scale);
}

static keel_status call_counters(model *m)
{
    keel_counters counters;
    return keel_step_counters(m->step, &counters);
}

/* What each call says in each phase; NULL: it is legal there. */
typedef struct row {
    const char *name;
    keel_status (*call)(model *m);
    const char *word[PHASES];
} row;

#define LEGAL      NULL
#define ACCUMULATE "expected keel_step_accumulate()"
#define DECIDE     "expected keel_step_decide()"
#define UPDATE     "expected keel_step_update()"
#define ONCE       "expected each once, then keel_step_decide()"

#define ALWAYS        LEGAL, LEGAL, LEGAL, LEGAL, LEGAL
#define BEFORE_DECIDE LEGAL, LEGAL, LEGAL, UPDATE, LEGAL
#define BETWEEN_STEPS LEGAL, DECIDE, DECIDE, UPDATE, LEGAL
#define AFTER_DECIDE  ACCUMULATE, ACCUMULATE, DECIDE, LEGAL, ACCUMULATE

static const row with_optimizer[] = {
    {"accumulate first", call_accumulate_first, {LEGAL, ONCE, ONCE, UPDATE, LEGAL}},
    {"accumulate all", call_accumulate_all, {LEGAL, ONCE, ONCE, UPDATE, LEGAL}},
    {"accumulate last", call_accumulate_last, {LEGAL, LEGAL, ONCE, UPDATE, LEGAL}},
    {"probe", call_probe, {BEFORE_DECIDE}},
    {"check_loss", call_check_loss, {BEFORE_DECIDE}},
    {"veto", call_veto, {BEFORE_DECIDE}},
    {"decide", call_decide, {ACCUMULATE, ACCUMULATE, LEGAL, UPDATE, ACCUMULATE}},
    {"update", call_update, {AFTER_DECIDE}},
    {"scale_gradients", call_scale, {AFTER_DECIDE}},
    {"run", call_run, {BEFORE_DECIDE}},
    {"abandon", call_abandon, {ALWAYS}},
    {"prime", call_prime, {BETWEEN_STEPS}},
    {"verify", call_verify, {BETWEEN_STEPS}},
    {"rebind", call_rebind, {LEGAL, DECIDE, DECIDE, UPDATE, LEGAL}},
    {"set_group", call_set_group, {BEFORE_DECIDE}},
    {"set_max_norm", call_set_max_norm, {BEFORE_DECIDE}},
    {"set_grad_divisor", call_set_divisor, {BEFORE_DECIDE}},
    {"set_tag", call_set_tag, {BEFORE_DECIDE}},
    {"state_save", call_save, {BETWEEN_STEPS}},
    {"state_load", call_load, {BETWEEN_STEPS}},
    {"loss_scale", call_loss_scale, {ALWAYS}},
    {"counters", call_counters, {ALWAYS}},
};

/* Without an optimizer of Keel's a decided step is over as soon as its caller says so. */
static const row without_optimizer[] = {
    {"accumulate first", call_accumulate_first, {LEGAL, ONCE, ONCE, LEGAL, LEGAL}},
    {"accumulate all", call_accumulate_all, {LEGAL, ONCE, ONCE, LEGAL, LEGAL}},
    {"probe", call_probe, {ALWAYS}},
    {"check_loss", call_check_loss, {ALWAYS}},
    {"veto", call_veto, {ALWAYS}},
    {"decide", call_decide, {ACCUMULATE, ACCUMULATE, LEGAL, ACCUMULATE, ACCUMULATE}},
    {"update", call_update, {AFTER_DECIDE}},
    {"scale_gradients", call_scale, {AFTER_DECIDE}},
    {"run", call_run, {ALWAYS}},
    {"abandon", call_abandon, {ALWAYS}},
    {"prime", call_prime, {LEGAL, DECIDE, DECIDE, LEGAL, LEGAL}},
    {"verify", call_verify, {LEGAL, DECIDE, DECIDE, LEGAL, LEGAL}},
    {"rebind", call_rebind, {LEGAL, DECIDE, DECIDE, LEGAL, LEGAL}},
    {"set_group", call_set_group, {ALWAYS}},
    {"set_max_norm", call_set_max_norm, {ALWAYS}},
    {"state_save", call_save, {LEGAL, DECIDE, DECIDE, LEGAL, LEGAL}},
    {"state_load", call_load, {LEGAL, DECIDE, DECIDE, LEGAL, LEGAL}},
};

static void begin(model *m, bool optimizer)
{
    model_begin(m);
    m->cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
    m->cfg.max_norm = 1000;
    if (optimizer) model_group(m, KEEL_GROUP_ADAMW(0.125));
    for (int i = 0; i < ROWS; i++) {
        keel_param *p = model_add(m, KEEL_FORMAT_F32, NUMEL);
        p->name = i == 0 ? "a" : "b";
        model_copy(p, KEEL_FORMAT_BF16);
        for (int j = 0; j < NUMEL; j++) {
            model_set(p, j, (float)(65536 * (i + 1) * (j + 1)));
            p->master[j] = (float)j;
        }
    }
    model_create(m);
    fresh_size = keel_step_state_size(m->step);
    assert_ok(keel_step_state_save(m->step, fresh_blob, sizeof fresh_blob));
}

static void bring_to(model *m, phase to)
{
    if (to == FRESH) return;
    assert_ok(call_accumulate_first(m));
    if (to == PARTLY) return;
    assert_ok(call_accumulate_last(m));
    if (to == COMPLETE) return;
    assert_ok(call_decide(m));
    if (to == UPDATED) assert_ok(call_update(m));
}

static void finish_from(model *m, phase from)
{
    if (from == DECIDED)
        assert_ok(call_update(m));
    else
        assert_ok(call_run(m));
}

static void assert_twins(model *m, model *twin)
{
    const keel_report a = model_report(m), b = model_report(twin);
    keel_counters c, d;
    assert_ok(keel_step_counters(m->step, &c));
    assert_ok(keel_step_counters(twin->step, &d));
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_equal(&c, &d, sizeof c);
    assert_memory_equal(keel_step_decision_dev(m->step), keel_step_decision_dev(twin->step),
                        sizeof(keel_decision));
    assert_true(model_digest(m) == model_digest(twin));
}

static void check_call(const row *r, phase p, bool optimizer)
{
    model m, twin;
    begin(&m, optimizer);
    begin(&twin, optimizer);
    bring_to(&m, p);
    bring_to(&twin, p);
    const keel_status status = r->call(&m);
    const char *sentence = status == KEEL_OK ? "" : keel_last_error();
    const bool as_wanted =
        r->word[p] ? status == KEEL_ERR_ORDER && strstr(sentence, r->word[p]) : status == KEEL_OK;
    if (!as_wanted)
        fail_msg("%s when %s: %s (%s)", r->name, phase_name[p], keel_status_string(status),
                 sentence);
    if (r->word[p]) {
        finish_from(&m, p);
        finish_from(&twin, p);
        assert_twins(&m, &twin);
    }
    model_end(&m);
    model_end(&twin);
}

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static void test_step_order__every_call_in_every_phase(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(with_optimizer); i++)
        for (int p = FRESH; p < PHASES; p++) check_call(&with_optimizer[i], (phase)p, true);
}

static void test_step_order__without_an_optimizer(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(without_optimizer); i++)
        for (int p = FRESH; p < PHASES; p++) check_call(&without_optimizer[i], (phase)p, false);
}

/* "accumulate may be called per bucket, each tensor once a step". */
/* New pointers end a decided step whose optimizer is the caller's: its gradients may be gone, so
 * nothing may reach for them any more. */
static void test_step_order__new_gradients_end_the_old_step(void **state)
{
    (void)state;
    float old[] = {2}, next[] = {4};
    const void *grads[] = {old};
    model m;
    model_begin(&m);
    model_add(&m, KEEL_FORMAT_F32, 1);
    m.cfg.max_norm = 1;
    model_create(&m);
    assert_ok(keel_step_rebind(m.step, 0, 1, grads));
    assert_ok(keel_step_accumulate(m.step, 0, 1, NULL));
    assert_ok(keel_step_decide(m.step, NULL));
    grads[0] = next;
    assert_ok(keel_step_rebind(m.step, 0, 1, grads));
    assert_refused(keel_step_scale_gradients(m.step, NULL), KEEL_ERR_ORDER, "step 2");
    assert_same_f32(old[0], 2.0f);
    assert_same_f32(next[0], 4.0f);
    assert_ok(keel_step_run(m.step, NULL));
    assert_same_f64(model_report(&m).norm, 4.0);
    model_end(&m);
}

static void test_step_order__buckets_in_any_order_are_one_step(void **state)
{
    (void)state;
    model m, twin;
    begin(&m, true);
    begin(&twin, true);
    assert_ok(call_accumulate_last(&m));
    assert_ok(keel_step_accumulate(m.step, 1, 0, NULL));
    assert_ok(call_accumulate_first(&m));
    assert_ok(call_decide(&m));
    assert_ok(call_update(&m));
    assert_ok(call_run(&twin));
    assert_true(model_digest(&m) == model_digest(&twin));
    model_end(&m);
    model_end(&twin);
}

/* keel_step_run: "accumulate all that is left, decide, update". */
static void test_step_order__run_takes_what_is_left(void **state)
{
    (void)state;
    for (int first = 0; first < ROWS; first++) {
        model m, twin;
        begin(&m, true);
        begin(&twin, true);
        assert_ok(keel_step_accumulate(m.step, first, 1, NULL));
        assert_ok(call_run(&m));
        assert_ok(call_run(&twin));
        assert_true(model_digest(&m) == model_digest(&twin));
        model_end(&m);
        model_end(&twin);
    }
}

/* "Before decide: the partial results." Nothing of an abandoned step is in the next one. */
static void test_step_order__abandon_before_decide_forgets(void **state)
{
    (void)state;
    model m, twin;
    begin(&m, true);
    begin(&twin, true);
    assert_ok(call_accumulate_all(&m));
    assert_ok(call_veto(&m));
    assert_ok(call_abandon(&m));
    assert_ok(call_abandon(&m));
    assert_ok(call_run(&m));
    assert_ok(call_run(&twin));
    assert_int_equal(model_report(&m).applied, 1);
    assert_true(model_digest(&m) == model_digest(&twin));
    model_end(&m);
    model_end(&twin);
}

/* "Between decide and update: what decide changed is put back, except the step number, whose
 * report stays."  huggingface/accelerate#439: a step the caller drops leaves nothing half done. */
static void test_step_order__abandon_after_decide_puts_back(void **state)
{
    (void)state;
    model m, twin;
    begin(&m, true);
    begin(&twin, true);
    assert_ok(call_accumulate_all(&m));
    assert_ok(call_veto(&m));
    assert_ok(call_decide(&m));
    assert_ok(call_abandon(&m));
    assert_int_equal(model_report(&m).step, 1);
    assert_int_equal(model_report(&m).applied, 0);
    assert_ok(call_run(&m));
    assert_ok(call_run(&twin));
    keel_report a = model_report(&m);
    const keel_report b = model_report(&twin);
    assert_int_equal(a.step, 2);
    a.step = b.step;
    assert_memory_equal(&a, &b, sizeof a);
    for (int i = 0; i < ROWS; i++)
        assert_memory_equal(m.params[i].master, twin.params[i].master, NUMEL * sizeof(float));
    model_end(&m);
    model_end(&twin);
}

/* "no tensors: legal": a step of nothing is applied, with norm 0 and coefficient 1. */
static void test_step_order__a_step_without_params(void **state)
{
    (void)state;
    for (int optimizer = 0; optimizer < 2; optimizer++) {
        model m;
        model_begin(&m);
        m.cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
        m.cfg.max_norm = 1;
        if (optimizer) model_group(&m, KEEL_GROUP_SGD(1));
        model_create(&m);
        for (int i = 1; i <= 3; i++) {
            assert_ok(keel_step_accumulate(m.step, 0, 0, NULL));
            assert_ok(call_decide(&m));
            assert_ok(call_update(&m));
            const keel_report r = model_report(&m);
            assert_int_equal(r.step, i);
            assert_int_equal(r.applied, 1);
            assert_int_equal(r.elements, 0);
            assert_same_f64(r.norm, 0.0);
            assert_same_f32(r.clip_coef, 1.0f);
        }
        assert_ok(call_run(&m));
        model_end(&m);
    }
}

/* Bad arguments are refused and change nothing; pytorch/pytorch#31367: a negative threshold too. */
static void test_step_order__bad_arguments_change_nothing(void **state)
{
    (void)state;
    model m, twin;
    begin(&m, true);
    begin(&twin, true);
    const void *null_grad[] = {NULL};
    const keel_group sgd = KEEL_GROUP_SGD(1);
    keel_group bad_lr = m.groups[0];
    bad_lr.lr = -1;
    assert_refused(keel_step_accumulate(m.step, 1, 2, NULL), KEEL_ERR_INVALID, "params [1, +2)");
    assert_refused(keel_step_accumulate(m.step, -1, 1, NULL), KEEL_ERR_INVALID, "params [-1");
    assert_refused(keel_step_accumulate(m.step, INT64_MAX, INT64_MAX, NULL), KEEL_ERR_INVALID,
                   "params");
    assert_refused(keel_step_probe(m.step, 0, 3, NULL, NULL), KEEL_ERR_INVALID, "params [0, +3)");
    assert_refused(keel_step_probe(m.step, 0, 1, null_grad, NULL), KEEL_ERR_INVALID, "'a'");
    assert_refused(keel_step_rebind(m.step, 0, 1, null_grad), KEEL_ERR_INVALID, "'a'");
    assert_refused(keel_step_rebind(m.step, 0, 1, NULL), KEEL_ERR_INVALID, "grads");
    assert_refused(keel_step_check_loss(m.step, NULL, NULL), KEEL_ERR_INVALID, "loss is NULL");
    assert_refused(keel_step_set_group(m.step, 1, &m.groups[0]), KEEL_ERR_INVALID, "index=1");
    assert_refused(keel_step_set_group(m.step, 0, &sgd), KEEL_ERR_INVALID, "cannot change");
    assert_refused(keel_step_set_group(m.step, 0, &bad_lr), KEEL_ERR_INVALID, "lr");
    assert_refused(keel_step_set_max_norm(m.step, -1), KEEL_ERR_INVALID, "max_norm=-1");
    assert_refused(keel_step_set_max_norm(m.step, NAN), KEEL_ERR_INVALID, "max_norm=");
    assert_refused(keel_step_set_grad_divisor(m.step, 0, NULL), KEEL_ERR_INVALID, "divisor=0");
    assert_refused(keel_step_set_grad_divisor(m.step, INFINITY, NULL), KEEL_ERR_INVALID, "inf");
    assert_refused(keel_step_set_grad_divisor(m.step, NAN, NULL), KEEL_ERR_INVALID, "divisor=");
    assert_ok(call_run(&m));
    assert_ok(call_run(&twin));
    assert_twins(&m, &twin);
    model_end(&m);
    model_end(&twin);
}

static void test_step_order__null_is_refused_by_every_call(void **state)
{
    (void)state;
    model none = {.step = NULL};
    for (size_t i = 0; i < COUNT_OF(with_optimizer); i++)
        assert_refused(with_optimizer[i].call(&none), KEEL_ERR_INVALID, "NULL");
    assert_null(keel_step_decision_dev(NULL));
    assert_null(keel_step_param_name(NULL, 0));
    assert_int_equal(keel_step_state_size(NULL), 0);
    keel_step_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_order__every_call_in_every_phase),
        cmocka_unit_test(test_step_order__without_an_optimizer),
        cmocka_unit_test(test_step_order__new_gradients_end_the_old_step),
        cmocka_unit_test(test_step_order__buckets_in_any_order_are_one_step),
        cmocka_unit_test(test_step_order__run_takes_what_is_left),
        cmocka_unit_test(test_step_order__abandon_before_decide_forgets),
        cmocka_unit_test(test_step_order__abandon_after_decide_puts_back),
        cmocka_unit_test(test_step_order__a_step_without_params),
        cmocka_unit_test(test_step_order__bad_arguments_change_nothing),
        cmocka_unit_test(test_step_order__null_is_refused_by_every_call),
    };
    return cmocka_run_group_tests_name("runtime.step_order", tests, NULL, NULL);
}

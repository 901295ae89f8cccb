/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What a step costs, counted where it happens; memory through a wrapped allocator.
 *
 * "Budget of a step, whatever the number of tensors: gradients read twice and written never; one
 * collective; no host synchronisation; no allocation after create; at most five kernel launches."
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "check.h"
#include "model.h"
#include "ranks.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *memory);

static atomic_long allocations; /* so far */
static atomic_long living;
static atomic_long fail_at = -1; /* this allocation from now fails; -1 = none */

static bool may_allocate(void)
{
    allocations++;
    if (atomic_load(&fail_at) >= 0 && fail_at-- == 0) return false;
    living++;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return may_allocate() ? __real_calloc(count, size) : NULL;
}

void *__wrap_realloc(void *memory, size_t size)
{
    allocations++;
    living += !memory;
    return __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return may_allocate() ? __real_aligned_alloc(alignment, size) : NULL;
}

void __wrap_free(void *memory)
{
    living -= memory != NULL;
    __real_free(memory);
}

enum { EACH = 4, RUNS = 100 };

/* Many small tensors in one block of memory. */
typedef struct crowd {
    int64_t count;
    keel_param *params;
    float *memory; /* gradients, then masters */
} crowd;

static crowd crowd_make(int64_t count)
{
    crowd c = {.count = count};
    c.params = calloc((size_t)count, sizeof *c.params);
    c.memory = calloc((size_t)count * EACH * 2, sizeof *c.memory);
    assert_true(c.params && c.memory);
    for (int64_t i = 0; i < count; i++) {
        c.params[i] = KEEL_PARAM_INIT;
        c.params[i].grad =
            (keel_tensor){.data = c.memory + i * EACH, .numel = EACH, .format = KEEL_FORMAT_F32};
        c.params[i].master = c.memory + (count + i) * EACH;
        c.memory[i * EACH] = 1;
    }
    return c;
}

static void crowd_free(crowd *c)
{
    free(c->params);
    free(c->memory);
}

static keel_counters counted(const keel_step *step)
{
    keel_counters counters;
    assert_ok(keel_step_counters(step, &counters));
    return counters;
}

typedef struct cost {
    int64_t tensors;
    keel_counters counters[RANKS_MAX];
    atomic_int created;
} cost;

/* Ranks wait for each other after create, so that one's create is not counted in another's run. */
static void run_crowd(int32_t rank, keel_comm *comm, void *context)
{
    cost *k = context;
    crowd c = crowd_make(k->tensors);
    const keel_group sgd = KEEL_GROUP_SGD(0.5);
    keel_config cfg = KEEL_CONFIG_INIT;
    keel_step *step;
    cfg.comm = comm;
    cfg.groups = &sgd;
    cfg.group_count = 1;
    cfg.max_norm = 1;
    assert_ok(keel_step_create(&cfg, c.params, c.count, NULL, 0, &step));
    k->created++;
    assert_ok(keel_comm_reduce(comm, NULL, 0, NULL, 0, 0));
    const long before = allocations;
    for (int i = 0; i < RUNS; i++) {
        float loss = 1;
        assert_ok(keel_step_accumulate(step, 0, c.count, NULL));
        assert_ok(keel_step_decide(step, NULL));
        assert_ok(keel_step_update(step, NULL));
        assert_ok(keel_step_loss_scale(step, &loss));
    }
    assert_int_equal(allocations, before);
    assert_ok(keel_comm_reduce(comm, NULL, 0, NULL, 0, 0));
    k->counters[rank] = counted(step);
    assert_same_f32(c.params[0].master[1], 0.0f);
    assert_true(c.params[c.count - 1].master[0] < 0);
    keel_step_destroy(step);
    crowd_free(&c);
}

/* pytorch/pytorch#13666: the same collectives and waits for 1,000 and for 16,000 tensors. */
static void test_budget__does_not_grow_with_the_number_of_tensors(void **state)
{
    (void)state;
    static const int64_t tensors[] = {1, 1000, 16000};
    for (int i = 0; i < 3; i++)
        for (int32_t nranks = 1; nranks <= 2; nranks++) {
            cost k = {.tensors = tensors[i]};
            ranks_run(nranks, run_crowd, &k);
            for (int32_t r = 0; r < nranks; r++) {
                const keel_counters *c = &k.counters[r];
                assert_int_equal(c->rounds, RUNS);
                assert_int_equal(c->host_syncs, 0);
                assert_in_range(c->launches, RUNS, 5 * RUNS);
                assert_int_equal(c->grad_elements_read, 2 * RUNS * EACH * tensors[i]);
                assert_int_equal(c->grad_elements_written, 0);
                assert_int_equal(c->probe_elements_read, 0);
            }
        }
}

/* Every kind of call of a step, not only the usual three. */
static void test_budget__no_call_allocates_after_create(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    model_group(&m, KEEL_GROUP_ADAMW(0.1));
    m.cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
    for (int i = 0; i < 6; i++) model_copy(model_add(&m, (keel_format)(i % 5 + 1), 3000), 4);
    model_create(&m);
    unsigned char blob[4096];
    char line[2048];
    const float loss = INFINITY;
    const void *const grads[] = {m.params[0].grad.data};
    const long before = allocations;
    for (int i = 0; i < 4; i++) {
        keel_report r;
        assert_ok(keel_step_prime(m.step, NULL));
        assert_ok(keel_step_rebind(m.step, 0, 1, grads));
        assert_ok(keel_step_set_tag(m.step, 1));
        assert_ok(keel_step_set_group(m.step, 0, &m.groups[0]));
        assert_ok(keel_step_probe(m.step, 0, 6, NULL, NULL));
        if (i == 1) assert_ok(keel_step_check_loss(m.step, &loss, NULL));
        if (i == 2) assert_ok(keel_step_veto(m.step, NULL));
        assert_refused(keel_step_update(m.step, NULL), KEEL_ERR_ORDER, "expected");
        model_run(&m);
        assert_ok(keel_step_accumulate(m.step, 0, 6, NULL));
        assert_ok(keel_step_decide(m.step, NULL));
        if (i == 3)
            assert_ok(keel_step_abandon(m.step, NULL));
        else
            assert_ok(keel_step_scale_gradients(m.step, NULL));
        assert_ok(keel_step_report(m.step, 0, &r));
        assert_ok(keel_report_json(&r, "w", line, sizeof line, NULL));
        assert_ok(keel_step_state_save(m.step, blob, sizeof blob));
        assert_ok(keel_step_state_load(m.step, blob, keel_step_state_size(m.step)));
    }
    assert_int_equal(allocations, before);
    model_end(&m);
}

/* "one extra write, counted"; "costs one extra read, counted"; a skip reads nothing again. */
static void test_budget__counters_tell_the_passes(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    model_group(&m, KEEL_GROUP_SGD(1));
    keel_group none;
    memset(&none, 0, sizeof none);
    model_add(&m, KEEL_FORMAT_F32, 100);
    model_add(&m, KEEL_FORMAT_F32, 7)->group = model_group(&m, none);
    model_create(&m);
    model_run(&m); /* 107 read, 100 read again by the optimizer */
    assert_int_equal(counted(m.step).grad_elements_read, 207);
    assert_ok(keel_step_accumulate(m.step, 0, 2, NULL));
    assert_ok(keel_step_decide(m.step, NULL));
    assert_ok(keel_step_scale_gradients(m.step, NULL));
    assert_int_equal(counted(m.step).grad_elements_read, 207 + 214);
    assert_int_equal(counted(m.step).grad_elements_written, 107);
    assert_ok(keel_step_probe(m.step, 1, 1, NULL, NULL));
    assert_int_equal(counted(m.step).probe_elements_read, 7);
    model_set(&m.params[1], 3, NAN);
    model_run(&m);
    assert_int_equal(counted(m.step).grad_elements_read, 207 + 214 + 107);
    assert_int_equal(counted(m.step).grad_elements_written, 107);
    assert_int_equal(counted(m.step).rounds, 3);
    assert_refused(keel_step_update(m.step, NULL), KEEL_ERR_ORDER, "expected");
    assert_int_equal(counted(m.step).rounds, 3);
    model_end(&m);
}

/* The k-th allocation of create and of verify fails, for every k: an error, nothing leaked, the
 * output untouched. */
static void test_budget__every_allocation_may_fail(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    model_group(&m, KEEL_GROUP_SGD(1));
    for (int i = 0; i < 3; i++) model_add(&m, KEEL_FORMAT_F32, 3)->name = i ? "w" : NULL;
    keel_status status = KEEL_ERR_NO_MEMORY;
    for (int k = 0; status != KEEL_OK; k++) {
        const long before = living;
        fail_at = k;
        status = keel_step_create(&m.cfg, m.params, m.count, NULL, 0, &m.step);
        fail_at = -1;
        if (status == KEEL_OK) break;
        assert_int_equal(status, KEEL_ERR_NO_MEMORY);
        assert_null(m.step);
        assert_int_equal(living, before);
        assert_in_range(k, 0, 50);
    }
    for (int k = 0; k < 2; k++) {
        const long before = living;
        fail_at = k;
        assert_refused(keel_step_verify(m.step), KEEL_ERR_NO_MEMORY, "ids");
        fail_at = -1;
        assert_int_equal(living, before);
    }
    assert_ok(keel_step_verify(m.step));
    model_run(&m);
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget__does_not_grow_with_the_number_of_tensors),
        cmocka_unit_test(test_budget__no_call_allocates_after_create),
        cmocka_unit_test(test_budget__counters_tell_the_passes),
        cmocka_unit_test(test_budget__every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("runtime.budget", tests, NULL, NULL);
}

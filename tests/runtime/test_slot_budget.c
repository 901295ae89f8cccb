/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What slots cost a step: no memory after create, no round and no wait of their own, one launch a
 * cast.  Memory through a wrapped allocator. */
#include <stdatomic.h>

#include "model.h"
#include "slots.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static atomic_long allocations; /* so far */

void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    allocations++;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    allocations++;
    return __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    allocations++;
    return __real_aligned_alloc(alignment, size);
}

enum { ACT, GRAD, WEIGHT, SLOTS, STEPS = 20, BLOB_MAX = 8192 };

/* A model with a slot of every role. */
static void begin(model *m, keel_slot *slots, float *scale_inv)
{
    slots[ACT] = slot_of(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3, 16);
    slots[GRAD] = slot_of(KEEL_SLOT_GRADIENT, KEEL_FORMAT_E5M2, 16);
    slots[WEIGHT] = slot_of(KEEL_SLOT_WEIGHT, KEEL_FORMAT_E4M3, 16);
    model_begin(m);
    model_group(m, KEEL_GROUP_SGD(0.5));
    keel_param *p = model_add_f32(m, 2, (const float[]){1, 2});
    model_copy(p, KEEL_FORMAT_E4M3);
    p->copy_slot = WEIGHT;
    p->copy_scale_inv = scale_inv;
    m->cfg.slots = slots;
    m->cfg.slot_count = SLOTS;
    model_create(m);
}

static void test_slot_budget__no_call_allocates_after_create(void **state)
{
    (void)state;
    static model m;
    static unsigned char blob[BLOB_MAX];
    keel_slot slots[SLOTS];
    float scale_inv;
    begin(&m, slots, &scale_inv);
    const long before = allocations;
    assert_true(before > 0); /* the wrapper counts */
    for (int i = 0; i < STEPS; i++) {
        assert_ok(keel_step_prime(m.step, NULL));
        slot_quantize_one(m.step, ACT, i == 7 ? INFINITY : 2);
        slot_quantize_one(m.step, GRAD, i == 9 ? NAN : 2);
        model_run(&m);
        slots[ACT].history = 1 + i % 16;
        assert_ok(keel_step_set_slot(m.step, ACT, &slots[ACT]));
        slot_report(m.step, ACT);
        assert_ok(keel_step_state_save(m.step, blob, sizeof blob));
        assert_ok(keel_step_state_load(m.step, blob, keel_step_state_size(m.step)));
        slot_quantize_one(m.step, ACT, 3);
        assert_ok(keel_step_abandon(m.step, NULL));
    }
    assert_int_equal(allocations, before);
    model_end(&m);
}

static void test_slot_budget__casts_cost_a_launch_and_no_round(void **state)
{
    (void)state;
    static model m;
    keel_slot slots[SLOTS];
    keel_counters before, after;
    float scale_inv;
    begin(&m, slots, &scale_inv);
    assert_ok(keel_step_prime(m.step, NULL));
    for (int casts = 0; casts < 9; casts++) {
        assert_ok(keel_step_counters(m.step, &before));
        for (int i = 0; i < casts; i++) slot_quantize_one(m.step, i % 2, 2);
        model_run(&m);
        assert_ok(keel_step_counters(m.step, &after));
        assert_int_equal(after.rounds - before.rounds, 1);
        assert_int_equal(after.host_syncs, 0);
        assert_in_range(after.launches - before.launches, casts + 1, casts + 5);
        assert_int_equal(after.grad_elements_read - before.grad_elements_read, 4);
    }
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot_budget__no_call_allocates_after_create),
        cmocka_unit_test(test_slot_budget__casts_cost_a_launch_and_no_round),
    };
    return cmocka_run_group_tests_name("runtime.slot_budget", tests, NULL, NULL);
}

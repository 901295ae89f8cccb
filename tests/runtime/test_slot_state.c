/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The slots' part of a state blob: a run that is saved, loaded into a fresh step and primed goes on
 * bit for bit; blobs that are cut, flipped, bent or of other slots are refused whole. */
#include <math.h>
#include <stdlib.h>

#include "model.h"
#include "random.h"
#include "ranks.h"
#include "seal.h"
#include "slots.h"

enum { ACT, GRAD, WEIGHT, TE_ACT, NOW, SLOTS, NUMEL = 20, STEPS = 12, BLOB_MAX = 4096 };

typedef struct world {
    model m;
    keel_slot slots[SLOTS];
    float scale_inv;
    slot_cast casts[SLOTS]; /* of the last step */
} world;

typedef struct blob {
    unsigned char bytes[BLOB_MAX];
    size_t size;
} blob;

static void fill_slots(keel_slot *slots)
{
    slots[ACT] = slot_of(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3, 5);
    slots[GRAD] = slot_of(KEEL_SLOT_GRADIENT, KEEL_FORMAT_E5M2, 3);
    slots[WEIGHT] = slot_of(KEEL_SLOT_WEIGHT, KEEL_FORMAT_E4M3, 3);
    slots[TE_ACT] = slot_of(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3, 4);
    slots[TE_ACT].policy = KEEL_SLOT_POLICY_TE;
    slots[NOW] = slot_of(KEEL_SLOT_FORWARD, KEEL_FORMAT_E4M3, 2);
    slots[NOW].scaling = KEEL_SCALING_CURRENT;
}

/* A loss scale that moves, an optimizer with memory, and a slot of every kind. */
static world *world_make(keel_comm *comm)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    model_begin(&w->m);
    model_group(&w->m, KEEL_GROUP_ADAMW(0.125));
    fill_slots(w->slots);
    w->m.cfg.comm = comm;
    w->m.cfg.slots = w->slots;
    w->m.cfg.slot_count = SLOTS;
    w->m.cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
    w->m.cfg.loss_scale.init = 1024;
    w->m.cfg.loss_scale.interval = 2;
    w->m.cfg.rate_window = 5;
    keel_param *p = model_add(&w->m, KEEL_FORMAT_F32, NUMEL);
    model_copy(p, KEEL_FORMAT_E4M3);
    p->copy_slot = WEIGHT;
    p->copy_scale_inv = &w->scale_inv;
    for (int i = 0; i < NUMEL; i++) p->master[i] = ldexpf(1, -i);
    model_create(&w->m);
    return w;
}

static void world_free(world *w)
{
    model_end(&w->m);
    free(w);
}

/* The same casts and gradients for the same step and rank; some slots rest, some sources are not
 * finite, some steps are skipped or abandoned, and slots change on the way. */
static void run_step(world *w, int step, int32_t rank)
{
    random_source r = random_begin((uint64_t)step * 64 + (uint64_t)rank);
    random_source common = random_begin((uint64_t)step);
    for (int i = 0; i < SLOTS; i++) {
        float values[3] = {random_unit(&r), random_unit(&r) * 8, 0};
        const int fate = (int)random_below(&r, 12);
        if (i != GRAD && fate == 0) values[2] = INFINITY;
        if (i == TE_ACT && fate == 1) values[2] = NAN;
        if (i != WEIGHT && fate != 2) w->casts[i] = slot_quantize(w->m.step, i, values, 3);
    }
    const bool vetoed = random_below(&common, 5) == 0, abandoned = random_below(&common, 5) == 0;
    const bool overflows = random_below(&common, 5) == 0;
    for (int i = 0; i < NUMEL; i++) model_set(&w->m.params[0], i, random_unit(&common) * 256);
    if (overflows) model_set(&w->m.params[0], 3, INFINITY);
    if (vetoed) assert_ok(keel_step_veto(w->m.step, NULL));
    if (abandoned) {
        assert_ok(keel_step_accumulate(w->m.step, 0, 1, NULL));
        assert_ok(keel_step_decide(w->m.step, NULL));
        assert_ok(keel_step_abandon(w->m.step, NULL));
        if (step % 2) return;
    }
    model_run(&w->m);
    if (step % 3) return;
    w->slots[ACT].history = 1 + (int32_t)random_below(&common, 5);
    w->slots[ACT].margin = (int32_t)random_below(&common, 2);
    assert_ok(keel_step_set_slot(w->m.step, ACT, &w->slots[ACT]));
}

/* Masters and moments are the caller's to save; copies are primed. */
static void resume(world *to, const world *from, const blob *image)
{
    const keel_param *a = &to->m.params[0], *b = &from->m.params[0];
    memcpy(a->grad.data, b->grad.data, NUMEL * sizeof(float));
    memcpy(a->master, b->master, NUMEL * sizeof(float));
    memcpy(a->moment1, b->moment1, NUMEL * sizeof(float));
    memcpy(a->moment2, b->moment2, NUMEL * sizeof(float));
    memcpy(to->slots, from->slots, sizeof to->slots);
    assert_ok(keel_step_state_load(to->m.step, image->bytes, image->size));
    assert_ok(keel_step_prime(to->m.step, NULL));
}

static blob saved(world *w)
{
    blob b = {.size = keel_step_state_size(w->m.step)};
    assert_in_range(b.size, 1, BLOB_MAX);
    assert_ok(keel_step_state_save(w->m.step, b.bytes, sizeof b.bytes));
    return b;
}

/* What a slot does and has agreed; what this rank has counted begins anew. */
static void check_same_slots(world *a, world *b)
{
    for (int i = 0; i < SLOTS; i++) {
        const keel_slot_report x = slot_report(a->m.step, i), y = slot_report(b->m.step, i);
        assert_same_f32(y.scale, x.scale);
        assert_same_f32(y.scale_inv, x.scale_inv);
        assert_same_f32(y.amax, x.amax);
        assert_int_equal(y.updates, x.updates);
        assert_int_equal(y.nonfinite_updates, x.nonfinite_updates);
    }
    assert_true(model_digest(&a->m) == model_digest(&b->m));
    assert_same_f32(b->scale_inv, a->scale_inv);
}

static void check_goes_on(world *a, world *b, int32_t rank)
{
    check_same_slots(a, b);
    for (int step = 100; step < 108; step++) {
        run_step(a, step, rank);
        run_step(b, step, rank);
        for (int i = 0; i < SLOTS; i++) {
            if (i == WEIGHT || !b->casts[i].count) continue;
            assert_memory_equal(a->casts[i].codes, b->casts[i].codes, 3);
            assert_same_f32(b->casts[i].scale_inv, a->casts[i].scale_inv);
        }
        check_same_slots(a, b);
    }
}

static void run_and_resume(int32_t rank, keel_comm *comm, void *context)
{
    const int stop = *(const int *)context;
    world *a = world_make(comm), *b = world_make(comm);
    assert_ok(keel_step_prime(a->m.step, NULL));
    for (int step = 0; step < stop; step++) run_step(a, step, rank);
    const blob image = saved(a);
    resume(b, a, &image);
    check_goes_on(a, b, rank);
    world_free(a);
    world_free(b);
}

/* At any step of a run, on one rank and on several that hold all alike. */
static void test_slot_state__resumes_bit_for_bit(void **state)
{
    (void)state;
    for (int32_t nranks = 1; nranks <= 3; nranks++)
        for (int stop = 0; stop <= STEPS; stop++) ranks_run(nranks, run_and_resume, &stop);
}

static uint64_t everything(world *w)
{
    return model_digest(&w->m);
}

/* Every prefix, and every byte flipped: refused, and nothing taken over. */
static void test_slot_state__damage_is_refused_whole(void **state)
{
    (void)state;
    world *a = world_make(NULL), *b = world_make(NULL);
    for (int step = 0; step < 5; step++) run_step(a, step, 0);
    blob image = saved(a);
    const uint64_t before = everything(b);
    for (size_t size = 0; size < image.size; size++)
        assert_refused(keel_step_state_load(b->m.step, image.bytes, size), KEEL_ERR_STATE, "");
    for (size_t i = 0; i < image.size; i++) {
        image.bytes[i] ^= (unsigned char)(1 << i % 8);
        assert_refused(keel_step_state_load(b->m.step, image.bytes, image.size), KEEL_ERR_STATE,
                       "");
        image.bytes[i] ^= (unsigned char)(1 << i % 8);
    }
    assert_true(everything(b) == before);
    resume(b, a, &image);
    world_free(a);
    world_free(b);
}

/* Sealed again, a flipped bit is either refused or makes a state that saves as it was loaded and
 * lets the next steps run with finite scales. */
static void test_slot_state__bent_blobs_harm_nothing(void **state)
{
    (void)state;
    world *a = world_make(NULL), *b = world_make(NULL);
    int refused = 0;
    for (int step = 0; step < 5; step++) run_step(a, step, 0);
    const blob image = saved(a);
    for (size_t i = 16; i < image.size - 4; i++)
        for (int bit = 0; bit < 8; bit++) {
            blob bent = image;
            bent.bytes[i] ^= (unsigned char)(1 << bit);
            seal(bent.bytes, bent.size);
            const uint64_t before = everything(b);
            if (keel_step_state_load(b->m.step, bent.bytes, bent.size) != KEEL_OK) {
                refused++;
                assert_true(everything(b) == before);
                continue;
            }
            const blob again = saved(b);
            assert_memory_equal(again.bytes, bent.bytes, bent.size);
            slot_quantize_one(b->m.step, ACT, 1);
            slot_quantize_one(b->m.step, GRAD, 1);
            model_run(&b->m);
            for (int s = 0; s < SLOTS; s++) assert_true(isfinite(slot_report(b->m.step, s).scale));
        }
    assert_true(refused > 100);
    world_free(a);
    world_free(b);
}

/* A change to the slots of the step that loads, and the word of its refusal. */
typedef struct other {
    size_t offset;
    int32_t slot, value;
    const char *word;
} other;

static const other others[] = {
    {offsetof(keel_slot, history), ACT, 6, "other groups or slots"},
    {offsetof(keel_slot, role), ACT, KEEL_SLOT_GRADIENT, "slot 0 has role 0"},
    {offsetof(keel_slot, format), GRAD, KEEL_FORMAT_E4M3, "slot 1 has role 2, format 5"},
    {offsetof(keel_slot, policy), TE_ACT, KEEL_SLOT_POLICY_KEEL, "slot 3 has role 0"},
};

static void test_slot_state__other_slots_are_refused(void **state)
{
    (void)state;
    world *a = world_make(NULL);
    const blob image = saved(a);
    for (int i = 0; i < 6; i++) {
        keel_slot slots[SLOTS];
        keel_config cfg = a->m.cfg;
        keel_step *step;
        fill_slots(slots);
        cfg.slots = slots;
        if (i < 4) memcpy((char *)&slots[others[i].slot] + others[i].offset, &others[i].value, 4);
        if (i == 4) cfg.slot_count--;
        if (i == 5) { /* two histories, exchanged: as many bytes */
            slots[ACT].history = 4;
            slots[TE_ACT].history = 5;
        }
        assert_ok(keel_step_create(&cfg, a->m.params, a->m.count, NULL, 0, &step));
        assert_refused(keel_step_state_load(step, image.bytes, image.size), KEEL_ERR_STATE,
                       i < 4    ? others[i].word
                       : i == 4 ? "slots"
                                : "slot 0");
        keel_step_destroy(step);
    }
    world_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot_state__resumes_bit_for_bit),
        cmocka_unit_test(test_slot_state__damage_is_refused_whole),
        cmocka_unit_test(test_slot_state__bent_blobs_harm_nothing),
        cmocka_unit_test(test_slot_state__other_slots_are_refused),
    };
    return cmocka_run_group_tests_name("runtime.slot_state", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The state blob.
 *
 * "One versioned little-endian blob, checksummed; save, load, resume is bit-exact at any point of
 * an interval, and across world sizes. Truncated, flipped or foreign blobs are refused whole with
 * the reason." */
#include <stdlib.h>

#include "check.h"
#include "model.h"
#include "random.h"
#include "ranks.h"
#include "seal.h"

enum { BLOB_MAX = 4096, NUMEL = 40, STEPS = 24, HEADER = 16 };

typedef struct blob {
    unsigned char bytes[BLOB_MAX];
    size_t size;
} blob;

static blob saved(model *m)
{
    blob b = {.size = keel_step_state_size(m->step)};
    assert_in_range(b.size, 1, BLOB_MAX);
    assert_ok(keel_step_state_save(m->step, b.bytes, sizeof b.bytes));
    return b;
}

/* Everything that has state: dynamic scale with hysteresis, rates, two optimizers. */
static void begin(model *m)
{
    model_begin(m);
    m->cfg.max_norm = 2;
    m->cfg.rate_window = 5;
    assert_ok(keel_loss_scale_preset("megatron", &m->cfg.loss_scale));
    m->cfg.loss_scale.init = 1024;
    m->cfg.loss_scale.interval = 4;
    model_group(m, KEEL_GROUP_ADAMW(0.125));
    keel_group momentum = KEEL_GROUP_SGD(0.125);
    momentum.momentum = 0.5;
    momentum.dampening = 0.25;
    model_group(m, momentum);
    for (int i = 0; i < 2; i++) {
        keel_param *p = model_add(m, KEEL_FORMAT_F32, NUMEL);
        p->group = i;
        model_copy(p, KEEL_FORMAT_E4M3);
        for (int j = 0; j < NUMEL; j++) p->master[j] = (float)j / NUMEL;
    }
    model_create(m);
}

/* The same gradients for the same step, of a run with clean, clipped and skipped steps. */
static void run_step(model *m, int step)
{
    random_source r = random_begin((uint64_t)step);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < NUMEL; j++)
            model_set(&m->params[i], j, random_unit(&r) * (step % 2 ? 1024 : 4096));
    if (step % 5 == 3 || step % 11 == 4) model_set(&m->params[0], step, INFINITY);
    model_run(m);
}

/* Masters and moments are the caller's to save. */
static void copy_memory(model *to, const model *from)
{
    for (int i = 0; i < 2; i++) {
        const keel_param *a = &to->params[i], *b = &from->params[i];
        memcpy(a->grad.data, b->grad.data, NUMEL * sizeof(float));
        memcpy(a->master, b->master, NUMEL * sizeof(float));
        memcpy(a->moment1, b->moment1, NUMEL * sizeof(float));
        memcpy(a->moment2, b->moment2, NUMEL * sizeof(float));
        memcpy(a->copy.data, b->copy.data, NUMEL);
    }
}

static void assert_same_reports(const model *a, const model *b)
{
    const keel_report ra = model_report(a), rb = model_report(b);
    assert_memory_equal(&ra, &rb, sizeof ra);
}

static void test_state__resumes_bit_for_bit_at_any_point(void **state)
{
    (void)state;
    for (int stop = 0; stop <= STEPS; stop++) {
        model a, b;
        begin(&a);
        for (int step = 1; step <= stop; step++) run_step(&a, step);
        const blob image = saved(&a);
        begin(&b);
        assert_ok(keel_step_state_load(b.step, image.bytes, image.size));
        copy_memory(&b, &a);
        float scale_a, scale_b;
        assert_ok(keel_step_loss_scale(a.step, &scale_a));
        assert_ok(keel_step_loss_scale(b.step, &scale_b));
        assert_same_f32(scale_b, scale_a);
        assert_true(model_digest(&a) == model_digest(&b));
        for (int step = stop + 1; step <= STEPS + 6; step++) {
            run_step(&a, step);
            run_step(&b, step);
            assert_same_reports(&a, &b);
            assert_true(model_digest(&a) == model_digest(&b));
        }
        model_end(&a);
        model_end(&b);
    }
}

/* Between a dropped step and the next one the caller may save as well. */
static void test_state__resumes_after_an_abandoned_step(void **state)
{
    (void)state;
    model a, b;
    begin(&a);
    begin(&b);
    run_step(&a, 1);
    assert_ok(keel_step_accumulate(a.step, 0, 2, NULL));
    assert_ok(keel_step_decide(a.step, NULL));
    assert_ok(keel_step_abandon(a.step, NULL));
    const blob image = saved(&a);
    assert_ok(keel_step_state_load(b.step, image.bytes, image.size));
    copy_memory(&b, &a);
    run_step(&a, 3);
    run_step(&b, 3);
    assert_same_reports(&a, &b);
    assert_true(model_digest(&a) == model_digest(&b));
    model_end(&a);
    model_end(&b);
}

/* huggingface/accelerate#4289: after a resume the growth counter goes on where it was. */
static void test_state__the_growth_counter_survives(void **state)
{
    (void)state;
    model a, b;
    for (int i = 0; i < 2; i++) {
        model *m = i ? &b : &a;
        model_begin(m);
        m->cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
        m->cfg.loss_scale.init = i ? 8 : 1024; /* the blob brings the configuration along */
        m->cfg.loss_scale.interval = i ? 9 : 4;
        m->cfg.loss_scale.min = i ? 1 : 0.5f;
        model_group(m, KEEL_GROUP_SGD(1));
        model_add_f32(m, 1, (float[]){2048});
        model_create(m);
    }
    for (int i = 0; i < 3; i++) model_run(&a);
    const blob image = saved(&a);
    assert_ok(keel_step_state_load(b.step, image.bytes, image.size));
    const blob again = saved(&b);
    assert_memory_equal(image.bytes, again.bytes, image.size);
    model_run(&b);
    assert_same_f32(b.params[0].master[0], -2.0f); /* unscaled by 1024 */
    float scale;
    assert_ok(keel_step_loss_scale(b.step, &scale));
    assert_same_f32(scale, 2048.0f);
    assert_int_equal(model_report(&b).step, 4);
    assert_int_equal(model_report(&b).applied_steps, 4);
    model_end(&a);
    model_end(&b);
}

/* A step that has a state of its own, to see that refused blobs leave it alone. */
static void begin_victim(model *m)
{
    begin(m);
    for (int step = 30; step < 33; step++) run_step(m, step);
}

static void assert_refuses(model *victim, uint64_t before, const unsigned char *bytes, size_t size,
                           const char *word)
{
    check_refused(keel_step_state_load(victim->step, bytes, size), KEEL_ERR_STATE, word,
                  "keel_step_state_load", __FILE__, __LINE__);
    assert_true(model_digest(victim) == before);
}

static blob some_blob(void)
{
    model m;
    begin(&m);
    for (int step = 1; step < 8; step++) run_step(&m, step);
    const blob b = saved(&m);
    model_end(&m);
    return b;
}

/* rwth-i6/returnn#1444: "load every prefix of length 0 ... n-1; append one byte". */
static void test_state__every_prefix_is_refused(void **state)
{
    (void)state;
    model m;
    begin_victim(&m);
    const uint64_t before = model_digest(&m);
    const blob good = some_blob();
    for (size_t size = 0; size < good.size; size++) {
        unsigned char *exact = malloc(size + 1); /* so that a read past the end is seen */
        assert_non_null(exact);
        memcpy(exact, good.bytes, size);
        assert_refuses(&m, before, exact, size, "truncated");
        free(exact);
    }
    blob longer = good;
    longer.bytes[longer.size++] = 0;
    assert_refuses(&m, before, longer.bytes, longer.size, "too long");
    model_end(&m);
}

static void test_state__every_flipped_bit_is_refused(void **state)
{
    (void)state;
    model m;
    begin_victim(&m);
    const uint64_t before = model_digest(&m);
    blob b = some_blob();
    for (size_t at = 0; at < b.size; at++)
        for (int bit = 0; bit < 8; bit++) {
            b.bytes[at] ^= (unsigned char)(1 << bit);
            assert_refuses(&m, before, b.bytes, b.size, "keel_step_state_load: ");
            b.bytes[at] ^= (unsigned char)(1 << bit);
        }
    assert_ok(keel_step_state_load(m.step, b.bytes, b.size));
    model_end(&m);
}

static void test_state__sentences_say_what_is_wrong(void **state)
{
    (void)state;
    model m;
    begin_victim(&m);
    const uint64_t before = model_digest(&m);
    blob b = some_blob();
    b.bytes[0] = 'k';
    assert_refuses(&m, before, b.bytes, b.size, "foreign");
    b = some_blob();
    b.bytes[8] = 2;
    assert_refuses(&m, before, b.bytes, b.size, "version 2");
    b = some_blob();
    b.bytes[HEADER + 20] ^= 1;
    assert_refuses(&m, before, b.bytes, b.size, "checksum");
    assert_refused(keel_step_state_load(m.step, NULL, 5), KEEL_ERR_INVALID, "buffer is NULL");
    assert_refused(keel_step_state_save(m.step, NULL, 5), KEEL_ERR_INVALID, "buffer is NULL");
    memset(b.bytes, 0x77, sizeof b.bytes);
    assert_refused(keel_step_state_save(m.step, b.bytes, b.size - 1), KEEL_ERR_INVALID, "size=");
    for (size_t i = 0; i < sizeof b.bytes; i++) assert_int_equal(b.bytes[i], 0x77);
    model_end(&m);
}

/* "or of a step with other groups": number, optimizers, norm mode, window. */
static void test_state__other_steps_are_refused(void **state)
{
    (void)state;
    static const char *const words[] = {"other groups", "group 1 has optimizer", "norm mode 0",
                                        "rate window 5"};
    const blob b = some_blob();
    for (int what = 0; what < 4; what++) {
        model m;
        model_begin(&m);
        m.cfg.rate_window = what == 3 ? 6 : 5;
        m.cfg.norm_mode = what == 2 ? KEEL_NORM_BLOCK : KEEL_NORM_EXACT;
        model_group(&m, KEEL_GROUP_ADAMW(0.1));
        if (what > 0) model_group(&m, what == 1 ? KEEL_GROUP_ADAMW(1) : KEEL_GROUP_SGD(1));
        model_create(&m);
        assert_refuses(&m, model_digest(&m), b.bytes, b.size, words[what]);
        model_end(&m);
    }
}

/* The ring holds what this step decided; what it decided before a load is another history's. */
static void test_state__reports_begin_after_a_load(void **state)
{
    (void)state;
    unsigned char bytes[4096];
    keel_report r;
    model m;
    model_begin(&m);
    model_add_f32(&m, 1, (float[]){1});
    model_create(&m);
    model_run(&m);
    model_run(&m);
    const size_t size = keel_step_state_size(m.step);
    assert_ok(keel_step_state_save(m.step, bytes, size));
    model_set(&m.params[0], 0, NAN);
    model_run(&m);
    assert_ok(keel_step_state_load(m.step, bytes, size));
    for (int64_t id = 0; id <= 3; id++)
        assert_refused(keel_step_report(m.step, id, &r), KEEL_ERR_NOT_FOUND, "");
    assert_refused(keel_step_report(m.step, 0, &r), KEEL_ERR_NOT_FOUND, "state was loaded");
    model_set(&m.params[0], 0, 1);
    model_run(&m);
    assert_ok(keel_step_report(m.step, 3, &r));
    assert_int_equal(r.applied, 1);
    assert_refused(keel_step_report(m.step, 2, &r), KEEL_ERR_NOT_FOUND, "state was loaded");
    model_end(&m);
}

/* A blob with a right checksum and wrong contents could be of other hands.  Whatever its words are:
 * refused and nothing changed, or taken and usable. */
static void test_state__sealed_nonsense_never_does_harm(void **state)
{
    (void)state;
    const blob good = some_blob();
    static const unsigned char patterns[] = {0x00, 0x7f, 0x80, 0xff};
    for (size_t at = HEADER; at + 4 < good.size; at += 4)
        for (int p = 0; p < 4; p++)
            for (int width = 4; width <= 8 && at + (size_t)width + 4 <= good.size; width += 4) {
                model m;
                begin_victim(&m);
                const uint64_t before = model_digest(&m);
                blob b = good;
                memset(b.bytes + at, patterns[p], (size_t)width);
                seal(b.bytes, b.size);
                const keel_status status = keel_step_state_load(m.step, b.bytes, b.size);
                if (status == KEEL_OK) {
                    float scale;
                    for (int step = 1; step < 9; step++) run_step(&m, step);
                    assert_ok(keel_step_loss_scale(m.step, &scale));
                    assert_true(scale >= 0x1p-126f && scale <= 0x1p126f);
                    const keel_report r = model_report(&m);
                    assert_true(r.skip_rate >= 0 && r.skip_rate <= 1);
                    assert_true(r.clip_rate >= 0 && r.clip_rate <= 1);
                } else {
                    assert_int_equal(status, KEEL_ERR_STATE);
                    assert_true(model_digest(&m) == before);
                }
                model_end(&m);
            }
}

/* "the same on every rank, for any number of ranks". */
typedef struct world {
    blob blobs[RANKS_MAX];
    const blob *load;
} world;

static void run_world(int32_t rank, keel_comm *comm, void *context)
{
    world *w = context;
    model m;
    model_begin(&m);
    m.cfg.comm = comm;
    m.cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
    m.cfg.loss_scale.interval = 3;
    model_group(&m, KEEL_GROUP_ADAMW(0.5));
    model_add_f32(&m, 1, (float[]){1});
    model_create(&m);
    if (w->load) assert_ok(keel_step_state_load(m.step, w->load->bytes, w->load->size));
    for (int i = 0; i < 4; i++) {
        model_set(&m.params[0], 0, i == 2 ? NAN : 1);
        model_run(&m);
    }
    w->blobs[rank] = saved(&m);
    model_end(&m);
}

static void test_state__is_the_same_for_any_number_of_ranks(void **state)
{
    (void)state;
    world *first = calloc(1, sizeof *first), *w = calloc(1, sizeof *w);
    assert_true(first && w);
    ranks_run(1, run_world, first);
    for (int32_t n = 1; n <= 5; n += 2) {
        w->load = NULL;
        ranks_run(n, run_world, w);
        for (int32_t r = 0; r < n; r++)
            assert_memory_equal(w->blobs[r].bytes, first->blobs[0].bytes, first->blobs[0].size);
    }
    first->load = w->load = &first->blobs[1]; /* saved by one rank, loaded by three */
    first->blobs[1] = first->blobs[0];
    ranks_run(3, run_world, w);
    ranks_run(1, run_world, first);
    for (int32_t r = 0; r < 3; r++)
        assert_memory_equal(w->blobs[r].bytes, first->blobs[0].bytes, first->blobs[0].size);
    free(first);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state__resumes_bit_for_bit_at_any_point),
        cmocka_unit_test(test_state__resumes_after_an_abandoned_step),
        cmocka_unit_test(test_state__the_growth_counter_survives),
        cmocka_unit_test(test_state__every_prefix_is_refused),
        cmocka_unit_test(test_state__every_flipped_bit_is_refused),
        cmocka_unit_test(test_state__sentences_say_what_is_wrong),
        cmocka_unit_test(test_state__other_steps_are_refused),
        cmocka_unit_test(test_state__reports_begin_after_a_load),
        cmocka_unit_test(test_state__sealed_nonsense_never_does_harm),
        cmocka_unit_test(test_state__is_the_same_for_any_number_of_ranks),
    };
    return cmocka_run_group_tests_name("runtime.state", tests, NULL, NULL);
}

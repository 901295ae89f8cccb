/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The transformer learns: from a loss that knows nothing, by plain descent and through keel_step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpt.h"
#include "gpt_text.h"

enum { SEQUENCES = 4, PERIOD = 90 };

static const gpt_config small = {2, 32, 4, 32};

typedef struct fixture {
    gpt *g;
    gpt_text text;
    int count;
    float *params, *grad, *moment1, *moment2;
} fixture;

static float *floats(int count)
{
    return calloc((size_t)count, sizeof(float));
}

/* A sentence over and over, so that there is something to learn in a few steps. */
static bool fill_text(gpt_text *text)
{
    static const char sentence[PERIOD + 1] = "the ranks agree on one scale, and no step is taken "
                                             "on a gradient that is not a number.   \n";
    *text = (gpt_text){malloc(50 * PERIOD), 50 * PERIOD, 45 * PERIOD};
    if (!text->bytes) return false;
    for (int i = 0; i < text->count; i++) text->bytes[i] = (uint8_t)sentence[i % PERIOD];
    return true;
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f || !fill_text(&f->text)) return -1;
    f->g = gpt_create(&small, SEQUENCES, NULL);
    if (!f->g) return -1;
    f->count = gpt_param_count(&small);
    f->params = floats(f->count);
    f->grad = floats(f->count);
    f->moment1 = floats(f->count);
    f->moment2 = floats(f->count);
    if (!f->params || !f->grad || !f->moment1 || !f->moment2) return -1;
    gpt_init(&small, f->params, 1);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    gpt_destroy(f->g);
    gpt_text_free(&f->text);
    free(f->params);
    free(f->grad);
    free(f->moment1);
    free(f->moment2);
    free(f);
    return 0;
}

static float descend(fixture *f, int step)
{
    uint8_t tokens[SEQUENCES * 33];
    float loss;
    for (int s = 0; s < SEQUENCES; s++)
        gpt_text_draw(&f->text, small.context, 1, (uint64_t)(step * SEQUENCES + s),
                      tokens + s * 33);
    assert_int_equal(gpt_shard(f->g, f->params, tokens, SEQUENCES, 1, f->grad, &loss), KEEL_OK);
    return loss;
}

/* Any seed, any size: the first guess is close to even over 256 bytes. */
static void test_gpt_train__first_loss_is_that_of_an_even_guess(void **state)
{
    (void)state;
    static const gpt_config configs[] = {{1, 32, 1, 8}, {2, 96, 4, 64}, {8, 48, 3, 16}};
    for (int i = 0; i < 3; i++) {
        gpt *g = gpt_create(&configs[i], 1, NULL);
        float loss, *params = floats(gpt_param_count(&configs[i]));
        uint8_t tokens[65];
        for (int t = 0; t < 65; t++) tokens[t] = (uint8_t)(t * 53);
        assert_true(g && params);
        gpt_init(&configs[i], params, (uint64_t)i);
        assert_int_equal(gpt_evaluate(g, params, tokens, 1, &loss), KEEL_OK);
        if (!(fabs((double)loss - log(256)) < 0.1)) fail_msg("config %d: %g", i, (double)loss);
        gpt_destroy(g);
        free(params);
    }
}

static void test_gpt_train__plain_descent_lowers_the_loss(void **state)
{
    fixture *f = *state;
    float loss = 0;
    for (int step = 0; step < 60; step++) {
        loss = descend(f, step);
        for (int i = 0; i < f->count; i++) f->params[i] -= 0.1F * f->grad[i];
    }
    if (!(loss < 3)) fail_msg("loss %g after 60 steps", (double)loss);
}

static keel_step *step_of(fixture *f)
{
    gpt_tensor tensors[GPT_TENSORS_MAX];
    keel_param params[GPT_TENSORS_MAX];
    keel_group groups[2] = {KEEL_GROUP_ADAMW(3e-3), KEEL_GROUP_ADAMW(3e-3)};
    keel_config cfg = KEEL_CONFIG_INIT;
    keel_step *step;
    const int count = gpt_tensors(&small, tensors);
    groups[1].weight_decay = 0;
    for (int t = 0; t < count; t++) {
        const int at = tensors[t].offset;
        params[t] = KEEL_PARAM_INIT;
        params[t].name = tensors[t].name;
        params[t].group = tensors[t].decays ? 0 : 1;
        params[t].grad.data = f->grad + at;
        params[t].grad.numel = tensors[t].count;
        params[t].grad.format = KEEL_FORMAT_F32;
        params[t].master = f->params + at;
        params[t].moment1 = f->moment1 + at;
        params[t].moment2 = f->moment2 + at;
    }
    cfg.max_norm = 1;
    cfg.loss_scale.mode = KEEL_LOSS_SCALE_OFF;
    cfg.groups = groups;
    cfg.group_count = 2;
    assert_int_equal(keel_step_create(&cfg, params, count, NULL, 0, &step), KEEL_OK);
    return step;
}

/* Below what the last byte alone can tell: it leaves 1.39 of this sentence open. */
static void test_gpt_train__adamw_learns_a_sentence(void **state)
{
    fixture *f = *state;
    keel_step *step = step_of(f);
    float loss = 0;
    for (int i = 0; i < 150; i++) {
        loss = descend(f, i);
        assert_int_equal(keel_step_run(step, NULL), KEEL_OK);
    }
    keel_step_destroy(step);
    if (!(loss < 1)) fail_msg("loss %g after 150 steps", (double)loss);
}

/* The whole path twice: the same parameters, bit for bit. */
static void test_gpt_train__runs_repeat_bit_for_bit(void **state)
{
    fixture *f = *state;
    float *first = floats(f->count);
    for (int run = 0; run < 2; run++) {
        gpt_init(&small, f->params, 1);
        memset(f->moment1, 0, (size_t)f->count * sizeof(float));
        memset(f->moment2, 0, (size_t)f->count * sizeof(float));
        keel_step *step = step_of(f);
        for (int i = 0; i < 5; i++) {
            descend(f, i);
            assert_int_equal(keel_step_run(step, NULL), KEEL_OK);
        }
        keel_step_destroy(step);
        if (run == 0) memcpy(first, f->params, (size_t)f->count * sizeof *first);
    }
    assert_memory_equal(first, f->params, (size_t)f->count * sizeof *first);
    free(first);
}

int main(void)
{
#define ROW(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt_train__first_loss_is_that_of_an_even_guess),
        ROW(test_gpt_train__plain_descent_lowers_the_loss),
        ROW(test_gpt_train__adamw_learns_a_sentence),
        ROW(test_gpt_train__runs_repeat_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The optimizers against torch.optim itself: twenty steps that torch has run, bit for bit, by the
 * kernels of every instruction set.
 *
 * "Parity with torch.optim in f32": where torch uses no fused multiply-add the formulas are the
 * same, operation by operation, so nothing less than equality would find a difference. */
#include "check.h"
#include "cpu/kernels.h"
#include "test_optim_torch.inc"

enum { VARIANTS = sizeof torch_variants / sizeof *torch_variants };

/* What a group trains: the parameter, then its moments. */
typedef struct tensors {
    float at[3][TORCH_NUMEL];
} tensors;

/* The gradient comes scaled by 2^16, which loses no bit. */
static void train_one_step(const keeli_cpu_kernels *k, const keel_group *group,
                           keeli_group_state *state, const float *gradient, tensors *t)
{
    float g[TORCH_NUMEL];
    for (int i = 0; i < TORCH_NUMEL; i++) g[i] = gradient[i] * 0x1p16f;
    keeli_group_advance(group, state);
    const keeli_group_scalars s = keeli_group_derive(group, state, 0x1p-16f, 1.0f);
    if (group->optimizer == KEEL_OPTIMIZER_ADAMW)
        k->update->adamw(g, t->at[0], t->at[1], t->at[2], TORCH_NUMEL, &s);
    else
        k->update->sgd(g, t->at[0], t->at[1], TORCH_NUMEL, &s);
}

static void assert_equals_torch(const tensors *t, const torch_variant *torch, int checkpoint,
                                const char *isa)
{
    for (int tensor = 0; tensor < 3; tensor++)
        for (int i = 0; i < TORCH_NUMEL; i++) {
            const float got = t->at[tensor][i], wanted = torch->after[checkpoint][tensor][i];
            if (got != wanted) /* the table writes both zeros as 0 */
                fail_msg("%s, variant %d, step %d, tensor %d[%d]: %a, torch %a", isa,
                         (int)(torch - torch_variants), torch_checkpoints[checkpoint], tensor, i,
                         (double)got, (double)wanted);
        }
}

static void follow(const keeli_cpu_kernels *k, const torch_variant *torch)
{
    keeli_group_state state = keeli_group_begin();
    tensors t = {{{0}}};
    int checkpoint = 0;
    memcpy(t.at[0], torch_start, sizeof torch_start);
    for (int step = 1; step <= TORCH_STEPS; step++) {
        train_one_step(k, &torch->group, &state, torch_gradients[step - 1], &t);
        if (step != torch_checkpoints[checkpoint]) continue;
        assert_equals_torch(&t, torch, checkpoint, k->isa);
        checkpoint++;
    }
    assert_int_equal(checkpoint, TORCH_CHECKPOINTS);
}

static void test_optim_torch__every_bit_on_every_instruction_set(void **state)
{
    (void)state;
    const keeli_cpu_kernels *k;
    for (int32_t isa = 0; (k = keeli_cpu_kernels_at(isa)); isa++)
        for (int v = 0; v < VARIANTS; v++) follow(k, &torch_variants[v]);
}

/* The hyper-parameters of the table are legal ones here, and their defaults the same. */
static void test_optim_torch__groups_and_their_defaults(void **state)
{
    (void)state;
    for (int v = 0; v < VARIANTS; v++)
        assert_ok(keeli_group_check("test", &torch_variants[v].group, v));
    const keel_group adamw = KEEL_GROUP_ADAMW(torch_variants[0].group.lr);
    assert_memory_equal(&adamw, &torch_variants[0].group, sizeof adamw);
    const keel_group sgd = KEEL_GROUP_SGD(torch_variants[4].group.lr);
    assert_memory_equal(&sgd, &torch_variants[4].group, sizeof sgd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optim_torch__every_bit_on_every_instruction_set),
        cmocka_unit_test(test_optim_torch__groups_and_their_defaults),
    };
    return cmocka_run_group_tests_name("runtime.optim_torch", tests, NULL, NULL);
}

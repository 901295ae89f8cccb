/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* All 2^32 f32 to the formats of training, as CUDA's host conversions encode them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda_host.h"
#include "sweep.h"

static bool check_mode(const oracle *o, const sweep *s, const float *x, bool saturate)
{
    const cuda_host *host = s->context;
    const int32_t width = s->info->storage_bytes;
    uint32_t codes[KEELI_TILE];
    bool ok = true;
    s->codec->encode(x, 1, codes, KEELI_TILE, saturate);
    for (int32_t i = 0; i < KEELI_TILE; i++) {
        const uint32_t ours = sweep_code(codes, i, width), theirs = host->encode(x[i], saturate);
        ok &= theirs == ours || (oracle_is_nan(o, theirs) && oracle_is_nan(o, ours));
    }
    return ok;
}

static bool check_tile(oracle *o, const sweep *s, uint32_t first)
{
    const cuda_host *host = s->context;
    float x[KEELI_TILE];
    for (uint32_t i = 0; i < KEELI_TILE; i++) x[i] = oracle_float(first + i);
    return check_mode(o, s, x, false) && (!host->has_saturate || check_mode(o, s, x, true));
}

static void test_sweep_cuda__every_f32_is_encoded_the_same(void **state)
{
    (void)state;
    const keeli_cpu_kernels *k = keeli_cpu_kernels_get();
    for (int i = 0; i < CUDA_HOSTS; i++) {
        const keel_format_info *info = keel_format_get(cuda_hosts[i].format);
        if (info->bits < 8) continue;
        sweep s = {.codec = &k->codec[info->id],
                   .info = info,
                   .check = check_tile,
                   .context = &cuda_hosts[i]};
        const uint64_t wrong = sweep_run(&s);
        if (wrong)
            fail_msg("%s: not as CUDA among the 1024 from %08x on", info->name,
                     (unsigned)(wrong - 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sweep_cuda__every_f32_is_encoded_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

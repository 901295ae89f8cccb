/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The optimizers over a tile: optim.h's elements in loops the compiler vectorises. */
#include "kernels.h"

static void adamw(float *restrict g, float *restrict p, float *restrict m, float *restrict v,
                  int32_t n, const keeli_group_scalars *scalars)
{
    const keeli_group_scalars s = *scalars;
    for (int32_t i = 0; i < n; i++) keeli_adamw_element(g[i], &p[i], &m[i], &v[i], &s);
}

static void sgd(float *restrict g, float *restrict p, float *restrict buffer, int32_t n,
                const keeli_group_scalars *scalars)
{
    const keeli_group_scalars s = *scalars;
    if (s.has_momentum)
        for (int32_t i = 0; i < n; i++) keeli_sgd_momentum_element(g[i], &p[i], &buffer[i], &s);
    else
        for (int32_t i = 0; i < n; i++) keeli_sgd_element(g[i], &p[i], &s);
}

extern const keeli_update_kernels KEELI_ISA_NAME(keeli_update_kernels);
const keeli_update_kernels KEELI_ISA_NAME(keeli_update_kernels) = {
    .adamw = adamw,
    .sgd = sgd,
};

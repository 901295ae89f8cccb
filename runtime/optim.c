/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The bounds of a parameter group's numbers, a row each. */
#include "optim.h"

#include "internal.h"

typedef struct bound {
    const char *name;
    double value;
    double lo, hi;
    bool hi_open;
} bound;

keel_status keeli_group_check(const char *fn, const keel_group *g, int32_t index)
{
    const bound bounds[] = {
        {"optimizer", (double)g->optimizer, 0, KEEL_OPTIMIZER_ADAMW, false},
        {"nesterov", (double)g->nesterov, 0, 1, false},
        {"lr", g->lr, 0, 1e30, false},
        {"beta1", g->beta1, 0, 1, true},
        {"beta2", g->beta2, 0, 1, true},
        {"eps", g->eps, 0, 1e30, false},
        {"weight_decay", g->weight_decay, 0, 1e30, false},
        {"momentum", g->momentum, 0, 1, true},
        {"dampening", g->dampening, 0, 1, false},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const bound *b = &bounds[i];
        const bool below_top = b->hi_open ? b->value < b->hi : b->value <= b->hi;
        if (!(b->value >= b->lo && below_top))
            return keel_ext_fail(KEEL_ERR_INVALID, fn, "groups[%d].%s=%g (want %g..%g%s)", index,
                                 b->name, b->value, b->lo, b->hi, b->hi_open ? ", below" : "");
    }
    if (g->nesterov && (!(g->momentum > 0) || g->dampening != 0))
        return keel_ext_fail(KEEL_ERR_INVALID, fn,
                             "groups[%d].nesterov with momentum=%g dampening=%g (want > 0 and 0)",
                             index, g->momentum, g->dampening);
    return KEEL_OK;
}

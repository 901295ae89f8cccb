/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Checks of what a caller hands to create, and the table made from it. */
#ifndef KEELI_CONFIG_H
#define KEELI_CONFIG_H

#include "step_mem.h"

/* Copy src over the defaults of dst and check every bound; fn names the public call in the
 * sentence. */
keel_status keeli_config_check(const char *fn, keel_config *dst, const keel_config *src);

/* Settings, rows and names from parameters that passed the check. */
keel_status keeli_params_check(const char *fn, const keel_config *cfg, const keel_group *groups,
                               int32_t group_count, const keel_param *params, int64_t count);
keeli_row keeli_row_make(const keel_param *param, int64_t index, const keel_comm *comm);

/* The logical elements a parameter holds here, its zeros filled in. */
keel_shard keeli_shard_resolve(const keel_param *param, const keel_comm *comm);

/* Bounds of a slot; fn names the public call in the sentence. */
keel_status keeli_slot_check(const char *fn, const keel_slot *slot);

#endif

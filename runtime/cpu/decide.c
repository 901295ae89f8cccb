/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* pack, decide, restore: the shared rules of decide.h, run at once. */
#include "cpu.h"
#include "decide.h"

keel_status keeli_cpu_pack(const keel_device *device, const keeli_step_mem *mem, keel_stream stream)
{
    (void)device;
    (void)stream;
    keeli_pack(mem);
    return KEEL_OK;
}

keel_status keeli_cpu_decide(const keel_device *device, const keeli_step_mem *mem,
                             keel_stream stream)
{
    (void)device;
    (void)stream;
    const keeli_fp_env env = keeli_fp_begin();
    keeli_decide(mem);
    keeli_fp_end(env);
    return KEEL_OK;
}

keel_status keeli_cpu_restore(const keel_device *device, const keeli_step_mem *mem,
                              keel_stream stream)
{
    (void)device;
    (void)stream;
    keeli_restore_state(mem);
    return KEEL_OK;
}

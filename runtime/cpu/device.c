/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The CPU as a device: host memory, and every operation done on return. */
#include <stdlib.h>

#include "cpu.h"

static keel_status cpu_alloc(const keel_device *device, size_t nbytes, void **out_memory)
{
    const size_t rounded = (nbytes + 255) / 256 * 256;
    void *memory = aligned_alloc(256, rounded ? rounded : 256);
    if (!memory)
        return keel_ext_fail(KEEL_ERR_NO_MEMORY, device->name, "no %zu bytes of host memory",
                             nbytes);
    *out_memory = memory;
    return KEEL_OK;
}

static void cpu_free(const keel_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static keel_status cpu_copy(const keel_device *device, void *dst, const void *src, size_t nbytes,
                            keel_stream stream)
{
    (void)device;
    (void)stream;
    if (nbytes > 0) memcpy(dst, src, nbytes);
    return KEEL_OK;
}

static const keel_device cpu_device = {
    .ext_version = KEEL_EXT_VERSION,
    .synchronous = true,
    .name = "cpu",
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .quantize = keeli_cpu_quantize,
    .matmul = keeli_cpu_matmul,
    .slot_quantize = keeli_cpu_slot_quantize,
    .accumulate = keeli_cpu_accumulate,
    .probe = keeli_cpu_probe,
    .vote = keeli_cpu_vote,
    .pack = keeli_cpu_pack,
    .decide = keeli_cpu_decide,
    .restore = keeli_cpu_restore,
    .update = keeli_cpu_update,
    .scale = keeli_cpu_scale,
    .prime = keeli_cpu_prime,
};

const keel_device *keel_cpu_device(void)
{
    return &cpu_device;
}

const char *keel_device_name(const keel_device *device)
{
    return device ? device->name : cpu_device.name;
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The machine a step runs on.  What a device implements stands in keel/ext.h. */
#ifndef KEEL_DEVICE_H
#define KEEL_DEVICE_H

#include "keel/export.h"
#include "keel/status.h"

KEEL_BEGIN_DECLS

typedef struct keel_device keel_device;

/* keel_cpu_device: the device of the core library; what NULL means wherever a device is asked for.
 * Owns    static storage.
 * Errors  none.
 * Since   0.1 */
KEEL_API const keel_device *keel_cpu_device(void);

/* keel_device_name: "cpu", "cuda".
 * Owns    the device's storage.
 * Errors  none; NULL device means CPU.
 * Since   0.1 */
KEEL_API const char *keel_device_name(const keel_device *device);

/* keel_cpu_isa: the instruction set the CPU device chose on this machine: "x86-64-v4",
 * "x86-64-v3", "baseline".  Every one gives the same bits.
 * Owns    static storage.
 * Errors  none.
 * Since   0.1 */
KEEL_API const char *keel_cpu_isa(void);

KEEL_END_DECLS
#endif

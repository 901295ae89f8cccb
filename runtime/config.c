/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The check of keel_config: struct versions first, then every row of config.def. */
#include "config.h"

#include "internal.h"

/* The size of the first published struct; an older one never existed.  A larger one than MAX is no
 * newer struct but one that nobody initialised, and its tail is not there to be read. */
#define CONFIG_SIZE_MIN (offsetof(keel_config, log_context) + sizeof(void *))
#define CONFIG_SIZE_MAX ((size_t)4096)

static keel_status check_abi(const char *fn, const keel_config *src, size_t known)
{
    if (!src) return keel_ext_fail(KEEL_ERR_INVALID, fn, "cfg is NULL");
    if (src->struct_size < CONFIG_SIZE_MIN || src->struct_size > CONFIG_SIZE_MAX)
        return keel_ext_fail(KEEL_ERR_ABI, fn,
                             "cfg.struct_size=%zu (want %zu..%zu); was KEEL_CONFIG_INIT used?",
                             src->struct_size, CONFIG_SIZE_MIN, CONFIG_SIZE_MAX);
    const unsigned char *bytes = (const unsigned char *)src;
    for (size_t i = known; i < src->struct_size; i++)
        if (bytes[i] != 0)
            return keel_ext_fail(
                KEEL_ERR_ABI, fn,
                "cfg sets a field at byte %zu that this library (%u) does not know", i,
                keel_version());
    return KEEL_OK;
}

static keel_status check_bounds(const char *fn, const keel_config *cfg)
{
#define X(field, value, lo, hi, text)                                                           \
    if (!((double)cfg->field >= (double)(lo) && (double)cfg->field <= (double)(hi)))            \
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "cfg." #field "=%.9g (want %.9g..%.9g): %s", \
                             (double)cfg->field, (double)(lo), (double)(hi), text);
#include "keel/config.def"
#undef X
    return KEEL_OK;
}

keel_status keeli_config_check(const char *fn, keel_config *dst, const keel_config *src)
{
    TRY(check_abi(fn, src, sizeof *dst));
    keel_config cfg = KEEL_CONFIG_INIT; /* an older caller's missing tail keeps the defaults */
    memcpy(&cfg, src, src->struct_size < sizeof cfg ? src->struct_size : sizeof cfg);
    TRY(check_bounds(fn, &cfg));
    if (cfg.device && cfg.device->ext_version != KEEL_EXT_VERSION)
        return keel_ext_fail(KEEL_ERR_ABI, fn, "device speaks extension version %u (want %u)",
                             cfg.device->ext_version, KEEL_EXT_VERSION);
    if (cfg.comm && cfg.comm->ext_version != KEEL_EXT_VERSION)
        return keel_ext_fail(KEEL_ERR_ABI, fn, "comm speaks extension version %u (want %u)",
                             cfg.comm->ext_version, KEEL_EXT_VERSION);
    if (cfg.group_count < 0 || (cfg.group_count > 0 && !cfg.groups))
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "cfg.group_count=%d with cfg.groups=%p",
                             cfg.group_count, (const void *)cfg.groups);
    if (cfg.slot_count < 0 || (cfg.slot_count > 0 && !cfg.slots))
        return keel_ext_fail(KEEL_ERR_INVALID, fn, "cfg.slot_count=%d with cfg.slots=%p",
                             cfg.slot_count, (const void *)cfg.slots);
    for (int32_t i = 0; i < cfg.slot_count; i++) TRY(keeli_slot_check(fn, &cfg.slots[i]));
    keel_loss_scale_state unused;
    TRY(keel_loss_scale_begin(&cfg.loss_scale, &unused));
    *dst = cfg;
    return KEEL_OK;
}

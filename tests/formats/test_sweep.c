/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* All 2^32 f32 through every encoder of every instruction set, in both overflow modes, against the
 * reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sweep.h"

/* Codes of n successive magnitudes; runs of equal codes are long. */
static void expect(oracle *o, uint32_t bits, int32_t n, bool saturate, uint32_t *codes)
{
    const bool negative = bits >> 31;
    const uint32_t magnitude = bits & 0x7fffffffu;
    for (int32_t i = 0; i < n;) {
        const uint32_t rounded = oracle_round(o, magnitude + (uint32_t)i);
        const uint32_t code = oracle_finish(o, rounded, negative, saturate);
        const uint32_t end = rounded > o->max_code ? 0x80000000u : o->from[rounded + 1];
        const int64_t last = (int64_t)end - magnitude < n ? (int64_t)end - magnitude : n;
        while (i < last) codes[i++] = code;
    }
}

static bool codes_equal(const uint32_t *want, const void *got, int32_t n, int32_t width)
{
    uint32_t different = 0;
    if (width == 1)
        for (int32_t i = 0; i < n; i++) different |= want[i] ^ ((const uint8_t *)got)[i];
    else
        for (int32_t i = 0; i < n; i++) different |= want[i] ^ ((const uint16_t *)got)[i];
    return different == 0;
}

static bool all_nan(const oracle *o, const uint32_t *bits, const void *got, int32_t n,
                    int32_t width)
{
    bool ok = true;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t code = sweep_code(got, i, width);
        ok &= (bits[i] & 0x7fffffffu) <= 0x7f800000u ||
              (oracle_is_nan(o, code) && code >> (o->exp + o->man) == bits[i] >> 31);
    }
    return ok;
}

static bool check_tile(oracle *o, const sweep *s, uint32_t first)
{
    const int32_t width = s->info->storage_bytes;
    uint32_t bits[KEELI_TILE], want[KEELI_TILE], got[KEELI_TILE];
    float x[KEELI_TILE];
    for (uint32_t i = 0; i < KEELI_TILE; i++) bits[i] = first + i;
    memcpy(x, bits, sizeof x);
    const bool has_nan =
        (bits[KEELI_TILE - 1] & 0x7fffffffu) > 0x7f800000u && s->info->kind != KEEL_KIND_FINITE;
    const int32_t numbers = !has_nan ? KEELI_TILE : (first & 0x7fffffffu) == 0x7f800000u;
    for (int saturate = 0; saturate <= 1; saturate++) {
        s->codec->encode(x, 1, got, KEELI_TILE, saturate);
        expect(o, first, numbers, saturate, want);
        if (!codes_equal(want, got, numbers, width)) return false;
        if (has_nan && !all_nan(o, bits, got, KEELI_TILE, width)) return false;
    }
    return true;
}

static void sweep_format(const keeli_cpu_kernels *k, const keel_format_info *info)
{
    sweep s = {.codec = &k->codec[info->id], .info = info, .check = check_tile};
    const uint64_t wrong = sweep_run(&s);
    if (wrong)
        fail_msg("%s %s: wrong among the 1024 from %08x on", k->isa, info->name,
                 (unsigned)(wrong - 1));
}

static void test_sweep__every_f32_is_encoded_right(void **state)
{
    (void)state;
    const keeli_cpu_kernels *k;
    const keel_format_info *info;
    for (int32_t isa = 0; (k = keeli_cpu_kernels_at(isa)); isa++)
        for (int32_t i = 0; (info = keel_format_at(i)); i++)
            if (info->can_encode && info->bits <= 16) sweep_format(k, info);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sweep__every_f32_is_encoded_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

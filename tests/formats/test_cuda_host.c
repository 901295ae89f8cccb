/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The same codes as CUDA's host conversions: every code decoded, every 257th f32 encoded, and f64
 * beside every boundary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cuda_host.h"
#include "oracle.h"

static const cuda_host *host_of(const oracle *o)
{
    for (int i = 0; i < CUDA_HOSTS; i++)
        if (cuda_hosts[i].format == o->format) return &cuda_hosts[i];
    fail_msg("no row for %s", o->name);
    return NULL;
}

static void check_decode(oracle *o)
{
    for (uint32_t code = 0; code < 1u << (1 + o->exp + o->man); code++) {
        const float theirs = host_of(o)->decode(code), ours = keel_format_decode(o->format, code);
        assert_true(isnan(theirs) ? isnan(ours) : oracle_bits(theirs) == oracle_bits(ours));
    }
}

static void test_cuda_host__decodes_the_same(void **state)
{
    (void)state;
    oracle_each(check_decode);
}

/* The same code, or both NaN; NaN into a format without it is left to each library. */
static bool agree(const oracle *o, float x, uint32_t theirs, uint32_t ours)
{
    if (isnan(x) && o->kind == KEEL_KIND_FINITE) return true;
    return theirs == ours || (oracle_is_nan(o, theirs) && oracle_is_nan(o, ours));
}

static void check_encode_in(const oracle *o, const cuda_host *host, bool saturate)
{
    const keel_overflow mode = saturate ? KEEL_OVERFLOW_SATURATE : KEEL_OVERFLOW_IEEE;
    for (uint64_t bits = 0; bits < 1ull << 32; bits += 257) {
        const float x = oracle_float((uint32_t)bits);
        const uint32_t theirs = host->encode(x, saturate);
        uint32_t ours;
        assert_int_equal(keel_format_encode(o->format, x, mode, &ours), KEEL_OK);
        if (!agree(o, x, theirs, ours))
            fail_msg("%s saturate=%d: %a gives %x there, %x here", o->name, saturate, (double)x,
                     theirs, ours);
    }
}

static void check_encode(oracle *o)
{
    const cuda_host *host = host_of(o);
    check_encode_in(o, host, false);
    if (host->has_saturate) check_encode_in(o, host, true);
}

static void test_cuda_host__encodes_the_same(void **state)
{
    (void)state;
    oracle_each(check_encode);
}

static void check_f64(const oracle *o, double x)
{
    uint32_t ours;
    assert_int_equal(keel_format_encode_f64(o->format, x, KEEL_OVERFLOW_IEEE, &ours), KEEL_OK);
    assert_int_equal(ours, cuda_encode_f64(o->format, x));
}

static void check_f64_boundaries(oracle *o)
{
    if (o->format != KEEL_FORMAT_E4M3 && o->format != KEEL_FORMAT_E5M2) return;
    for (uint32_t c = 0; c <= o->max_code; c++) {
        const double middle = oracle_midpoint(o, c);
        check_f64(o, nextafter(middle, 0));
        check_f64(o, -middle);
        check_f64(o, nextafter(middle, INFINITY));
    }
}

static void test_cuda_host__encodes_f64_the_same(void **state)
{
    (void)state;
    oracle_each(check_f64_boundaries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_host__decodes_the_same),
        cmocka_unit_test(test_cuda_host__encodes_the_same),
        cmocka_unit_test(test_cuda_host__encodes_f64_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

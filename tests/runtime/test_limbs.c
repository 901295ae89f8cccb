/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The wide integer behind the norm: adding, carrying, rounding once.
 *
 * "norm = f64 square root of the total rounded once to f64": the total is exact, so these tests
 * know every bit. */
#include "bigsum.h"
#include "check.h"
#include "limbs.h"
#include "random.h"

static keeli_limbs limbs_of(const double *values, int n)
{
    keeli_limbs sum = {{0}};
    for (int i = 0; i < n; i++) keeli_limbs_add(&sum, values[i]);
    keeli_limbs_carry(&sum);
    return sum;
}

static double rounded(const double *values, int n)
{
    const keeli_limbs sum = limbs_of(values, n);
    return keeli_limbs_round(&sum);
}

#define ROUNDED(...) \
    rounded((const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

static void assert_limbs_equal(const keeli_limbs *limbs, const bigsum *reference)
{
    for (int i = 0; i < KEELI_LIMBS; i++) {
        uint64_t word = 0;
        for (int b = 0; b < 32; b++) word |= (uint64_t)reference->bit[32 * i + b] << b;
        assert_true(limbs->word[i] == (int64_t)word);
    }
}

static void test_limbs__nothing_is_zero(void **state)
{
    (void)state;
    assert_same_f64(ROUNDED(0.0), 0.0);
    assert_same_f64(ROUNDED(-0.0), 0.0);
}

static void test_limbs__one_value_comes_back(void **state)
{
    (void)state;
    assert_same_f64(ROUNDED(0x1p-298), 0x1p-298); /* the smallest square of an f32 */
    assert_same_f64(ROUNDED(0x1.fffffffffffffp289), 0x1.fffffffffffffp289);
    assert_same_f64(ROUNDED(0x1.fffffcp255), 0x1.fffffcp255);
    for (int e = -267; e < 290; e++) /* every position of 53 bits on the words */
        assert_same_f64(ROUNDED(ldexp(0x1.123456789abcdp0, e)), ldexp(0x1.123456789abcdp0, e));
}

/* A word below zero borrows; a word above 2^32 carries, over all words if need be. */
static void test_limbs__carries_travel_both_ways(void **state)
{
    (void)state;
    const keeli_limbs sum = limbs_of((const double[]){0x1p200, -0x1p-298}, 2);
    for (int i = 0; i < KEELI_LIMBS; i++) assert_in_range(sum.word[i], 0, 0xffffffff);
    assert_same_f64(ROUNDED(0x1p200, -0x1p-298, 0x1p-298), 0x1p200);
    assert_same_f64(ROUNDED(0x1p200, -0x1p-298), 0x1p200);
    assert_same_f64(ROUNDED(0x1p200, 0x1p-298, -0x1p200), 0x1p-298);
    keeli_limbs full = {{0}};
    for (int i = 0; i < KEELI_LIMBS - 1; i++) full.word[i] = 0xffffffff;
    full.word[0]++;
    keeli_limbs_carry(&full);
    for (int i = 0; i < KEELI_LIMBS - 1; i++) assert_true(full.word[i] == 0);
    assert_true(full.word[KEELI_LIMBS - 1] == 1);
}

/* Rounded once, to nearest even: the tie goes to even, one bit however far below breaks it. */
static void test_limbs__rounds_once_to_even(void **state)
{
    (void)state;
    assert_same_f64(ROUNDED(1, 0x1p-53), 1.0);
    assert_same_f64(ROUNDED(1, 0x1p-53, 0x1p-298), 1 + 0x1p-52);
    assert_same_f64(ROUNDED(1, 0x1p-52, 0x1p-53), 1 + 0x1p-51);
    assert_same_f64(ROUNDED(1, 0x1p-52, 0x1p-53, -0x1p-298), 1 + 0x1p-52);
    assert_same_f64(ROUNDED(1, 0x1p-53, -0x1p-298), 1.0);
    assert_same_f64(ROUNDED(0x1.fffffffffffffp0, 0x1p-53), 2.0); /* up into the next power */
    for (int e = -200; e < 200; e++) {
        const double one = ldexp(1, e);
        assert_same_f64(ROUNDED(one, ldexp(one, -53)), one);
        assert_same_f64(ROUNDED(one, ldexp(one, -53), 0x1p-298), one + ldexp(one, -52));
    }
}

static void test_limbs__equal_arithmetic_on_paper(void **state)
{
    (void)state;
    random_source r = random_begin(1);
    for (int trial = 0; trial < 2000; trial++) {
        keeli_limbs limbs = {{0}};
        bigsum reference;
        memset(&reference, 0, sizeof reference);
        const int n = (int)random_below(&r, 200);
        for (int i = 0; i < n; i++) {
            const float x = random_finite(&r);
            keeli_limbs_add(&limbs, (double)x * (double)x);
            bigsum_add_square(&reference, x);
        }
        keeli_limbs_carry(&limbs);
        assert_limbs_equal(&limbs, &reference);
        assert_same_f64(keeli_limbs_round(&limbs), bigsum_round(&reference));
    }
}

/* 2^28 adds between two carries are promised safe: the largest words they can make still fit. */
static void test_limbs__head_room(void **state)
{
    (void)state;
    keeli_limbs sum = {{0}}, one = {{0}};
    const double largest = 0x1.fffffffffffffp255;
    keeli_limbs_add(&one, largest);
    for (int i = 0; i < KEELI_LIMBS; i++) {
        assert_true(one.word[i] < INT64_MAX / KEELI_LIMB_ADDS);
        sum.word[i] = one.word[i] * KEELI_LIMB_ADDS;
    }
    keeli_limbs_carry(&sum);
    assert_same_f64(keeli_limbs_round(&sum), largest * KEELI_LIMB_ADDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limbs__nothing_is_zero),
        cmocka_unit_test(test_limbs__one_value_comes_back),
        cmocka_unit_test(test_limbs__carries_travel_both_ways),
        cmocka_unit_test(test_limbs__rounds_once_to_even),
        cmocka_unit_test(test_limbs__equal_arithmetic_on_paper),
        cmocka_unit_test(test_limbs__head_room),
    };
    return cmocka_run_group_tests_name("runtime.limbs", tests, NULL, NULL);
}

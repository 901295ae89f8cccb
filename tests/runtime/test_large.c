/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* "> 2^31 elements: legal": one tensor whose indices do not fit 32 bits, of pages never written. */
#define _DEFAULT_SOURCE
#include <sys/mman.h>

#include "check.h"
#include "model.h"

static const int64_t numel = ((int64_t)1 << 31) + 1029;

static void test_large__indices_do_not_wrap(void **state)
{
    (void)state;
    unsigned char *codes = mmap(NULL, (size_t)numel, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (codes == MAP_FAILED) {
        print_message("SKIP no address space for %lld bytes\n", (long long)numel);
        skip();
    }
    model m;
    model_begin(&m);
    keel_param *p = model_add(&m, KEEL_FORMAT_E4M3, 0);
    void *const owned = p->grad.data;
    p->grad.data = codes;
    p->grad.numel = numel;
    codes[0] = codes[numel - 1] = 0x38; /* 1 */
    model_create(&m);
    model_run(&m);
    keel_report r = model_report(&m);
    assert_same_f64(r.norm, sqrt(2));
    assert_int_equal(r.elements, numel);
    assert_int_equal(r.zero_count, numel - 2);
    codes[numel - 2] = 0x7f;
    model_run(&m);
    r = model_report(&m);
    assert_int_equal(r.cause, KEEL_CAUSE_NAN);
    assert_int_equal(r.local_index, numel - 2);
    p->grad.data = owned;
    p->grad.numel = 0;
    model_end(&m);
    munmap(codes, (size_t)numel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large__indices_do_not_wrap),
    };
    return cmocka_run_group_tests_name("runtime.large", tests, NULL, NULL);
}

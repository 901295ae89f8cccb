/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Sizes and offsets of the public structs, which callers compile in and bindings copy.  A row that
 * has to change is a break of the ABI; keel_config alone may grow, at its end. */
#include "check.h"

/* X(struct, size, its last field, offset of that field) where pointers and int64_t have 8 bytes. */
#define LAYOUTS(X)                                  \
    X(keel_tensor, 40, scale_inv, 32)               \
    X(keel_format_info, 80, epsilon, 72)            \
    X(keel_cast_options, 24, offset, 16)            \
    X(keel_cast_stats, 40, flushed, 32)             \
    X(keel_loss_scale_config, 36, hysteresis, 32)   \
    X(keel_loss_scale_state, 32, last_overflow, 24) \
    X(keel_group, 64, dampening, 56)                \
    X(keel_config, 160, log_context, 152)           \
    X(keel_report, 184, clip_rate, 176)             \
    X(keel_shard, 48, replicas, 44)                 \
    X(keel_param, 208, shard, 160)                  \
    X(keel_decision, 32, loss_scale, 28)            \
    X(keel_counters, 56, slot_elements_read, 48)    \
    X(keel_slot, 48, count, 44)                     \
    X(keel_slot_state, 32, nonfinite_updates, 24)   \
    X(keel_slot_report, 72, nonfinite, 64)

static void check_layout(const char *name, size_t size, size_t wanted_size, size_t offset,
                         size_t wanted_offset)
{
    if (size == wanted_size && offset == wanted_offset) return;
    fail_msg("%s: size %zu, last field at %zu (want %zu, %zu)", name, size, offset, wanted_size,
             wanted_offset);
}

static void test_layout__structs_keep_their_shape(void **state)
{
    (void)state;
    if (sizeof(void *) != 8 || _Alignof(int64_t) != 8) skip();
#define X(type, size, last, offset) \
    check_layout(#type, sizeof(type), size, offsetof(type, last), offset);
    LAYOUTS(X)
#undef X
}

/* Statuses go into logs and bindings, formats into checkpoints. */
static void test_layout__numbers_are_never_changed(void **state)
{
    (void)state;
    static const struct {
        int value, wanted;
    } rows[] = {
        {KEEL_OK, 0},
        {KEEL_ERR_INVALID, -1},
        {KEEL_ERR_ORDER, -2},
        {KEEL_ERR_ABI, -3},
        {KEEL_ERR_UNSUPPORTED, -4},
        {KEEL_ERR_STATE, -5},
        {KEEL_ERR_NOT_FOUND, -6},
        {KEEL_ERR_NO_MEMORY, -20},
        {KEEL_ERR_DEVICE, -40},
        {KEEL_ERR_UNAVAILABLE, -41},
        {KEEL_ERR_COMM, -60},
        {KEEL_ERR_PEER, -61},
        {KEEL_FORMAT_F32, 1},
        {KEEL_FORMAT_F16, 2},
        {KEEL_FORMAT_BF16, 3},
        {KEEL_FORMAT_E4M3, 4},
        {KEEL_FORMAT_E5M2, 5},
        {KEEL_FORMAT_E8M0, 6},
        {KEEL_FORMAT_E3M2, 7},
        {KEEL_FORMAT_E2M3, 8},
        {KEEL_FORMAT_E2M1, 9},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(rows[i].value, rows[i].wanted);
    assert_int_equal(sizeof(keel_status), 4);
    assert_int_equal(sizeof(keel_format), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout__structs_keep_their_shape),
        cmocka_unit_test(test_layout__numbers_are_never_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What create accepts: struct versions, every bound of config.def, parameters and shards.
 *
 * "Every function returns keel_status; keel_last_error() gives a sentence with the offending value.
 * Outputs are untouched on failure." */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "keel/ext.h"
#include "model.h"

/* One row of config.def, as data. */
typedef struct knob {
    const char *name;
    size_t offset;
    char type; /* f float, i 32 bits, l 64 bits */
    long double init, lo, hi;
} knob;

#define TYPE_OF(field) \
    _Generic(((keel_config *)0)->field, float : 'f', int64_t : 'l', default : 'i')

static const knob knobs[] = {
#define X(field, value, lo, hi, text) \
    {#field, offsetof(keel_config, field), TYPE_OF(field), (value), (lo), (hi)},
#include "keel/config.def"
#undef X
};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static long double get(const keel_config *cfg, const knob *k)
{
    const void *at = (const char *)cfg + k->offset;
    if (k->type == 'f') return *(const float *)at;
    return k->type == 'l' ? (long double)*(const int64_t *)at : *(const int32_t *)at;
}

static void set(keel_config *cfg, const knob *k, long double value)
{
    void *at = (char *)cfg + k->offset;
    if (k->type == 'f')
        *(float *)at = (float)value;
    else if (k->type == 'l')
        *(int64_t *)at = (int64_t)value;
    else
        *(int32_t *)at = (int32_t)value;
}

static bool fits(const knob *k, long double value)
{
    if (k->type == 'f') return true;
    return k->type == 'l' ? value >= INT64_MIN && value <= INT64_MAX
                          : value >= INT32_MIN && value <= INT32_MAX;
}

/* The nearest value of the knob's type on that side. */
static long double beyond(const knob *k, long double bound, int side)
{
    return k->type == 'f' ? (long double)nextafterf((float)bound, side * INFINITY) : bound + side;
}

/* Room on all sides, so that one number can go to its bounds alone. */
static keel_config roomy(void)
{
    keel_config cfg = KEEL_CONFIG_INIT;
    cfg.loss_scale.min = 0x1p-126f;
    cfg.loss_scale.max = 0x1p126f;
    return cfg;
}

static keel_config with(const knob *k, long double value)
{
    keel_config cfg = roomy();
    set(&cfg, k, value);
    keel_loss_scale_config *ls = &cfg.loss_scale; /* init lies between its bounds */
    const bool is_init = k->offset == offsetof(keel_config, loss_scale.init);
    if (!is_init && ls->min > ls->init) ls->init = ls->min;
    if (!is_init && ls->max < ls->init) ls->init = ls->max;
    return cfg;
}

static void assert_created(const keel_config *cfg)
{
    keel_step *step = NULL;
    size_t bytes = 0;
    assert_ok(keel_step_workspace_size(cfg, NULL, 0, &bytes));
    assert_true(bytes > 0);
    assert_ok(keel_step_create(cfg, NULL, 0, NULL, 0, &step));
    keel_step_destroy(step);
}

static keel_step *const untouched = (keel_step *)(uintptr_t)0x10;

static void assert_not_created(const keel_config *cfg, keel_status status, const char *word)
{
    keel_step *step = untouched;
    size_t bytes = 7;
    assert_refused(keel_step_create(cfg, NULL, 0, NULL, 0, &step), status, word);
    assert_refused(keel_step_workspace_size(cfg, NULL, 0, &bytes), status, word);
    assert_ptr_equal(step, untouched);
    assert_int_equal(bytes, 7);
}

static void test_config__init_gives_the_defaults_of_the_table(void **state)
{
    (void)state;
    const keel_config cfg = KEEL_CONFIG_INIT;
    assert_int_equal(cfg.struct_size, sizeof cfg);
    assert_int_equal(cfg.api_version, KEEL_VERSION_NUM);
    for (size_t i = 0; i < COUNT_OF(knobs); i++) assert_true(get(&cfg, &knobs[i]) == knobs[i].init);
    assert_created(&cfg);
}

/* growth 1 and backoff 1 stand in the table as open bounds: such a scale would never move. */
static bool is_open_bound(const knob *k, long double value)
{
    return value == 1 && (strcmp(k->name, "loss_scale.growth") == 0 ||
                          strcmp(k->name, "loss_scale.backoff") == 0);
}

static void test_config__both_ends_of_every_bound_are_legal(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(knobs); i++) {
        const knob *k = &knobs[i];
        const long double ends[] = {k->lo, k->hi};
        for (int e = 0; e < 2; e++) {
            const keel_config cfg = with(k, ends[e]);
            if (is_open_bound(k, ends[e]))
                assert_not_created(&cfg, KEEL_ERR_INVALID, strchr(k->name, '.') + 1);
            else
                assert_created(&cfg);
        }
    }
}

/* pytorch/pytorch#31367 is one of them: a max_norm below zero, or NaN. */
static void test_config__outside_every_bound_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(knobs); i++) {
        const knob *k = &knobs[i];
        const long double outside[] = {beyond(k, k->lo, -1), beyond(k, k->hi, 1), -1,
                                       -(long double)INFINITY, NAN};
        char name[64];
        snprintf(name, sizeof name, "cfg.%s=", k->name);
        for (size_t o = 0; o < COUNT_OF(outside); o++) {
            const long double value = outside[o];
            if (!fits(k, value) || (k->type != 'f' && value != value)) continue;
            if (value >= k->lo && value <= k->hi) continue; /* nothing lies above infinity */
            keel_config cfg = roomy();
            set(&cfg, k, value);
            assert_not_created(&cfg, KEEL_ERR_INVALID, name);
        }
    }
}

/* A scale that starts outside its own bounds contradicts itself. */
static void test_config__loss_scale_fits_its_bounds(void **state)
{
    (void)state;
    keel_config cfg = roomy();
    cfg.loss_scale.min = 4;
    cfg.loss_scale.init = 2;
    assert_not_created(&cfg, KEEL_ERR_INVALID, "init=2");
    cfg.loss_scale.init = cfg.loss_scale.min;
    cfg.loss_scale.max = 2;
    assert_not_created(&cfg, KEEL_ERR_INVALID, "min=4");
}

/* A caller built against other headers.  Smaller than the first struct: refused; larger with a zero
 * tail: fine; with a field this library does not know: refused at its byte. */
static void test_config__struct_size_rules(void **state)
{
    (void)state;
    struct {
        keel_config cfg;
        unsigned char tail[16];
    } newer;
    memset(&newer, 0, sizeof newer);
    newer.cfg = roomy();
    newer.cfg.struct_size = sizeof newer;
    assert_created(&newer.cfg);
    newer.tail[5] = 1;
    char byte[32];
    snprintf(byte, sizeof byte, "byte %zu ", sizeof(keel_config) + 5);
    assert_not_created(&newer.cfg, KEEL_ERR_ABI, byte);

    keel_config cfg = roomy();
    cfg.struct_size = sizeof cfg - 1;
    assert_not_created(&cfg, KEEL_ERR_ABI, "struct_size=");
    memset(&cfg, 0, sizeof cfg);
    assert_not_created(&cfg, KEEL_ERR_ABI, "KEEL_CONFIG_INIT");
    memset(&cfg, 0xff, sizeof cfg); /* nothing lies behind it */
    assert_not_created(&cfg, KEEL_ERR_ABI, "KEEL_CONFIG_INIT");
    cfg.struct_size = 4097;
    assert_not_created(&cfg, KEEL_ERR_ABI, "struct_size=4097");
    assert_not_created(NULL, KEEL_ERR_INVALID, "cfg is NULL");
}

static void test_config__foreign_extensions_are_refused(void **state)
{
    (void)state;
    keel_config cfg = roomy();
    keel_device device = *keel_cpu_device();
    keel_comm comm = {.ext_version = KEEL_EXT_VERSION + 1, .nranks = 1};
    device.ext_version++;
    cfg.device = &device;
    assert_not_created(&cfg, KEEL_ERR_ABI, "device");
    cfg.device = NULL;
    cfg.comm = &comm;
    assert_not_created(&cfg, KEEL_ERR_ABI, "comm");
}

static void test_config__groups(void **state)
{
    (void)state;
    keel_config cfg = roomy();
    keel_group groups[2] = {KEEL_GROUP_ADAMW(0.1), KEEL_GROUP_SGD(0.1)};
    cfg.group_count = -1;
    assert_not_created(&cfg, KEEL_ERR_INVALID, "group_count=-1");
    cfg.group_count = 2;
    assert_not_created(&cfg, KEEL_ERR_INVALID, "group_count=2");
    cfg.groups = groups;
    assert_created(&cfg);
    groups[1].optimizer = (keel_optimizer)9;
    assert_not_created(&cfg, KEEL_ERR_INVALID, "groups[1]");
    groups[1] = KEEL_GROUP_SGD(NAN);
    assert_not_created(&cfg, KEEL_ERR_INVALID, "groups[1]");
}

/* One parameter with one thing wrong; the sentence names parameter and thing. */
typedef void (*spoil_fn)(keel_param *p);

#define SPOIL(name, change)         \
    static void name(keel_param *p) \
    {                               \
        change;                     \
    }
SPOIL(nothing, (void)p)
SPOIL(negative_numel, p->grad.numel = -4)
SPOIL(unknown_format, p->grad.format = (keel_format)77)
SPOIL(no_format, p->grad.format = KEEL_FORMAT_NONE)
SPOIL(no_data, p->grad.data = NULL)
SPOIL(group_above, p->group = 1)
SPOIL(group_below, p->group = -1)
SPOIL(id_below, p->id = -2)
SPOIL(id_above, p->id = (int64_t)UINT32_MAX + 1)
SPOIL(no_master, p->master = NULL)
SPOIL(no_moment1, p->moment1 = NULL)
SPOIL(no_moment2, p->moment2 = NULL)
SPOIL(copy_numel, p->copy.numel = 5)
SPOIL(copy_format, p->copy.format = (keel_format)77)
SPOIL(copy_e8m0, p->copy.format = KEEL_FORMAT_E8M0)
SPOIL(shard_negative, p->shard.offset = -1)
SPOIL(shard_past, p->shard.offset = 1)
SPOIL(shard_past_small, p->shard.global_numel = 3)
SPOIL(shard_far, p->shard.offset = INT64_MAX)
SPOIL(shard_grid, p->shard = ((keel_shard){.global_numel = 64, .rows = 3, .cols = 2}))
SPOIL(shard_stride,
      p->shard = ((keel_shard){.global_numel = 64, .rows = 2, .cols = 2, .row_stride = 1}))
SPOIL(shard_reach,
      p->shard = ((keel_shard){.global_numel = 64, .rows = 2, .cols = 2, .row_stride = INT64_MAX}))
SPOIL(shard_wrap, p->shard = ((keel_shard){
                      .global_numel = 64, .rows = INT64_MAX / 2 + 3, .cols = 4, .row_stride = 4}))
SPOIL(shard_huge, p->grad.numel = INT64_MAX / 8 * 2;
      p->shard = ((keel_shard){.global_numel = INT64_MAX, .rows = 2, .cols = INT64_MAX / 8}))
SPOIL(shard_product, p->shard = ((keel_shard){.global_numel = INT64_MAX,
                                              .rows = 1,
                                              .cols = INT64_MAX / 2,
                                              .row_stride = INT64_MAX / 2}))
SPOIL(numel_huge, p->grad.numel = INT64_MAX)
SPOIL(grad_reserved, p->grad.reserved = 1)
SPOIL(copy_reserved, p->copy.reserved = 2)
SPOIL(param_reserved, p->reserved = 3)
SPOIL(replica_above, p->shard.replicas = 2; p->shard.replica = 2)
SPOIL(replica_below, p->shard.replicas = 2; p->shard.replica = -1)
SPOIL(replicas_negative, p->shard.replicas = -1)

static const struct {
    spoil_fn spoil;
    keel_status status;
    const char *word;
} spoilt[] = {
    {nothing, KEEL_OK, ""},
    {negative_numel, KEEL_ERR_INVALID, "grad.numel=-4"},
    {unknown_format, KEEL_ERR_INVALID, "grad.format=77"},
    {no_format, KEEL_ERR_INVALID, "grad.format=0"},
    {no_data, KEEL_ERR_INVALID, "grad.data"},
    {group_above, KEEL_ERR_INVALID, "group=1"},
    {group_below, KEEL_ERR_INVALID, "group=-1"},
    {id_below, KEEL_ERR_INVALID, "id=-2"},
    {id_above, KEEL_ERR_INVALID, "id=4294967296"},
    {no_master, KEEL_ERR_INVALID, "master"},
    {no_moment1, KEEL_ERR_INVALID, "moment1"},
    {no_moment2, KEEL_ERR_INVALID, "moment2"},
    {copy_numel, KEEL_ERR_INVALID, "copy.numel=5"},
    {copy_format, KEEL_ERR_INVALID, "copy.format=77"},
    {copy_e8m0, KEEL_ERR_UNSUPPORTED, "e8m0"},
    {shard_negative, KEEL_ERR_INVALID, "negative"},
    {shard_past, KEEL_ERR_INVALID, "global_numel=4"},
    {shard_past_small, KEEL_ERR_INVALID, "global_numel=3"},
    {shard_far, KEEL_ERR_INVALID, "global_numel=4"},
    {shard_grid, KEEL_ERR_INVALID, "rows*cols=3*2"},
    {shard_stride, KEEL_ERR_INVALID, "row_stride=1"},
    {shard_reach, KEEL_ERR_INVALID, "global_numel=64"},
    {shard_wrap, KEEL_ERR_INVALID, "shard"},
    {shard_huge, KEEL_ERR_INVALID, "grad.numel="},
    {shard_product, KEEL_ERR_INVALID, "rows*cols=1*"},
    {numel_huge, KEEL_ERR_INVALID, "grad.numel=9223372036854775807"},
    {grad_reserved, KEEL_ERR_INVALID, "grad.reserved=1"},
    {copy_reserved, KEEL_ERR_INVALID, "copy.reserved=2"},
    {param_reserved, KEEL_ERR_INVALID, "reserved=3"},
    {replica_above, KEEL_ERR_INVALID, "replica=2"},
    {replica_below, KEEL_ERR_INVALID, "replica=-1"},
    {replicas_negative, KEEL_ERR_INVALID, "replica"},
};

static void check_spoilt(spoil_fn spoil, keel_status status, const char *word)
{
    model m;
    model_begin(&m);
    model_group(&m, KEEL_GROUP_ADAMW(0.1));
    model_add(&m, KEEL_FORMAT_F32, 4)->name = "good";
    keel_param *p = model_add(&m, KEEL_FORMAT_BF16, 4);
    model_copy(p, KEEL_FORMAT_E4M3);
    p->name = "bad";
    const keel_param whole = *p;
    spoil(p);
    keel_step *step = untouched;
    const keel_status got = keel_step_create(&m.cfg, m.params, m.count, NULL, 0, &step);
    check_refused(got, status, word, "keel_step_create", __FILE__, __LINE__);
    if (status == KEEL_OK) {
        keel_step_destroy(step);
    } else {
        assert_non_null(strstr(keel_last_error(), "keel_step_create: param 1 'bad'"));
        assert_ptr_equal(step, untouched);
    }
    *p = whole;
    model_end(&m);
}

static void test_config__parameters_are_checked_one_by_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(spoilt); i++)
        check_spoilt(spoilt[i].spoil, spoilt[i].status, spoilt[i].word);
}

/* Ids count over all ranks, so one past the count the caller gave is a contradiction. */
static void test_config__ids_lie_below_global_params(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    keel_step *step = untouched;
    model_add(&m, KEEL_FORMAT_F32, 1);
    keel_param *p = model_add(&m, KEEL_FORMAT_F32, 1);
    m.cfg.global_params = 1;
    assert_refused(keel_step_create(&m.cfg, m.params, 2, NULL, 0, &step), KEEL_ERR_INVALID,
                   "global_params=1");
    m.cfg.global_params = 7;
    p->id = 7;
    assert_refused(keel_step_create(&m.cfg, m.params, 2, NULL, 0, &step), KEEL_ERR_INVALID,
                   "id=7 (want below cfg.global_params=7)");
    assert_ptr_equal(step, untouched);
    p->id = 6;
    model_create(&m);
    model_end(&m);
}

static void test_config__count_and_outputs(void **state)
{
    (void)state;
    const keel_config cfg = KEEL_CONFIG_INIT;
    keel_step *step = untouched;
    size_t bytes;
    assert_refused(keel_step_create(&cfg, NULL, 1, NULL, 0, &step), KEEL_ERR_INVALID, "count=1");
    assert_refused(keel_step_create(&cfg, NULL, -1, NULL, 0, &step), KEEL_ERR_INVALID, "count=-1");
    assert_refused(keel_step_create(&cfg, NULL, 0, NULL, 0, NULL), KEEL_ERR_INVALID, "out_step");
    assert_refused(keel_step_workspace_size(&cfg, NULL, 0, NULL), KEEL_ERR_INVALID, "out_bytes");
    assert_ok(keel_step_workspace_size(&cfg, NULL, 0, &bytes));
    assert_ptr_equal(step, untouched);
}

/* Memory lent by the caller: enough and aligned, or refused; what lies behind it stays. */
static void test_config__workspace_of_the_caller(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    model_group(&m, KEEL_GROUP_SGD(1));
    model_add(&m, KEEL_FORMAT_F32, 4);
    size_t bytes;
    assert_ok(keel_step_workspace_size(&m.cfg, m.params, m.count, &bytes));
    const size_t room = (bytes + 255) / 256 * 256 + 256;
    unsigned char *memory = aligned_alloc(256, room);
    assert_non_null(memory);
    memset(memory, 0xa5, room);
    assert_refused(keel_step_create(&m.cfg, m.params, m.count, memory, bytes - 1, &m.step),
                   KEEL_ERR_INVALID, "workspace_bytes=");
    assert_refused(keel_step_create(&m.cfg, m.params, m.count, memory + 8, bytes, &m.step),
                   KEEL_ERR_INVALID, "aligned to 256");
    assert_null(m.step);
    assert_ok(keel_step_create(&m.cfg, m.params, m.count, memory, bytes, &m.step));
    model_set(&m.params[0], 0, 2);
    model_run(&m);
    assert_same_f32(m.params[0].master[0], -2.0f);
    keel_step_destroy(m.step);
    m.step = NULL;
    for (size_t i = bytes; i < room; i++) assert_int_equal(memory[i], 0xa5);
    free(memory);
    model_end(&m);
}

/* What create was given may go: names, groups and config are copies. */
static void test_config__arguments_are_copied(void **state)
{
    (void)state;
    model m;
    model_begin(&m);
    model_group(&m, KEEL_GROUP_SGD(1));
    char name[] = "layers.0.w";
    model_add(&m, KEEL_FORMAT_F32, 1)->name = name;
    model_add(&m, KEEL_FORMAT_F32, 1)->id = 9;
    model_set(&m.params[0], 0, 2);
    model_create(&m);
    memset(name, 'x', sizeof name - 1);
    m.groups[0] = KEEL_GROUP_ADAMW(9);
    m.cfg.max_norm = 0;
    model_run(&m);
    assert_same_f32(m.params[0].master[0], -2.0f);
    assert_string_equal(keel_step_param_name(m.step, 0), "layers.0.w");
    assert_string_equal(keel_step_param_name(m.step, 9), "#1");
    assert_null(keel_step_param_name(m.step, 1));
    assert_null(keel_step_param_name(m.step, -1));
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config__init_gives_the_defaults_of_the_table),
        cmocka_unit_test(test_config__both_ends_of_every_bound_are_legal),
        cmocka_unit_test(test_config__outside_every_bound_is_refused_by_name),
        cmocka_unit_test(test_config__loss_scale_fits_its_bounds),
        cmocka_unit_test(test_config__struct_size_rules),
        cmocka_unit_test(test_config__foreign_extensions_are_refused),
        cmocka_unit_test(test_config__groups),
        cmocka_unit_test(test_config__parameters_are_checked_one_by_one),
        cmocka_unit_test(test_config__ids_lie_below_global_params),
        cmocka_unit_test(test_config__count_and_outputs),
        cmocka_unit_test(test_config__workspace_of_the_caller),
        cmocka_unit_test(test_config__arguments_are_copied),
    };
    return cmocka_run_group_tests_name("runtime.config", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The state of the rules as one blob.
 *
 *   "KEELSTEP" | version u32 | size u32 | fields, little-endian, in the order of walk() | crc32 u32
 *
 * One function walks the fields in both directions, so save and load cannot drift apart. */
#include "blob.h"
#include "config.h"

enum { BLOB_VERSION = 1, BLOB_HEADER = 16, BLOB_TRAILER = 4 };

static const unsigned char magic[8] = {'K', 'E', 'E', 'L', 'S', 'T', 'E', 'P'};

/* What a blob holds besides groups and slots, on the host. */
typedef struct image {
    keel_loss_scale_config loss_scale;
    int32_t norm_mode;
    int32_t rate_window;
    int32_t group_count;
    int32_t slot_count;
    keeli_state state;
} image;

static void walk_rate(keeli_cursor *c, keeli_rate *rate)
{
    for (int i = 0; i < KEELI_RATE_WORDS; i++) FIELD(c, rate->bits[i]);
    FIELD(c, rate->count);
}

static void walk_loss_scale(keeli_cursor *c, keel_loss_scale_config *cfg, keel_loss_scale_state *s)
{
    FIELD(c, cfg->rule);
    FIELD(c, cfg->mode);
    FIELD(c, cfg->init);
    FIELD(c, cfg->growth);
    FIELD(c, cfg->backoff);
    FIELD(c, cfg->min);
    FIELD(c, cfg->max);
    FIELD(c, cfg->interval);
    FIELD(c, cfg->hysteresis);
    FIELD(c, s->scale);
    FIELD(c, s->clean);
    FIELD(c, s->hysteresis_left);
    FIELD(c, s->stuck);
    FIELD(c, s->iteration);
    FIELD(c, s->last_overflow);
}

static void walk(keeli_cursor *c, image *im)
{
    FIELD(c, im->norm_mode);
    FIELD(c, im->rate_window);
    FIELD(c, im->group_count);
    FIELD(c, im->slot_count);
    walk_loss_scale(c, &im->loss_scale, &im->state.loss_scale);
    FIELD(c, im->state.step);
    FIELD(c, im->state.applied);
    FIELD(c, im->state.skipped);
    walk_rate(c, &im->state.skip_rate);
    walk_rate(c, &im->state.clip_rate);
}

static void walk_group(keeli_cursor *c, int32_t *optimizer, keeli_group_state *g)
{
    FIELD(c, *optimizer);
    FIELD(c, g->beta1_power);
    FIELD(c, g->beta2_power);
    FIELD(c, g->applied);
}

static uint32_t crc32_of(const unsigned char *bytes, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int b = 0; b < 8; b++) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
    }
    return ~crc;
}

size_t keel_step_state_size(const keel_step *step)
{
    if (!step) return 0;
    image unused;
    int32_t optimizer = 0;
    keeli_group_state group = {0};
    keeli_cursor c = {NULL, 0, KEELI_MEASURE};
    walk(&c, &unused);
    for (int32_t g = 0; g < step->mem.settings.group_count; g++) walk_group(&c, &optimizer, &group);
    keeli_blob_measure_slots(step, &c);
    return BLOB_HEADER + c.used + BLOB_TRAILER;
}

static keel_status read_state(keel_step *step, image *im)
{
    const keeli_settings *set = &step->mem.settings;
    memset(im, 0, sizeof *im);
    im->loss_scale = set->loss_scale;
    im->norm_mode = (int32_t)set->norm_mode;
    im->rate_window = set->rate_window;
    im->group_count = set->group_count;
    im->slot_count = set->slot_count;
    step->counters.host_syncs += !step->device->synchronous;
    return step->device->download(step->device, &im->state, step->mem.state, sizeof im->state,
                                  NULL);
}

static keel_status save_groups(keel_step *step, keeli_cursor *c)
{
    for (int32_t g = 0; g < step->mem.settings.group_count; g++) {
        keeli_group_state group = {0};
        int32_t optimizer = (int32_t)step->groups[g].optimizer;
        TRY(step->device->download(step->device, &group, &step->mem.group_state[g], sizeof group,
                                   NULL));
        walk_group(c, &optimizer, &group);
    }
    return KEEL_OK;
}

keel_status keel_step_state_save(keel_step *step, void *buffer, size_t size)
{
    if (!step || !buffer) FAIL(KEEL_ERR_INVALID, "%s is NULL", step ? "buffer" : "step");
    TRY(keeli_step_want_between(step, __func__));
    const size_t needed = keel_step_state_size(step);
    if (size < needed) FAIL(KEEL_ERR_INVALID, "size=%zu (want >= %zu)", size, needed);
    image im;
    TRY(read_state(step, &im));

    keeli_cursor c = {buffer, 0, KEELI_SAVE};
    uint32_t version = BLOB_VERSION, total = (uint32_t)needed;
    memcpy(buffer, magic, sizeof magic);
    c.used = sizeof magic;
    FIELD(&c, version);
    FIELD(&c, total);
    walk(&c, &im);
    TRY(save_groups(step, &c));
    TRY(keeli_blob_save_slots(step, &c));
    uint32_t crc = crc32_of(buffer, c.used);
    FIELD(&c, crc);
    return KEEL_OK;
}

#define REFUSE(...) return keel_ext_fail(KEEL_ERR_STATE, "keel_step_state_load", __VA_ARGS__)

static keel_status check_frame(const keel_step *step, const unsigned char *blob, size_t size)
{
    keeli_cursor c = {(unsigned char *)(uintptr_t)blob, sizeof magic, KEELI_LOAD};
    uint32_t version = 0, total = 0, crc = 0;
    if (size < BLOB_HEADER + BLOB_TRAILER) REFUSE("truncated: %zu bytes are no header", size);
    if (memcmp(blob, magic, sizeof magic) != 0) REFUSE("foreign: no KEELSTEP at its start");
    FIELD(&c, version);
    FIELD(&c, total);
    if (version != BLOB_VERSION) REFUSE("version %u (want %d)", version, BLOB_VERSION);
    if (size != total)
        REFUSE("%s: %zu bytes of %u", size < total ? "truncated" : "too long", size, total);
    c.used = size - BLOB_TRAILER;
    FIELD(&c, crc);
    if (crc != crc32_of(blob, size - BLOB_TRAILER)) REFUSE("damaged: checksum does not match");
    if (size != keel_step_state_size(step))
        REFUSE("of a step with other groups or slots: %zu bytes (want %zu)", size,
               keel_step_state_size(step));
    return KEEL_OK;
}

/* A checksum does not prove good sense: a blob could be written by other hands.  What passes here
 * cannot overflow a counter or leave a rule's range. */
#define STEPS_MAX ((int64_t)1 << 62)

static bool counters_agree(const keeli_state *s)
{
    return s->step >= 0 && s->step <= STEPS_MAX && s->applied >= 0 && s->applied <= s->step &&
           s->skipped >= 0 && s->skipped <= s->step - s->applied;
}

static bool loss_scale_agrees(const keel_loss_scale_config *c, const keel_loss_scale_state *s,
                              int64_t steps)
{
    const float lo = c->mode == KEEL_LOSS_SCALE_OFF ? 1.0f : c->min;
    const float hi = c->mode == KEEL_LOSS_SCALE_OFF ? 1.0f : c->max;
    return s->scale >= lo && s->scale <= hi && s->clean >= 0 && s->clean <= c->interval &&
           s->clean < INT32_MAX && s->hysteresis_left >= 1 && s->hysteresis_left <= c->hysteresis &&
           (s->stuck == 0 || s->stuck == 1) && s->iteration >= 0 && s->iteration <= steps &&
           s->last_overflow >= -1 && s->last_overflow < s->iteration;
}

/* n steps have been pushed: no bit lies beyond them or the window, and count is their number. */
static bool rate_agrees(const keeli_rate *rate, int64_t n, int32_t window)
{
    int64_t ones = 0;
    for (int32_t at = 0; at < KEELI_RATE_WORDS * 64; at++) {
        const int bit = (int)(rate->bits[at / 64] >> at % 64 & 1);
        if (bit && (at >= n || at >= window)) return false;
        ones += bit;
    }
    return rate->count == ones;
}

static keel_status check_image(const keel_step *step, const image *im)
{
    const keeli_settings *set = &step->mem.settings;
    const keeli_state *s = &im->state;
    keel_loss_scale_state unused;
    if (im->norm_mode != (int32_t)set->norm_mode)
        REFUSE("norm mode %d (this step has %d)", im->norm_mode, (int)set->norm_mode);
    if (im->rate_window != set->rate_window)
        REFUSE("rate window %d (this step has %d)", im->rate_window, set->rate_window);
    if (im->group_count != set->group_count)
        REFUSE("%d groups (this step has %d)", im->group_count, set->group_count);
    if (im->slot_count != set->slot_count)
        REFUSE("%d slots (this step has %d)", im->slot_count, set->slot_count);
    if (keel_loss_scale_begin(&im->loss_scale, &unused) != KEEL_OK)
        REFUSE("its loss scale is out of bounds");
    if (!counters_agree(s)) REFUSE("its counters contradict each other");
    if (!loss_scale_agrees(&im->loss_scale, &s->loss_scale, s->step))
        REFUSE("loss scale %g does not follow from its rule", (double)s->loss_scale.scale);
    if (!rate_agrees(&s->skip_rate, s->applied + s->skipped, set->rate_window) ||
        !rate_agrees(&s->clip_rate, s->applied + s->skipped, set->rate_window))
        REFUSE("its rates contradict its counters");
    return KEEL_OK;
}

static bool is_power(double x)
{
    return x >= 0 && x <= 1;
}

static keel_status check_groups(const keel_step *step, const image *im, keeli_cursor *c)
{
    for (int32_t g = 0; g < step->mem.settings.group_count; g++) {
        keeli_group_state group = {0};
        int32_t optimizer = 0;
        walk_group(c, &optimizer, &group);
        if (optimizer != (int32_t)step->groups[g].optimizer)
            REFUSE("group %d has optimizer %d (this step has %d)", g, optimizer,
                   (int)step->groups[g].optimizer);
        if (!is_power(group.beta1_power) || !is_power(group.beta2_power) || group.applied < 0 ||
            group.applied > im->state.applied)
            REFUSE("group %d has beta powers %g and %g after %lld steps", g, group.beta1_power,
                   group.beta2_power, (long long)group.applied);
    }
    return KEEL_OK;
}

static keel_status apply(keel_step *step, const image *im, keeli_cursor c)
{
    const keel_device *device = step->device;
    for (int32_t g = 0; g < step->mem.settings.group_count; g++) {
        keeli_group_state group = {0};
        int32_t optimizer = 0;
        walk_group(&c, &optimizer, &group);
        TRY(device->upload(device, &step->mem.group_state[g], &group, sizeof group, NULL));
    }
    TRY(keeli_blob_apply_slots(step, &c));
    const keel_decision decision = {.loss_scale = im->state.loss_scale.scale};
    TRY(device->upload(device, step->mem.state, &im->state, sizeof im->state, NULL));
    TRY(device->upload(device, step->mem.decision, &decision, sizeof decision, NULL));
    step->mem.settings.loss_scale = im->loss_scale;
    step->decided = step->loaded = im->state.step;
    step->phase = KEELI_OPEN;
    return KEEL_OK;
}

keel_status keel_step_state_load(keel_step *step, const void *buffer, size_t size)
{
    if (!step || !buffer) FAIL(KEEL_ERR_INVALID, "%s is NULL", step ? "buffer" : "step");
    TRY(keeli_step_want_between(step, __func__));
    TRY(check_frame(step, buffer, size));
    keeli_cursor c = {(unsigned char *)(uintptr_t)buffer, BLOB_HEADER, KEELI_LOAD};
    image im;
    memset(&im, 0, sizeof im);
    walk(&c, &im);
    TRY(check_image(step, &im));
    keeli_cursor groups = c; /* checked whole before anything is taken over */
    TRY(check_groups(step, &im, &c));
    TRY(keeli_blob_check_slots(step, &c));
    return apply(step, &im, groups);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The report of a step, its line of JSON, and what the log says.
 *
 * "Report of a step: step, applied, cause, first bad tensor, rank and index, counts, loss scale now
 * and next, grad_norm, clip_coef, rolling skip rate and clip rate, applied steps.  JSONL schema
 * versioned; NaN and infinity as null plus a text field." */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "../bench/strict_json.h"
#include "check.h"
#include "model.h"

enum { LINE_MAX_BYTES = 2048 };

static void begin(model *m, int32_t window, int32_t capacity)
{
    model_begin(m);
    m->cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
    m->cfg.loss_scale.init = 8;
    m->cfg.rate_window = window;
    m->cfg.report_capacity = capacity;
    m->cfg.max_norm = 1;
    model_group(m, KEEL_GROUP_SGD(1));
}

static void step_with(model *m, float gradient)
{
    model_set(&m->params[0], 0, gradient);
    model_run(m);
}

static void test_report__says_what_happened(void **state)
{
    (void)state;
    model m;
    begin(&m, 100, 64);
    model_add_f32(&m, 4, (float[]){3 * 8, -0.0f, 4 * 8, 0});
    model_create(&m);
    assert_ok(keel_step_set_tag(m.step, UINT64_MAX));
    model_run(&m);
    keel_report r = model_report(&m);
    assert_int_equal(r.step, 1);
    assert_true(r.tag == UINT64_MAX);
    assert_int_equal(r.applied, 1);
    assert_int_equal(r.cause, KEEL_CAUSE_NONE);
    assert_same_f64(r.norm, 5.0);
    assert_same_f32(r.clip_coef, (float)(1 / (5 + 1e-6)));
    assert_same_f32(r.loss_scale, 8.0f);
    assert_same_f32(r.loss_scale_next, 8.0f);
    assert_int_equal(r.loss_scale_stuck, 0);
    assert_int_equal(r.elements, 4);
    assert_int_equal(r.zero_count, 2);
    assert_int_equal(r.inf_count + r.nan_count + r.bad_ranks + r.loss_votes + r.veto_votes, 0);
    assert_int_equal(r.origin, KEEL_ORIGIN_NONE);
    assert_int_equal(r.culprit_rank, -1);
    assert_int_equal(r.culprit_tensor, -1);
    assert_int_equal(r.local_tensor, -1);
    assert_int_equal(r.local_index, -1);
    assert_int_equal(r.applied_steps, 1);
    assert_same_f64(r.skip_rate, 0.0);
    assert_same_f64(r.clip_rate, 1.0);

    model_set(&m.params[0], 1, NAN);
    model_set(&m.params[0], 3, INFINITY);
    assert_ok(keel_step_set_tag(m.step, 7));
    model_run(&m);
    r = model_report(&m);
    assert_int_equal(r.step, 2);
    assert_true(r.tag == 7);
    assert_int_equal(r.cause, KEEL_CAUSE_NAN);
    assert_int_equal(r.inf_count, 1);
    assert_int_equal(r.nan_count, 1);
    assert_int_equal(r.zero_count, 0);
    assert_int_equal(r.local_index, 1);
    assert_same_f32(r.loss_scale, 8.0f);
    assert_same_f32(r.loss_scale_next, 4.0f);
    assert_int_equal(r.applied_steps, 1);
    assert_int_equal(r.skipped_steps, 1);
    assert_same_f64(r.skip_rate, 0.5);
    assert_same_f64(r.clip_rate, 0.5);
    model_end(&m);
}

/* "over the last rate_window steps, or as many as there were". */
static void test_report__rates_roll(void **state)
{
    (void)state;
    for (int32_t window = 1; window <= 1024; window = window * 3 + (window == 1 ? 3 : 61)) {
        model m;
        begin(&m, window, 4);
        model_add(&m, KEEL_FORMAT_F32, 1);
        m.cfg.loss_scale.mode = KEEL_LOSS_SCALE_OFF;
        model_create(&m);
        int skips[2200], clips[2200];
        for (int i = 0; i < window * 2 + 5; i++) {
            skips[i] = i * 7 % 5 == 0;
            clips[i] = !skips[i] && i % 3 == 0;
            step_with(&m, skips[i] ? NAN : clips[i] ? 2 : 0.5f);
            const int n = i + 1 < window ? i + 1 : window;
            int skipped = 0, clipped = 0;
            for (int j = i - n + 1; j <= i; j++) {
                skipped += skips[j];
                clipped += clips[j];
            }
            assert_same_f64(model_report(&m).skip_rate, (double)skipped / n);
            assert_same_f64(model_report(&m).clip_rate, (double)clipped / n);
        }
        model_end(&m);
    }
}

/* "NOT_FOUND not decided yet, or the ring has moved on; the sentence says which." */
static void test_report__ring_keeps_the_last_ones(void **state)
{
    (void)state;
    model m;
    begin(&m, 10, 3);
    model_add(&m, KEEL_FORMAT_F32, 1);
    model_create(&m);
    keel_report r = {.step = -7};
    assert_refused(keel_step_report(m.step, 0, &r), KEEL_ERR_NOT_FOUND, "0 steps are decided");
    for (int i = 1; i <= 8; i++) {
        step_with(&m, (float)i);
        for (int id = 1; id <= 8; id++) {
            r.step = -7;
            if (id > i)
                assert_refused(keel_step_report(m.step, id, &r), KEEL_ERR_NOT_FOUND, "decided");
            else if (id <= i - 3)
                assert_refused(keel_step_report(m.step, id, &r), KEEL_ERR_NOT_FOUND, "left the");
            else
                assert_ok(keel_step_report(m.step, id, &r));
            assert_int_equal(r.step, id <= i && id > i - 3 ? id : -7);
        }
    }
    assert_refused(keel_step_report(m.step, -1, &r), KEEL_ERR_NOT_FOUND, "step -1");
    assert_refused(keel_step_report(m.step, 1, NULL), KEEL_ERR_INVALID, "out_report");
    assert_refused(keel_step_report(NULL, 1, &r), KEEL_ERR_INVALID, "step is NULL");
    model_end(&m);
}

static const keel_report full = {
    .step = INT64_MAX,
    .tag = UINT64_MAX,
    .applied = 1,
    .cause = KEEL_CAUSE_SKIP_NORM,
    .norm = 0.1,
    .clip_coef = 0.1f,
    .loss_scale = 0x1p-126f,
    .loss_scale_next = 0x1p126f,
    .loss_scale_stuck = 1,
    .elements = INT64_MIN,
    .inf_count = 3,
    .nan_count = 4,
    .bad_ranks = 5,
    .loss_votes = 6,
    .veto_votes = 7,
    .origin = KEEL_ORIGIN_SHARED,
    .culprit_rank = 8,
    .culprit_tensor = 9,
    .culprit_slot = 3,
    .local_tensor = -1,
    .local_index = -1,
    .probed = 12,
    .applied_steps = 13,
    .skipped_steps = 14,
    .skip_rate = 1e-9,
    .clip_rate = 0x1.fffffffffffffp-1,
};

static const char *json_of(const keel_report *r, const char *name)
{
    static char line[LINE_MAX_BYTES];
    size_t len = 0;
    assert_ok(keel_report_json(r, name, line, sizeof line, &len));
    assert_int_equal(len, strlen(line));
    const char *fault = json_fault(line);
    if (fault) fail_msg("not JSON from here: %s", fault);
    assert_null(strchr(line, '\n'));
    return line;
}

/* Every field by its name; numbers come back to the bit. */
static void test_report__json_has_every_field(void **state)
{
    (void)state;
    const char *line = json_of(&full, "layers.3.\"w\"\\\t\x01 \xc3\xa9");
    assert_true(json_is(line, "keel_report", "1"));
    assert_true(json_is(line, "step", "9223372036854775807"));
    assert_true(json_is(line, "tag", "18446744073709551615"));
    assert_true(json_is(line, "applied", "true"));
    assert_true(json_is(line, "cause", "\"skip_norm\""));
    assert_same_f64(json_number_at(line, "norm"), 0.1);
    assert_same_f32((float)json_number_at(line, "clip_coef"), 0.1f);
    assert_same_f32((float)json_number_at(line, "loss_scale"), 0x1p-126f);
    assert_same_f32((float)json_number_at(line, "loss_scale_next"), 0x1p126f);
    assert_true(json_is(line, "loss_scale_stuck", "true"));
    assert_true(json_is(line, "elements", "-9223372036854775808"));
    assert_true(json_is(line, "zero_count", "0"));
    assert_true(json_is(line, "inf_count", "3"));
    assert_true(json_is(line, "nan_count", "4"));
    assert_true(json_is(line, "bad_ranks", "5"));
    assert_true(json_is(line, "loss_votes", "6"));
    assert_true(json_is(line, "veto_votes", "7"));
    assert_true(json_is(line, "origin", "\"shared\""));
    assert_true(json_is(line, "culprit_rank", "8"));
    assert_true(json_is(line, "culprit_tensor", "9"));
    assert_true(json_is(line, "culprit_slot", "3"));
    assert_true(json_is(line, "culprit_name", "\"layers.3.\\\"w\\\"\\\\\\u0009\\u0001 \xc3\xa9\""));
    assert_true(json_is(line, "local_tensor", "-1"));
    assert_true(json_is(line, "local_index", "-1"));
    assert_true(json_is(line, "probed", "12"));
    assert_true(json_is(line, "applied_steps", "13"));
    assert_true(json_is(line, "skipped_steps", "14"));
    assert_same_f64(json_number_at(line, "skip_rate"), 1e-9);
    assert_same_f64(json_number_at(line, "clip_rate"), 0x1.fffffffffffffp-1);
    assert_int_equal(json_count(line, ""), 29);
    assert_null(json_find(json_of(&full, NULL), "culprit_name"));
}

/* The-OpenROAD-Project/OpenROAD#2715: no bare NaN or Infinity, just when something went wrong. */
static void test_report__json_of_what_is_not_finite(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    static const char *const text[] = {"\"nan\"", "\"inf\"", "\"-inf\""};
    for (int i = 0; i < 3; i++) {
        keel_report r = full;
        r.norm = (double)bad[i];
        r.clip_coef = r.loss_scale = r.loss_scale_next = bad[i];
        r.skip_rate = r.clip_rate = (double)bad[i];
        static const char *const names[] = {
            "norm", "clip_coef", "loss_scale", "loss_scale_next", "skip_rate", "clip_rate"};
        const char *line = json_of(&r, NULL);
        for (int n = 0; n < 6; n++) {
            char beside[64];
            snprintf(beside, sizeof beside, "%s_text", names[n]);
            assert_true(json_is(line, names[n], "null"));
            assert_true(json_is(line, beside, text[i]));
        }
    }
    assert_null(json_find(json_of(&full, NULL), "norm_text"));
}

/* Names are the caller's bytes; the line is UTF-8 in any case. */
static void test_report__json_of_names_that_are_no_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *name, *spelling;
    } names[] = {
        {"gr\xf6\xdf"
         "e",
         "\"gr\\ufffd\\ufffde\""},          /* Latin-1 */
        {"\xe2\x82", "\"\\ufffd\\ufffd\""}, /* cut short */
        {"\xc0\xaf\xed\xa0\x80\xf5", "\"\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\""},
        {"\xe2\x82\xac\xf0\x9f\x9a\xa2", "\"\xe2\x82\xac\xf0\x9f\x9a\xa2\""},
        {"", "\"\""},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(json_is(json_of(&full, names[i].name), "culprit_name", names[i].spelling));
}

/* A locale with a decimal comma must not reach the line. */
static void test_report__json_knows_no_locale(void **state)
{
    (void)state;
    static const char *const commas[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ps_AF"};
    char plain[LINE_MAX_BYTES];
    snprintf(plain, sizeof plain, "%s", json_of(&full, "w"));
    for (size_t i = 0; i < sizeof commas / sizeof *commas; i++) {
        if (!setlocale(LC_NUMERIC, commas[i])) continue;
        assert_string_equal(json_of(&full, "w"), plain);
    }
    setlocale(LC_NUMERIC, "C");
}

/* "out_len: characters without the terminating 0, also when the buffer is too small". */
static void test_report__json_fits_or_says_how_long(void **state)
{
    (void)state;
    size_t len = 0, again = 0;
    assert_ok(keel_report_json(&full, "w", NULL, 0, &len));
    assert_true(len > 100);
    for (size_t size = 1; size <= len + 2; size++) {
        char *buffer = malloc(size); /* of this very size, so that an overrun is seen */
        assert_non_null(buffer);
        const keel_status status = keel_report_json(&full, "w", buffer, size, &again);
        assert_int_equal(status, size > len ? KEEL_OK : KEEL_ERR_INVALID);
        assert_int_equal(again, len);
        if (size > len) assert_int_equal(strlen(buffer), len);
        free(buffer);
    }
    assert_refused(keel_report_json(NULL, NULL, NULL, 0, NULL), KEEL_ERR_INVALID, "report");
    assert_refused(keel_report_json(&full, NULL, NULL, 5, NULL), KEEL_ERR_INVALID, "buffer");
}

static void test_report__causes_have_names(void **state)
{
    (void)state;
#define X(name, value, text) assert_string_equal(keel_cause_string((keel_cause)(value)), text);
    KEEL_CAUSE_LIST(X)
#undef X
    assert_string_equal(keel_cause_string((keel_cause)99), "unknown");
    assert_string_equal(keel_cause_string((keel_cause)-1), "unknown");
}

typedef struct diary {
    int lines;
    keel_log_level level;
    char last[512];
} diary;

static void write_down(void *context, keel_log_level level, const char *message)
{
    diary *d = context;
    d->lines++;
    d->level = level;
    snprintf(d->last, sizeof d->last, "%s", message);
}

/* "a log callback instead" of printing: skips are told with their culprit, high rates once. */
static void test_report__log_tells_of_skips_and_rates(void **state)
{
    (void)state;
    diary d = {0};
    model m;
    begin(&m, 4, 8);
    m.cfg.log = write_down;
    m.cfg.log_context = &d;
    m.cfg.skip_rate_alert = 0.25f;
    model_add(&m, KEEL_FORMAT_F32, 1)->name = "embed.w";
    model_create(&m);
    step_with(&m, 1);
    assert_int_equal(d.lines, 0);
    step_with(&m, INFINITY);
    assert_int_equal(d.lines, 1);
    assert_int_equal(d.level, KEEL_LOG_INFO);
    assert_non_null(strstr(d.last, "step 2 skipped: inf"));
    assert_non_null(strstr(d.last, "'embed.w'"));
    assert_null(strchr(d.last, '\n'));
    step_with(&m, 1);
    step_with(&m, 1);
    assert_int_equal(d.lines, 1);
    step_with(&m, NAN); /* two of the last four */
    assert_int_equal(d.lines, 3);
    assert_int_equal(d.level, KEEL_LOG_WARNING);
    assert_non_null(strstr(d.last, "skip rate 0.5"));
    for (int i = 0; i < 4; i++) step_with(&m, 1);
    assert_int_equal(d.lines, 3);
    step_with(&m, NAN);
    step_with(&m, NAN); /* risen again */
    assert_int_equal(d.lines, 6);
    model_end(&m);
}

/* "At the minimum: reported as stuck, never an exit." */
static void test_report__log_warns_of_a_stuck_scale(void **state)
{
    (void)state;
    diary d = {0};
    model m;
    begin(&m, 100, 8);
    m.cfg.loss_scale.min = 8;
    m.cfg.log = write_down;
    m.cfg.log_context = &d;
    model_add(&m, KEEL_FORMAT_F32, 1);
    model_create(&m);
    step_with(&m, INFINITY);
    assert_int_equal(model_report(&m).loss_scale_stuck, 1);
    assert_int_equal(d.level, KEEL_LOG_WARNING);
    model_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report__says_what_happened),
        cmocka_unit_test(test_report__rates_roll),
        cmocka_unit_test(test_report__ring_keeps_the_last_ones),
        cmocka_unit_test(test_report__json_has_every_field),
        cmocka_unit_test(test_report__json_of_what_is_not_finite),
        cmocka_unit_test(test_report__json_of_names_that_are_no_utf8),
        cmocka_unit_test(test_report__json_knows_no_locale),
        cmocka_unit_test(test_report__json_fits_or_says_how_long),
        cmocka_unit_test(test_report__causes_have_names),
        cmocka_unit_test(test_report__log_tells_of_skips_and_rates),
        cmocka_unit_test(test_report__log_warns_of_a_stuck_scale),
    };
    return cmocka_run_group_tests_name("runtime.report", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel_step_state_load: foreign bytes, and a good blob bent by them and sealed again.  Refused, and
 * the step is as before; or taken, and then saving gives the same bytes and the step runs. */
#include "fuzz.h"
#include "seal.h"

enum { NUMEL = 5, BLOB_MAX = 2048, HEADER = 16 };

typedef struct subject {
    keel_step *step;
    size_t size;
    unsigned char good[BLOB_MAX];
    float memory[2][4][NUMEL];
} subject;

static void open_subject(subject *s)
{
    keel_group groups[2] = {KEEL_GROUP_ADAMW(0.1), KEEL_GROUP_SGD(0.1)};
    keel_param params[2];
    keel_config cfg = KEEL_CONFIG_INIT;
    groups[1].momentum = 0.5;
    cfg.groups = groups;
    cfg.group_count = 2;
    cfg.rate_window = 9;
    MUST(keel_loss_scale_preset("deepspeed", &cfg.loss_scale) == KEEL_OK);
    for (int i = 0; i < 2; i++) {
        params[i] = KEEL_PARAM_INIT;
        params[i].group = i;
        params[i].grad =
            (keel_tensor){.data = s->memory[i][0], .numel = NUMEL, .format = KEEL_FORMAT_F32};
        params[i].master = s->memory[i][1];
        params[i].moment1 = s->memory[i][2];
        params[i].moment2 = s->memory[i][3];
    }
    MUST(keel_step_create(&cfg, params, 2, NULL, 0, &s->step) == KEEL_OK);
    s->memory[0][0][1] = 1;
    for (int i = 0; i < 12; i++) {
        s->memory[1][0][2] = i % 5 == 3 ? INFINITY : 1;
        MUST(keel_step_run(s->step, NULL) == KEEL_OK);
    }
    s->size = keel_step_state_size(s->step);
    MUST(s->size <= BLOB_MAX);
    MUST(keel_step_state_save(s->step, s->good, s->size) == KEEL_OK);
}

static void run_on(subject *s)
{
    float scale = 0;
    keel_report r;
    for (int i = 0; i < 4; i++) {
        s->memory[1][0][2] = i == 1 ? NAN : 1;
        MUST(keel_step_run(s->step, NULL) == KEEL_OK);
    }
    MUST(keel_step_loss_scale(s->step, &scale) == KEEL_OK);
    MUST(scale >= 0x1p-126f && scale <= 0x1p126f);
    MUST(keel_step_report(s->step, 0, &r) == KEEL_OK);
    MUST(r.skip_rate >= 0 && r.skip_rate <= 1 && r.clip_rate >= 0 && r.clip_rate <= 1);
}

static void try_blob(subject *s, const unsigned char *blob, size_t size)
{
    unsigned char after[BLOB_MAX];
    const keel_status status = keel_step_state_load(s->step, blob, size);
    MUST(status == KEEL_OK || status == KEEL_ERR_STATE);
    MUST(keel_step_state_save(s->step, after, s->size) == KEEL_OK);
    if (status == KEEL_ERR_STATE) {
        MUST(memcmp(after, s->good, s->size) == 0);
        return;
    }
    MUST(size == s->size && memcmp(after, blob, size) == 0);
    run_on(s);
    MUST(keel_step_state_load(s->step, s->good, s->size) == KEEL_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static subject s;
    unsigned char bent[BLOB_MAX];
    if (!s.step) open_subject(&s);
    unsigned char *exact = malloc(size + 1); /* so that a read past the end is seen */
    MUST(exact);
    if (size > 0) memcpy(exact, data, size);
    try_blob(&s, exact, size);
    free(exact);
    memcpy(bent, s.good, s.size);
    for (size_t i = 0; i < size && HEADER + i < s.size - 4; i++) bent[HEADER + i] ^= data[i];
    seal(bent, s.size);
    try_blob(&s, bent, s.size);
    return 0;
}

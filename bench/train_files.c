/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What a run leaves behind: report lines and checkpoints.
 *
 *   "KEELTRN1" | recipe char[32] | step i64 | rules bytes i64 | rules | params, moment1, moment2
 *   | crc32 u32 of all before it                                     (little-endian machines) */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "json.h"
#include "train.h"

uint32_t train_crc32(const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int b = 0; b < 8; b++) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
    }
    return ~crc;
}

void train_report_line(FILE *file, const train_result *r, const train_options *o, int64_t index)
{
    const train_point *p = &r->points[index];
    char report[2048];
    json j;
    json_begin(&j, file);
    json_object(&j, NULL);
    json_text(&j, "recipe", r->recipe->name);
    json_int(&j, "ranks", o->ranks);
    json_real(&j, "max_norm", r->max_norm);
    json_real32(&j, "loss", p->loss);
    if (!keel_report_json(&p->report, p->culprit[0] ? p->culprit : NULL, report, sizeof report,
                          NULL))
        json_raw(&j, "report", report);
    json_end(&j);
}

typedef struct header {
    char magic[8];
    char recipe[32];
    int64_t step;
    int64_t rules_bytes;
} header;

static const char magic[8] = {'K', 'E', 'E', 'L', 'T', 'R', 'N', '1'};

static size_t vector_bytes(const train_checkpoint *c)
{
    return (size_t)c->param_count * sizeof(float);
}

static size_t file_size(const train_checkpoint *c)
{
    return sizeof(header) + keel_step_state_size(c->rules) + 3 * vector_bytes(c) + sizeof(uint32_t);
}

int train_save(FILE *file, const train_checkpoint *c)
{
    const size_t rules_bytes = keel_step_state_size(c->rules), size = file_size(c);
    unsigned char *image = malloc(size), *at = image;
    if (!image) return cli_fail(CLI_ENVIRONMENT, "no memory for a checkpoint of %zu bytes", size);
    header h = {.step = c->step, .rules_bytes = (int64_t)rules_bytes};
    memcpy(h.magic, magic, sizeof magic);
    snprintf(h.recipe, sizeof h.recipe, "%s", c->recipe->name);
    memcpy(at, &h, sizeof h);
    at += sizeof h;
    const keel_status status = keel_step_state_save(c->rules, at, rules_bytes);
    at += rules_bytes;
    const float *vectors[] = {c->params, c->moment1, c->moment2};
    for (int i = 0; i < 3; i++, at += vector_bytes(c)) memcpy(at, vectors[i], vector_bytes(c));
    const uint32_t crc = train_crc32(image, size - sizeof crc);
    memcpy(at, &crc, sizeof crc);

    int code = CLI_OK;
    if (status)
        code = cli_library_error(status);
    else if (fwrite(image, 1, size, file) != size)
        code = cli_fail(CLI_ENVIRONMENT, "cannot write the checkpoint");
    free(image);
    return code;
}

/* The whole file, or NULL; *out_size is what was read. */
static unsigned char *read_file(const char *path, size_t limit, size_t *out_size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *image = file ? malloc(limit + 1) : NULL;
    *out_size = image ? fread(image, 1, limit + 1, file) : 0;
    if (file) fclose(file);
    return image;
}

/* NULL, or what is wrong with a checkpoint. */
static const char *judge(const unsigned char *image, size_t size, const train_checkpoint *c,
                         header *h)
{
    const size_t rules_bytes = keel_step_state_size(c->rules);
    uint32_t crc;
    if (size < sizeof *h) return "is too short for a checkpoint";
    memcpy(h, image, sizeof *h);
    if (memcmp(h->magic, magic, sizeof magic) != 0) return "is no checkpoint of keel train";
    if (size != file_size(c) || h->rules_bytes != (int64_t)rules_bytes)
        return "is truncated or of another version";
    memcpy(&crc, image + size - sizeof crc, sizeof crc);
    if (crc != train_crc32(image, size - sizeof crc)) return "is damaged";
    if (strncmp(h->recipe, c->recipe->name, sizeof h->recipe) != 0) return "is of another recipe";
    return NULL;
}

int train_load(const char *path, train_checkpoint *c, bool speaks)
{
    const size_t limit = file_size(c);
    size_t size;
    header h;
    unsigned char *image = read_file(path, limit, &size);
    const char *wrong = image ? judge(image, size, c, &h) : "cannot be read";
    if (!wrong && keel_step_state_load(c->rules, image + sizeof h, (size_t)h.rules_bytes))
        wrong = keel_last_error();
    if (wrong) {
        if (speaks) cli_fail(CLI_ENVIRONMENT, "%s %s", path, wrong);
        free(image);
        return CLI_ENVIRONMENT;
    }
    const unsigned char *at = image + sizeof h + h.rules_bytes;
    float *vectors[] = {c->params, c->moment1, c->moment2};
    for (int i = 0; i < 3; i++, at += vector_bytes(c)) memcpy(vectors[i], at, vector_bytes(c));
    c->step = h.step;
    free(image);
    return CLI_OK;
}

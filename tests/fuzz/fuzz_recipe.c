/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel_recipe_from_json: any text, and a good document with bytes changed.  Refused with a line,
 * and the output is untouched; or taken, and then what is written is strict JSON that reads as the
 * same recipe. */
#include "../bench/strict_json.h"
#include "fuzz.h"

enum { TEXT_MAX = 8192 };

static const char good[] =
    "{\"keel_recipe\": 1, \"name\": \"m\\u20ac\", \"base\": \"fp8-delayed\",\n"
    "\"linear\": {\"input\": \"e4m3 mx\", \"gradient\": {\"format\": \"e5m2\"}},\n"
    "\"loss_scale\": {\"mode\": \"off\", \"init\": 1.5e2}, \"slot\": {\"history\": 16},\n"
    "\"exceptions\": [{\"pattern\": \"*.h\", \"input\": \"f32\", \"weight\": \"f16\",\n"
    "\"gradient\": \"bf16\"}]}";

static void check_taken(const keel_recipe *r)
{
    char text[TEXT_MAX];
    size_t len = 0;
    keel_recipe again;
    MUST(keel_recipe_to_json(r, text, sizeof text, &len) == KEEL_OK);
    MUST(!json_fault(text));
    memset(&again, 0x5a, sizeof again);
    MUST(keel_recipe_from_json(text, len, &again) == KEEL_OK);
    MUST(memcmp(&again, r, sizeof again) == 0);
}

static void try_text(const uint8_t *data, size_t size)
{
    keel_recipe r, untouched;
    char *exact = malloc(size + (size == 0)); /* so that a read past the end is seen */
    MUST(exact);
    if (size > 0) memcpy(exact, data, size);
    memset(&r, 0xa5, sizeof r);
    memset(&untouched, 0xa5, sizeof untouched);
    const keel_status status = keel_recipe_from_json(exact, size, &r);
    free(exact);
    if (status == KEEL_OK) {
        check_taken(&r);
        return;
    }
    MUST(status == KEEL_ERR_INVALID);
    MUST(strstr(keel_last_error(), "line "));
    MUST(memcmp(&r, &untouched, sizeof r) == 0);
}

/* Pairs of place and byte, at most eight of them. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bent[sizeof good - 1];
    memcpy(bent, good, sizeof bent);
    try_text(data, size);
    for (size_t i = 0; i + 2 < size && i < 24; i += 3)
        bent[(data[i] | (size_t)data[i + 1] << 8) % sizeof bent] = data[i + 2];
    try_text(bent, sizeof bent);
    return 0;
}

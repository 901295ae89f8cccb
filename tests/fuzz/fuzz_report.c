/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel_report_json: any bytes as a report, the rest as a name.  The line is strict JSON, and as
 * long as it said. */
#include "../bench/strict_json.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    keel_report report;
    const size_t taken = size < sizeof report ? size : sizeof report;
    memset(&report, 0, sizeof report);
    if (taken > 0) memcpy(&report, data, taken);
    char *name = malloc(size - taken + 1);
    MUST(name);
    memcpy(name, data + taken, size - taken);
    name[size - taken] = 0;

    size_t len = 0, again = 0;
    MUST(keel_report_json(&report, name, NULL, 0, &len) == KEEL_OK);
    char *line = malloc(len + 1);
    MUST(line);
    MUST(keel_report_json(&report, name, line, len + 1, &again) == KEEL_OK);
    MUST(again == len && strlen(line) == len);
    MUST(!json_fault(line));
    MUST(keel_report_json(&report, name, line, len, NULL) == KEEL_ERR_INVALID || len == 0);
    free(line);
    free(name);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The entry of a fuzz target under bytes that are the same in every run: none, few, sparse ones,
 * text-like ones, random ones. */
#include "fuzz.h"
#include "random.h"

enum { RUNS = 20000, LONGEST = 1024 };

static uint8_t byte_of(random_source *r, int kind)
{
    static const char text[] = "_-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFTXYZ";
    if (kind == 0) return (uint8_t)random_word(r);
    if (kind == 1) return random_below(r, 60) ? 0 : (uint8_t)random_word(r);
    return (uint8_t)text[random_below(r, sizeof text - 1)];
}

int main(void)
{
    random_source r = random_begin(12);
    for (int run = 0; run < RUNS; run++) {
        uint8_t bytes[LONGEST];
        const int kind = (int)random_below(&r, 3);
        const size_t size = (size_t)random_below(&r, run % 4 ? 24 : LONGEST);
        for (size_t i = 0; i < size; i++) bytes[i] = byte_of(&r, kind);
        LLVMFuzzerTestOneInput(bytes, size);
    }
    return 0;
}

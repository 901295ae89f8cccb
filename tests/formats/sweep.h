/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Work shared by two threads: tile t covers the 1,024 f32 patterns from t * 1024 on. */
#ifndef KEELI_TEST_SWEEP_H
#define KEELI_TEST_SWEEP_H

#include <pthread.h>
#include <stdatomic.h>

#include "cpu/kernels.h"
#include "oracle.h"

enum { SWEEP_THREADS = 2, SWEEP_CHUNK = 1024 };

typedef struct sweep {
    const keeli_codec_kernels *codec;
    const keel_format_info *info;
    bool (*check)(oracle *o, const struct sweep *s, uint32_t first);
    const void *context;
    atomic_uint_fast64_t next;
    atomic_uint_fast64_t wrong; /* first pattern of a wrong tile + 1; 0 if none */
} sweep;

static void *sweep_thread(void *argument)
{
    sweep *s = argument;
    oracle o = oracle_open(s->info);
    for (;;) {
        const uint64_t tile = atomic_fetch_add(&s->next, SWEEP_CHUNK);
        if (tile >= (1ull << 32) / KEELI_TILE) break;
        for (uint64_t t = tile; t < tile + SWEEP_CHUNK; t++)
            if (!s->check(&o, s, (uint32_t)(t * KEELI_TILE)))
                atomic_store(&s->wrong, t * KEELI_TILE + 1);
    }
    oracle_close(&o);
    return NULL;
}

/* 0, or 1 + the first pattern of a tile with a wrong code. */
static inline uint64_t sweep_run(sweep *s)
{
    pthread_t threads[SWEEP_THREADS];
    for (int t = 0; t < SWEEP_THREADS; t++)
        if (pthread_create(&threads[t], NULL, sweep_thread, s) != 0) abort();
    for (int t = 0; t < SWEEP_THREADS; t++) pthread_join(threads[t], NULL);
    return atomic_load(&s->wrong);
}

static inline uint32_t sweep_code(const void *codes, int32_t i, int32_t width)
{
    return width == 1 ? ((const uint8_t *)codes)[i] : ((const uint16_t *)codes)[i];
}

#endif

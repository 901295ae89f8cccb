/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel_step_verify: does every element of every tensor count exactly once?
 *
 * Per tensor id each rank adds, over the ranges [begin, end) it owns, the count end - begin and
 * h(end) - h(begin) modulo 2^64, h a fixed mixer.  If the ranges tile [0, N) the differences
 * telescope to h(N) - h(0); any other set of ranges gives that sum with probability 2^-64. */
#include <stdlib.h>

#include "config.h"
#include "decide.h"
#include "step_object.h"

/* Words per id in the two arrays of the round. */
enum {
    COUNT = 0,
    TILING = 1,
    SUM_WORDS = 2,
    SIZE = 0, /* the logical size and its complement, so that ranks that differ are seen */
    SIZE_INV = 1,
    MAX_WORDS = 2
};

static uint64_t mixed(int64_t position)
{
    return keeli_hash_mix(0x6b65656c, (uint64_t)position);
}

static uint64_t range_hash(int64_t begin, int64_t end)
{
    return mixed(end) - mixed(begin);
}

static void describe(const keel_shard *s, int64_t *sum, uint64_t *max)
{
    max[SIZE] = (uint64_t)s->global_numel;
    max[SIZE_INV] = ~(uint64_t)s->global_numel;
    if (s->replica != 0 || s->cols == 0) return;
    for (int64_t r = 0; r < s->rows; r++) {
        const int64_t begin = s->offset + r * s->row_stride;
        sum[COUNT] += s->cols;
        sum[TILING] = (int64_t)((uint64_t)sum[TILING] + range_hash(begin, begin + s->cols));
    }
}

static keel_status judge(const keel_step *step, int64_t id, const int64_t *sum, const uint64_t *max)
{
    const char *name = keel_step_param_name(step, id);
    const int rank = step->mem.settings.rank, nranks = step->mem.settings.nranks;
    const int64_t size = (int64_t)max[SIZE];
    if (!name) name = "of another rank";
    if (max[SIZE] == 0 && max[SIZE_INV] == 0)
        return keel_ext_fail(KEEL_ERR_PEER, "keel_step_verify", "rank %d/%d: no rank holds id %lld",
                             rank, nranks, (long long)id);
    if (max[SIZE] != ~max[SIZE_INV])
        return keel_ext_fail(KEEL_ERR_PEER, "keel_step_verify",
                             "rank %d/%d: tensor %lld '%s' has global_numel %llu on one rank and "
                             "%llu on another",
                             rank, nranks, (long long)id, name, (unsigned long long)~max[SIZE_INV],
                             (unsigned long long)max[SIZE]);
    if (sum[COUNT] != size || (uint64_t)sum[TILING] != range_hash(0, size))
        return keel_ext_fail(KEEL_ERR_PEER, "keel_step_verify",
                             "rank %d/%d: tensor %lld '%s' counts %lld elements of %lld%s", rank,
                             nranks, (long long)id, name, (long long)sum[COUNT], (long long)size,
                             sum[COUNT] == size ? ", some twice and some not at all" : "");
    return KEEL_OK;
}

static int64_t id_count(const keel_step *step)
{
    int64_t ids = step->cfg.global_params;
    for (int64_t i = 0; i < step->mem.settings.row_count; i++)
        if (step->rows[i].id >= ids) ids = step->rows[i].id + 1;
    return ids;
}

static keel_status verify(keel_step *step, int64_t ids, int64_t *sum, uint64_t *max)
{
    uint64_t *common = max + ids * MAX_WORDS;
    const uint64_t hash = keeli_hash_mix(keeli_config_hash(&step->mem.settings), (uint64_t)ids);
    common[0] = hash;
    common[1] = ~hash;
    for (int64_t i = 0; i < step->mem.settings.row_count; i++) {
        const int64_t id = step->rows[i].id;
        describe(&step->shards[i], sum + id * SUM_WORDS, max + id * MAX_WORDS);
    }
    TRY(keeli_step_round(step, sum, ids * SUM_WORDS, max, ids * MAX_WORDS + 2, NULL));
    if (common[0] != ~common[1])
        return keel_ext_fail(KEEL_ERR_PEER, "keel_step_verify",
                             "rank %d/%d: the ranks differ in configuration",
                             step->mem.settings.rank, step->mem.settings.nranks);
    for (int64_t id = 0; id < ids; id++)
        TRY(judge(step, id, sum + id * SUM_WORDS, max + id * MAX_WORDS));
    return KEEL_OK;
}

keel_status keel_step_verify(keel_step *step)
{
    if (!step) FAIL(KEEL_ERR_INVALID, "step is NULL");
    TRY(keeli_step_want_between(step, __func__));
    const int64_t ids = id_count(step);
    int64_t *sum = calloc((size_t)ids * SUM_WORDS + 1, sizeof *sum);
    uint64_t *max = calloc((size_t)ids * MAX_WORDS + 2, sizeof *max);
    keel_status status = KEEL_OK;
    if (sum && max)
        status = verify(step, ids, sum, max);
    else
        status = keel_ext_fail(KEEL_ERR_NO_MEMORY, __func__, "arrays for %lld ids", (long long)ids);
    free(sum);
    free(max);
    return status;
}

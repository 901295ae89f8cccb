/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* One decision for all ranks.
 *
 * "Mode EXACT is independent of tensor order, chunking, threads, ranks and sharding: the same bits
 * for the same set of elements."  "Decision bits are identical on every rank."  "The layout is
 * hashed; ranks that disagree get an error, not a hang."  "A round that a dead or stalled rank
 * misses returns KEEL_ERR_COMM; state is as before the step." */
#include <stdlib.h>

#include "bigsum.h"
#include "check.h"
#include "model.h"
#include "random.h"
#include "ranks.h"

enum {
    POOLS = 5,       /* logical tensors, one per format */
    POOL_MAX = 2500, /* elements of each */
    PIECES_MAX = 160,
    TRIALS = 1200,
    STEPS = 2
};

static const keel_format pool_format[POOLS] = {KEEL_FORMAT_F32, KEEL_FORMAT_F16, KEEL_FORMAT_BF16,
                                               KEEL_FORMAT_E4M3, KEEL_FORMAT_E5M2};

typedef struct tensor {
    int64_t numel;
    float value[POOL_MAX]; /* as the format holds it */
} tensor;

/* A part of a pool on one rank. */
typedef struct piece {
    int pool;
    int32_t rank;
    keel_shard shard;
} piece;

typedef struct layout {
    int32_t nranks;
    int64_t count;
    piece pieces[PIECES_MAX];
} layout;

/* What must be the same on every rank of every layout of a trial; it has no padding. */
typedef struct verdict {
    double norm;
    keel_decision decision[STEPS];
    int64_t elements, zeros;
    float loss_scale;
    keel_cause cause;
} verdict;

typedef struct trial {
    tensor pools[POOLS];
    layout layout;
    verdict verdicts[RANKS_MAX];
} trial;

static float value_for(random_source *r, keel_format format, int kind)
{
    const float x = kind == 0   ? random_finite(r)
                    : kind == 1 ? random_unit(r)
                                : ldexpf(random_unit(r), (int)random_below(r, 12));
    uint32_t code;
    assert_ok(keel_format_encode(format, x, KEEL_OVERFLOW_SATURATE, &code));
    return keel_format_decode(format, code);
}

static void fill_pools(trial *t, random_source *r)
{
    const int kind = (int)random_below(r, 3);
    for (int p = 0; p < POOLS; p++) {
        tensor *pool = &t->pools[p];
        pool->numel = random_below(r, 4) ? random_below(r, POOL_MAX) : random_below(r, 40);
        for (int64_t i = 0; i < pool->numel; i++)
            pool->value[i] = value_for(r, pool_format[p], kind);
    }
    if (random_below(r, 4)) return;
    tensor *pool = &t->pools[random_below(r, POOLS - 3)]; /* f32 or f16, which have infinity */
    if (pool->numel > 0)
        pool->value[random_below(r, pool->numel)] = random_below(r, 2) ? NAN : -INFINITY;
}

static void add_piece(layout *l, int pool, int32_t rank, keel_shard shard)
{
    assert_in_range(l->count, 0, PIECES_MAX - 1);
    l->pieces[l->count++] = (piece){pool, rank, shard};
}

/* Now and then another copy, which does not count. */
static void add_owned(layout *l, random_source *r, int pool, keel_shard shard)
{
    shard.replicas = random_below(r, 3) ? 1 : 2;
    add_piece(l, pool, (int32_t)random_below(r, l->nranks), shard);
    if (shard.replicas == 1) return;
    shard.replica = 1;
    add_piece(l, pool, (int32_t)random_below(r, l->nranks), shard);
}

static void cut_ranges(layout *l, random_source *r, int pool, int64_t numel)
{
    const int64_t longest = numel / 12 + 2;
    if (numel == 0) add_owned(l, r, pool, (keel_shard){.rows = 1});
    for (int64_t at = 0, n; at < numel; at += n) {
        n = 1 + random_below(r, 2 * longest);
        if (n > numel - at) n = numel - at;
        add_owned(l, r, pool,
                  (keel_shard){
                      .global_numel = numel, .offset = at, .rows = 1, .cols = n, .row_stride = n});
    }
}

/* As columns of a matrix, the last elements as a range of their own. */
static void cut_columns(layout *l, random_source *r, int pool, int64_t numel)
{
    const int64_t width = 1 + random_below(r, 60), rows = numel / width, rest = numel % width;
    for (int64_t at = 0, n; rows > 0 && at < width; at += n) {
        n = 1 + random_below(r, width);
        if (n > width - at) n = width - at;
        add_owned(
            l, r, pool,
            (keel_shard){
                .global_numel = numel, .offset = at, .rows = rows, .cols = n, .row_stride = width});
    }
    if (rest > 0)
        add_owned(l, r, pool,
                  (keel_shard){.global_numel = numel,
                               .offset = rows * width,
                               .rows = 1,
                               .cols = rest,
                               .row_stride = rest});
}

static void shuffle(layout *l, random_source *r)
{
    for (int64_t i = l->count - 1; i > 0; i--) {
        const int64_t j = random_below(r, i + 1);
        const piece swap = l->pieces[i];
        l->pieces[i] = l->pieces[j];
        l->pieces[j] = swap;
    }
}

static void cut(trial *t, random_source *r)
{
    static const int32_t sizes[] = {1, 2, 3, 5, 8};
    layout *l = &t->layout;
    l->nranks = sizes[random_below(r, 5)];
    l->count = 0;
    for (int p = 0; p < POOLS; p++) {
        if (t->pools[p].numel == 0 || random_below(r, 2))
            cut_ranges(l, r, p, t->pools[p].numel);
        else
            cut_columns(l, r, p, t->pools[p].numel);
    }
    shuffle(l, r);
}

static void add_to_model(model *m, const trial *t, const piece *p)
{
    const keel_shard *s = &p->shard;
    keel_param *param = model_add(m, pool_format[p->pool], s->rows * s->cols);
    param->id = p->pool;
    param->shard = *s;
    for (int64_t row = 0; row < s->rows; row++)
        for (int64_t col = 0; col < s->cols; col++)
            model_set(param, row * s->cols + col,
                      t->pools[p->pool].value[s->offset + row * s->row_stride + col]);
}

static void run_rank(int32_t rank, keel_comm *comm, void *context)
{
    trial *t = context;
    model *m = malloc(sizeof *m);
    verdict *v = &t->verdicts[rank];
    assert_non_null(m);
    memset(v, 0, sizeof *v);
    model_begin(m);
    m->cfg.comm = comm;
    m->cfg.max_norm = 3;
    m->cfg.global_params = POOLS;
    m->cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
    m->cfg.loss_scale.interval = 1;
    for (int64_t i = 0; i < t->layout.count; i++)
        if (t->layout.pieces[i].rank == rank) add_to_model(m, t, &t->layout.pieces[i]);
    model_create(m);
    assert_ok(keel_step_verify(m->step));
    for (int step = 0; step < STEPS; step++) {
        model_run(m);
        v->decision[step] = *keel_step_decision_dev(m->step);
    }
    const keel_report r = model_report(m);
    v->norm = r.norm;
    v->elements = r.elements;
    v->zeros = r.zero_count;
    v->cause = r.cause;
    assert_ok(keel_step_loss_scale(m->step, &v->loss_scale));
    model_end(m);
    free(m);
}

/* The first step's norm from integers on paper; NaN or infinity where an element is. */
static double norm_on_paper(const trial *t)
{
    bigsum sum;
    memset(&sum, 0, sizeof sum);
    for (int p = 0; p < POOLS; p++)
        for (int64_t i = 0; i < t->pools[p].numel; i++) {
            const float x = t->pools[p].value[i];
            if (isnan(x)) return NAN;
            if (isinf(x)) return INFINITY;
            bigsum_add_square(&sum, x);
        }
    return sqrt(bigsum_round(&sum)) / 65536;
}

static void assert_same_verdicts(const verdict *a, const verdict *b, int n)
{
    if (memcmp(a, b, sizeof *a) != 0)
        fail_msg("trial %d: norm %a and %a, cause %d and %d", n, a->norm, b->norm, (int)a->cause,
                 (int)b->cause);
}

static void test_ranks__any_layout_gives_the_same_bits(void **state)
{
    (void)state;
    trial *t = malloc(sizeof *t);
    assert_non_null(t);
    for (int n = 0; n < TRIALS / 3; n++) { /* three layouts of each set of elements */
        random_source r = random_begin((uint64_t)n);
        verdict first;
        fill_pools(t, &r);
        const double wanted = norm_on_paper(t);
        for (int l = 0; l < 3; l++) {
            cut(t, &r);
            ranks_run(t->layout.nranks, run_rank, t);
            if (l == 0) first = t->verdicts[0];
            for (int32_t rank = 0; rank < t->layout.nranks; rank++)
                assert_same_verdicts(&t->verdicts[rank], &first, n);
        }
        if (isnan(wanted))
            assert_true(isnan(first.decision[0].norm));
        else
            assert_same_f64(first.decision[0].norm, wanted);
    }
    free(t);
}

/* The simplest step of a rank. */
static void begin_rank(model *m, keel_comm *comm, float init, int32_t interval)
{
    model_begin(m);
    m->cfg.comm = comm;
    m->cfg.loss_scale.mode = KEEL_LOSS_SCALE_DYNAMIC;
    m->cfg.loss_scale.init = init;
    m->cfg.loss_scale.interval = interval;
    model_group(m, KEEL_GROUP_SGD(1));
}

static keel_param *add_owned_f32(model *m, int64_t id, int64_t numel, const float *values)
{
    keel_param *p = model_add_f32(m, numel, values);
    p->id = id;
    p->shard.replicas = 1;
    return p;
}

static float loss_scale_of(model *m)
{
    float scale = 0;
    assert_ok(keel_step_loss_scale(m->step, &scale));
    return scale;
}

/* deepspeedai/DeepSpeed#8475: squares are added over owners; where they lie changes nothing. */
static void run_owned_shards(int32_t rank, keel_comm *comm, void *context)
{
    const int moved = *(const int *)context;
    model m;
    begin_rank(&m, comm, 1, 2000);
    m.cfg.max_norm = 6.5f;
    if (rank == moved) add_owned_f32(&m, 0, 2, (float[]){3, 4});
    if (rank == 1) add_owned_f32(&m, 1, 1, (float[]){12});
    model_create(&m);
    model_run(&m);
    const float coef = (float)(6.5 / (13 + 1e-6));
    assert_same_f64(model_report(&m).norm, 13.0);
    assert_same_f32(model_report(&m).clip_coef, coef);
    assert_int_equal(model_report(&m).elements, 3);
    if (rank == 1) assert_same_f32(m.params[m.count - 1].master[0], -(12 * coef));
    if (rank == moved) assert_same_f32(m.params[0].master[1], -(4 * coef));
    model_end(&m);
}

static void test_ranks__owned_shards_add_up(void **state)
{
    (void)state;
    for (int moved = 0; moved < 2; moved++) ranks_run(2, run_owned_shards, &moved);
}

/* NVIDIA/Model-Optimizer#1621: "Empty ranks take part." */
static void run_empty_rank(int32_t rank, keel_comm *comm, void *context)
{
    (void)context;
    model m;
    begin_rank(&m, comm, 64, 2000);
    m.cfg.timeout_us = 60000000;
    if (rank == 0) add_owned_f32(&m, 0, 2, (float[]){5 * 64, 12 * 64});
    model_create(&m);
    model_run(&m);
    assert_same_f64(model_report(&m).norm, 13.0);
    assert_int_equal(model_report(&m).applied, 1);
    if (rank == 0) model_set(&m.params[0], 0, INFINITY);
    model_run(&m);
    assert_int_equal(model_report(&m).applied, 0);
    assert_same_f32(loss_scale_of(&m), 32.0f);
    model_end(&m);
}

static void run_all_empty(int32_t rank, keel_comm *comm, void *context)
{
    (void)rank;
    (void)context;
    model m;
    begin_rank(&m, comm, 64, 1);
    model_create(&m);
    model_run(&m);
    assert_same_f64(model_report(&m).norm, 0.0);
    assert_same_f32(loss_scale_of(&m), 64.0f);
    model_end(&m);
}

static void test_ranks__empty_ranks_take_part(void **state)
{
    (void)state;
    ranks_run(2, run_empty_rank, NULL);
    ranks_run(3, run_all_empty, NULL);
}

/* NVIDIA-NeMo/Megatron-Bridge#5591: the scale moves from the agreed flag alone. */
static void run_flags(int32_t rank, keel_comm *comm, void *context)
{
    (void)context;
    static const int flag[2][3] = {{1, 0, 0}, {0, 0, 1}};
    static const float wanted[3] = {32, 32, 16};
    model m;
    begin_rank(&m, comm, 64, 2);
    add_owned_f32(&m, rank, 1, (float[]){1});
    model_create(&m);
    for (int i = 0; i < 3; i++) {
        model_set(&m.params[0], 0, flag[rank][i] ? INFINITY : 1);
        model_run(&m);
        assert_same_f32(loss_scale_of(&m), wanted[i]);
    }
    model_end(&m);
}

static void test_ranks__scales_do_not_drift_apart(void **state)
{
    (void)state;
    ranks_run(2, run_flags, NULL);
}

/* ml-explore/mlx#4072: a NaN on any rank is every rank's, in whatever order the ranks reduce. */
static void run_one_nan(int32_t rank, keel_comm *comm, void *context)
{
    const float *values = context;
    model m;
    begin_rank(&m, comm, 1, 2000);
    add_owned_f32(&m, rank, 1, &values[rank]);
    model_create(&m);
    model_run(&m);
    const keel_report r = model_report(&m);
    const bool clean = !isnan(values[0] + values[1] + values[2]);
    assert_int_equal(r.applied, clean);
    assert_int_equal(r.nan_count, !clean);
    if (clean)
        assert_same_f64(r.norm, sqrt(14));
    else
        assert_true(isnan(r.norm));
    model_end(&m);
}

static void test_ranks__a_nan_is_seen_from_any_rank(void **state)
{
    (void)state;
    const float orders[][3] = {{1, NAN, 3}, {1, 3, NAN}, {NAN, 1, 3}, {NAN, 3, 1},
                               {3, 1, NAN}, {3, NAN, 1}, {1, 2, 3}};
    for (int i = 0; i < 7; i++) {
        float values[3];
        memcpy(values, orders[i], sizeof values);
        ranks_run(3, run_one_nan, values);
    }
}

/* The default shard: "the whole tensor, held alike by every rank, and counted once". */
static void run_data_parallel(int32_t rank, keel_comm *comm, void *context)
{
    (void)rank;
    (void)context;
    model m;
    begin_rank(&m, comm, 1, 2000);
    model_add_f32(&m, 3, (float[]){3, 0, 4});
    model_create(&m);
    assert_ok(keel_step_verify(m.step));
    model_run(&m);
    assert_same_f64(model_report(&m).norm, 5.0);
    assert_int_equal(model_report(&m).elements, 3);
    assert_int_equal(model_report(&m).zero_count, 1);
    assert_same_f32(m.params[0].master[2], -4.0f);
    model_end(&m);
}

static void test_ranks__replicas_count_once(void **state)
{
    (void)state;
    ranks_run(5, run_data_parallel, NULL);
}

/* Ranks that differ: an error that says in what, the state as before, and no hang; once they agree
 * again the same step goes through. */
typedef enum difference { MAX_NORM, DIVISOR, STEP_NUMBER, GROWTH, LOSS_SCALE } difference;

static void differ(model *m, difference what, const unsigned char *blob, size_t size)
{
    if (what == MAX_NORM) assert_ok(keel_step_set_max_norm(m->step, 2));
    if (what == DIVISOR) assert_ok(keel_step_set_grad_divisor(m->step, 2, NULL));
    if (what == STEP_NUMBER) assert_ok(keel_step_state_load(m->step, blob, size));
}

static void make_alike(model *m, const unsigned char *fresh, size_t size)
{
    assert_ok(keel_step_set_max_norm(m->step, INFINITY));
    assert_ok(keel_step_set_grad_divisor(m->step, 1, NULL));
    assert_ok(keel_step_state_load(m->step, fresh, size));
}

static size_t blob_after(int steps, unsigned char *blob)
{
    model m;
    begin_rank(&m, NULL, 1, 2000);
    add_owned_f32(&m, 0, 1, (float[]){1});
    model_create(&m);
    for (int i = 0; i < steps; i++) model_run(&m);
    assert_ok(keel_step_state_save(m.step, blob, 4096));
    const size_t size = keel_step_state_size(m.step);
    model_end(&m);
    return size;
}

static void run_differing(int32_t rank, keel_comm *comm, void *context)
{
    const difference what = *(const difference *)context;
    unsigned char later[4096], fresh[4096];
    model m;
    begin_rank(&m, comm, what == LOSS_SCALE && rank == 1 ? 2 : 1, 2000);
    if (what == GROWTH && rank == 1) m.cfg.loss_scale.growth = 4;
    add_owned_f32(&m, rank, 1, (float[]){1});
    model_create(&m);
    const size_t size = blob_after(0, fresh);
    (void)blob_after(1, later);
    if (rank == 1) differ(&m, what, later, size);
    const uint64_t before = model_digest(&m);
    assert_ok(keel_step_accumulate(m.step, 0, 1, NULL));
    assert_refused(keel_step_decide(m.step, NULL), KEEL_ERR_PEER,
                   what == STEP_NUMBER ? "steps 1 to 2" : "differ in");
    assert_non_null(strstr(keel_last_error(),
                           rank ? "keel_step_decide: rank 1/2" : "keel_step_decide: rank 0/2"));
    assert_true(model_digest(&m) == before);
    if (what != GROWTH && what != LOSS_SCALE) {
        make_alike(&m, fresh, size);
        model_run(&m);
        assert_same_f64(model_report(&m).norm, sqrt(2));
        assert_int_equal(model_report(&m).step, 1);
    }
    model_end(&m);
}

static void test_ranks__differences_are_errors_that_name_them(void **state)
{
    (void)state;
    for (int what = MAX_NORM; what <= LOSS_SCALE; what++) {
        difference d = (difference)what;
        ranks_run(2, run_differing, &d);
    }
}

/* "Every rank must do the same": after a failed round abandon drops that step and no other, also on
 * a rank without parameters, whose only call of a step is decide. */
static void run_abandoning(int32_t rank, keel_comm *comm, void *context)
{
    (void)context;
    model m;
    begin_rank(&m, comm, 64, 1);
    m.cfg.group_count = 0; /* the optimizer is the caller's */
    if (rank == 0) add_owned_f32(&m, 0, 1, (float[]){1});
    model_create(&m);
    for (int i = 0; i < 4; i++) {
        const bool differs = i % 2 == 1;
        assert_ok(keel_step_set_grad_divisor(m.step, differs && rank == 1 ? 3 : 1, NULL));
        if (rank == 0) assert_ok(keel_step_accumulate(m.step, 0, 1, NULL));
        if (differs)
            assert_refused(keel_step_decide(m.step, NULL), KEEL_ERR_PEER, "divisor");
        else
            assert_ok(keel_step_decide(m.step, NULL));
        if (differs) assert_ok(keel_step_abandon(m.step, NULL));
        assert_same_f32(loss_scale_of(&m), i < 2 ? 128.0f : 256.0f);
    }
    model_end(&m);
}

static void test_ranks__a_failed_step_is_abandoned_alone(void **state)
{
    (void)state;
    ranks_run(2, run_abandoning, NULL);
}

/* A state brings the rule of its loss scale along, so a rank that alone loads one is found out
 * before the scales part, not after. */
static void run_loading(int32_t rank, keel_comm *comm, void *context)
{
    (void)context;
    unsigned char blob[4096];
    const size_t size = blob_after(0, blob); /* with an interval of 2000 */
    model m;
    begin_rank(&m, comm, 1, 1);
    m.cfg.global_params = 2;
    add_owned_f32(&m, rank, 1, (float[]){1});
    model_create(&m);
    if (rank == 1) assert_ok(keel_step_state_load(m.step, blob, size));
    assert_refused(keel_step_run(m.step, NULL), KEEL_ERR_PEER, "differ in");
    assert_same_f32(loss_scale_of(&m), 1.0f);
    assert_refused(keel_step_verify(m.step), KEEL_ERR_PEER, "differ in");
    if (rank == 0) assert_ok(keel_step_state_load(m.step, blob, size));
    assert_ok(keel_step_verify(m.step));
    model_run(&m);
    assert_same_f32(loss_scale_of(&m), 1.0f);
    model_end(&m);
}

static void test_ranks__a_loaded_rule_must_be_every_rank_s(void **state)
{
    (void)state;
    ranks_run(2, run_loading, NULL);
}

/* pytorch/pytorch#31367: -0 says the same as 0, on the ranks together as on each. */
static void run_zeros(int32_t rank, keel_comm *comm, void *context)
{
    (void)context;
    const float zero = rank == 0 ? 0.0f : -0.0f;
    model m;
    begin_rank(&m, comm, 1, 2000);
    m.cfg.max_norm = zero;
    add_owned_f32(&m, rank, 1, (float[]){3});
    model_create(&m);
    model_run(&m);
    assert_same_f32(model_report(&m).clip_coef, 0.0f);
    double norm;
    assert_ok(keel_clip_global_norm(NULL, &m.params[0].grad, 1, zero, comm, 0, &norm));
    assert_same_f32(model_get(&m.params[0].grad, 0), 0.0f);
    model_end(&m);
}

static void test_ranks__either_zero_is_one_limit(void **state)
{
    (void)state;
    ranks_run(2, run_zeros, NULL);
}

/* One rank never comes: the others get COMM by the deadline, state as before, and so ever after. */
static void run_deadline(int32_t rank, keel_comm *comm, void *context)
{
    (void)context;
    model m;
    begin_rank(&m, comm, 1, 2000);
    m.cfg.timeout_us = 30000;
    add_owned_f32(&m, rank, 1, (float[]){1});
    model_create(&m);
    const uint64_t before = model_digest(&m);
    if (rank != 2) {
        assert_refused(keel_step_run(m.step, NULL), KEEL_ERR_COMM, "rank");
        assert_true(model_digest(&m) == before);
        assert_refused(keel_step_run(m.step, NULL), KEEL_ERR_COMM, "rank");
        assert_true(model_digest(&m) == before);
        assert_refused(keel_step_report(m.step, 0, &(keel_report){0}), KEEL_ERR_NOT_FOUND, "");
    }
    model_end(&m);
}

static void test_ranks__a_missing_rank_is_an_error_at_the_deadline(void **state)
{
    (void)state;
    ranks_run(3, run_deadline, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks__any_layout_gives_the_same_bits),
        cmocka_unit_test(test_ranks__owned_shards_add_up),
        cmocka_unit_test(test_ranks__empty_ranks_take_part),
        cmocka_unit_test(test_ranks__scales_do_not_drift_apart),
        cmocka_unit_test(test_ranks__a_nan_is_seen_from_any_rank),
        cmocka_unit_test(test_ranks__replicas_count_once),
        cmocka_unit_test(test_ranks__differences_are_errors_that_name_them),
        cmocka_unit_test(test_ranks__a_failed_step_is_abandoned_alone),
        cmocka_unit_test(test_ranks__a_loaded_rule_must_be_every_rank_s),
        cmocka_unit_test(test_ranks__either_zero_is_one_limit),
        cmocka_unit_test(test_ranks__a_missing_rank_is_an_error_at_the_deadline),
    };
    return cmocka_run_group_tests_name("runtime.ranks", tests, NULL, NULL);
}

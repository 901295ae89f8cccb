/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What a step is told when it is created. */
#ifndef KEEL_CONFIG_H
#define KEEL_CONFIG_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "keel/comm.h"
#include "keel/device.h"
#include "keel/loss_scale.h"
#include "keel/scaling.h"
#include "keel/version.h"

KEEL_BEGIN_DECLS

/* How the sum of squares is formed; both never overflow or underflow for finite f32.
 * EXACT  every square exactly: the same bits for the same set of elements, however cut or ordered.
 * BLOCK  f64 inside blocks of 1,024 logical elements, then exactly: the same bits for all cuts at
 *        multiples of 1,024; other cuts are refused at create.  Inside a block element i goes to
 *        lane i mod 16, lanes add in order of i, then lanes j and j+8, j+4, j+2, j+1 are added. */
typedef enum keel_norm_mode {
    KEEL_NORM_EXACT = 0,
    KEEL_NORM_BLOCK = 1,
    KEEL_NORM_MODE_FORCE_32BIT = 0x7fffffff
} keel_norm_mode;

typedef enum keel_optimizer {
    KEEL_OPTIMIZER_NONE = 0, /* the caller's own, fed from keel_step_decision_dev() */
    KEEL_OPTIMIZER_SGD = 1,
    KEEL_OPTIMIZER_ADAMW = 2,
    KEEL_OPTIMIZER_FORCE_32BIT = 0x7fffffff
} keel_optimizer;

/* Hyper-parameters of one parameter group; KEEL_GROUP_SGD and KEEL_GROUP_ADAMW give the defaults of
 * torch.optim.  Scalars an element meets are formed in f64 and rounded once to f32. */
typedef struct keel_group {
    keel_optimizer optimizer;
    int32_t nesterov;    /* sgd: 0 or 1 */
    double lr;           /* >= 0 */
    double beta1, beta2; /* adamw: [0, 1) */
    double eps;          /* adamw: >= 0 */
    double weight_decay; /* >= 0; adamw: decoupled, sgd: added to the gradient (L2) */
    double momentum;     /* sgd: [0, 1) */
    double dampening;    /* sgd: [0, 1]; none at a tensor's first applied step */
} keel_group;

static inline keel_group keel_group_sgd_(double lr)
{
    keel_group g;
    memset(&g, 0, sizeof g);
    g.optimizer = KEEL_OPTIMIZER_SGD;
    g.lr = lr;
    return g;
}

static inline keel_group keel_group_adamw_(double lr)
{
    keel_group g;
    memset(&g, 0, sizeof g);
    g.optimizer = KEEL_OPTIMIZER_ADAMW;
    g.lr = lr;
    g.beta1 = 0.9;
    g.beta2 = 0.999;
    g.eps = 1e-8;
    g.weight_decay = 0.01;
    return g;
}

#define KEEL_GROUP_SGD(lr)   keel_group_sgd_(lr)
#define KEEL_GROUP_ADAMW(lr) keel_group_adamw_(lr)

typedef enum keel_log_level {
    KEEL_LOG_INFO = 0,
    KEEL_LOG_WARNING = 1,
    KEEL_LOG_LEVEL_FORCE_32BIT = 0x7fffffff
} keel_log_level;

/* Receives one line without newline; called on the thread that made the library call.  The library
 * itself never prints. */
typedef void (*keel_log_fn)(void *context, keel_log_level level, const char *message);

/* Defaults and bounds of each number: keel/config.def.  Append only. */
typedef struct keel_config {
    size_t struct_size;   /* set by KEEL_CONFIG_INIT */
    uint32_t api_version; /* set by KEEL_CONFIG_INIT */
    keel_norm_mode norm_mode;
    const keel_device *device; /* NULL = CPU; borrowed until destroy */
    keel_comm *comm;           /* NULL = one rank; borrowed until destroy */
    float max_norm;
    float skip_norm;
    keel_loss_scale_config loss_scale;
    int64_t timeout_us;
    int32_t report_capacity;
    int32_t rate_window;
    float skip_rate_alert;
    float clip_rate_alert;
    int64_t global_params;    /* parameter ids over all ranks; 0 = the largest here + 1 */
    int32_t group_count;      /* 0 = one group without an optimizer */
    const keel_group *groups; /* copied at create */
    const keel_slot *slots;   /* copied at create */
    int32_t slot_count;       /* alike on all ranks */
    int32_t reserved;         /* 0 */
    keel_log_fn log;          /* NULL = silent */
    void *log_context;
} keel_config;

static inline keel_config keel_config_init_(size_t size)
{
    keel_config c;
    memset(&c, 0, sizeof c);
    c.struct_size = size;
    c.api_version = KEEL_VERSION_NUM;
#define X(field, value, lo, hi, text) c.field = value;
#include "keel/config.def"
#undef X
    return c;
}

/* keel_config cfg = KEEL_CONFIG_INIT; every field then holds its real default. */
#define KEEL_CONFIG_INIT keel_config_init_(sizeof(keel_config))

KEEL_END_DECLS
#endif

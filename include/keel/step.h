/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The step: the one right order of loss scale, finite check, clip, agreement, update.
 *
 *   keel_step_accumulate()  reads each gradient once      (per bucket, or all at once)
 *   keel_step_decide()      one round of all ranks: apply or skip, one clip factor, next loss scale
 *   keel_step_update()      reads each gradient again; writes parameters, moments and copies
 *
 * keel_step_run() is the three in one call.  Any other order is KEEL_ERR_ORDER with a sentence that
 * says which call was expected.  A step belongs to one thread at a time; distinct steps are
 * independent.  Every call that takes a stream enqueues there; on the CPU it is done on return.
 * After create no call of a step allocates. */
#ifndef KEEL_STEP_H
#define KEEL_STEP_H

#include <stddef.h>
#include <stdint.h>

#include "keel/config.h"
#include "keel/report.h"
#include "keel/tensor.h"

KEEL_BEGIN_DECLS

typedef struct keel_step keel_step;

/* Which logical elements of a tensor this rank holds, and whether its copy counts in the norm.
 * All zero: the whole tensor, held alike by every rank of the communicator (data parallel), and
 * counted once.  A shard is a grid of rows in the logical, row-major order of the tensor:
 *
 *   offset        offset + row_stride       offset + 2*row_stride
 *   [0 .. cols)   [0 .. cols)               ...                     rows of them
 */
typedef struct keel_shard {
    int64_t global_numel; /* of the logical tensor; 0 = numel, everything is held here */
    int64_t offset;       /* of the first element held here */
    int64_t rows;         /* 0 = one row of numel elements */
    int64_t cols;
    int64_t row_stride;
    int32_t replica;  /* this copy's index among equal ones; index 0 counts */
    int32_t replicas; /* 0 = every rank holds one: replica = rank, replicas = ranks */
} keel_shard;

/* One parameter tensor of the step.  Memory is the caller's and stays valid until destroy. */
typedef struct keel_param {
    const char *name;      /* copied; NULL = "#<index>" */
    int64_t id;            /* the same on all ranks that hold a part; -1 = its index here */
    int32_t group;         /* index into cfg.groups */
    int32_t reserved;      /* 0 */
    keel_tensor grad;      /* scaled by the loss scale; any format */
    float *master;         /* numel f32; NULL only in a group without an optimizer */
    float *moment1;        /* adamw: exp_avg; sgd with momentum: the buffer; else may be NULL */
    float *moment2;        /* adamw: exp_avg_sq; else may be NULL */
    keel_tensor copy;      /* low-precision copy of master written by update; data NULL = none */
    float *copy_scale_inv; /* one f32 the device writes with the copy; for a copy with a slot */
    int32_t copy_slot;     /* index into cfg.slots whose scale the copy takes; -1 = copy.scale */
    int32_t reserved2;     /* 0 */
    void *copy_transposed; /* the copy again, as [columns][rows], for devices whose products want
                              it; NULL = none */
    int64_t copy_columns;  /* of the matrix the copy is; divides numel; with copy_transposed */
    keel_shard shard;
} keel_param;

/* A parameter with its defaults: id from the index, group 0, whole on every rank. */
static inline keel_param keel_param_init_(void)
{
    keel_param p;
    memset(&p, 0, sizeof p);
    p.id = -1;
    p.copy_slot = -1;
    return p;
}
#define KEEL_PARAM_INIT keel_param_init_()

/* What update and the caller's own optimizer obey; lives in device memory, rewritten by decide. */
typedef struct keel_decision {
    double norm;      /* as in keel_report */
    float inv_scale;  /* fl32(1 / (loss scale * grad divisor)) */
    float clip_coef;  /* min(1, max_norm / (norm + 1e-6)); 0 when skipped */
    float multiplier; /* fl32(inv_scale * clip_coef); 0 when skipped */
    int32_t skip;     /* 1: leave parameters, moments and step counters alone */
    keel_cause cause;
    float loss_scale; /* of the next step; multiply the loss by it before backward */
} keel_decision;

/* What the calls so far have cost, counted where it happens. */
typedef struct keel_counters {
    int64_t rounds;   /* collectives */
    int64_t launches; /* device operations that touch tensors or decide */
    int64_t host_syncs;
    int64_t grad_elements_read;
    int64_t grad_elements_written;
    int64_t probe_elements_read;
    int64_t slot_elements_read; /* by keel_step_quantize(), passes for a current amax included */
} keel_counters;

/* keel_step_workspace_size: device memory a step needs beyond the caller's tensors.
 * out_bytes  to be aligned to 256.
 * Errors     as keel_step_create().
 * Since      0.1 */
KEEL_API keel_status keel_step_workspace_size(const keel_config *cfg, const keel_param *params,
                                              int64_t count, size_t *out_bytes);

/* keel_step_create: freeze the table of parameters and make a step for them.
 * cfg        KEEL_CONFIG_INIT plus changes; copied.
 * params     count entries, copied; 0 entries are legal (a rank without parameters).
 * workspace  device memory of at least keel_step_workspace_size() bytes, borrowed until destroy;
 *            NULL: the step takes it from the device here and gives it back at destroy.
 * Async      blocks; not collective.
 * Errors     INVALID a field out of its bounds, a tensor or shard that does not fit; ABI struct
 *            sizes; UNSUPPORTED a format the device cannot read; NO_MEMORY.  out_step untouched.
 * Since      0.1 */
KEEL_API keel_status keel_step_create(const keel_config *cfg, const keel_param *params,
                                      int64_t count, void *workspace, size_t workspace_bytes,
                                      keel_step **out_step);

/* keel_step_destroy: give the step back.  NULL is legal; never waits for other ranks.
 * Errors  none.
 * Since   0.1 */
KEEL_API void keel_step_destroy(keel_step *step);

/* keel_step_verify: check with one collective that every element of every tensor is counted exactly
 * once over all ranks, and that the ranks run the same configuration.  Ranks that hold different
 * parameters (pipeline stages, experts) say in cfg.global_params how many ids there are in all.
 * Async       blocks and allocates: for set-up, not for every step.   Collective  yes.
 * Errors      PEER a tensor's elements are missing or counted twice: the sentence names it, with
 *             the count and the expected one; or tables or configurations differ between ranks.
 *             COMM the round failed.  ORDER inside a step.
 * Since       0.1 */
KEEL_API keel_status keel_step_verify(keel_step *step);

/* keel_step_prime: write every low-precision copy from its master, before the first forward pass.
 * Errors  ORDER inside a step; DEVICE.
 * Since   0.1 */
KEEL_API keel_status keel_step_prime(keel_step *step, keel_stream stream);

/* keel_step_rebind: new gradient pointers for params [first, first + count), same sizes and
 * formats.
 * Errors  INVALID range or NULL pointer for a non-empty tensor; ORDER between a tensor's
 *         accumulate and the end of the step.  Nothing rebound.
 * Since   0.1 */
KEEL_API keel_status keel_step_rebind(keel_step *step, int64_t first, int64_t count,
                                      const void *const *grads);

/* keel_step_set_group: hyper-parameters from this step on; the optimizer of a group cannot change.
 * Errors  INVALID index or value; ORDER between decide and update.
 * Since   0.1 */
KEEL_API keel_status keel_step_set_group(keel_step *step, int32_t index, const keel_group *group);

/* keel_step_set_max_norm: clip threshold from this step on.
 * Errors  INVALID negative or NaN; ORDER between decide and update.
 * Since   0.1 */
KEEL_API keel_status keel_step_set_max_norm(keel_step *step, float max_norm);

/* keel_step_set_grad_divisor: what the summed gradients are to be divided by besides the loss scale
 * (micro-batches, tokens, ranks); enters norm and multiplier alike.  Stays until set again.
 * divisor  finite and > 0.   divisor_dev  an f64 the device reads at decide; NULL = use divisor.
 *          A value there that is not finite and > 0 skips the step with cause DIVISOR.
 * Ranks    the same value everywhere.
 * Errors   INVALID; ORDER between decide and update.
 * Since    0.1 */
KEEL_API keel_status keel_step_set_grad_divisor(keel_step *step, double divisor,
                                                const double *divisor_dev);

/* keel_step_set_tag: a number of the caller's (a batch id) that reports carry from this step on.
 * Errors  ORDER between decide and update.
 * Since   0.1 */
KEEL_API keel_status keel_step_set_tag(keel_step *step, uint64_t tag);

/* keel_step_quantize: cast a tensor through a slot, and record its amax for this step's round; any
 * number of tensors (micro-batches) a slot and step.
 * slot           index into cfg.slots.
 * src            any format, any numel.
 * dst            src.numel elements of the slot's format; dst.scale is not used; overflow SATURATE
 *                or IEEE as the format's default.  In place as keel_quantize().
 * out_scale_inv  one f32 the device writes, to be kept with dst as its scale_inv: the slot's own
 *                scale moves on.
 * Reads    src once; twice under current scaling and, with policy KEEL, until the slot has its
 *          first agreed amax.   Writes  dst once.
 * Async    enqueues; 0 host syncs, 0 allocations.   Collective  no.
 * Errors   INVALID slot, format, shapes, overlap; ORDER between decide and update; DEVICE.
 *          dst untouched.
 * Since    0.1 */
KEEL_API keel_status keel_step_quantize(keel_step *step, int32_t slot, const keel_tensor *src,
                                        const keel_tensor *dst, float *out_scale_inv,
                                        keel_stream stream);

/* keel_step_set_slot: change how a slot's scale follows from amax: history, margin, algorithm and
 * power_of_two from the next update on, scaling, veto and count from the next cast on.  Role,
 * format and policy stay; a shorter history keeps the newest entries.
 * Async    blocks, a host sync, counted.
 * Errors   INVALID slot, a bound, a history longer than at create; ORDER inside a step.
 * Since    0.1 */
KEEL_API keel_status keel_step_set_slot(keel_step *step, int32_t slot, const keel_slot *config);

/* keel_step_slot_report: what a slot has seen and does.
 * Async    blocks, a host sync, counted; CPU: immediate.
 * Errors   INVALID slot.
 * Since    0.1 */
KEEL_API keel_status keel_step_slot_report(keel_step *step, int32_t slot,
                                           keel_slot_report *out_report);

/* keel_step_probe: look for the first non-finite element in this rank's own gradients, before the
 * ranks sum them, so that the report can name the rank where it began.  Optional; costs one extra
 * read, counted in the report; may be called once per micro-batch.
 * grads    count pointers for params [first, first + count) of the bound formats; NULL = as bound.
 * Errors   INVALID; ORDER after decide; DEVICE.
 * Since    0.1 */
KEEL_API keel_status keel_step_probe(keel_step *step, int64_t first, int64_t count,
                                     const void *const *grads, keel_stream stream);

/* keel_step_check_loss: a loss that is not finite makes every rank skip this step.
 * loss    one f32 the device reads; any micro-batch, any number of times.
 * Errors  INVALID NULL; ORDER after decide; DEVICE.
 * Since   0.1 */
KEEL_API keel_status keel_step_check_loss(keel_step *step, const float *loss, keel_stream stream);

/* keel_step_veto: make every rank skip this step, for a reason of the caller's.
 * Errors  ORDER after decide; DEVICE.
 * Since   0.1 */
KEEL_API keel_status keel_step_veto(keel_step *step, keel_stream stream);

/* keel_step_accumulate: take the gradients of params [first, first + count) into this step: sum of
 * squares, non-finite elements, zeros.  Each tensor once a step; the caller has summed
 * micro-batches and, where every rank holds the whole gradient, ranks.
 * Reads    the gradients once.   Writes  partial results in the workspace.
 * Units    gradients as backward left them: scaled by loss scale and grad divisor.
 * Async    enqueues; 0 host syncs, 0 allocations.   Collective  no.
 * Errors   INVALID range; ORDER second visit or after decide; DEVICE launch failed.
 * Since    0.1 */
KEEL_API keel_status keel_step_accumulate(keel_step *step, int64_t first, int64_t count,
                                          keel_stream stream);

/* keel_step_decide: agree with all ranks whether this step is applied, by which one clip factor,
 * and what the next loss scale is.
 *   norm = sqrt(sum of squares) / (S * divisor);  coef = min(1, max_norm / (norm + 1e-6))
 * after torch.nn.utils.clip_grad_norm_; skip if any element anywhere is not finite, any rank's
 * loss is not, any rank vetoed, or norm > skip_norm.
 * Reads    partial results.   Writes  the decision, counters, loss scale, the report.
 * Async    one collective; with a host transport blocks until all ranks came or cfg.timeout_us is
 *          over.   Collective  yes: every rank, also one without parameters.
 * Errors   ORDER a tensor was not accumulated (named); COMM a rank is late or dead (named where the
 *          transport can know); PEER ranks stand at different steps or run different
 *          configurations.  After COMM and PEER the state is that of the step before and
 *          the partial results are dropped.
 * Since    0.1 */
KEEL_API keel_status keel_step_decide(keel_step *step, keel_stream stream);

/* keel_step_update: obey the decision: unscale, clip and apply every tensor whose group has an
 * optimizer, and write the low-precision copies; on a skip touch nothing.
 *   g' = fl32(fl32(g * inv_scale) * clip_coef), then torch.optim.AdamW or SGD in f32
 * Reads    gradients, masters, moments once.   Writes  masters, moments, copies once.
 * Async    enqueues; 0 host syncs, 0 allocations.   Collective  no.
 * Errors   ORDER before decide, twice, or after keel_step_scale_gradients(); DEVICE.
 * Since    0.1 */
KEEL_API keel_status keel_step_update(keel_step *step, keel_stream stream);

/* keel_step_scale_gradients: instead of update, for a caller whose optimizer takes plain gradients:
 * grad = cast(fl32(fl32(g * inv_scale) * clip_coef)) in place, one extra write, counted.  Touches
 * nothing on a skip.  Ends the step.
 * Errors   ORDER before decide or twice; UNSUPPORTED a gradient's format cannot be encoded; DEVICE.
 * Since    0.1 */
KEEL_API keel_status keel_step_scale_gradients(keel_step *step, keel_stream stream);

/* keel_step_run: accumulate all that is left, decide, update.
 * Errors  those of the three.
 * Since   0.1 */
KEEL_API keel_status keel_step_run(keel_step *step, keel_stream stream);

/* keel_step_abandon: drop the step in hand.  Before decide: the partial results.  Between decide
 * and update: what decide changed is put back (loss scale, counters, rates), except the step
 * number, whose report stays.  Between steps: nothing to do.  Every rank must do the same.
 * Errors  DEVICE.
 * Since   0.1 */
KEEL_API keel_status keel_step_abandon(keel_step *step, keel_stream stream);

/* keel_step_decision_dev: the decision in device memory, for kernels of the caller's that run
 * after decide on the same stream.  Before the first decide only loss_scale is meaningful.
 * Owns    the step; one address until destroy.
 * Errors  none.
 * Since   0.1 */
KEEL_API const keel_decision *keel_step_decision_dev(const keel_step *step);

/* keel_step_loss_scale: the factor for the next loss, on the host.
 * Async   CPU: immediate; other devices: waits for the last decide, a host sync, counted.  Kernels
 *         read keel_step_decision_dev()->loss_scale instead.
 * Errors  DEVICE.
 * Since   0.1 */
KEEL_API keel_status keel_step_loss_scale(keel_step *step, float *out_loss_scale);

/* keel_step_report: the record of a step.
 * id      step number from 1; 0 = the last one.
 * Errors  NOT_FOUND not decided yet, or the ring has moved on; the sentence says which.
 * Since   0.1 */
KEEL_API keel_status keel_step_report(keel_step *step, int64_t id, keel_report *out_report);

/* keel_step_param_name: the name of the parameter with this id, as far as this rank holds it.
 * Owns    the step; NULL for ids of other ranks.
 * Errors  none.
 * Since   0.1 */
KEEL_API const char *keel_step_param_name(const keel_step *step, int64_t id);

/* keel_step_counters: what the step has cost since create.
 * Errors  INVALID NULL.
 * Since   0.1 */
KEEL_API keel_status keel_step_counters(const keel_step *step, keel_counters *out_counters);

/* keel_step_state_size, keel_step_state_save, keel_step_state_load: the state of the rules (loss
 * scale, counters, rates, beta powers, step number) as one little-endian blob, versioned and
 * checksummed; the same on every rank, on CPU and CUDA, for any number of ranks.  Masters and
 * moments are the caller's memory and the caller's to save.  A resumed run continues bit for bit.
 * size     of the buffer; save needs keel_step_state_size(), load exactly the blob.
 * Async    blocks.
 * Errors   ORDER inside a step; INVALID buffer too small; STATE truncated, flipped, of another
 *          version, or of a step with other groups; the sentence says what.  Step untouched.
 * Since    0.1 */
KEEL_API size_t keel_step_state_size(const keel_step *step);
KEEL_API keel_status keel_step_state_save(keel_step *step, void *buffer, size_t size);
KEEL_API keel_status keel_step_state_load(keel_step *step, const void *buffer, size_t size);

KEEL_END_DECLS
#endif

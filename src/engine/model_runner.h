/* Runs batches on one rank: uploads the flat batch, the forward pass, sampling, the ids back. Owns
 * the device side: weights, KV cache, workspace. */
#ifndef ENGINE_MODEL_RUNNER_H
#define ENGINE_MODEL_RUNNER_H

#include "backend/backend.h"
#include "checkpoint/model_config.h"
#include "checkpoint/weights.h"
#include "comm/comm.h"
#include "engine/batch.h"
#include "model/decoder.h"

struct model_runner_limits {
    struct decoder_limits decoder;
    struct kv_cache_spec kv_cache;
    size_t batch_bytes; // capacity of the flat batch
    bool enforce_eager; // record no steps
};

struct model_runner;

// `config` and `backend` are borrowed; `weights` are used up.
MUST_USE enum status model_runner_create(struct model_runner **out,
                                         const struct model_config *config, struct weights *weights,
                                         struct backend *backend,
                                         const struct model_runner_limits *limits, struct err *err);
void model_runner_destroy(struct model_runner *runner); // NULL is fine

struct model_runner_times {
    double forward_seconds, sample_seconds; // added to
};

// Steps that may be on their way at once: one runs while the next one is prepared.
enum { MODEL_RUNNER_SLOTS = 2 };

// Enqueues a batch and the way back of its results; `slot` < MODEL_RUNNER_SLOTS, waited for since it
// was used last. The batch stays as it is until then. Pending tokens are those of the launch
// before. No allocation, but of recorded steps.
MUST_USE enum status model_runner_launch(struct model_runner *runner,
                                         const struct batch_arrays *batch, uint32_t slot,
                                         struct model_runner_times *times, struct err *err);
// results[i] belongs to logit row i of the slot's batch; valid until the slot is used again.
MUST_USE enum status model_runner_wait(struct model_runner *runner, uint32_t slot,
                                       const struct sample_result **results,
                                       struct model_runner_times *times, struct err *err);
// Rows that a batch of `num_seqs` decodes is to be padded to, so that a recorded step can serve it;
// 0: not padded. Never more than max_num_seqs.
uint32_t model_runner_padded_rows(const struct model_runner *runner, uint32_t num_seqs);

// For tests: copies the logits of the last execute, [num_logits][vocab_size], to the host.
MUST_USE enum status model_runner_read_logits(struct model_runner *runner, float *out,
                                              uint32_t num_logits, struct err *err);

// Bytes besides weights and KV cache.
size_t model_runner_workspace_bytes(const struct model_config *config,
                                    const struct decoder_shape *shape,
                                    const struct model_runner_limits *limits,
                                    const struct backend *backend);

#endif

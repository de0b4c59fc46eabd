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

// results[i] belongs to logit row i of the batch; valid until the next call. No allocation.
MUST_USE enum status model_runner_execute(struct model_runner *runner,
                                          const struct batch_arrays *batch,
                                          const struct sample_result **results,
                                          struct model_runner_times *times, struct err *err);

// For tests: copies the logits of the last execute, [num_logits][vocab_size], to the host.
MUST_USE enum status model_runner_read_logits(struct model_runner *runner, float *out,
                                              uint32_t num_logits, struct err *err);

// Bytes besides weights and KV cache.
size_t model_runner_workspace_bytes(const struct model_config *config,
                                    const struct decoder_shape *shape,
                                    const struct model_runner_limits *limits,
                                    const struct backend *backend);

#endif

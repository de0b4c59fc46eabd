/* Runs batches on one rank: uploads the flat batch, the forward pass, sampling, the ids back. Owns
 * the device side: weights, KV cache, workspace. */
#ifndef ENGINE_MODEL_RUNNER_H
#define ENGINE_MODEL_RUNNER_H

#include "backend/backend.h"
#include "checkpoint/model_config.h"
#include "checkpoint/weights.h"
#include "comm/comm.h"
#include "engine/step/batch.h"
#include "model/decoder.h"

struct model_runner_options {
    struct decoder_options decoder; // comm NULL: the runner is alone
    struct kv_cache_spec kv_cache;
    size_t batch_bytes; // capacity of the flat batch
    bool enforce_eager; // record no steps
    bool full_warm_up; // leave nothing of the warm-up for later
    uint32_t max_num_seqs; // that run at once; the decoder's limits have room for drafts besides
    uint32_t draft_rows; // most rows of a recorded step with drafts; 0: there are no drafts
    // [max_num_seqs + max_num_tokens] that all ranks of a group have mapped; NULL: the runner is
    // alone.
    struct sample_result *shared_results;
};

struct model_runner;

// What `decoder` borrows is borrowed for the runner's life. Takes every tensor of `weights`.
MUST_USE enum status model_runner_create(struct model_runner **out,
                                         const struct model_runner_options *options,
                                         struct weights *weights, struct err *err);
void model_runner_destroy(struct model_runner *runner); // NULL is fine
struct comm *model_runner_comm(struct model_runner *runner); // where it meets other ranks, if any

// The parts of a start, which warm_up.h puts together. `batch` is overwritten.
//
// Does now what a device does at the first use of a shape, so that no request waits for it: times
// the matrix products that the device's cache file does not know, and loads kernels. The device may
// load some of them later, beside the first requests, unless full_warm_up forbids it. nano-vllm:
// warmup_model.
MUST_USE enum status model_runner_warm_up(struct model_runner *runner, struct batch *batch,
                                          struct err *err);
// Sizes of steps of decodes that are recorded, those without drafts first; 0: none are, every step
// runs eagerly.
uint32_t model_runner_num_sizes(const struct model_runner *runner);
// How many of them are not recorded yet.
uint32_t model_runner_num_unrecorded(const struct model_runner *runner);
// Records a size, with the present KV cache; size 0 has the fewest sequences. If a recording fails,
// a warning says so: steps of its size and larger ones run eagerly, and no longer count as sizes.
MUST_USE enum status model_runner_record(struct model_runner *runner, struct batch *batch,
                                         uint32_t index, struct err *err);
// Records the sizes that come before the first request: with full_warm_up all, else those of few
// rows and the largest.
MUST_USE enum status model_runner_record_first(struct model_runner *runner, struct batch *batch,
                                               struct err *err);
// Records the size of a step of decodes, padded to `num_seqs`, if it is still to be recorded and
// such a step has run. Call it before the step is built in `batch`, which is overwritten.
void model_runner_record_later(struct model_runner *runner, struct batch *batch, uint32_t num_seqs,
                               bool drafts);
// Replaces the runner's KV cache. After an error the runner has none. Every recorded step must be
// recorded again.
MUST_USE enum status model_runner_set_cache(struct model_runner *runner,
                                            const struct kv_cache_spec *spec, struct err *err);

struct model_runner_times {
    double forward_seconds, sample_seconds; // added to
};

// Steps that may be in flight at once: one runs while the next one is prepared.
enum { MODEL_RUNNER_SLOTS = 2 };

// Called for a row of a prompt with num_top above SAMPLE_TOP_MAX: that is more than a
// sample_result holds. logits: [vocab_size] on the host, during the call. `row`: of the prompt rows
// of the slot's batch. The launch or sampling of such a batch waits for the device, and makes the
// calls.
typedef void (*model_runner_row_fn)(void *user_data, uint32_t slot, uint32_t row,
                                    const float *logits);
// Called for each pooled row of a batch, in order. hidden: [hidden_size] on the host, during the
// call. model_runner_wait makes the calls; of a batch with many such rows (a mean of long texts)
// the launch or sampling does, and waits for the device.
typedef void (*model_runner_hidden_fn)(void *user_data, uint32_t slot, uint32_t row,
                                       const float *hidden);
// Of rank 0; the other ranks have no such functions, and only take part in the gathering.
void model_runner_set_row_fns(struct model_runner *runner, model_runner_row_fn on_row,
                              model_runner_hidden_fn on_hidden, void *user_data);

// Enqueues a batch's forward pass and, unless it has late masks, its sampling and the download of
// its results. `slot` < MODEL_RUNNER_SLOTS; its last launch must have been waited for. The caller
// leaves the batch unchanged until model_runner_wait, except for late masks. Token id -1-r stands
// for result r of the launch before. Nothing is allocated.
MUST_USE enum status model_runner_launch(struct model_runner *runner,
                                         const struct batch_header *batch, uint32_t slot,
                                         struct model_runner_times *times, struct err *err);
// Enqueues the sampling of the last launch, which had late masks: they are in the batch now.
MUST_USE enum status model_runner_sample(struct model_runner *runner,
                                         const struct batch_header *batch, uint32_t slot,
                                         struct model_runner_times *times, struct err *err);
// Fills this slot of the token counts with a sequence's tokens (backend.h, counts_begin). Call it
// before the launch of the first row with the slot.
void model_runner_begin_counts(struct model_runner *runner, uint32_t slot, const int32_t *ids,
                               uint32_t num_prompt, uint32_t num_ids);
// Whether the slot's batch was sampled and model_runner_wait would return at once.
bool model_runner_is_done(const struct model_runner *runner, uint32_t slot);
// results[i] belongs to logit row i of the slot's batch, prompt_results[i] to its i-th row of a
// prompt; valid until the slot is used again.
MUST_USE enum status model_runner_wait(struct model_runner *runner, uint32_t slot,
                                       const struct sample_result **results,
                                       const struct sample_result **prompt_results,
                                       struct err *err);
// The number of sequences that batch_build pads a step of `num_seqs` decodes to. There are so few
// different ones that each can have a recorded step. 0: not padded.
uint32_t model_runner_padded_seqs(const struct model_runner_options *options, uint32_t num_seqs);

// Whether batches are to have the prefixes that their decodes share (batch.h).
bool model_runner_shares_prefixes(const struct model_runner_options *options);

// For tests: the steps so far that ran as recorded ones.
uint64_t model_runner_num_replays(const struct model_runner *runner);
// For tests: copies the logits of the last launch, which had no rows of prompts, to the host:
// [num_logits][vocab_size].
MUST_USE enum status model_runner_read_logits(struct model_runner *runner, float *out,
                                              uint32_t num_logits, struct err *err);

// Bytes besides weights and KV cache.
size_t model_runner_workspace_bytes(const struct model_runner_options *options);

#endif

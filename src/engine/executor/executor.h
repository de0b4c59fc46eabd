/* Runs an engine's steps on all its ranks. The engine builds batches and reads results; where ranks
 * are, and how they hear of a step, is the executor's alone. vLLM has the same seam.
 *
 * There are three kinds. Local: one rank, in this process. Shared memory: rank 0 in this process,
 * the others in processes that the executor starts and watches (shm_executor.h). MPI: the ranks are
 * processes that mpirun has started (mpi_executor.h). Data parallelism is several engines, each
 * with its executor.
 *
 * All functions belong to the engine's thread. */
#ifndef ENGINE_EXECUTOR_EXECUTOR_H
#define ENGINE_EXECUTOR_EXECUTOR_H

#include "engine/plan/engine_plan.h"
#include "engine/step/model_runner.h"

struct executor;

// Starts the ranks that the plan wants. The plan is borrowed for the executor's life, and
// executor_warm_up changes it.
MUST_USE enum status executor_create(struct executor **out, struct engine_plan *plan,
                                     const struct nvllm_engine_options *options, struct err *err);
// Waits until all ranks have loaded their weights, and connects them. Ends early when a rank is
// lost or options->interrupt asks for it. `options`: the same.
MUST_USE enum status executor_load(struct executor *executor,
                                   const struct nvllm_engine_options *options, struct err *err);
// Where the batch of a slot is to be built, for batch_init: memory that other ranks read. NULL:
// any.
struct batch_header *executor_batch(struct executor *executor, uint32_t slot);
// Once, before the first launch: warm_up_run on all ranks. The plan gets the number of KV blocks,
// where they fill a device's memory. `batch` is overwritten.
MUST_USE enum status executor_warm_up(struct executor *executor, struct batch *batch,
                                      struct err *err);
// As model_runner_record_later. Several ranks have recorded everything before.
void executor_record_later(struct executor *executor, struct batch *batch, uint32_t num_seqs,
                           bool drafts);
// As model_runner_begin_counts, on all ranks.
void executor_begin_counts(struct executor *executor, uint32_t slot, const int32_t *ids,
                           uint32_t num_prompt, uint32_t num_ids);
// As model_runner_launch, on all ranks. `batch` was made with executor_batch(slot).
MUST_USE enum status executor_launch(struct executor *executor, const struct batch *batch,
                                     uint32_t slot, struct model_runner_times *times,
                                     struct err *err);
// As model_runner_sample, on all ranks, after the launch of a batch with late masks.
MUST_USE enum status executor_sample(struct executor *executor, const struct batch *batch,
                                     uint32_t slot, struct model_runner_times *times,
                                     struct err *err);
// Before the first launch: who is called for whole rows of logits and for pooled rows.
void executor_set_row_fns(struct executor *executor, model_runner_row_fn on_row,
                          model_runner_hidden_fn on_hidden, void *user_data);
// Whether the functions of executor_set_row_fns are called at all. ERR_UNSUPPORTED, with a sentence
// about `what` (a plural noun, which needs them), in two cases. Under mpirun with several engines
// some run in other processes, which send results but no rows. Under mpirun with GPUs rank 0 must
// not wait for its device while a batch is on its way. Any thread.
MUST_USE enum status executor_check_rows(const struct executor *executor, const char *what,
                                         struct err *err);
// Whether a step's results are there when its launch returns.
bool executor_computes_in_launch(const struct executor *executor);
// As model_runner_wait, on all ranks.
MUST_USE enum status executor_wait(struct executor *executor, uint32_t slot,
                                   const struct sample_result **results,
                                   const struct sample_result **prompt_results, struct err *err);
// ERR_DEVICE with the reason once a rank has ended, was stopped or has failed. It stays so.
MUST_USE enum status executor_check(struct executor *executor, struct err *err);
// After an error of load, warm_up, launch, sample or wait: the reason why a rank is lost, if one
// is, else the error as it was given.
enum status executor_blame(struct executor *executor, enum status status, struct err *err);
// The engine ends: from here on a wait for ranks has a deadline, as executor_destroy has.
void executor_begin_end(struct executor *executor);
// Ends all ranks. One that does not end by itself is killed after two seconds; under
// mpirun all processes are ended after a minute. NULL is fine.
void executor_destroy(struct executor *executor);

#endif

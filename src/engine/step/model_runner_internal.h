/* The model runner's struct and what its files share: model_runner.c (its life and its steps) and
 * model_runner_start.c (warm-up and recording). */
#ifndef ENGINE_STEP_MODEL_RUNNER_INTERNAL_H
#define ENGINE_STEP_MODEL_RUNNER_INTERNAL_H

#include "engine/step/model_runner.h"
#include "engine/step/rank_sampling.h"

// A recorded step of decodes, for one number of sequences. In two parts, because late masks come
// between them.
struct step_graph {
    struct backend_graph *forward, *sample; // both or none: NULL: such steps run eagerly
    const float *logits; // dev: where the recorded pass writes them
    bool has_run; // eagerly, which has loaded the kernels
};

struct slot {
    struct sample_result *results; // host [max_num_logits], then those of prompts [max_num_tokens]
    struct backend_event *done; // NULL where the backend has no events
    char *pooled; // host [POOLED_ROWS][hidden_size] of the activations' type
    uint32_t num_pooled; // rows there that on_hidden gets when the step is done
    bool is_sampled; // false from a launch until its sampling and `done` are enqueued
};

struct model_runner {
    struct backend *backend;
    struct comm alone; // used where the options bring none
    struct comm *comm;
    struct decoder *decoder;
    struct kv_cache *cache;
    uint32_t vocab_size, hidden_size;
    uint32_t max_num_logits, max_num_tokens;
    void *batch; // dev: copy of the flat batch
    int32_t *block_tables; // dev [KV groups][max_num_logits][table_stride], kept from step to step
    uint32_t table_stride;
    // The device, or where it has no sampler a CPU, which works on downloaded logits.
    struct backend *sampler;
    struct token_counts *counts;
    float *sample_scratch; // of `sampler`'s memory
    float *host_logits; // [max_num_logits][vocab_size]; NULL where the device samples
    float *row_logits; // host [vocab_size]: of a row for on_row
    float *hidden; // host [hidden_size]: of a row for on_hidden
    model_runner_row_fn on_row; // NULL: nobody takes them
    model_runner_hidden_fn on_hidden; // NULL: nobody takes them
    void *row_data; // of both
    struct sample_result *results; // dev, laid out as a slot's; with several ranks in shared memory
    struct rank_sampling rank_sampling; // with several ranks
    struct slot slots[MODEL_RUNNER_SLOTS];
    // [num_graphs] by graph_index: num_plain_graphs of steps without drafts, then those of steps
    // with drafts, from 2 rows on.
    struct step_graph *graphs;
    uint32_t num_graphs; // sizes of steps that are recorded, now or at their second use; a failure
        // leaves those before it
    uint32_t num_plain_graphs; // also where none is recorded
    uint32_t draft_rows; // as in the options
    bool full_warm_up; // likewise
    uint64_t num_replays;
    const float *logits; // dev, of the last pass
};

enum { GRAPH_ROWS_STEP = 16 };
enum { POOLED_ROWS = 256 }; // that are brought to the host at a time

// 1, 2, 4, 8, 16, then every 16.
static inline uint32_t graph_index(uint32_t rows) {
    uint32_t index = 0;
    if (rows > GRAPH_ROWS_STEP) return 4 + (rows - 1) / GRAPH_ROWS_STEP;
    while (1u << index < rows) index++;
    return index;
}

static inline uint32_t graph_rows(uint32_t index) {
    return index <= 4 ? 1u << index : (index - 3) * GRAPH_ROWS_STEP;
}

// Eager steps are padded too, so that they choose the same kernels as recorded ones.
static inline uint32_t padded_seqs(uint32_t max_num_seqs, uint32_t num_seqs) {
    uint32_t rows = graph_rows(graph_index(num_seqs));
    return rows < max_num_seqs ? rows : max_num_seqs;
}

// The place for the recording of such a step of decodes; NULL: it has none. num_seqs: as padded.
static inline struct step_graph *graph_place(const struct model_runner *r, uint32_t num_seqs,
                                             bool drafts) {
    uint32_t index = graph_index(num_seqs), end = r->num_plain_graphs;
    if (drafts) {
        index += r->num_plain_graphs - 1;
        end = r->num_graphs;
    }
    return index < end && index < r->num_graphs ? &r->graphs[index] : NULL;
}

// A step of decodes some of which have drafts: they come as sequences of one token each.
static inline bool has_drafts(const struct step *step) {
    return step->max_query_len > 1 && step->num_tokens == step->num_seqs;
}

static inline bool samples_on_device(const struct model_runner *r) {
    return r->sampler == r->backend;
}

// The step of a batch that was uploaded.
static inline struct step bind_step(const struct model_runner *r,
                                    const struct batch_header *batch) {
    struct step step = batch_bind(batch, r->batch);
    step.block_tables = r->block_tables;
    step.table_rows = r->max_num_logits;
    step.table_stride = r->table_stride;
    step.previous = r->results;
    return step;
}

// Samples the rows of the last pass on the device.
void model_runner_sample_rows(struct model_runner *runner, const struct step *step);
// Enqueues the download of these rows' results to the slot. The device has a sampler.
void model_runner_download_results(struct model_runner *runner, const struct step *step,
                                   uint32_t slot);
void model_runner_drop_recording(struct model_runner *runner, struct step_graph *graph);

#endif

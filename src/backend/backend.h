/* The seam between the model and a device: memory, packed weights, the paged KV cache and the ops
 * of a transformer on flat arrays.
 *
 * A backend is a required table of ops and eight groups of capabilities. A group that a device
 * lacks is NULL as a whole: queue (work that runs beside the host), sampler, moe (mixtures of
 * experts), recurrent (layers with a state), latent (latent attention), peers (other ranks'
 * memory), collective (other ranks' devices) and fusion (several ops as one).
 * Members that are marked optional may be NULL by themselves.
 * doc/adding-a-backend.md shows how to write a backend.
 *
 * A backend knows tensors, slots and block tables; never sequences, models or text. Every pointer
 * marked `dev` is device memory from `alloc`, which the caller never dereferences; everything else
 * is host memory. Activations have one type per backend, `activation_dtype` (F32 on the CPU). Rows
 * are contiguous: x[row][col] is at row * cols + col. Arguments are borrowed during the call.
 *
 * A backend has one stream: ops run in the order of their calls, and a call may return before its
 * op is done (on the CPU it is done). Ops do not return errors: a device fault is sticky and
 * reported by `synchronize`.
 *
 * On the CPU a row's result never depends on the other rows of the call. So logits are the same
 * bits however requests share steps, are cut into chunks or find cached prefixes. A device may
 * split its sums by the size of the call, so that results differ by rounding, but by nothing
 * else. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/collective.h"
#include "backend/expert_args.h"
#include "backend/kv_cache_spec.h"
#include "backend/latent.h"
#include "backend/recurrent.h"
#include "backend/row_args.h"
#include "backend/sample_args.h"
#include "backend/shared_prefix.h"
#include "backend/weight_format.h"
#include "base/byte_source.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/matrix_reader.h"

struct backend;
struct linear; // packed weights of y = x W^T + b; made and owned through the backend
struct experts; // packed weights of all experts of one layer; made and owned through the backend
struct backend_event; // a point in the stream that the host can wait for
struct backend_graph; // recorded ops that are enqueued again by one call
struct kv_cache; // the paged KV cache of all layers; the backend owns its layout
struct token_counts; // the tokens that sequences have seen, and how often they generated each
struct fused_model; // a backend's own data for the fused ops of one model

struct backend_options {
    const char *device; // "auto", a name of device_list.h, or one of gpu_choice.h
    const char *cpu_isa; // "auto" or a name of backend/cpu/isa/isa.c
    int threads; // 0: one for each core of the affinity mask, within the cgroup's quota
    enum dtype weight_dtype; // DTYPE_BF16 or DTYPE_F32: of linears whose weights stay floats
    const char *timings_path; // file of timings of ops to read and write; NULL: none
    bool numa; // cpu: spread weights and KV caches over the NUMA nodes
    uint32_t rank_on_host; // decides which of the GPUs that `device` names it takes
};

// A rectangle of a checkpoint's matrix; borrowed during the call.
struct matrix_slice {
    uint32_t rows, cols;
    enum dtype dtype; // DTYPE_BF16, DTYPE_F16 or DTYPE_F32
    // In host memory or in a file, elements of `dtype`.
    struct byte_source source; // begins at element [0][0] of the slice
    size_t row_stride; // elements between rows
    // Or, where not NULL, in a format that gives floats (`dtype` is DTYPE_F32) and has the slice's
    // element [0][0] at [first_row][first_col].
    const struct matrix_reader *reader;
    uint64_t first_row, first_col;
    uint32_t skipped_rows; // of its matrix, between two rows of the slice
};

// The row of the reader's matrix that is the slice's row `row`.
static inline uint64_t matrix_slice_row(const struct matrix_slice *slice, uint64_t row) {
    return slice->first_row + row * (1 + (uint64_t)slice->skipped_rows);
}

// W is the parts stacked along the outputs: [sum of rows][in]. The slices select a rank's share.
struct linear_spec {
    const struct matrix_slice *parts; // [num_parts], all with the same cols = in
    const struct matrix_slice *biases; // [num_parts] of [1][rows of the part], or NULL for no bias
    uint32_t num_parts;
    struct weight_format format; // one that the backend has
};

// Of one rank: `intermediate` is its share of each expert.
struct experts_shape {
    uint32_t num_experts;
    uint32_t hidden, intermediate;
    bool has_bias; // of gate, up and down
    bool lacks_gate; // only where backend_moe.has_ungated, and without biases
};

// An expert is down(activation(gate(x), up(x))), or without a gate down(activation(up(x))).
struct experts_spec {
    struct experts_shape shape;
    const struct matrix_slice *gate, *up; // [num_experts] of [intermediate][hidden]; gate or NULL
    const struct matrix_slice *down; // [num_experts] of [hidden][intermediate]
    // [num_experts] of [1][outputs], with has_bias; down's may be NULL: it is 0 on this rank.
    const struct matrix_slice *gate_bias, *up_bias, *down_bias;
    // Gelu only where backend_moe.has_branches; without a gate ACTIVATION_RELU_SQUARED.
    enum activation activation;
    struct weight_format format;
};

enum { STEP_SPLIT_MAX = 16 };

/* One step: the whole input of a forward pass and its sampling. The engine fills it, and every op
 * reads it. The arrays are `dev`, with the lengths given here.
 *
 * The queries of sequence s are the tokens query_start[s] .. query_start[s + 1] - 1; the last is at
 * position context_len[s] - 1. The engine may pad decodes with dummy sequences: context_len 0, one
 * token, no slot. Ops choose kernels by the padded counts. A sequence of up to STEP_SPLIT_MAX
 * tokens may come as as many of one token each, which share its row of the tables; max_query_len
 * counts them as one.
 *
 * Layers whose attention sees the same window form KV groups. All groups take their blocks from one
 * cache, and each has slots and block tables of its own. The op of a layer finds those of its group
 * by step_slots and step_tables.
 *
 * nano-vllm: the global Context. query_start is cu_seqlens_q; cu_seqlens_k has context_len. */
struct step {
    uint32_t num_tokens, num_seqs;
    uint32_t num_logits; // rows whose logits are wanted
    uint32_t num_prompt_logits; // rows of prompts that are wanted too, for log-probabilities alone
    uint32_t num_snapshots;
    uint32_t num_pooled; // rows whose last hidden states are wanted, for embeddings
    uint32_t table_rows, table_stride; // of block_tables, the same in every step
    uint32_t max_query_len, max_context_len; // maxima over the sequences, for launch shapes
    // Sequences of several tokens, and the sum of their context_len (at most UINT32_MAX). 0: not
    // told.
    uint32_t num_prompts, prompt_positions;
    int32_t *tokens; // [num_tokens]; -1 - r stands for previous[r].token_id
    int32_t *positions; // [num_tokens]
    // [KV groups][num_tokens]: block * block_size + offset; -1 writes nothing
    int32_t *slot_mapping;
    int32_t *query_start; // [num_seqs + 1]
    int32_t *context_len; // [num_seqs]
    uint32_t group_tokens; // num_tokens when slot_mapping was laid out
    // [KV groups][table_rows][table_stride]. A row has entries for its sequence's context; the rest
    // is any, and so are entries before the windows of all its queries. The tables stay on the
    // device from step to step: update_tables brings what changed.
    int32_t *block_tables;
    // [num_seqs]: the sequence's row of the tables, and its slot in the states of recurrent layers
    int32_t *table_row;
    // [num_seqs]: the slot with the states before the sequence's queries, mostly its own; NULL: it
    // is. No slot that the step writes, but its own.
    int32_t *state_row;
    // [num_snapshots]: copies of states, those behind the token of this row, in slots of their own.
    int32_t *snapshot_token, *snapshot_slot;
    int32_t *logit_index; // [num_logits]: rows of tokens
    struct sample_row *rows; // [num_logits]
    struct sample_bias *biases; // a row's bias_start is an index into it
    uint32_t *masks; // as in sample_args
    int32_t *prompt_index; // [num_prompt_logits]: rows of tokens
    // [num_prompt_logits] greedy, with a bias that lets only the prompt's next token win.
    struct sample_row *prompt_rows;
    int32_t *pool_index; // [num_pooled]: rows of tokens
    // Results of the previous step. Tokens below 0 refer to them, so that a step can be launched
    // before the host has read those token ids. NULL: no token refers to them.
    const struct sample_result *previous;
    struct shared_prefixes shared;
};

static inline int32_t *step_slots(const struct step *step, uint32_t kv_group) {
    return step->slot_mapping + (size_t)kv_group * step->group_tokens;
}

// The tables of a group: [table_rows][table_stride].
static inline int32_t *step_tables(const struct step *step, uint32_t kv_group) {
    return step->block_tables + (size_t)kv_group * step->table_rows * step->table_stride;
}

// Where device memory is the host's: the table of a sequence.
static inline const int32_t *step_table(const struct step *step, uint32_t kv_group, uint32_t seq) {
    return step_tables(step, kv_group) + (size_t)step->table_row[seq] * step->table_stride;
}

// Some entries of a row of block tables: tables[to + i] = blocks[from + i] for i < count.
struct table_run {
    uint32_t to, from, count;
};

// No two runs write the same entry.
struct update_tables_args {
    int32_t *tables; // dev
    const struct table_run *runs; // dev [num_runs]
    const int32_t *blocks; // dev
    uint32_t num_runs; // 0: nothing changes; a warm-up calls it so
};

// out[t] = the embedding of step->tokens[t].
struct embed_args {
    const struct step *step;
    const struct linear *table; // [vocab rows of this rank][hidden]
    int32_t vocab_start; // id of the table's first row; tokens of other ranks give zeros
    void *out; // dev [num_tokens][hidden]
};

// out = rms_norm(x) * weight. With `residual`: residual += x, then out = rms_norm(residual) *
// weight. rms_norm(v) = v / sqrt(mean(v^2) + eps). With `x_norm` too: residual += rms_norm(x) *
// x_norm.
struct rms_norm_args {
    const void *x; // dev [rows][cols]
    void *residual; // dev [rows][cols] in/out, or NULL
    const float *weight; // dev [cols]
    void *out; // dev [rows][cols]; may be x when residual is NULL
    uint32_t rows, cols;
    float eps;
    uint32_t stride; // elements from row to row, of x and of out; 0: cols. Without residual only
    uint32_t groups; // a row has so many of [cols] side by side, normed one by one; 0: one
    const float *x_norm; // dev [cols] or NULL; only if the backend's fusion.norms_sums
    bool has_group_weights; // each group has its own: weight is [groups][cols]
};

struct linear_args {
    const struct linear *linear; // [out][in]
    const void *x; // dev [rows][in]
    void *out; // dev [rows][out], not overlapping x
    uint32_t rows;
    bool out_is_float; // `out` is float32, else activation_dtype
};

/* One layer's attention over the paged cache, for three ops: attention_prepare, attention, and
 * fusion's attend, which does both.
 *
 * attention_prepare does for each token: an optional RMS norm of each head of q and k, then the
 * rotary embedding (half-split, "NeoX" form) of q and k at the token's position, or the embedding
 * and then the norm. k and v are written to the cache at the token's slot; q stays in qkv.
 * nano-vllm: store_kvcache, and the norm and rotation before it.
 *
 * attention is causal grouped-query attention, softmax(scale * q k^T) v. A query at position p sees
 * the positions p - window + 1 .. p of its sequence, without a window 0 .. p. Positions before the
 * windows of all queries are not read: block tables may have any number for their blocks. */
struct attention_args {
    const struct step *step;
    struct kv_cache *cache; // written by attention_prepare, read by attention
    uint32_t layer; // of the cache: its index in its KV group
    uint32_t kv_group;
    struct kv_place place; // in each block, in a cache whose layers have different shapes
    uint32_t num_heads, num_kv_heads, head_dim;
    void *qkv; // dev [num_tokens][attention_row_heads * head_dim]
    // The cache has the keys and values already, and qkv has q alone; only with ops.gelu_mul.
    bool reads_kv;
    void *out; // dev [num_tokens][num_heads * head_dim], written by attention
    const float *q_norm, *k_norm; // dev [head_dim] or NULL
    bool has_norm_after_rope; // the norms come behind the rotation
    const float *rope; // dev [max_positions][head_dim]: head_dim/2 cosines, then sines
    const float *q_rope; // the same for q, where q is scaled by its position; NULL: rope
    float eps; // of the norms
    float scale; // factor of the scores
    uint32_t window; // positions; 0: none
    // The window of a position p begins at the last multiple of `window` up to p instead; only if
    // the backend has_chunks.
    bool is_chunked;
    float softcap; // not 0: scores become softcap * tanh(scores / softcap), after the scale
    const float *sinks; // dev [num_heads]: a score that has no position and no value; or NULL
};

static inline size_t attention_row_heads(const struct attention_args *args) {
    return args->num_heads + (args->reads_kv ? 0 : 2 * (size_t)args->num_kv_heads);
}

static inline const float *attention_q_rope(const struct attention_args *args) {
    return args->q_rope ? args->q_rope : args->rope;
}

// out = activation(gate, up): silu(gate) * up, or another.
struct silu_mul_args {
    const void *gate_up; // dev [rows][2 * cols]: gate, then up
    void *out; // dev [rows][cols]
    uint32_t rows, cols;
    enum activation activation;
};

// The ops that every backend has.
struct backend_ops {
    void (*destroy)(struct backend *backend);

    // Device memory, 64-byte aligned, zeroed.
    enum status (*alloc)(struct backend *backend, size_t bytes, void **dev, struct err *err);
    void (*release)(struct backend *backend, void *dev); // NULL is fine
    // Copies, ordered with the ops. The caller leaves `host` alone until the next synchronize.
    void (*upload)(struct backend *backend, void *dev, const void *host, size_t bytes);
    void (*download)(struct backend *backend, void *host, const void *dev, size_t bytes);
    // Waits for everything enqueued; the one place where a device fault is reported.
    enum status (*synchronize)(struct backend *backend, struct err *err);

    // Whether linears can keep their weights in this format. All have WEIGHTS_NATIVE.
    bool (*has_format)(const struct backend *backend, struct weight_format format);
    enum status (*linear_create)(struct backend *backend, const struct linear_spec *spec,
                                 struct linear **out, struct err *err);
    void (*linear_destroy)(struct backend *backend, struct linear *linear); // NULL is fine
    size_t (*linear_bytes)(const struct backend *backend, uint32_t out, uint32_t in, bool bias,
                           struct weight_format format);
    // Device memory that a linear of this kind needs while it runs. All linears share it. NULL:
    // none.
    size_t (*linear_scratch_bytes)(uint32_t out, uint32_t in, struct weight_format format);

    enum status (*kv_cache_create)(struct backend *backend, const struct kv_cache_spec *spec,
                                   struct kv_cache **out, struct err *err);
    void (*kv_cache_destroy)(struct backend *backend, struct kv_cache *cache); // NULL is fine
    // Bytes of one block over all layers; num_blocks of the spec is ignored.
    size_t (*kv_cache_block_bytes)(const struct backend *backend, const struct kv_cache_spec *spec);
    // Optional. Bytes that a cache takes beside its blocks. NULL: few.
    size_t (*kv_cache_workspace_bytes)(const struct backend *backend,
                                       const struct kv_cache_spec *spec);

    // Optional. Whether attention over such a cache can read a shared prefix once
    // (shared_prefix.h). NULL: it cannot, and steps name none.
    bool (*shares_prefixes)(const struct backend *backend, const struct kv_cache_spec *spec);
    void (*update_tables)(struct backend *backend, const struct update_tables_args *args);
    void (*embed)(struct backend *backend, const struct embed_args *args);
    void (*rms_norm)(struct backend *backend, const struct rms_norm_args *args);
    void (*linear)(struct backend *backend, const struct linear_args *args);
    // Optional. `next` is the linear that a step runs behind `linear`, on as many rows: a backend
    // may fetch its weights early. `next` is borrowed until the last run of `linear`.
    void (*linear_set_next)(struct backend *backend, struct linear *linear,
                            const struct linear *next);
    // Optional. Call it once for each cache that a step's layers attend over, before the first of
    // them: it may make work lists of the step. Each layer then attends once.
    void (*attention_begin)(struct backend *backend, struct kv_cache *cache,
                            const struct step *step);
    void (*attention_prepare)(struct backend *backend, const struct attention_args *args);
    void (*attention)(struct backend *backend, const struct attention_args *args);
    void (*silu_mul)(struct backend *backend, const struct silu_mul_args *args);
    // Optional. A backend that has it knows attention_args.reads_kv too.
    void (*gelu_mul)(struct backend *backend, const struct gelu_mul_args *args);
    void (*sigmoid_mul)(struct backend *backend, const struct sigmoid_mul_args *args);
    void (*scale)(struct backend *backend, const struct scale_args *args);
    // Optional, both or none. Without them models with norms over all heads run on one rank.
    void (*square_sums)(struct backend *backend, const struct cut_norm_args *args);
    void (*cut_norm)(struct backend *backend, const struct cut_norm_args *args);
    void (*softcap)(struct backend *backend, const struct softcap_args *args);
    // Optional. Without it models with LayerNorms are refused, or with MLPs without a gate, or with
    // factors of experts' inputs.
    void (*layer_norm)(struct backend *backend, const struct layer_norm_args *args);
    void (*activate)(struct backend *backend, const struct activate_args *args);
    void (*scale_rows)(struct backend *backend, const struct scale_rows_args *args);
    // Optional. Call it behind a step's last layer: later ops are not part of the layers.
    void (*layers_end)(struct backend *backend, const struct step *step);
    void (*gather_rows)(struct backend *backend, const struct gather_rows_args *args);
};

// For a device that runs beside the host and has its own memory. Without this group ops are done
// when they return, and copies take any host memory.
struct backend_queue {
    // Host memory for copies to and from the device that do not stop the host, 64-byte aligned,
    // zeroed.
    enum status (*alloc_host)(struct backend *backend, size_t bytes, void **host, struct err *err);
    void (*release_host)(struct backend *backend, void *host); // NULL is fine
    // Makes page-aligned memory of another origin as good as alloc_host's, and undoes that.
    enum status (*register_host)(struct backend *backend, void *host, size_t bytes,
                                 struct err *err);
    void (*unregister_host)(struct backend *backend, void *host); // NULL is fine
    // Optional. Returns when threads of the backend have loaded the kernels that they load.
    void (*wait_loaded)(struct backend *backend);
    // Writes timings of ops to the file of the options, and reads what another process wrote.
    void (*timings_write)(struct backend *backend);
    void (*timings_read)(struct backend *backend);
    // Whether a failure of the device is known, without waiting.
    enum status (*poll)(struct backend *backend, struct err *err);
    // The device's memory now: what this process can still allocate, beside what wait_loaded waits
    // for, and the total. Where ranks share a GPU, this one's share of them.
    enum status (*memory)(struct backend *backend, size_t *free_bytes, size_t *total_bytes,
                          struct err *err);
    // Call after the last linear and experts were created: waits until all weights are on the
    // device. `spare_bytes`: memory that nothing else is planned for. A backend may take a part of
    // it for a second form of weights, if that is faster.
    enum status (*weights_finish)(struct backend *backend, size_t spare_bytes, struct err *err);

    enum status (*event_create)(struct backend *backend, struct backend_event **out,
                                struct err *err);
    void (*event_destroy)(struct backend *backend, struct backend_event *event); // NULL is fine
    void (*event_record)(struct backend *backend, struct backend_event *event);
    // Whether event_wait would return at once.
    bool (*event_is_done)(struct backend *backend, struct backend_event *event);
    // Uploads while what is enqueued runs. It begins when everything before the last record of
    // `after` is done, and what is enqueued from now on waits for it. What was enqueued since that
    // record does not use `dev`. The host data stays as it is until that later work is done.
    void (*upload_beside)(struct backend *backend, struct backend_event *after, void *dev,
                          const void *host, size_t bytes);
    // Waits until everything enqueued before the last record is done. Reports device faults like
    // synchronize.
    enum status (*event_wait)(struct backend *backend, struct backend_event *event,
                              struct err *err);

    // Ops between begin and end are recorded, not run, with the pointers and sizes of their calls.
    // *out is NULL, or a recording of the same ops that the new one replaces, in its memory where
    // the device can. A failed end stops the recording too, and *out is NULL.
    enum status (*graph_begin)(struct backend *backend, struct err *err);
    enum status (*graph_end)(struct backend *backend, struct backend_graph **out, struct err *err);
    void (*graph_launch)(struct backend *backend, struct backend_graph *graph);
    void (*graph_destroy)(struct backend *backend, struct backend_graph *graph); // NULL is fine
};

// Without this group logits are downloaded, and the CPU's sampler runs on them.
struct backend_sampler {
    void (*sample)(struct backend *backend, const struct sample_args *args);
    // Optional: brings results to the host like a download, but of rows with num_top < 0 only their
    // first two fields. `results`, `rows`: dev [num_rows], of a call of `sample`.
    void (*download_results)(struct backend *backend, struct sample_result *host,
                             const struct sample_result *results, const struct sample_row *rows,
                             uint32_t num_rows);
    size_t (*scratch_floats)(const struct backend *backend, uint32_t vocab_size, uint32_t num_rows);

    // Makes counts for `num_slots` sequences: for each token id, how often the sequence generated
    // it and whether its prompt has it. max_ids: tokens of the longest sequence.
    enum status (*counts_create)(struct backend *backend, uint32_t num_slots, uint32_t vocab_size,
                                 uint32_t max_ids, struct token_counts **out, struct err *err);
    void (*counts_destroy)(struct backend *backend, struct token_counts *counts); // NULL is fine
    // Bytes that counts_create allocates.
    size_t (*counts_bytes)(const struct backend *backend, uint32_t num_slots, uint32_t vocab_size,
                           uint32_t max_ids);
    // Gives `slot` (1 .. num_slots) to a sequence of the tokens ids [num_ids], host memory; the
    // first num_prompt of them are its prompt. Ordered with the ops; the caller may change ids when
    // it returns.
    void (*counts_begin)(struct backend *backend, struct token_counts *counts, uint32_t slot,
                         const int32_t *ids, uint32_t num_prompt, uint32_t num_ids);
};

// out[i] (+)= parts[0][i] + parts[1][i] + ..., added in that order.
struct sum_args {
    const void *const *parts; // host [num_parts] of [count], activation type
    uint32_t num_parts;
    void *out; // [count]; may be one of the parts
    size_t count;
    bool is_first; // out becomes the sum; else the sum is added to it
};

// Work on memory that other ranks of a tensor-parallel group have written (comm/comm.h). Without
// this group and without `collective` the device can only run a model alone.
struct backend_peers {
    void (*sum)(struct backend *backend, const struct sum_args *args);
};

// Without this group models with experts are refused.
struct backend_moe {
    enum status (*experts_create)(struct backend *backend, const struct experts_spec *spec,
                                  struct experts **out, struct err *err);
    void (*experts_destroy)(struct backend *backend, struct experts *experts); // NULL is fine
    size_t (*experts_bytes)(const struct backend *backend, const struct experts_shape *shape,
                            struct weight_format format);
    // The result also suffices for any smaller number of tokens.
    size_t (*experts_scratch_bytes)(const struct backend *backend,
                                    const struct experts_shape *shape, uint32_t num_tokens,
                                    uint32_t top_k);
    void (*route)(struct backend *backend, const struct route_args *args);
    void (*experts)(struct backend *backend, const struct experts_args *args);
    // There with linear_set_next: the same for the linear behind the experts.
    void (*experts_set_next)(struct backend *backend, struct experts *experts,
                             const struct linear *next);
    bool (*takes_shared)(const struct backend *backend, const struct experts_args *args); // or NULL
    bool (*adds_sums)(const struct backend *backend, const struct experts_args *args); // or NULL
    // Returns false, having done nothing, where there is no kernel for it. Or NULL.
    bool (*norm_route)(struct backend *backend, const struct norm_route_args *args);
    bool has_branches; // experts may have ACTIVATION_GELU_TANH, and route_args scales
    bool has_groups; // route_args may have groups
    bool has_ungated; // experts may lack gates
};

// A layer's weights for its fused ops. The pointers are borrowed for the fused model's life.
struct fused_layer {
    const struct linear *qkv, *o;
    const struct linear *gate_up, *down; // NULL in a layer of experts
    const float *input_norm, *mlp_norm; // dev [hidden]
    const float *q_norm, *k_norm; // dev [head_dim] or NULL
};

struct fused_model_spec {
    const struct fused_layer *layers; // [num_layers], borrowed during the call
    uint32_t num_layers;
    uint32_t hidden, intermediate, num_heads, num_kv_heads, head_dim; // of this rank
    float eps; // of all norms
    bool is_whole; // this rank has all of every layer, and all layers are dense
    bool is_even; // all layers are dense, and all ranks have as much of them
    // The devices of the other ranks, which share every layer. The op that sums over ranks then
    // does the norm too, so project_in gets none. NULL: there are none.
    struct collective *collective;
};

// out = linear(norm(residual)); where `unadded` is given, residual += unadded first. With is_gated
// out = activation(first half, second half) of that product. Without `norm`: out = linear(hidden).
struct project_in_args {
    const struct linear *linear; // [out][hidden]
    void *residual; // dev [rows][hidden] in/out
    const void *unadded; // dev [rows][hidden] or NULL
    const float *norm; // dev [hidden] or NULL
    void *out; // dev [rows][out or, gated, out / 2]
    void *hidden; // dev [rows][hidden] scratch; without norm the input
    void *gate_up; // dev [rows][out] scratch, with is_gated; may not overlap `out`
    uint32_t rows;
    bool is_gated;
    enum activation activation; // with is_gated
    // project_out of this linear is the only op that reads `out`. It has the same rows. Between the
    // two only ops may come that neither use `gate_up` nor run a linear. A backend may leave the
    // activation to project_out. NULL: not known.
    const struct linear *reader;
    float eps;
};

// residual += linear(x).
struct project_out_args {
    const struct linear *linear; // [out][in]
    const void *x; // dev [rows][in]
    void *residual; // dev [rows][out] in/out, may not be x
    void *projected; // dev [rows][out] scratch
    uint32_t rows;
};

// All layers, which are one KV group. In each, with sums over the ranks where there are several:
//   residual += o(attention(qkv(norm(residual))))
//   residual += mlp(norm(residual))
struct layers_args {
    const struct step *step;
    struct kv_cache *cache;
    void *residual; // dev [num_tokens][hidden] in/out
    void *qkv; // dev [num_tokens][(num_heads + 2 * num_kv_heads) * head_dim] scratch
    void *attended; // dev [num_tokens][num_heads * head_dim] scratch
    void *activated; // dev [num_tokens][intermediate] scratch, may overlap the two above
    const float *rope; // as in attention_args
    float scale; // factor of the scores
};

/* Several ops as one, where that is faster. Each returns false for "not done": it has changed
 * nothing, and the caller runs the ops of backend_ops instead. As between backends, rounding may
 * differ from those. Every op is optional: NULL is "not done" for every call. */
struct backend_fusion {
    // For `layers`; these four are all there, or none is.
    enum status (*model_create)(struct backend *backend, const struct fused_model_spec *spec,
                                struct fused_model **out, struct err *err);
    void (*model_destroy)(struct backend *backend, struct fused_model *model); // NULL is fine
    // Whether `layers` runs such a step over this cache. Reads only the step's counts.
    bool (*takes_layers)(const struct fused_model *model, const struct kv_cache *cache,
                         const struct step *step);
    // Only for steps that takes_layers says. Needs no attention_begin.
    void (*layers)(struct backend *backend, struct fused_model *model,
                   const struct layers_args *args);

    bool (*project_in)(struct backend *backend, const struct project_in_args *args);
    bool (*project_out)(struct backend *backend, const struct project_out_args *args);
    // attention_prepare and attention in one op. It reads keys and values before all of the step's
    // are written, so no sequence may read a slot that another one writes in this step.
    bool (*attend)(struct backend *backend, const struct attention_args *args);
    bool norms_sums; // rms_norm takes x_norm
};

// First member of every backend's own struct.
struct backend {
    const struct backend_ops *ops;
    const struct backend_queue *queue; // NULL: none, as for the others
    const struct backend_sampler *sampler;
    const struct backend_moe *moe;
    const struct backend_recurrent *recurrent;
    const struct backend_latent *latent;
    const struct backend_peers *peers;
    const struct backend_collective *collective;
    const struct backend_fusion *fusion;
    const char *name; // "cpu"
    char description[128]; // for people: "cpu avx512, 2 threads"
    enum dtype activation_dtype;
    enum dtype weight_dtype; // of WEIGHTS_NATIVE
    enum dtype kv_cache_dtype; // of a KV cache whose spec has DTYPE_NONE
    // A step of a few more rows takes little longer: linears read their weights once for all rows.
    bool has_cheap_rows;
    bool has_kv_groups; // false: there is one KV group
    bool has_windows; // attention_args may have a window
    bool has_chunks; // attention_args may be chunked
    bool has_grouped_layer_norms; // layer_norm_args may have groups
    bool has_kv_shapes; // layers may differ in num_kv_heads and head_dim: kv_cache_spec.shapes
    uint32_t kv_cache_dtypes; // 1 << dtype of the others that a KV cache can have
    // The caller sets it while it calls linears only to load their kernels. A linear whose kernel a
    // thread of the backend loads, now or later, does not run then.
    bool leaves_loading;
    uint32_t num_timed; // shapes for which ops were timed, because no file knew the fastest
};

// Makes the backend for options->device. The error for an unknown name lists the known ones.
MUST_USE enum status backend_create(struct backend **out, const struct backend_options *options,
                                    struct err *err);
void backend_destroy(struct backend *backend); // NULL is fine
// Host memory for copies from and to the device, 64-byte aligned: from the queue group, else from
// the C library.
MUST_USE enum status backend_alloc_host(struct backend *backend, size_t bytes, void **host,
                                        struct err *err);
void backend_release_host(struct backend *backend, void *host); // NULL is fine

#endif

/* The seam between the model and a device: memory, one stream, packed weights, the paged KV cache
 * and the ops of a transformer on flat arrays.
 *
 * A backend knows tensors, slots and block tables; never sequences, models or text. Every pointer
 * marked `dev` is device memory from `alloc` and is never dereferenced by the caller; everything
 * else is host memory. Ops are enqueued in order on the backend's stream and return at once (the
 * CPU's run to their end); they cannot fail by themselves: a device fault is sticky and surfaces at
 * `synchronize`. Activations have ONE type per backend, `activation_dtype` (F32 on the CPU), rows
 * are contiguous: x[row][col] at row * cols + col.
 *
 * On the CPU a row's result never depends on which other rows are in the call: engines rely on that
 * for bit-identical logits under batching, chunking and prefix caching. A device may cut its sums
 * by the size of the call, so that results differ by rounding, but by nothing else. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"

struct backend;
struct backend_stream;
struct linear; // packed weights of y = x W^T + b; made and owned through the backend
struct experts; // packed weights of all experts of one layer; made and owned through the backend
struct backend_event; // a point in the stream that the host can wait for
struct backend_graph; // recorded ops, enqueued again as one
struct kv_cache; // the paged KV cache of all layers; the backend owns its layout
struct decode_layers; // what decode_layers needs of a model's layers

struct backend_options {
    const char *device; // "auto", "cuda", "cpu"
    const char *cpu_isa; // "auto", "scalar", "avx2", "avx512"
    int threads; // 0: all cores of the affinity mask
    enum dtype weight_dtype; // DTYPE_BF16 or DTYPE_F32: how linears keep their weights
    const char *cuda_cache_path; // file of matrix product timings to read and write; NULL: none
};

// A rectangle of a checkpoint tensor in host memory; borrowed during the call.
struct matrix_slice {
    const void *data; // element [0][0] of the slice; any alignment
    enum dtype dtype; // DTYPE_BF16, DTYPE_F16 or DTYPE_F32
    uint32_t rows, cols;
    size_t row_stride; // elements between rows
};

// W is the parts stacked along the outputs: [sum of rows][in]. A rank's share is chosen by the
// slices.
struct linear_spec {
    const struct matrix_slice *parts; // [num_parts], all with the same cols = in
    const struct matrix_slice *biases; // [num_parts] of [1][rows of the part], or NULL for no bias
    uint32_t num_parts;
};

// Of one rank: `intermediate` is its share of each expert.
struct experts_shape {
    uint32_t num_experts;
    uint32_t hidden, intermediate;
};

// An expert is down(silu(gate(x)) * up(x)), without biases.
struct experts_spec {
    struct experts_shape shape;
    const struct matrix_slice *gate, *up; // [num_experts] of [intermediate][hidden]
    const struct matrix_slice *down; // [num_experts] of [hidden][intermediate]
};

struct kv_cache_spec {
    uint32_t num_layers;
    uint32_t num_blocks;
    uint32_t block_size; // tokens, a multiple of 16
    uint32_t num_kv_heads;
    uint32_t head_dim; // a multiple of 16
    // The largest step that attention over this cache is asked for: for work lists. 0 where the
    // backend has no attention_plan.
    uint32_t num_heads, max_num_seqs, max_num_tokens;
};

struct embed_args {
    const struct linear *table; // [vocab rows of this rank][hidden]
    const int32_t *tokens; // dev [num_tokens]
    uint32_t num_tokens;
    int32_t vocab_start; // id of the table's first row; rows of other ranks become zeros
    void *out; // dev [num_tokens][hidden]
    // dev, the step before's; a token of -1 - r is the one that its row r holds, which the host
    // need not know yet. NULL: there are none.
    const struct sample_result *previous;
};

// out = rms_norm(x) * weight; with `residual`: residual += x first, and the norm of that sum.
// rms_norm(v) = v / sqrt(mean(v^2) + eps).
struct rms_norm_args {
    const void *x; // dev [rows][cols]
    void *residual; // dev [rows][cols] in/out, or NULL
    const float *weight; // dev [cols]
    void *out; // dev [rows][cols]; may be x when residual is NULL
    uint32_t rows, cols;
    float eps;
};

struct linear_args {
    const struct linear *linear; // [out][in]
    const void *x; // dev [rows][in]
    void *out; // dev [rows][out], not overlapping x
    uint32_t rows;
};

// A linear with what surrounds it in a layer, where kernels of their own would cost more than their
// work (few rows), or send through memory what need not go there:
//   x' = norm ? rms_norm(x) * norm : x;   y = linear(x');   gated: y = silu(first half) * second;
//   residual ? residual += y : out = y
// Rounding may differ from the ops one by one, as between backends.
struct linear_fused_args {
    const struct linear *linear; // [out][in]
    const void *x; // dev [rows][in]
    const float *norm; // dev [in] or NULL; NULL with more than linear_norm_rows rows
    // dev [rows][out or, gated, out / 2] in/out, or NULL; may not be x. NULL with is_gated and more
    // than linear_norm_rows rows.
    void *residual;
    void *out; // dev, of the same shape; unused with residual
    // dev [rows][out], with more than linear_norm_rows rows: the backend's to use, not overlapping
    // the others.
    void *scratch;
    uint32_t rows;
    bool is_gated;
    float eps; // of the norm
};

// Logits come out as float32 on every backend: out[row][vocab rows of this rank].
struct logits_args {
    const struct linear *linear;
    const void *x; // dev [rows][in]
    float *out; // dev [rows][out]
    uint32_t rows;
};

// Per token: optional per-head RMS norm of q and k, rotary embedding (half-split, "NeoX" form) of q
// and k at `positions`, k and v written to the cache at `slot_mapping`; q stays in qkv.
struct attention_prepare_args {
    void *qkv; // dev [num_tokens][(num_heads + 2 * num_kv_heads) * head_dim]
    const float *q_norm; // dev [head_dim] or NULL
    const float *k_norm; // dev [head_dim] or NULL
    const float *rope; // dev [max_positions][head_dim]: head_dim/2 cosines, then sines
    const int32_t *positions; // dev [num_tokens]
    const int32_t *slot_mapping; // dev [num_tokens]: block * block_size + offset; -1 writes nothing
    struct kv_cache *cache;
    uint32_t layer;
    uint32_t num_tokens, num_heads, num_kv_heads, head_dim;
    float eps; // of the norms
};

// What the lengths of a step imply for its attention: a backend may prepare work lists here, once
// for all layers.
struct attention_plan_args {
    struct kv_cache *cache;
    const int32_t *query_start; // dev [num_seqs + 1]
    const int32_t *context_len; // dev [num_seqs]; 0: nothing of the sequence is wanted
    // dev: the step's block_table_stride. attention_args has it too, but a recorded step keeps the
    // one that it was recorded with.
    const uint32_t *block_table_stride;
    const int32_t *slot_mapping; // dev [num_tokens], as in attention_prepare_args
    uint32_t num_seqs;
    uint32_t max_query_len; // over the batch, as in attention_args
};

// Causal grouped-query attention over the paged cache. The queries of sequence s are the tokens
// query_start[s] .. query_start[s+1]-1, the last of them at position context_len[s]-1; each sees
// every position up to its own. softmax(scale * q k^T) v.
struct attention_args {
    const void *qkv; // dev [num_tokens][(num_heads + 2 * num_kv_heads) * head_dim]: q is read
    // NULL, or what attention_prepare was not asked for, borrowed during the call: it is done on
    // the way, for the same qkv, cache, layer and shape, with the slots that the plan was given and
    // the last position of each context. Only where the backend says attention_prepares and no
    // sequence has more than one query token. Keys and values of the step are not all written
    // before any is read, so no sequence may see another's new slot; and nothing else may write
    // this layer's cache since the step's first attention.
    const struct attention_prepare_args *prepare;
    struct kv_cache *cache; // written with `prepare`
    const int32_t *query_start; // dev [num_seqs + 1]
    const int32_t *context_len; // dev [num_seqs]
    const int32_t *block_tables; // dev [num_seqs][block_table_stride]
    void *out; // dev [num_tokens][num_heads * head_dim]
    uint32_t layer;
    uint32_t num_tokens, num_seqs, num_heads, num_kv_heads, head_dim;
    uint32_t block_table_stride;
    uint32_t max_query_len, max_context_len; // over the batch, for launch shapes
    float scale;
};

// A dense layer; what it points to is borrowed for the life of what is made of it.
struct decode_layer_spec {
    const struct linear *qkv, *o, *gate_up, *down;
    const float *input_norm, *attention_norm; // dev [hidden]
    const float *q_norm, *k_norm; // dev [head_dim] or NULL
};

struct decode_layers_spec {
    const struct decode_layer_spec *layers; // [num_layers], borrowed during the call
    uint32_t num_layers;
    uint32_t hidden, intermediate, num_heads, num_kv_heads, head_dim;
    float eps; // of all norms
    bool always; // also where the ops one by one are as fast: for tests
};

// All layers of a step in which every sequence has one token, so few that the time goes by between
// ops: residual += o(attention(qkv(norm(residual)))), residual += mlp(norm(residual)), per layer.
// Rounding may differ from the ops one by one, as between backends.
struct decode_layers_args {
    struct decode_layers *layers;
    struct kv_cache *cache;
    void *residual; // dev [num_seqs][hidden] in/out
    void *qkv; // dev [num_seqs][(num_heads + 2 * num_kv_heads) * head_dim] scratch
    void *attended; // dev [num_seqs][num_heads * head_dim] scratch
    void *activated; // dev [num_seqs][intermediate] scratch, may share memory with the two above
    const float *rope; // as in attention_prepare_args
    const int32_t *positions, *slot_mapping; // dev [num_seqs]
    const int32_t *context_len; // dev [num_seqs]; 0: nothing of the sequence is wanted
    const int32_t *block_tables; // dev [num_seqs][*block_table_stride]
    const uint32_t *block_table_stride; // dev
    uint32_t num_seqs; // 1 .. what decode_layers_create said
    float scale; // of scores
};

// out = silu(gate) * up, silu(v) = v / (1 + exp(-v)).
struct silu_mul_args {
    const void *gate_up; // dev [rows][2 * cols]: gate, then up
    void *out; // dev [rows][cols]
    uint32_t rows, cols;
};

// Which experts a token goes to: softmax over all its logits, then the top_k largest of them, best
// first (ties: the smaller id first), divided by their sum where `normalize`.
struct route_args {
    float *logits; // dev [num_tokens][num_experts], of `logits`; destroyed
    int32_t *ids; // dev [num_tokens][top_k]; distinct within a row, also where logits are NaN
    float *weights; // dev [num_tokens][top_k]
    uint32_t num_tokens, num_experts;
    uint32_t top_k; // 1 .. num_experts
    bool normalize;
};

// out[t] = sum over slots, ascending, of weights[t][slot] * expert ids[t][slot] of x[t]. An expert
// is read once, and only if a token goes to it.
struct experts_args {
    const struct experts *experts;
    const void *x; // dev [num_tokens][hidden]
    const int32_t *ids; // dev [num_tokens][top_k], distinct within a row
    const float *weights; // dev [num_tokens][top_k]
    void *out; // dev [num_tokens][hidden], not overlapping x
    void *scratch; // dev [experts_scratch_bytes(shape, num_tokens, top_k)]
    uint32_t num_tokens, top_k;
};

struct gather_rows_args {
    const void *x; // dev [any][cols]
    const int32_t *index; // dev [rows]
    void *out; // dev [rows][cols]
    uint32_t rows, cols;
};

enum { SAMPLE_TOP_MAX = 20 };

// How one row of logits is turned into a token. All fields 32 bits, so that the struct can be part
// of the flat batch. Order of application: repetition, presence and frequency penalty and logit
// bias (the adjusts), temperature, min_p, top_k, top_p, then the draw. Greedy (temperature 0) takes
// the first largest adjusted logit.
struct sample_row {
    float temperature; // 0: greedy
    float top_p; // 1: off
    float min_p; // 0: off
    int32_t top_k; // 0: off
    uint32_t seed_low, seed_high;
    uint32_t draw; // which draw of this seed: the index of the token to generate
    int32_t num_top; // -1: no logprobs; else how many best tokens to report
    float repetition_penalty; // 1: off; seen tokens: positive logits / it, negative * it
    float presence_penalty; // minus this for tokens generated before
    float frequency_penalty; // minus this x how often the token was generated
    uint32_t adjust_start, adjust_count; // this row's part of `adjusts`
};

// What is known of one token id in one row; each id at most once per row.
struct sample_adjust {
    int32_t token_id;
    uint32_t output_count; // times generated so far
    uint32_t in_prompt; // 1: occurs in the prompt
    float bias; // logit_bias
};

// Raw log-probabilities: log_softmax of the logits as the model gave them.
struct sample_result {
    int32_t token_id; // -1: no logit was a number above -inf
    float logprob; // of token_id; 0 when num_top < 0
    int32_t top_id[SAMPLE_TOP_MAX]; // [num_top] best first; ties: the smaller id first
    float top_logprob[SAMPLE_TOP_MAX];
};

struct sample_args {
    const float *logits; // dev [num_rows][vocab_size]
    const struct sample_row *rows; // dev [num_rows]
    const struct sample_adjust *adjusts; // dev [num_adjusts]
    struct sample_result *results; // dev [num_rows]
    uint32_t num_rows, vocab_size;
    float *scratch; // dev [sample_scratch_floats(vocab_size, num_rows)]
};

struct backend_ops {
    void (*destroy)(struct backend *backend);

    // Device memory, 64-byte aligned, zeroed.
    enum status (*alloc)(struct backend *backend, size_t bytes, void **dev, struct err *err);
    void (*release)(struct backend *backend, void *dev); // NULL is fine
    // Copies ordered with the ops; `host` must stay as it is until the next synchronize.
    void (*upload)(struct backend *backend, struct backend_stream *stream, void *dev,
                   const void *host, size_t bytes);
    void (*download)(struct backend *backend, struct backend_stream *stream, void *host,
                     const void *dev, size_t bytes);
    // Waits for everything enqueued; the one place where a device fault is reported.
    enum status (*synchronize)(struct backend *backend, struct backend_stream *stream,
                               struct err *err);

    // Host memory that copies to and from the device need not stop for, 64-byte aligned, zeroed.
    enum status (*alloc_host)(struct backend *backend, size_t bytes, void **host, struct err *err);
    void (*release_host)(struct backend *backend, void *host); // NULL is fine

    // What only a device that runs beside the host has; all NULL on the CPU.
    enum status (*event_create)(struct backend *backend, struct backend_event **out,
                                struct err *err);
    void (*event_destroy)(struct backend *backend, struct backend_event *event); // NULL is fine
    void (*event_record)(struct backend *backend, struct backend_stream *stream,
                         struct backend_event *event);
    // Until everything enqueued before the last record is done; reports device faults as
    // synchronize does.
    enum status (*event_wait)(struct backend *backend, struct backend_event *event,
                              struct err *err);
    // Ops between begin and end are recorded, not run, with the pointers and sizes they are given.
    enum status (*graph_begin)(struct backend *backend, struct backend_stream *stream,
                               struct err *err);
    enum status (*graph_end)(struct backend *backend, struct backend_stream *stream,
                             struct backend_graph **out, struct err *err);
    void (*graph_launch)(struct backend *backend, struct backend_stream *stream,
                         struct backend_graph *graph);
    void (*graph_destroy)(struct backend *backend, struct backend_graph *graph); // NULL is fine
    // Of the device, now: what this process can still take, and all there is.
    enum status (*memory)(struct backend *backend, size_t *free_bytes, size_t *total_bytes,
                          struct err *err);

    // Weights may still be on their way to the device until weights_finish.
    enum status (*linear_create)(struct backend *backend, const struct linear_spec *spec,
                                 struct linear **out, struct err *err);
    void (*linear_destroy)(struct backend *backend, struct linear *linear); // NULL is fine
    size_t (*linear_bytes)(const struct backend *backend, uint32_t out, uint32_t in, bool bias);

    // (optional) Mixture of experts: these four and the ops route and experts, all or none.
    enum status (*experts_create)(struct backend *backend, const struct experts_spec *spec,
                                  struct experts **out, struct err *err);
    void (*experts_destroy)(struct backend *backend, struct experts *experts); // NULL is fine
    size_t (*experts_bytes)(const struct backend *backend, const struct experts_shape *shape);
    // Enough for any smaller number of tokens too.
    size_t (*experts_scratch_bytes)(const struct backend *backend,
                                    const struct experts_shape *shape, uint32_t num_tokens,
                                    uint32_t top_k);

    // After the last linear and experts: everything of them is there. NULL: nothing to wait for.
    enum status (*weights_finish)(struct backend *backend, struct err *err);

    enum status (*kv_cache_create)(struct backend *backend, const struct kv_cache_spec *spec,
                                   struct kv_cache **out, struct err *err);
    void (*kv_cache_destroy)(struct backend *backend, struct kv_cache *cache); // NULL is fine
    // Bytes of one block over all layers; num_blocks of the spec is ignored.
    size_t (*kv_cache_block_bytes)(const struct backend *backend, const struct kv_cache_spec *spec);

    // (optional) Of a dense model on one rank: these three or none. *out is NULL, without an error,
    // and *num_seqs_max 0 where the device or the model's shape do not suit it or gain nothing.
    enum status (*decode_layers_create)(struct backend *backend,
                                        const struct decode_layers_spec *spec,
                                        struct decode_layers **out, uint32_t *num_seqs_max,
                                        struct err *err);
    // NULL is fine.
    void (*decode_layers_destroy)(struct backend *backend, struct decode_layers *layers);
    void (*decode_layers)(struct backend *, struct backend_stream *,
                          const struct decode_layers_args *);

    void (*embed)(struct backend *, struct backend_stream *, const struct embed_args *);
    void (*rms_norm)(struct backend *, struct backend_stream *, const struct rms_norm_args *);
    void (*linear)(struct backend *, struct backend_stream *, const struct linear_args *);
    // NULL: the plain ops do it.
    void (*linear_fused)(struct backend *, struct backend_stream *,
                         const struct linear_fused_args *);
    // Rows up to which linear_fused of this linear takes a norm, since it is the faster way then;
    // NULL where linear_fused is.
    uint32_t (*linear_norm_rows)(const struct backend *backend, const struct linear *linear);
    void (*logits)(struct backend *, struct backend_stream *, const struct logits_args *);
    void (*attention_prepare)(struct backend *, struct backend_stream *,
                              const struct attention_prepare_args *);
    // Before the first attention of every step; NULL: the backend needs no plan.
    void (*attention_plan)(struct backend *, struct backend_stream *,
                           const struct attention_plan_args *);
    void (*attention)(struct backend *, struct backend_stream *, const struct attention_args *);
    void (*silu_mul)(struct backend *, struct backend_stream *, const struct silu_mul_args *);
    void (*route)(struct backend *, struct backend_stream *, const struct route_args *);
    void (*experts)(struct backend *, struct backend_stream *, const struct experts_args *);
    void (*gather_rows)(struct backend *, struct backend_stream *, const struct gather_rows_args *);
    void (*sample)(struct backend *, struct backend_stream *, const struct sample_args *);
    size_t (*sample_scratch_floats)(const struct backend *backend, uint32_t vocab_size,
                                    uint32_t num_rows);
};

// First member of every backend's own struct.
struct backend {
    const struct backend_ops *ops;
    struct backend_stream *stream; // the one stream; NULL on the CPU
    const char *name; // "cpu"
    char description[128]; // for people: "cpu avx512, 2 threads"
    enum dtype activation_dtype;
    enum dtype weight_dtype;
    bool attention_prepares; // attention takes `prepare`
};

// select.c: picks a backend by options->device; an unknown name lists the known ones.
MUST_USE enum status backend_create(struct backend **out, const struct backend_options *options,
                                    struct err *err);
void backend_destroy(struct backend *backend); // NULL is fine

#endif

/* Launchers of the CUDA kernels. Each is defined in the .cu file that its name points to. A
 * launcher enqueues on `stream` and returns at once. If CUDA refuses a call, the launcher keeps
 * that in cuda_device_info.refusal, and synchronize reports it. Pointers are device memory unless
 * marked "host". C and CUDA C++ include this file. */
#ifndef BACKEND_CUDA_KERNELS_H
#define BACKEND_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct token_counts {
    uint32_t num_slots, vocab_size, max_ids;
    uint32_t *counts; // dev [num_slots][vocab_size]; sample/row.cuh describes a count's bits
    int32_t *ids; // dev [max_ids]: staging for the slot that counts_begin fills
    int32_t *host_ids; // [max_ids] pageable: the same on the host
};

// The first call of a launcher that CUDA refused.
struct cuda_refusal {
    const char *call; // what was refused, in words; NULL: nothing
    enum cudaError error;
};

struct cuda_device_info {
    int num_sms;
    // Compute capability; major is limited to that of the compiled code (device_code.cu).
    int major, minor;
    int shared_bytes_max; // dynamic shared memory a block may opt in to
    // The driver's cuTensorMapEncodeTiled. NULL if the build has no sm_90a code or the device
    // cannot run it.
    void *encode_tensor_map;
    // How many clusters of 1, 2, 4 and 8 blocks of attention/decode_cluster.cu's largest kernel the
    // device runs at the same time. 0: the device cannot run that kernel.
    int max_clusters[4];
    // Host memory of the backend, where launchers keep the first refusal (launch.cuh). NULL only
    // where nothing is launched.
    struct cuda_refusal *refusal;
};

// Weights of y = x W^T + b: bfloat16, laid out as in the checkpoint, or packed (linear/packed.h).
struct cuda_linear_view {
    const void *weight; // dev bf16 [out][in], or codes
    const void *bias; // dev bf16 [out] or NULL
    uint32_t out, in;
    // Of packed weights.
    enum weight_code code; // WEIGHT_CODE_NONE: not packed
    uint32_t group; // inputs that share a scale: 16, 32, 64 or 128; 0: all of a row
    bool has_offsets;
    bool shares_scales; // 8 outputs share the scale of 128 inputs
    const void *scales; // dev
    // Of e4m3 for cuBLASLt (linear/e4m3.h), NULL if the linear has none: scales of blocks of 128 x
    // 128, dev float [ceil(out / 128)][in / 128, rounded up to a multiple of 4], which `scales` has
    // too; and the codes as rows, dev [out][in].
    const void *block_scales, *plain;
};

enum {
    CUDA_RANKS_MAX = 8, // of ranks that reach each other's memory
    CUDA_REDUCE_BLOCKS = 512, // most blocks of ranks/reduce.cu
    CUDA_REDUCE_SMALL_ROWS = 2048, // most rows of a small sum
    CUDA_REDUCE_ABSENT_BYTE = 0xff, // fills inboxes of small sums before the first
};

// What a kernel needs to know of the other ranks. Each rank has one allocation with the same
// layout, and reaches those of the others at the addresses here.
struct cuda_ranks {
    uint32_t rank, world_size;
    const void *has_failed; // 32-bit word of host memory; nonzero: nobody waits any more
    size_t lost_at; // uint32_t in this rank's own memory: it has seen has_failed
    char *memory[CUDA_RANKS_MAX]; // of each rank
    // Where in the allocation, in bytes:
    size_t flags_at; // uint32_t [CUDA_RANKS_MAX][CUDA_REDUCE_BLOCKS + 1], by the rank that writes
    size_t counts_at; // own words: [CUDA_REDUCE_BLOCKS + 1], next inboxes [CUDA_REDUCE_SMALL_ROWS]
    size_t exchange_at; // uint64_t [2][world_size][CUDA_DECODE_ROWS][hidden]: layers/all_layers.cu
    size_t inbox_at; // [2][world_size - 1][small_bytes]: parts of small sums, by the other ranks
    size_t partial_at; // bf16 [max_num_tokens][hidden]
    size_t small_bytes; // most of a small sum's part
};

// A sum over ranks with what follows it; pointers as in backend.h's reduce_add_args.
struct cuda_reduce {
    struct cuda_ranks ranks;
    void *residual; // bf16 [rows][cols]
    const float *norm; // [cols] or NULL
    void *out; // bf16 [rows][cols]
    uint32_t rows, cols;
    bool is_first;
    float eps;
};

// Rows of logits that are cut into slices, one for each rank. All slices have the same number of
// tiles; the last ones of a slice may be empty.
struct cuda_logit_slices {
    const float *logits[COLLECTIVE_RANKS_MAX]; // [num_rows][slice]
    int32_t start[COLLECTIVE_RANKS_MAX + 1]; // first id of each slice; the last: vocab_size
    uint32_t count;
    // Slices that this rank scans. The results go to `shared` of all ranks.
    uint32_t scan_first, scan_count;
    void *shared[CUDA_RANKS_MAX]; // cuda_sample_shared_bytes in each rank's memory, as `own` is
    uint32_t num_shared, own; // own: index of this rank's in `shared`
};

enum { CUDA_COPY_BYTES = 1 << 20 }; // larger copies are faster on the copy engines

// A linear layer with the norm before it and the sum after it. Kernels of few rows:
// linear/few_rows.cu, linear/few_rows_sm90.cu, linear/few_rows_ring.cu and
// linear/packed_few_rows.cu. cuda_e4m3_run and cuda_round_rows_launch take it too, with any number
// of rows.
struct cuda_few_rows_linear {
    struct cuda_linear_view linear;
    const void *x; // bf16 [rows][in]
    const float *norm; // [in] weights of an RMS norm applied to x first, or NULL
    void *residual; // bf16 [rows][columns]: the product is added here; NULL: it is written to `out`
    void *out; // bf16 or float [rows][columns]
    uint32_t rows; // of the kernels of few rows: 1 .. CUDA_FEW_ROWS
    bool is_gated; // columns = out / 2: silu(first half) * second half; else columns = out
    // With is_gated, instead of silu. linear/few_rows.cu and few_rows_sm90.cu have silu alone.
    enum activation activation;
    bool out_is_float;
    float eps;
};
enum { CUDA_FEW_ROWS = 8 }; // most rows of the kernels of few rows
enum { CUDA_RING_ROWS = 4 }; // of linear/few_rows_ring.cu
enum { CUDA_DECODE_ROWS = 4 }; // most rows that layers/all_layers.cu takes
// Limits of attention/decode_cluster.cu: blocks of a cluster, head_dim of its compact form.
enum { CUDA_DECODE_CLUSTER_MAX = 8, CUDA_DECODE_CLUSTER_DIM_MAX = 128 };
// Queries of one kv head that a decode attention block handles together.
enum { CUDA_DECODE_GROUP = 8 };

// A linear layer of more rows than linear/few_rows.cu is best for, with the step that follows it in
// a layer.
struct cuda_linear_task {
    struct cuda_linear_view linear;
    const void *x; // bf16 [rows][in]
    void *out; // bf16 [rows][columns], or float where out_is_float
    // dev bf16 [rows][linear.out], needed with is_gated or is_added. Implementations of more than
    // one kernel and timing trials write here.
    void *scratch;
    uint32_t rows;
    // `columns` = linear.out / 2: silu(first half) * second half; else columns = linear.out
    bool is_gated;
    enum activation activation; // with is_gated, instead of silu
    bool is_added; // the product is added to `out` instead of overwriting it
    bool out_is_float; // only without is_gated and is_added
};

enum { CUDA_BATCH_ROWS = 128, CUDA_BATCH_SPLIT_MAX = 8 }; // limits of linear/batch_sm90.cu
// Of linear/ring_sm90.cuh: inputs of a step, shared memory of a block.
enum { CUDA_RING_INPUTS = 64, CUDA_RING_BYTES = 227 * 1024 };

// The weights of one dense layer for layers/all_layers.cu.
struct cuda_decode_layer {
    struct cuda_linear_view qkv, o, gate_up, down;
    const float *input_norm, *mlp_norm; // [hidden]
    const float *q_norm, *k_norm; // [head_dim] or NULL
};

// All layers of a step of few decodes, run by one kernel. The buffers are those of backend.h's
// layers_args.
struct cuda_decode_layers {
    const struct cuda_decode_layer *layers; // [num_layers]
    uint32_t num_layers, hidden, intermediate, num_heads, num_kv_heads, head_dim;
    uint32_t rows; // 1 .. cuda_decode_layers_rows_max
    void *residual, *qkv, *attended, *activated; // bf16
    const float *rope;
    const int32_t *positions, *slot_mapping, *context_len, *block_tables;
    const int32_t *table_row;
    uint32_t table_stride;
    char *kv; // per layer: all keys, then all values
    size_t kv_part_bytes; // size of all keys, or of all values, of one layer
    uint32_t block_size;
    // Scratch for partial attention results. An entry has 16 bytes and holds two values:
    // [CUDA_DECODE_ROWS * num_kv_heads + num_sms][CUDA_DECODE_GROUP][head_dim / 2 + 1].
    void *splits;
    unsigned long long *tick; // tag for the next flagged value (layers/flagged.cuh); starts at 1
    // [2]: blocks that reached the grid barrier, blocks that have finished; 0 between launches
    uint32_t *arrived;
    float eps, scale;
    struct cuda_ranks ranks; // world_size 0 or 1: weights are whole
};

/* The paged cache. The keys of a layer in one block, and likewise its values, are
 * [num_kv_heads][block_size / 16] tiles of 16 positions, each contiguous. Where all layers have the
 * same shape, the blocks of a layer's keys lie one behind the other, then those of its values. With
 * several shapes a block has all layers of its KV group one behind the other, of each the keys and
 * then the values.
 *
 * In bf16 a tile is [16][head_dim]. A row of head_dim elements is swizzled: the 16-byte chunk c of
 * position p is stored at chunk c ^ (p & 7), or c ^ (p / 2 & 3) if head_dim is no multiple of 64,
 * or c ^ (p / 4 & 1) if it is 80. So a warp that loads one column of 8 rows has no bank conflicts,
 * and tiles can be copied as they are. attention/kv_codes.cuh has the tiles of 8-bit codes. */
struct cuda_kv_view {
    void *keys, *values; // of one layer
    uint32_t num_blocks, block_size, num_kv_heads, head_dim;
    uint32_t block_chunks; // from a block to the next: so many times 16 bytes
    enum dtype dtype; // DTYPE_BF16, or codes: DTYPE_I8, DTYPE_F8_E4M3
};

static inline bool cuda_kv_has_codes(enum dtype dtype) {
    return dtype == DTYPE_I8 || dtype == DTYPE_F8_E4M3;
}

enum { CUDA_KV_SCALES_BYTES = 64 }; // of a tile of codes: float [16]

// Bytes of the keys, or the values, of 16 positions and one kv head.
static inline size_t cuda_kv_tile_bytes(enum dtype dtype, uint32_t head_dim) {
    if (cuda_kv_has_codes(dtype)) return 16 * (size_t)head_dim + CUDA_KV_SCALES_BYTES;
    return 16 * (size_t)head_dim * sizeof(uint16_t);
}

// Most shared memory of a block of attention/decode.cu or attention/prefill.cu with heads of 512.
enum { CUDA_WIDE_HEADS_BYTES = 210 * 1024 };

enum {
    CUDA_PREFILL_TILE = 64, // query tokens of a prefill tile; attention.c may double them
    CUDA_KV_COPY_BLOCK = 128, // positions of a block of attention/copy_codes.cu
};

// The work lists of a step. attention/plan.cu writes them once, and the attention of every layer
// reads them. Steps that attention/decode_cluster.cu handles need none.
//
// Decode: all tiles of all sequences, concatenated, are cut into spans of equal length. An item is
// the part of one sequence inside one span. A work unit is a span for one kv head and up to
// CUDA_DECODE_GROUP of its queries.
struct cuda_attention_plan {
    int32_t *items; // [max_items][8] decode: struct cuda_decode_item (attention/decode_shape.h)
    int32_t *spans; // [num_spans][8] decode: struct cuda_decode_span
    // [max_tiles][4] prefill: row of the block tables, first token, position of that token, number
    // of tokens
    int32_t *tiles;
    // [5]: number of tiles, stride of the block tables, prefill items begun (0 at launch), what a
    // tile's row is multiplied by to give a place in the block tables, number of copies
    int32_t *counts;
    // [max_copies][4] where prompts are read from a copy in bf16: the blocks of the copy, as place
    // in the block tables, first position, context_len, first position that is seen. A tile's row
    // is then where its sequence's position 0 would be, in blocks.
    int32_t *copies;
    // [max_seqs][4], by the sequence's number in the step: for one that is cut into splits, its
    // first slot in `partial` and number of slots; with shared_tiles also, for every decode, the
    // same of its shared prefix
    int32_t *splits;
    // [max_seqs][num_heads], likewise: splits that have finished, of a prefix none; 0 between
    // launches
    int32_t *arrived;
    // [max_items + max_shared_slots][num_heads][head_dim + 2]: weighted values, maximum, sum of a
    // split
    float *partial;
    uint32_t max_seqs, max_items, max_tiles;
    uint32_t max_copies; // blocks of the cache's copy; 0: it has none
    uint32_t num_copies; // at most so many are in `copies`; 0: prompts are read from the cache
    uint32_t max_shared_slots; // 0: the layers have no kernel for shared prefixes
    uint32_t tile_tokens; // query tokens of a tile
    // Of the layers that use the lists:
    uint32_t num_heads, num_kv_heads, head_dim;
    enum dtype kv_dtype;
    uint32_t window; // 0: none
    uint32_t extras; // FEATURE_SOFTCAP, _SINKS and _CHUNKS (kernel_table.h)
    // Tiles of an item of attention/shared_sm90.cu. 0: the lists have no shared prefixes.
    uint32_t shared_tiles;
    bool has_layers; // a layer has used the lists, or will: it is the only shape
    bool can_copy; // such layers' prompts may be read from a copy
    bool is_current; // the lists are of the step that is being launched
};

// How the attention of one layer is launched.
struct cuda_attention_choice {
    // Blocks of a cluster of attention/decode_cluster.cu. 0: attention/decode.cu runs, with the
    // work lists.
    int cluster_size;
    // linear/few_rows_sm90.cu computes qkv. attention/decode_cluster.cu then uses less shared
    // memory, so that blocks of both fit on a multiprocessor.
    bool is_compact;
    bool prepares; // also does attention_prepare's work, in a step of decodes and drafts alone
    // Reads its lists and the cache before wait_for_earlier(): rule 5 of handover.cuh.
    bool starts_early;
};

// All experts of a layer: two linears with the outputs of all experts one after the other. Packed
// ones have `in` rounded up to a multiple of 128, with inputs whose codes are 0.
struct cuda_experts_view {
    struct cuda_linear_view gate_up; // [num_experts][2 * intermediate]: gate's rows, then up's
    struct cuda_linear_view down; // [num_experts][hidden]
    enum activation activation;
    struct experts_shape shape;
    // Of the expert that every token has, as one of the others. Weights NULL: there is none.
    struct cuda_linear_view shared_gate_up, shared_down, shared_gate;
};

enum {
    // Most experts of a layer: routing and sorting keep all of them in shared memory.
    CUDA_EXPERTS_MAX = 2048,
    CUDA_EXPERTS_TILE_MIN = 16, // rows of the smallest tile
    CUDA_NORM_ROUTE_EXPERTS = 256, // most experts of experts/norm_route.cu
    CUDA_NORM_ROUTE_INPUTS = 3072, // most inputs of its router
};

// Scratch memory of `experts`. A row is a (token, slot) pair; rows are sorted by expert.
struct cuda_experts_scratch {
    int32_t *source; // [rows] token of each row
    int32_t *position; // [num_tokens][top_k] row of each pair
    int32_t *items; // [max_items][4] tiles: expert, first row, number of rows, 0
    int32_t *num_items; // [1]; for packed_few_tokens.cu [2]: its counters, which are not scratch
    void *activated; // bf16 [rows][intermediate]
    void *down; // bf16 [rows][hidden]
    void *gathered; // the same memory: sorted rows of x, which are read before `down` is written
};

// The major compute capability of the compiled code that the driver chose for this device.
cudaError_t cuda_code_major(int *major);
// Whether the build contains sm_90a code, which only devices of compute capability 9.0 run.
bool cuda_code_has_sm90a(void);
void cuda_embed_launch(const struct embed_args *args, const struct cuda_linear_view *table,
                       cudaStream_t stream);
void cuda_rms_norm_launch(const struct rms_norm_args *args, const struct cuda_device_info *info,
                          cudaStream_t stream);
void cuda_scale_launch(const struct scale_args *args, const struct cuda_device_info *info,
                       cudaStream_t stream);
void cuda_softcap_launch(const struct softcap_args *args, const struct cuda_device_info *info,
                         cudaStream_t stream);
void cuda_layer_norm_launch(const struct layer_norm_args *args, const struct cuda_device_info *info,
                            cudaStream_t stream);
void cuda_activate_launch(const struct activate_args *args, const struct cuda_device_info *info,
                          cudaStream_t stream);
void cuda_scale_rows_launch(const struct scale_rows_args *args, const struct cuda_device_info *info,
                            cudaStream_t stream);
void cuda_short_conv_launch(const struct short_conv_args *args, const struct cuda_device_info *info,
                            cudaStream_t stream);
size_t cuda_mamba_slot_bytes(const struct mamba_shape *shape);
void cuda_mamba_launch(const struct mamba_args *args, const struct cuda_device_info *info,
                       cudaStream_t stream);
void cuda_square_sums_launch(const struct cut_norm_args *args, const struct cuda_device_info *info,
                             cudaStream_t stream);
void cuda_cut_norm_launch(const struct cut_norm_args *args, const struct cuda_device_info *info,
                          cudaStream_t stream);
void cuda_sigmoid_mul_launch(const struct sigmoid_mul_args *args,
                             const struct cuda_device_info *info, cudaStream_t stream);
void cuda_silu_mul_launch(const struct silu_mul_args *args, const struct cuda_device_info *info,
                          cudaStream_t stream);
void cuda_gelu_mul_launch(const struct gelu_mul_args *args, const struct cuda_device_info *info,
                          cudaStream_t stream);
// Copies a multiple of 4 bytes between addresses that are multiples of 16. `from` or `to` may be
// pinned host memory.
void cuda_copy_launch(void *to, const void *from, size_t bytes, cudaStream_t stream);
void cuda_update_tables_launch(const struct update_tables_args *args, cudaStream_t stream);
void cuda_layers_end_launch(cudaStream_t stream);
void cuda_gather_rows_launch(const struct gather_rows_args *args, cudaStream_t stream);
void cuda_attention_prepare_launch(const struct attention_args *args, const struct cuda_kv_view *kv,
                                   const struct cuda_device_info *info, cudaStream_t stream);
void cuda_attention_prefill_launch(const struct attention_args *args, const struct cuda_kv_view *kv,
                                   const struct cuda_attention_plan *plan,
                                   const struct cuda_device_info *info, cudaStream_t stream);
void cuda_attention_prefill_sm90_launch(const struct attention_args *args,
                                        const struct cuda_kv_view *kv,
                                        const struct cuda_attention_plan *plan,
                                        const struct cuda_device_info *info, cudaStream_t stream);
// Writes the plan's copies of the codes of a layer to `copy`, a cache of bf16 with blocks of
// CUDA_KV_COPY_BLOCK.
void cuda_attention_copy_codes_launch(const struct attention_args *args,
                                      const struct cuda_kv_view *kv,
                                      const struct cuda_kv_view *copy,
                                      const struct cuda_attention_plan *plan,
                                      const struct cuda_device_info *info, cudaStream_t stream);
void cuda_attention_plan_launch(const struct step *step, const struct cuda_attention_plan *plan,
                                uint32_t kv_group, const struct cuda_device_info *info,
                                cudaStream_t stream);
// Requires plan->shared_tiles > 0, and q that was prepared. Goes before
// cuda_attention_decode_launch.
void cuda_attention_shared_launch(const struct attention_args *args, const struct cuda_kv_view *kv,
                                  const struct cuda_attention_plan *plan,
                                  const struct cuda_device_info *info, cudaStream_t stream);
// Fills in info->max_clusters.
void cuda_attention_max_clusters(struct cuda_device_info *info);
// Requires choice->cluster_size > 0.
void cuda_attention_cluster_launch(const struct attention_args *args, const struct cuda_kv_view *kv,
                                   const struct cuda_attention_choice *choice,
                                   const struct cuda_device_info *info, cudaStream_t stream);
void cuda_attention_decode_launch(const struct attention_args *args, const struct cuda_kv_view *kv,
                                  const struct cuda_attention_plan *plan,
                                  const struct cuda_attention_choice *choice,
                                  const struct cuda_device_info *info, cudaStream_t stream);
void cuda_linear_few_rows_launch(const struct cuda_few_rows_linear *args,
                                 const struct cuda_device_info *info, cudaStream_t stream);
// `number`: of linear/few_rows_kernels.h.
void cuda_linear_few_rows_sm90_launch(const struct cuda_few_rows_linear *args, uint32_t number,
                                      const struct cuda_device_info *info, cudaStream_t stream);
// Whether there are as many rows at most, the shape suits the tiles, and x fits in shared memory.
bool cuda_linear_few_rows_ring_fits(uint32_t rows, uint32_t out, uint32_t in, bool is_gated,
                                    const struct cuda_device_info *info);
void cuda_linear_few_rows_ring_launch(const struct cuda_few_rows_linear *args,
                                      const struct cuda_device_info *info, cudaStream_t stream);
// Adds the bias to a result in float32.
void cuda_add_bias_launch(const struct cuda_linear_task *task, const struct cuda_device_info *info,
                          cudaStream_t stream);
// linear/gated_sm90.cu and linear/batch_sm90.cu, only for tasks that kernel_table.c gives them.
// They return false if the device refuses the launch, and then clear the error.
bool cuda_linear_gated_launch(const struct cuda_linear_task *args,
                              const struct cuda_device_info *info, cudaStream_t stream);
// `split` blocks, 1 to CUDA_BATCH_SPLIT_MAX, divide the inputs among them.
bool cuda_linear_batch_launch(const struct cuda_linear_task *args, uint32_t split,
                              const struct cuda_device_info *info, cudaStream_t stream);
// Most rows of a step that the kernel takes. 0: it does not support this model or this device.
// Reads only the shape in `args`.
uint32_t cuda_decode_layers_rows_max(const struct cuda_decode_layers *args,
                                     const struct cuda_device_info *info);
void cuda_decode_layers_launch(const struct cuda_decode_layers *args,
                               const struct cuda_device_info *info, cudaStream_t stream);
// Latent attention: backend/latent.h, of these lengths alone.
enum { CUDA_LATENT_RANK = 512, CUDA_LATENT_ROPE = 64, CUDA_LATENT_DIM = 576 };

// out[t][h] = weight[h] x[t][h]; `in` and `outs` are multiples of 64.
struct cuda_latent_heads {
    const void *x, *weight; // bf16 [num_tokens][num_heads][in], [num_heads][outs][in]
    void *out; // bf16 [num_tokens][num_heads][outs]
    uint32_t num_tokens, num_heads, in, outs;
};

// Attention of the tokens first_token .. first_token + num_tokens - 1 of the step.
struct cuda_latent_attend {
    const struct step *step;
    uint32_t kv_group;
    const void *latents, *q_rope; // bf16 [num_tokens][num_heads][512] and [64]
    const void *rows; // bf16 [slots][576] of the layer
    void *out; // bf16 [num_tokens][num_heads][512]
    void *partial; // [cuda_latent_partial_bytes]
    uint32_t first_token, num_tokens, num_heads, block_size;
    float scale;
};

bool cuda_latent_fits(const struct cuda_device_info *info); // whether the device has the memory
size_t cuda_latent_partial_bytes(const struct cuda_device_info *info);
void cuda_latent_prepare_launch(const struct latent_args *args, void *rows, uint32_t num_heads,
                                const struct cuda_device_info *info, cudaStream_t stream);
void cuda_latent_heads_launch(const struct cuda_latent_heads *args,
                              const struct cuda_device_info *info, cudaStream_t stream);
void cuda_latent_attend_launch(const struct cuda_latent_attend *args,
                               const struct cuda_device_info *info, cudaStream_t stream);
void cuda_route_launch(const struct route_args *args, const struct cuda_device_info *info,
                       cudaStream_t stream);
// Only for what kernel_table.c gives it. Returns false if the device refuses the launch.
bool cuda_norm_route_launch(const struct norm_route_args *args,
                            const struct cuda_linear_view *router,
                            const struct cuda_device_info *info, cudaStream_t stream);
// `experts` for 1 to 4 tokens. Uses only `activated` of the scratch memory.
void cuda_experts_few_tokens_launch(const struct experts_args *args,
                                    const struct cuda_experts_view *view,
                                    const struct cuda_experts_scratch *scratch,
                                    const struct cuda_device_info *info, cudaStream_t stream);
// The same for packed weights. Shared memory of a block with so many rows of x.
size_t cuda_experts_packed_few_bytes(uint32_t rows, uint32_t in,
                                     const struct weight_format *format);
void cuda_experts_packed_few_launch(const struct experts_args *args,
                                    const struct cuda_experts_view *view,
                                    const struct cuda_experts_scratch *scratch,
                                    const struct cuda_device_info *info, cudaStream_t stream);
// `experts` for any number of tokens: sort, gemm, combine. All three need the same tile_rows.
uint32_t cuda_experts_tile_rows(uint32_t num_rows, uint32_t num_experts);
void cuda_experts_sort_launch(const struct experts_args *args, const struct cuda_experts_view *view,
                              const struct cuda_experts_scratch *scratch, uint32_t tile_rows,
                              const struct cuda_device_info *info, cudaStream_t stream);
void cuda_experts_gemm_launch(const struct experts_args *args, const struct cuda_experts_view *view,
                              const struct cuda_experts_scratch *scratch, uint32_t tile_rows,
                              const struct cuda_device_info *info, cudaStream_t stream);
// Copies rows of x to `gathered`, in the order of experts.
void cuda_experts_spread_launch(const struct experts_args *args,
                                const struct cuda_experts_view *view,
                                const struct cuda_experts_scratch *scratch,
                                const struct cuda_device_info *info, cudaStream_t stream);
// `experts` by wgmma: sort, spread, this, combine. Returns false if the device refuses a launch.
uint32_t cuda_experts_sm90_tile_rows(uint32_t num_rows, uint32_t num_experts);
bool cuda_experts_gemm_sm90_launch(const struct experts_args *args,
                                   const struct cuda_experts_view *view,
                                   const struct cuda_experts_scratch *scratch, uint32_t tile_rows,
                                   const struct cuda_device_info *info, cudaStream_t stream);
// The same of packed weights: sort, spread, this, combine.
uint32_t cuda_experts_packed_tile_rows(uint32_t num_rows, uint32_t num_experts);
void cuda_experts_packed_gemm_launch(const struct experts_args *args,
                                     const struct cuda_experts_view *view,
                                     const struct cuda_experts_scratch *scratch, uint32_t tile_rows,
                                     const struct cuda_device_info *info, cudaStream_t stream);
void cuda_experts_combine_launch(const struct experts_args *args,
                                 const struct cuda_experts_view *view,
                                 const struct cuda_experts_scratch *scratch,
                                 const struct cuda_device_info *info, cudaStream_t stream);
// Copies results to pinned host memory: of rows with num_top < 0 only the first two fields.
void cuda_download_results_launch(struct sample_result *host, const struct sample_result *results,
                                  const struct sample_row *rows, uint32_t num_rows,
                                  cudaStream_t stream);
// Fills row [vocab_size], which must be zeros, with the counts of ids [num_ids]. The first
// num_prompt ids are the prompt's.
void cuda_count_tokens_launch(uint32_t *row, const int32_t *ids, uint32_t num_prompt,
                              uint32_t num_ids, cudaStream_t stream);
// The two halves of sampling. `slices` NULL: args->logits has whole rows. With slices of other
// ranks all ranks meet between the halves.
void cuda_sample_scan_launch(const struct sample_args *args, const struct cuda_logit_slices *slices,
                             const struct cuda_device_info *info, cudaStream_t stream);
void cuda_sample_finish_launch(const struct sample_args *args,
                               const struct cuda_logit_slices *slices,
                               const struct cuda_device_info *info, cudaStream_t stream);
size_t cuda_sample_scratch_floats(uint32_t vocab_size, uint32_t num_rows);
// Memory that the scans of all ranks write to.
size_t cuda_sample_shared_bytes(uint32_t vocab_size, uint32_t num_rows);

// Sums of up to small_bytes (ranks/reduce.cu).
void cuda_reduce_small_launch(const struct cuda_reduce *args, const struct cuda_device_info *info,
                              cudaStream_t stream);
void cuda_reduce_large_launch(const struct cuda_reduce *args, const struct cuda_device_info *info,
                              cudaStream_t stream);
void cuda_ranks_meet_launch(const struct cuda_ranks *ranks, const struct cuda_device_info *info,
                            cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

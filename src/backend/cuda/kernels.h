/* The launchers of the kernels, each in the .cu file of its name. They enqueue on `stream` and
 * return at once; a launch that the device refuses leaves CUDA's sticky error for synchronize.
 * Pointers are device memory unless they say host. Included by C and by CUDA C++. */
#ifndef BACKEND_CUDA_KERNELS_H
#define BACKEND_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct token_counts {
    uint32_t num_slots, vocab_size, max_ids;
    uint32_t *counts; // dev [num_slots][vocab_size], as sample/row.cuh says
    int32_t *ids; // dev [max_ids], of the slot that is begun
};

struct cuda_device_info {
    int num_sms;
    int major, minor; // compute capability; major at most that of the code (device_code.cu)
    int shared_bytes_max; // of one block, opted in
    // The driver's cuTensorMapEncodeTiled where there are kernels for sm_90a and a device to run
    // them; else NULL.
    void *encode_tensor_map;
    // Clusters of 1, 2, 4 and 8 blocks of attention/decode_cluster.cu's largest kernel that run at once; 0: no
    // such kernel.
    int few_clusters[4];
};

// Weights of y = x W^T + b, bfloat16 as the checkpoint has them: [out][in].
struct cuda_linear_view {
    const void *weight; // dev bf16 [out][in]
    const void *bias; // dev bf16 [out] or NULL
    uint32_t out, in;
};

enum { CUDA_COPY_BYTES = 1 << 20 }; // beyond that the copy engines are the faster way

// A linear of few rows with what surrounds it in a layer; linear/few_rows.cu says how it is computed.
struct cuda_small_linear {
    struct cuda_linear_view linear;
    const void *x; // bf16 [rows][in]
    const float *norm; // [in] weights of an RMS norm of x, or NULL
    void *residual; // bf16 [rows][columns] to add to, or NULL: `out` is written
    void *out; // bf16 or float [rows][columns]
    uint32_t rows; // 1 .. CUDA_SMALL_ROWS
    bool is_gated; // columns = out / 2, else out
    bool out_is_float;
    float eps;
};
enum { CUDA_SMALL_ROWS = 16 };
enum { CUDA_DECODE_ROWS = 4 }; // rows of layers/all_layers.cu at most
enum {
    CUDA_DECODE_CLUSTER_MAX = 8,
    CUDA_DECODE_FEW_DIM_MAX = 128
}; // of attention/decode_cluster.cu
enum { CUDA_DECODE_GROUP = 8 }; // queries of a kv head that attention takes at once

// A linear of more rows than linear/few_rows.cu is the best for, with what follows it in a layer.
struct cuda_linear_task {
    struct cuda_linear_view linear;
    const void *x; // bf16 [rows][in]
    void *out; // bf16 [rows][columns], or float where out_is_float
    void *scratch; // dev bf16 [rows][linear.out], with is_gated or is_added: for ways of more than
        // one kernel, and for trials
    uint32_t rows;
    bool is_gated; // columns = linear.out / 2: silu(first half) * second; else linear.out
    bool is_added; // to `out`, instead of written
    bool out_is_float; // without the two above
};

enum { CUDA_BATCH_ROWS = 128, CUDA_BATCH_SPLIT_MAX = 8 }; // of linear/batch_sm90.cu

// A dense layer as layers/all_layers.cu reads it.
struct cuda_decode_layer {
    struct cuda_linear_view qkv, o, gate_up, down;
    const float *input_norm, *mlp_norm; // [hidden]
    const float *q_norm, *k_norm; // [head_dim] or NULL
};

// All layers of a step of few decodes; buffers as in backend.h's layers_args.
struct cuda_decode_layers {
    const struct cuda_decode_layer *layers; // [num_layers]
    uint32_t num_layers, hidden, intermediate, num_heads, num_kv_heads, head_dim;
    uint32_t rows; // 1 .. cuda_decode_layers_rows_max
    void *residual, *qkv, *attended, *activated; // bf16
    const float *rope;
    const int32_t *positions, *slot_mapping, *context_len, *block_tables;
    const uint32_t *table_stride;
    char *kv; // keys, then values, of every layer
    size_t kv_part_bytes; // of all keys, or all values, of one layer
    uint32_t block_size;
    // Pieces of attention, 16 bytes for two values:
    // [CUDA_DECODE_ROWS * num_kv_heads + num_sms][CUDA_DECODE_GROUP][head_dim / 2 + 1].
    void *pieces;
    unsigned long long *tick; // the next one, at least 1
    uint32_t *arrived; // [2]: blocks at the meeting, blocks that are done; 0 between launches
    float eps, scale;
};

/* The paged cache: bf16, per layer and K/V [num_blocks][num_kv_heads][block_size][head_dim], so
 * that the 16 positions of a tile are one contiguous piece. In a row of head_dim elements the
 * 16-byte chunk c of position p lies at chunk c ^ (p & 7) (c ^ (p / 2 & 3) where head_dim
 * is no multiple of 64): what a warp loads
 * from 8 rows of one column comes from 8 different banks wherever the tile is copied to. */
struct cuda_kv_view {
    void *keys, *values; // of one layer
    uint32_t num_blocks, block_size, num_kv_heads, head_dim;
};

enum {
    CUDA_PREFILL_TILE = 64, // query tokens of one prefill work item, or half of them
};

// The step's work lists, written by attention/plan.cu and read by the attention of every layer;
// steps of few decodes have none (attention/decode_cluster.cu).
// Decode: pieces of sequences one behind the other are cut into spans of equal length; a work unit
// is a span for one kv head and up to CUDA_DECODE_GROUP of its queries.
struct cuda_attention_plan {
    int32_t *items; // [max_items][8] decode: struct cuda_decode_item (attention/decode_shape.h)
    int32_t *spans; // [num_spans][8] decode: struct cuda_decode_span
    int32_t *tiles; // [max_tiles][4] prefill: sequence, first token, its position, tokens
    int32_t *counts; // [3]: tiles, stride of the block tables, prefill items begun: 0
    int32_t *splits; // [max_seqs][2]: first slot and number of slots of a sequence in pieces
    int32_t *arrived; // [max_seqs][num_heads]: pieces done so far; 0 between launches
    float *partial; // [max_items][num_heads][head_dim + 2]: weighted values, maximum, sum
    uint32_t max_seqs, max_items, max_tiles;
    uint32_t tile_tokens; // query tokens of a tile: cuda_prefill_tile
};

// How the attention of one layer runs.
struct cuda_attention_choice {
    // Blocks of a cluster of attention/decode_cluster.cu; 0: attention/decode.cu runs, by the work lists.
    int few_size;
    // linear/few_rows_sm90.cu computes qkv, and attention/decode_cluster.cu leaves it shared memory.
    bool is_dense;
    bool prepares; // attention_prepare is done on the way; all sequences have one query token
    bool starts_early; // reads its lists and cache before its wait: rule 5 of handover.cuh
};

// All experts of a layer, bf16 as the checkpoint has them.
struct cuda_experts_view {
    const void *gate_up; // [num_experts][2 * intermediate][hidden]: gate's rows, then up's
    const void *down; // [num_experts][hidden][intermediate]
    struct experts_shape shape;
};

enum {
    CUDA_EXPERTS_MAX = 2048, // experts of a layer: what routing and planning hold on the chip
    CUDA_EXPERTS_TILE_MIN = 16, // rows of the smallest tile
};

// The scratch memory of `experts`. A row is a (token, slot) pair, in the order of experts.
struct cuda_experts_scratch {
    int32_t *source; // [rows] the token of a row
    int32_t *position; // [num_tokens][top_k] the row of a pair
    int32_t *items; // [max_items][4] tiles: expert, first row, number of rows, 0
    int32_t *num_items; // [1]
    void *activated; // bf16 [rows][intermediate]
    void *down; // bf16 [rows][hidden]
};

// Whether prefill is attention/prefill_sm90.cu's.
static inline bool cuda_prefill_is_sm90(const struct cuda_device_info *info, uint32_t head_dim) {
    return info->encode_tensor_map && (head_dim == 64 || head_dim == 128);
}

// That kernel wants pairs of heads that share what is read of K and V, or else twice the tokens.
static inline uint32_t cuda_prefill_tile(const struct cuda_device_info *info, uint32_t head_dim,
                                         uint32_t num_heads, uint32_t num_kv_heads) {
    bool pairs = num_heads / num_kv_heads % 2 == 0;
    return cuda_prefill_is_sm90(info, head_dim) && !pairs ? 2 * CUDA_PREFILL_TILE
                                                          : CUDA_PREFILL_TILE;
}

// The major compute capability for which the code was compiled that the device runs.
cudaError_t cuda_code_major(int *major);
// Whether the build has code for sm_90a, which only devices of compute capability 9.0 run.
bool cuda_code_has_sm90a(void);
void cuda_embed_launch(const struct embed_args *args, const struct cuda_linear_view *table,
                       cudaStream_t stream);
void cuda_rms_norm_launch(const struct rms_norm_args *args, const struct cuda_device_info *info,
                          cudaStream_t stream);
void cuda_silu_mul_launch(const struct silu_mul_args *args, const struct cuda_device_info *info,
                          cudaStream_t stream);
// Words of 4 bytes, from and to multiples of 16; `from` or `to` may be pinned host memory.
void cuda_copy_launch(void *to, const void *from, size_t bytes, cudaStream_t stream);
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
// Of `spec` heads and their size are read.
void cuda_attention_plan_launch(const struct step *step, const struct cuda_attention_plan *plan,
                                const struct kv_cache_spec *spec,
                                const struct cuda_device_info *info, cudaStream_t stream);
// Fills info->few_clusters in.
void cuda_attention_few_clusters(struct cuda_device_info *info);
// For a choice with few_size.
void cuda_attention_few_launch(const struct attention_args *args, const struct cuda_kv_view *kv,
                               const struct cuda_attention_choice *choice, cudaStream_t stream);
void cuda_attention_decode_launch(const struct attention_args *args, const struct cuda_kv_view *kv,
                                  const struct cuda_attention_plan *plan,
                                  const struct cuda_attention_choice *choice,
                                  const struct cuda_device_info *info, cudaStream_t stream);
void cuda_linear_small_launch(const struct cuda_small_linear *args,
                              const struct cuda_device_info *info, cudaStream_t stream);
// Whether linear/few_rows_sm90.cu computes it; `residual`, `out` and `x` are not looked at.
bool cuda_linear_small_streams(const struct cuda_small_linear *args,
                               const struct cuda_device_info *info);
// linear/gated_sm90.cu, linear/batch_sm90.cu: whether the kernel takes the task on this device, and the
// launch; false: the device refuses it, and no error is left.
bool cuda_linear_gated_takes(const struct cuda_linear_task *args,
                             const struct cuda_device_info *info);
bool cuda_linear_gated_launch(const struct cuda_linear_task *args,
                              const struct cuda_device_info *info, cudaStream_t stream);
// The inputs are shared by `split` blocks, 1 to CUDA_BATCH_SPLIT_MAX.
bool cuda_linear_batch_takes(const struct cuda_linear_task *args, uint32_t split,
                             const struct cuda_device_info *info);
bool cuda_linear_batch_launch(const struct cuda_linear_task *args, uint32_t split,
                              const struct cuda_device_info *info, cudaStream_t stream);
// How many rows a step may have; 0: the kernel does not take this model or this device. Of `args`
// the shape is read.
uint32_t cuda_decode_layers_rows_max(const struct cuda_decode_layers *args,
                                     const struct cuda_device_info *info);
void cuda_decode_layers_launch(const struct cuda_decode_layers *args,
                               const struct cuda_device_info *info, cudaStream_t stream);
void cuda_route_launch(const struct route_args *args, cudaStream_t stream);
// `experts` of 1 to 4 tokens; of scratch only `activated` is used.
void cuda_experts_small_launch(const struct experts_args *args,
                               const struct cuda_experts_view *view,
                               const struct cuda_experts_scratch *scratch, cudaStream_t stream);
// `experts` of any number of tokens: sort, gemm, combine, with the same tile_rows in all.
uint32_t cuda_experts_tile_rows(uint32_t num_rows, uint32_t num_experts);
void cuda_experts_sort_launch(const struct experts_args *args, const struct cuda_experts_view *view,
                              const struct cuda_experts_scratch *scratch, uint32_t tile_rows,
                              cudaStream_t stream);
void cuda_experts_gemm_launch(const struct experts_args *args, const struct cuda_experts_view *view,
                              const struct cuda_experts_scratch *scratch, uint32_t tile_rows,
                              const struct cuda_device_info *info, cudaStream_t stream);
void cuda_experts_combine_launch(const struct experts_args *args,
                                 const struct cuda_experts_view *view,
                                 const struct cuda_experts_scratch *scratch, cudaStream_t stream);
// row [vocab_size] of zeros becomes the counts of ids [num_ids].
void cuda_count_tokens_launch(uint32_t *row, const int32_t *ids, uint32_t num_prompt,
                              uint32_t num_ids, cudaStream_t stream);
void cuda_sample_launch(const struct sample_args *args, const struct cuda_device_info *info,
                        cudaStream_t stream);

size_t cuda_sample_scratch_floats(uint32_t vocab_size, uint32_t num_rows);

#ifdef __cplusplus
}
#endif

#endif

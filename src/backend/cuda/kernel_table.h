/* Which kernel computes what: the one table of the choices (kernel_table.c) and the one place that
 * asks it. A row says what its kernel takes: the op, the formats of the weights, the most rows,
 * head sizes, features and devices. `takes` has the rest. The first row that takes a job has it. If
 * that row is chosen by contest, all later rows of a contest that take the job compete on the
 * device (gemm/gemm_trial.c).
 *
 * A kernel for another weight format is a row with that format's bit in `formats`
 * (kernel_format_bits), in front of the rows that it should win against.
 *
 * Ops with one kernel are not in the table. doc/kernels-cuda.md says why the limits are where they
 * are. */
#ifndef BACKEND_CUDA_KERNEL_TABLE_H
#define BACKEND_CUDA_KERNEL_TABLE_H

#include "backend/cuda/kernels.h"
#include "backend/weight_format.h"

enum cuda_kernel {
    // The numbers of these three are in the file of timings (gemm/gemm_cache.h).
    KERNEL_CUBLAS = 0, // an algorithm of cuBLASLt
    KERNEL_BATCH = 1, // linear/batch_sm90.cu
    KERNEL_GATED = 2, // linear/gated_sm90.cu
    KERNEL_FEW_ROWS_SM90,
    KERNEL_FEW_ROWS_RING,
    KERNEL_FEW_ROWS,
    KERNEL_PACKED_FEW_ROWS, // linear/packed_few_rows.cu
    KERNEL_E4M3_BATCH, // linear/round_rows.cu, then linear/e4m3_batch_sm90.cu
    KERNEL_E4M3, // linear/round_rows.cu, then cuBLASLt
    KERNEL_PACKED_BATCH, // linear/packed_batch_sm90.cu
    KERNEL_UNPACKED, // linear/packed.cu writes the weights as bf16, then a kernel for those runs
    KERNEL_ALL_LAYERS,
    KERNEL_DECODE_CLUSTER,
    KERNEL_DECODE,
    KERNEL_PREFILL_SM90,
    KERNEL_PREFILL,
    KERNEL_SHARED, // attention/shared_sm90.cu
    KERNEL_NORM_ROUTE, // experts/norm_route.cu
    KERNEL_FEW_TOKENS, // experts/few_tokens.cu
    KERNEL_SORTED, // experts/sort.cu, gemm.cu and combine.cu
    KERNEL_SORTED_SM90, // experts/sort.cu, spread.cu, gemm_sm90.cu and combine.cu
    KERNEL_PACKED_FEW_TOKENS, // experts/packed_few_tokens.cu
    KERNEL_PACKED_SORTED, // experts/sort.cu, spread.cu, packed_gemm_sm90.cu and combine.cu
};

enum kernel_op {
    OP_LINEAR,
    OP_LAYERS, // all layers of a step of decodes as one
    OP_DECODE, // attention of the sequences with one query token
    OP_PREFILL, // and of those with more
    OP_SHARED, // attention of decodes over a prefix that they share
    OP_NORM_ROUTE, // a norm, the router and the choice of experts as one
    OP_EXPERTS,
};

// What a job asks of its kernel besides the plain op.
enum kernel_feature {
    // OP_LINEAR: an RMS norm before it; as in cuda_linear_task
    FEATURE_NORM = 1 << 0,
    FEATURE_GATED = 1 << 1,
    FEATURE_ADDED = 1 << 2,
    FEATURE_BIAS = 1 << 3,
    FEATURE_FLOAT_OUT = 1 << 4,
    FEATURE_ACTIVATION = 1 << 12, // OP_LINEAR: gated by another one than SiLU
    // Attention
    FEATURE_WINDOW = 1 << 5,
    FEATURE_SOFTCAP = 1 << 6,
    FEATURE_SINKS = 1 << 7,
    FEATURE_CHUNKS = 1 << 14, // windows are chunks: attention_args
    FEATURE_KV_GROUP = 1 << 8, // a KV group other than the first
    FEATURE_MIXED = 1 << 9, // OP_DECODE: the step has sequences with more query tokens too
    FEATURE_SHARED = 1 << 13, // OP_DECODE: the step has decodes that share a prefix
    FEATURE_KV_CODES = 1 << 10, // the cache has 8-bit codes; OP_LAYERS has no kernel for them
    FEATURE_KV_SHAPES = 1 << 11, // the cache has layers of several shapes; likewise
};

enum kernel_format {
    FORMAT_BF16 = 1 << 0,
    FORMAT_PACKED = 1 << 1,
    FORMAT_ROUNDED = 1 << 2, // packed e4m3 with weight_format.rounds_inputs
};

// What is to be computed. Fields of other ops are 0.
struct kernel_job {
    enum kernel_op op;
    uint32_t rows; // tokens; OP_DECODE and OP_LAYERS: sequences, padding included
    uint32_t features; // bits of enum kernel_feature
    struct weight_format format; // OP_LINEAR, OP_NORM_ROUTE, OP_EXPERTS
    uint32_t out, in; // OP_LINEAR, OP_NORM_ROUTE: of the matrix
    bool has_plain, has_block_scales; // OP_LINEAR: its view has them
    // OP_EXPERTS; inputs: of gate and up, and of down, as they are kept
    uint32_t top_k, num_experts, inputs[2];
    uint32_t split; // OP_LINEAR: blocks that divide the inputs; 1 unless a contest asks
    uint32_t num_heads, num_kv_heads, head_dim; // attention
    const struct cuda_decode_layers *layers; // OP_LAYERS: only its shape is read
};

enum kernel_chosen { BY_RULE, BY_CONTEST };
enum kernel_device {
    DEVICE_ANY,
    DEVICE_SM90, // or later
    DEVICE_SM90A, // exactly, with tensor maps
};

struct kernel_row {
    enum kernel_op op;
    enum cuda_kernel kernel;
    enum kernel_chosen chosen;
    enum kernel_device device;
    uint32_t formats; // bits of enum kernel_format; 0: the op has no weights
    uint32_t rows_max; // 0: any number
    uint32_t head_dims; // bit i: head_dim 32 * i; 0: any
    uint32_t features; // that a job may have
    uint32_t needs; // features that a job must have
    uint32_t splits_max; // a contest tries 1, 2, 4 .. so many blocks that divide the inputs
    // KERNEL_FEW_ROWS_SM90: which of FEW_ROWS_SM90_KERNELS, and its limits: inputs, and tiles of
    // outputs for a multiprocessor
    uint32_t number, in_min, in_max, tiles_max;
    bool (*takes)(const struct kernel_row *row, const struct kernel_job *job,
                  const struct cuda_device_info *info); // NULL: nothing else to ask
};

// The format's bits; 0: no kernel has it.
uint32_t kernel_format_bits(struct weight_format format);
bool kernel_row_takes(const struct kernel_row *row, const struct kernel_job *job,
                      const struct cuda_device_info *info);
// The first row behind `after` that takes the job; `after` NULL: the first row of all. NULL: there
// is none.
const struct kernel_row *kernel_table_next(const struct kernel_row *after,
                                           const struct kernel_job *job,
                                           const struct cuda_device_info *info);
// Whether a row of this kernel takes the job.
bool kernel_table_has(enum cuda_kernel kernel, const struct kernel_job *job,
                      const struct cuda_device_info *info);
// The job of a linear of many rows; `split` as in the job.
struct kernel_job kernel_job_of_task(const struct cuda_linear_task *task, uint32_t split);

#endif

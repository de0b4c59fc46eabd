#include "backend/cuda/kernel_table.h"

#include "backend/cuda/attention/decode_shape.h"
#include "backend/cuda/layers/layers_bytes_min.h"
#include "backend/cuda/linear/e4m3.h"
#include "backend/cuda/linear/few_rows_kernels.h"
#include "backend/cuda/linear/packed.h"
#include "base/compiler.h"

#define HEADS(dim) (1u << ((dim) / 16 - 1))

enum {
    HEADS_64_128 = HEADS(64) | HEADS(128),
    HEADS_FAST = HEADS(32) | HEADS(64) | HEADS(96) | HEADS(128) | HEADS(256),
    LINEAR_ALL = FEATURE_GATED | FEATURE_ADDED | FEATURE_BIAS | FEATURE_FLOAT_OUT,
    ATTENTION_BF16 = FEATURE_WINDOW | FEATURE_CHUNKS | FEATURE_SOFTCAP | FEATURE_SINKS |
                     FEATURE_KV_GROUP | FEATURE_KV_SHAPES,
    ATTENTION_ALL = ATTENTION_BF16 | FEATURE_KV_CODES,
};

// The matrix is divided into tiles of 8 outputs: no more than tiles_max for a multiprocessor, gates
// and their ups counted once.
static bool fits_few_rows_sm90(const struct kernel_row *row, const struct kernel_job *job,
                               const struct cuda_device_info *info) {
    uint32_t columns = job->features & FEATURE_GATED ? job->out / 2 : job->out;
    uint32_t num_sms = (uint32_t)info->num_sms;
    if (!columns || columns % FEW_ROWS_TILE || job->in % FEW_ROWS_LINE) return false;
    return job->in >= row->in_min && job->in <= row->in_max &&
           columns / FEW_ROWS_TILE <= row->tiles_max * num_sms &&
           cuda_linear_few_rows_sm90_bytes(row->number) <= info->shared_bytes_max;
}

static bool fits_few_rows_ring(const struct kernel_row *row, const struct kernel_job *job,
                               const struct cuda_device_info *info) {
    enum { LARGE_BYTES = 8 << 20, MANY_INPUTS = 2048 }; // measurements: doc/log-cuda.md
    bool is_gated = job->features & FEATURE_GATED;
    (void)row;
    return (size_t)job->out * job->in * sizeof(uint16_t) >= LARGE_BYTES && job->in >= MANY_INPUTS &&
           cuda_linear_few_rows_ring_fits(job->rows, job->out, job->in, is_gated, info);
}

// The kernels for many rows read large matrices faster. But they need a separate kernel for the
// norm, which costs more than that on smaller matrices (measurements: doc/log-cuda.md).
static bool is_not_large(const struct kernel_row *row, const struct kernel_job *job,
                         const struct cuda_device_info *info) {
    enum { FEWER_ROWS = 4, LARGE_BYTES = 16 << 20, LARGE_BYTES_MORE_ROWS = 96 << 20 };
    enum { MANY_INPUTS = 2048 };
    (void)row, (void)info;
    size_t bytes = (size_t)job->out * job->in * sizeof(uint16_t);
    size_t large = job->rows <= FEWER_ROWS ? LARGE_BYTES : LARGE_BYTES_MORE_ROWS;
    return bytes < large || job->in < MANY_INPUTS;
}

// Tiles are copied through tensor maps, whose rows are multiples of 16 bytes.
static bool fits_ring(const struct kernel_row *row, const struct kernel_job *job,
                      const struct cuda_device_info *info) {
    (void)row;
    bool is_gated = job->features & FEATURE_GATED, is_added = job->features & FEATURE_ADDED;
    uint32_t columns = is_gated ? job->out / 2 : job->out;
    return info->shared_bytes_max >= CUDA_RING_BYTES && !(is_gated && is_added) &&
           columns % 8 == 0 && job->in % 8 == 0;
}

// Each of the blocks that divide the inputs has at least one step of them.
static bool fits_split_ring(const struct kernel_row *row, const struct kernel_job *job,
                            const struct cuda_device_info *info) {
    bool is_split = job->split > 1 && job->split <= row->splits_max;
    bool has_inputs = job->split == 1 || (is_split && job->split * CUDA_RING_INPUTS <= job->in);
    return has_inputs && fits_ring(row, job, info);
}

static bool fits_packed_few_rows(const struct kernel_row *row, const struct kernel_job *job,
                                 const struct cuda_device_info *info) {
    (void)row;
    bool is_gated = job->features & FEATURE_GATED;
    return !(is_gated && job->out % 16) &&
           cuda_packed_few_rows_bytes(job->rows, job->in, &job->format) <=
               (size_t)info->shared_bytes_max;
}

// Rounded rows lie in the scratch memory that packed weights have for their form in bf16, beside
// the codes as plain rows if the linear does not keep those.
static bool has_room_for_rounded(const struct kernel_job *job) {
    uint32_t group = job->format.group;
    size_t weights = (size_t)job->out * job->in, room = weights * sizeof(uint16_t);
    if (!job->has_plain) room -= weights;
    return (!group || job->has_block_scales) && job->out % CUDA_E4M3_UNIT == 0 &&
           job->in <= CUDA_E4M3_INPUTS &&
           CUDA_E4M3_UNIT * cuda_e4m3_row_bytes(job->out, job->in, group, true) <= room &&
           !(job->features & FEATURE_GATED && job->features & FEATURE_ADDED);
}

static bool fits_e4m3(const struct kernel_row *row, const struct kernel_job *job,
                      const struct cuda_device_info *info) {
    (void)row, (void)info;
    return job->rows >= cuda_e4m3_rows_min(job->has_plain) && has_room_for_rounded(job);
}

static bool fits_e4m3_batch(const struct kernel_row *row, const struct kernel_job *job,
                            const struct cuda_device_info *info) {
    (void)row;
    if (job->format.group && job->rows > CUDA_E4M3_BATCH_ROWS_OF_BLOCKS) return false;
    return job->has_plain && job->rows >= cuda_e4m3_rows_min(true) && has_room_for_rounded(job) &&
           info->shared_bytes_max >= CUDA_RING_BYTES;
}

static bool fits_packed_batch(const struct kernel_row *row, const struct kernel_job *job,
                              const struct cuda_device_info *info) {
    // From some rows on it takes longer than to write the weights as bf16 and to multiply those.
    // Earlier where groups are small: it scales the sums of each (doc/log-cuda.md).
    enum { SMALL_GROUP = 64, SMALL_GROUP_ROWS = 448 };
    (void)row;
    bool is_gated = job->features & FEATURE_GATED;
    bool is_small = job->format.group && job->format.group <= SMALL_GROUP;
    if (is_small && job->rows > SMALL_GROUP_ROWS) return false;
    return info->shared_bytes_max >= CUDA_RING_BYTES && !(is_gated && job->out % 16) &&
           !(is_gated && job->features & FEATURE_ADDED);
}

// A cluster has a block for each 16 experts, and all of the router's weights in registers.
static bool fits_norm_route(const struct kernel_row *row, const struct kernel_job *job,
                            const struct cuda_device_info *info) {
    (void)row, (void)info;
    return job->out <= CUDA_NORM_ROUTE_EXPERTS && job->in <= CUDA_NORM_ROUTE_INPUTS;
}

// A block has x of all tokens, and activated values of all experts of one.
static bool fits_packed_few_tokens(const struct kernel_row *row, const struct kernel_job *job,
                                   const struct cuda_device_info *info) {
    enum { SLOTS_MAX = 8 }; // rows that a matrix instruction takes
    size_t most = (size_t)info->shared_bytes_max;
    (void)row;
    return job->top_k <= SLOTS_MAX &&
           cuda_experts_packed_few_bytes(job->rows, job->inputs[0], &job->format) <= most &&
           cuda_experts_packed_few_bytes(job->top_k, job->inputs[1], &job->format) <= most;
}

static bool has_room_for_ring(const struct kernel_row *row, const struct kernel_job *job,
                              const struct cuda_device_info *info) {
    (void)row, (void)job;
    return info->shared_bytes_max >= CUDA_RING_BYTES;
}

static size_t layer_bytes(const struct cuda_decode_layers *shape) {
    size_t attention = (size_t)(2 * shape->num_heads + 2 * shape->num_kv_heads) * shape->head_dim;
    return (attention + 3 * (size_t)shape->intermediate) * shape->hidden * sizeof(uint16_t);
}

static bool is_worth_one_kernel(const struct kernel_row *row, const struct kernel_job *job,
                                const struct cuda_device_info *info) {
    (void)row;
    return layer_bytes(job->layers) >= cuda_layers_bytes_min() &&
           job->rows <= cuda_decode_layers_rows_max(job->layers, info);
}

static bool fits_clusters(const struct kernel_row *row, const struct kernel_job *job,
                          const struct cuda_device_info *info) {
    (void)row;
    return cuda_attention_cluster_size(info, job->rows, job->num_heads, job->num_kv_heads,
                                       job->head_dim);
}

static bool fits_wide_heads(const struct kernel_row *row, const struct kernel_job *job,
                            const struct cuda_device_info *info) {
    (void)row, (void)job;
    return info->shared_bytes_max >= CUDA_WIDE_HEADS_BYTES;
}

// clang-format off
#define FEW_ROWS_SM90_ROW(LINES, TILES, WORK)                                                      \
    {OP_LINEAR, KERNEL_FEW_ROWS_SM90, BY_RULE, DEVICE_SM90, FORMAT_BF16, CUDA_FEW_ROWS, 0,         \
     .features = FEATURE_FLOAT_OUT | FEW_ROWS_FEATURES_##WORK,                                     \
     .needs = FEW_ROWS_NEEDS_##WORK,                                                               \
     .number = FEW_ROWS_SM90_##LINES##_##TILES##_##WORK,                                          \
     .in_min = FEW_ROWS_IN_MIN(LINES), .in_max = FEW_ROWS_IN_MAX(LINES),                           \
     .tiles_max = FEW_ROWS_NEEDS_##WORK & FEATURE_GATED ? (TILES) / 2 : (TILES),                   \
     .takes = fits_few_rows_sm90},
#define FEW_ROWS_NEEDS_PLAIN 0
#define FEW_ROWS_NEEDS_NORMED FEATURE_NORM
#define FEW_ROWS_NEEDS_NORMED_GATED (FEATURE_NORM | FEATURE_GATED)
#define FEW_ROWS_FEATURES_PLAIN (FEATURE_ADDED | FEATURE_BIAS)
#define FEW_ROWS_FEATURES_NORMED (FEATURE_NORM | FEATURE_BIAS)
#define FEW_ROWS_FEATURES_NORMED_GATED (FEATURE_NORM | FEATURE_GATED)

static const struct kernel_row rows[] = {
    // op, kernel, chosen, device, formats, rows_max, head_dims, features
    {OP_LAYERS, KERNEL_ALL_LAYERS, BY_RULE, DEVICE_SM90, FORMAT_BF16, CUDA_DECODE_ROWS,
     HEADS_64_128, 0, .takes = is_worth_one_kernel},

    FEW_ROWS_SM90_KERNELS(FEW_ROWS_SM90_ROW)
    {OP_LINEAR, KERNEL_FEW_ROWS_RING, BY_RULE, DEVICE_SM90A, FORMAT_BF16, CUDA_RING_ROWS, 0,
     FEATURE_NORM | FEATURE_GATED | FEATURE_ACTIVATION | FEATURE_ADDED | FEATURE_BIAS,
     .takes = fits_few_rows_ring},
    {OP_LINEAR, KERNEL_FEW_ROWS, BY_RULE, DEVICE_ANY, FORMAT_BF16, CUDA_FEW_ROWS, 0,
     LINEAR_ALL | FEATURE_NORM, .takes = is_not_large},
    // Earlier rows win ties: ours come first, because they move less data through memory.
    {OP_LINEAR, KERNEL_BATCH, BY_CONTEST, DEVICE_SM90A, FORMAT_BF16, CUDA_BATCH_ROWS, 0,
     FEATURE_GATED | FEATURE_ACTIVATION | FEATURE_ADDED | FEATURE_BIAS,
     .splits_max = CUDA_BATCH_SPLIT_MAX,
     .takes = fits_split_ring},
    {OP_LINEAR, KERNEL_GATED, BY_CONTEST, DEVICE_SM90A, FORMAT_BF16, 0, 0,
     LINEAR_ALL, .needs = FEATURE_GATED, .takes = fits_ring},
    {OP_LINEAR, KERNEL_CUBLAS, BY_CONTEST, DEVICE_ANY, FORMAT_BF16, 0, 0,
     LINEAR_ALL | FEATURE_ACTIVATION, .takes = NULL},

    {OP_LINEAR, KERNEL_PACKED_FEW_ROWS, BY_RULE, DEVICE_ANY, FORMAT_PACKED, CUDA_FEW_ROWS, 0,
     LINEAR_ALL | FEATURE_NORM | FEATURE_ACTIVATION, .takes = fits_packed_few_rows},
    {OP_LINEAR, KERNEL_E4M3_BATCH, BY_RULE, DEVICE_SM90A, FORMAT_ROUNDED, CUDA_E4M3_BATCH_ROWS, 0,
     FEATURE_GATED | FEATURE_ADDED | FEATURE_BIAS | FEATURE_NORM, .takes = fits_e4m3_batch},
    {OP_LINEAR, KERNEL_E4M3, BY_RULE, DEVICE_SM90A, FORMAT_ROUNDED, 0, 0,
     FEATURE_GATED | FEATURE_ADDED | FEATURE_BIAS | FEATURE_NORM, .takes = fits_e4m3},
    {OP_LINEAR, KERNEL_PACKED_BATCH, BY_RULE, DEVICE_SM90A, FORMAT_PACKED, 768, 0,
     LINEAR_ALL | FEATURE_ACTIVATION, .takes = fits_packed_batch},
    {OP_LINEAR, KERNEL_UNPACKED, BY_RULE, DEVICE_ANY, FORMAT_PACKED, 0, 0,
     LINEAR_ALL | FEATURE_ACTIVATION, .takes = NULL},

    {OP_DECODE, KERNEL_DECODE_CLUSTER, BY_RULE, DEVICE_ANY, 0, 0, HEADS_FAST,
     FEATURE_WINDOW | FEATURE_CHUNKS | FEATURE_SINKS | FEATURE_KV_GROUP | FEATURE_KV_CODES,
     .takes = fits_clusters},
    {OP_DECODE, KERNEL_DECODE, BY_RULE, DEVICE_ANY, 0, 0, HEADS_FAST | HEADS(160),
     ATTENTION_ALL | FEATURE_MIXED | FEATURE_SHARED, .takes = NULL},
    {OP_DECODE, KERNEL_DECODE, BY_RULE, DEVICE_ANY, 0, 0, HEADS(80),
     ATTENTION_BF16 | FEATURE_MIXED | FEATURE_SHARED, .takes = NULL},
    {OP_DECODE, KERNEL_DECODE, BY_RULE, DEVICE_ANY, 0, 0, HEADS(512),
     ATTENTION_ALL | FEATURE_MIXED | FEATURE_SHARED, .takes = fits_wide_heads},
    {OP_SHARED, KERNEL_SHARED, BY_RULE, DEVICE_SM90A, 0, 0, HEADS_64_128, 0,
     .takes = has_room_for_ring},
    {OP_PREFILL, KERNEL_PREFILL_SM90, BY_RULE, DEVICE_SM90A, 0, 0, HEADS_64_128,
     FEATURE_WINDOW | FEATURE_CHUNKS | FEATURE_KV_GROUP | FEATURE_KV_CODES, .takes = NULL},
    {OP_PREFILL, KERNEL_PREFILL, BY_RULE, DEVICE_ANY, 0, 0, HEADS_FAST | HEADS(160),
     ATTENTION_ALL, .takes = NULL},
    {OP_PREFILL, KERNEL_PREFILL, BY_RULE, DEVICE_ANY, 0, 0, HEADS(80), ATTENTION_BF16,
     .takes = NULL},
    {OP_PREFILL, KERNEL_PREFILL, BY_RULE, DEVICE_ANY, 0, 0, HEADS(512), ATTENTION_ALL,
     .takes = fits_wide_heads},

    {OP_NORM_ROUTE, KERNEL_NORM_ROUTE, BY_RULE, DEVICE_SM90, FORMAT_BF16, 4, 0, FEATURE_BIAS,
     .takes = fits_norm_route},
    {OP_EXPERTS, KERNEL_FEW_TOKENS, BY_RULE, DEVICE_ANY, FORMAT_BF16, 4, 0, 0, .takes = NULL},
    {OP_EXPERTS, KERNEL_SORTED_SM90, BY_RULE, DEVICE_SM90A, FORMAT_BF16, 0, 0, 0,
     .takes = has_room_for_ring},
    {OP_EXPERTS, KERNEL_SORTED, BY_RULE, DEVICE_ANY, FORMAT_BF16, 0, 0, 0, .takes = NULL},
    {OP_EXPERTS, KERNEL_PACKED_FEW_TOKENS, BY_RULE, DEVICE_SM90, FORMAT_PACKED, 4, 0, 0,
     .takes = fits_packed_few_tokens},
    {OP_EXPERTS, KERNEL_PACKED_SORTED, BY_RULE, DEVICE_SM90A, FORMAT_PACKED, 0, 0, 0,
     .takes = has_room_for_ring},
};
// clang-format on

uint32_t kernel_format_bits(struct weight_format format) {
    uint32_t group = format.group;
    if (weight_format_is(format, WEIGHTS_NATIVE)) return FORMAT_BF16;
    if (format.unit) return 0;
    bool has_group = !group || (group >= PACKED_GROUP_MIN && CUDA_PACKED_BLOCK % group == 0);
    switch (format.code) {
    case WEIGHT_CODE_E4M3:
        if (format.has_offsets || (group && group != CUDA_PACKED_BLOCK)) return 0;
        return FORMAT_PACKED | (format.rounds_inputs ? FORMAT_ROUNDED : 0u);
    case WEIGHT_CODE_E2M1:
        return !format.has_offsets && has_group ? FORMAT_PACKED : 0;
    case WEIGHT_CODE_INT4:
    case WEIGHT_CODE_INT8:
    case WEIGHT_CODE_IQ4:
    case WEIGHT_CODE_IQ3:
    case WEIGHT_CODE_IQ2:
    case WEIGHT_CODE_ODD:
        return has_group ? FORMAT_PACKED : 0;
    default:
        return 0;
    }
}

static bool has_device(enum kernel_device device, const struct cuda_device_info *info) {
    switch (device) {
    case DEVICE_ANY:
        return true;
    case DEVICE_SM90:
        return info->major >= 9;
    case DEVICE_SM90A:
        return info->encode_tensor_map != NULL;
    }
    return false;
}

static bool has_head_dim(uint32_t head_dims, uint32_t head_dim) {
    if (!head_dims) return true;
    return head_dim && head_dim % 16 == 0 && head_dim <= 512 && head_dims & HEADS(head_dim);
}

bool kernel_row_takes(const struct kernel_row *row, const struct kernel_job *job,
                      const struct cuda_device_info *info) {
    return row->op == job->op && has_device(row->device, info) &&
           (!row->formats || row->formats & kernel_format_bits(job->format)) &&
           (!row->rows_max || job->rows <= row->rows_max) &&
           has_head_dim(row->head_dims, job->head_dim) && !(job->features & ~row->features) &&
           !(row->needs & ~job->features) && (!row->takes || row->takes(row, job, info));
}

const struct kernel_row *kernel_table_next(const struct kernel_row *after,
                                           const struct kernel_job *job,
                                           const struct cuda_device_info *info) {
    const struct kernel_row *row = after ? after + 1 : rows;
    while (row < rows + ARRAY_LEN(rows) && !kernel_row_takes(row, job, info)) row++;
    return row < rows + ARRAY_LEN(rows) ? row : NULL;
}

bool kernel_table_has(enum cuda_kernel kernel, const struct kernel_job *job,
                      const struct cuda_device_info *info) {
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].kernel == kernel && kernel_row_takes(&rows[i], job, info)) return true;
    }
    return false;
}

struct kernel_job kernel_job_of_task(const struct cuda_linear_task *task, uint32_t split) {
    return (struct kernel_job){
        .op = OP_LINEAR,
        .rows = task->rows,
        .features = (task->is_gated ? FEATURE_GATED : 0u) |
                    (task->activation != ACTIVATION_SILU ? FEATURE_ACTIVATION : 0u) |
                    (task->is_added ? FEATURE_ADDED : 0u) |
                    (task->linear.bias ? FEATURE_BIAS : 0u) |
                    (task->out_is_float ? FEATURE_FLOAT_OUT : 0u),
        .format = WEIGHTS_NATIVE,
        .out = task->linear.out,
        .in = task->linear.in,
        .split = split,
    };
}

/* The CUDA backend's objects and ops. cuda_backend.c puts the ops into its table. backend.h has
 * their contracts. */
#ifndef BACKEND_CUDA_CUDA_OPS_H
#define BACKEND_CUDA_CUDA_OPS_H

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/kernel_table.h"

struct linear {
    void *weight; // dev bf16 [out][in], or codes as in linear/packed.h
    void *scales, *block_scales, *plain; // dev; of codes, as in cuda_linear_view
    void *bias; // dev bf16 [out] or NULL
    uint32_t out, in;
    struct weight_format format; // in which it is kept
    struct linear *next_waiting; // in cuda_backend.waiting
    bool shares_scales; // as in cuda_linear_view
};

struct kv_cache {
    struct kv_cache_spec spec;
    size_t part_bytes; // all keys, or all values, of one layer, if all have the same shape
    size_t block_bytes; // of a block in all layers
    char *data; // dev: in kernels.h's layout
    // dev: keys, then values, of one layer's prompts in bf16 (attention/copy_codes.cu)
    char *copy;
    uint32_t copy_blocks; // of CUDA_KV_COPY_BLOCK positions; 0: no copy
    // [num_groups][num_shapes] work lists, by KV group and shape
    struct cuda_attention_plan plans[KV_GROUPS_MAX * KV_SHAPES_MAX];
    uint32_t num_groups, num_shapes;
};

static inline struct cuda_linear_view cuda_linear_view_of(const struct linear *linear) {
    return (struct cuda_linear_view){.weight = linear->weight,
                                     .bias = linear->bias,
                                     .out = linear->out,
                                     .in = linear->in,
                                     .code = linear->format.code,
                                     .group = linear->format.group,
                                     .has_offsets = linear->format.has_offsets,
                                     .shares_scales = linear->shares_scales,
                                     .scales = linear->scales,
                                     .block_scales = linear->block_scales,
                                     .plain = linear->plain};
}

// Records that an op failed. Only the first failure is kept; synchronize reports it.
void cuda_fail(struct cuda_backend *cuda, const char *what);
// The same for a CUDA call that returned `error`. The message is "what: why". Does nothing for
// cudaSuccess.
void cuda_check(struct cuda_backend *cuda, cudaError_t error, const char *what);
// Returns the first failure so far: of an op, or of what a launcher was refused.
enum status cuda_report(struct cuda_backend *cuda, struct err *err);

enum status cuda_graph_begin(struct backend *backend, struct err *err);
enum status cuda_graph_end(struct backend *backend, struct backend_graph **out, struct err *err);
void cuda_graph_launch(struct backend *backend, struct backend_graph *graph);
void cuda_graph_destroy(struct backend *backend, struct backend_graph *graph);

enum status cuda_linear_create(struct backend *backend, const struct linear_spec *spec,
                               struct linear **out, struct err *err);
void cuda_linear_destroy(struct backend *backend, struct linear *linear);
bool cuda_has_format(const struct backend *backend, struct weight_format format);
size_t cuda_linear_bytes(const struct backend *backend, uint32_t out, uint32_t in, bool bias,
                         struct weight_format format);
void cuda_linear(struct backend *backend, const struct linear_args *args);
bool cuda_project_in(struct backend *backend, const struct project_in_args *args);
bool cuda_project_out(struct backend *backend, const struct project_out_args *args);

enum status cuda_experts_create(struct backend *backend, const struct experts_spec *spec,
                                struct experts **out, struct err *err);
void cuda_experts_destroy(struct backend *backend, struct experts *experts);
size_t cuda_experts_bytes(const struct backend *backend, const struct experts_shape *shape,
                          struct weight_format format);
size_t cuda_experts_scratch_bytes(const struct backend *backend, const struct experts_shape *shape,
                                  uint32_t num_tokens, uint32_t top_k);
void cuda_route(struct backend *backend, const struct route_args *args);
bool cuda_norm_route(struct backend *backend, const struct norm_route_args *args);
void cuda_experts(struct backend *backend, const struct experts_args *args);
bool cuda_experts_take_shared(const struct backend *backend, const struct experts_args *args);
bool cuda_experts_add_sums(const struct backend *backend, const struct experts_args *args);

enum status cuda_fused_model_create(struct backend *backend, const struct fused_model_spec *spec,
                                    struct fused_model **out, struct err *err);
void cuda_fused_model_destroy(struct backend *backend, struct fused_model *model);
bool cuda_takes_layers(const struct fused_model *model, const struct kv_cache *cache,
                       const struct step *step);
void cuda_layers(struct backend *backend, struct fused_model *model,
                 const struct layers_args *args);

void cuda_sample(struct backend *backend, const struct sample_args *args);
size_t cuda_scratch_floats(const struct backend *backend, uint32_t vocab_size, uint32_t num_rows);
enum status cuda_counts_create(struct backend *backend, uint32_t num_slots, uint32_t vocab_size,
                               uint32_t max_ids, struct token_counts **out, struct err *err);
void cuda_counts_destroy(struct backend *backend, struct token_counts *counts);
size_t cuda_counts_bytes(const struct backend *backend, uint32_t num_slots, uint32_t vocab_size,
                         uint32_t max_ids);
void cuda_counts_begin(struct backend *backend, struct token_counts *counts, uint32_t slot,
                       const int32_t *ids, uint32_t num_prompt, uint32_t num_ids);

enum status cuda_kv_cache_create(struct backend *backend, const struct kv_cache_spec *spec,
                                 struct kv_cache **out, struct err *err);
void cuda_kv_cache_destroy(struct backend *backend, struct kv_cache *cache);
size_t cuda_kv_cache_block_bytes(const struct backend *backend, const struct kv_cache_spec *spec);
size_t cuda_kv_cache_workspace_bytes(const struct backend *backend,
                                     const struct kv_cache_spec *spec);
bool cuda_shares_prefixes(const struct backend *backend, const struct kv_cache_spec *spec);
void cuda_attention_prepare(struct backend *backend, const struct attention_args *args);
// Sets cuda->step's cluster_size and launches attention/plan.cu if they need
// work lists.
void cuda_attention_begin(struct backend *backend, struct kv_cache *cache, const struct step *step);
void cuda_attention(struct backend *backend, const struct attention_args *args);
bool cuda_attend(struct backend *backend, const struct attention_args *args);

void cuda_rms_norm(struct backend *backend, const struct rms_norm_args *args);
void cuda_silu_mul(struct backend *backend, const struct silu_mul_args *args);
void cuda_gelu_mul(struct backend *backend, const struct gelu_mul_args *args);
void cuda_sigmoid_mul(struct backend *backend, const struct sigmoid_mul_args *args);
void cuda_scale(struct backend *backend, const struct scale_args *args);
void cuda_softcap(struct backend *backend, const struct softcap_args *args);
void cuda_square_sums(struct backend *backend, const struct cut_norm_args *args);
void cuda_cut_norm(struct backend *backend, const struct cut_norm_args *args);
void cuda_layer_norm(struct backend *backend, const struct layer_norm_args *args);
void cuda_short_conv(struct backend *backend, const struct short_conv_args *args);
void cuda_scale_rows(struct backend *backend, const struct scale_rows_args *args);
void cuda_activate(struct backend *backend, const struct activate_args *args);

#endif

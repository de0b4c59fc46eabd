/* The CUDA backend's objects and ops, gathered into its table by cuda_backend.c; contracts in
 * backend.h. */
#ifndef BACKEND_CUDA_CUDA_OPS_H
#define BACKEND_CUDA_CUDA_OPS_H

#include "backend/cuda/cuda_backend.h"

struct linear {
    void *weight; // dev bf16 [out][in]
    void *bias; // dev bf16 [out] or NULL
    uint32_t out, in;
};

struct kv_cache {
    struct kv_cache_spec spec;
    size_t part_bytes; // of all keys, or all values, of one layer
    char *data; // dev: per layer keys, then values; kernels.h says how
    struct cuda_attention_plan plan; // work lists of the step
};

static inline struct cuda_linear_view cuda_linear_view_of(const struct linear *linear) {
    return (struct cuda_linear_view){linear->weight, linear->bias, linear->out, linear->in};
}

// Records a fault of an op, the first one only; synchronize reports it.
void cuda_fail(struct cuda_backend *cuda, const char *what);

enum status cuda_linear_create(struct backend *backend, const struct linear_spec *spec,
                               struct linear **out, struct err *err);
void cuda_linear_destroy(struct backend *backend, struct linear *linear);
size_t cuda_linear_bytes(const struct backend *backend, uint32_t out, uint32_t in, bool bias);
void cuda_linear(struct backend *backend, struct backend_stream *stream,
                 const struct linear_args *args);
void cuda_linear_fused(struct backend *backend, struct backend_stream *stream,
                       const struct linear_fused_args *args);
uint32_t cuda_linear_norm_rows(const struct backend *backend, const struct linear *linear);
void cuda_logits(struct backend *backend, struct backend_stream *stream,
                 const struct logits_args *args);

enum status cuda_experts_create(struct backend *backend, const struct experts_spec *spec,
                                struct experts **out, struct err *err);
void cuda_experts_destroy(struct backend *backend, struct experts *experts);
size_t cuda_experts_bytes(const struct backend *backend, const struct experts_shape *shape);
size_t cuda_experts_scratch_bytes(const struct backend *backend, const struct experts_shape *shape,
                                  uint32_t num_tokens, uint32_t top_k);
void cuda_route(struct backend *backend, struct backend_stream *stream,
                const struct route_args *args);
void cuda_experts(struct backend *backend, struct backend_stream *stream,
                  const struct experts_args *args);

enum status cuda_decode_layers_create(struct backend *backend,
                                      const struct decode_layers_spec *spec,
                                      struct decode_layers **out, uint32_t *num_seqs_max,
                                      struct err *err);
void cuda_decode_layers_destroy(struct backend *backend, struct decode_layers *layers);
void cuda_decode_layers(struct backend *backend, struct backend_stream *stream,
                        const struct decode_layers_args *args);

enum status cuda_kv_cache_create(struct backend *backend, const struct kv_cache_spec *spec,
                                 struct kv_cache **out, struct err *err);
void cuda_kv_cache_destroy(struct backend *backend, struct kv_cache *cache);
size_t cuda_kv_cache_block_bytes(const struct backend *backend, const struct kv_cache_spec *spec);
void cuda_attention_prepare(struct backend *backend, struct backend_stream *stream,
                            const struct attention_prepare_args *args);
void cuda_attention_plan(struct backend *backend, struct backend_stream *stream,
                         const struct attention_plan_args *args);
void cuda_attention(struct backend *backend, struct backend_stream *stream,
                    const struct attention_args *args);

#endif

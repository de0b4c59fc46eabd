/* The CPU backend's ops and objects, gathered into its table by cpu_backend.c. Contracts in
 * backend.h; this folder's files: linear_pack.c (creating linears), linear.c (running them),
 * experts.c (many linears at once), kv_cache.c, attention.c, row_ops.c. */
#ifndef BACKEND_CPU_OPS_H
#define BACKEND_CPU_OPS_H

#include "backend/cpu/cpu_backend.h"

// Outputs stand in blocks of 16 lanes, zeros where there are fewer; `in` is padded to an even
// number.
struct linear {
    uint32_t out, in;
    uint32_t num_blocks; // ceil(out / 16)
    uint32_t depth; // `in` rounded up to even
    enum dtype dtype; // of weights
    void *weights; // bf16 [num_blocks][depth/2][16][2] or float [num_blocks][depth][16]
    float *start; // [num_blocks][16] the bias, or zeros
};

// The rows of one linear among several that run together; a plain linear is a single group.
struct linear_group {
    const struct linear *linear;
    uint32_t first_row, num_rows; // of the run; num_rows > 0
    // How linear_run cuts the work.
    uint32_t num_panels, depth_step;
    uint32_t blocks_per_item, num_block_items, num_panel_items;
    uint32_t first_item, first_pack_item;
};

// out[row] = group's linear of x[source[row]], for groups of the same shape one after the other.
struct linear_run {
    struct linear_group *groups;
    uint32_t num_groups;
    const float *x; // [any][in]
    const uint32_t *source; // [rows] or NULL: row itself
    float *packed; // scratch [rows][depth]
    float *out; // [rows][out]
};

void linear_run(struct cpu_backend *cpu, struct linear_run *run);

/* Per layer, block and kv head: K as [block_size/16][head_dim][16], so that 16 positions are lanes
 * of a score, then V as [block_size][head_dim]. */
struct kv_cache {
    struct kv_cache_spec spec;
    size_t part_floats; // block_size * head_dim: K, or V, of one head of one block
    float *data; // [num_layers][num_blocks][num_kv_heads][2][part_floats]
};

// Rows of x that one pass over the weights serves; more are cut into equal parts.
enum { LINEAR_ROWS_MAX = 512 };

// Most query rows of an attention item: they share one walk over a kv head's blocks.
enum { ATTENTION_ROWS_MAX = 192 };

enum status cpu_linear_create(struct backend *backend, const struct linear_spec *spec,
                              struct linear **out, struct err *err);
void cpu_linear_destroy(struct backend *backend, struct linear *linear);
size_t cpu_linear_bytes(const struct backend *backend, uint32_t out, uint32_t in, bool bias);
void cpu_linear(struct backend *backend, struct backend_stream *stream,
                const struct linear_args *args);
void cpu_logits(struct backend *backend, struct backend_stream *stream,
                const struct logits_args *args);
void cpu_embed(struct backend *backend, struct backend_stream *stream,
               const struct embed_args *args);

enum status cpu_experts_create(struct backend *backend, const struct experts_spec *spec,
                               struct experts **out, struct err *err);
void cpu_experts_destroy(struct backend *backend, struct experts *experts);
size_t cpu_experts_bytes(const struct backend *backend, const struct experts_shape *shape);
size_t cpu_experts_scratch_bytes(const struct backend *backend, const struct experts_shape *shape,
                                 uint32_t num_tokens, uint32_t top_k);
void cpu_route(struct backend *backend, struct backend_stream *stream,
               const struct route_args *args);
void cpu_experts(struct backend *backend, struct backend_stream *stream,
                 const struct experts_args *args);

enum status cpu_kv_cache_create(struct backend *backend, const struct kv_cache_spec *spec,
                                struct kv_cache **out, struct err *err);
void cpu_kv_cache_destroy(struct backend *backend, struct kv_cache *cache);
size_t cpu_kv_cache_block_bytes(const struct backend *backend, const struct kv_cache_spec *spec);
void cpu_attention_prepare(struct backend *backend, struct backend_stream *stream,
                           const struct attention_prepare_args *args);
void cpu_attention(struct backend *backend, struct backend_stream *stream,
                   const struct attention_args *args);

// Floats of scratch that one thread needs in cpu_attention.
size_t attention_scratch_floats(uint32_t head_dim);

void cpu_rms_norm(struct backend *backend, struct backend_stream *stream,
                  const struct rms_norm_args *args);
void cpu_silu_mul(struct backend *backend, struct backend_stream *stream,
                  const struct silu_mul_args *args);
void cpu_gather_rows(struct backend *backend, struct backend_stream *stream,
                     const struct gather_rows_args *args);

// K of one kv head of a block; V follows part_floats later.
static inline float *kv_cache_head(const struct kv_cache *cache, uint32_t layer, uint32_t block,
                                   uint32_t kv_head) {
    const struct kv_cache_spec *spec = &cache->spec;
    size_t index = ((size_t)layer * spec->num_blocks + block) * spec->num_kv_heads + kv_head;
    return cache->data + index * 2 * cache->part_floats;
}

// Part `index` of `count` things cut into `parts` parts that differ by one at most: where it
// begins.
static inline uint32_t part_begin(uint32_t count, uint32_t parts, uint32_t index) {
    uint32_t extra = count % parts;
    return count / parts * index + (index < extra ? index : extra);
}

#endif

/* The CPU backend's ops and objects, gathered into its table by cpu_backend.c. Contracts in
 * backend.h. Files of this folder: linear_pack.c creates linears in the formats of linear_packing.c
 * and linear_quantize.c, linear.c and linear_narrow.c run them, experts.c runs many at once.
 * kv_cache.c, attention_plan.c and
 * attention.c are attention; row_ops.c has the rest. */
#ifndef BACKEND_CPU_OPS_H
#define BACKEND_CPU_OPS_H

#include <stdatomic.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels.h"

struct linear_packing;

// Outputs are stored in blocks of 16 lanes; the last block is padded with zeros. `in` is padded
// with zeros to whole chunks (kernels.h), of float32 weights to an even number.
struct linear {
    uint32_t out, in;
    uint32_t num_blocks; // ceil(out / 16)
    uint32_t depth; // `in` padded
    struct weight_format format; // its bits are not 0
    const struct linear_packing *packing; // of the format
    size_t block_bytes;
    struct packed_shape packed; // of packed weights
    bool rounds; // packed weights become bf16 before they are multiplied
    // Per block: float [depth][16], bf16 [depth/2][16][2], int8 [depth/4][16][4]; int4: see struct
    // linear_item; packed: see packed.h.
    void *weights;
    float *start; // [num_blocks][16] the bias, or zeros
    float *scale; // [num_blocks][16], where x is bytes
    int32_t *sum128; // [num_blocks][16], where x is bytes: 128 times the sum of the 8-bit weights
    const struct linear *next; // that a step runs behind this one, on as many rows; NULL: not known
};

// Items of one size: each has up to blocks_per_item blocks of outputs and one of num_panel_items
// shares of the panels.
struct linear_cut {
    uint32_t first_block, end_block;
    uint32_t blocks_per_item, num_panel_items;
    uint32_t first_item; // of the group's
};

enum { LINEAR_CUTS_MAX = 8 };

// One of several linears that run together, and its rows. A plain linear is a single group.
struct linear_group {
    const struct linear *linear;
    uint32_t first_row, num_rows; // of the run; num_rows > 0
    // Set by linear_run: how the work is cut. A panel is a set of rows that share one pass over the
    // weights.
    uint32_t num_panels, depth_step;
    uint32_t blocks_per_item, num_block_items, num_panel_items; // of float32 x
    struct linear_cut cuts[LINEAR_CUTS_MAX]; // of narrow x
    uint32_t num_cuts, num_items; // of narrow x
    uint32_t rows_per_pack_item; // of narrow x
    uint32_t blocks_per_strip; // of narrow x: computed at a time; 0: all, straight into `out`
    uint32_t first_item, first_pack_item;
};

// Floats of a thread's memory: for sums, or for a slice of the weights as floats.
enum { LINEAR_SUMS = 64 << 10 };

// Some outputs of a linear_run, in the memory of the thread that computed them. A sink may
// overwrite them.
struct linear_part {
    float *sums; // [num_rows][num_cols], rows `stride` floats apart
    float *gated; // of a gated run: the same outputs of the other half, in the same way
    size_t stride; // a multiple of 16, at least num_cols
    const struct linear_group *group; // that the rows are of
    uint32_t row, num_rows; // of the run
    uint32_t col, num_cols; // of the linear; gated: of its first half, and col is a multiple of 32
};

typedef void linear_sink(void *arg, const struct linear_part *part);

// out[row] = the group's linear of x[source[row]]. All groups have the same shape. Their rows
// follow each other. The fields from `norm` on are for narrow x only.
struct linear_run {
    struct linear_group *groups;
    uint32_t num_groups;
    const float *x; // [any][in]
    const uint32_t *source; // [rows] or NULL: row itself
    void *packed; // scratch [rows][depth] of floats, bf16 or bytes
    float *x_scale; // scratch [rows]
    float *out; // [rows][out]; NULL with a sink
    const float *norm; // [in] rows of x are normalised with these weights first; NULL: they are not
    float eps; // of the norm
    // How `next` of the first group's linear will run: is_gated, blocks_per_part and whether there
    // is a sink are read. NULL: plainly.
    const struct linear_run *next;
    bool is_packed; // `packed`, and x_scale for bytes, hold the rows already
    // The linear has two halves of whole blocks, whose outputs a part has side by side.
    bool is_gated;
    uint32_t blocks_per_part; // a part has this many blocks and begins at a multiple; 0: any number
    linear_sink *sink; // takes the outputs instead of `out`; called by all threads
    void *sink_arg;
};

// A sink of a gated run: keeps activation(gate) * up.
struct gated_sink {
    const struct cpu_backend *cpu;
    enum activation activation;
    const struct linear *reader; // the linear that reads them
    void *out; // [rows][reader->in] floats, or the reader's x, packed
    bool is_packed; // x is bf16, or integers of spans, which the parts are whole ones of
};
void linear_sink_gated(void *arg, const struct linear_part *part);

void linear_run(struct cpu_backend *cpu, struct linear_run *run);
void linear_narrow_run(struct cpu_backend *cpu,
                       struct linear_run *run); // linear_run for narrow x

// Whether x becomes 16-bit integers with a scale for each span (fixed.h).
static inline bool linear_is_spans(const struct cpu_backend *cpu, const struct linear *linear) {
    return cpu->kernels.linear_spans && weight_format_is_packed(linear->format) &&
           spans_suit(&linear->packed);
}

// Whether x becomes 16-bit integers with a scale for each chunk (fixed.h).
static inline bool linear_is_fixed(const struct cpu_backend *cpu, const struct linear *linear) {
    return cpu->kernels.linear_fixed && weight_format_is_packed(linear->format) &&
           !linear_is_spans(cpu, linear) && fixed_suits(linear->format.code);
}

// Whether x is converted to bf16, integers or bytes for this linear. Otherwise it stays float32.
static inline bool linear_is_narrow(const struct cpu_backend *cpu, const struct linear *linear) {
    if (weight_format_has_bytes(linear->format)) return true;
    if (linear_is_fixed(cpu, linear) || linear_is_spans(cpu, linear)) return true;
    return linear->format.bits <= 16 && cpu->kernels.linear_pairs;
}

// Whether x is converted to bf16.
static inline bool linear_is_pairs(const struct cpu_backend *cpu, const struct linear *linear) {
    return linear_is_narrow(cpu, linear) && !linear_is_fixed(cpu, linear) &&
           !linear_is_spans(cpu, linear) && !weight_format_has_bytes(linear->format);
}

static inline const float *linear_source_row(const struct linear_run *run, uint32_t row) {
    return run->x + (size_t)(run->source ? run->source[row] : row) * run->groups[0].linear->in;
}

// The group that `item` belongs to. packing: items of the loop that packs x; else of the loop that
// multiplies.
const struct linear_group *linear_find_group(const struct linear_run *run, uint32_t item,
                                             bool packing);

struct attention_seq;

/* For each layer, block and kv head: K, then V, both in chunks of 16 positions
 * (attention_kernels.h). Where layers have different shapes, those of a KV group lie in a block one
 * behind the other, as a block may be any group's. The fields after `touched_end` are working
 * memory of cpu_attention, for one call at a time. */
struct kv_cache {
    struct kv_cache_spec spec; // its dtype is not DTYPE_NONE
    size_t block_bytes; // of all layers of a KV group
    // [num_layers][num_blocks][num_kv_heads][2][part_bytes], or of layers of different shapes
    // [num_blocks][layers of the block's group][num_kv_heads][2][part_bytes]
    char *data;
    uint32_t touched_end; // kv_cache_touch is done with the blocks before this one
    struct attention_seq *seqs; // [max_num_seqs] how a call is cut
    atomic_uint *parts_left; // [max_num_seqs][num_kv_heads] parts still to compute, if split
    float *partials; // [partials_floats] results of the parts of split sequences
    size_t partials_floats;
};

// A layer's part of the cache.
struct kv_layer {
    const struct kv_cache_spec *spec;
    char *data; // of block 0
    size_t stride; // bytes from block to block
    size_t chunk_bytes; // K, or V, of one head at 16 positions
    size_t part_bytes; // K, or V, of one head of one block: its chunks
    uint32_t head_dim;
};

// Scratch bytes of linears per unit of depth: 512 rows of floats, 1024 of bf16 or 2048 of bytes. A
// call of more rows is cut into equal parts.
enum { LINEAR_SCRATCH_BYTES = 2048 };

enum status cpu_linear_create(struct backend *backend, const struct linear_spec *spec,
                              struct linear **out, struct err *err);
void cpu_linear_destroy(struct backend *backend, struct linear *linear);
bool cpu_has_format(const struct backend *backend, struct weight_format format);
size_t cpu_linear_bytes(const struct backend *backend, uint32_t out, uint32_t in, bool bias,
                        struct weight_format format);
void cpu_linear(struct backend *backend, const struct linear_args *args);
void cpu_linear_set_next(struct backend *backend, struct linear *linear, const struct linear *next);
void cpu_embed(struct backend *backend, const struct embed_args *args);

enum status cpu_experts_create(struct backend *backend, const struct experts_spec *spec,
                               struct experts **out, struct err *err);
void cpu_experts_destroy(struct backend *backend, struct experts *experts);
size_t cpu_experts_bytes(const struct backend *backend, const struct experts_shape *shape,
                         struct weight_format format);
size_t cpu_experts_scratch_bytes(const struct backend *backend, const struct experts_shape *shape,
                                 uint32_t num_tokens, uint32_t top_k);
void cpu_route(struct backend *backend, const struct route_args *args);
void cpu_experts(struct backend *backend, const struct experts_args *args);
void cpu_experts_set_next(struct backend *backend, struct experts *experts,
                          const struct linear *next);

// gated_delta.c
size_t cpu_gated_delta_bytes(const struct backend *backend, const struct gated_delta_shape *shape);
void cpu_gated_delta(struct backend *backend, const struct gated_delta_args *args);

// mamba.c
size_t cpu_mamba_bytes(const struct backend *backend, const struct mamba_shape *shape);
void cpu_mamba(struct backend *backend, const struct mamba_args *args);

// short_conv.c
void cpu_short_conv(struct backend *backend, const struct short_conv_args *args);

// latent.c
enum status cpu_latent_create(struct backend *backend, const struct latent_spec *spec,
                              struct latent **out, struct err *err);
void cpu_latent_destroy(struct backend *backend, struct latent *latent);
size_t cpu_latent_bytes(const struct backend *backend, const struct latent_shape *shape);
size_t cpu_latent_scratch_bytes(const struct backend *backend, const struct latent_shape *shape,
                                uint32_t num_tokens);
void cpu_latent_attend(struct backend *backend, const struct latent_args *args);

enum status cpu_kv_cache_create(struct backend *backend, const struct kv_cache_spec *spec,
                                struct kv_cache **out, struct err *err);
void cpu_kv_cache_destroy(struct backend *backend, struct kv_cache *cache);
size_t cpu_kv_cache_block_bytes(const struct backend *backend, const struct kv_cache_spec *spec);
void cpu_attention_prepare(struct backend *backend, const struct attention_args *args);
void cpu_attention(struct backend *backend, const struct attention_args *args);

// The layer of the call, whose shape must be one of the cache's.
struct kv_layer kv_cache_layer(const struct attention_args *args);
// Stores a key and a value (either may be NULL) of one kv head at a slot.
void kv_cache_store(const struct cpu_kernels *kernels, const struct kv_layer *layer, uint32_t slot,
                    uint32_t kv_head, const float *k, const float *v);
// The system zeroes a page when it is first written, 2 MiB at a time. A prompt of 512 tokens needs
// some 60 MiB. Called before layer 0, this makes all threads do it at once for the step's blocks of
// all layers. Otherwise in every layer one thread zeroes and the others wait for it. It goes from
// the step's first new block to its last: new blocks are given out in order. Blocks that are left
// out get memory when they are written.
void kv_cache_touch(struct cpu_backend *cpu, struct kv_cache *cache, const struct step *step,
                    uint32_t kv_group);

// Where cpu_attention finds and leaves numbers in bf16, in a fused layer.
struct attention_narrow {
    const uint16_t
        *queries; // [num_kv_heads][num_tokens][group][head_dim], scaled; NULL: in args->qkv
    unsigned char *out; // x of the next linear, packed; NULL: args->out
    const struct linear *reader; // that linear, if there is `out`
};
// The kernels for a KV cache.
const struct attention_kernels *attention_kernels_of(const struct cpu_kernels *kernels,
                                                     enum dtype dtype);
void attention_run(struct cpu_backend *cpu, const struct attention_args *args,
                   const struct attention_narrow *narrow);

// Most rows of x that are converted at once, into the scratch memory.
uint32_t linear_rows_max(const struct cpu_backend *cpu, const struct linear *linear);

// Bytes of a row of packed x of a linear for which linear_is_narrow.
size_t linear_row_bytes(const struct cpu_backend *cpu, const struct linear *linear);

// Inputs that share a scale of x, of a linear of spans.
static inline uint32_t linear_span(const struct linear *linear) {
    return spans_chunks(&linear->packed) * PACKED_CHUNK;
}

// Writes `count` numbers from column `col` on of a row of packed x, as bf16 or integers of spans.
void linear_narrow_part(const struct cpu_backend *cpu, const struct linear *linear, const float *x,
                        uint32_t col, uint32_t count, unsigned char *row, size_t stride);

// Where 64 bytes of a row of packed x begin, of num_rows rows, and how far apart they are.
static inline unsigned char *packed_row(unsigned char *packed, size_t row_bytes, uint32_t num_rows,
                                        uint32_t row, size_t *stride) {
    uint32_t tile = row / TILE_ROWS * TILE_ROWS, in_tile = num_rows - tile;
    if (in_tile > TILE_ROWS) in_tile = TILE_ROWS;
    *stride = (size_t)in_tile * CHUNK_BYTES;
    return packed + tile * row_bytes + (size_t)(row - tile) * CHUNK_BYTES;
}

// Floats of scratch that one thread needs in cpu_attention.
size_t attention_scratch_floats(uint32_t head_dim);

// layers.c
extern const struct backend_fusion cpu_fusion;
enum status cpu_model_create(struct backend *backend, const struct fused_model_spec *spec,
                             struct fused_model **out, struct err *err);
void cpu_model_destroy(struct backend *backend, struct fused_model *model);
void cpu_layers(struct backend *backend, struct fused_model *model, const struct layers_args *args);

void cpu_rms_norm(struct backend *backend, const struct rms_norm_args *args);
void cpu_sigmoid_mul(struct backend *backend, const struct sigmoid_mul_args *args);
void cpu_scale(struct backend *backend, const struct scale_args *args);
void cpu_square_sums(struct backend *backend, const struct cut_norm_args *args);
void cpu_cut_norm(struct backend *backend, const struct cut_norm_args *args);
void cpu_softcap(struct backend *backend, const struct softcap_args *args);
void cpu_layer_norm(struct backend *backend, const struct layer_norm_args *args);
void cpu_scale_rows(struct backend *backend, const struct scale_rows_args *args);
void cpu_activate(struct backend *backend, const struct activate_args *args);
void cpu_gelu_mul(struct backend *backend, const struct gelu_mul_args *args);
void cpu_silu_mul(struct backend *backend, const struct silu_mul_args *args);
// out = activation(gate) * up; out may be gate or up.
void activate(const struct cpu_kernels *kernels, enum activation activation, const float *gate,
              const float *up, float *out, uint32_t count);
void cpu_sum(struct backend *backend, const struct sum_args *args);
void cpu_update_tables(struct backend *backend, const struct update_tables_args *args);
void cpu_gather_rows(struct backend *backend, const struct gather_rows_args *args);

// K of one kv head of a block; V follows part_bytes later.
static inline char *kv_layer_head(const struct kv_layer *layer, uint32_t block, uint32_t kv_head) {
    return layer->data + block * layer->stride + kv_head * 2 * layer->part_bytes;
}

// Where part `index` begins when `count` things are cut into `parts` parts whose sizes differ by at
// most 1.
static inline uint32_t part_begin(uint32_t count, uint32_t parts, uint32_t index) {
    uint32_t extra = count % parts;
    return count / parts * index + (index < extra ? index : extra);
}

#endif

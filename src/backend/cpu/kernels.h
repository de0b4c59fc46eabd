/* The table of kernels that each instruction set fills in: the inner loops of the ops. The drivers
 * (linear.c, linear_narrow.c, attention.c, row_ops.c) have already cut the data into parts for one
 * thread.
 *
 * In linears and attention a vector lane is an output, a position (of scores) or a dimension (of
 * values). It is never the summed index. Each sum is added up in index order, whatever the number
 * of rows or blocks in a call. So a row's bits do not depend on the other rows. Instruction sets
 * may differ from each other in rounding. */
#ifndef BACKEND_CPU_KERNELS_H
#define BACKEND_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/attention/attention_kernels.h"
#include "backend/cpu/linear/fixed.h"
#include "backend/cpu/linear/packed.h"
#include "backend/weight_format.h"

enum {
    LANES = 16, // outputs of a weight block, positions of a K chunk
    PANEL_ROWS_MAX = 12, // most rows that share one pass over the weights
};

// out[r][b * 16 + lane] = start + sum over k of x[k][r] * w[b][k][lane], k ascending.
struct linear_tile {
    const float *x; // [depth][rows]
    const float *next_x; // of the tile that this thread multiplies next, to prefetch; or NULL
    const void *weights; // bf16 [num_blocks][depth/2][16][2] or float [num_blocks][depth][16]
    size_t block_bytes; // from one block to the next
    const float *start; // [num_blocks][16] initial sums; NULL: continue from `out`
    float *out; // [rows][num_blocks * 16], rows out_stride floats apart
    size_t out_stride;
    uint32_t rows; // 1 .. panel_rows
    uint32_t depth; // even
    uint32_t num_blocks;
};

/* The layout of narrow numbers, bf16 or 8-bit. A chunk is 64 bytes along the depth (the summed
 * index): 32 bf16 or 64 bytes. A tile is 1 KiB: one chunk of 16 rows of x, [16][64 bytes], or of 16
 * outputs of the weights, [16][16 outputs][4 bytes]. So a 32-bit lane of weights holds four bytes
 * (two bf16) along the depth of one output. If fewer than 16 rows of x are left, their tile is
 * smaller. */
enum {
    CHUNK_BYTES = 64,
    TILE_ROWS = 16,
    TILE_BYTES = TILE_ROWS * CHUNK_BYTES,
    INT4_GROUP = 32, // weights that share a scale
    INT4_TILE_BYTES = TILE_BYTES / 2, // 4-bit numbers of a tile
    INT4_SCALE_BYTES = LANES * CHUNK_BYTES / INT4_GROUP, // scales of a tile
    ITEM_ROWS_MAX = 512, // most rows of a struct linear_item
    PACKED_NUMBERS = 8, // scales or offsets of a row that are interleaved at once
};

/* One thread's share of a linear of narrow numbers. Packed weights (packed.h) become bf16 on the
 * way, rounded or as values of their codes, and have bf16 x, or are multiplied as fixed.h says.
 * Sums of bf16 products are float32, added in ascending order of the depth, and begin with `start`;
 * sums of values are scaled group by group and then added to it. Sums of 8-bit products are exact
 * integers.
 * x is stored as value + 128, so
 *   out = start + (sum - sum128) * (scale * x_scale).
 * A 4-bit weight q (0 .. 14) and the scale s (1 .. 18) of its group stand for an 8-bit weight,
 *   (q - 7) * s. */
struct linear_item {
    struct weight_format format; // of at most 16 bits
    const struct packed_shape *packed; // of packed weights
    // [ceil(rows / 16)] of [chunks][16 or the rest of rows][64]: bf16, or bytes of value + 128
    const unsigned char *x;
    const float *x_scale; // [rows], of bytes
    // [num_blocks] of [chunks][1 KiB]; int4: [chunks][512] 4-bit pairs, a low half for the tile's
    // lines 0 .. 7 and a high half for 8 .. 15, then scales [chunks][2][16 outputs]; packed: as
    // packed.h says
    const unsigned char *weights;
    const unsigned char *next; // blocks that this thread multiplies next, to prefetch; or NULL
    size_t block_bytes; // from one block to the next
    const float *start; // [num_blocks][16] biases
    const float *scale; // [num_blocks][16], of bytes
    const int32_t *sum128; // [num_blocks][16] 128 times the sum of an output's weights
    float *out; // [rows][cols], rows out_stride floats apart
    size_t out_stride;
    uint32_t rows, chunks, num_blocks; // rows <= ITEM_ROWS_MAX
    uint32_t cols; // outputs: at most 16 * num_blocks, more than 16 * (num_blocks - 1)
};

// Made numbers: 8 bits times bytes of x. Otherwise the products are of floats or bf16.
static inline bool weight_format_has_bytes(struct weight_format format) {
    return format.bits <= 8 && !weight_format_is_packed(format);
}

static inline bool linear_item_is_bytes(const struct linear_item *item) {
    return weight_format_has_bytes(item->format);
}

// Made numbers of 4 bits: two share a byte, and become 8-bit weights on the way, a tile at a time.
static inline bool linear_item_is_int4(const struct linear_item *item) {
    return linear_item_is_bytes(item) && item->format.bits < 8;
}

// A head of a gated delta net over some tokens, in order (recurrent.h): q and k are normed, v is
// convolved, and `out` is S^T q. With takes_all S = decay S + k (beta v)^T, as in Mamba-2.
struct delta_run {
    float *state; // [key_dim][value_dim]
    const float *q, *k; // [num_tokens][key_dim]
    const float *v; // [num_tokens][value_dim]
    const float *decay, *beta; // [num_tokens]: what the state is multiplied by, and beta
    float *out; // [num_tokens][value_dim]
    uint32_t num_tokens, key_dim, value_dim; // multiples of 16
    bool takes_all;
};

struct sample_weigh;

struct cpu_kernels {
    const char *isa; // name of the last instruction set that one of them is from
    bool has_cheap_rows; // wide vectors were measured to have them
    uint32_t panel_rows; // rows of a full panel, <= PANEL_ROWS_MAX

    void (*linear_bf16)(const struct linear_tile *tile);
    void (*linear_f32)(const struct linear_tile *tile);
    // Turns a block's bf16 weights [depth/2][16][2] into floats [depth][16]. NULL: linear_bf16 is
    // the faster kernel for any number of rows. Otherwise linear_f32 takes many rows, after this.
    // Both kernels give the same bits.
    void (*widen_bf16)(const void *weights, uint32_t depth, float *out);
    // Packed weights as floats: out[32 inputs][16 outputs]. Each is rounded once, so that all
    // instruction sets give the same bits.
    void (*unpack)(const struct packed_chunk *chunk, enum weight_code code, float *out);
    void (*linear_bytes)(const struct linear_item *item); // int8 and int4
    // The same of int4 for up to int4_few_rows rows, with the same bits. NULL: linear_bytes is the
    // faster one for them too, and int4_few_rows is 0.
    void (*linear_int4_few)(const struct linear_item *item);
    uint32_t int4_few_rows;
    // Weights of bf16, or packed ones that become bf16, times x that is rounded to bf16.
    // NULL: x stays float32 (linear_bf16, or linear_f32 after `unpack`).
    void (*linear_pairs)(const struct linear_item *item);
    // For linear_pairs, NULL with it. Converts a row of `count` floats, multiplied by `scale`, to
    // bf16, rounding to the nearest even. A zero becomes +0. Writes 64 bytes into each tile,
    // `stride` bytes apart. The last 64 bytes are padded with zeros.
    void (*narrow_bf16)(const float *x, float scale, uint32_t count, unsigned char *out,
                        size_t stride);
    // The same to bytes round(value / scale) + 128. Returns the scale: the largest magnitude / 127,
    // or NaN if a value is not finite.
    float (*narrow_int8)(const float *x, uint32_t count, unsigned char *out, size_t stride);
    // Packed weights of integers times x as 16-bit integers (fixed.h). item->chunks counts those of
    // weights. NULL: packed weights are multiplied as linear_pairs says.
    void (*linear_fixed)(const struct linear_item *item);
    // For linear_fixed, NULL with it. Converts a row of `count` floats for weights of `bits` bits.
    // Chunks and their heads are `stride` bytes apart.
    void (*narrow_fixed)(const float *x, uint32_t count, uint32_t bits, unsigned char *out,
                         size_t stride);
    // The same by spans (fixed.h), of all weights that those suit. NULL: none are multiplied so.
    void (*linear_spans)(const struct linear_item *item);
    // For linear_spans, NULL with it. Converts `count` floats of a row, whole spans or those up to
    // the row's end.
    void (*narrow_spans)(const float *x, uint32_t count, const struct span_row *row);
    // Interleaves codes, a byte each, of 32 inputs and 16 rows into a chunk of packed.h. Those of a
    // row begin at rows[row] + first. `bits`: 4 or 8.
    void (*pack_codes)(const unsigned char *const rows[LANES], size_t first, uint32_t bits,
                       unsigned char *out);
    // Interleaves numbers of 16 rows: out[i][row] = rows[row][first + i].
    void (*pack_numbers)(const float *const rows[LANES], size_t first,
                         float out[PACKED_NUMBERS][LANES]);
    // By the KV cache.
    struct attention_kernels attention_bf16, attention_f32, attention_int8, attention_e4m3;
    // residual (may be NULL) += x; out = norm(residual or x) * weight. All [cols]; out may be x.
    void (*rms_norm)(const float *x, float *residual, const float *weight, float *out,
                     uint32_t cols, float eps);
    // In place: norm with `weight` (NULL: none), then rotation by rope [head_dim/2 cos | sin].
    void (*rope_head)(float *head, const float *weight, const float *rope, uint32_t head_dim,
                      float eps);
    void (*silu_mul)(const float *gate, const float *up, float *out, uint32_t count);
    void (*delta_rule)(const struct delta_run *run);
    // out = silu(bias + sum over DELTA_TAPS i of x[i] * taps[i * stride]), of `count` channels, a
    // multiple of 16. bias NULL: none.
    void (*conv_silu)(const float *const *x, const float *taps, size_t stride, const float *bias,
                      float *out, uint32_t count);
    // Store a position's key or value of one kv head, rounded to the nearest even, in a cache of
    // bf16 (attention_kernels.h): the key's pairs 64 bytes apart, the value's numbers 4 bytes
    // apart. Nothing between them is written, as other threads may store other positions there.
    // head_dim is a multiple of 16.
    void (*store_key)(const float *k, uint32_t head_dim, uint16_t *keys);
    void (*store_value)(const float *v, uint32_t head_dim, uint16_t *values);
    // Interleaves 16 rows of `count` bf16, a multiple of 32, into [count/2][16][2]. The rows may
    // have any alignment; `out` is 64-byte aligned.
    void (*pack_bf16)(const unsigned char *const rows[LANES], size_t count, uint16_t *out);
    // sample_weigh.h; the same bits from every instruction set.
    double (*sample_weigh)(const float *logits, float *weights, uint32_t count,
                           const struct sample_weigh *how);
    float (*sample_max)(const float *logits, uint32_t count);
};

extern const struct cpu_kernels cpu_kernels_scalar;

// The fastest kernels that need none but these features (enum cpu_feature).
void cpu_kernels_choose(uint32_t features, struct cpu_kernels *out);

struct cpu_isa {
    const char *name;
    uint32_t features; // a set of enum cpu_feature
    bool is_here; // this build and this machine have all of them
    struct cpu_kernels kernels; // the fastest that need none but its features; if is_here
};

// Rows of the table. Those of one processor family are in order, slowest first.
enum {
    CPU_ISA_SCALAR,
    CPU_ISA_AVX2,
    CPU_ISA_AVX_VNNI,
    CPU_ISA_AVX512,
    CPU_ISA_AVX512_VNNI,
    CPU_ISA_AVX512_BF16,
    CPU_ISA_AMX,
    CPU_ISA_NEON,
    CPU_ISA_NEON_DOTPROD,
    CPU_ISA_COUNT,
};

void cpu_isa_table(struct cpu_isa table[CPU_ISA_COUNT]);

// These depend on the processor family: isa_x86.c, isa_arm.c or isa_generic.c, as the build
// chooses.
uint32_t cpu_isa_features(void); // of this machine; asks the system for the use of AMX's tiles
// Replaces the kernels of `out` that the features allow faster ones for.
void cpu_kernels_add(uint32_t features, struct cpu_kernels *out);

#endif

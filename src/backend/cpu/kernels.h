/* What an instruction set must provide: the inner loops of the ops on data that the drivers
 * (linear.c, attention.c, row_ops.c) have already cut into pieces for one thread.
 *
 * Lanes are always outputs (of a linear), positions (of scores) or dimensions (of values), never
 * the summed index: each result is one chain of fused multiply-adds in index order, whatever the
 * number of rows or blocks a call has. That makes a row's bits independent of its neighbours.
 * Instruction sets may differ from each other in rounding. */
#ifndef BACKEND_CPU_KERNELS_H
#define BACKEND_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/attention_kernels.h"

enum {
    LANES = 16, // outputs of a weight block, positions of a K chunk
    PANEL_ROWS_MAX = 12, // rows that share one pass over weights
};

// out[r][b * 16 + lane] = start + sum over k of x[k][r] * w[b][k][lane], k ascending.
struct linear_tile {
    const float *x; // [depth][rows]
    const void *weights; // bf16 [num_blocks][depth/2][16][2] or float [num_blocks][depth][16]
    size_t block_bytes; // from one block to the next
    const float *start; // [num_blocks][16] what the sums begin with; NULL: with what is in out
    float *out; // [rows][num_blocks * 16], rows out_stride floats apart
    size_t out_stride;
    uint32_t rows; // 1 .. panel_rows
    uint32_t depth; // even
    uint32_t num_blocks;
};

// How a linear keeps its weights.
enum linear_kind { LINEAR_F32, LINEAR_BF16, LINEAR_INT8, LINEAR_INT4 };

/* Narrow numbers, bf16 or 8-bit, meet in chunks: 64 bytes of the depth, so 32 bf16 or 64 bytes.
 * A tile is 1 KiB, 16 rows of x [16][64 bytes], or 16 outputs of the weights [16][16][4 bytes]: four
 * bytes of the depth (two bf16) of an output are one 32-bit lane. The last rows of x, fewer than 16,
 * are a smaller tile. */
enum {
    CHUNK_BYTES = 64,
    TILE_ROWS = 16,
    TILE_BYTES = TILE_ROWS * CHUNK_BYTES,
    INT4_GROUP = 32, // weights that share a scale
    INT4_TILE_BYTES = TILE_BYTES / 2, // 4-bit numbers of a tile
    INT4_SCALE_BYTES = LANES * CHUNK_BYTES / INT4_GROUP, // scales of a tile
    ITEM_ROWS_MAX = 512, // of struct linear_item
    PIECE_CHUNKS = 8, // chunks of the depth that many rows walk together
};

/* One thread's share of a linear of narrow numbers. Sums of bf16 are float32 in ascending order of
 * the depth and begin with `start`. Sums of 8-bit numbers are exact; x is stored as value + 128, so
 *   out = start + (sum - sum128) * (scale * x_scale).
 * 4-bit weights are 8-bit ones, compressed: (q - 7) * s with q of 0 .. 14 and s of 1 .. 18. */
struct linear_item {
    enum linear_kind kind; // not LINEAR_F32
    // [ceil(rows / 16)] of [chunks][16 or the rest of rows][64]: bf16, or bytes of value + 128
    const unsigned char *x;
    const float *x_scale; // [rows], of bytes
    // [num_blocks] of [chunks][1 KiB]; int4: [chunks][512] 4-bit pairs, a low half for the tile's
    // lines 0 .. 7 and a high half for 8 .. 15, then scales [chunks][2][16 outputs]
    const unsigned char *weights;
    size_t block_bytes; // from one block to the next
    const float *start; // [num_blocks][16] biases
    const float *scale; // [num_blocks][16], of bytes
    const int32_t *sum128; // [num_blocks][16] 128 times the sum of an output's weights
    float *out; // [rows][cols], rows out_stride floats apart
    size_t out_stride;
    uint32_t rows, chunks, num_blocks; // rows <= ITEM_ROWS_MAX
    uint32_t cols; // outputs: at most 16 * num_blocks, more than 16 * (num_blocks - 1)
};

struct sample_weigh;

struct cpu_kernels {
    const char *isa;
    uint32_t panel_rows; // rows of a full panel, <= PANEL_ROWS_MAX

    void (*linear_bf16)(const struct linear_tile *tile);
    void (*linear_f32)(const struct linear_tile *tile);
    void (*linear_narrow)(const struct linear_item *item);
    bool has_bf16_dots; // linear_narrow knows bf16 too; linear_bf16 is NULL then
    // A row of `count` floats into 64 bytes of each of its tiles, `stride` bytes apart; zeros behind
    // the last one. Rounded to the nearest even.
    void (*narrow_bf16)(const float *x, uint32_t count, unsigned char *out, size_t stride);
    // As bytes of round(value / scale) + 128. Returns the scale, largest magnitude / 127, or NaN
    // where one is not finite.
    float (*narrow_int8)(const float *x, uint32_t count, unsigned char *out, size_t stride);
    struct attention_kernels attention_bf16, attention_f32; // by what the KV cache holds
    // residual (may be NULL) += x; out = norm(residual or x) * weight. All [cols]; out may be x.
    void (*rms_norm)(const float *x, float *residual, const float *weight, float *out,
                     uint32_t cols, float eps);
    // In place: norm with `weight` (NULL: none), then rotation by rope [head_dim/2 cos | sin].
    void (*rope_head)(float *head, const float *weight, const float *rope, uint32_t head_dim,
                      float eps);
    void (*silu_mul)(const float *gate, const float *up, float *out, uint32_t count);
    // Interleaves 16 rows of `count` bf16, a multiple of 32, into [count/2][16][2]. Rows have any
    // alignment, `out` has 64 bytes.
    void (*pack_bf16)(const unsigned char *const rows[LANES], size_t count, uint16_t *out);
    // sample_weigh.h; the same bits from every instruction set.
    double (*sample_weigh)(const float *logits, float *weights, uint32_t count,
                           const struct sample_weigh *how);
};

extern const struct cpu_kernels cpu_kernels_scalar;
// x86-64 builds only. Each has what the one before has, faster where the machine's new instructions
// help.
extern const struct cpu_kernels cpu_kernels_avx2;
extern const struct cpu_kernels cpu_kernels_avx512;
extern const struct cpu_kernels cpu_kernels_avx512_bf16; // with VNNI
extern const struct cpu_kernels cpu_kernels_amx; // with AVX512_BF16 and VNNI

struct cpu_isa {
    const char *name;
    const struct cpu_kernels *kernels; // NULL: this build or this machine lacks it
};

enum { CPU_ISA_COUNT = 5 };

// All names, slowest first. Asks the kernel for tiles where the processor has them. isa_x86.c or
// isa_generic.c, as the build chooses.
void cpu_isa_table(struct cpu_isa table[CPU_ISA_COUNT]);

#endif

/* What an instruction set must provide: the inner loops of the ops on data that the drivers
 * (linear.c, attention.c, row_ops.c) have already cut into pieces for one thread.
 *
 * Lanes are always outputs (of a linear), positions (of scores) or dimensions (of values), never
 * the summed index: each result is one chain of fused multiply-adds in index order, whatever the
 * number of rows or blocks a call has. That makes a row's bits independent of its neighbours.
 * Instruction sets may differ from each other in rounding. */
#ifndef BACKEND_CPU_KERNELS_H
#define BACKEND_CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum {
    LANES = 16, // outputs of a weight block, positions of a K chunk
    PANEL_ROWS_MAX = 12, // rows that share one pass over weights
    ATTENTION_SPAN = 64, // positions per online-softmax step; absolute multiples
    ATTENTION_CHUNKS = 4, // ATTENTION_SPAN / LANES
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

// One span of positions for some query rows of one kv head; state goes from span to span.
struct attention_tile {
    const float *q; // [head_dim][rows], scaled
    const float *k[ATTENTION_CHUNKS]; // [head_dim][16]
    const float *v[ATTENTION_CHUNKS]; // [16][head_dim]
    uint32_t visible[PANEL_ROWS_MAX]; // how many of the span's positions a row sees: 0 .. 64;
        // chunks that no row sees are not read
    float *max; // [rows] largest score so far, -inf at first
    float *sum; // [rows][16] sum of exponentials, by lane of the position
    float *acc; // [rows][head_dim] weighted sum of values
    float *scores; // [rows][ATTENTION_SPAN] scratch
    uint32_t rows; // 1 .. panel_rows
    uint32_t head_dim; // a multiple of 16
};

struct sample_weigh;

struct cpu_kernels {
    const char *isa;
    uint32_t panel_rows; // rows of a full panel, <= PANEL_ROWS_MAX

    void (*linear_bf16)(const struct linear_tile *tile);
    void (*linear_f32)(const struct linear_tile *tile);
    void (*attention)(const struct attention_tile *tile);
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
extern const struct cpu_kernels cpu_kernels_avx2; // x86-64 builds only
extern const struct cpu_kernels cpu_kernels_avx512; // x86-64 builds only

struct cpu_isa {
    const char *name;
    const struct cpu_kernels *kernels; // NULL: this build or this machine lacks it
};

enum { CPU_ISA_COUNT = 3 };

// All names, slowest first. isa_x86.c or isa_generic.c, as the build chooses.
void cpu_isa_table(struct cpu_isa table[CPU_ISA_COUNT]);

#endif

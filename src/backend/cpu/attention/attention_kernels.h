/* What an instruction set must provide for attention: one span of positions for some query rows of
 * one kv head. attention.c cuts the work into spans and keeps their results.
 *
 * K and V are cached in bf16, float32, int8 or e4m3, in chunks of 16 positions:
 *   bf16   K [head_dim/2][16][2]   V [16/2][head_dim][2]     a 32-bit lane holds a pair along the
 *   f32    K [head_dim][16]        V [16][head_dim]          index that is summed over
 *   int8   as f32, in bytes, then the scales of the chunk's positions, float [16]
 *   e4m3   as int8; the scales are times ATTENTION_E4M3_FACTOR
 * Instructions that multiply pairs take such a lane as it is. Other instruction sets turn it into
 * two floats with a shift and a mask. The scale of a key multiplies the finished score, the scale
 * of a value the finished exponential.
 *
 * A row's bits depend only on its own query and on the positions that it sees. They do not depend
 * on the other rows of a panel, nor on K and V at other positions, which may be NaN. Only the sign
 * of a zero in `acc` may differ. */
#ifndef BACKEND_CPU_ATTENTION_KERNELS_H
#define BACKEND_CPU_ATTENTION_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum {
    ATTENTION_SPAN = 64, // positions per online-softmax step; spans begin at multiples of it
    // Positions of a part: whole spans, beginning at a multiple of this. Parts are summed apart,
    // then joined.
    ATTENTION_PART = 512,
    ATTENTION_CHUNK = 16,
    ATTENTION_CHUNKS = ATTENTION_SPAN / ATTENTION_CHUNK,
    ATTENTION_PART_CHUNKS = ATTENTION_PART / ATTENTION_CHUNK,
    ATTENTION_ROWS_MAX = 384, // most query rows of an item of any kernel
    ATTENTION_SUMS = 16, // partial sums of a row's exponentials
    // Most floats that a kernel needs for scores.
    ATTENTION_SCORES_FLOATS = 32 * 128,
};

// A code of e4m3, its bits shifted to where a half float has them, is its value divided by this.
#define ATTENTION_E4M3_FACTOR 256.0f

// The scales [16] of a chunk of K or V in int8 or e4m3.
static inline float *attention_scales(const void *chunk, size_t head_dim) {
    return (float *)((uintptr_t)chunk + ATTENTION_CHUNK * head_dim);
}

// Rows of the code that computes a panel of 1 to 12 rows.
static inline uint32_t attention_padded_rows(uint32_t rows) {
    return rows <= 4 ? rows : rows <= 6 ? 6 : rows <= 8 ? 8 : 12;
}

// One span for the rows of one panel. max, sum and acc carry over from span to span; a kernel whose
// span is a part sets acc.
struct attention_tile {
    const void *q; // in the layout attention_kernels.queries; 64-byte aligned
    const void *k[ATTENTION_PART_CHUNKS];
    const void *v[ATTENTION_PART_CHUNKS];
    // Of the item's next span, to prefetch; never NULL.
    const void *next_k[ATTENTION_PART_CHUNKS];
    const void *next_v[ATTENTION_PART_CHUNKS];
    // [rows] A row sees the span's positions hidden .. visible - 1, none if both are equal. Neither
    // is smaller than for the row before, and visible is at most the span. Of chunks that no row
    // sees at most the scales are read.
    const uint32_t *hidden, *visible;
    float softcap; // not 0: scores become softcap * tanh(scores / softcap)
    float *max; // [rows] subtracted from scores: the largest so far or, by AMX, up to 8 less; -inf
        // at first
    float *sum; // [rows][16] sum of exponentials, by lane of the position
    float *acc; // [rows][head_dim] weighted sum of values
    float *scores; // [ATTENTION_SCORES_FLOATS] scratch, 64-byte aligned
    void *keys, *values; // scratch for a part's K and V in bf16, 64-byte aligned
    uint32_t rows; // 1 .. panel_rows
    uint32_t head_dim; // a multiple of 16
};

// The layout of a panel's queries, which are already scaled.
enum attention_queries {
    QUERIES_F32, // float [head_dim][attention_padded_rows(rows)], the last row repeated
    QUERIES_BF16, // bf16 [rows][head_dim], padded to a multiple of 32 rows
};

struct attention_kernels {
    // ATTENTION_SPAN, or ATTENTION_PART for a kernel that cuts a part itself. It then begins with
    // acc = 0, whatever acc holds.
    uint32_t span_positions;
    uint32_t panel_rows; // rows of a full panel: a divisor of item_rows_max
    uint32_t item_rows; // an item that does not end a sequence has a multiple of this many rows
    // Most query rows of an item. They share one pass over a kv head's blocks.
    uint32_t item_rows_max;
    enum attention_queries queries;
    void (*span)(const struct attention_tile *tile);
    // A thread calls `begin` before its first span of an item, and after the last span `end` with
    // what `begin` returned. NULL: nothing to call.
    unsigned (*begin)(void);
    void (*end)(unsigned before);
};

// Kernels of one span, with queries in float32, for panels of up to `rows` rows.
#define ATTENTION_BY_SPANS(rows, kernel)                                                           \
    {                                                                                              \
        .span_positions = ATTENTION_SPAN, .panel_rows = rows, .item_rows = rows,                   \
        .item_rows_max = 192, .queries = QUERIES_F32, .span = kernel,                              \
    }

#endif

/* Prompts of gated delta nets in chunks of 64 tokens (Yang, Kautz and Hatamizadeh 2024, the WY
 * form). Within a chunk, with G_t the product of g from its first token to t, and S the state
 * before it:
 *   A_ti = beta_t G_t / G_i (k_t k_i)    for i < t, else 0
 *   T = (I + A)^-1,  U = T diag(beta) V,  W = T diag(beta G) K
 *   D = U - W S    the rows of which are beta (v - S^T k) of each token
 *   out_t = G_t S^T q_t + sum over i <= t of P_ti D_i,  P_ti = G_t / G_i (q_t k_i)
 *   S = G_63 S + sum of G_63 / G_i k_i D_i^T
 * No factor is above 1, because g is not.
 *
 * delta_parts.cu: a block of 8 warps for each chunk and key head writes q, k, and W, U, P and ln G
 * of its heads. All chunks run at once.
 *
 * delta_scan.cu: a block for each sequence, head and 16 columns of the state for each of its warps
 * that multiply, which takes the chunks in order. S^T and D^T stay in a warp's registers: as they
 * come from one product they go into the next one. Further warps copy the next chunks to shared
 * memory meanwhile. States are float32, and bfloat16 as operands.
 *
 * The step's tokens go through in segments of SEGMENT tokens. So scratch memory has that size, and
 * most of it is still in the L2 when it is read. A chunk belongs to the segment of its first token.
 * A sequence's last chunk may be shorter. Its other tokens have k, beta and q of 0: they change
 * nothing. Heads may be smaller than 128: then rows and columns are 0, too. */
#pragma once

#include "backend/cuda/recurrent/delta.cuh"

namespace {

constexpr int CHUNK = 64, DIM = 128, SEGMENT = CUDA_DELTA_SEGMENT;
constexpr uint32_t MATRIX_BYTES = CHUNK * DIM * 2; // of CHUNK rows of DIM in shared memory

struct chunk_params {
    delta_params p;
    int from, to; // the segment
    // Row t - from is token t.
    __nv_bfloat16 *qk; // [rows][key_heads][2][DIM]: q, k
    __nv_bfloat16 *w; // [rows][heads][DIM]
    __nv_bfloat16 *scores; // [rows][heads][CHUNK], P
    float *log_g; // [heads][rows], ln G
    int stages; // chunks that delta_scan.cu has in shared memory
    int rows; // of the scratch memory: the last chunk may reach beyond the segment
};

// Rows of DIM or CHUNK bfloat16 in shared memory: where 8 elements of a row are.
template <int COLS> __device__ __forceinline__ uint32_t place(int row, int part) {
    return static_cast<uint32_t>((row * COLS + swizzle<COLS>(row, part) * 8) * 2);
}

// The address that a lane passes to load matrices of rows `row` .. + 15 and of columns `col` .. +
// 15. With `is_k_first` the second matrix has the second 8 columns, else the second 8 rows.
template <int COLS>
__device__ __forceinline__ uint32_t matrix_place(int row, int col, bool is_k_first) {
    int lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
    int down = is_k_first ? high : low, right = is_k_first ? low : high;
    return place<COLS>(row + down * 8 + lane % 8, col / 8 + right);
}

// Sequence s's chunks [begin, end) that are in the segment.
__device__ __forceinline__ int2 chunks_of(const chunk_params &c, int s) {
    int begin = of_step(c.p.query_start)[s], end = of_step(c.p.query_start)[s + 1];
    if (end - begin < c.p.chunked_min || of_step(c.p.context_len)[s] < end - begin) {
        return make_int2(0, 0);
    }
    int from = max(c.from - begin, 0), to = min(c.to, end) - begin;
    return make_int2((from + CHUNK - 1) / CHUNK, (max(to, 0) + CHUNK - 1) / CHUNK);
}

// Divides the scratch memory. `base` may be NULL to compute only the size.
inline size_t lay_out_scratch(char *base, const struct gated_delta_shape *shape,
                              uint32_t num_tokens, chunk_params *out) {
    size_t rows = (num_tokens < SEGMENT ? num_tokens : SEGMENT) + CHUNK;
    size_t qk = rows * shape->num_key_heads * 2 * DIM * sizeof(__nv_bfloat16);
    size_t w = rows * shape->num_heads * DIM * sizeof(__nv_bfloat16);
    size_t scores = rows * shape->num_heads * CHUNK * sizeof(__nv_bfloat16);
    out->qk = reinterpret_cast<__nv_bfloat16 *>(base);
    out->w = reinterpret_cast<__nv_bfloat16 *>(base + qk);
    out->scores = reinterpret_cast<__nv_bfloat16 *>(base + qk + w);
    out->log_g = reinterpret_cast<float *>(base + qk + w + scores);
    out->rows = static_cast<int>(rows);
    return qk + w + scores + rows * shape->num_heads * sizeof(float);
}

// The segment that begins with token `from`.
inline chunk_params segment_of(const gated_delta_args *args, uint32_t from) {
    chunk_params c = {};
    c.p = params_of(args);
    c.p.chunked_min = CUDA_DELTA_CHUNKED_MIN;
    c.from = static_cast<int>(from);
    c.to = c.from + SEGMENT < c.p.num_tokens ? c.from + SEGMENT : c.p.num_tokens;
    (void)lay_out_scratch(static_cast<char *>(args->scratch), &args->shape, args->step->num_tokens,
                          &c);
    return c;
}

} // namespace

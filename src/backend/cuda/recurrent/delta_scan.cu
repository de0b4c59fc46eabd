/* The second kernel of delta_chunks.cuh: takes a sequence's chunks in order. */
#include "backend/cuda/recurrent/delta_chunks.cuh"

namespace {

// A chunk's data in the shared memory of a block of scan_kernel: offsets in bytes.
template <int WARPS> struct scan_stage {
    static constexpr int COLUMNS = 16 * WARPS;
    static constexpr uint32_t SCORES_BYTES = CHUNK * CHUNK * 2, U_BYTES = CHUNK * COLUMNS * 2;
    static constexpr uint32_t BYTES = 3 * MATRIX_BYTES + SCORES_BYTES + U_BYTES + 3 * CHUNK * 4;
    static constexpr uint32_t Q = 0, K = MATRIX_BYTES, W = 2 * MATRIX_BYTES, P = 3 * MATRIX_BYTES;
    static constexpr uint32_t U = P + SCORES_BYTES; // bf16 [CHUNK][COLUMNS]
    // float [3][CHUNK]: ln G, G, and G of the last token / G
    static constexpr uint32_t GATES = U + U_BYTES;
};

constexpr int COPY_WARPS = 4, COPY_THREADS = COPY_WARPS * 32;

// Rows of a matrix to shared memory, whose rows are `stride` elements apart, by the copying warps.
template <int COLS>
__device__ __forceinline__ void copy_rows(uint32_t to, const __nv_bfloat16 *from, size_t stride,
                                          int count, int cols, int thread) {
    constexpr int PARTS = COLS / 8, ROWS = COPY_THREADS / PARTS; // rows at a time
    static_assert(ROWS % 8 == 0, "swizzles repeat after 8 rows");
    int row = thread / PARTS, part = thread % PARTS;
    bool is_column = part * 8 < cols;
    from += row * stride + part * 8;
    to += place<COLS>(row, part);
#pragma unroll
    for (int i = 0; i < CHUNK; i += ROWS) {
        if (row + i < count && is_column) {
            copy16_async(to, of_step(from));
        } else {
            store_shared16(to, make_uint4(0, 0, 0, 0));
        }
        from += ROWS * stride;
        to += ROWS * COLS * 2;
    }
}

// Starts to copy a chunk.
template <int WARPS>
__device__ __forceinline__ void copy_chunk(const chunk_params &c, char *stage, int first, int count,
                                           int head, int column, int thread) {
    using S = scan_stage<WARPS>;
    const delta_params &p = c.p;
    size_t row = first - c.from, key_stride = (size_t)p.key_heads * 2 * DIM;
    uint32_t shared = shared_address(stage);
    const __nv_bfloat16 *qk = c.qk + row * key_stride + head / (p.heads / p.key_heads) * 2 * DIM;
    size_t at = row * p.heads + head;
    copy_rows<DIM>(shared + S::W, c.w + at * DIM, (size_t)p.heads * DIM, count, DIM, thread);
    copy_rows<DIM>(shared + S::Q, qk, key_stride, count, DIM, thread);
    copy_rows<DIM>(shared + S::K, qk + DIM, key_stride, count, DIM, thread);
    copy_rows<CHUNK>(shared + S::P, c.scores + at * CHUNK, (size_t)p.heads * CHUNK, count, CHUNK,
                     thread);
    copy_rows<S::COLUMNS>(shared + S::U,
                          p.out + ((size_t)first * p.heads + head) * p.value_dim + column,
                          (size_t)p.heads * p.value_dim, count, p.value_dim - column, thread);
    copy_commit();
    if (thread >= CHUNK) return;
    const float *log_g = of_step(c.log_g) + (size_t)head * c.rows + row;
    float last = log_g[count - 1], own = log_g[min(thread, count - 1)];
    float *to = reinterpret_cast<float *>(stage + S::GATES);
    to[thread] = own;
    to[CHUNK + thread] = __expf(own);
    to[2 * CHUNK + thread] = thread < count ? __expf(last - own) : 0;
}

// A warp's 16 columns of the state, transposed, as products leave them.
struct columns {
    float s[DIM / 8][4];
};

// The element that lane has at s[n][i]: a row of the state, and a column of the warp's 16.
__device__ __forceinline__ int row_of(int n, int i) {
    return n * 8 + threadIdx.x % 4 * 2 + i % 2;
}
__device__ __forceinline__ int column_of(int i) {
    return threadIdx.x % 32 / 4 + i / 2 * 8;
}

// Element (row, column) of a head's state, of which `column` is the warp's first.
__device__ __forceinline__ bool is_in_state(const delta_params &p, int row, int column) {
    return row < p.key_dim && column < p.value_dim;
}

__device__ __forceinline__ void load_columns(const delta_params &p, const float *from, int column,
                                             columns &to) {
#pragma unroll
    for (int n = 0; n < DIM / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = row_of(n, i), col = column + column_of(i);
            to.s[n][i] =
                from && is_in_state(p, row, col) ? of_step(from)[row * p.value_dim + col] : 0;
        }
    }
}

__device__ __forceinline__ void store_tile(const delta_params &p, float *to, int column, int n,
                                           const float (&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = row_of(n, i), col = column + column_of(i);
        if (is_in_state(p, row, col)) of_step(to)[row * p.value_dim + col] = x[i];
    }
}

// The tiles 2 pair and 2 pair + 1 of the state: x += D^T diag(factors) K, with -D^T in d.
__device__ __forceinline__ void add_keys(float (&x0)[4], float (&x1)[4],
                                         const uint32_t (&left)[4][4], uint32_t keys, int pair) {
#pragma unroll
    for (int step = 0; step < 4; step++) {
        uint32_t right[4];
        load_matrix4_transposed(right, keys + matrix_place<DIM>(step * 16, pair * 16, false));
        multiply(x0, left[step], right[0], right[1]);
        multiply(x1, left[step], right[2], right[3]);
    }
}

// -d^T with a factor for each token, as the left operand of a product over tokens.
__device__ __forceinline__ void pack_tokens(uint32_t (&left)[4][4], const float (&d)[8][4],
                                            const float (&factors)[8][2]) {
#pragma unroll
    for (int step = 0; step < 4; step++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int n = 2 * step + i / 2, first = i % 2 * 2;
            left[step][i] =
                pack_bf16(-d[n][first] * factors[n][0], -d[n][first + 1] * factors[n][1]);
        }
    }
}

// Copies the state behind a token of the chunk to another slot.
__device__ __forceinline__ void write_snapshot(const delta_params &p, const columns &state,
                                               const float (&d)[8][4], const float *log_g,
                                               uint32_t keys, int token, float *to, int column) {
    float factors[8][2], last = log_g[token], decay = __expf(last);
    for (int n = 0; n < 8; n++) {
        for (int i = 0; i < 2; i++) {
            int at = row_of(n, i);
            factors[n][i] = at <= token ? __expf(last - log_g[at]) : 0;
        }
    }
    uint32_t left[4][4];
    pack_tokens(left, d, factors);
    for (int pair = 0; pair < DIM / 16; pair++) {
        float x[2][4];
        // Registers have no addresses: every tile is looked at.
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
            for (int i = 0; i < 4; i++) {
                if (n / 2 == pair) x[n % 2][i] = decay * state.s[n][i];
            }
        }
        add_keys(x[0], x[1], left, keys, pair);
        store_tile(p, to, column, 2 * pair, x[0]);
        store_tile(p, to, column, 2 * pair + 1, x[1]);
    }
}

// out^T of a warp's 16 columns, as products leave it.
__device__ __forceinline__ void write_out(const delta_params &p, const float (&o)[8][4], int first,
                                          int count, int head, int column) {
    int lane = threadIdx.x % 32, col = column + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        int t = n * 8 + lane / 4;
        __nv_bfloat16 *to = p.out + ((size_t)(first + t) * p.heads + head) * p.value_dim;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t pair = transpose_matrix(pack_bf16(o[n][2 * half], o[n][2 * half + 1]));
            if (t < count && col + half * 8 < p.value_dim) {
                *reinterpret_cast<uint32_t *>(of_step(to) + col + half * 8) = pair;
            }
        }
    }
}

// A chunk of a warp's 16 columns, of which `own` is the first in U.
template <int WARPS>
__device__ __forceinline__ void run_chunk(const chunk_params &c, columns &state, char *stage,
                                          int first, int count, int head, int column, int own) {
    using S = scan_stage<WARPS>;
    const delta_params &p = c.p;
    uint32_t shared = shared_address(stage), left[4][4];
    const float *log_g = reinterpret_cast<const float *>(stage + S::GATES);
    const float *g = log_g + CHUNK, *rest = g + CHUNK;
    float d[8][4], o[8][4] = {}, factors[8][2]; // d: -D^T
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
        uint32_t u[4];
        load_matrix4_transposed(u, shared + S::U + matrix_place<S::COLUMNS>(n * 8, own, true));
        for (int i = 0; i < 4; i++) {
            d[n + i / 2][i % 2 * 2] = -bf16_low(u[i]);
            d[n + i / 2][i % 2 * 2 + 1] = -bf16_high(u[i]);
        }
    }
#pragma unroll
    for (int k = 0; k < DIM / 16; k++) {
        const float *low = state.s[2 * k], *high = state.s[2 * k + 1];
        const uint32_t s[4] = {pack_bf16(low[0], low[1]), pack_bf16(low[2], low[3]),
                               pack_bf16(high[0], high[1]), pack_bf16(high[2], high[3])};
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            uint32_t w[4], q[4];
            load_matrix4(w, shared + S::W + matrix_place<DIM>(n * 8, k * 16, true));
            load_matrix4(q, shared + S::Q + matrix_place<DIM>(n * 8, k * 16, true));
            for (int i = 0; i < 2; i++) {
                multiply(d[n + i], s, w[2 * i], w[2 * i + 1]);
                multiply(o[n + i], s, q[2 * i], q[2 * i + 1]);
            }
        }
    }
#pragma unroll
    for (int n = 0; n < 8; n++) {
        for (int i = 0; i < 4; i++) o[n][i] *= g[row_of(n, i)];
        factors[n][0] = factors[n][1] = 1;
    }
    pack_tokens(left, d, factors);
#pragma unroll
    for (int step = 0; step < 4; step++) {
#pragma unroll
        for (int n = 2 * step; n < 8; n += 2) { // later tokens only
            uint32_t scores[4];
            load_matrix4(scores, shared + S::P + matrix_place<CHUNK>(n * 8, step * 16, true));
            multiply(o[n], left[step], scores[0], scores[1]);
            multiply(o[n + 1], left[step], scores[2], scores[3]);
        }
    }
    write_out(p, o, first, count, head, column);
    for (int i = 0; i < p.num_snapshots; i++) {
        int token = of_step(p.snapshot_token)[i] - first;
        if (token < 0 || token >= count) continue;
        write_snapshot(p, state, d, log_g, shared + S::K, token,
                       state_of(p, slot_at(p, of_step(p.snapshot_slot)[i]), head), column);
    }
#pragma unroll
    for (int n = 0; n < 8; n++) {
        for (int i = 0; i < 2; i++) factors[n][i] = rest[row_of(n, i)];
    }
    pack_tokens(left, d, factors);
    float decay = g[count - 1];
#pragma unroll
    for (int pair = 0; pair < DIM / 16; pair++) {
        float(&x0)[4] = state.s[2 * pair], (&x1)[4] = state.s[2 * pair + 1];
        for (int i = 0; i < 4; i++) x0[i] *= decay, x1[i] *= decay;
        add_keys(x0, x1, left, shared + S::K, pair);
    }
}

// Keeps channels for the snapshots in the segment's chunks, and at the end for the next step.
__device__ __forceinline__ void keep_segment(const chunk_params &c, const sequence &seq, int2 range,
                                             int head) {
    const delta_params &p = c.p;
    int first = seq.begin + range.x * CHUNK, end = min(seq.begin + range.y * CHUNK, seq.end);
    for (int i = 0; i < p.num_snapshots; i++) {
        int token = of_step(p.snapshot_token)[i];
        if (token < first || token >= end) continue;
        keep_tokens(p, seq, token + 1, head, slot_at(p, of_step(p.snapshot_slot)[i]));
    }
    if (end == seq.end)
        keep_tokens(p, seq, end, head, seq.slot); // last: snapshots read the old ones
}

__device__ __forceinline__ const float *first_state(const delta_params &p, const sequence &seq,
                                                    int head) {
    return seq.is_first ? NULL : state_of(p, seq.from, head);
}

template <int WARPS>
__global__ void __launch_bounds__((WARPS + COPY_WARPS) * 32, 1) scan_kernel(const chunk_params c) {
    using S = scan_stage<WARPS>;
    extern __shared__ float4 scan_memory[];
    let_next_start();
    wait_for_earlier();
    const delta_params &p = c.p;
    int head = blockIdx.x, warp = threadIdx.x / 32, block_column = blockIdx.y * S::COLUMNS;
    const int2 range = chunks_of(c, blockIdx.z);
    if (range.x >= range.y) return;
    const sequence seq = sequence_of(p, blockIdx.z);
    char *memory = reinterpret_cast<char *>(scan_memory);
    bool copies = warp >= WARPS;
    int thread = threadIdx.x - WARPS * 32, column = block_column + warp * 16;
    columns state;
    int num_chunks = range.y - range.x, stages = c.stages, start = seq.begin + range.x * CHUNK;
    for (int i = 0; i < stages - 1 && copies; i++) {
        int first = start + i * CHUNK;
        if (i < num_chunks) {
            copy_chunk<WARPS>(c, memory + i * S::BYTES, first, min(seq.end - first, CHUNK), head,
                              block_column, thread);
        } else {
            copy_commit();
        }
    }
    if (!copies) {
        bool goes_on = range.x > 0; // from the segment before
        const float *from = goes_on ? state_of(p, seq.slot, head) : first_state(p, seq, head);
        load_columns(p, from, column, state);
    }
    for (int i = 0; i < num_chunks; i++) {
        int first = start + i * CHUNK, ahead = i + stages - 1;
        if (copies && stages > 2) copy_wait<1>();
        if (copies && stages == 2) copy_wait<0>();
        __syncthreads(); // the chunk is there, and the one before is read
        if (!copies) {
            run_chunk<WARPS>(c, state, memory + i % stages * S::BYTES, first,
                             min(seq.end - first, CHUNK), head, column, warp * 16);
        } else if (ahead < num_chunks) {
            first = start + ahead * CHUNK;
            copy_chunk<WARPS>(c, memory + ahead % stages * S::BYTES, first,
                              min(seq.end - first, CHUNK), head, block_column, thread);
        } else {
            copy_commit(); // groups are counted
        }
    }
    if (!copies) {
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
            store_tile(p, state_of(p, seq.slot, head), column, n, state.s[n]);
        }
    }
    if (blockIdx.y == 0) keep_segment(c, seq, range, head);
}

template <int WARPS>
void launch_scan(chunk_params c, const cuda_device_info *info, cudaStream_t stream) {
    constexpr int BYTES = scan_stage<WARPS>::BYTES, COLUMNS = scan_stage<WARPS>::COLUMNS;
    c.stages = 3 * BYTES <= info->shared_bytes_max ? 3 : 2;
    allow_shared_bytes(scan_kernel<WARPS>, c.stages * BYTES, info);
    dim3 grid(static_cast<unsigned>(c.p.heads),
              static_cast<unsigned>((c.p.value_dim + COLUMNS - 1) / COLUMNS),
              static_cast<unsigned>(c.p.num_seqs));
    launch_dependent(scan_kernel<WARPS>, grid, (WARPS + COPY_WARPS) * 32,
                     static_cast<size_t>(c.stages) * BYTES, info, stream, c);
}

} // namespace

extern "C" bool cuda_delta_chunks_fit(const struct gated_delta_shape *shape,
                                      const struct cuda_device_info *info) {
    return shape->key_dim <= DIM && shape->value_dim <= DIM &&
           info->shared_bytes_max >= static_cast<int>(2 * scan_stage<4>::BYTES);
}

extern "C" size_t cuda_delta_chunks_scratch_bytes(const struct gated_delta_shape *shape,
                                                  uint32_t num_tokens) {
    chunk_params unused = {};
    return lay_out_scratch(NULL, shape, num_tokens, &unused);
}

extern "C" void cuda_delta_scan_launch(const struct gated_delta_args *args, uint32_t from,
                                       const struct cuda_device_info *info, cudaStream_t stream) {
    const chunk_params c = segment_of(args, from);
    // With few sequences twice as many blocks have half the columns each.
    if (c.p.heads * c.p.num_seqs * 2 <= info->num_sms) {
        launch_scan<2>(c, info, stream);
    } else {
        launch_scan<4>(c, info, stream);
    }
}

/* The first kernel of delta_chunks.cuh: what a chunk adds without knowing the state before it. */
#include "backend/cuda/recurrent/delta_chunks.cuh"
#include "backend/cuda/recurrent/unit_inverse.cuh"

namespace {

constexpr int THREADS = 256;

__device__ __forceinline__ void store4(uint32_t shared, int row, int col, float4 v) {
    uint32_t at = shared + place<DIM>(row, col / 8) + col % 8 * 2;
    store_shared(at, pack_bf16(v.x, v.y));
    store_shared(at + 4, pack_bf16(v.z, v.w));
}

__device__ __forceinline__ float4 scaled(float4 v, float factor) {
    return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

// A chunk of a sequence.
struct chunk {
    sequence seq;
    int first, count; // its tokens
    bool is_there;
};

// The segment's chunk `index`.
__device__ __forceinline__ chunk chunk_at(const chunk_params &c, int index) {
    __shared__ int sums[THREADS / 32], found[2]; // sequence, its chunk
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, before = 0;
    if (threadIdx.x == 0) found[0] = -1;
    for (int base = 0; base < c.p.num_seqs; base += THREADS) {
        int s = base + threadIdx.x;
        int2 range = s < c.p.num_seqs ? chunks_of(c, s) : make_int2(0, 0);
        int count = max(range.y - range.x, 0), sum = count;
        for (int offset = 1; offset < 32; offset *= 2) {
            int other = __shfl_up_sync(FULL_WARP, sum, offset);
            if (lane >= offset) sum += other;
        }
        __syncthreads(); // the sums before are read
        if (lane == 31) sums[warp] = sum;
        __syncthreads();
        int earlier = before;
        for (int w = 0; w < THREADS / 32; w++) {
            if (w < warp) earlier += sums[w];
            before += sums[w];
        }
        int at = index - (earlier + sum - count);
        if (at < 0 || at >= count) continue;
        found[0] = s;
        found[1] = range.x + at;
    }
    __syncthreads();
    chunk result = {};
    result.is_there = found[0] >= 0;
    if (!result.is_there) return result;
    result.seq = sequence_of(c.p, found[0]);
    result.first = result.seq.begin + found[1] * CHUNK;
    result.count = min(result.seq.end - result.first, CHUNK);
    return result;
}

// A block's shared memory.
struct parts_view {
    uint32_t q, k, v; // bf16 [CHUNK][DIM]
    float *a; // [CHUNK][INVERSE_STRIDE]: A, then T
    float *log_g, *beta; // [CHUNK]
};

constexpr size_t BYTES = 3 * MATRIX_BYTES + CHUNK * (INVERSE_STRIDE + 2) * sizeof(float);

constexpr int ROWS = 8; // tokens of a warp

// Four channels of a warp's tokens and of those before, all loaded at once.
struct token_rows {
    uint2 x[KEPT + ROWS];

    __device__ __forceinline__ void load(const delta_params &p, const chunk &chunk, int row,
                                         const channels &at, bool is_there) {
        const __nv_bfloat16 *from =
            of_step(p.qkvz) + (size_t)(chunk.first + row - KEPT) * p.row + at.of_token;
#pragma unroll
        for (int i = 0; i < KEPT + ROWS; i++) {
            int t = chunk.first + row + i - KEPT;
            bool is_token = is_there && t >= chunk.seq.begin && t < chunk.first + chunk.count;
            x[i] = make_uint2(0, 0);
            if (is_token) x[i] = *reinterpret_cast<const uint2 *>(from + (size_t)i * p.row);
        }
    }

    // Starts the convolution at the warp's first token.
    __device__ __forceinline__ void begin(const delta_params &p, const chunk &chunk, int row,
                                          const channels &at, bool is_there,
                                          convolution &to) const {
        if (!is_there) return;
        to.taps = taps_of(p, at);
        bool has_earlier = chunk.first + row - KEPT < chunk.seq.begin; // before the step
#pragma unroll
        for (int i = 0; i < KEPT; i++) {
            int t = chunk.first + row + i - KEPT;
            to.x[i + 1] = has_earlier ? raw_channels(p, chunk.seq, t, at) : unpacked(x[i]);
        }
    }
};

// A warp convolves and norms q and k of its tokens.
__device__ __forceinline__ void prepare_keys(const chunk_params &c, const chunk &chunk,
                                             const parts_view &view, int key_head) {
    const delta_params &p = c.p;
    int col = threadIdx.x % 32 * 4, row = threadIdx.x / 32 * ROWS, first = chunk.first + row;
    int head = key_head * (p.heads / p.key_heads);
    const channels of_q = channels_of(p, PART_Q, head, col);
    const channels of_k = channels_of(p, PART_K, head, col);
    bool is_there = col < p.key_dim && row < chunk.count;
    token_rows q_rows, k_rows;
    q_rows.load(p, chunk, row, of_q, is_there);
    k_rows.load(p, chunk, row, of_k, is_there);
    convolution queries = {}, keys = {};
    q_rows.begin(p, chunk, row, of_q, is_there, queries);
    k_rows.begin(p, chunk, row, of_k, is_there, keys);
    float query_factor = rsqrtf((float)p.key_dim);
    __nv_bfloat16 *to = c.qk + ((size_t)(first - c.from) * p.key_heads + key_head) * 2 * DIM + col;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float4 q = queries.next(unpacked(q_rows.x[i + KEPT]));
        float4 k = keys.next(unpacked(k_rows.x[i + KEPT]));
        bool is_token = row + i < chunk.count;
        float q_factor = rsqrtf(warp_sum(dot4(q, q)) + L2_EPS) * query_factor;
        float k_factor = rsqrtf(warp_sum(dot4(k, k)) + L2_EPS);
        q = scaled(q, is_token ? q_factor : 0);
        k = scaled(k, is_token ? k_factor : 0);
        store4(view.q, row + i, col, q);
        store4(view.k, row + i, col, k);
        if (!is_token) continue;
        uint2 *rows = reinterpret_cast<uint2 *>(of_step(to) + (size_t)i * p.key_heads * 2 * DIM);
        rows[0] = make_uint2(pack_bf16(q.x, q.y), pack_bf16(q.z, q.w));
        rows[DIM / 4] = make_uint2(pack_bf16(k.x, k.y), pack_bf16(k.z, k.w));
    }
}

__device__ __forceinline__ void prepare_values(const delta_params &p, const chunk &chunk,
                                               const parts_view &view, int head) {
    int col = threadIdx.x % 32 * 4, row = threadIdx.x / 32 * ROWS;
    const channels at = channels_of(p, PART_V, head, col);
    bool is_there = col < p.value_dim && row < chunk.count;
    token_rows rows;
    rows.load(p, chunk, row, at, is_there);
    convolution values = {};
    rows.begin(p, chunk, row, at, is_there, values);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float4 v = values.next(unpacked(rows.x[i + KEPT]));
        store4(view.v, row + i, col, scaled(v, row + i < chunk.count ? 1 : 0));
    }
}

// ln G and beta of the chunk's tokens, by a warp with two tokens for each lane.
__device__ __forceinline__ void prepare_gates(const chunk_params &c, const chunk &chunk,
                                              const parts_view &view, int head) {
    int lane = threadIdx.x % 32, t = 2 * lane;
    float logs[2] = {};
    for (int i = 0; i < 2; i++) {
        bool is_token = t + i < chunk.count;
        if (is_token) logs[i] = log_decay(c.p, chunk.first + t + i, head);
        view.beta[t + i] = is_token ? beta_of(c.p, chunk.first + t + i, head) : 0;
    }
    float pair = logs[0] + logs[1], sum = pair;
    for (int offset = 1; offset < 32; offset *= 2) {
        float other = __shfl_up_sync(FULL_WARP, sum, offset);
        if (lane >= offset) sum += other;
    }
    view.log_g[t] = sum - pair + logs[0];
    view.log_g[t + 1] = sum;
    float *to = c.log_g + (size_t)head * c.rows + chunk.first - c.from;
    for (int i = 0; i < 2; i++) {
        if (t + i < chunk.count) of_step(to)[t + i] = view.log_g[t + i];
    }
}

// A warp's 16 x 32 of q k^T and k k^T: rows 16 * (warp % 4), columns 32 * (warp / 4).
struct products {
    float qk[4][4], kk[4][4];
};

__device__ __forceinline__ products multiply_keys(const parts_view &view) {
    int warp = threadIdx.x / 32, row = warp % 4 * 16, col = warp / 4 * 32;
    products result = {};
#pragma unroll
    for (int k = 0; k < DIM; k += 16) {
        uint32_t q[4], left[4];
        load_matrix4(q, view.q + matrix_place<DIM>(row, k, false));
        load_matrix4(left, view.k + matrix_place<DIM>(row, k, false));
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            uint32_t right[4];
            load_matrix4(right, view.k + matrix_place<DIM>(col + n * 8, k, true));
            for (int i = 0; i < 2; i++) {
                multiply(result.qk[n + i], q, right[2 * i], right[2 * i + 1]);
                multiply(result.kk[n + i], left, right[2 * i], right[2 * i + 1]);
            }
        }
    }
    return result;
}

// A to shared memory, P to scratch memory.
__device__ __forceinline__ void write_scores(const chunk_params &c, const chunk &chunk,
                                             const parts_view &view, const products &products,
                                             int head) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int t = warp % 4 * 16 + half * 8 + lane / 4;
        float log_g = view.log_g[t], beta = view.beta[t];
        __nv_bfloat16 *scores =
            c.scores + ((size_t)(chunk.first + t - c.from) * c.p.heads + head) * CHUNK;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            int i = warp / 4 * 32 + n * 8 + lane % 4 * 2;
            float factors[2], p[2];
            for (int k = 0; k < 2; k++) {
                factors[k] = i + k <= t ? __expf(log_g - view.log_g[i + k]) : 0;
                p[k] = factors[k] * products.qk[n][2 * half + k];
                view.a[t * INVERSE_STRIDE + i + k] =
                    i + k < t ? beta * factors[k] * products.kk[n][2 * half + k] : 0;
            }
            if (t < chunk.count) {
                reinterpret_cast<uint32_t *>(of_step(scores))[i / 2] = pack_bf16(p[0], p[1]);
            }
        }
    }
}

// A warp's 16 rows and 64 columns of T diag(factors) times a matrix in shared memory.
__device__ __forceinline__ void multiply_inverse(const parts_view &view, const float (&t)[4][8],
                                                 const float *beta, const float *log_g,
                                                 uint32_t matrix, float (&out)[8][4]) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, col = warp / 4 * 64;
#pragma unroll
    for (int step = 0; step < 4; step++) {
        if (step > warp % 4) break; // T is lower triangular
        float factors[4];
        for (int i = 0; i < 4; i++) {
            int at = step * 16 + i / 2 * 8 + lane % 4 * 2 + i % 2;
            factors[i] = beta[at] * (log_g ? __expf(log_g[at]) : 1);
        }
        const float *x = t[step];
        const uint32_t left[4] = {pack_bf16(x[0] * factors[0], x[1] * factors[1]),
                                  pack_bf16(x[2] * factors[0], x[3] * factors[1]),
                                  pack_bf16(x[4] * factors[2], x[5] * factors[3]),
                                  pack_bf16(x[6] * factors[2], x[7] * factors[3])};
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            uint32_t right[4];
            load_matrix4_transposed(right,
                                    matrix + matrix_place<DIM>(step * 16, col + n * 8, false));
            multiply(out[n], left, right[0], right[1]);
            multiply(out[n + 1], left, right[2], right[3]);
        }
    }
}

// A warp's rows and columns of U or W to memory, whose tokens are `stride` elements apart.
__device__ __forceinline__ void write_rows(const float (&x)[8][4], int count, int cols,
                                           __nv_bfloat16 *to, size_t stride) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int t = warp % 4 * 16 + half * 8 + lane / 4;
        if (t >= count) continue;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            int col = warp / 4 * 64 + n * 8 + lane % 4 * 2;
            if (col >= cols) continue;
            *reinterpret_cast<uint32_t *>(of_step(to) + t * stride + col) =
                pack_bf16(x[n][2 * half], x[n][2 * half + 1]);
        }
    }
}

__device__ __forceinline__ void write_parts(const chunk_params &c, const chunk &chunk,
                                            const parts_view &view, int head) {
    const delta_params &p = c.p;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float t[4][8]; // a warp's rows of T, as the left operand of a product
#pragma unroll
    for (int step = 0; step < 4; step++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = warp % 4 * 16 + i % 2 * 8 + lane / 4;
            int col = step * 16 + i / 2 * 8 + lane % 4 * 2;
            t[step][2 * i] = col <= row ? view.a[row * INVERSE_STRIDE + col] : 0;
            t[step][2 * i + 1] = col + 1 <= row ? view.a[row * INVERSE_STRIDE + col + 1] : 0;
        }
    }
    float u[8][4] = {};
    multiply_inverse(view, t, view.beta, NULL, view.v, u);
    size_t row = static_cast<size_t>(p.heads) * p.value_dim;
    write_rows(u, chunk.count, p.value_dim, p.out + chunk.first * row + head * p.value_dim, row);
    float w[8][4] = {};
    multiply_inverse(view, t, view.beta, view.log_g, view.k, w);
    row = static_cast<size_t>(p.heads) * DIM;
    write_rows(w, chunk.count, DIM, c.w + (chunk.first - c.from) * row + head * DIM, row);
}

__global__ void __launch_bounds__(THREADS, 2) parts_kernel(const chunk_params c) {
    extern __shared__ float4 parts_memory[];
    let_next_start();
    wait_for_earlier();
    const chunk chunk = chunk_at(c, blockIdx.x);
    if (!chunk.is_there) return;
    char *memory = reinterpret_cast<char *>(parts_memory);
    parts_view view;
    view.q = shared_address(memory);
    view.k = view.q + MATRIX_BYTES;
    view.v = view.k + MATRIX_BYTES;
    view.a = reinterpret_cast<float *>(memory + 3 * MATRIX_BYTES);
    view.log_g = view.a + CHUNK * INVERSE_STRIDE;
    view.beta = view.log_g + CHUNK;
    int key_head = blockIdx.y, group = c.p.heads / c.p.key_heads;
    prepare_keys(c, chunk, view, key_head);
    __syncthreads();
    const products products = multiply_keys(view);
    for (int i = 0; i < group; i++) {
        int head = key_head * group + i;
        if (threadIdx.x < 32) prepare_gates(c, chunk, view, head);
        prepare_values(c.p, chunk, view, head);
        __syncthreads();
        write_scores(c, chunk, view, products, head);
        __syncthreads();
        invert_unit(view.a);
        __syncthreads();
        write_parts(c, chunk, view, head);
        __syncthreads(); // the next head overwrites this one
    }
}

} // namespace

extern "C" void cuda_delta_parts_launch(const struct gated_delta_args *args, uint32_t from,
                                        const struct cuda_device_info *info, cudaStream_t stream) {
    const chunk_params c = segment_of(args, from);
    // Each sequence may have a chunk of less than CHUNK tokens.
    int most = SEGMENT / CUDA_DELTA_CHUNKED_MIN + 2;
    int chunks = (c.to - c.from + CHUNK - 1) / CHUNK + (c.p.num_seqs < most ? c.p.num_seqs : most);
    dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>(c.p.key_heads));
    allow_shared_bytes(parts_kernel, BYTES, info);
    launch_dependent(parts_kernel, grid, THREADS, BYTES, info, stream, c);
}

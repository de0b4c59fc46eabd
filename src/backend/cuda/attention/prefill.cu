/* Prefill attention over the paged cache: softmax(scale Q K^T) V for sequences with more than one
 * query token in the step. Each query sees the cached positions up to and including its own. Runs
 * on every device but sm_90, and there for the head sizes that attention/prefill_sm90.cu lacks.
 *
 * The algorithm is FlashAttention-2 (Dao 2023). A block keeps 64 query tokens of one or two heads
 * of a group; two heads share the reads of K and V. It walks K and V in tiles with an online
 * softmax. All matrix products run on tensor cores (mma.sync m16n8k16, bf16 in, float32 sums).
 * Scores stay in registers: the first product's accumulator is the second's left operand.
 *
 * Kernels with EXTRAS also take a window, a cap of the scores and sinks. Tiles before the windows
 * of all the block's queries are skipped. A sink is one more score, without a value: it is added to
 * the sum at the end.
 *
 * Launch: one block per (tile of the plan, kv head, head pair). Tiles that see the most positions
 * come first. A warp has 32 rows (16 from head_dim 160 on), which halves its shared memory reads
 * per product. cp.async brings K and V one tile ahead.
 *
 * With heads of 512 the results of 16 rows do not fit in a warp's registers, and the queries of two
 * heads not in shared memory. So a block has one head, and two warps share 16 rows: each sums its
 * half of the dimensions to the scores, they add each other's, and each has half of the results.
 *
 * Kernels with CODES read a cache of 8-bit codes (attention/kv_codes.cuh). The codes are what comes
 * one tile ahead. The block's threads write them as bf16, times their scales, to the memory of one
 * tile, and the rest is the same. */
#include "backend/cuda/attention/kv_codes.cuh"
#include "backend/cuda/attention/window.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int TOKENS = CUDA_PREFILL_TILE;

struct prefill_params {
    const __nv_bfloat16 *qkv;
    const __nv_bfloat16 *keys, *values;
    const int32_t *block_tables;
    __nv_bfloat16 *out;
    const int4 *tiles;
    const int32_t *counts;
    int num_heads, num_kv_heads, block_size, qkv_stride;
    uint32_t block_chunks; // as in cuda_kv_view
    float scale; // times log2(e)
    // For kernels with EXTRAS.
    seen_window window;
    float cap; // of the scores, times log2(e); 0: none
    const float *sinks; // [num_heads] or NULL
    pair_bits bits; // for kernels with CODES
};

// K or V of one tile in codes.
template <int D, int KV> constexpr int CODE_BYTES = KV / 16 * KV_TILE_BYTES<D, true>;
// Shared memory behind the queries: a ring of two tiles, or a tile and a ring of two in codes.
template <int D, int KV, bool CODES>
constexpr int RING_BYTES = CODES ? 2 * KV *D * 2 + 4 * CODE_BYTES<D, KV> : 4 * KV *D * 2;
// Warps that share rows, by dimensions; shared memory behind the ring for the scores of all warps.
template <int D> constexpr int SHARERS = D > 256 ? 2 : 1;
template <int D, int KV>
constexpr int SHARED_SCORES_BYTES = SHARERS<D> == 1 ? 0 : SHARERS<D> *TOKENS *KV * 4;

template <int D, int ROW_TILES, int KV, bool EXTRAS, bool CODES> struct prefill {
    static constexpr int ROW_BYTES = D * 2, CHUNKS = D / 8;
    static constexpr int DIMS = D / SHARERS<D>; // of a warp
    static constexpr int KV_BYTES = KV * ROW_BYTES; // of K or of V of one tile

    // The state of one warp: ROW_TILES x 16 rows.
    struct state {
        float o[ROW_TILES][DIMS / 8][4];
        float max[ROW_TILES][2], sum[ROW_TILES][2]; // rows lane / 4 and + 8
    };

    static __device__ void load_queries(const prefill_params &p, uint32_t shared, int token,
                                        int num_tokens, int first_head, int rows) {
        for (int i = threadIdx.x; i < rows * CHUNKS; i += blockDim.x) {
            int row = i / CHUNKS, c = i % CHUNKS;
            int t = row % TOKENS, head = first_head + row / TOKENS;
            // Rows past the tile's last token repeat it. They are computed but never written.
            const __nv_bfloat16 *from =
                p.qkv + (size_t)(token + min(t, num_tokens - 1)) * p.qkv_stride + head * D + c * 8;
            copy16_async(shared + row * ROW_BYTES + swizzle<D>(row, c) * 16, from);
        }
    }

    // The first position that a query at `position` sees.
    static __device__ __forceinline__ int first_seen(const prefill_params &p, int position) {
        return EXTRAS && p.window.size ? p.window.first_seen(position) : 0;
    }

    // Copies positions [first, first + KV). Cache blocks past the sequence's last are not read, nor
    // blocks before position `seen`.
    static __device__ void load_tile(const prefill_params &p, const int32_t *table, uint32_t shared,
                                     int kv_head, int first, int num_positions, int seen) {
        for (int i = threadIdx.x; i < KV * CHUNKS; i += blockDim.x) {
            int row = i / CHUNKS, position = first + row;
            if (position / 16 * 16 >= num_positions) position = (num_positions - 1) / 16 * 16;
            if constexpr (EXTRAS) position = max(position, seen);
            int block = table[position / p.block_size];
            size_t at = block_start(block, p.block_chunks) +
                        (size_t)(kv_head * p.block_size + position % p.block_size) * D +
                        i % CHUNKS * 8;
            copy16_async(shared + i * 16, p.keys + at);
            copy16_async(shared + KV_BYTES + i * 16, p.values + at);
        }
    }

    // The same for codes, with the cache's tiles of 16 positions as they are.
    static __device__ void load_codes(const prefill_params &p, const int32_t *table,
                                      uint32_t shared, int kv_head, int first, int num_positions,
                                      int seen) {
        constexpr int TILE_CHUNKS = KV_TILE_BYTES<D, true> / 16;
        for (int i = threadIdx.x; i < KV / 16 * TILE_CHUNKS; i += blockDim.x) {
            int position = first + i / TILE_CHUNKS * 16;
            if (position >= num_positions) position = (num_positions - 1) / 16 * 16;
            if constexpr (EXTRAS) position = max(position, seen / 16 * 16);
            int tile = kv_head * (p.block_size / 16) + position % p.block_size / 16;
            size_t at = block_start(table[position / p.block_size], p.block_chunks) +
                        (size_t)(tile * TILE_CHUNKS + i % TILE_CHUNKS) * 8;
            copy16_async(shared + i * 16, p.keys + at);
            copy16_async(shared + CODE_BYTES<D, KV> + i * 16, p.values + at);
        }
    }

    // Writes the codes of rows [begin, end) as bf16 and the other rows as 0, for keys and then for
    // values.
    static __device__ void decode_tile(const prefill_params &p, uint32_t codes, uint32_t to,
                                       int begin, int end) {
        constexpr int ROW_CHUNKS = D / 16;
        for (int i = threadIdx.x; i < 2 * KV * ROW_CHUNKS; i += blockDim.x) {
            int part = i / (KV * ROW_CHUNKS), row = i / ROW_CHUNKS % KV, chunk = i % ROW_CHUNKS;
            uint32_t tile = codes + part * CODE_BYTES<D, KV> + row / 16 * KV_TILE_BYTES<D, true>;
            uint4 low = make_uint4(0, 0, 0, 0), high = low;
            if (row >= begin && row < end) {
                uint32_t scale = scale_pair(load_shared(tile + KV_SCALES_AT<D> + row % 16 * 4));
                uint4 v = load_shared16(tile + row % 16 * D + swizzle_codes<D>(row, chunk) * 16);
                uint2 a = decoded_codes(p.bits, v.x, scale), b = decoded_codes(p.bits, v.y, scale);
                low = make_uint4(a.x, a.y, b.x, b.y);
                a = decoded_codes(p.bits, v.z, scale), b = decoded_codes(p.bits, v.w, scale);
                high = make_uint4(a.x, a.y, b.x, b.y);
            }
            uint32_t at = to + part * KV_BYTES + row * ROW_BYTES;
            store_shared16(at + swizzle<D>(row, chunk * 2) * 16, low);
            store_shared16(at + swizzle<D>(row, chunk * 2 + 1) * 16, high);
        }
    }

    // Brings tile i ahead of its use.
    static __device__ void load_ahead(const prefill_params &p, const int32_t *table, uint32_t ring,
                                      int kv_head, int i, int num_positions, int seen) {
        if constexpr (CODES) {
            load_codes(p, table, ring + 2 * KV_BYTES + i % 2 * 2 * CODE_BYTES<D, KV>, kv_head,
                       i * KV, num_positions, seen);
        } else {
            load_tile(p, table, ring + i % 2 * 2 * KV_BYTES, kv_head, i * KV, num_positions, seen);
        }
    }

    // Makes tile i, whose copies are complete, ready and returns its keys.
    static __device__ uint32_t ready(const prefill_params &p, uint32_t ring, int i,
                                     int num_positions, int seen) {
        if constexpr (CODES) {
            decode_tile(p, ring + 2 * KV_BYTES + i % 2 * 2 * CODE_BYTES<D, KV>, ring, seen - i * KV,
                        num_positions - i * KV);
            __syncthreads();
            return ring;
        }
        uint32_t keys = ring + i % 2 * 2 * KV_BYTES;
        if (num_positions - i * KV < KV) {
            zero_values(keys + KV_BYTES, num_positions - i * KV);
            __syncthreads();
        }
        return keys;
    }

    // Zeroes values past the last position. Their weight is 0, but the memory may hold another
    // request's NaN, and 0 times NaN is NaN.
    static __device__ void zero_values(uint32_t values, int valid) {
        for (int i = valid * D / 2 + threadIdx.x; i < KV * D / 2; i += blockDim.x) {
            store_shared(values + i * 4, 0);
        }
    }

    // `chunk`: the first of the warp's dimensions, in chunks of 8.
    static __device__ __forceinline__ void scores(float (&s)[ROW_TILES][KV / 8][4],
                                                  uint32_t queries, uint32_t keys, int chunk,
                                                  int lane) {
#pragma unroll
        for (int k = 0; k < DIMS / 16; k++) {
            uint32_t q[ROW_TILES][4];
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
                int row = m * 16 + lane % 16;
                load_matrix4(q[m], queries + row * ROW_BYTES +
                                       swizzle<D>(row, chunk + k * 2 + lane / 16) * 16);
            }
#pragma unroll
            for (int n = 0; n < KV / 16; n++) {
                int row = n * 16 + lane / 16 * 8 + lane % 8;
                uint32_t b[4];
                load_matrix4(b, keys + row * ROW_BYTES +
                                    swizzle<D>(row, chunk + k * 2 + lane / 8 % 2) * 16);
#pragma unroll
                for (int m = 0; m < ROW_TILES; m++) {
                    multiply(s[m][n * 2], q[m], b[0], b[1]);
                    multiply(s[m][n * 2 + 1], q[m], b[2], b[3]);
                }
            }
        }
    }

    // Adds the scores of the other warp with these rows, which has the other dimensions. `shared`:
    // float [warps][KV / 8][32][4].
    static __device__ __forceinline__ void add_shared(float (&s)[ROW_TILES][KV / 8][4],
                                                      uint32_t shared, int warp, int lane) {
        static_assert(ROW_TILES == 1 && SHARERS<D> == 2, "a warp and its other one");
        constexpr int ROW_WARPS = TOKENS / 16, WARP_BYTES = KV / 8 * 32 * 16;
        int other = warp < ROW_WARPS ? warp + ROW_WARPS : warp - ROW_WARPS;
        uint32_t mine = shared + warp * WARP_BYTES + lane * 16;
        uint32_t theirs = shared + other * WARP_BYTES + lane * 16;
#pragma unroll
        for (int n = 0; n < KV / 8; n++) {
            store_shared16(mine + n * 32 * 16,
                           make_uint4(__float_as_uint(s[0][n][0]), __float_as_uint(s[0][n][1]),
                                      __float_as_uint(s[0][n][2]), __float_as_uint(s[0][n][3])));
        }
        __syncthreads(); // the one behind the values lets the next tile's scores overwrite these
#pragma unroll
        for (int n = 0; n < KV / 8; n++) {
            uint4 v = load_shared16(theirs + n * 32 * 16);
            s[0][n][0] += __uint_as_float(v.x), s[0][n][1] += __uint_as_float(v.y);
            s[0][n][2] += __uint_as_float(v.z), s[0][n][3] += __uint_as_float(v.w);
        }
    }

    // Row r of the query tile sees the first `visible` + (index of its token) positions of this K
    // tile.
    static __device__ __forceinline__ void mask(float (&s)[ROW_TILES][KV / 8][4], int first_row,
                                                int visible, int lane) {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
            for (int n = 0; n < KV / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int row = first_row + m * 16 + lane / 4 + i / 2 * 8;
                    int column = n * 8 + lane % 4 * 2 + i % 2;
                    if (column >= visible + row % TOKENS) s[m][n][i] = -INFINITY;
                }
            }
        }
    }

    // Hides the K tile's positions, from `first` on, that a row does not see. The tile's first
    // token is at `position`.
    static __device__ __forceinline__ void hide(float (&s)[ROW_TILES][KV / 8][4],
                                                const seen_window &window, int first_row,
                                                int position, int first, int lane) {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
            int row = first_row + m * 16 + lane / 4;
            int limit[2] = {window.first_seen(position + row % TOKENS) - first,
                            window.first_seen(position + (row + 8) % TOKENS) - first};
#pragma unroll
            for (int n = 0; n < KV / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int column = n * 8 + lane % 4 * 2 + i % 2;
                    if (column < limit[i / 2]) s[m][n][i] = -INFINITY;
                }
            }
        }
    }

    // Caps the scores, which are scaled then.
    static __device__ __forceinline__ void cap(float (&s)[ROW_TILES][KV / 8][4],
                                               const prefill_params &p) {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
            for (int n = 0; n < KV / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    s[m][n][i] = p.cap * tanhf(s[m][n][i] * p.scale / p.cap);
                }
            }
        }
    }

    // Updates maxima and sums, replaces scores by weights, and rescales the accumulated values.
    static __device__ __forceinline__ void softmax(state &w, float (&s)[ROW_TILES][KV / 8][4],
                                                   float scale) {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float max = w.max[m][r];
#pragma unroll
                for (int n = 0; n < KV / 8; n++) {
                    max = fmaxf(max, fmaxf(s[m][n][r * 2], s[m][n][r * 2 + 1]));
                }
                max = fmaxf(max, __shfl_xor_sync(FULL_WARP, max, 1));
                max = fmaxf(max, __shfl_xor_sync(FULL_WARP, max, 2));
                float alpha = exp2f((w.max[m][r] - max) * scale), sum = 0, base = max * scale;
                w.max[m][r] = max;
#pragma unroll
                for (int n = 0; n < KV / 8; n++) {
                    s[m][n][r * 2] = exp2f(s[m][n][r * 2] * scale - base);
                    s[m][n][r * 2 + 1] = exp2f(s[m][n][r * 2 + 1] * scale - base);
                    sum += s[m][n][r * 2] + s[m][n][r * 2 + 1];
                }
                w.sum[m][r] = w.sum[m][r] * alpha + sum;
#pragma unroll
                for (int d = 0; d < DIMS / 8; d++) {
                    w.o[m][d][r * 2] *= alpha;
                    w.o[m][d][r * 2 + 1] *= alpha;
                }
            }
        }
    }

    static __device__ __forceinline__ void add_values(state &w, float (&s)[ROW_TILES][KV / 8][4],
                                                      uint32_t values, int chunk, int lane) {
#pragma unroll
        for (int n = 0; n < KV / 16; n++) {
            uint32_t a[ROW_TILES][4];
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
                a[m][0] = pack_bf16(s[m][n * 2][0], s[m][n * 2][1]);
                a[m][1] = pack_bf16(s[m][n * 2][2], s[m][n * 2][3]);
                a[m][2] = pack_bf16(s[m][n * 2 + 1][0], s[m][n * 2 + 1][1]);
                a[m][3] = pack_bf16(s[m][n * 2 + 1][2], s[m][n * 2 + 1][3]);
            }
#pragma unroll
            for (int d = 0; d < DIMS / 16; d++) {
                int row = n * 16 + lane / 8 % 2 * 8 + lane % 8;
                uint32_t b[4];
                load_matrix4_transposed(b, values + row * ROW_BYTES +
                                               swizzle<D>(row, chunk + d * 2 + lane / 16) * 16);
#pragma unroll
                for (int m = 0; m < ROW_TILES; m++) {
                    multiply(w.o[m][d * 2], a[m], b[0], b[1]);
                    multiply(w.o[m][d * 2 + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

    static __device__ void write(const prefill_params &p, state &w, int token, int num_tokens,
                                 int first_head, int first_row, int chunk, float scale, int lane) {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float sum = w.sum[m][r];
                sum += __shfl_xor_sync(FULL_WARP, sum, 1);
                sum += __shfl_xor_sync(FULL_WARP, sum, 2);
                int row = first_row + m * 16 + lane / 4 + r * 8, t = row % TOKENS;
                if (t >= num_tokens) continue;
                uint32_t *out = reinterpret_cast<uint32_t *>(
                    p.out + ((size_t)(token + t) * p.num_heads + first_head + row / TOKENS) * D);
                if constexpr (EXTRAS) {
                    int head = first_head + row / TOKENS;
                    if (p.sinks) sum += exp2f(p.sinks[head] * LOG2E - w.max[m][r] * scale);
                }
                float inverse = 1.0f / sum;
#pragma unroll
                for (int d = 0; d < DIMS / 8; d++) {
                    out[(chunk + d) * 4 + lane % 4] =
                        pack_bf16(w.o[m][d][r * 2] * inverse, w.o[m][d][r * 2 + 1] * inverse);
                }
            }
        }
    }

    static __device__ void run(const prefill_params &p, char *memory) {
        if (blockIdx.x >= p.counts[0]) return;
        int4 tile =
            p.tiles[blockIdx.x]; // row of the block tables, token, position, number of queries
        constexpr int ROW_WARPS = TOKENS / (ROW_TILES * 16); // of a head's rows
        int heads = blockDim.x / (ROW_WARPS * SHARERS<D> * 32);
        int first_head = blockIdx.y * heads;
        int kv_head = first_head / (p.num_heads / p.num_kv_heads);
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        int token = tile.y, position = tile.z, num_tokens = tile.w; // of the tile's first query
        int num_positions = position + num_tokens; // that its last query sees
        const int32_t *table = p.block_tables + (size_t)tile.x * p.counts[1];

        uint32_t queries = shared_address(memory);
        uint32_t ring = queries + TOKENS * heads * ROW_BYTES;
        load_queries(p, queries, token, num_tokens, first_head, TOKENS * heads);
        int seen = first_seen(p, position), first_tile = EXTRAS ? seen / KV : 0;
        float scale = EXTRAS && p.cap != 0 ? 1 : p.scale; // of what scores() and cap() give
        load_ahead(p, table, ring, kv_head, first_tile, num_positions, seen);
        copy_commit();
        state w = {};
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) w.max[m][0] = w.max[m][1] = -1e30f;
        // A block with warps that share rows has one head.
        int row_warp = SHARERS<D> == 1 ? warp : warp % ROW_WARPS;
        int chunk = SHARERS<D> == 1 ? 0 : warp / ROW_WARPS * (DIMS / 8);
        int first_row = row_warp * ROW_TILES * 16;
        int num_tiles = (num_positions + KV - 1) / KV;
        for (int i = first_tile; i < num_tiles; i++) {
            if (i + 1 < num_tiles) {
                load_ahead(p, table, ring, kv_head, i + 1, num_positions, seen);
            }
            copy_commit();
            copy_wait<1>();
            __syncthreads();
            uint32_t keys = ready(p, ring, i, num_positions, seen);
            float s[ROW_TILES][KV / 8][4] = {};
            scores(s, queries + first_row * ROW_BYTES, keys, chunk, lane);
            if constexpr (SHARERS < D >> 1)
                add_shared(s, ring + RING_BYTES<D, KV, CODES>, warp, lane);
            if constexpr (EXTRAS) {
                if (p.cap != 0) cap(s, p);
                if (first_seen(p, position + TOKENS - 1) > i * KV) {
                    hide(s, p.window, first_row, position, i * KV, lane);
                }
            }
            int visible = position + 1 - i * KV;
            if (visible < KV) mask(s, first_row, visible, lane);
            softmax(w, s, scale);
            add_values(w, s, keys + KV_BYTES, chunk, lane);
            __syncthreads();
        }
        write(p, w, token, num_tokens, first_head, first_row, chunk, scale, lane);
    }
};

template <int D, int ROW_TILES, int KV, bool EXTRAS, bool CODES>
__global__ void __launch_bounds__(TOKENS * 2 / (ROW_TILES * 16) * 32)
    prefill_kernel(prefill_params p) {
    extern __shared__ __align__(128) char memory[];
    prefill<D, ROW_TILES, KV, EXTRAS, CODES>::run(p, memory);
}

template <int D, int ROW_TILES, int KV, bool CODES>
void launch(const prefill_params &p, uint32_t max_tiles, const cuda_device_info *info,
            cudaStream_t stream) {
    constexpr int HEADS_MAX = SHARERS < D >> 1 ? 1 : 2;
    constexpr int OTHER_BYTES = RING_BYTES<D, KV, CODES> + SHARED_SCORES_BYTES<D, KV>;
    int heads = p.num_heads / p.num_kv_heads % 2 == 0 ? HEADS_MAX : 1;
    int threads = TOKENS * heads * SHARERS<D> / (ROW_TILES * 16) * 32;
    int bytes = TOKENS * heads * D * 2 + OTHER_BYTES;
    // What two heads need.
    constexpr int most = TOKENS * HEADS_MAX * D * 2 + OTHER_BYTES;
    static_assert(D <= 256 || most <= CUDA_WIDE_HEADS_BYTES, "kernel_table.c");
    bool has_extras = p.window.size || p.cap != 0 || p.sinks;
    auto kernel = has_extras ? prefill_kernel<D, ROW_TILES, KV, true, CODES>
                             : prefill_kernel<D, ROW_TILES, KV, false, CODES>;
    allow_shared_bytes(kernel, most, info);
    dim3 grid(max_tiles, static_cast<unsigned>(p.num_heads / heads));
    launch_by(launch_config(grid, threads, bytes, stream, nullptr, 0), kernel, info, p);
}

template <bool CODES>
void launch_for(uint32_t head_dim, const prefill_params &p, uint32_t max_tiles,
                const cuda_device_info *info, cudaStream_t stream) {
    switch (head_dim) {
    case 32:
        return launch<32, 2, 64, CODES>(p, max_tiles, info, stream);
    case 64:
        return launch<64, 2, 64, CODES>(p, max_tiles, info, stream);
    case 80:
        if constexpr (!CODES) return launch<80, 2, 64, false>(p, max_tiles, info, stream);
        return; // no kernel: kernel_table.c
    case 96:
        return launch<96, 2, 64, CODES>(p, max_tiles, info, stream);
    case 128:
        return launch<128, 2, 64, CODES>(p, max_tiles, info, stream);
    case 160:
        return launch<160, 1, 32, CODES>(p, max_tiles, info, stream);
    case 256:
        return launch<256, 1, 32, CODES>(p, max_tiles, info, stream);
    default:
        return launch<512, 1, 32, CODES>(p, max_tiles, info, stream);
    }
}

} // namespace

extern "C" void cuda_attention_prefill_launch(const struct attention_args *args,
                                              const struct cuda_kv_view *kv,
                                              const struct cuda_attention_plan *plan,
                                              const struct cuda_device_info *info,
                                              cudaStream_t stream) {
    prefill_params p = {};
    p.qkv = static_cast<const __nv_bfloat16 *>(args->qkv);
    p.keys = static_cast<const __nv_bfloat16 *>(kv->keys);
    p.values = static_cast<const __nv_bfloat16 *>(kv->values);
    p.block_tables = step_tables(args->step, args->kv_group);
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.tiles = reinterpret_cast<const int4 *>(plan->tiles);
    p.counts = plan->counts;
    p.num_heads = static_cast<int>(args->num_heads);
    p.num_kv_heads = static_cast<int>(args->num_kv_heads);
    p.block_size = static_cast<int>(kv->block_size);
    p.block_chunks = kv->block_chunks;
    p.qkv_stride = static_cast<int>(attention_row_heads(args) * args->head_dim);
    p.scale = args->scale * LOG2E;
    p.window = window_of(args);
    p.cap = args->softcap * LOG2E;
    p.sinks = args->sinks;
    // At most one tile of each sequence is not full.
    uint32_t tiles = args->step->num_tokens / TOKENS + args->step->num_seqs;
    if (cuda_kv_has_codes(kv->dtype)) {
        p.bits = kv_codec_of(kv->dtype).bits;
        return launch_for<true>(args->head_dim, p, tiles, info, stream);
    }
    launch_for<false>(args->head_dim, p, tiles, info, stream);
}

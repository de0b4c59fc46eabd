/* Attention over latents: all heads of a sequence read the same rows of CUDA_LATENT_DIM, whose
 * first CUDA_LATENT_RANK are the values too. So a row is copied to shared memory once for both
 * products.
 *
 * A block has up to 16 GROUPS queries: pairs of a token and a head, token by token. They walk the
 * positions of the tokens' sequence 64 at a time with online softmax. A tile's tokens may be of
 * several sequences: then it walks each, in which the other tokens' queries see nothing. Of a step
 * with few queries each block walks a share of the positions, and combine_kernel joins the shares.
 *
 * 8 warps: a warp has 16 queries, 64 / COLUMNS of the positions in the first product and 512 /
 * COLUMNS of the values' elements in the second, where COLUMNS = 8 / GROUPS. The exponentials go
 * through shared memory. One stage for rows, or two where they fit. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int RANK = CUDA_LATENT_RANK, DIM = CUDA_LATENT_DIM, ROPE = CUDA_LATENT_ROPE;
constexpr int THREADS = 256, TILE = 64, ROW_CHUNKS = DIM / 8, STEPS = DIM / 16;
constexpr int TILE_BYTES = TILE * DIM * 2;
constexpr int WEIGHT_BYTES = (TILE + 8) * 2; // of a query's exponentials, padded for the banks
constexpr int SPLITS_MAX = 128, COMBINE_WARPS = 16, COMBINE_COLUMNS = 128;

struct attend_params {
    const uint16_t *latents, *q_rope; // [tokens][heads][RANK], [tokens][heads][ROPE]
    const uint16_t *rows; // [slots][DIM]
    uint16_t *out; // [tokens][heads][RANK]
    float *partial; // [splits][tokens * heads][RANK], not yet divided by the sums
    float2 *stats; // [splits][tokens * heads]: largest score, sum of exponentials; 0: no position
    const int32_t *tables, *table_row, *query_start, *context_len, *positions;
    int first_token, tokens; // of the step; arrays of queries begin with the first
    int heads, tile_tokens, head_tiles, num_seqs, table_stride, block_size, splits;
    float scale; // times log2(e)
};

constexpr int shared_bytes(int groups, int stages) {
    int queries = groups * 16;
    return queries * DIM * 2 + stages * TILE_BYTES + queries * WEIGHT_BYTES +
           queries * (8 / groups + 1) * 4;
}

// Where a chunk of 16 bytes of a row is: the same chunk of 8 rows falls into different banks.
__device__ __forceinline__ uint32_t chunk_at(uint32_t base, int row, int chunk) {
    return base + (row * ROW_CHUNKS + (chunk ^ (row & 7))) * 16;
}

template <int GROUPS, int STAGES> struct tile_walk {
    static constexpr int QUERIES = GROUPS * 16, COLUMNS = 8 / GROUPS;
    static constexpr int SCORE_TILES = TILE / 8 / COLUMNS, VALUE_TILES = RANK / 8 / COLUMNS;

    const attend_params &p;
    uint32_t queries_at, rows_at, weights_at;
    float *largest; // [COLUMNS][QUERIES]
    int *limits; // [QUERIES]: positions of the sequence that a query sees
    int lane, group, column, token, head_tile; // token: of the tile's first, in the step
    float acc[VALUE_TILES][4];
    float best[2], sum[2]; // of this lane's two queries; sum: of this lane's positions

    __device__ __forceinline__ tile_walk(const attend_params &params, unsigned char *memory)
        : p(params) {
        queries_at = shared_address(memory);
        rows_at = queries_at + QUERIES * DIM * 2;
        weights_at = rows_at + STAGES * TILE_BYTES;
        unsigned char *end =
            memory + QUERIES * DIM * 2 + STAGES * TILE_BYTES + QUERIES * WEIGHT_BYTES;
        largest = reinterpret_cast<float *>(end);
        limits = reinterpret_cast<int *>(largest + COLUMNS * QUERIES);
        lane = threadIdx.x % 32;
        group = threadIdx.x / 32 / COLUMNS;
        column = threadIdx.x / 32 % COLUMNS;
        head_tile = blockIdx.x % p.head_tiles;
        token = p.first_token + blockIdx.x / p.head_tiles * p.tile_tokens;
        for (int n = 0; n < VALUE_TILES; n++) {
            for (int i = 0; i < 4; i++) acc[n][i] = 0.0f;
        }
        best[0] = best[1] = -INFINITY;
        sum[0] = sum[1] = 0.0f;
    }

    // The step's token and the head of a query; false: there is no such query.
    __device__ __forceinline__ bool query_of(int query, int *of_token, int *head) const {
        int at = head_tile * QUERIES + query, index = at / p.heads;
        *of_token = token + index;
        *head = at - index * p.heads;
        return index < p.tile_tokens && *of_token < p.first_token + p.tokens;
    }

    // The row of a query in arrays of [tokens][heads].
    __device__ __forceinline__ size_t row_of(int of_token, int head) const {
        return (size_t)(of_token - p.first_token) * p.heads + head;
    }

    __device__ __forceinline__ void copy_queries() const {
        for (int i = threadIdx.x; i < QUERIES * ROW_CHUNKS; i += THREADS) {
            int query = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS, of_token, head;
            if (!query_of(query, &of_token, &head)) of_token = token, head = 0;
            size_t row = row_of(of_token, head);
            const uint16_t *from = chunk < RANK / 8
                                       ? of_step(p.latents) + row * RANK + chunk * 8
                                       : of_step(p.q_rope) + row * ROPE + chunk * 8 - RANK;
            copy16_async(chunk_at(queries_at, query, chunk), from);
        }
    }

    // Copies the rows of 64 positions; those from `end` on are the last one's.
    __device__ __forceinline__ void copy_tile(const int32_t *table, int first, int end,
                                              int stage) const {
        for (int row = threadIdx.x / 8; row < TILE; row += THREADS / 8) {
            int position = min(first + row, end - 1), block = position / p.block_size;
            size_t slot = (size_t)table[block] * p.block_size + position - block * p.block_size;
            const uint16_t *from = of_step(p.rows) + slot * DIM;
            for (int chunk = threadIdx.x % 8; chunk < ROW_CHUNKS; chunk += 8) {
                copy16_async(chunk_at(rows_at + stage * TILE_BYTES, row, chunk), from + chunk * 8);
            }
        }
    }

    // scores = the warp's 16 queries times its positions of the stage.
    __device__ __forceinline__ void score(float (&scores)[SCORE_TILES][4], int stage) const {
        uint32_t rows = rows_at + stage * TILE_BYTES;
        int first = column * SCORE_TILES * 8;
        float odd[4] = {};
        for (int n = 0; n < SCORE_TILES; n++) {
            for (int i = 0; i < 4; i++) scores[n][i] = 0.0f;
        }
#pragma unroll 4
        for (int step = 0; step < STEPS; step += 2) {
            uint32_t a[2][4];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                int chunk = (step + k) * 2 + lane / 16;
                load_matrix4(a[k], chunk_at(queries_at, group * 16 + lane % 16, chunk));
            }
            if constexpr (SCORE_TILES == 1) {
                uint32_t b[4];
                load_matrix4(b, chunk_at(rows, first + lane % 8, step * 2 + lane / 8));
                multiply(scores[0], a[0], b[0], b[1]);
                multiply(odd, a[1], b[2], b[3]);
            } else {
#pragma unroll
                for (int k = 0; k < 2; k++) {
#pragma unroll
                    for (int n = 0; n < SCORE_TILES; n += 2) {
                        uint32_t b[4];
                        int row = first + n * 8 + lane / 16 * 8 + lane % 8;
                        load_matrix4(b, chunk_at(rows, row, (step + k) * 2 + lane / 8 % 2));
                        multiply(scores[n], a[k], b[0], b[1]);
                        multiply(scores[n + 1], a[k], b[2], b[3]);
                    }
                }
            }
        }
        for (int i = 0; i < 4; i++) scores[0][i] += odd[i];
    }

    // Hides what queries do not see, scales, and puts exponentials into shared memory. `position`:
    // of the stage's first row.
    __device__ __forceinline__ void weigh(float (&scores)[SCORE_TILES][4], int position) {
        int first = column * SCORE_TILES * 8 + lane % 4 * 2;
        float scaled[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = group * 16 + half * 8 + lane / 4, limit = limits[query] - position;
            float high = -INFINITY;
#pragma unroll
            for (int n = 0; n < SCORE_TILES; n++) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float *score = &scores[n][half * 2 + i];
                    *score = first + n * 8 + i < limit ? *score * p.scale : -INFINITY;
                    high = fmaxf(high, *score);
                }
            }
            high = fmaxf(high, __shfl_xor_sync(FULL_WARP, high, 1));
            high = fmaxf(high, __shfl_xor_sync(FULL_WARP, high, 2));
            if (lane % 4 == 0) largest[column * QUERIES + query] = high;
        }
        __syncthreads();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = group * 16 + half * 8 + lane / 4;
            float high = best[half];
            for (int c = 0; c < COLUMNS; c++) high = fmaxf(high, largest[c * QUERIES + query]);
            float shift = high == -INFINITY ? 0.0f : high; // no position yet
            scaled[half] = exp2_fast(best[half] - shift);
            best[half] = high;
            sum[half] *= scaled[half];
#pragma unroll
            for (int n = 0; n < SCORE_TILES; n++) {
                float e0 = exp2_fast(scores[n][half * 2] - shift);
                float e1 = exp2_fast(scores[n][half * 2 + 1] - shift);
                sum[half] += e0 + e1;
                store_shared(weights_at + query * WEIGHT_BYTES + (first + n * 8) * 2,
                             pack_bf16(e0, e1));
            }
        }
        __syncthreads();
        if (scaled[0] == 1.0f && scaled[1] == 1.0f) return;
#pragma unroll
        for (int n = 0; n < VALUE_TILES; n++) {
            acc[n][0] *= scaled[0], acc[n][1] *= scaled[0];
            acc[n][2] *= scaled[1], acc[n][3] *= scaled[1];
        }
    }

    // acc += exponentials times the warp's elements of the stage's rows.
    __device__ __forceinline__ void add_values(int stage) {
        uint32_t rows = rows_at + stage * TILE_BYTES;
        int query = group * 16 + lane % 16, first = column * VALUE_TILES;
#pragma unroll
        for (int step = 0; step < TILE / 16; step++) {
            uint32_t a[4];
            load_matrix4(a, weights_at + query * WEIGHT_BYTES + (step * 2 + lane / 16) * 16);
            int row = step * 16 + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
            for (int n = 0; n < VALUE_TILES; n += 2) {
                uint32_t b[4];
                load_matrix4_transposed(b, chunk_at(rows, row, first + n + lane / 16));
                multiply(acc[n], a, b[0], b[1]);
                multiply(acc[n + 1], a, b[2], b[3]);
            }
        }
    }

    // Positions begin .. end - 1 of a sequence.
    __device__ __forceinline__ void walk(const int32_t *table, int begin, int end) {
        copy_tile(table, begin, end, 0);
        copy_commit();
        for (int first = begin, stage = 0; first < end; first += TILE) {
            copy_wait<0>();
            __syncthreads(); // the stage is there, and the other one has been read
            if (STAGES == 2 && first + TILE < end) copy_tile(table, first + TILE, end, stage ^ 1);
            if (STAGES == 2) copy_commit();
            float scores[SCORE_TILES][4];
            score(scores, stage);
            weigh(scores, first);
            add_values(stage);
            if (STAGES == 2) {
                stage ^= 1;
            } else if (first + TILE < end) {
                __syncthreads();
                copy_tile(table, first + TILE, end, 0);
                copy_commit();
            }
        }
        copy_wait<0>();
        __syncthreads(); // what the next sequence overwrites has been read
    }

    // Walks this block's share of the positions of sequence s, of which the tile has tokens.
    __device__ __forceinline__ void walk_sequence(int s, int split) {
        int end_token = min(token + p.tile_tokens, p.first_token + p.tokens);
        int from = max(token, of_step(p.query_start)[s]);
        int to = min(end_token, of_step(p.query_start)[s + 1]);
        int len = of_step(p.context_len)[s];
        if (from >= to || len == 0) return;
        for (int query = threadIdx.x; query < QUERIES; query += THREADS) {
            int of_token, head;
            bool is_there = query_of(query, &of_token, &head) && of_token >= from && of_token < to;
            limits[query] = is_there ? min(of_step(p.positions)[of_token] + 1, len) : 0;
        }
        int seen = min(of_step(p.positions)[to - 1] + 1, len);
        int tiles = (seen + TILE - 1) / TILE, share = (tiles + p.splits - 1) / p.splits;
        int begin = split * share * TILE, end = min(seen, begin + share * TILE);
        if (begin >= end) return;
        walk(of_step(p.tables) + (size_t)of_step(p.table_row)[s] * p.table_stride, begin, end);
    }

    // The first sequence with a token from this tile's first on.
    __device__ __forceinline__ int find_sequence() const {
        int low = 0, high = p.num_seqs - 1;
        while (low < high) {
            int middle = (low + high) / 2;
            if (of_step(p.query_start)[middle + 1] > token) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return low;
    }

    __device__ __forceinline__ void store(int split) {
        int first = column * VALUE_TILES * 8 + lane % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            sum[half] += __shfl_xor_sync(FULL_WARP, sum[half], 1);
            sum[half] += __shfl_xor_sync(FULL_WARP, sum[half], 2);
            int query = group * 16 + half * 8 + lane / 4;
            if (lane % 4 == 0) largest[column * QUERIES + query] = sum[half];
        }
        __syncthreads();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = group * 16 + half * 8 + lane / 4, of_token, head;
            if (!query_of(query, &of_token, &head)) continue;
            size_t row = row_of(of_token, head);
            float total = 0.0f;
            for (int c = 0; c < COLUMNS; c++) total += largest[c * QUERIES + query];
            if (p.splits > 1) {
                row += (size_t)split * p.tokens * p.heads;
                if (column == 0 && lane % 4 == 0) {
                    of_step(p.stats)[row] = make_float2(best[half], total);
                }
                if (total == 0.0f) continue;
#pragma unroll
                for (int n = 0; n < VALUE_TILES; n++) {
                    float2 *to =
                        reinterpret_cast<float2 *>(of_step(p.partial) + row * RANK + first + n * 8);
                    *to = make_float2(acc[n][half * 2], acc[n][half * 2 + 1]);
                }
                continue;
            }
            float scale = total > 0.0f ? 1.0f / total : 0.0f; // padding sees no position
#pragma unroll
            for (int n = 0; n < VALUE_TILES; n++) {
                *reinterpret_cast<uint32_t *>(of_step(p.out) + row * RANK + first + n * 8) =
                    pack_bf16(acc[n][half * 2] * scale, acc[n][half * 2 + 1] * scale);
            }
        }
    }
};

template <int GROUPS, int STAGES>
__global__ void __launch_bounds__(THREADS, 1) attend_kernel(const attend_params p) {
    extern __shared__ __align__(128) unsigned char attend_memory[];
    let_next_start();
    wait_for_earlier();
    tile_walk<GROUPS, STAGES> walk(p, attend_memory);
    walk.copy_queries();
    int end = min(walk.token + p.tile_tokens, p.first_token + p.tokens);
    for (int s = walk.find_sequence(); s < p.num_seqs && of_step(p.query_start)[s] < end; s++) {
        walk.walk_sequence(s, blockIdx.y);
    }
    copy_wait<0>();
    __syncthreads();
    walk.store(blockIdx.y);
}

// Joins the shares of a query. A block has COMBINE_COLUMNS elements of one query; a warp has every
// COMBINE_WARPS-th share of them.
__global__ void __launch_bounds__(COMBINE_WARPS * 32) combine_kernel(const attend_params p) {
    __shared__ float weights[SPLITS_MAX], highest[SPLITS_MAX / 32], sums[SPLITS_MAX / 32];
    __shared__ float4 totals[COMBINE_WARPS][32];
    let_next_start();
    wait_for_earlier();
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    size_t row = blockIdx.x, stride = (size_t)p.tokens * p.heads;
    int column = blockIdx.y * COMBINE_COLUMNS + lane * 4;
    float2 stat = make_float2(-INFINITY, 0.0f);
    if (thread < p.splits) stat = of_step(p.stats)[thread * stride + row];
    if (thread < SPLITS_MAX) {
        float high = warp_max(stat.y > 0.0f ? stat.x : -INFINITY);
        if (lane == 0) highest[warp] = high;
    }
    __syncthreads();
    if (thread < SPLITS_MAX) {
        float high = -INFINITY;
        for (int i = 0; i < SPLITS_MAX / 32; i++) high = fmaxf(high, highest[i]);
        float weight = stat.y > 0.0f ? exp2_fast(stat.x - high) : 0.0f;
        weights[thread] = stat.y > 0.0f ? weight : -1.0f; // a share without positions
        float sum = warp_sum(weight * stat.y);
        if (lane == 0) sums[warp] = sum;
    }
    __syncthreads();
    float4 total = {};
#pragma unroll
    for (int i = 0; i < SPLITS_MAX / COMBINE_WARPS; i++) {
        int split = i * COMBINE_WARPS + warp;
        if (split >= p.splits || weights[split] < 0.0f) continue;
        const float *partial = of_step(p.partial) + (split * stride + row) * RANK + column;
        float4 v = *reinterpret_cast<const float4 *>(partial);
        float weight = weights[split];
        total.x += weight * v.x, total.y += weight * v.y;
        total.z += weight * v.z, total.w += weight * v.w;
    }
    totals[warp][lane] = total;
    __syncthreads();
    if (warp) return;
    float sum = 0.0f;
    for (int i = 0; i < SPLITS_MAX / 32; i++) sum += sums[i];
#pragma unroll
    for (int i = 1; i < COMBINE_WARPS; i++) {
        float4 v = totals[i][lane];
        total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
    }
    float scale = sum > 0.0f ? 1.0f / sum : 0.0f;
    *reinterpret_cast<uint2 *>(of_step(p.out) + row * RANK + column) = make_uint2(
        pack_bf16(total.x * scale, total.y * scale), pack_bf16(total.z * scale, total.w * scale));
}

template <int GROUPS, int STAGES>
bool try_launch(attend_params &p, bool has_prompts, const cuda_device_info *info,
                cudaStream_t stream) {
    constexpr int QUERIES = GROUPS * 16, BYTES = shared_bytes(GROUPS, STAGES);
    if (BYTES > info->shared_bytes_max) return false;
    bool is_small = p.heads <= QUERIES;
    p.tile_tokens = is_small && has_prompts ? QUERIES / p.heads : 1;
    p.head_tiles = is_small ? 1 : (p.heads + QUERIES - 1) / QUERIES;
    int tiles = (p.tokens + p.tile_tokens - 1) / p.tile_tokens * p.head_tiles;
    p.splits = min(max(info->num_sms / tiles, 1), SPLITS_MAX);
    auto kernel = attend_kernel<GROUPS, STAGES>;
    allow_shared_bytes(kernel, BYTES, info);
    dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(p.splits));
    launch_dependent(kernel, grid, THREADS, BYTES, info, stream, p);
    if (p.splits == 1) return true;
    dim3 parts(static_cast<unsigned>(p.tokens * p.heads), RANK / COMBINE_COLUMNS);
    launch_dependent(combine_kernel, parts, COMBINE_WARPS * 32, 0, info, stream, p);
    return true;
}

template <int GROUPS>
bool try_stages(attend_params &p, bool has_prompts, const cuda_device_info *info,
                cudaStream_t stream) {
    return try_launch<GROUPS, 2>(p, has_prompts, info, stream) ||
           try_launch<GROUPS, 1>(p, has_prompts, info, stream);
}

} // namespace

// A tile has at most 64 queries, and with several shares there are at most as many tiles as
// multiprocessors.
extern "C" size_t cuda_latent_partial_bytes(const struct cuda_device_info *info) {
    return (size_t)info->num_sms * 64 * (RANK * sizeof(float) + sizeof(float2));
}

extern "C" bool cuda_latent_fits(const struct cuda_device_info *info) {
    return shared_bytes(1, 1) <= info->shared_bytes_max;
}

extern "C" void cuda_latent_attend_launch(const struct cuda_latent_attend *args,
                                          const struct cuda_device_info *info,
                                          cudaStream_t stream) {
    const struct step *step = args->step;
    attend_params p = {};
    p.latents = static_cast<const uint16_t *>(args->latents);
    p.q_rope = static_cast<const uint16_t *>(args->q_rope);
    p.rows = static_cast<const uint16_t *>(args->rows);
    p.out = static_cast<uint16_t *>(args->out);
    p.stats = static_cast<float2 *>(args->partial);
    p.partial = reinterpret_cast<float *>(p.stats + (size_t)info->num_sms * 64);
    p.tables = step_tables(step, args->kv_group);
    p.table_row = step->table_row;
    p.query_start = step->query_start;
    p.context_len = step->context_len;
    p.positions = step->positions;
    p.first_token = static_cast<int>(args->first_token);
    p.tokens = static_cast<int>(args->num_tokens);
    p.heads = static_cast<int>(args->num_heads);
    p.num_seqs = static_cast<int>(step->num_seqs);
    p.table_stride = static_cast<int>(step->table_stride);
    p.block_size = static_cast<int>(args->block_size);
    p.scale = args->scale * LOG2E;
    bool has_prompts = step->num_tokens > step->num_seqs;
    bool wants_all = has_prompts || p.heads > 32;
    if (wants_all && try_stages<4>(p, has_prompts, info, stream)) return;
    if ((wants_all || p.heads > 16) && try_stages<2>(p, has_prompts, info, stream)) return;
    try_stages<1>(p, has_prompts, info, stream);
}

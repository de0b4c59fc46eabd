/* Sums over the ranks of a tensor-parallel group, each on a GPU that reaches the memory of the
 * others: residual += the parts of all ranks, and the RMS norm that follows. Every rank adds the
 * parts in the order of the ranks, so all have the same bits.
 *
 * Small sums: each rank stores its part to the inboxes of the others, and adds what comes to its
 * own. 8 bytes hold 4 bytes of values and the number of the sum, and are stored as one access
 * (NCCL's LL protocol). So a sum takes one trip over the link, without a fence or a flag. There are
 * two inboxes, used in turn. The one that a sum writes has been read:
 * the ranks read it two sums ago, and they sent their values of the last sum only after that.
 *
 * Large sums of two ranks: the ranks meet, each reads the other's part while it adds, and they meet
 * again before a part is overwritten. With more ranks each adds every n-th row and stores the sum
 * to all ranks' parts. They meet again, and each adds the sums to its residual. So a rank reads and
 * writes each row once over the link, whatever the number of ranks.
 *
 * The blocks of one number on all ranks meet: each stores a count to a flag of every other and
 * waits for theirs. All counts are in device memory, so a recorded launch can be repeated. All
 * ranks launch the same grids in the same order, and all sums of a group have as many columns.
 *
 * Launch: small sums: a block per row. Large ones: two blocks per multiprocessor, which take rows
 * in turn. The next kernel may start and load its weights meanwhile. */
#include "backend/cuda/ranks/ranks.cuh"
#include "backend/cuda/rows/row_norm.cuh"

namespace {

struct params {
    cuda_ranks ranks;
    uint4 *residual, *out; // [rows][vectors]
    const float4 *norm; // [vectors * 2] or NULL
    int rows, vectors;
    bool is_first;
    float eps;
};

__device__ __forceinline__ uint32_t load_acquire(const uint32_t *from) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
__device__ __forceinline__ void store_release(uint32_t *to, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// 16 bytes of another rank, not from the L1.
__device__ __forceinline__ uint4 load_part(const uint4 *from) {
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

// Two flagged values of 8 bytes: `low` and `high` with the number of the sum.
__device__ __forceinline__ void store_flagged(ulonglong2 *to, uint32_t low, uint32_t high,
                                              uint32_t number) {
    uint64_t flag = static_cast<uint64_t>(number) << 32;
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1,%2};" ::"l"(to), "l"(flag | low),
                 "l"(flag | high)
                 : "memory");
}
__device__ __forceinline__ ulonglong2 load_flagged(const ulonglong2 *from) {
    ulonglong2 v;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1}, [%2];"
                 : "=l"(v.x), "=l"(v.y)
                 : "l"(from)
                 : "memory");
    return v;
}
__device__ __forceinline__ bool has_flag(const ulonglong2 &v, uint32_t number) {
    return static_cast<uint32_t>(v.x >> 32) == number && static_cast<uint32_t>(v.y >> 32) == number;
}

__device__ __forceinline__ uint32_t *flag_of(const cuda_ranks &r, uint32_t owner, uint32_t writer,
                                             uint32_t place) {
    auto flags = reinterpret_cast<uint32_t *>(r.memory[owner] + r.flags_at);
    return flags + writer * (CUDA_REDUCE_BLOCKS + 1) + place;
}
__device__ __forceinline__ volatile uint32_t *counts_of(const cuda_ranks &r) {
    return reinterpret_cast<volatile uint32_t *>(r.memory[r.rank] + r.counts_at);
}
__device__ __forceinline__ uint4 *partial_of(const cuda_ranks &r, uint32_t rank) {
    return reinterpret_cast<uint4 *>(r.memory[rank] + r.partial_at);
}

// Returns when this block of all ranks has come here, or a rank is lost. What the others wrote
// before is then visible to this block.
__device__ void meet(const cuda_ranks &r, uint32_t place) {
    volatile uint32_t *count = counts_of(r) + place;
    __syncthreads();
    uint32_t number = *count + 1, other = threadIdx.x;
    if (other < r.world_size && other != r.rank) {
        __threadfence_system();
        store_release(flag_of(r, other, r.rank, place), number);
        const uint32_t *flag = flag_of(r, r.rank, other, place);
        wait_watch watch;
        for (uint32_t polls = 1;; polls++) {
            uint32_t seen = load_acquire(flag);
            if (static_cast<int32_t>(seen - number) >= 0) break;
            if (is_lost(r, polls)) break;
            watch.turn("rank", static_cast<int>(other), number, seen);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) *count = number;
}

__device__ __forceinline__ void add_part(float (&sums)[8], uint4 part) {
#pragma unroll
    for (int j = 0; j < 8; j++) sums[j] += bf16_element(part, j);
}

__device__ __forceinline__ uint4 load_residual(const params &p, size_t at) {
    return p.is_first ? make_uint4(0, 0, 0, 0) : of_step(p.residual)[at];
}

// Stores residual + sums as the residual's vector `at`, and returns it.
__device__ __forceinline__ uint4 add_to_residual(const params &p, size_t at, uint4 residual,
                                                 float (&sums)[8]) {
    add_part(sums, residual);
    uint4 v = pack_bf16(sums);
    of_step(p.residual)[at] = v;
    return v;
}

template <int TURNS>
__device__ __forceinline__ void norm_row(const params &p, const norm_weights<TURNS> &weights,
                                         const uint4 (&row)[TURNS], float squares, size_t start) {
    if (!p.norm) return;
    float scale = rsqrtf(norm_block_sum(squares) / (p.vectors * 8) + p.eps);
    weights.store(p.out + start, row, scale, p.vectors);
}

// This row of rank `writer`'s inbox at rank `owner`.
__device__ __forceinline__ ulonglong2 *inbox_of(const params &p, uint32_t owner, uint32_t writer,
                                                uint32_t number) {
    const cuda_ranks &r = p.ranks;
    size_t inbox = (number % 2 * r.world_size + writer) * r.small_bytes * 2;
    char *at = r.memory[owner] + r.inbox_at + inbox;
    return reinterpret_cast<ulonglong2 *>(at) + (size_t)blockIdx.x * p.vectors * 2;
}

// A vector of another rank, once it has come.
__device__ __forceinline__ uint4 take_vector(const params &p, const ulonglong2 *from,
                                             uint32_t number, uint32_t writer) {
    wait_watch watch;
    for (uint32_t polls = 1;; polls++) {
        ulonglong2 low = load_flagged(from), high = load_flagged(from + 1);
        if (has_flag(low, number) && has_flag(high, number)) {
            return make_uint4(static_cast<uint32_t>(low.x), static_cast<uint32_t>(low.y),
                              static_cast<uint32_t>(high.x), static_cast<uint32_t>(high.y));
        }
        if (is_lost(p.ranks, polls)) return make_uint4(0, 0, 0, 0);
        watch.turn("a part of rank", static_cast<int>(writer), number, low.x >> 32);
    }
}

template <int TURNS>
__global__ void __launch_bounds__(NORM_THREADS_MAX)
    reduce_small_kernel(const __grid_constant__ params p) {
    let_next_start();
    norm_weights<TURNS> weights;
    weights.load_ahead(p.norm, p.vectors);
    wait_for_earlier();
    const cuda_ranks &r = p.ranks;
    volatile uint32_t *count = of_step(counts_of(r)) + CUDA_REDUCE_BLOCKS + 1 + blockIdx.x;
    uint32_t number = *count + 1;
    uint4 row[TURNS], residual[TURNS]; // row: this rank's part, then the new residual
    float squares = 0;
    size_t start = (size_t)blockIdx.x * p.vectors;
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i >= p.vectors) break;
        row[t] = partial_of(r, r.rank)[start + i];
        residual[t] = load_residual(p, start + i); // while the others' parts are on their way
        for (uint32_t other = 0; other < r.world_size; other++) {
            if (other == r.rank) continue;
            ulonglong2 *to = inbox_of(p, other, r.rank, number) + i * 2;
            store_flagged(to, row[t].x, row[t].y, number);
            store_flagged(to + 1, row[t].z, row[t].w, number);
        }
    }
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i >= p.vectors) break;
        float sums[8] = {};
        for (uint32_t k = 0; k < r.world_size; k++) {
            bool is_own = k == r.rank;
            add_part(sums, is_own
                               ? row[t]
                               : take_vector(p, inbox_of(p, r.rank, k, number) + i * 2, number, k));
        }
        row[t] = add_to_residual(p, start + i, residual[t], sums);
        squares += sum_of_squares(row[t]);
    }
    norm_row(p, weights, row, squares, start);
    __syncthreads(); // all have read the count
    if (threadIdx.x == 0) *count = number;
}

// The sum of a vector over all ranks.
__device__ __forceinline__ void sum_parts(const cuda_ranks &r, size_t at, float (&sums)[8]) {
    uint4 parts[CUDA_RANKS_MAX]; // all loads are under way before the first is used
#pragma unroll
    for (uint32_t k = 0; k < CUDA_RANKS_MAX; k++) {
        if (k < r.world_size) parts[k] = load_part(partial_of(r, k) + at);
    }
#pragma unroll
    for (uint32_t k = 0; k < CUDA_RANKS_MAX; k++) {
        if (k < r.world_size) add_part(sums, parts[k]);
    }
}

// Two ranks: adds the other's part on the way to the residual.
template <int TURNS>
__device__ void reduce_pair(const params &p, const norm_weights<TURNS> &weights) {
    const uint4 *first = partial_of(p.ranks, 0), *second = partial_of(p.ranks, 1);
    for (int r = blockIdx.x; r < p.rows; r += gridDim.x) {
        uint4 row[TURNS], other[TURNS], residual[TURNS];
        float squares = 0;
        size_t start = (size_t)r * p.vectors;
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int i = t * blockDim.x + threadIdx.x;
            if (i >= p.vectors) break;
            row[t] = load_part(first + start + i);
            other[t] = load_part(second + start + i);
            residual[t] = load_residual(p, start + i);
        }
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int i = t * blockDim.x + threadIdx.x;
            if (i >= p.vectors) break;
            float sums[8] = {};
            add_part(sums, row[t]);
            add_part(sums, other[t]);
            row[t] = add_to_residual(p, start + i, residual[t], sums);
            squares += sum_of_squares(row[t]);
        }
        norm_row(p, weights, row, squares, start);
        __syncthreads(); // the norm's shared memory is free again
    }
    meet(p.ranks, blockIdx.x); // the other has read this rank's part
}

// More ranks: sums this rank's rows for all ranks, then adds all rows to the residual. One rank
// (with NCCL): its part is the sum already.
template <int TURNS>
__device__ void reduce_shares(const params &p, const norm_weights<TURNS> &weights) {
    const cuda_ranks &ranks = p.ranks;
    uint32_t turn = 0;
    for (int r = blockIdx.x; ranks.world_size > 1 && r < p.rows; r += gridDim.x, turn++) {
        // Begins with this block's number, so that few rows go to different ranks too.
        if ((blockIdx.x + turn) % ranks.world_size != ranks.rank) continue;
        size_t start = (size_t)r * p.vectors;
        for (int i = threadIdx.x; i < p.vectors; i += blockDim.x) {
            float sums[8] = {};
            sum_parts(ranks, start + i, sums);
            uint4 v = pack_bf16(sums);
            // Nobody else reads or writes this row of the parts before the barrier.
            for (uint32_t k = 0; k < ranks.world_size; k++) partial_of(ranks, k)[start + i] = v;
        }
    }
    meet(ranks, blockIdx.x);
    for (int r = blockIdx.x; r < p.rows; r += gridDim.x) {
        uint4 row[TURNS];
        float squares = 0;
        size_t start = (size_t)r * p.vectors;
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int i = t * blockDim.x + threadIdx.x;
            if (i >= p.vectors) break;
            float sums[8] = {};
            add_part(sums, load_part(partial_of(ranks, ranks.rank) + start + i));
            row[t] = add_to_residual(p, start + i, load_residual(p, start + i), sums);
            squares += sum_of_squares(row[t]);
        }
        norm_row(p, weights, row, squares, start);
        __syncthreads();
    }
}

template <int TURNS>
__global__ void __launch_bounds__(NORM_THREADS_MAX, TURNS <= 2 ? 2 : 1)
    reduce_large_kernel(const __grid_constant__ params p) {
    let_next_start();
    norm_weights<TURNS> weights;
    weights.load_ahead(p.norm, p.vectors);
    wait_for_earlier();
    meet(p.ranks, blockIdx.x); // all parts are there
    if (p.ranks.world_size == 2) {
        reduce_pair(p, weights);
    } else {
        reduce_shares(p, weights);
    }
}

__global__ void meet_kernel(const __grid_constant__ cuda_ranks ranks) {
    let_next_start();
    wait_for_earlier();
    meet(ranks, CUDA_REDUCE_BLOCKS);
}

params params_of(const cuda_reduce *args) {
    params p = {};
    p.ranks = args->ranks;
    p.residual = static_cast<uint4 *>(args->residual);
    p.out = static_cast<uint4 *>(args->out);
    p.norm = reinterpret_cast<const float4 *>(args->norm);
    p.rows = static_cast<int>(args->rows);
    p.vectors = static_cast<int>(args->cols / 8);
    p.is_first = args->is_first;
    p.eps = args->eps;
    return p;
}

} // namespace

extern "C" void cuda_reduce_small_launch(const struct cuda_reduce *args,
                                         const struct cuda_device_info *info, cudaStream_t stream) {
    const params p = params_of(args);
    int turns = norm_turns(p.vectors);
    auto kernel = turns == 1   ? reduce_small_kernel<1>
                  : turns == 2 ? reduce_small_kernel<2>
                               : reduce_small_kernel<NORM_TURNS_MAX>;
    launch_dependent(kernel, dim3(args->rows), norm_threads(p.vectors), 0, info, stream, p);
}

extern "C" void cuda_reduce_large_launch(const struct cuda_reduce *args,
                                         const struct cuda_device_info *info, cudaStream_t stream) {
    const params p = params_of(args);
    int turns = norm_turns(p.vectors);
    auto kernel = turns == 1   ? reduce_large_kernel<1>
                  : turns == 2 ? reduce_large_kernel<2>
                               : reduce_large_kernel<NORM_TURNS_MAX>;
    // All blocks must run at the same time, on GPUs of any size.
    uint32_t blocks = CUDA_REDUCE_BLOCKS, most = static_cast<uint32_t>(info->num_sms) * 2;
    if (turns > 2) most /= 2;
    if (blocks > most) blocks = most;
    if (blocks > args->rows) blocks = args->rows;
    launch_dependent(kernel, dim3(blocks), norm_threads(p.vectors), 0, info, stream, p);
}

extern "C" void cuda_ranks_meet_launch(const struct cuda_ranks *ranks,
                                       const struct cuda_device_info *info, cudaStream_t stream) {
    launch_dependent(meet_kernel, dim3(1), 32, 0, info, stream, *ranks);
}

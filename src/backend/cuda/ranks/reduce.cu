/* Sums over the ranks of a tensor-parallel group, each on a GPU that reaches the memory of the
 * others: residual += the parts of all ranks, and the RMS norm that follows. Every rank adds the
 * parts in the order of the ranks, so all have the same bits.
 *
 * Small sums: each rank stores its part to an inbox at each of the others, 16 bytes at a time, and
 * adds what comes to its own inboxes. A word of an inbox that has not come yet is ABSENT, which no
 * part contains. So a sum takes one trip over the link, without a fence, a flag or a number, and
 * sends no byte more than the part. Whoever has read a word makes it ABSENT again. (The idea is
 * Lamport's; TensorRT-LLM sums so.)
 *
 * Each row has two inboxes for each writer, used in turn. A word in device memory says which is
 * next, and each sum of the row flips it. Nothing is counted, so nothing can wrap around. When rank
 * A writes to rank B in sum n of a row, that inbox is ABSENT: B has read it in sum n - 2 of that
 * row. The kernel in which B did so had ended before B sent its part of sum n - 1. A has waited for
 * that part, in a kernel that ended before this one stores anything. Large sums and sums of fewer
 * rows may come in between: they touch neither the row's inboxes nor its word.
 *
 * Large sums of two ranks: the ranks meet, each reads the other's part while it adds, and they meet
 * again before a part is overwritten. With more ranks each adds every n-th row and stores the sum
 * to all ranks' parts. They meet again, and each adds the sums to its residual. So a rank reads and
 * writes each row once over the link, whatever the number of ranks.
 *
 * The blocks of one number on all ranks meet: each counts its meetings, stores the count to a flag
 * of every other, and waits for theirs. The flags that it sees are at most 1 away from its own
 * count: another block has stored the count of the meeting before, and to store that of the next
 * one it has to see this block's count. So the sign of the difference is right, also after the
 * counts have wrapped around.
 *
 * All state is in device memory, so a recorded launch can be repeated. All ranks launch the same
 * sums in the same order, and all sums of a group have as many columns.
 *
 * Launch: as many blocks as run at the same time, which take rows in turn. In a small sum a block
 * sends its next row before it waits for the present one. The next kernel may start and load its
 * weights meanwhile. */
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

// 16 bytes that another rank reads or writes, not from the L1. Each 4 bytes are one access.
__device__ __forceinline__ uint4 load_part(const uint4 *from) {
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}
__device__ __forceinline__ void store_part(uint4 *to, uint4 v) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

// Two NaNs. A part that has just these bits is sent as two other NaNs.
constexpr uint32_t ABSENT = CUDA_REDUCE_ABSENT_BYTE * 0x01010101u, OTHER_NANS = 0x7fff7fff;

__device__ __forceinline__ uint32_t without_absent(uint32_t word) {
    return word == ABSENT ? OTHER_NANS : word;
}
__device__ __forceinline__ bool has_come(uint4 v) {
    return v.x != ABSENT && v.y != ABSENT && v.z != ABSENT && v.w != ABSENT;
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

// Which of its two inboxes a row uses next, 0 or 1. Behind the counts of meetings.
__device__ __forceinline__ volatile uint32_t *next_inbox(const cuda_ranks &r, int row) {
    return of_step(counts_of(r)) + CUDA_REDUCE_BLOCKS + 1 + row;
}

// The inbox of a row at rank `owner` for the part of rank `writer`, another one.
__device__ __forceinline__ uint4 *inbox_of(const params &p, uint32_t owner, uint32_t writer,
                                           uint32_t which, int row) {
    const cuda_ranks &r = p.ranks;
    uint32_t among_others = writer < owner ? writer : writer - 1;
    size_t at = (which * (r.world_size - 1) + among_others) * r.small_bytes;
    return reinterpret_cast<uint4 *>(r.memory[owner] + r.inbox_at + at) + (size_t)row * p.vectors;
}

// Sends this rank's part of a row to all others. Returns which inbox it is in.
__device__ __forceinline__ uint32_t send_row(const params &p, int row) {
    const cuda_ranks &r = p.ranks;
    uint32_t which = *next_inbox(r, row);
    for (int i = threadIdx.x; i < p.vectors; i += blockDim.x) {
        uint4 v = partial_of(r, r.rank)[(size_t)row * p.vectors + i];
        v = make_uint4(without_absent(v.x), without_absent(v.y), without_absent(v.z),
                       without_absent(v.w));
        for (uint32_t k = 0; k < r.world_size; k++) {
            if (k != r.rank) store_part(inbox_of(p, k, r.rank, which, row) + i, v);
        }
    }
    return which;
}

// A vector of another rank, once it has come. Empties its place.
__device__ __forceinline__ uint4 take_vector(const cuda_ranks &r, uint4 *from, uint32_t writer) {
    wait_watch watch;
    for (uint32_t polls = 1;; polls++) {
        uint4 v = load_part(from);
        if (has_come(v)) {
            store_part(from, make_uint4(ABSENT, ABSENT, ABSENT, ABSENT));
            return v;
        }
        if (is_lost(r, polls)) return make_uint4(0, 0, 0, 0);
        watch.turn("a part of rank", static_cast<int>(writer), 0, v.x);
    }
}

// Adds the parts of a row that this rank has sent to the residual, and norms it.
template <int TURNS>
__device__ void take_row(const params &p, const norm_weights<TURNS> &weights, int r,
                         uint32_t which) {
    const cuda_ranks &ranks = p.ranks;
    uint4 row[TURNS], residual[TURNS]; // row: this rank's part, then the new residual
    float squares = 0;
    size_t start = (size_t)r * p.vectors;
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i >= p.vectors) break;
        row[t] = partial_of(ranks, ranks.rank)[start + i];
        residual[t] = load_residual(p, start + i); // while the others' parts are on their way
    }
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i >= p.vectors) break;
        float sums[8] = {};
        for (uint32_t k = 0; k < ranks.world_size; k++) {
            bool is_own = k == ranks.rank;
            add_part(sums, is_own
                               ? row[t]
                               : take_vector(ranks, inbox_of(p, ranks.rank, k, which, r) + i, k));
        }
        row[t] = add_to_residual(p, start + i, residual[t], sums);
        squares += sum_of_squares(row[t]);
    }
    norm_row(p, weights, row, squares, start);
    __syncthreads(); // all have read which inbox it is; the norm's shared memory is free again
    if (threadIdx.x == 0) *next_inbox(ranks, r) = which ^ 1;
}

template <int TURNS>
__global__ void __launch_bounds__(NORM_THREADS_MAX, TURNS <= 2 ? 2 : 1)
    reduce_small_kernel(const __grid_constant__ params p) {
    let_next_start();
    norm_weights<TURNS> weights;
    weights.load_ahead(p.norm, p.vectors);
    wait_for_earlier();
    int row = blockIdx.x;
    uint32_t which = send_row(p, row);
    while (row < p.rows) {
        int next = row + gridDim.x;
        uint32_t next_which = next < p.rows ? send_row(p, next) : 0;
        take_row(p, weights, row, which);
        row = next;
        which = next_which;
    }
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

// As many blocks as run at the same time, on GPUs of any size: a block that waits for another rank
// must not keep a block from running that the other rank waits for.
dim3 blocks_of(const params &p, const cuda_device_info *info) {
    unsigned threads = norm_turns(p.vectors) <= 2 ? 2 * NORM_THREADS_MAX : NORM_THREADS_MAX;
    unsigned blocks = static_cast<unsigned>(info->num_sms) * (threads / norm_threads(p.vectors));
    if (blocks > CUDA_REDUCE_BLOCKS) blocks = CUDA_REDUCE_BLOCKS;
    if (blocks > static_cast<unsigned>(p.rows)) blocks = static_cast<unsigned>(p.rows);
    return dim3(blocks);
}

} // namespace

extern "C" void cuda_reduce_small_launch(const struct cuda_reduce *args,
                                         const struct cuda_device_info *info, cudaStream_t stream) {
    const params p = params_of(args);
    int turns = norm_turns(p.vectors);
    auto kernel = turns == 1   ? reduce_small_kernel<1>
                  : turns == 2 ? reduce_small_kernel<2>
                               : reduce_small_kernel<NORM_TURNS_MAX>;
    launch_dependent(kernel, blocks_of(p, info), norm_threads(p.vectors), 0, info, stream, p);
}

extern "C" void cuda_reduce_large_launch(const struct cuda_reduce *args,
                                         const struct cuda_device_info *info, cudaStream_t stream) {
    const params p = params_of(args);
    int turns = norm_turns(p.vectors);
    auto kernel = turns == 1   ? reduce_large_kernel<1>
                  : turns == 2 ? reduce_large_kernel<2>
                               : reduce_large_kernel<NORM_TURNS_MAX>;
    launch_dependent(kernel, blocks_of(p, info), norm_threads(p.vectors), 0, info, stream, p);
}

extern "C" void cuda_ranks_meet_launch(const struct cuda_ranks *ranks,
                                       const struct cuda_device_info *info, cudaStream_t stream) {
    launch_dependent(meet_kernel, dim3(1), 32, 0, info, stream, *ranks);
}

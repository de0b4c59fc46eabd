/* Finds the smallest set of best tokens with a given count or mass, without sorting. Keys are
 * counted into 2048 bins that divide the range. The bin that reaches the target is the next range.
 * Keys have about 50 bits and are distinct, so at most five rounds are needed. Real logits need two
 * or three, and tiles whose maximum is too small are not read.
 *
 * A team works on a row: one block, or the blocks of a cluster. Its blocks take every n-th tile and
 * add up their bins in global memory. All sums are integers, so results do not depend on the team's
 * size. */
#pragma once

#include <nv/target>

#include "backend/cuda/sample/row.cuh"

namespace {

constexpr int THREADS = 512, WARPS = THREADS / 32;
constexpr int BIN_BITS = 11, NUM_BINS = 1 << BIN_BITS, BINS_PER_THREAD = NUM_BINS / THREADS;

// One round's bins of a row in global memory. There are three: one is filled while the next is
// zeroed and the previous may still be read.
struct team_bins {
    mass64 mass[NUM_BINS];
    uint32_t count[NUM_BINS];
};

constexpr uint64_t NO_KEY = ~0ull; // larger than any key

// A row's team. Lies in shared memory.
struct row_team {
    int rank, size; // rank of this block; number of blocks
    int round; // number of the bins' current round
    team_bins *bins; // [3]; round 0's must start as zeros. Unused with size 1
    mass64 *masses; // [num_tiles] weight of each tile, for choosing the tile of a draw
};

struct block_space {
    uint32_t count[NUM_BINS];
    uint32_t mass_low[NUM_BINS], mass_high[NUM_BINS]; // 64-bit sums by native 32-bit atomics
    mass64 reduced[WARPS];
    double reduced_double[WARPS];
    float reduced_float[WARPS];
    mass64 before; // sum of the bins before `bin`
    int bin;
    float bound;
    uint32_t num_listed;
    uint64_t listed[SAMPLE_TOP_MAX];
};

// Barrier of the team. Writes to global memory before it are visible after it, through __ldcg.
__device__ __forceinline__ void team_barrier(const row_team &team) {
    if (team.size == 1) {
        __syncthreads();
        return;
    }
    __threadfence();
    NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("barrier.cluster.arrive.release;\n\t"
                                                  "barrier.cluster.wait.acquire;" ::
                                                      : "memory");))
}

// The largest of the block's values.
__device__ float block_max(block_space &s, float value) {
    value = warp_max(value);
    __syncthreads(); // all have read the last call's results
    if (threadIdx.x % 32 == 0) s.reduced_float[threadIdx.x / 32] = value;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) value = fmaxf(value, s.reduced_float[w]);
    return value;
}

// The sum of the block's values, always added in the same order.
__device__ double block_sum(block_space &s, double value) {
    for (int offset = 16; offset; offset >>= 1) {
        value += __shfl_xor_sync(FULL_WARP, value, offset);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) s.reduced_double[threadIdx.x / 32] = value;
    __syncthreads();
    double sum = 0;
    for (int w = 0; w < WARPS; w++) sum += s.reduced_double[w];
    return sum;
}

// Inclusive prefix sum over the block's threads. *total is the sum of all values.
__device__ mass64 block_scan(block_space &s, mass64 value, mass64 *total) {
    int warp = threadIdx.x / 32;
    mass64 sum = warp_scan(value), before = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 31) s.reduced[warp] = sum;
    __syncthreads();
    *total = 0;
    for (int w = 0; w < WARPS; w++) {
        if (w < warp) before += s.reduced[w];
        *total += s.reduced[w];
    }
    return before + sum;
}

// The k-th largest of the tiles' maxima, so at least k tokens are at least as good. -inf if there
// are fewer than k tiles, or more than NUM_BINS.
__device__ float tile_max_of_rank(const row_view &v, block_space &s, int k) {
    int n = v.num_tiles;
    if (k > n || n > NUM_BINS) return -INFINITY;
    float *maxima = reinterpret_cast<float *>(s.count);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS) maxima[i] = tile_max(v, i);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS) {
        float mine = maxima[i];
        int rank = 0;
#pragma unroll 8
        for (int j = 0; j < n; j++) {
            rank += maxima[j] > mine || (maxima[j] == mine && j < i);
        }
        if (rank == k - 1) s.bound = mine;
    }
    __syncthreads();
    float bound = s.bound;
    __syncthreads();
    return bound;
}

// Adds one token per active lane to its bin.
__device__ __forceinline__ void add_tokens(block_space &s, unsigned active, int bin, mass64 mass) {
    int same;
    __match_all_sync(active, bin, &same);
    uint32_t count = 1;
    if (same) { // equal logits would make all lanes' atomics collide
        constexpr int HALF = 22;
        uint32_t low = static_cast<uint32_t>(mass & ((1u << HALF) - 1));
        low = __reduce_add_sync(active, low);
        uint32_t high = __reduce_add_sync(active, static_cast<uint32_t>(mass >> HALF));
        mass = (static_cast<mass64>(high) << HALF) + low;
        count = __popc(active);
        if (static_cast<int>(threadIdx.x % 32) != __ffs(active) - 1) return;
    }
    atomicAdd(&s.count[bin], count);
    if (!mass) return;
    uint32_t low = static_cast<uint32_t>(mass), high = static_cast<uint32_t>(mass >> 32);
    high += atomicAdd(&s.mass_low[bin], low) + low < low; // plus the carry
    if (high) atomicAdd(&s.mass_high[bin], high);
}

// Counts this block's tokens with keys from `low` to `high` into bins of 2^shift keys.
__device__ void fill_bins(const row_view &v, const row_team &team, block_space &s, uint64_t low,
                          uint64_t high, int shift, bool by_mass) {
    __syncthreads();
    for (int b = threadIdx.x; b < NUM_BINS; b += THREADS) {
        s.count[b] = s.mass_low[b] = s.mass_high[b] = 0;
    }
    __syncthreads();
    float least = key_logit(v, high);
    for (int t = team.rank * WARPS + threadIdx.x / 32; t < v.num_tiles; t += team.size * WARPS) {
        if (!(tile_max(v, t) >= least)) continue;
        float x[LANE_VALUES];
        const tile_place place = load_tile(v, t, x);
#pragma unroll
        for (int i = 0; i < LANE_VALUES; i++) {
            int id = value_id(place.first, i);
            uint64_t key = key_of(v, x[i], id);
            bool inside = x[i] >= least && id < place.end && key >= low && key <= high;
            unsigned active = __ballot_sync(FULL_WARP, inside);
            if (!inside) continue;
            add_tokens(s, active, static_cast<int>((key - low) >> shift),
                       by_mass ? mass_of(v, x[i]) : 0);
        }
    }
    __syncthreads();
}

__device__ mass64 bin_mass(const block_space &s, int bin) {
    return static_cast<mass64>(s.mass_high[bin]) << 32 | s.mass_low[bin];
}

// Adds up the bins of the team's blocks. All blocks get the sums.
__device__ void merge_bins(row_team &team, block_space &s) {
    if (team.size == 1) return;
    team_bins &sums = team.bins[team.round % 3], &next = team.bins[(team.round + 1) % 3];
    for (int b = threadIdx.x; b < NUM_BINS; b += THREADS) {
        if (s.count[b]) {
            atomicAdd(&sums.count[b], s.count[b]);
            atomicAdd(&sums.mass[b], bin_mass(s, b));
        }
        if (team.rank == 0) {
            next.count[b] = 0;
            next.mass[b] = 0;
        }
    }
    team_barrier(team);
    for (int b = threadIdx.x; b < NUM_BINS; b += THREADS) {
        mass64 mass = __ldcg(&sums.mass[b]);
        s.count[b] = __ldcg(&sums.count[b]);
        s.mass_low[b] = static_cast<uint32_t>(mass);
        s.mass_high[b] = static_cast<uint32_t>(mass >> 32);
    }
    if (threadIdx.x == 0) team.round++; // all have read it before the team's barrier
    __syncthreads();
}

// The bin in which the running sum reaches `target` (at least 1). -1: none does. *before: sum of
// the bins before it.
__device__ int find_bin(block_space &s, mass64 target, bool by_mass, mass64 *before) {
    mass64 own[BINS_PER_THREAD], sum = 0, total;
    int first = threadIdx.x * BINS_PER_THREAD;
#pragma unroll
    for (int i = 0; i < BINS_PER_THREAD; i++) {
        own[i] = by_mass ? bin_mass(s, first + i) : s.count[first + i];
        sum += own[i];
    }
    mass64 end = block_scan(s, sum, &total);
    mass64 running = end - sum;
    if (threadIdx.x == 0) s.bin = -1;
    __syncthreads();
    if (running < target && end >= target) {
        int bin = first;
#pragma unroll
        for (int i = 0; i < BINS_PER_THREAD - 1; i++) {
            if (bin == first + i && running + own[i] < target) {
                running += own[i];
                bin++;
            }
        }
        s.bin = bin;
        s.before = running;
    }
    __syncthreads();
    *before = s.before;
    return s.bin;
}

// The end key of the smallest set of best tokens that reaches `target` tokens or mass. Considers
// keys up to `last`; returns NO_KEY if those do not reach it. Not inlined, because it is large and
// called from many places. Its reference arguments are in shared memory.
__device__ __noinline__ uint64_t select_best(const row_view &v, row_team &team, block_space &s,
                                             uint64_t last, mass64 target, bool by_mass) {
    uint64_t low = key_of(v, v.max, 0), high = last;
    for (;;) {
        int width = high > low ? 64 - __clzll(static_cast<long long>(high - low)) : 0;
        int shift = width > BIN_BITS ? width - BIN_BITS : 0;
        fill_bins(v, team, s, low, high, shift, by_mass);
        merge_bins(team, s);
        mass64 before;
        int bin = find_bin(s, target, by_mass, &before);
        if (bin < 0) return NO_KEY; // can only happen in the first round
        low += static_cast<uint64_t>(bin) << shift;
        uint64_t end = low + (1ull << shift) - 1;
        high = end < high ? end : high;
        target -= before;
        uint32_t count = s.count[bin];
        if (shift == 0 || count == 1 || (!by_mass && target == count)) return high;
    }
}

} // namespace

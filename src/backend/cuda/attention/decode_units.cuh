/* The work units of attention/decode.cu's blocks, and the warp that prepares them. It loads
 * lengths, places and heads two units ahead of the attending warps, so these find everything in
 * shared memory. Otherwise the chain of loads item, token, heads, position would take longer than a
 * short sequence's tiles. */
#pragma once

#include "backend/cuda/attention/decode_copies.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int UNITS_AHEAD = CUDA_DECODE_UNITS_AHEAD;
constexpr int ATTENDING = WARPS * 32, ALL_THREADS = ATTENDING + 32; // of a block

// Named barriers: of the attending warps; slot filled; slot emptied. Each slot has its own pair.
enum { ATTENDING_BARRIER = 1, FULL_BARRIER = 2, EMPTY_BARRIER = FULL_BARRIER + UNITS_AHEAD };
static_assert(UNITS_AHEAD == 2, "slot_wait, slot_arrive");

__device__ __forceinline__ void slot_wait(int barrier, int slot) {
    if (slot) {
        named_wait(barrier + 1, ALL_THREADS);
    } else {
        named_wait(barrier, ALL_THREADS);
    }
}
__device__ __forceinline__ void slot_arrive(int barrier, int slot) {
    if (slot) {
        named_arrive(barrier + 1, ALL_THREADS);
    } else {
        named_arrive(barrier, ALL_THREADS);
    }
}

// One item for one group of queries.
struct decode_unit : heads_unit {
    int seq, length, split; // of the item; seq: in the step, not its row of the block tables
    bool is_there; // false: no more units
};

struct windowed_unit : decode_unit {
    int skip; // the item's first positions that the query does not see
};

// Where attention/shared_sm90.cu left the splits of the sequence's shared prefix: the first one's
// slot in `partial`, and their number. Only one item of the sequence has them. 0: none.
struct plain_unit : decode_unit {
    uint32_t prefix;

    __device__ __forceinline__ int first_prefix_split() const {
        return prefix / (CUDA_SHARED_SPLITS_MAX + 1);
    }
    __device__ __forceinline__ int num_prefix_splits() const {
        return prefix % (CUDA_SHARED_SPLITS_MAX + 1);
    }
};

template <bool EXTRAS> struct unit_of { using type = plain_unit; };
template <> struct unit_of<true> { using type = windowed_unit; };

template <int D, bool EXTRAS, bool CODES> struct __align__(16) unit_slot {
    unit_heads<D, CODES> heads;
    typename unit_of<EXTRAS>::type unit;
};

// Walks over a block's units. The next unit's loads run while the current one is used.
template <bool EXTRAS> struct unit_walk {
    using unit = typename unit_of<EXTRAS>::type;
    const decode_params &p;
    int group; // queries of a kv head
    work_place place;
    bool is_there;
    int4 token; // the item's second half

    __device__ __forceinline__ explicit unit_walk(const decode_params &params)
        : p(params), group(p.num_heads / p.num_kv_heads), place(work_start()), is_there(false),
          token() {
        load();
    }
    __device__ __forceinline__ void load() {
        is_there = place.next(p);
        if (is_there) token = reinterpret_cast<const int4 *>(p.items)[place.item * 2 + 1];
    }
    __device__ __forceinline__ unit take() {
        unit u = {};
        if (!is_there) return u;
        u.seq = token.w >> 1, u.length = place.range.z - place.range.y, u.split = place.range.w;
        u.token = token.x, u.position = token.y, u.slot = token.z;
        u.kv_head = place.kv_head;
        u.first_head = u.kv_head * group + place.first_query;
        u.num_queries = min(group - place.first_query, GROUP);
        u.has_new = p.prepares && (token.w & 1);
        u.writes_cache = u.has_new && place.first_query == 0 && u.slot >= 0;
        u.is_there = true;
        if constexpr (EXTRAS) {
            if (p.window.size) {
                u.skip = max(p.window.first_seen(u.position) - place.range.y, 0);
            }
        } else if (p.has_prefixes && token.w & 1) {
            int4 splits = p.splits[u.seq];
            u.prefix = splits.z * (CUDA_SHARED_SPLITS_MAX + 1) + splits.w;
        }
        load();
        return u;
    }
};

// Prefetches a unit's heads and its row of the rotary table into the L1.
template <int D>
__device__ __forceinline__ void prefetch_unit(const decode_params &p, const decode_unit &u,
                                              int lane) {
    constexpr int LINES = (D * 2 + 127) / 128, LINE = 64; // of a head; elements
    if (!u.is_there) return;
    for (int i = lane; i < u.num_tasks() * LINES; i += 32) {
        prefetch_line(head_of<D>(p, u, i / LINES) + i % LINES * LINE);
    }
    if (p.prepares) prefetch_floats(p.rope + (size_t)u.position * D, D, lane);
}
template <int D>
__device__ __forceinline__ void prefetch_prefix(const decode_params &p, const plain_unit &u,
                                                int lane) {
    constexpr int STRIDE = D + 2, LINE = 32; // elements
    if (!u.is_there || !u.prefix) return;
    int count = u.num_queries * STRIDE, lines = count / LINE + 1; // of a split
    for (int i = lane; i < u.num_prefix_splits() * lines; i += 32) {
        size_t slot = u.first_prefix_split() + i / lines;
        prefetch_line(p.partial + (slot * p.num_heads + u.first_head) * STRIDE +
                      min(i % lines * LINE, count - 1));
    }
}

// Run by one warp: prepares all units of the block in turn, then stores one with is_there = false.
template <int D, bool EXTRAS, bool CODES>
__device__ __forceinline__ void prepare_units(const decode_params &p,
                                              unit_slot<D, EXTRAS, CODES> *slots, int lane) {
    unit_walk<EXTRAS> walk(p);
    auto u = walk.take();
    prefetch_floats(p.q_norm, D, lane);
    prefetch_floats(p.k_norm, D, lane);
    if (p.starts_early) wait_for_earlier(); // rule 5
    for (int i = 0;; i++) {
        int number = i % UNITS_AHEAD;
        unit_slot<D, EXTRAS, CODES> &slot = slots[number];
        auto next = walk.take();
        prefetch_unit<D>(p, next, lane);
        if constexpr (!EXTRAS && !CODES) prefetch_prefix<D>(p, next, lane);
        if (i >= UNITS_AHEAD) slot_wait(EMPTY_BARRIER, number);
        if (u.is_there) {
            const float *rope = p.prepares ? p.rope + (size_t)u.position * D : nullptr;
            slot.heads.prepare_alone(p, u, rope, lane);
        }
        if (lane == 0) slot.unit = u;
        __syncwarp();
        slot_arrive(FULL_BARRIER, number);
        if (!u.is_there) return;
        u = next;
    }
}

} // namespace

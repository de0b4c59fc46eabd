/* Weights on their way from memory to a block's shared memory, ahead of their use: a ring of slots
 * that warps fill by bulk copies (cp.async.bulk, sm_90 and later) and others empty, each slot
 * handed over by a pair of mbarriers. Weights need nothing of the step, so the copies run on while
 * the readers wait for other blocks; memory never rests.
 *
 * A slot holds 8 outputs x 1,024 inputs of a matrix [out][in]; where that is whole rows they are
 * one copy, else a copy each. Issuing a copy takes a warp some 100 cycles, so copies are to be
 * large, and warps take turns.
 *
 * Rows lie a multiple of 128 bytes apart, so that 8 lanes which read 16 bytes each of two rows
 * would meet in the same banks: lanes of odd rows read the second half of a line where the others
 * read the first. */
#pragma once

#include "backend/cuda/hopper.cuh"

namespace {

constexpr int SLOT_OUTPUTS = 8, SLOT_INPUTS = 1024, SLOT_BYTES = SLOT_OUTPUTS * SLOT_INPUTS * 2;
constexpr int SLOT_STEP = 64; // inputs that are read together: a line of each row
constexpr int SLOTS_MAX = 16;
constexpr int COPYING = 4; // warps that fill
constexpr int SHARERS = 4; // warps that empty a slot together, each its share of the inputs

// Its number of slots is a power of two: divisions take longer than all else that a slot needs.
struct ring_view {
    uint32_t slots; // shared: [num_slots][SLOT_BYTES]
    uint32_t full, empty; // shared: mbarriers [num_slots] each
    int num_slots;

    __device__ __forceinline__ int slot_of(int index) const {
        return index & (num_slots - 1);
    }
    __device__ __forceinline__ uint32_t parity_of(int index) const {
        return index & num_slots ? 1 : 0;
    }
};

// A filling warp's side.
struct ring_writer {
    ring_view ring;
    uint64_t policy;
    int index; // of the next slot, since the kernel's start

    // Rows [8] of `width` inputs (at most SLOT_INPUTS), `in` elements apart. By all lanes of all
    // filling warps, of which one takes it.
    __device__ __forceinline__ void put(const __nv_bfloat16 *rows, int in, int width, int warp,
                                        int lane) {
        int i = index++;
        if (i % COPYING != warp) return;
        int slot = ring.slot_of(i);
        if (i >= ring.num_slots) {
            barrier_wait(ring.empty + slot * 8, ring.parity_of(i) ^ 1, "readers of slot", slot);
        }
        uint32_t full = ring.full + slot * 8, to = ring.slots + slot * SLOT_BYTES;
        uint32_t bytes = width * 2;
        if (lane == 0) { // rule 8
            barrier_expect(full, SLOT_OUTPUTS * bytes);
            if (width == in) copy_bulk(to, rows, SLOT_OUTPUTS * bytes, full, policy);
        }
        if (width == in) return;
        __syncwarp();
        if (lane < SLOT_OUTPUTS) {
            copy_bulk(to + lane * SLOT_INPUTS * 2, rows + (size_t)lane * in, bytes, full, policy);
        }
    }
};

// A share of a slot's sums with up to 8 rows of x, which lie `stride` bytes apart from `x` on:
// acc[0] + acc[1] are [row][output], row lane / 4, outputs lane % 4 * 2 and + 1; rows from num_rows
// on repeat the last. Every lane reads 8 consecutive inputs of weights and x alike: a sum does not
// mind in which order it takes its terms.
struct slot_reader {
    uint32_t weights, x; // this lane's, at input 0
    int is_odd;

    struct line { // SLOT_STEP inputs: two halves
        uint4 w[2], x[2];
    };

    __device__ __forceinline__ line load(int k) const {
        line l = {};
        l.w[0] = load_shared16(weights + k * 2 + is_odd * 64);
        l.w[1] = load_shared16(weights + k * 2 + (is_odd ^ 1) * 64);
        l.x[0] = load_shared16(x + k * 2);
        l.x[1] = load_shared16(x + k * 2 + 64);
        return l;
    }

    __device__ __forceinline__ void add(float (&acc)[2][4], const line &l) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint4 &a = l.x[h];
            uint4 w = is_odd ? l.w[h ^ 1] : l.w[h];
            const uint32_t first[4] = {a.x, 0, a.y, 0}, second[4] = {a.z, 0, a.w, 0};
            multiply(acc[h], first, w.x, w.y);
            multiply(acc[h], second, w.z, w.w);
        }
    }
};

__device__ __forceinline__ void take_slot(float (&acc)[2][4], const ring_view &ring, int index,
                                          int share, uint32_t x, int stride, int width, int in,
                                          int num_rows, int lane) {
    int row = lane / 4, slot = ring.slot_of(index);
    int row_bytes = width == in ? in * 2 : SLOT_INPUTS * 2;
    slot_reader reader = {};
    reader.is_odd = row & 1;
    reader.weights = ring.slots + slot * SLOT_BYTES + row * row_bytes + lane % 4 * 16;
    reader.x = x + min(row, num_rows - 1) * stride + lane % 4 * 16;
    barrier_wait(ring.full + slot * 8, ring.parity_of(index), "weights in slot", slot);
    if (width == SLOT_INPUTS) {
        constexpr int LINES = SLOT_INPUTS / SLOT_STEP / SHARERS;
        slot_reader::line lines[LINES];
#pragma unroll
        for (int i = 0; i < LINES; i++) lines[i] = reader.load((i * SHARERS + share) * SLOT_STEP);
#pragma unroll
        for (int i = 0; i < LINES; i++) reader.add(acc, lines[i]);
    } else {
        for (int k = share * SLOT_STEP; k < width; k += SHARERS * SLOT_STEP) {
            reader.add(acc, reader.load(k));
        }
    }
    __syncwarp(); // rule 9
    if (lane == 0) barrier_arrive(ring.empty + slot * 8);
}

} // namespace

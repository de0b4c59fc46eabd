/* A ring of slots in shared memory through which a block receives its weights ahead of their use.
 * Some warps fill the slots by bulk copies (cp.async.bulk, sm_90 and later), others read them. A
 * pair of mbarriers hands each slot over. Weights do not depend on the step, so copies continue
 * while the readers wait for other blocks, and memory stays busy.
 *
 * A slot holds 8 outputs x 1,024 inputs of a matrix [out][in]. If the matrix has no more inputs,
 * the 8 rows are one copy; otherwise each row is one. To issue a copy takes a warp about 100
 * cycles, so copies should be large, and the warps take turns.
 *
 * Rows lie a multiple of 128 bytes apart. If all 8 lanes read the same 16 bytes of two rows, they
 * would conflict in the banks. So the lanes of odd rows read the second half of a line while the
 * others read the first. */
#pragma once

#include "backend/cuda/hopper.cuh"

namespace {

constexpr int SLOT_OUTPUTS = 8, SLOT_INPUTS = 1024, SLOT_BYTES = SLOT_OUTPUTS * SLOT_INPUTS * 2;
constexpr int SLOT_STEP = 64; // inputs read together: one line of each row
constexpr int SLOTS_MAX = 16;
constexpr int COPYING = 4; // warps that fill slots
constexpr int SHARERS = 4; // warps that read a slot together, each a share of its inputs

// num_slots is a power of two: a division would take longer than everything else a slot needs.
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

// The side of a warp that fills.
struct ring_writer {
    ring_view ring;
    uint64_t policy;
    int index; // next slot, counted since the kernel's start

    // Fills the next slot with rows [8] of `width` inputs (at most SLOT_INPUTS); rows are `in`
    // elements apart. All lanes of all filling warps call it, and one warp does it.
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

// A share of the products of a slot with up to 8 rows of x. Rows of x start at `x` and are `stride`
// bytes apart. acc[0] + acc[1] is [row][output]: row lane / 4, outputs lane % 4 * 2 and + 1. Rows
// from num_rows on repeat the last. Every lane reads 8 consecutive inputs of weights and of x.
// Both are in the same permuted order, so the sums are the same.
struct slot_reader {
    uint32_t weights, x; // addresses of this lane's data at input 0
    int is_odd;

    struct line { // SLOT_STEP inputs in two halves
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

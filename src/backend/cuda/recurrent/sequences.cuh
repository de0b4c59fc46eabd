/* Finds a step's sequences for the kernels of recurrent ops. */
#pragma once

#include "backend/cuda/device.cuh"

namespace {

// The sequence that has token t: the last one that begins at or before it. P has the step's
// query_start [num_seqs + 1] and num_seqs.
template <class P> __device__ __forceinline__ int find_sequence(const P &p, int t) {
    int low = 0, high = p.num_seqs - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (of_step(p.query_start)[middle] <= t) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

} // namespace

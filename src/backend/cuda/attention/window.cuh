/* The positions that a query sees, for every attention kernel that takes windows: its own and those
 * before it, of a sliding window or of its chunk (attention_args). */
#pragma once

#include "backend/cuda/kernels.h"

namespace {

struct seen_window {
    int size; // positions; 0: all are seen
    bool is_chunked; // it begins at a multiple of `size`

    // The first position that a query at `position` sees. Only if there is a window. Padding is at
    // position -1: 0 then.
    __device__ __forceinline__ int first_seen(int position) const {
        if (is_chunked) return max(position, 0) / size * size;
        return max(position + 1 - size, 0);
    }
};

inline seen_window window_of(const attention_args *args) {
    return {static_cast<int>(args->window), args->is_chunked};
}

} // namespace

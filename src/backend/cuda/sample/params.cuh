/* The parameters of sampling's kernels, and where their memory is. Most of it is the call's scratch
 * memory. With several ranks the scans' results are in memory that all ranks reach. */
#pragma once

#include "backend/cuda/sample/select.cuh"

namespace {

constexpr int TEAM_ROWS_MAX = 128; // calls with more rows fill the device with one block per row

struct sample_params {
    const float *logits;
    cuda_logit_slices slices; // count 0: rows are whole
    const sample_row *rows;
    const sample_bias *biases;
    const uint32_t *masks; // [..][mask_words]
    uint32_t *counts; // [num_slots][vocab_size]
    sample_result *results;
    char *shared; // what the scan finds, at:
    size_t parts_at; // tile_part [num_rows][num_tiles]
    size_t patch_bits_at; // uint32_t [num_rows][num_tiles][TILE_WORDS]
    size_t patches_at; // float [num_rows][vocab_size]
    mass64 *masses; // [num_rows][num_tiles]
    team_bins *bins; // [at most TEAM_ROWS_MAX][3]
    int vocab_size, num_tiles, id_bits, team_size, mask_words;
    int slice_tiles, slice_blocks, scan_blocks; // slice_blocks: of the scan, for a slice of a row
    bool vectors;
};

__device__ __forceinline__ tile_part *parts_of(const sample_params &p, int row) {
    return reinterpret_cast<tile_part *>(p.shared + p.parts_at) + (size_t)row * p.num_tiles;
}

__device__ __forceinline__ uint32_t *patch_bits_of(const sample_params &p, int row) {
    return reinterpret_cast<uint32_t *>(p.shared + p.patch_bits_at) +
           (size_t)row * p.num_tiles * TILE_WORDS;
}
__device__ __forceinline__ float *patches_of(const sample_params &p, int row) {
    return reinterpret_cast<float *>(p.shared + p.patches_at) + (size_t)row * p.vocab_size;
}

// Stores what the scan finds to the memory of all ranks. `mine` points into this rank's.
template <bool IS_CUT, typename T>
__device__ __forceinline__ void share(const sample_params &p, T *mine, const T &value) {
    if constexpr (!IS_CUT) {
        *mine = value;
        return;
    }
    size_t at = reinterpret_cast<char *>(mine) - p.shared;
    for (uint32_t k = 0; k < p.slices.num_shared; k++) {
        *reinterpret_cast<T *>(static_cast<char *>(p.slices.shared[k]) + at) = value;
    }
}

size_t round_floats(size_t floats) {
    return (floats + 15) & ~static_cast<size_t>(15);
}

// Hands out `bytes`, aligned, of memory that so far has *floats floats. Returns where, in bytes.
size_t take(size_t *floats, size_t bytes) {
    size_t at = *floats * sizeof(float);
    *floats += round_floats((bytes + sizeof(float) - 1) / sizeof(float));
    return at;
}

// Places what the scan shares. Returns its size in floats.
size_t place_shared(sample_params *p, size_t num_tiles, size_t vocab_size, size_t num_rows) {
    size_t floats = 0;
    p->parts_at = take(&floats, num_rows * num_tiles * sizeof(tile_part));
    p->patch_bits_at = take(&floats, num_rows * num_tiles * TILE_WORDS * sizeof(uint32_t));
    p->patches_at = take(&floats, num_rows * vocab_size * sizeof(float));
    return floats;
}

// Divides the scratch memory from float `floats` on. Returns its size in floats.
size_t place_scratch(sample_params *p, float *scratch, size_t floats, size_t num_tiles,
                     size_t num_rows) {
    size_t team_rows = num_rows < TEAM_ROWS_MAX ? num_rows : TEAM_ROWS_MAX;
    char *base = reinterpret_cast<char *>(scratch);
    p->masses =
        reinterpret_cast<mass64 *>(base + take(&floats, num_rows * num_tiles * sizeof(mass64)));
    p->bins =
        reinterpret_cast<team_bins *>(base + take(&floats, team_rows * 3 * sizeof(team_bins)));
    return floats;
}

// Most tiles of a vocabulary: where it is cut, slices differ by less than 2 tiles in size.
size_t most_tiles(size_t vocab_size) {
    return (vocab_size + TILE - 1) / TILE + 2 * COLLECTIVE_RANKS_MAX;
}

// Tiles of the widest slice.
int slice_tiles_of(const cuda_logit_slices &slices) {
    int widest = 0;
    for (uint32_t k = 0; k < slices.count; k++) {
        int size = slices.start[k + 1] - slices.start[k];
        if (size > widest) widest = size;
    }
    return (widest + TILE - 1) / TILE;
}

// Whether 16-byte loads of logits are aligned.
bool are_aligned(const sample_params &p) {
    if (!p.slices.count) {
        return p.vocab_size % 4 == 0 && reinterpret_cast<uintptr_t>(p.logits) % 16 == 0;
    }
    for (uint32_t k = 0; k < p.slices.count; k++) {
        if (reinterpret_cast<uintptr_t>(p.slices.logits[k]) % 16 || p.slices.start[k + 1] % 4) {
            return false;
        }
    }
    return true;
}

} // namespace

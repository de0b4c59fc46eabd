/* Which steps of packed experts a block and a warp of experts/packed_few_tokens.cu take: rounds of
 * units, whose steps the warps share equally. */
#pragma once

#include "backend/cuda/linear/packed_steps.cuh"

namespace {

constexpr int WARPS = 16, THREADS = WARPS * 32, TILE = CUDA_PACKED_TILE;
constexpr int UNITS_MAX = 32; // of a round
constexpr int TOKENS_MAX = 4, TOP_K_MAX = 8;

// One of the two products.
struct product_params {
    packed_matrix weights; // of all experts
    const __nv_bfloat16 *bias; // [num_experts][outputs] or NULL
    int expert_tiles; // tiles of an expert
    int x_stride; // bytes between rows of x in shared memory
    int columns, in; // of x; of the matrix, a multiple of 128
    int outputs; // of a unit's row: intermediate, or hidden
    int rounds; // of a token
};

struct few_params {
    product_params gate_up, down;
    const __nv_bfloat16 *x; // [num_tokens][gate_up.columns]
    __nv_bfloat16 *activated; // [num_tokens][top_k][down.columns], times X_SCALE
    __nv_bfloat16 *out; // [num_tokens][down.outputs]
    bool is_added; // to out
    const int32_t *ids; // [num_tokens][top_k]
    const float *token_weights; // [num_tokens][top_k]
    uint32_t *arrived; // [2]: blocks at the grid barrier, blocks behind it; 0 between launches
    int num_tokens, top_k;
    int passes; // of down over the slots, two at a time
    enum activation activation;
};

// Units of a block.
struct round_units {
    bool is_down;
    int token, first, count; // first: of all of the token's units of this product
};

__device__ __forceinline__ round_units units_of(const few_params &p, int round) {
    round_units r;
    int before = p.num_tokens * p.gate_up.rounds;
    r.is_down = round >= before;
    const product_params &m = r.is_down ? p.down : p.gate_up;
    if (r.is_down) round -= before;
    r.token = round / m.rounds;
    round -= r.token * m.rounds;
    int all = r.is_down ? m.expert_tiles : p.top_k * (m.expert_tiles / 2);
    int blocks = gridDim.x, begin = all * static_cast<int>(blockIdx.x) / blocks;
    int count = all * static_cast<int>(blockIdx.x + 1) / blocks - begin;
    int passes = r.is_down ? p.passes : 1;
    r.first = (begin + count * round / m.rounds) * passes;
    r.count = (begin + count * (round + 1) / m.rounds) * passes - r.first;
    return r;
}

// A warp's place in its steps of a round.
struct cursor {
    int round;
    int run, left; // steps that are left of the unit; of the round's other units
    int step; // of the unit: the first of its run
    int unit; // of the round
    int slot, tile; // of the unit, the first of down's two slots; of an expert
    round_units r;

    __device__ __forceinline__ void find(const few_params &p, int number, int warp) {
        round = number;
        r = units_of(p, number);
        int steps = steps_of(p), all = r.count * steps;
        int at = all * warp / WARPS, end = all * (warp + 1) / WARPS;
        unit = at / steps, step = at - unit * steps;
        run = min(steps - step, end - at), left = end - at - run;
        int of_token = r.first + unit, per = r.is_down ? p.passes : p.gate_up.expert_tiles / 2;
        int high = of_token / per, low = of_token - high * per;
        slot = r.is_down ? low * 2 : high;
        tile = r.is_down ? high : low;
    }
    __device__ __forceinline__ int steps_of(const few_params &p) const {
        return r.is_down ? p.down.weights.steps : p.gate_up.weights.steps;
    }
    __device__ __forceinline__ void next_unit(const few_params &p) {
        run = min(steps_of(p), left), left -= run;
        step = 0, unit++;
        if (r.is_down) {
            slot += 2;
            if (slot >= p.top_k) slot = 0, tile++;
        } else if (++tile == p.gate_up.expert_tiles / 2) {
            tile = 0, slot++;
        }
    }
};

} // namespace

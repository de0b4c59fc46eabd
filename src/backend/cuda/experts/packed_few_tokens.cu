/* Experts for 1 to 4 tokens whose weights are packed (linear/packed.h), without sorting or tiles of
 * tokens. As in experts/few_tokens.cu, the first kernel computes activated[pair] = silu(gate x) *
 * (up x), or another activation, and the second out = sum over slots of weight * (down activated).
 *
 * The products are those of linear/packed_steps.cuh. A unit of the first kernel is a tile of a
 * pair's gates and the same tile of its ups. A unit of the second is a tile of a token's outputs:
 * its steps go through the token's experts, two at a time. They are the two halves of the left
 * operand, and two columns of the right one have the activated values of each.
 *
 * A block takes several units in turn, and its warps take the steps of a unit in turn. Each lane
 * has the loads of AHEAD steps in flight, across the ends of units. The warps' sums of a unit are
 * joined in shared memory, in order. So a token's bits do not depend on the other tokens. Where a
 * token has units of the first kernel for at least half of all warps, each warp takes units of its
 * own instead, and nothing is joined.
 *
 * Launch: a block per multiprocessor, each with the same number of units or one less. Both kernels
 * start early. The first lets the second start after its own wait, so the second may read ids and
 * weights of the routing before it waits (rule 3 of handover.cuh).
 *
 * Bytes: those of each pair's codes and scales; pairs with the same expert share them in the L2. */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/linear/packed_steps.cuh"

namespace {

constexpr int WARPS = 16, AHEAD = 4, TILE = CUDA_PACKED_TILE;
constexpr int UNIT_BARRIER = 1;

struct few_params {
    packed_matrix weights; // of all experts
    int expert_tiles; // tiles of an expert
    int units, passes; // passes: of a unit over the matrix' steps, with two slots each
    int x_stride; // bytes between rows of x in shared memory
    const __nv_bfloat16 *x; // [num_tokens][columns], or activated [num_tokens][top_k][columns]
    int columns, in; // of x; of the matrix, a multiple of 128
    const int32_t *ids; // [num_tokens][top_k]
    const float *token_weights; // [num_tokens][top_k]
    const __nv_bfloat16 *bias; // [num_experts][outputs] or NULL
    __nv_bfloat16 *out;
    int num_tokens, top_k;
    int outputs; // of a unit's row: intermediate, or hidden
    enum activation activation;
};

// The sums of a unit, of each warp: of the low tile's outputs, then of the high one's.
using unit_sums = float[WARPS][2 * TILE];

// Brings rows of x to shared memory, times X_SCALE, with the sums of their groups.
template <typename K>
__device__ __forceinline__ void bring_rows(const few_params &p, const __nv_bfloat16 *from, int rows,
                                           uint32_t x) {
    constexpr int BATCH = 4; // loads that are issued together
    uint32_t x_sums = x + rows * p.x_stride;
    int chunks = p.in / 8, all = rows * chunks;
    for (int begin = threadIdx.x / 32 * 32; begin < all; begin += BATCH * WARPS * 32) {
        uint4 v[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            int i = begin + b * WARPS * 32 + threadIdx.x % 32, row = i / chunks, chunk = i % chunks;
            v[b] = make_uint4(0, 0, 0, 0);
            if (i < all && chunk * 8 < p.columns) {
                const __nv_bfloat16 *of_row = of_step(from) + (size_t)row * p.columns;
                v[b] = __ldcg(reinterpret_cast<const uint4 *>(of_row) + chunk);
            }
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            int i = begin + b * WARPS * 32 + threadIdx.x % 32, row = i / chunks, chunk = i % chunks;
            bool is_there = i < all;
            float unused = 0;
            v[b] = prepare_inputs<K>(v[b], nullptr, unused);
            if (is_there) store_inputs(x + row * p.x_stride, chunk, v[b]);
            if constexpr (K::ZEROS || K::OFFSETS) {
                keep_group_sums<K>(v[b], x_sums, row, chunk, is_there);
            }
        }
    }
}

// The two tiles of a unit.
struct unit_tiles {
    int low, high;
};

// A step of a warp: of a unit, and of a pair of the token's slots (`pass`) in the second kernel.
struct cursor {
    int unit, pass, step;

    __device__ __forceinline__ void begin_unit(const few_params &p, int number, int warp) {
        unit = number, pass = 0, step = warp;
        carry(p);
    }
    __device__ __forceinline__ void carry(const few_params &p) {
        while (step >= p.weights.steps) step -= p.weights.steps, pass++;
    }
    // Moves to the warp's next step. Returns whether it is of the same unit.
    __device__ __forceinline__ bool advance(const few_params &p, int warp) {
        step += WARPS;
        carry(p);
        if (pass < p.passes) return true;
        begin_unit(p, unit + 1, warp);
        return false;
    }
};

// Walks over the block's units. WORK has the differences between the two kernels:
//   tiles(cursor)                   the tiles of a step
//   begin(unit)                     prepares a unit; called by all threads
//   multiply(cursor, loads, sums)   adds the products of a step
//   end(unit, found)                writes the results; called by one warp
template <typename K, typename WORK>
__device__ __forceinline__ void walk_units(const few_params &p, WORK work) {
    __shared__ unit_sums found[2]; // of alternate units
    int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    int begin = static_cast<int>(static_cast<long long>(p.units) * blockIdx.x / gridDim.x);
    int end = static_cast<int>(static_cast<long long>(p.units) * (blockIdx.x + 1) / gridDim.x);
    cursor now, next; // `next`: to load
    next.begin_unit(p, begin, warp);
    bool has_steps = next.pass < p.passes; // in each unit
    int unit = begin, parity = 0;
    const step_source<K> source(p.weights, lane);
    step_loads<K> loads[AHEAD] = {};
    auto load_next = [&](step_loads<K> &to) {
        if (next.unit >= end) return;
        unit_tiles t = work.tiles(next);
        source.load(to, t.low * p.weights.steps + next.step, t.high * p.weights.steps + next.step);
        next.advance(p, warp);
    };
    now = next;
    if (has_steps) {
#pragma unroll
        for (int a = 0; a < AHEAD; a++) load_next(loads[a]);
    }
    work.begin(unit);
    float sums[2] = {}; // of this lane's output in both tiles; of lanes 0, 4, 8 ..
    auto end_unit = [&]() {
        if (lane % 4 == 0) {
            found[parity][warp][lane / 4] = sums[0];
            found[parity][warp][TILE + lane / 4] = sums[1];
        }
        // A named barrier: warps come here from different turns of the unrolled loop.
        named_wait(UNIT_BARRIER, WARPS * 32);
        if (warp == unit % WARPS) work.end(unit, found[parity]);
        unit++, parity ^= 1;
        if (unit < end) work.begin(unit);
        sums[0] = sums[1] = 0;
    };
    while (unit < end) {
        if (!has_steps) {
            end_unit();
            continue;
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (unit >= end) break;
            work.multiply(now, loads[a], sums);
            load_next(loads[a]);
            if (!now.advance(p, warp)) end_unit();
        }
    }
}

// The sum over warps of a value of 16; lanes 16 to 31 have none.
__device__ __forceinline__ float total_of(const unit_sums &found, int lane) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += found[w][lane % (2 * TILE)];
    return sum;
}

// Products of a step: column 0 of the right operand is row `x_row` of x, column 1 the next.
template <typename K>
__device__ __forceinline__ void multiply_rows(float (&sums)[4], const few_params &p, uint32_t x,
                                              int x_row, int rows, int step,
                                              const step_loads<K> &loads, int lane) {
    constexpr int GROUPS = K::GROUP ? K::SPAN / K::GROUP : 0; // of a span
    int row = min(x_row + lane / 4 % 2, rows - 1);
    uint32_t from = x + row * p.x_stride + lane % 4 * 16 + step * (K::STEP * 2);
    uint32_t x_sums = x + rows * p.x_stride + x_row * 4;
    multiply_step<K>(sums, loads, from, x_sums + step * K::STEP / K::SPAN * (GROUPS * 32), lane);
}

template <typename K> struct gate_up_work {
    const few_params &p;
    uint32_t x; // of all tokens
    int lane;
    bool has_x;
    int pair, token; // of the unit
    int loaded_unit, loaded_tile; // of the last step that was loaded

    __device__ __forceinline__ int half_tiles() const {
        return p.expert_tiles / 2;
    }
    __device__ __forceinline__ unit_tiles tiles(const cursor &at) {
        if (at.unit != loaded_unit) {
            int expert = of_step(p.ids)[at.unit / half_tiles()];
            loaded_unit = at.unit;
            loaded_tile = expert * p.expert_tiles + at.unit % half_tiles();
        }
        return {loaded_tile, loaded_tile + half_tiles()};
    }
    __device__ __forceinline__ void begin(int unit) {
        pair = unit / half_tiles();
        token = pair / p.top_k;
        if (has_x) return;
        bring_rows<K>(p, p.x, p.num_tokens, x);
        __syncthreads();
        has_x = true;
    }
    __device__ __forceinline__ void multiply(const cursor &at, const step_loads<K> &loads,
                                             float (&sums)[2]) const {
        float found[4] = {};
        multiply_rows<K>(found, p, x, token & ~1, p.num_tokens, at.step, loads, lane);
        sums[0] += token & 1 ? found[1] : found[0];
        sums[1] += token & 1 ? found[3] : found[2];
    }
    __device__ __forceinline__ void end(int unit, const unit_sums &found) const {
        int output = unit % half_tiles() * TILE + lane % TILE, expert = of_step(p.ids)[pair];
        int row = (lane / TILE % 2) * p.outputs + output; // of the expert's gates and ups
        float y = total_of(found, lane) * K::SUM_SCALE;
        if (K::GROUP == 0) y *= p.weights.scales.rows[expert * p.expert_tiles * TILE + row];
        if (p.bias) y += __bfloat162float(p.bias[(size_t)expert * 2 * p.outputs + row]);
        float up = __shfl_down_sync(FULL_WARP, y, TILE);
        if (lane >= TILE) return;
        y = activated(p.activation, y, up);
        of_step(p.out)[(size_t)pair * p.outputs + output] = __float2bfloat16(y);
    }
};

template <typename K> struct down_work {
    const few_params &p;
    uint32_t x; // shared: the inputs of `token`, for each of its slots
    int lane;
    int token; // -1: x is not loaded yet
    int loaded_unit, loaded_pass; // of the last step that was loaded
    unit_tiles loaded;
    float bias; // of some slots and one of the unit's outputs, times the slots' weights

    // Not through of_step: the kernel before this one has waited for the routing (the head).
    __device__ __forceinline__ int tile_of(int of_token, int slot, int tile) const {
        return p.ids[of_token * p.top_k + min(slot, p.top_k - 1)] * p.expert_tiles + tile;
    }
    __device__ __forceinline__ unit_tiles tiles(const cursor &at) {
        if (at.unit != loaded_unit || at.pass != loaded_pass) {
            int of_token = at.unit / p.expert_tiles, tile = at.unit % p.expert_tiles;
            loaded_unit = at.unit, loaded_pass = at.pass;
            loaded = {tile_of(of_token, at.pass * 2, tile),
                      tile_of(of_token, at.pass * 2 + 1, tile)};
        }
        return loaded;
    }
    // Biases are loaded at a unit's begin, by the warp that writes its results.
    __device__ __forceinline__ void find_bias(int unit) {
        int of_token = unit / p.expert_tiles;
        int output = unit % p.expert_tiles * TILE + lane % TILE;
        bias = 0;
        for (int slot = lane / TILE; slot < p.top_k; slot += 32 / TILE) {
            int pair = of_token * p.top_k + slot;
            float value = __bfloat162float(p.bias[(size_t)p.ids[pair] * p.outputs + output]);
            bias = fmaf(p.token_weights[pair], value, bias);
        }
    }
    __device__ __forceinline__ void begin(int unit) {
        int next = unit / p.expert_tiles;
        if (p.bias && threadIdx.x / 32 == unit % WARPS) find_bias(unit);
        if (next == token) return;
        if (token < 0) {
            let_next_start();
            wait_for_earlier();
        } else {
            __syncthreads(); // all have read the token before
        }
        token = next;
        bring_rows<K>(p, p.x + (size_t)token * p.top_k * p.columns, p.top_k, x);
        __syncthreads();
    }
    __device__ __forceinline__ void multiply(const cursor &at, const step_loads<K> &loads,
                                             float (&sums)[2]) const {
        int slot = at.pass * 2, pair = token * p.top_k + slot, tile = at.unit % p.expert_tiles;
        float found[4] = {};
        multiply_rows<K>(found, p, x, slot, p.top_k, at.step, loads, lane);
        float low = p.token_weights[pair];
        if (K::GROUP == 0) low *= row_scale(tile_of(token, slot, tile));
        sums[0] = fmaf(low, found[0], sums[0]);
        if (slot + 1 == p.top_k) return;
        float high = p.token_weights[pair + 1];
        if (K::GROUP == 0) high *= row_scale(tile_of(token, slot + 1, tile));
        sums[1] = fmaf(high, found[3], sums[1]);
    }
    // Of this lane's output in a tile.
    __device__ __forceinline__ float row_scale(int tile) const {
        return p.weights.scales.rows[tile * TILE + lane / 4];
    }
    __device__ __forceinline__ void end(int unit, const unit_sums &found) const {
        int output = unit % p.expert_tiles * TILE + lane % TILE;
        float y = total_of(found, lane);
        y = (y + __shfl_down_sync(FULL_WARP, y, TILE)) * K::SUM_SCALE;
        if (p.bias) {
            float sum = bias + __shfl_down_sync(FULL_WARP, bias, 2 * TILE);
            y += sum + __shfl_down_sync(FULL_WARP, sum, TILE);
        }
        if (lane >= TILE) return;
        of_step(p.out)[(size_t)token * p.outputs + output] = __float2bfloat16(y);
    }
};

template <typename K>
__global__ void __launch_bounds__(WARPS * 32, 1)
    packed_gate_up_kernel(const __grid_constant__ few_params p) {
    extern __shared__ __align__(128) char memory[]; // x [rows][x_stride], sums of groups
    int lane = threadIdx.x % 32;
    wait_for_earlier();
    let_next_start();
    walk_units<K>(p, gate_up_work<K>{p, shared_address(memory), lane, false, 0, 0, -1, 0});
}

// The walk of a warp that has units of its own.
struct warp_walk {
    int unit, step, tile; // tile: of the unit's gates

    __device__ __forceinline__ void find(const few_params &p) {
        int half = p.expert_tiles / 2;
        if (unit < p.units) {
            int expert = of_step(p.ids)[unit / half], output = unit % half * TILE;
            tile = expert * p.expert_tiles + unit % half;
            if (!p.bias) return;
            const __nv_bfloat16 *bias = p.bias + (size_t)expert * 2 * p.outputs + output;
            prefetch_line(bias);
            prefetch_line(bias + p.outputs);
        }
    }
    // Returns whether the unit is done.
    __device__ __forceinline__ bool advance(const few_params &p) {
        if (++step < p.weights.steps) return false;
        step = 0;
        unit += gridDim.x * WARPS;
        find(p);
        return true;
    }
};

// Writes the outputs of a unit. A lane of four has the sums of a gate and its up.
template <typename K>
__device__ __forceinline__ void write_unit(const few_params &p, const warp_walk &at,
                                           const float (&sums)[4], int lane) {
    int half = p.expert_tiles / 2, pair = at.unit / half, expert = of_step(p.ids)[pair];
    bool is_second = pair / p.top_k & 1;
    int output = at.unit % half * TILE + lane / 4;
    float y = (is_second ? sums[1] : sums[0]) * K::SUM_SCALE;
    float up = (is_second ? sums[3] : sums[2]) * K::SUM_SCALE;
    if (K::GROUP == 0) {
        y *= p.weights.scales.rows[at.tile * TILE + lane / 4];
        up *= p.weights.scales.rows[(at.tile + half) * TILE + lane / 4];
    }
    if (p.bias) {
        const __nv_bfloat16 *bias = p.bias + (size_t)expert * 2 * p.outputs + output;
        y += __bfloat162float(bias[0]), up += __bfloat162float(bias[p.outputs]);
    }
    if (lane % 4) return;
    y = activated(p.activation, y, up);
    of_step(p.out)[(size_t)pair * p.outputs + output] = __float2bfloat16(y);
}

// The same as packed_gate_up_kernel, for so many units that most warps have one of their own: no
// warp waits for another.
template <typename K>
__global__ void __launch_bounds__(WARPS * 32, 1)
    packed_gate_up_warps_kernel(const __grid_constant__ few_params p) {
    extern __shared__ __align__(128) char memory[]; // x [rows][x_stride], sums of groups
    int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    int steps = p.weights.steps, high = p.expert_tiles / 2 * steps;
    uint32_t x = shared_address(memory);
    const step_source<K> source(p.weights, lane);
    step_loads<K> loads[AHEAD] = {};
    wait_for_earlier();
    let_next_start();
    warp_walk now = {static_cast<int>(blockIdx.x + gridDim.x * warp), 0, 0};
    now.find(p);
    warp_walk next = now; // to load
    auto load_next = [&](step_loads<K> &to) {
        if (next.unit >= p.units) return;
        int low = next.tile * steps + next.step;
        source.load(to, low, low + high);
        next.advance(p);
    };
#pragma unroll
    for (int a = 0; a < AHEAD; a++) load_next(loads[a]);
    bring_rows<K>(p, p.x, p.num_tokens, x);
    __syncthreads();
    float sums[4] = {};
    // Returns false behind the last step.
    auto multiply_next = [&](step_loads<K> &from) {
        if (now.unit >= p.units) return false;
        int token = now.unit / (p.expert_tiles / 2) / p.top_k;
        multiply_rows<K>(sums, p, x, token & ~1, p.num_tokens, now.step, from, lane);
        load_next(from);
        const warp_walk at = now;
        if (now.advance(p)) {
            write_unit<K>(p, at, sums, lane);
#pragma unroll
            for (int i = 0; i < 4; i++) sums[i] = 0;
        }
        return true;
    };
    static_assert(AHEAD == 4, "loads");
    while (multiply_next(loads[0]) && multiply_next(loads[1]) && multiply_next(loads[2]) &&
           multiply_next(loads[3])) {
    }
}

template <typename K>
__global__ void __launch_bounds__(WARPS * 32, 1)
    packed_down_kernel(const __grid_constant__ few_params p) {
    extern __shared__ __align__(128) char memory[];
    int lane = threadIdx.x % 32;
    walk_units<K>(p, down_work<K>{p, shared_address(memory), lane, -1, -1, 0, {0, 0}, 0});
}

few_params params_of(const cuda_linear_view &v, const experts_args *args, uint32_t num_experts) {
    few_params p = {};
    p.weights = packed_matrix_of(v);
    p.expert_tiles = p.weights.tiles / static_cast<int>(num_experts);
    p.in = static_cast<int>(v.in);
    p.x_stride = p.in * 2 + X_PAD;
    p.ids = args->ids;
    p.token_weights = args->weights;
    p.bias = static_cast<const __nv_bfloat16 *>(v.bias);
    p.num_tokens = static_cast<int>(args->num_tokens);
    p.top_k = static_cast<int>(args->top_k);
    return p;
}

// Static shared memory.
constexpr size_t STATIC_BYTES = 2 * sizeof(unit_sums);

void launch(void (*kernel)(few_params), const few_params &p, int rows, const cuda_linear_view &v,
            const cuda_device_info *info, cudaStream_t stream) {
    int blocks = info->num_sms < p.units ? info->num_sms : p.units;
    launch_packed(kernel, p, blocks, WARPS * 32, packed_x_bytes(static_cast<size_t>(rows), v),
                  STATIC_BYTES, info, stream);
}

} // namespace

extern "C" size_t cuda_experts_packed_few_bytes(uint32_t rows, uint32_t in,
                                                const struct weight_format *format) {
    return packed_x_bytes(rows, in, format->code, format->group, format->has_offsets) +
           STATIC_BYTES;
}

extern "C" void cuda_experts_packed_few_launch(const struct experts_args *args,
                                               const struct cuda_experts_view *view,
                                               const struct cuda_experts_scratch *scratch,
                                               const struct cuda_device_info *info,
                                               cudaStream_t stream) {
    few_params first = params_of(view->gate_up, args, view->shape.num_experts);
    first.x = static_cast<const __nv_bfloat16 *>(args->x);
    first.columns = static_cast<int>(view->shape.hidden);
    first.outputs = static_cast<int>(view->shape.intermediate);
    first.out = static_cast<__nv_bfloat16 *>(scratch->activated);
    first.activation = view->activation;
    first.passes = 1;
    first.units = first.num_tokens * first.top_k * (first.expert_tiles / 2);
    few_params second = params_of(view->down, args, view->shape.num_experts);
    second.x = first.out;
    second.columns = first.outputs;
    second.outputs = first.columns;
    second.out = static_cast<__nv_bfloat16 *>(args->out);
    second.passes = (second.top_k + 1) / 2;
    second.units = second.num_tokens * second.expert_tiles;
    with_kind(view->gate_up, [&](auto kind) {
        using K = decltype(kind);
        // Not by the number of tokens, so that a token's bits do not depend on the others.
        bool has_many = first.top_k * (first.expert_tiles / 2) >= info->num_sms * WARPS / 2;
        launch(has_many ? packed_gate_up_warps_kernel<K> : packed_gate_up_kernel<K>, first,
               first.num_tokens, view->gate_up, info, stream);
        launch(packed_down_kernel<K>, second, second.top_k, view->down, info, stream);
    });
}

/* Experts for 1 to 4 tokens whose weights are packed (linear/packed.h), in one kernel (sm_90 and
 * later): activated[pair] = silu(gate x) * (up x), or another activation, then out = sum over slots
 * of weight * (down activated), or the sum is added to out.
 *
 * Each lane has the loads of AHEAD steps on their way to registers. Those of the next round are
 * issued at a round's end. So memory stays busy while blocks wait for each other between the two
 * products: down's first weights come meanwhile.
 *
 * The products are those of linear/packed_steps.cuh. A unit of gate and up is a tile of a pair's
 * gates and the same tile of its ups. A unit of down is a tile of a token's outputs and two of its
 * experts: they are the two halves of the left operand, and two columns of the right one have the
 * activated values of each. A round is a block's units of one token and one product, or some of
 * them. Warps have equal shares of a round's steps, so a unit's sums may be those of several warps.
 * They are added in order. Rounds do not depend on the number of tokens, nor do a token's bits.
 *
 * Launch: a block per multiprocessor, cooperative, since blocks wait for each other at a grid
 * barrier. The kernel starts early.
 *
 * Bytes: those of each pair's codes and scales; pairs with the same expert share them in the L2. */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/experts/packed_rounds.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernel is empty and nothing here is used

namespace {

// Sums of gate's and up's outputs, or of a token's in the first half.
using unit_sums = float[2 * TILE];

constexpr int AHEAD = 4; // steps whose loads a lane has on their way

struct block_shared {
    // Of a round's parity. Unit u's sums by warp w are number u + w: units and warps both ascend.
    unit_sums found[2][UNITS_MAX + WARPS];
    // Each warp has its own, so that it waits for no other before its first loads.
    cursor starts[WARPS][2]; // of the first rounds of gate and up, and of down
    int32_t ids[WARPS][TOKENS_MAX * TOP_K_MAX];
    float token_weights[WARPS][TOKENS_MAX * TOP_K_MAX];
};

// Where a warp begins in a round.
__device__ __forceinline__ cursor enter(const few_params &p, const block_shared &s, int round,
                                        int warp) {
    int before = p.num_tokens * p.gate_up.rounds;
    bool is_down = round >= before;
    cursor c;
    if ((is_down ? p.down.rounds : p.gate_up.rounds) > 1) {
        c.find(p, round, warp);
        return c;
    }
    c = s.starts[warp][is_down];
    c.round = round, c.r.token = round - (is_down ? before : 0);
    return c;
}

// The two tiles of a unit.
struct unit_tiles {
    int low, high;
};

__device__ __forceinline__ unit_tiles tiles_of(const few_params &p, const block_shared &s,
                                               const cursor &at, int warp) {
    const int32_t *ids = s.ids[warp] + at.r.token * p.top_k;
    int tiles = at.r.is_down ? p.down.expert_tiles : p.gate_up.expert_tiles;
    int low = ids[at.slot] * tiles + at.tile;
    if (!at.r.is_down) return {low, low + tiles / 2};
    return {low, ids[min(at.slot + 1, p.top_k - 1)] * tiles + at.tile};
}

// The loads of a warp's steps of a round, in order.
template <typename K> struct step_loader {
    const few_params &p;
    const block_shared &s;
    int warp, lane;
    step_loads<K> loads[AHEAD];
    step_source<K> source; // of the round's product
    cursor next; // to load
    int low, high; // numbers of its steps of the two tiles

    __device__ __forceinline__ step_loader(const few_params &params, const block_shared &shared,
                                           int warp_, int lane_)
        : p(params), s(shared), warp(warp_), lane(lane_), loads(),
          source(params.gate_up.weights, lane_), next(), low(0), high(0) {
    }
    // Begins a round. Its first load is loads[0].
    __device__ __forceinline__ void begin(const cursor &from) {
        next = from;
        if (next.run == 0) return;
        source = step_source<K>(next.r.is_down ? p.down.weights : p.gate_up.weights, lane);
        find_tiles();
#pragma unroll
        for (int a = 0; a < AHEAD; a++) load(loads[a]);
    }
    __device__ __forceinline__ void load(step_loads<K> &to) {
        if (next.run == 0) return;
        source.load(to, low++, high++);
        if (--next.run > 0 || next.left == 0) return;
        next.next_unit(p);
        find_tiles();
    }
    __device__ __forceinline__ void find_tiles() {
        unit_tiles t = tiles_of(p, s, next, warp);
        int steps = next.steps_of(p);
        low = t.low * steps + next.step, high = t.high * steps + next.step;
    }
};

// Eight inputs of some rows of x.
template <typename K> struct row_chunk {
    static constexpr int ROWS = 4; // whose loads are issued together
    uint4 v[ROWS];

    // `first`: the first of the rows.
    __device__ __forceinline__ void load(const product_params &m, const __nv_bfloat16 *from,
                                         int rows, int first, int chunk) {
        bool has_data = chunk * 8 < m.columns;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            v[i] = make_uint4(0, 0, 0, 0);
            if (first + i >= rows || !has_data) continue;
            const __nv_bfloat16 *row = of_step(from) + (size_t)(first + i) * m.columns;
            v[i] = __ldcg(reinterpret_cast<const uint4 *>(row) + chunk);
        }
    }
    // Stores them to shared memory, with the sums of their groups. All lanes call it.
    __device__ __forceinline__ void store(const product_params &m, int rows, int first, int chunk,
                                          bool is_scaled, uint32_t x) {
        bool is_there = chunk < m.in / 8;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (first + i >= rows) break;
            float unused = 0;
            if (!is_scaled) v[i] = prepare_inputs<K>(v[i], nullptr, unused);
            if (is_there) store_inputs(x + (first + i) * m.x_stride, chunk, v[i]);
            if constexpr (K::ZEROS || K::OFFSETS) {
                keep_group_sums<K>(v[i], x + rows * m.x_stride, first + i, chunk, is_there);
            }
        }
    }
};

// Brings rows of x to shared memory, times X_SCALE, which they may be already. `next` is the
// thread's first chunk of the first rows, and is loaded.
template <typename K>
__device__ __forceinline__ void bring_rows(const product_params &m, const __nv_bfloat16 *from,
                                           int rows, bool is_scaled, row_chunk<K> &next,
                                           uint32_t x) {
    for (int begin = threadIdx.x / 32 * 32; begin < m.in / 8; begin += THREADS) {
        int chunk = begin + threadIdx.x % 32;
        for (int first = 0; first < rows; first += row_chunk<K>::ROWS) {
            if (begin >= THREADS || first > 0) next.load(m, from, rows, first, chunk);
            next.store(m, rows, first, chunk, is_scaled, x);
        }
    }
}

// Where the right operand of a unit is: its even columns are row `even` of x, the others row `odd`.
struct unit_inputs {
    uint32_t x, sums; // of this lane, at step 0

    __device__ __forceinline__ unit_inputs(const product_params &m, uint32_t region, int rows,
                                           int even, int odd, int lane) {
        int row = lane / 4 % 2 ? odd : even;
        x = region + row * m.x_stride + lane % 4 * 16;
        sums = region + rows * m.x_stride + even * 4;
    }
};

// Of four lanes with the same products of four groups, each scales those of one: sums[0] of the low
// tile with the even row, sums[3] of the high tile with the odd row.
template <typename K>
__device__ __forceinline__ void multiply_four_groups(float (&sums)[4], const step_loads<K> &s,
                                                     uint32_t x, int lane) {
    static_assert(K::EXPONENTS && K::STEP == 4 * K::GROUP, "a word has the scales of a step");
    float part[4][4] = {};
#pragma unroll
    for (int g = 0; g < 4; g++) {
        uint4 v = load_shared16(x + g * 64);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t a[4];
            unpack_pairs<K>(s.codes[0], g * 2 + i, a[0], a[2]);
            unpack_pairs<K>(s.codes[1], g * 2 + i, a[1], a[3]);
            multiply(part[g], a, i ? v.z : v.x, i ? v.w : v.y);
        }
    }
    int group = lane % 4;
    float low[2], high[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        low[i] = group & 1 ? part[i * 2 + 1][0] : part[i * 2][0];
        high[i] = group & 1 ? part[i * 2 + 1][3] : part[i * 2][3];
    }
    sums[0] = fmaf(group & 2 ? low[1] : low[0], factors_of_exponent(s.scales[0][0], group).scale,
                   sums[0]);
    sums[3] = fmaf(group & 2 ? high[1] : high[0], factors_of_exponent(s.scales[1][0], group).scale,
                   sums[3]);
}

__device__ __forceinline__ float quad_sum(float v) {
    v += __shfl_xor_sync(FULL_WARP, v, 1);
    return v + __shfl_xor_sync(FULL_WARP, v, 2);
}

// Keeps a warp's sums of a unit, `now`, for all of the block.
template <typename K>
__device__ __forceinline__ void keep_sums(const few_params &p, block_shared &s, const cursor &now,
                                          float (&sums)[4], int warp, int lane) {
    if constexpr (K::EXPONENTS) {
        sums[0] = quad_sum(sums[0]);
        sums[2] = sums[3] = quad_sum(sums[3]);
    }
    bool is_odd = !K::EXPONENTS && now.r.token & 1;
    float low = is_odd ? sums[1] : sums[0], high = is_odd ? sums[3] : sums[2];
    if (now.r.is_down) {
        int pair = now.r.token * p.top_k + now.slot;
        bool has_high = now.slot + 1 < p.top_k;
        low = sums[0] * s.token_weights[warp][pair];
        high = has_high ? sums[3] * s.token_weights[warp][pair + 1] : 0;
        if constexpr (K::GROUP == 0) {
            unit_tiles t = tiles_of(p, s, now, warp);
            low *= p.down.weights.scales.rows[t.low * TILE + lane / 4];
            high *= p.down.weights.scales.rows[t.high * TILE + lane / 4];
        }
        low += high;
    }
    if (lane % 4 == 0) {
        float *found = s.found[now.round & 1][now.unit + warp];
        found[lane / 4] = low;
        if (!now.r.is_down) found[TILE + lane / 4] = high;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i] = 0;
}

// Multiplies this warp's steps of a round, and keeps the sums of each unit.
template <typename K>
__device__ __forceinline__ void multiply_round(const few_params &p, block_shared &s,
                                               step_loader<K> &loader, cursor now,
                                               uint32_t region) {
    constexpr int GROUPS = K::GROUP ? K::SPAN / K::GROUP : 0; // of a span
    static_assert(K::SPAN == K::STEP || !(K::ZEROS || K::OFFSETS), "a step has sums of its own");
    int lane = loader.lane, rows = now.r.is_down ? p.top_k : p.num_tokens;
    // Sums of groups are loaded for an even row and the next.
    int token = K::EXPONENTS ? now.r.token : now.r.token & ~1;
    auto inputs_of_unit = [&]() {
        int first = now.r.is_down ? now.slot : token;
        int second = K::EXPONENTS && !now.r.is_down ? token : min(first + 1, rows - 1);
        unit_inputs inputs(now.r.is_down ? p.down : p.gate_up, region, rows, first, second, lane);
        inputs.x += now.step * (K::STEP * 2);
        inputs.sums += now.step * (GROUPS * 32);
        return inputs;
    };
    float sums[4] = {};
    unit_inputs inputs = inputs_of_unit();
    // Returns false if all of the warp's steps are multiplied.
    auto multiply_next = [&](step_loads<K> &from) {
        if constexpr (K::EXPONENTS) {
            multiply_four_groups<K>(sums, from, inputs.x, lane);
        } else {
            multiply_step<K>(sums, from, inputs.x, inputs.sums, lane);
        }
        loader.load(from);
        inputs.x += K::STEP * 2;
        inputs.sums += GROUPS * 32;
        if (--now.run > 0) return true;
        keep_sums<K>(p, s, now, sums, loader.warp, lane);
        if (now.left == 0) return false;
        now.next_unit(p);
        inputs = inputs_of_unit();
        return true;
    };
    if (now.run == 0) return;
    static_assert(AHEAD == 4, "loads");
    while (multiply_next(loader.loads[0]) && multiply_next(loader.loads[1]) &&
           multiply_next(loader.loads[2]) && multiply_next(loader.loads[3])) {
    }
}

// The sums of a unit by all warps that have steps of it: number `i` of each.
__device__ __forceinline__ float total_of(const unit_sums *found, int unit, int steps, int all,
                                          int i) {
    int begin = unit * steps;
    int first = (WARPS * (begin + 1) - 1) / all, last = (WARPS * (begin + steps) - 1) / all;
    float sum = 0;
#pragma unroll 1 // few warps: long code would be loaded for nothing
    for (int w = first; w <= last; w++) {
        // Of fewer steps than warps some warps have none.
        if (all * w / WARPS < all * (w + 1) / WARPS) sum += found[unit + w][i];
    }
    return sum;
}

// What a thread writes at the end of a round: an activated value, or an output of a token.
struct result {
    bool is_there;
    int unit, i; // the unit, or the first of down's; of a tile
    size_t at; // in memory
    float bias, up_bias, scale, up_scale; // bias: with what the output is added to
};

template <typename K>
__device__ __forceinline__ result result_of(const few_params &p, const block_shared &s,
                                            const round_units &r) {
    result y = {};
    int passes = r.is_down ? p.passes : 1;
    y.unit = threadIdx.x / TILE * passes, y.i = threadIdx.x % TILE;
    y.scale = y.up_scale = K::SUM_SCALE;
    y.is_there = y.unit < r.count;
    if (!y.is_there) return y;
    const product_params &m = r.is_down ? p.down : p.gate_up;
    const int32_t *ids = s.ids[threadIdx.x / 32] + r.token * p.top_k;
    const float *weights = s.token_weights[threadIdx.x / 32] + r.token * p.top_k;
    int unit = r.first + y.unit;
    if (r.is_down) {
        int output = unit / passes * TILE + y.i;
        y.at = (size_t)r.token * m.outputs + output;
        if (p.is_added) y.bias = __bfloat162float(of_step(p.out)[y.at]);
        for (int slot = 0; m.bias && slot < p.top_k; slot++) {
            float value = __bfloat162float(m.bias[(size_t)ids[slot] * m.outputs + output]);
            y.bias = fmaf(weights[slot], value, y.bias);
        }
        return y;
    }
    int half = m.expert_tiles / 2, slot = unit / half, output = unit % half * TILE + y.i;
    y.at = ((size_t)r.token * p.top_k + slot) * m.outputs + output;
    if (m.bias) {
        const __nv_bfloat16 *bias = m.bias + (size_t)ids[slot] * 2 * m.outputs + output;
        y.bias = __bfloat162float(bias[0]), y.up_bias = __bfloat162float(bias[m.outputs]);
    }
    if constexpr (K::GROUP == 0) {
        const float *rows = m.weights.scales.rows + (size_t)ids[slot] * 2 * m.outputs + output;
        y.scale *= rows[0], y.up_scale *= rows[m.outputs];
    }
    return y;
}

template <typename K>
__device__ __forceinline__ void write_result(const few_params &p, const unit_sums *found,
                                             const round_units &r, const result &y) {
    if (!y.is_there) return;
    int steps = r.is_down ? p.down.weights.steps : p.gate_up.weights.steps, all = r.count * steps;
    float value = total_of(found, y.unit, steps, all, y.i);
    if (!r.is_down) {
        float up = total_of(found, y.unit, steps, all, TILE + y.i);
        value =
            activated(p.activation, fmaf(value, y.scale, y.bias), fmaf(up, y.up_scale, y.up_bias));
        of_step(p.activated)[y.at] = __float2bfloat16(value * K::X_SCALE);
        return;
    }
#pragma unroll 1
    for (int pass = 1; pass < p.passes; pass++) {
        value += total_of(found, y.unit + pass, steps, all, y.i);
    }
    of_step(p.out)[y.at] = __float2bfloat16(fmaf(value, y.scale, y.bias));
}

// Waits until all blocks have stored their activated values (rule 11).
__device__ __forceinline__ void wait_for_blocks(const few_params &p) {
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p.arrived) : "memory");
        uint32_t arrived = 0;
        wait_watch watch;
        while (arrived < gridDim.x) {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(arrived)
                         : "l"(p.arrived)
                         : "memory");
            check_rule(arrived <= gridDim.x, 11, gridDim.x, arrived);
            if (arrived < gridDim.x) watch.turn("all blocks", 0, gridDim.x, arrived);
        }
        // The last block behind the barrier: none reads the counters any more.
        if (atomicAdd(p.arrived + 1, 1) == gridDim.x - 1) p.arrived[0] = p.arrived[1] = 0;
    }
    __syncthreads();
}

template <typename K>
__device__ void run_block(const few_params &p, char *memory, block_shared &s) {
    int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    uint32_t region = shared_address(memory);
    int before = p.num_tokens * p.gate_up.rounds, rounds = before + p.num_tokens * p.down.rounds;
    cursor now;
    now.find(p, 0, warp);
    if (lane == 0) s.starts[warp][0] = now;
    now.find(p, before, warp);
    if (lane == 0) s.starts[warp][1] = now;
    __syncwarp();
    wait_for_earlier();
    let_next_start();
    if (lane < p.num_tokens * p.top_k) {
        s.ids[warp][lane] = of_step(p.ids)[lane];
        s.token_weights[warp][lane] = of_step(p.token_weights)[lane];
    }
    __syncwarp();
    step_loader<K> loader(p, s, warp, lane);
    now = enter(p, s, 0, warp);
    row_chunk<K> chunk; // in front of the weights, behind which it would wait
    chunk.load(p.gate_up, p.x, p.num_tokens, 0, threadIdx.x);
    loader.begin(now);
    bring_rows<K>(p.gate_up, p.x, p.num_tokens, false, chunk, region);
    __syncthreads();
    for (int round = 0; round < rounds; round++) {
        round_units units = now.r;
        result y = result_of<K>(p, s, units);
        if (round == before) wait_for_blocks(p);
        if (units.is_down && (round - before) % p.down.rounds == 0) {
            // All have read the rows before: they passed a barrier since.
            const __nv_bfloat16 *rows = p.activated;
            rows += (size_t)units.token * p.top_k * p.down.columns;
            chunk.load(p.down, rows, p.top_k, 0, threadIdx.x);
            bring_rows<K>(p.down, rows, p.top_k, true, chunk, region);
            __syncthreads();
        }
        multiply_round<K>(p, s, loader, now, region);
        if (round + 1 < rounds) {
            now = enter(p, s, round + 1, warp);
            loader.begin(now);
        }
        __syncthreads();
        write_result<K>(p, s.found[round & 1], units, y);
    }
}

template <typename K>
__global__ void __launch_bounds__(THREADS, 1)
    packed_few_tokens_kernel(const __grid_constant__ few_params p) {
    extern __shared__ __align__(128) char memory[]; // rows of x, sums of their groups
    __shared__ block_shared shared;
    NV_IF_TARGET(NV_PROVIDES_SM_90, (run_block<K>(p, memory, shared);))
}

product_params product_of(const cuda_linear_view &v, uint32_t num_experts) {
    product_params m = {};
    m.weights = packed_matrix_of(v);
    m.bias = static_cast<const __nv_bfloat16 *>(v.bias);
    m.expert_tiles = m.weights.tiles / static_cast<int>(num_experts);
    m.in = static_cast<int>(v.in);
    m.x_stride = m.in * 2 + X_PAD;
    return m;
}

int divided_up(int a, int b) {
    return (a + b - 1) / b;
}

// Static shared memory, rounded up to the alignment of the dynamic one.
constexpr size_t STATIC_BYTES = (sizeof(block_shared) + 127) / 128 * 128;

template <typename K>
void launch_kind(few_params p, size_t x_bytes, const cuda_device_info *info, cudaStream_t stream) {
    auto kernel = packed_few_tokens_kernel<K>;
    allow_shared_memory(kernel, STATIC_BYTES, info);
    // Cooperative: blocks start together, once there is room for all. Otherwise two engines of a
    // process could each hold some multiprocessors and wait for the others for ever.
    cudaLaunchAttribute attributes[] = {dependent_attribute(), {}};
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    cudaLaunchConfig_t config = launch_config(dim3(static_cast<unsigned>(info->num_sms)), THREADS,
                                              x_bytes, stream, attributes, 2);
    launch_by(config, kernel, info, p);
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
    few_params p = {};
    p.gate_up = product_of(view->gate_up, view->shape.num_experts);
    p.gate_up.columns = static_cast<int>(view->shape.hidden);
    p.gate_up.outputs = static_cast<int>(view->shape.intermediate);
    p.down = product_of(view->down, view->shape.num_experts);
    p.down.columns = p.gate_up.outputs;
    p.down.outputs = p.gate_up.columns;
    p.x = static_cast<const __nv_bfloat16 *>(args->x);
    p.activated = static_cast<__nv_bfloat16 *>(scratch->activated);
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.is_added = args->is_added;
    p.ids = args->ids;
    p.token_weights = args->weights;
    p.arrived = reinterpret_cast<uint32_t *>(scratch->num_items);
    p.num_tokens = static_cast<int>(args->num_tokens);
    p.top_k = static_cast<int>(args->top_k);
    p.passes = divided_up(p.top_k, 2);
    p.activation = view->activation;
    int units = divided_up(p.top_k * (p.gate_up.expert_tiles / 2), info->num_sms);
    int tiles = divided_up(p.down.expert_tiles, info->num_sms);
    p.gate_up.rounds = divided_up(units, UNITS_MAX);
    p.down.rounds = divided_up(tiles, UNITS_MAX / p.passes);
    size_t first = packed_x_bytes(args->num_tokens, view->gate_up);
    size_t second = packed_x_bytes(args->top_k, view->down), most = first > second ? first : second;
    with_kind(view->gate_up,
              [&](auto kind) { launch_kind<decltype(kind)>(p, most, info, stream); });
}

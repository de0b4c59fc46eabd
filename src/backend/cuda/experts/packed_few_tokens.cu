/* Experts for 1 to 4 tokens whose weights are packed (linear/packed.h), in one kernel (sm_90 and
 * later): activated[pair] = silu(gate x) * (up x), or another activation, then out = sum over slots
 * of weight * (down activated), or the sum is added to out.
 *
 * Weights stream through a ring in shared memory by bulk copies, those of down behind those of gate
 * and up. So memory stays busy while blocks wait for each other between the two products: down's
 * first weights come meanwhile. Each warp has its own part of the ring and refills a slot when it
 * has multiplied it, so no warp waits for another within a round.
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
#include "backend/cuda/hopper.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernel is empty and nothing here is used

namespace {

// Sums of gate's and up's outputs, or of a token's in the first half.
using unit_sums = float[2 * TILE];

// Bytes of a step's scales that go through the ring. Kinds with a word for several steps read it
// from memory: many tiles may share it.
template <typename K>
constexpr int SCALE_BYTES = K::GROUP && !(K::BITS == 8 && K::WORDS == 1) ? TILE * K::WORDS * 4 : 0;
template <typename K> constexpr int SLOT_BYTES = CHUNK * 2 * (STEP_BYTES + SCALE_BYTES<K>);

struct block_shared {
    // Of a round's parity. Unit u's sums by warp w are number u + w: units and warps both ascend.
    unit_sums found[2][UNITS_MAX + WARPS];
    uint64_t full[WARPS][SLOTS_MAX];
    // Each warp has its own, so that it waits for no other before its first copies.
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

// A warp's part of the ring: its slots are filled in the order of its steps.
template <typename K> struct warp_ring {
    const few_params &p;
    const block_shared &s;
    uint32_t slots, full; // shared
    int warp, lane, num_rounds;
    cursor next; // to copy
    int fills; // the slot that is filled next
    uint64_t policy;

    __device__ __forceinline__ void fill() {
        while (next.at == next.end) {
            if (next.round + 1 >= num_rounds) return;
            next = enter(p, s, next.round + 1, warp);
        }
        const product_params &m = next.r.is_down ? p.down : p.gate_up;
        int count = next.chunk(p);
        unit_tiles t = tiles_of(p, s, next, warp);
        uint32_t barrier = full + fills * 8, to = slots + fills * SLOT_BYTES<K>;
        if (lane == 0) barrier_expect(barrier, count * 2 * (STEP_BYTES + SCALE_BYTES<K>)); // rule 8
        __syncwarp();
        size_t step = static_cast<size_t>(lane % 2 ? t.high : t.low) * m.weights.steps + next.step;
        if (lane < 2) {
            copy_bulk(to + lane * CHUNK * STEP_BYTES, m.weights.codes + step * 32,
                      count * STEP_BYTES, barrier, policy);
        } else if (SCALE_BYTES<K> && lane < 4) {
            copy_bulk(to + CHUNK * 2 * STEP_BYTES + lane % 2 * (CHUNK * SCALE_BYTES<K>),
                      m.weights.scales.words + step * (SCALE_BYTES<K> / 4), count * SCALE_BYTES<K>,
                      barrier, policy);
        }
        next.advance(p, count);
        fills = fills + 1 == p.slots ? 0 : fills + 1;
    }
};

// Step number i of a slot. `number`: that of the step among all of the low and the high tile.
template <typename K>
__device__ __forceinline__ void load_step(step_loads<K> &to, const lane_scales<K> &scales,
                                          uint32_t slot, int i, const int (&number)[2], int lane) {
    constexpr int OWN = K::IS_SPREAD ? K::LANE_WORDS : K::WORDS; // words between lanes, or outputs
    uint32_t own = (K::IS_SPREAD ? lane : lane / 4) * (OWN * 4);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        to.codes[half] =
            load_shared16(slot + half * (CHUNK * STEP_BYTES) + i * STEP_BYTES + lane * 16);
        if constexpr (SCALE_BYTES<K> == 0) {
            scales.load(to.scales[half], number[half] / (K::SPAN / K::STEP));
        } else {
            static_assert(K::SPAN == K::STEP, "a step has words of its own");
            uint32_t from = slot + CHUNK * 2 * STEP_BYTES +
                            half * (CHUNK * SCALE_BYTES<K>)+i * SCALE_BYTES<K> + own;
            if constexpr (K::LANE_WORDS == 1) {
                to.scales[half][0] = load_shared(from);
            } else if constexpr (K::LANE_WORDS == 2) {
                uint2 two = load_shared8(from);
                to.scales[half][0] = two.x, to.scales[half][1] = two.y;
            } else {
                static_assert(K::LANE_WORDS == 4, "words");
                uint4 four = load_shared16(from);
                to.scales[half][0] = four.x, to.scales[half][1] = four.y;
                to.scales[half][2] = four.z, to.scales[half][3] = four.w;
            }
        }
    }
}

// Brings rows of x to shared memory, times X_SCALE, with the sums of their groups.
template <typename K>
__device__ __forceinline__ void bring_rows(const product_params &m, const __nv_bfloat16 *from,
                                           int rows, uint32_t x) {
    constexpr int BATCH = 4; // loads that are issued together
    int chunks = m.in / 8;
    for (int begin = threadIdx.x / 32 * 32; begin < chunks; begin += THREADS) {
        int chunk = begin + threadIdx.x % 32;
        bool is_there = chunk < chunks, has_data = chunk * 8 < m.columns;
        for (int first = 0; first < rows; first += BATCH) {
            uint4 v[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                v[b] = make_uint4(0, 0, 0, 0);
                if (first + b >= rows || !has_data) continue;
                const __nv_bfloat16 *row = of_step(from) + (size_t)(first + b) * m.columns;
                v[b] = __ldcg(reinterpret_cast<const uint4 *>(row) + chunk);
            }
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                if (first + b >= rows) break;
                float unused = 0;
                v[b] = prepare_inputs<K>(v[b], nullptr, unused);
                if (is_there) store_inputs(x + (first + b) * m.x_stride, chunk, v[b]);
                if constexpr (K::ZEROS || K::OFFSETS) {
                    keep_group_sums<K>(v[b], x + rows * m.x_stride, first + b, chunk, is_there);
                }
            }
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

// Multiplies this warp's steps of a round, and keeps the sums of each unit.
template <typename K>
__device__ __forceinline__ void multiply_round(const few_params &p, block_shared &s,
                                               warp_ring<K> &ring, cursor now, uint32_t region,
                                               int &slot, uint32_t &parity) {
    constexpr int GROUPS = K::GROUP ? K::SPAN / K::GROUP : 0; // of a span
    int warp = ring.warp, lane = ring.lane;
    const product_params &m = now.r.is_down ? p.down : p.gate_up;
    const lane_scales<K> scales(m.weights.scales, lane);
    int rows = now.r.is_down ? p.top_k : p.num_tokens;
    // Sums of groups are loaded for an even row and the next.
    int token = K::EXPONENTS ? now.r.token : now.r.token & ~1;
    bool is_odd = !K::EXPONENTS && now.r.token & 1;
    float sums[4] = {};
    while (now.at < now.end) {
        int count = now.chunk(p), unit = now.unit, begin = now.step;
        int first = now.r.is_down ? now.slot : token;
        int second = K::EXPONENTS && !now.r.is_down ? token : min(first + 1, rows - 1);
        const unit_inputs inputs(m, region, rows, first, second, lane);
        int number[2] = {};
        unit_tiles t = {};
        if constexpr (SCALE_BYTES<K> == 0) {
            t = tiles_of(p, s, now, warp);
            number[0] = t.low * m.weights.steps + begin;
            number[1] = t.high * m.weights.steps + begin;
        }
        barrier_wait(ring.full + slot * 8, parity, "weights in slot", slot);
        uint32_t from = ring.slots + slot * SLOT_BYTES<K>;
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            if (i >= count) break;
            step_loads<K> loads;
            load_step<K>(loads, scales, from, i, number, lane);
            uint32_t x_sums = inputs.sums + (begin + i) * K::STEP / K::SPAN * (GROUPS * 32);
            uint32_t x = inputs.x + (begin + i) * (K::STEP * 2);
            if constexpr (K::EXPONENTS) {
                multiply_four_groups<K>(sums, loads, x, lane);
            } else {
                multiply_step<K>(sums, loads, x, x_sums, lane);
            }
            number[0]++, number[1]++;
        }
        __syncwarp(); // all lanes have read the slot
        ring.fill();
        if (++slot == p.slots) slot = 0, parity ^= 1;
        if (!now.advance(p, count) && now.at < now.end) continue;
        if constexpr (K::EXPONENTS) {
            sums[0] = quad_sum(sums[0]);
            sums[2] = sums[3] = quad_sum(sums[3]);
        }
        float low = is_odd ? sums[1] : sums[0], high = is_odd ? sums[3] : sums[2];
        if (now.r.is_down) {
            int pair = now.r.token * p.top_k + first;
            bool has_high = first + 1 < p.top_k;
            low = sums[0] * s.token_weights[warp][pair];
            high = has_high ? sums[3] * s.token_weights[warp][pair + 1] : 0;
            if constexpr (K::GROUP == 0) {
                low *= m.weights.scales.rows[t.low * TILE + lane / 4];
                high *= m.weights.scales.rows[t.high * TILE + lane / 4];
            }
            low += high;
        }
        if (lane % 4 == 0) {
            float *found = s.found[now.round & 1][unit + warp];
            found[lane / 4] = low;
            if (!now.r.is_down) found[TILE + lane / 4] = high;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i] = 0;
    }
}

// The sums of a unit by all warps that have steps of it: number `i` of each.
__device__ __forceinline__ float total_of(const unit_sums *found, int unit, int steps, int all,
                                          int i) {
    int begin = unit * steps;
    int first = (WARPS * (begin + 1) - 1) / all, last = (WARPS * (begin + steps) - 1) / all;
    float sum = 0;
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

__device__ __forceinline__ void write_result(const few_params &p, const unit_sums *found,
                                             const round_units &r, const result &y) {
    if (!y.is_there) return;
    int steps = r.is_down ? p.down.weights.steps : p.gate_up.weights.steps, all = r.count * steps;
    float value = total_of(found, y.unit, steps, all, y.i);
    if (!r.is_down) {
        float up = total_of(found, y.unit, steps, all, TILE + y.i);
        value =
            activated(p.activation, fmaf(value, y.scale, y.bias), fmaf(up, y.up_scale, y.up_bias));
        of_step(p.activated)[y.at] = __float2bfloat16(value);
        return;
    }
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
    int slots_bytes = p.slots * SLOT_BYTES<K>;
    uint32_t slots = shared_address(memory), region = slots + WARPS * slots_bytes;
    int before = p.num_tokens * p.gate_up.rounds, rounds = before + p.num_tokens * p.down.rounds;
    warp_ring<K> ring = {
        p,  s, slots + warp * slots_bytes, shared_address(s.full[warp]), warp, lane, rounds,
        {}, 0, evict_first_policy()};
    if (lane < p.slots) barrier_init(ring.full + lane * 8, 1);
    barrier_init_done();
    cursor start;
    start.find(p, 0, warp);
    if (lane == 0) s.starts[warp][0] = start;
    start.find(p, before, warp);
    if (lane == 0) s.starts[warp][1] = start;
    __syncwarp();
    wait_for_earlier();
    let_next_start();
    if (lane < p.num_tokens * p.top_k) {
        s.ids[warp][lane] = of_step(p.ids)[lane];
        s.token_weights[warp][lane] = of_step(p.token_weights)[lane];
    }
    __syncwarp();
    ring.next = enter(p, s, 0, warp);
    for (int i = 0; i < p.slots; i++) ring.fill();
    bring_rows<K>(p.gate_up, p.x, p.num_tokens, region);
    __syncthreads();
    int slot = 0; // of this warp, to multiply next
    uint32_t parity = 0;
    for (int round = 0; round < rounds; round++) {
        cursor now = enter(p, s, round, warp);
        result y = result_of<K>(p, s, now.r);
        if (round == before) wait_for_blocks(p);
        if (now.r.is_down && (round - before) % p.down.rounds == 0) {
            // All have read the rows before: they passed a barrier since.
            const __nv_bfloat16 *rows = p.activated;
            rows += (size_t)now.r.token * p.top_k * p.down.columns;
            bring_rows<K>(p.down, rows, p.top_k, region);
            __syncthreads();
        }
        multiply_round<K>(p, s, ring, now, region, slot, parity);
        __syncthreads();
        write_result(p, s.found[round & 1], now.r, y);
    }
}

template <typename K>
__global__ void __launch_bounds__(THREADS, 1)
    packed_few_tokens_kernel(const __grid_constant__ few_params p) {
    extern __shared__ __align__(128) char memory[]; // ring, rows of x, sums of their groups
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
    size_t room = static_cast<size_t>(info->shared_bytes_max) - STATIC_BYTES - x_bytes;
    size_t slots = room / (WARPS * SLOT_BYTES<K>);
    p.slots = slots < SLOTS_MAX ? static_cast<int>(slots) : SLOTS_MAX;
    auto kernel = packed_few_tokens_kernel<K>;
    allow_shared_memory(kernel, STATIC_BYTES, info);
    // Cooperative: blocks start together, once there is room for all. Otherwise two engines of a
    // process could each hold some multiprocessors and wait for the others for ever.
    cudaLaunchAttribute attributes[] = {dependent_attribute(), {}};
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    cudaLaunchConfig_t config = launch_config(
        dim3(static_cast<unsigned>(info->num_sms)), THREADS,
        static_cast<size_t>(p.slots) * WARPS * SLOT_BYTES<K> + x_bytes, stream, attributes, 2);
    launch_by(config, kernel, info, p);
}

} // namespace

extern "C" size_t cuda_experts_packed_few_bytes(uint32_t rows, uint32_t in,
                                                const struct weight_format *format) {
    uint32_t step = cuda_packed_step(weight_code_bits(format->code)), group = format->group;
    uint32_t groups = group && group <= step ? step / group : 0;
    size_t scales =
        groups * TILE * cuda_packed_group_bytes(format->code, group, format->has_offsets);
    return packed_x_bytes(rows, in, format->code, group, format->has_offsets) + STATIC_BYTES +
           WARPS * CHUNK * 2 * (STEP_BYTES + scales);
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

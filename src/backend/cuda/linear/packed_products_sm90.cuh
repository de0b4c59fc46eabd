/* What linear/packed_batch_sm90.cu and experts/packed_gemm_sm90.cu share: the products of 128
 * outputs, whose codes each warp converts to bf16 in registers, with rows of x in a ring in shared
 * memory.
 *
 * A warp has 16 outputs. It loads the codes and scales of AHEAD blocks of 128 inputs in advance. A
 * unit is 64 inputs: while its matrix instructions run, the next unit is converted. The products of
 * a group of 64 inputs or more are summed apart, multiplied by the group's scale in float32 and
 * added, so a weight is never rounded. Weights of smaller groups are rounded to bf16, as
 * linear/packed.cu writes them: to scale the sums of each would take more instructions. Scales that
 * are powers of 2 lose nothing by that.
 *
 * Layout of the ring: [STAGES][WIDTH rows][64 inputs], swizzled as in hopper.cuh. */
#pragma once

#include "backend/cuda/linear/batch_sums.cuh"
#include "backend/cuda/linear/packed.cuh"

namespace {

constexpr int BLOCK = CUDA_PACKED_BLOCK, X_STAGES = 8;
constexpr int MULTIPLIES = BLOCK / 16; // matrix instructions for a block of inputs
constexpr int UNIT_MULTIPLIES = INPUTS / 16; // for a unit of inputs: those of a stage of x
constexpr int OUTPUTS_OF_WARP = 16;

struct packed_weights {
    const uint4 *codes;
    packed_scales scales;
    int tiles, blocks; // blocks of inputs
};
inline packed_weights packed_weights_of(const cuda_linear_view &v) {
    return {static_cast<const uint4 *>(v.weight), packed_scales_of(v),
            static_cast<int>(v.out / CUDA_PACKED_TILE), static_cast<int>(v.in / BLOCK)};
}

// WIDTH: rows of x, rounded up.
template <int WIDTH_> struct x_ring {
    static constexpr int WIDTH = WIDTH_, STAGES = X_STAGES, STAGE_BYTES = WIDTH * INPUTS_BYTES;
    using place = ring_place<STAGES>;
    struct memory {
        char stages[STAGES][STAGE_BYTES];
        uint64_t full[STAGES], empty[STAGES];
    };
    uint32_t stages, full, empty; // shared addresses

    __device__ __forceinline__ explicit x_ring(const memory &m)
        : stages(shared_address(m.stages)), full(shared_address(m.full)),
          empty(shared_address(m.empty)) {
    }
    // Run by one thread (rule 7).
    __device__ __forceinline__ void init(const CUtensorMap *x) const {
        prefetch_map(x);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, COMPUTING / 32);
        }
        barrier_init_done();
    }

    // Copies the next 64 inputs of rows from `row` on. Run by one thread.
    __device__ __forceinline__ void copy(place &at, const CUtensorMap *x, int input,
                                         int row) const {
        barrier_wait(empty + at.stage * 8, at.parity, "a free stage,", at.stage);
        barrier_expect(full + at.stage * 8, STAGE_BYTES);
        copy_box(stages + at.stage * STAGE_BYTES, of_step(x), input, row, full + at.stage * 8);
        at.advance();
    }
};

// What a lane loads for 128 inputs: of its warp's first tile and of its second.
template <typename K> struct block_loads {
    static constexpr int STEPS = BLOCK / K::STEP, SPANS = BLOCK / K::SPAN;
    // Weights of small groups become bf16. Otherwise the sums of SCALED groups are scaled.
    static constexpr bool ARE_WEIGHTS = K::GROUP && K::GROUP <= CUDA_PACKED_MINIMA_GROUP;
    static constexpr int SCALED = K::GROUP && !ARE_WEIGHTS ? BLOCK / K::GROUP : 0;
    // Weights that are rounded take longer to convert. To convert both units first is faster then:
    // by 11 % with 16 rows.
    static constexpr bool OVERLAPS = !ARE_WEIGHTS || K::EXPONENTS;
    uint4 codes[2][STEPS];
    uint32_t scales[2][SPANS][K::LANE_WORDS];
};

template <typename K>
__device__ __forceinline__ void load_block(block_loads<K> &to, const packed_weights &p,
                                           const int (&tiles)[2], int block, int lane) {
    using loads = block_loads<K>;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        size_t at = static_cast<size_t>(tiles[half] * p.blocks + block) * loads::STEPS * 32 + lane;
#pragma unroll
        for (int i = 0; i < loads::STEPS; i++) to.codes[half][i] = __ldg(p.codes + at + i * 32);
#pragma unroll
        for (int i = 0; i < loads::SPANS; i++) {
            load_scales<K>(to.scales[half][i], p.scales, tiles[half], block * loads::SPANS + i,
                           lane);
        }
    }
}

// Converts the codes of unit 0 or 1 of the 128 inputs to the left operands of its matrix
// instructions. They are the codes' values, exact, or the weights.
template <typename K>
__device__ __forceinline__ void convert_unit(uint32_t (&a)[UNIT_MULTIPLIES][4],
                                             const block_loads<K> &loads, int unit, int lane) {
    constexpr int PER_GROUP = K::GROUP ? K::GROUP / 16 : MULTIPLIES, PER_SPAN = K::SPAN / 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        group_factors f = {};
#pragma unroll
        for (int i = 0; i < UNIT_MULTIPLIES; i++) {
            int number = unit * UNIT_MULTIPLIES + i;
            if (K::GROUP && (i == 0 || number % PER_GROUP == 0)) {
                f = factors_in<K>(loads.scales[half][number / PER_SPAN],
                                  number % PER_SPAN / PER_GROUP, lane);
            }
            value_pairs<K>(loads.codes[half][number / K::MULTIPLIES], number % K::MULTIPLIES,
                           f.zeros, a[i][half], a[i][half + 2]);
            if (block_loads<K>::ARE_WEIGHTS) {
                a[i][half] = weight_pair<K>(a[i][half], f);
                a[i][half + 2] = weight_pair<K>(a[i][half + 2], f);
            }
        }
    }
}

// Products of units in turn. One is in flight while the next is converted.
template <typename R> struct unit_products {
    const R &ring;
    typename R::place at;
    uint32_t before; // barrier of the stage that the unit in flight reads; 0: none is in flight

    __device__ __forceinline__ void release() const {
        __syncwarp();
        if (before && threadIdx.x % 32 == 0) barrier_arrive(before); // rule 9
    }
    // Afterwards the operands of the unit before may be overwritten.
    __device__ __forceinline__ void issue(float (&to)[R::WIDTH / 8][4],
                                          const uint32_t (&a)[UNIT_MULTIPLIES][4], bool adds) {
        uint32_t stage = ring.stages + at.stage * R::STAGE_BYTES;
        barrier_wait(ring.full + at.stage * 8, at.parity, "x of stage", at.stage);
        products_begin();
#pragma unroll
        for (int i = 0; i < UNIT_MULTIPLIES; i++) {
            multiply_registers(to, a[i], operand(stage, 0) + i * 2, adds || i > 0);
        }
        products_commit();
        products_wait<1>();
        release();
        before = ring.empty + at.stage * 8;
        at.advance();
    }
    __device__ __forceinline__ void finish(float (&to)[R::WIDTH / 8][4]) {
        products_wait<0>();
        hold(to);
        release();
        before = 0;
    }
};

template <int N>
__device__ __forceinline__ void add_scaled(float (&sums)[N][4], const float (&part)[N][4],
                                           float low, float high) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        sums[j][0] = fmaf(part[j][0], low, sums[j][0]);
        sums[j][1] = fmaf(part[j][1], low, sums[j][1]);
        sums[j][2] = fmaf(part[j][2], high, sums[j][2]);
        sums[j][3] = fmaf(part[j][3], high, sums[j][3]);
    }
}

// The products of a warp: 16 outputs with R::WIDTH rows of x.
template <typename K, typename R> struct packed_products {
    using loads_type = block_loads<K>;
    static constexpr int AHEAD = R::WIDTH > 64 ? (K::BITS == 8 ? 2 : 3) : 4;
    static constexpr int SCALED = loads_type::SCALED;
    static constexpr bool OVERLAPS = loads_type::OVERLAPS;
    loads_type loads[AHEAD];
    int tiles[2];

    // Loads the first blocks of inputs from `begin` on, of the outputs from `row` on. Missing tiles
    // are multiplied, but their results are not used.
    __device__ __forceinline__ void begin(const packed_weights &p, int row, int begin, int end,
                                          int lane) {
        tiles[0] = min(row / CUDA_PACKED_TILE, p.tiles - 1);
        tiles[1] = min(row / CUDA_PACKED_TILE + 1, p.tiles - 1);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (begin + i < end) load_block<K>(loads[i], p, tiles, begin + i, lane);
        }
    }

    // sums: zeros before. The first blocks are loaded. `at` moves on in the ring.
    __device__ __forceinline__ void multiply(float (&sums)[R::WIDTH / 8][4],
                                             const packed_weights &p, const R &ring,
                                             typename R::place &at, int begin, int end, int lane) {
        uint32_t a[2][UNIT_MULTIPLIES][4]; // of units that take turns
        if (OVERLAPS) convert_unit<K>(a[0], loads[0], 0, lane);
        unit_products<R> products = {ring, at, 0};
        for (int block = begin; block < end; block += AHEAD) {
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                if (block + i >= end) break;
                float part[R::WIDTH / 8][4], scales[2][2] = {}; // scales: of groups and halves
                float(&to)[R::WIDTH / 8][4] = SCALED ? part : sums;
#pragma unroll
                for (int g = 0; g < 2 * SCALED; g++) {
                    scales[g / 2][g % 2] =
                        factors_in<K>(loads[i].scales[g % 2][0], g / 2, lane).scale;
                }
                if (!OVERLAPS) convert_unit<K>(a[0], loads[i], 0, lane);
                if (!OVERLAPS) convert_unit<K>(a[1], loads[i], 1, lane);
                products.issue(to, a[0], !SCALED && block + i > begin);
                if (OVERLAPS) convert_unit<K>(a[1], loads[i], 1, lane);
                int next = block + i + AHEAD;
                if (next < end) load_block<K>(loads[i], p, tiles, next, lane);
                if (SCALED == 2) {
                    products.finish(part);
                    add_scaled(sums, part, scales[0][0], scales[0][1]);
                }
                products.issue(to, a[1], SCALED != 2);
                if (OVERLAPS && block + i + 1 < end) {
                    convert_unit<K>(a[0], loads[(i + 1) % AHEAD], 0, lane);
                }
                if (!OVERLAPS) products.finish(to);
                if (SCALED) {
                    products.finish(part);
                    add_scaled(sums, part, scales[SCALED == 2][0], scales[SCALED == 2][1]);
                }
            }
        }
        if (!SCALED) products.finish(sums);
        if (K::GROUP == 0) scale_rows(sums, p, lane);
        at = products.at;
    }

    __device__ __forceinline__ void scale_rows(float (&sums)[R::WIDTH / 8][4],
                                               const packed_weights &p, int lane) const {
        float low = p.scales.rows[tiles[0] * CUDA_PACKED_TILE + lane / 4];
        float high = p.scales.rows[tiles[1] * CUDA_PACKED_TILE + lane / 4];
#pragma unroll
        for (int j = 0; j < R::WIDTH / 8; j++) {
            sums[j][0] *= low, sums[j][1] *= low;
            sums[j][2] *= high, sums[j][3] *= high;
        }
    }
};

} // namespace

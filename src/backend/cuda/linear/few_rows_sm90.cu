/* Linear layers for 1 to 8 rows of small matrices, sm_90 and later: linear/few_rows.cu's function,
 * with all of a block's weights on their way to its shared memory before the kernel in front has
 * ended. There they wait for as long as it takes, and a multiprocessor has room for those of two or
 * three kernels, so memory goes on while kernels hand over to each other; what is held in registers
 * leaves no room for the next kernel's blocks.
 *
 * Only so many copies are on their way at once: a queue of them would stand in front of all that
 * the kernels before this one still have to load. Once those have ended, the rest may come at once.
 *
 * What is left after the wait is a matter of instructions, each of which is run once a launch:
 * norms' weights are in shared memory by then, biases in registers. Registers and shared memory are
 * cut so that two of these, of Qwen3-0.6B's matrices, and attention/decode_cluster.cu's kernel have room at
 * once.
 *
 * A tile is 8 rows of the matrix; two of them are the left operand of mma.sync m16n8k16 (gates and
 * their ups, where gated), rows of x its 8 columns. A warp takes every 8th line (64 inputs) of all
 * tiles; sums meet in shared memory, in order. A tile comes in two halves of 4 rows, the second
 * half half a line further; rows of both by turns are the operand's, so that 8 lanes that read 16
 * bytes each of two rows find 8 different banks.
 *
 * Launch: a block per multiprocessor, or per tile where there are fewer; 8 warps, of which the last
 * also copies. */
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/linear/few_rows.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32, TILE_ROWS = 8, TILES_MAX = 6;
constexpr int LINE = 64; // inputs
constexpr int LINES_MAX = 6; // of a warp
constexpr int HALF_ROWS = TILE_ROWS / 2, HALF_PAD = 64; // bytes
constexpr int COPY_BYTES = 8 << 10, COPIES_MAX = 24; // of a block
constexpr int AHEAD_BYTES = 24 << 10; // on their way to a block
constexpr int STREAM_BYTES_MAX = 112 << 10; // of a block

struct stream_params {
    few_params few;
    int copy_rows, num_copies, ahead; // rows of a copy; copies of a block, on their way at most
};

// First row of the matrix of a block's tile; -1: none. In pairs: gates and their ups where gated.
template <bool GATED> __device__ __forceinline__ int tile_row(const few_params &p, int tile) {
    if (GATED) {
        int half = p.num_outputs / 2, row = (blockIdx.x + tile / 2 * gridDim.x) * TILE_ROWS;
        return row >= half ? -1 : tile % 2 ? half + row : row;
    }
    int row = (blockIdx.x + tile * gridDim.x) * TILE_ROWS;
    return row < p.num_outputs ? row : -1;
}

// A block's tiles on their way, some rows of one half at a time. Of its last warp.
template <int TILES, bool GATED> struct tile_copies {
    const stream_params &s;
    uint32_t tiles, copied; // shared: memory; mbarriers [num_copies]

    // By one thread: waits for some before it begins others, and then for all, until `is_open`.
    // Returns how many are known to be there.
    __device__ __forceinline__ int issue(const volatile int *is_open) const {
        const few_params &p = s.few;
        uint32_t row_bytes = p.in * 2;
        uint64_t policy = evict_first_policy();
        int there = 0;
        for (int i = 0; i < s.num_copies + s.ahead; i++) {
            if (i >= s.ahead) {
                wait_watch watch;
                while (!*is_open && !barrier_test(copied + there * 8, 0)) {
                    barrier_turn(watch, copied + there * 8, 0, "copy", there);
                }
                if (!*is_open) there++;
            }
            if (i >= s.num_copies) continue;
            int row = i * s.copy_rows, first = tile_row<GATED>(p, row / TILE_ROWS);
            uint32_t bytes = first < 0 ? 0 : s.copy_rows * row_bytes;
            barrier_expect(copied + i * 8, bytes);
            if (!bytes) continue;
            const __nv_bfloat16 *from = p.weight + (size_t)(first + row % TILE_ROWS) * p.in;
            copy_bulk(tiles + row * row_bytes + row / HALF_ROWS * HALF_PAD, from, bytes,
                      copied + i * 8, policy);
        }
        return there;
    }
    __device__ __forceinline__ void wait(int there) const {
        for (int i = there; i < s.num_copies; i++) barrier_wait(copied + i * 8, 0, "copy", i);
    }
};

// The operand's row in a tile's.
__device__ __forceinline__ int tile_row_of(int row) {
    return row % 2 * HALF_ROWS + row / 2;
}

// What is compiled in: lines of a warp at most (exactly so many where IS_EXACT), tiles of a block.
template <int LINES_, bool IS_EXACT_, int TILES_, bool NORM_, bool GATED_> struct stream_kind {
    static constexpr int LINES = LINES_, TILES = TILES_, PAIRS = (TILES + 1) / 2;
    static constexpr bool IS_EXACT = IS_EXACT_, NORM = NORM_, GATED = GATED_;
    // Of sums that do not wait for each other: more where there are registers for them.
    static constexpr int CHAINS = TILES == 1 && LINES * (NORM ? 2 : 1) <= 4 ? 4 : 2;
    static constexpr int BLOCKS =
        LINES * TILES <= (GATED ? 12 : 8) ? 3 : 2; // that have room at once
    static constexpr int UNITS = GATED ? TILES / 2 : TILES; // a pair of tiles, or a tile
    using sums = few_sums<WARPS, TILES * TILE_ROWS, ROWS_TILE>;
};

// The result number i of a block: of its outputs, and rows in turn.
template <typename K> __device__ __forceinline__ result_place place_of(const few_params &p, int i) {
    constexpr int PER_BLOCK = K::UNITS * TILE_ROWS;
    result_place r = {};
    int number = i % PER_BLOCK, unit = number / TILE_ROWS;
    r.row = i / PER_BLOCK;
    r.local = (K::GATED ? 2 * unit : unit) * TILE_ROWS + number % TILE_ROWS;
    r.output = (blockIdx.x + unit * gridDim.x) * TILE_ROWS + number % TILE_ROWS;
    r.at = r.row * columns_of(p) + r.output;
    r.is_there = r.row < p.rows && r.output < columns_of(p);
    return r;
}

// A pair of inputs times the norm's weights for them; their squares join.
__device__ __forceinline__ uint32_t norm_pair(uint32_t x, uint32_t a, uint32_t b, float &squares) {
    float low = bf16_low(x), high = bf16_high(x);
    squares = fmaf(high, high, fmaf(low, low, squares));
    return scale_pair(x, __uint_as_float(a), __uint_as_float(b));
}
// 8 inputs; the norm's weights are in shared memory.
__device__ __forceinline__ uint4 norm_inputs(uint4 x, uint32_t norm, float (&squares)[2]) {
    uint4 a = load_shared16(norm), b = load_shared16(norm + 16);
    return make_uint4(norm_pair(x.x, a.x, a.y, squares[0]), norm_pair(x.y, a.z, a.w, squares[1]),
                      norm_pair(x.z, b.x, b.y, squares[0]), norm_pair(x.w, b.z, b.w, squares[1]));
}

// A block's barriers, and what its threads tell each other.
struct stream_barriers {
    uint64_t copied[COPIES_MAX], full; // full: all copies are there
    volatile int is_open; // the kernels in front have ended
};

// By all threads of the warp that then copies.
__device__ __forceinline__ void init_barriers(stream_barriers &b, int lane) {
    if (lane == 0) {
        b.is_open = 0;
        barrier_init(shared_address(&b.full), 1);
    }
    if (lane < COPIES_MAX) barrier_init(shared_address(&b.copied[lane]), 1);
    barrier_init_done();
    __syncwarp();
}

// Lines of a warp; those past the end are not used.
template <typename K> __device__ __forceinline__ bool has_line(int i, int num_lines) {
    return K::IS_EXACT || i < num_lines;
}

// From this lane's first inputs on. Instead of a line past the end the first comes once more.
template <typename K>
__device__ __forceinline__ void load_x(uint4 (&x)[K::LINES][2], const __nv_bfloat16 *from,
                                       int num_lines) {
#pragma unroll
    for (int i = 0; i < K::LINES; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int line = has_line<K>(i, num_lines) ? i * WARPS * LINE : 0;
            x[i][h] = __ldcg(reinterpret_cast<const uint4 *>(of_step(from) + line + h * 32));
        }
    }
}

template <typename K>
__device__ __forceinline__ void norm_x(uint4 (&x)[K::LINES][2], float (&squares)[2], uint32_t norm,
                                       int num_lines) {
#pragma unroll
    for (int i = 0; i < K::LINES; i++) {
        if (!has_line<K>(i, num_lines)) break;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            x[i][h] = norm_inputs(x[i][h], norm + (i * WARPS * LINE + h * 32) * 4, squares);
        }
    }
}

template <typename K>
__device__ __forceinline__ void multiply_tiles(float (&acc)[K::PAIRS][K::CHAINS][4],
                                               const uint4 (&x)[K::LINES][2], uint32_t weights,
                                               uint32_t half_bytes, int num_lines) {
#pragma unroll
    for (int i = 0; i < K::LINES; i++) {
        if (!has_line<K>(i, num_lines)) break;
#pragma unroll
        for (int pair = 0; pair < K::PAIRS; pair++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t at = weights + i * WARPS * LINE * 2 + h * 64 + 4 * pair * half_bytes;
                uint4 low = load_shared16(at), high = {};
                if (2 * pair + 1 < K::TILES) high = load_shared16(at + 2 * half_bytes);
                multiply_piece(acc[pair][(i * 2 + h) % K::CHAINS], low, high, x[i][h]);
            }
        }
    }
}

template <typename K>
__device__ __forceinline__ void keep_sums(typename K::sums &found,
                                          float (&acc)[K::PAIRS][K::CHAINS][4], int warp,
                                          int lane) {
#pragma unroll
    for (int pair = 0; pair < K::PAIRS; pair++) {
#pragma unroll
        for (int c = 1; c < K::CHAINS; c++) {
#pragma unroll
            for (int j = 0; j < 4; j++) acc[pair][0][j] += acc[pair][c][j];
        }
        found.keep(acc[pair][0], warp, pair * OUTPUTS + tile_row_of(lane / 4), 0, lane,
                   2 * pair + 1 < K::TILES);
    }
}

// A block's results; `mine` belongs to this thread's first.
template <typename K>
__device__ __forceinline__ void write_results(const few_params &p, const typename K::sums &found,
                                              const result_addends &mine) {
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread)); // its place is found once more: registers are short
    write_result(p, place_of<K>(p, thread), mine, found, K::NORM, K::GATED);
    for (int i = thread + THREADS; i < K::UNITS * TILE_ROWS * p.rows; i += THREADS) {
        result_place next = place_of<K>(p, i);
        result_addends addends = load_bias(p, next, K::GATED);
        addends.residual = residual_of(p, next);
        write_result(p, next, addends, found, K::NORM, K::GATED);
    }
}

template <typename K>
__device__ __forceinline__ void run_block(const stream_params &s, char *memory, int warp) {
    __shared__ stream_barriers b;
    const few_params &p = s.few;
    if (warp == WARPS - 1) init_barriers(b, threadIdx.x % 32);
    int lane = threadIdx.x % 32, row = lane / 4; // row: of x and of the operand
    int num_lines = K::IS_EXACT ? K::LINES : (p.in / LINE - warp + WARPS - 1) / WARPS;
    int column = (num_lines ? warp * LINE : 0) + lane % 4 * 8; // this lane's first inputs
    uint32_t row_bytes = p.in * 2, half_bytes = HALF_ROWS * row_bytes + HALF_PAD;
    uint32_t tiles = shared_address(memory), norm = tiles + 2 * K::TILES * half_bytes; // [in]
    uint32_t weights = tiles + row % 2 * half_bytes + row / 2 * row_bytes + column * 2;
    if (K::NORM) {
        for (int i = threadIdx.x; i < p.in / 4; i += THREADS) {
            store_shared16(norm + i * 16, reinterpret_cast<const uint4 *>(p.norm)[i]);
        }
        norm += column * 4;
    }
    const __nv_bfloat16 *x_lane = p.x + (size_t)min(row, p.rows - 1) * p.in + column;
    result_addends mine = load_bias(p, place_of<K>(p, threadIdx.x), K::GATED);
    const tile_copies<K::TILES, K::GATED> copies = {s, tiles, shared_address(b.copied)};
    __syncthreads(); // barriers and the norm's weights are there
    bool is_done = true; // nothing is left to wait for by this thread
    int num_there = 0;
    if (threadIdx.x == THREADS - 32) {
        num_there = copies.issue(&b.is_open);
        is_done = num_there == s.num_copies;
        if (is_done) barrier_arrive(shared_address(&b.full));
    }
    __syncwarp();
    wait_for_earlier();
    if (threadIdx.x == 0) b.is_open = 1;
    uint4 x[K::LINES][2];
    load_x<K>(x, x_lane, num_lines);
    mine.residual = residual_of(p, place_of<K>(p, threadIdx.x));
    if (!is_done) { // while x is on its way
        copies.wait(num_there);
        barrier_arrive(shared_address(&b.full));
    }
    __syncwarp();
    float acc[K::PAIRS][K::CHAINS][4] = {}, squares[2] = {};
    if (K::NORM) norm_x<K>(x, squares, norm, num_lines);
    barrier_wait(shared_address(&b.full), 0, "all weights");
    multiply_tiles<K>(acc, x, weights, half_bytes, num_lines);
    __syncthreads(); // the sums of all warps take the place of weights, which all have read
    auto &found = *reinterpret_cast<typename K::sums *>(memory);
    keep_sums<K>(found, acc, warp, lane);
    if (K::NORM) found.keep_squares(squares[0] + squares[1], warp, row, lane);
    __syncthreads();
    write_results<K>(p, found, mine);
}

template <typename K>
__global__ void __launch_bounds__(THREADS, K::BLOCKS)
    stream_kernel(const __grid_constant__ stream_params s) {
    extern __shared__ __align__(128) char memory[]; // half tiles and HALF_PAD each, norm [in]
    NV_IF_TARGET(NV_PROVIDES_SM_90, (let_next_start();
                                     // So that the compiler knows it to be the same for a warp.
                                     int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0);
                                     run_block<K>(s, memory, warp);))
}

// Of a block's shared memory: tiles and the norm's weights, then sums.
int bytes_of(int tiles, int in, bool has_norm) {
    int floats = WARPS * ROWS_TILE * (few_stride(tiles * TILE_ROWS) + 1);
    int sums = floats * static_cast<int>(sizeof(float));
    int weights = 2 * tiles * (HALF_ROWS * in * 2 + HALF_PAD) + (has_norm ? in * 4 : 0);
    return weights > sums ? weights : sums;
}

// Always the same, since it is the process's and not the launch's: two engines may launch at once.
int bytes_max(const cuda_device_info *info) {
    int most = info->shared_bytes_max - 1024; // for the kernel's own barriers
    return most < STREAM_BYTES_MAX ? most : STREAM_BYTES_MAX;
}

using stream_launcher = void (*)(const stream_params &, int, const cuda_device_info *,
                                 cudaStream_t);

template <typename K>
void launch(const stream_params &s, int blocks, const cuda_device_info *info, cudaStream_t stream) {
    auto kernel = stream_kernel<K>;
    // One split of the memory that is L1's and shared for all kernels of a row: another one would
    // wait until a multiprocessor is idle.
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes_max(info));
    launch_dependent(kernel, dim3(blocks), THREADS, bytes_of(K::TILES, s.few.in, K::NORM), info,
                     stream, s);
}

template <int LINES, bool IS_EXACT, int TILES> stream_launcher launcher_of(const few_params &p) {
    constexpr int EVEN = (TILES + 1) / 2 * 2;
    if (p.is_gated) return launch<stream_kind<LINES, IS_EXACT, EVEN, true, true>>;
    return p.norm ? launch<stream_kind<LINES, IS_EXACT, TILES, true, false>>
                  : launch<stream_kind<LINES, IS_EXACT, TILES, false, false>>;
}
template <int LINES, bool IS_EXACT> stream_launcher launcher_of(const few_params &p, int tiles) {
    switch (tiles) {
    case 1:
        return launcher_of<LINES, IS_EXACT, 1>(p);
    case 2:
        return launcher_of<LINES, IS_EXACT, 2>(p);
    case 3:
        return launcher_of<LINES, IS_EXACT, 3>(p);
    case 4:
        return launcher_of<LINES, IS_EXACT, 4>(p);
    case 5:
        return launcher_of<LINES, IS_EXACT, 5>(p);
    default:
        return launcher_of<LINES, IS_EXACT, 6>(p);
    }
}
template <int LINES> stream_launcher launcher_of(const few_params &p, int tiles) {
    return p.in == LINES * WARPS * LINE ? launcher_of<LINES, true>(p, tiles)
                                        : launcher_of<LINES, false>(p, tiles);
}
stream_launcher launcher_of(const few_params &p, int tiles) {
    int lines = (p.in / LINE + WARPS - 1) / WARPS;
    if (lines <= 2) return launcher_of<2>(p, tiles);
    return lines <= 4 ? launcher_of<4>(p, tiles) : launcher_of<6>(p, tiles);
}

// How many rows of a half tile are copied at once, and how many copies are on their way.
void cut_copies(stream_params *s) {
    int row_bytes = s->few.in * 2, rows = HALF_ROWS;
    while (rows > 1 && rows * row_bytes > COPY_BYTES) rows /= 2;
    int ahead = AHEAD_BYTES / (rows * row_bytes);
    s->copy_rows = rows;
    s->ahead = ahead ? ahead : 1;
}

// What a launch needs, and whether the kernel takes the linear.
struct stream_plan {
    stream_params params;
    int tiles, blocks;
    bool is_taken;
};

stream_plan plan_of(const cuda_small_linear *args, const cuda_device_info *info) {
    stream_plan plan = {};
    stream_params &s = plan.params;
    s.few = few_params_of(args);
    const few_params &p = s.few;
    int units = columns_of(p) / TILE_ROWS;
    if (info->major < 9 || p.rows > ROWS_TILE || !units || columns_of(p) % TILE_ROWS) return plan;
    if (p.in % LINE || p.in > LINES_MAX * WARPS * LINE || (p.is_gated && !p.norm)) return plan;
    int per_block = (units + info->num_sms - 1) / info->num_sms;
    plan.tiles = p.is_gated ? 2 * per_block : per_block;
    if (plan.tiles > TILES_MAX || bytes_of(plan.tiles, p.in, p.norm) > bytes_max(info)) return plan;
    cut_copies(&s);
    s.num_copies = plan.tiles * TILE_ROWS / s.copy_rows;
    plan.blocks = (units + per_block - 1) / per_block;
    plan.is_taken = s.num_copies <= COPIES_MAX;
    return plan;
}

} // namespace

bool linear_stream_takes(const cuda_small_linear *args, const cuda_device_info *info) {
    return plan_of(args, info).is_taken;
}

void linear_stream_launch(const cuda_small_linear *args, const cuda_device_info *info,
                          cudaStream_t stream) {
    const stream_plan plan = plan_of(args, info);
    launcher_of(plan.params.few, plan.tiles)(plan.params, plan.blocks, info, stream);
}

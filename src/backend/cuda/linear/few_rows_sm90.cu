/* Linear layers for 1 to 8 rows of small matrices (sm_90 and later). It computes what
 * linear/few_rows.cu does, but copies all of a block's weights to shared memory before the previous
 * kernel has ended. They can wait there: a multiprocessor has room for the weights of two or three
 * kernels. So memory stays busy while kernels hand over. Weights held in registers would leave no
 * room for the next kernel's blocks.
 *
 * The copies in flight are limited: a longer queue would delay what the earlier kernels still have
 * to load. Once those have ended, the rest is issued without a limit.
 *
 * After the wait, the time is that of executing instructions, each once per launch. So by then the
 * norm's weights are in shared memory and biases in registers. Register and shared memory use is
 * such that two of these kernels, for Qwen3-0.6B's matrices, and attention/decode_cluster.cu's
 * kernel fit at once.
 *
 * A tile is 8 rows of the matrix. Two tiles are the left operand of mma.sync m16n8k16 (gates and
 * their ups if gated), and rows of x are its 8 columns. A warp takes every 8th line (64 inputs) of
 * all tiles. The warps' sums are joined in shared memory, in order. A tile is stored as two halves
 * of 4 rows, the second half shifted by half a line. The operand's rows alternate between the
 * halves, so 8 lanes that read 16 bytes each of two rows hit different banks.
 *
 * Launch: a block per multiprocessor, or per tile if there are fewer tiles. A block has 8 warps;
 * the last one also copies. */
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/linear/few_rows.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32, TILE_ROWS = 8, TILES_MAX = 6;
constexpr int LINE = 64; // inputs
constexpr int LINES_MAX = 6; // per warp
constexpr int HALF_ROWS = TILE_ROWS / 2, HALF_PAD = 64; // bytes
constexpr int COPY_BYTES = 8 << 10, COPIES_MAX = 24; // bytes of a copy; copies per block
constexpr int AHEAD_BYTES = 24 << 10; // in flight per block
constexpr int BLOCK_BYTES_MAX = 112 << 10; // per block

struct sm90_params {
    few_rows_params few;
    int copy_rows, num_copies, ahead; // rows of a copy; copies per block; most copies in flight
};

// First matrix row of a block's tile. -1: none. If gated, tiles come in pairs: gates and their ups.
template <bool GATED> __device__ __forceinline__ int tile_row(const few_rows_params &p, int tile) {
    if (GATED) {
        int half = p.num_outputs / 2, row = (blockIdx.x + tile / 2 * gridDim.x) * TILE_ROWS;
        return row >= half ? -1 : tile % 2 ? half + row : row;
    }
    int row = (blockIdx.x + tile * gridDim.x) * TILE_ROWS;
    return row < p.num_outputs ? row : -1;
}

// Copies a block's tiles, some rows of one half at a time. Run by the block's last warp.
template <int TILES, bool GATED> struct tile_copies {
    const sm90_params &s;
    uint32_t tiles, copied; // shared: memory; mbarriers [num_copies]

    // Run by one thread. Until `is_open` it waits for an old copy before it issues a new one, and
    // at the end for all of them. Returns how many copies it knows to be complete.
    __device__ __forceinline__ int issue(const volatile int *is_open) const {
        const few_rows_params &p = s.few;
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

// Which row of a tile is the operand's row `row`.
__device__ __forceinline__ int tile_row_of(int row) {
    return row % 2 * HALF_ROWS + row / 2;
}

// Compile-time parameters. LINES: most lines of a warp, exactly that many if IS_EXACT. TILES: of a
// block.
template <int LINES_, bool IS_EXACT_, int TILES_, bool NORM_, bool GATED_> struct sm90_kind {
    static constexpr int LINES = LINES_, TILES = TILES_, PAIRS = (TILES + 1) / 2;
    static constexpr bool IS_EXACT = IS_EXACT_, NORM = NORM_, GATED = GATED_;
    // Independent chains of sums: more if registers allow it.
    static constexpr int CHAINS = TILES == 1 && LINES * (NORM ? 2 : 1) <= 4 ? 4 : 2;
    static constexpr int BLOCKS =
        LINES * TILES <= (GATED ? 12 : 8) ? 3 : 2; // blocks that fit on a multiprocessor at once
    // A unit is a tile, or a pair of tiles if gated.
    static constexpr int UNITS = GATED ? TILES / 2 : TILES;
    using sums = few_rows_sums<WARPS, TILES * TILE_ROWS, ROWS_TILE>;
};

// Result number i of a block: output by output within a row, then the next row.
template <typename K>
__device__ __forceinline__ result_place place_of(const few_rows_params &p, int i) {
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

// A pair of inputs times the norm's weights. Adds their squares to `squares`.
__device__ __forceinline__ uint32_t norm_pair(uint32_t x, uint32_t a, uint32_t b, float &squares) {
    float low = bf16_low(x), high = bf16_high(x);
    squares = fmaf(high, high, fmaf(low, low, squares));
    return scale_pair(x, __uint_as_float(a), __uint_as_float(b));
}
// The same for 8 inputs. `norm` is the address of the weights in shared memory.
__device__ __forceinline__ uint4 norm_inputs(uint4 x, uint32_t norm, float (&squares)[2]) {
    uint4 a = load_shared16(norm), b = load_shared16(norm + 16);
    return make_uint4(norm_pair(x.x, a.x, a.y, squares[0]), norm_pair(x.y, a.z, a.w, squares[1]),
                      norm_pair(x.z, b.x, b.y, squares[0]), norm_pair(x.w, b.z, b.w, squares[1]));
}

// A block's barriers, and a flag between its threads.
struct sm90_barriers {
    uint64_t copied[COPIES_MAX], full; // full: all copies are complete
    volatile int is_open; // the previous kernels have ended
};

// Run by all lanes of the warp that copies.
__device__ __forceinline__ void init_barriers(sm90_barriers &b, int lane) {
    if (lane == 0) {
        b.is_open = 0;
        barrier_init(shared_address(&b.full), 1);
    }
    if (lane < COPIES_MAX) barrier_init(shared_address(&b.copied[lane]), 1);
    barrier_init_done();
    __syncwarp();
}

// Whether a warp has a line number i. Lines past the end are not used.
template <typename K> __device__ __forceinline__ bool has_line(int i, int num_lines) {
    return K::IS_EXACT || i < num_lines;
}

// Loads x from this lane's first input on. A line past the end is replaced by the first line.
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

// Writes a block's results. `mine` belongs to this thread's first result.
template <typename K>
__device__ __forceinline__ void write_results(const few_rows_params &p,
                                              const typename K::sums &found,
                                              const result_addends &mine) {
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread)); // recomputes the result's place, which saves registers
    write_result(p, place_of<K>(p, thread), mine, found, K::NORM, K::GATED);
    for (int i = thread + THREADS; i < K::UNITS * TILE_ROWS * p.rows; i += THREADS) {
        result_place next = place_of<K>(p, i);
        result_addends addends = load_bias(p, next, K::GATED);
        addends.residual = residual_of(p, next);
        write_result(p, next, addends, found, K::NORM, K::GATED);
    }
}

template <typename K>
__device__ __forceinline__ void run_block(const sm90_params &s, char *memory, int warp) {
    __shared__ sm90_barriers b;
    const few_rows_params &p = s.few;
    if (warp == WARPS - 1) init_barriers(b, threadIdx.x % 32);
    int lane = threadIdx.x % 32, row = lane / 4; // row: of x and of the operand
    int num_lines = K::IS_EXACT ? K::LINES : (p.in / LINE - warp + WARPS - 1) / WARPS;
    int column = (num_lines ? warp * LINE : 0) + lane % 4 * 8; // this lane's first input
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
    __syncthreads(); // barriers are initialised, the norm's weights are stored
    bool is_done = true; // this thread's copies are complete, or it issued none
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
    if (!is_done) { // while x is being loaded
        copies.wait(num_there);
        barrier_arrive(shared_address(&b.full));
    }
    __syncwarp();
    float acc[K::PAIRS][K::CHAINS][4] = {}, squares[2] = {};
    if (K::NORM) norm_x<K>(x, squares, norm, num_lines);
    barrier_wait(shared_address(&b.full), 0, "all weights");
    multiply_tiles<K>(acc, x, weights, half_bytes, num_lines);
    __syncthreads(); // all have read the weights, which the sums overwrite
    auto &found = *reinterpret_cast<typename K::sums *>(memory);
    keep_sums<K>(found, acc, warp, lane);
    if (K::NORM) found.keep_squares(squares[0] + squares[1], warp, row, lane);
    __syncthreads();
    write_results<K>(p, found, mine);
}

template <typename K>
__global__ void __launch_bounds__(THREADS, K::BLOCKS)
    few_rows_sm90_kernel(const __grid_constant__ sm90_params s) {
    extern __shared__ __align__(128) char memory[]; // half tiles with HALF_PAD each, then norm [in]
    NV_IF_TARGET(NV_PROVIDES_SM_90, (let_next_start();
                                     // Tells the compiler that the value is uniform across the
                                     // warp.
                                     int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0);
                                     run_block<K>(s, memory, warp);))
}

// Shared memory of a block: tiles and the norm's weights, later the sums.
int bytes_of(int tiles, int in, bool has_norm) {
    int floats = WARPS * ROWS_TILE * (few_rows_stride(tiles * TILE_ROWS) + 1);
    int sums = floats * static_cast<int>(sizeof(float));
    int weights = 2 * tiles * (HALF_ROWS * in * 2 + HALF_PAD) + (has_norm ? in * 4 : 0);
    return weights > sums ? weights : sums;
}

// The same value at every launch: the attribute belongs to the process, and two engines may launch
// at the same time.
int bytes_max(const cuda_device_info *info) {
    int most = info->shared_bytes_max - 1024; // 1,024 are for the kernel's barriers
    return most < BLOCK_BYTES_MAX ? most : BLOCK_BYTES_MAX;
}

using sm90_launcher = void (*)(const sm90_params &, int, const cuda_device_info *, cudaStream_t);

template <typename K>
void launch(const sm90_params &s, int blocks, const cuda_device_info *info, cudaStream_t stream) {
    auto kernel = few_rows_sm90_kernel<K>;
    // All kernels of a layer use the same split of L1 and shared memory. A kernel with another
    // split would wait until a multiprocessor is idle.
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes_max(info));
    launch_dependent(kernel, dim3(blocks), THREADS, bytes_of(K::TILES, s.few.in, K::NORM), info,
                     stream, s);
}

template <int LINES, bool IS_EXACT, int TILES> sm90_launcher launcher_of(const few_rows_params &p) {
    constexpr int EVEN = (TILES + 1) / 2 * 2;
    if (p.is_gated) return launch<sm90_kind<LINES, IS_EXACT, EVEN, true, true>>;
    return p.norm ? launch<sm90_kind<LINES, IS_EXACT, TILES, true, false>>
                  : launch<sm90_kind<LINES, IS_EXACT, TILES, false, false>>;
}
template <int LINES, bool IS_EXACT> sm90_launcher launcher_of(const few_rows_params &p, int tiles) {
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
template <int LINES> sm90_launcher launcher_of(const few_rows_params &p, int tiles) {
    return p.in == LINES * WARPS * LINE ? launcher_of<LINES, true>(p, tiles)
                                        : launcher_of<LINES, false>(p, tiles);
}
sm90_launcher launcher_of(const few_rows_params &p, int tiles) {
    int lines = (p.in / LINE + WARPS - 1) / WARPS;
    if (lines <= 2) return launcher_of<2>(p, tiles);
    return lines <= 4 ? launcher_of<4>(p, tiles) : launcher_of<6>(p, tiles);
}

// Chooses how many rows of a half tile a copy has, and how many copies are in flight.
void cut_copies(sm90_params *s) {
    int row_bytes = s->few.in * 2, rows = HALF_ROWS;
    while (rows > 1 && rows * row_bytes > COPY_BYTES) rows /= 2;
    int ahead = AHEAD_BYTES / (rows * row_bytes);
    s->copy_rows = rows;
    s->ahead = ahead ? ahead : 1;
}

// The parameters of a launch, and whether the kernel takes the linear.
struct sm90_plan {
    sm90_params params;
    int tiles, blocks;
    bool is_taken;
};

sm90_plan plan_of(const cuda_few_rows_linear *args, const cuda_device_info *info) {
    sm90_plan plan = {};
    sm90_params &s = plan.params;
    s.few = few_rows_params_of(args);
    const few_rows_params &p = s.few;
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

bool few_rows_sm90_takes(const cuda_few_rows_linear *args, const cuda_device_info *info) {
    return plan_of(args, info).is_taken;
}

void few_rows_sm90_launch(const cuda_few_rows_linear *args, const cuda_device_info *info,
                          cudaStream_t stream) {
    const sm90_plan plan = plan_of(args, info);
    launcher_of(plan.params.few, plan.tiles)(plan.params, plan.blocks, info, stream);
}

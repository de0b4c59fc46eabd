/* Linear layers for 1 to 8 rows of small matrices (sm_90 and later). It computes what
 * linear/few_rows.cu does, but copies all of a block's weights to shared memory before the previous
 * kernel has ended. They can wait there: a multiprocessor has room for the weights of two or three
 * kernels. So memory stays busy while kernels hand over. Weights held in registers would leave no
 * room for the next kernel's blocks. linear/few_rows_kernels.h lists the kernels.
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
#include "backend/cuda/linear/few_rows_kernels.h"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

constexpr int WARPS = FEW_ROWS_WARPS, THREADS = WARPS * 32, TILE_ROWS = FEW_ROWS_TILE;
constexpr int BLOCKS = 3; // whose registers fit on a multiprocessor at once
constexpr int LINE = FEW_ROWS_LINE, ALL_WARPS = WARPS * LINE; // inputs
constexpr int HALF_ROWS = TILE_ROWS / 2, HALF_PAD = 64; // bytes
constexpr int COPY_BYTES = 8 << 10; // most bytes of a copy
constexpr int AHEAD_BYTES = 24 << 10; // in flight per block
constexpr int BARRIER_BYTES = 1024; // at least what the kernel's barriers take
constexpr int BLOCK_BYTES_MAX = 227 * 1024 / 2; // two blocks of a layer's kernels fit at once

// Shared memory of a block: tiles and the norm's weights, later the sums.
constexpr int bytes_of(int tiles, int in, bool has_norm) {
    int floats = WARPS * ROWS_TILE * (few_rows_stride(tiles * TILE_ROWS) + 1);
    int sums = floats * static_cast<int>(sizeof(float));
    int weights = 2 * tiles * (HALF_ROWS * in * 2 + HALF_PAD) + (has_norm ? in * 4 : 0);
    return weights > sums ? weights : sums;
}

enum work { PLAIN, NORMED, NORMED_GATED };

// Compile-time parameters of a kernel, as in linear/few_rows_kernels.h. Missing tiles are
// multiplied too, but their results are not used.
template <int LINES_, int TILES_, work WORK> struct sm90_kind {
    static constexpr int LINES = LINES_, TILES = TILES_, PAIRS = (TILES + 1) / 2;
    static constexpr bool NORM = WORK != PLAIN, GATED = WORK == NORMED_GATED;
    static constexpr int IN_MAX = FEW_ROWS_IN_MAX(LINES);
    // A unit is a tile, or a pair of tiles if gated.
    static constexpr int UNIT_TILES = GATED ? 2 : 1, UNITS = TILES / UNIT_TILES;
    // Copies: how many rows of a half tile each has, how many a block makes, and how many are in
    // flight.
    static constexpr int COPY_ROWS = COPY_BYTES / (IN_MAX * 2);
    static constexpr int COPIES = TILES * TILE_ROWS / COPY_ROWS;
    static constexpr int AHEAD = AHEAD_BYTES / (COPY_ROWS * IN_MAX * 2);
    static_assert(COPY_ROWS > 0 && HALF_ROWS % COPY_ROWS == 0, "a copy lies in a half tile");
    // Independent chains of sums: more if registers allow it.
    static constexpr int CHAINS = TILES == 1 && LINES <= 4 ? 4 : PAIRS <= 2 ? 2 : 1;
    static constexpr int BYTES_MAX = bytes_of(TILES, IN_MAX, NORM);
    static_assert(BYTES_MAX + BARRIER_BYTES <= BLOCK_BYTES_MAX, "a block's shared memory");
    using sums = few_rows_sums<WARPS, TILES * TILE_ROWS>;
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
template <typename K> struct tile_copies {
    const few_rows_params &p;
    uint32_t tiles, copied; // shared: memory; mbarriers [COPIES]

    // Run by one thread. Until `is_open` it waits for an old copy before it issues a new one, and
    // at the end for all of them. Returns how many copies it knows to be complete.
    __device__ __forceinline__ int issue(const volatile int *is_open) const {
        uint32_t row_bytes = p.in * 2;
        uint64_t policy = evict_first_policy();
        int there = 0;
#pragma unroll 1
        for (int i = 0; i < K::COPIES + K::AHEAD; i++) {
            if (i >= K::AHEAD) {
                wait_watch watch;
                while (!*is_open && !barrier_test(copied + there * 8, 0)) {
                    barrier_turn(watch, copied + there * 8, 0, "copy", there);
                }
                if (!*is_open) there++;
            }
            if (i >= K::COPIES) continue;
            int row = i * K::COPY_ROWS, first = tile_row<K::GATED>(p, row / TILE_ROWS);
            uint32_t bytes = first < 0 ? 0 : K::COPY_ROWS * row_bytes;
            barrier_expect(copied + i * 8, bytes);
            if (!bytes) continue;
            const __nv_bfloat16 *from = p.weight + (size_t)(first + row % TILE_ROWS) * p.in;
            copy_bulk(tiles + row * row_bytes + row / HALF_ROWS * HALF_PAD, from, bytes,
                      copied + i * 8, policy);
        }
        return there;
    }
    __device__ __forceinline__ void wait(int there) const {
#pragma unroll 1
        for (int i = there; i < K::COPIES; i++) barrier_wait(copied + i * 8, 0, "copy", i);
    }
};

// Which row of a tile is the operand's row `row`.
__device__ __forceinline__ int tile_row_of(int row) {
    return row % 2 * HALF_ROWS + row / 2;
}

// The result that a thread writes, if any: output by output within a row, then the next row.
template <typename K>
__device__ __forceinline__ result_place place_of(const few_rows_params &p, int thread) {
    constexpr int PER_ROW = K::UNITS * TILE_ROWS;
    static_assert(PER_ROW * ROWS_TILE <= THREADS, "a thread each");
    result_place r = {};
    int number = thread % PER_ROW, unit = number / TILE_ROWS;
    r.row = thread / PER_ROW;
    r.local = K::UNIT_TILES * unit * TILE_ROWS + number % TILE_ROWS;
    int columns = K::GATED ? p.num_outputs / 2 : p.num_outputs;
    r.output = (blockIdx.x + unit * gridDim.x) * TILE_ROWS + number % TILE_ROWS;
    r.at = r.row * columns + r.output;
    r.is_there = r.row < p.rows && r.output < columns;
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
template <typename K> struct sm90_barriers {
    uint64_t copied[K::COPIES], full; // full: all copies are complete
    volatile int is_open; // the previous kernels have ended
};

// Run by all lanes of the warp that copies.
template <typename K> __device__ __forceinline__ void init_barriers(sm90_barriers<K> &b, int lane) {
    static_assert(K::COPIES <= 32, "a lane each");
    if (lane == 0) {
        b.is_open = 0;
        barrier_init(shared_address(&b.full), 1);
    }
    if (lane < K::COPIES) barrier_init(shared_address(&b.copied[lane]), 1);
    barrier_init_done();
    __syncwarp();
}

// Whether a warp has a line number i. Lines that it does not have are not used.
template <typename K> __device__ __forceinline__ bool has_line(int i, int num_lines) {
    return i < K::LINES - 2 || i < num_lines;
}

// Loads x from this lane's first input on. A line past the end is replaced by the first line.
template <typename K>
__device__ __forceinline__ void load_x(uint4 (&x)[K::LINES][2], const __nv_bfloat16 *from,
                                       int num_lines) {
#pragma unroll
    for (int i = 0; i < K::LINES; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int column = has_line<K>(i, num_lines) ? i * ALL_WARPS : 0;
            x[i][h] = __ldcg(reinterpret_cast<const uint4 *>(of_step(from) + column + h * 32));
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
            x[i][h] = norm_inputs(x[i][h], norm + (i * ALL_WARPS + h * 32) * 4, squares);
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
                uint32_t at = weights + (i * ALL_WARPS + h * 32) * 2 + 4 * pair * half_bytes;
                uint4 low = load_shared16(at), high = {};
                if (2 * pair + 1 < K::TILES) high = load_shared16(at + 2 * half_bytes);
                multiply_slice(acc[pair][(i * 2 + h) % K::CHAINS], low, high, x[i][h]);
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
        found.keep(acc[pair][0], warp, pair * OUTPUTS + tile_row_of(lane / 4), lane,
                   2 * pair + 1 < K::TILES);
    }
}

// Terms added to a result as bits of bf16; 0 if absent. They are converted when they are added: a
// conversion at once would wait for the load.
struct late_addends {
    uint32_t bias_bits, residual_bits;

    static __device__ __forceinline__ uint32_t bits_of(const __nv_bfloat16 *from) {
        return *reinterpret_cast<const uint16_t *>(from);
    }
    __device__ __forceinline__ float bias() const {
        return bf16_low(bias_bits);
    }
    __device__ __forceinline__ float up_bias() const {
        return 0;
    }
    __device__ __forceinline__ float residual() {
        asm volatile("" : "+r"(residual_bits)); // keeps the compiler from converting earlier
        return bf16_low(residual_bits);
    }
};

// Biases are constant, so they are loaded before the wait.
__device__ __forceinline__ late_addends load_bias(const few_rows_params &p, const result_place &r) {
    late_addends a = {};
    if (!p.bias || !r.is_there) return a;
    a.bias_bits = late_addends::bits_of(p.bias + r.output);
    return a;
}
__device__ __forceinline__ uint32_t load_residual(const few_rows_params &p, const result_place &r) {
    return p.residual && r.is_there ? late_addends::bits_of(of_step(p.residual) + r.at) : 0;
}

// Reads threadIdx.x anew. So it takes no register during the products.
__device__ __forceinline__ int read_thread() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

template <typename K>
__device__ __forceinline__ void run_block(const few_rows_params &p, char *memory, int warp) {
    __shared__ sm90_barriers<K> b;
    if (warp == WARPS - 1) init_barriers(b, threadIdx.x % 32);
    int lane = threadIdx.x % 32, row = lane / 4; // row: of x and of the operand
    int num_lines = (p.in / LINE - warp + WARPS - 1) / WARPS;
    int column = (num_lines ? warp * LINE : 0) + lane % 4 * 8; // this lane's first input
    uint32_t row_bytes = p.in * 2, half_bytes = HALF_ROWS * row_bytes + HALF_PAD;
    uint32_t tiles = shared_address(memory), norm = tiles + 2 * K::TILES * half_bytes; // [in]
    uint32_t weights = tiles + row % 2 * half_bytes + row / 2 * row_bytes + column * 2;
    if (K::NORM) {
#pragma unroll 1
        for (int i = threadIdx.x; i < p.in / 4; i += THREADS) {
            store_shared16(norm + i * 16, reinterpret_cast<const uint4 *>(p.norm)[i]);
        }
        norm += column * 4;
    }
    const __nv_bfloat16 *x_lane = p.x + (size_t)min(row, p.rows - 1) * p.in + column;
    late_addends mine = {};
    if (!K::GATED) mine = load_bias(p, place_of<K>(p, threadIdx.x));
    const tile_copies<K> copies = {p, tiles, shared_address(b.copied)};
    __syncthreads(); // barriers are initialised, the norm's weights are stored
    bool is_done = true; // this thread's copies are complete, or it issued none
    int num_there = 0;
    if (threadIdx.x == THREADS - 32) {
        num_there = copies.issue(&b.is_open);
        is_done = num_there == K::COPIES;
        if (is_done) barrier_arrive(shared_address(&b.full));
    }
    __syncwarp();
    wait_for_earlier();
    if (threadIdx.x == 0) b.is_open = 1;
    if (!K::NORM) mine.residual_bits = load_residual(p, place_of<K>(p, threadIdx.x));
    uint4 x[K::LINES][2];
    load_x<K>(x, x_lane, num_lines);
    if (!is_done) { // while x is being loaded
        copies.wait(num_there);
        barrier_arrive(shared_address(&b.full));
    }
    __syncwarp();
    float acc[K::PAIRS][K::CHAINS][4] = {}, squares[2] = {};
    if (K::NORM) norm_x<K>(x, squares, norm, num_lines);
    barrier_wait(shared_address(&b.full), 0, "all weights");
    multiply_tiles<K>(acc, x, weights, half_bytes, num_lines);
    int thread = read_thread();
    warp = thread / 32, lane = thread % 32;
    __syncthreads(); // all have read the weights, which the sums overwrite
    auto &found = *reinterpret_cast<typename K::sums *>(memory);
    keep_sums<K>(found, acc, warp, lane);
    if (K::NORM) found.keep_squares(squares[0] + squares[1], warp, lane / 4, lane);
    __syncthreads();
    bool has_residual = !K::NORM && p.residual;
    write_result(p, place_of<K>(p, thread), mine, found, K::NORM, K::GATED, has_residual);
}

template <typename K>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    few_rows_sm90_kernel(const __grid_constant__ few_rows_params p) {
    extern __shared__ __align__(128) char memory[]; // half tiles with HALF_PAD each, then norm [in]
    NV_IF_TARGET(NV_PROVIDES_SM_90, (let_next_start();
                                     // Tells the compiler that the value is uniform across the
                                     // warp.
                                     int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0);
                                     run_block<K>(p, memory, warp);))
}

template <typename K>
void launch(const few_rows_params &p, int blocks, const cuda_device_info *info,
            cudaStream_t stream) {
    auto kernel = few_rows_sm90_kernel<K>;
    prefer_shared_memory(kernel, info); // as all kernels of a layer
    allow_shared_bytes(kernel, K::BYTES_MAX, info);
    launch_dependent(kernel, dim3(blocks), THREADS, bytes_of(K::TILES, p.in, K::NORM), info, stream,
                     p);
}

// By number.
struct sm90_kernel {
    int units, bytes_max; // units of a block
    void (*launch)(const few_rows_params &, int blocks, const cuda_device_info *, cudaStream_t);
};
template <int LINES, int TILES, work WORK> constexpr sm90_kernel kernel_of() {
    using K = sm90_kind<LINES, TILES, WORK>;
    return {K::UNITS, K::BYTES_MAX, launch<K>};
}

#define KERNEL_OF(LINES, TILES, WORK) kernel_of<LINES, TILES, WORK>(),
constexpr sm90_kernel kernels[FEW_ROWS_SM90_COUNT] = {FEW_ROWS_SM90_KERNELS(KERNEL_OF)};

} // namespace

extern "C" int cuda_linear_few_rows_sm90_bytes(uint32_t number) {
    return kernels[number].bytes_max + BARRIER_BYTES;
}

extern "C" void cuda_linear_few_rows_sm90_launch(const struct cuda_few_rows_linear *args,
                                                 uint32_t number,
                                                 const struct cuda_device_info *info,
                                                 cudaStream_t stream) {
    const few_rows_params p = few_rows_params_of(args);
    int units = columns_of(p) / TILE_ROWS, per_block = (units + info->num_sms - 1) / info->num_sms;
    kernels[number].launch(p, (units + per_block - 1) / per_block, info, stream);
}

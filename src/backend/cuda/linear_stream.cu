/* Linear layers for 1 to 8 rows of small matrices, sm_90 and later: linear_small.cu's function, with all
 * of a block's weights on their way to its shared memory before the kernel in front has ended. There
 * they wait for as long as it takes, and a multiprocessor has room for those of two or three
 * kernels, so memory goes on while kernels hand over to each other; what is held in registers
 * leaves no room for the next kernel's blocks.
 *
 * Only so many copies are on their way at once: a queue of them would stand in front of all that the
 * kernels before this one still have to load. Once those have ended, the rest may come at once.
 *
 * What is left after the wait is a matter of instructions, each of which is run once a launch: the
 * norm's weights are in shared memory by then, and the squares that a norm needs are a matrix
 * product of x with itself.
 *
 * A tile is 8 rows of the matrix; two of them are the left operand of mma.sync m16n8k16 (gates and
 * their ups, where gated), rows of x its 8 columns. A warp takes every 8th line (64 inputs) of all
 * tiles; sums meet in shared memory, in order. A tile comes in two halves of 4 rows, the second half
 * a line further; rows of both by turns are the operand's, so that 8 lanes that read 16 bytes each of
 * two rows find 8 different banks.
 *
 * Launch: a block per multiprocessor, or per tile where there are fewer; 8 warps and one that
 * copies. */
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/linear_few.cuh"

#include <nv/target>

namespace {

constexpr int WARPS = 8, THREADS = (WARPS + 1) * 32, TILE_ROWS = 8, TILES_MAX = 6;
constexpr int LINE = 64; // inputs
constexpr int LINES_MAX = 6; // of a warp
constexpr int HALF_ROWS = TILE_ROWS / 2, HALF_PAD = 64; // bytes
constexpr int AHEAD_BYTES = 16 << 10; // on their way to a block
constexpr int STREAM_BYTES_MAX = 112 << 10; // of weights in a block

struct stream_params {
    few_params few;
    int ahead; // half tiles on their way
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

// By one thread: the block's tiles, half by half; `full` is arrived at when all are there.
template <int TILES, bool GATED>
__device__ void copy_tiles(const stream_params &s, uint32_t tiles, uint32_t halves, uint32_t full,
                           const volatile int *is_open) {
    const few_params &p = s.few;
    uint32_t bytes = HALF_ROWS * p.in * 2;
    uint64_t policy = evict_first_policy();
    for (int i = 0; i < 2 * TILES; i++) {
        if (i >= s.ahead && !*is_open) barrier_wait(halves + (i - s.ahead) * 8, 0);
        int row = tile_row<GATED>(p, i / 2);
        barrier_expect(halves + i * 8, row < 0 ? 0 : bytes);
        if (row < 0) continue;
        const __nv_bfloat16 *from = p.weight + (size_t)(row + i % 2 * HALF_ROWS) * p.in;
        copy_bulk(tiles + i * (bytes + HALF_PAD), from, bytes, halves + i * 8, policy);
    }
    for (int i = 0; i < 2 * TILES; i++) barrier_wait(halves + i * 8, 0);
    barrier_arrive(full);
}

// The operand's row in a tile's.
__device__ __forceinline__ int tile_row_of(int row) {
    return row % 2 * HALF_ROWS + row / 2;
}

// The result number i of a block: of its outputs, and rows in turn.
template <int TILES, bool GATED>
__device__ __forceinline__ result_place place_of(const few_params &p, int i) {
    constexpr int UNITS = GATED ? TILES / 2 : TILES, PER_BLOCK = UNITS * TILE_ROWS;
    result_place r = {};
    int number = i % PER_BLOCK, unit = number / TILE_ROWS; // gated: a pair, else a tile
    r.row = i / PER_BLOCK;
    r.local = (GATED ? 2 * unit : unit) * TILE_ROWS + number % TILE_ROWS;
    r.output = (blockIdx.x + unit * gridDim.x) * TILE_ROWS + number % TILE_ROWS;
    r.at = r.row * columns_of(p) + r.output;
    r.is_there = r.row < p.rows && r.output < columns_of(p);
    return r;
}

// 8 inputs times the norm's weights for them, which are in shared memory.
__device__ __forceinline__ uint4 times_norm(uint4 x, uint32_t norm) {
    uint4 a = load_shared16(norm), b = load_shared16(norm + 16);
    auto f = [](uint32_t bits) { return __uint_as_float(bits); };
    return make_uint4(scale_pair(x.x, f(a.x), f(a.y)), scale_pair(x.y, f(a.z), f(a.w)),
                      scale_pair(x.z, f(b.x), f(b.y)), scale_pair(x.w, f(b.z), f(b.w)));
}

// The product of x with itself: its diagonal is sums of squares, [row][row] as multiply() has them.
__device__ __forceinline__ void add_squares(float (&gram)[4], uint4 x) {
    const uint32_t first[4] = {x.x, 0, x.y, 0}, second[4] = {x.z, 0, x.w, 0};
    multiply(gram, first, x.x, x.y);
    multiply(gram, second, x.z, x.w);
}

template <int LINES, bool EXACT, int TILES, bool NORM, bool GATED>
__device__ __forceinline__ void run_block(const stream_params &s, char *memory,
                                          few_sums<WARPS, TILES * TILE_ROWS, ROWS_TILE> &found,
                                          uint32_t full, volatile int *is_open, int warp) {
    const few_params &p = s.few;
    int lane = threadIdx.x % 32, row = lane / 4;
    // Of lines past the end what is loaded is the first once more, and is not used.
    int num_lines = EXACT ? LINES : (p.in / LINE - warp + WARPS - 1) / WARPS;
    int column = (num_lines ? warp * LINE : 0) + lane % 4 * 8;
    uint32_t row_bytes = p.in * 2, half_bytes = HALF_ROWS * row_bytes + HALF_PAD;
    uint32_t weights =
        shared_address(memory) + row % 2 * half_bytes + row / 2 * row_bytes + column * 2;
    uint32_t norm = shared_address(memory) + 2 * TILES * half_bytes; // [in]
    if (NORM) {
        for (int i = threadIdx.x; i < p.in / 4; i += WARPS * 32) {
            store_shared16(norm + i * 16, reinterpret_cast<const uint4 *>(p.norm)[i]);
        }
        norm += column * 4;
    }
    const __nv_bfloat16 *x_lane = p.x + (size_t)min(row, p.rows - 1) * p.in + column;
    result_place mine = place_of<TILES, GATED>(p, threadIdx.x);
    load_bias(p, mine, GATED);
    if (NORM) named_wait(1, WARPS * 32);
    wait_for_earlier();
    if (threadIdx.x == 0) *is_open = 1;
    uint4 x[LINES][2];
#pragma unroll
    for (int i = 0; i < LINES; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int line = EXACT || i < num_lines ? i * WARPS * LINE : 0;
            x[i][h] = __ldcg(reinterpret_cast<const uint4 *>(x_lane + line + h * 32));
        }
    }
    mine.residual = residual_of(p, mine);
    constexpr int PAIRS = (TILES + 1) / 2,
                  CHAINS = PAIRS == 1 ? 4 : 2; // of sums that do not wait for each other
    float acc[PAIRS][CHAINS][4] = {}, gram[4] = {};
    if constexpr (NORM) {
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            if (!EXACT && i >= num_lines) break;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                add_squares(gram, x[i][h]);
                x[i][h] = times_norm(x[i][h], norm + (i * WARPS * LINE + h * 32) * 4);
            }
        }
    }
    barrier_wait(full, 0);
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        if (!EXACT && i >= num_lines) break;
#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t at = weights + i * WARPS * LINE * 2 + h * 64 + 4 * pair * half_bytes;
                uint4 low = load_shared16(at), high = {};
                if (2 * pair + 1 < TILES) high = load_shared16(at + 2 * half_bytes);
                multiply_piece(acc[pair][(i * 2 + h) % CHAINS], low, high, x[i][h]);
            }
        }
    }
#pragma unroll
    for (int pair = 0; pair < PAIRS; pair++) {
#pragma unroll
        for (int c = 1; c < CHAINS; c++) {
#pragma unroll
            for (int j = 0; j < 4; j++) acc[pair][0][j] += acc[pair][c][j];
        }
        found.keep(acc[pair][0], warp, pair * OUTPUTS + tile_row_of(row), 0, lane,
                   2 * pair + 1 < TILES);
    }
    if (NORM && lane % 4 == row / 2) {
        found.squares[warp * ROWS_TILE + row] = row % 2 ? gram[1] : gram[0];
    }
    named_wait(1, WARPS * 32);
    if (mine.is_there) write_result(p, mine, found, NORM, GATED);
    for (int i = threadIdx.x + WARPS * 32; i < TILES * (GATED ? 4 : 8) * p.rows; i += WARPS * 32) {
        result_place next = place_of<TILES, GATED>(p, i);
        load_bias(p, next, GATED);
        next.residual = residual_of(p, next);
        if (next.is_there) write_result(p, next, found, NORM, GATED);
    }
}

template <int LINES, bool EXACT, int TILES, bool NORM, bool GATED>
__global__ void __launch_bounds__(THREADS, LINES *TILES <= 12 ? 3 : 2)
    stream_kernel(const __grid_constant__ stream_params s) {
    extern __shared__ __align__(128) char memory[]; // [2 * PAIRS * TILE_ROWS][in * 2 + ROW_PAD]
    __shared__ few_sums<WARPS, TILES * TILE_ROWS, ROWS_TILE> found;
    __shared__ uint64_t halves[2 * TILES], full;
    __shared__ int is_open;
    NV_IF_TARGET(
        NV_PROVIDES_SM_90,
        (
            if (threadIdx.x == 0) {
                is_open = 0;
                barrier_init(shared_address(&full), 1);
            } if (threadIdx.x < 2 * TILES) barrier_init(shared_address(&halves[threadIdx.x]), 1);
            barrier_init_done(); __syncthreads(); let_next_start();
            // So that the compiler knows it to be the same for a warp.
            int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0);
            if (warp == WARPS) {
                if (threadIdx.x % 32) return;
                copy_tiles<TILES, GATED>(s, shared_address(memory), shared_address(halves),
                                         shared_address(&full), &is_open);
            } else {
                run_block<LINES, EXACT, TILES, NORM, GATED>(s, memory, found, shared_address(&full),
                                                            &is_open, warp);
            }))
}

// Of a block's shared memory: tiles, the norm's weights.
int bytes_of(int tiles, int in, bool has_norm) {
    return 2 * tiles * (HALF_ROWS * in * 2 + HALF_PAD) + (has_norm ? in * 4 : 0);
}

using stream_launcher = void (*)(const stream_params &, int, const cuda_device_info *,
                                 cudaStream_t);

template <int LINES, bool EXACT, int TILES, bool NORM, bool GATED>
void launch(const stream_params &s, int blocks, const cuda_device_info *info, cudaStream_t stream) {
    auto kernel = stream_kernel<LINES, EXACT, TILES, NORM, GATED>;
    int bytes = bytes_of(TILES, s.few.in, NORM);
    // One split of the memory that is L1's and shared for all kernels of a row: another one would
    // wait until a multiprocessor is idle.
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, STREAM_BYTES_MAX);
    launch_dependent(kernel, dim3(blocks), THREADS, bytes, info, stream, s);
}

template <int LINES, bool EXACT> stream_launcher launcher_of(int tiles, bool norm, bool gated) {
    switch (tiles) {
#define LAUNCHER(N)                                                                                \
    case N:                                                                                        \
        if (gated) return launch<LINES, EXACT, (N + 1) / 2 * 2, true, true>;                       \
        return norm ? launch<LINES, EXACT, N, true, false> : launch<LINES, EXACT, N, false, false>
        LAUNCHER(1);
        LAUNCHER(2);
        LAUNCHER(3);
        LAUNCHER(4);
        LAUNCHER(5);
    default:
        LAUNCHER(6);
#undef LAUNCHER
    }
}
template <int LINES> stream_launcher launcher_of(int in, int tiles, bool norm, bool gated) {
    return in == LINES * WARPS * LINE ? launcher_of<LINES, true>(tiles, norm, gated)
                                      : launcher_of<LINES, false>(tiles, norm, gated);
}

} // namespace

bool linear_stream_launch(const cuda_small_linear *args, const cuda_device_info *info,
                          cudaStream_t stream) {
    stream_params s = {};
    s.few = few_params_of(args);
    const few_params &p = s.few;
    int columns = columns_of(p), units = columns / TILE_ROWS;
    if (info->major < 9 || p.rows > ROWS_TILE || p.in % LINE || columns % TILE_ROWS || !units)
        return false;
    if (p.in > LINES_MAX * WARPS * LINE || (p.is_gated && !p.norm)) return false;
    int blocks = units < info->num_sms ? units : info->num_sms;
    int per_block = (units + blocks - 1) / blocks, tiles = p.is_gated ? 2 * per_block : per_block;
    blocks =
        (units + per_block - 1) / per_block; // a multiprocessor that has none may be busy longer
    if (tiles > TILES_MAX || bytes_of(tiles, p.in, p.norm) > STREAM_BYTES_MAX) return false;
    int ahead = AHEAD_BYTES / (HALF_ROWS * p.in * 2);
    s.ahead = ahead ? ahead : 1;
    int lines = (p.in / LINE + WARPS - 1) / WARPS;
    stream_launcher launch = lines <= 2   ? launcher_of<2>(p.in, tiles, p.norm, p.is_gated)
                             : lines <= 4 ? launcher_of<4>(p.in, tiles, p.norm, p.is_gated)
                                          : launcher_of<6>(p.in, tiles, p.norm, p.is_gated);
    launch(s, blocks, info, stream);
    return true;
}

/* Linear layers of large matrices for 1 to 4 rows (sm_90a). It computes what linear/few_rows.cu
 * does, but weights stream through a ring in shared memory, which is filled for the first time
 * before the previous kernel has ended. A block of one band takes half of a multiprocessor. So the
 * next kernel's block fills its own ring while this one's last weights are multiplied, and memory
 * stays busy while kernels hand over.
 *
 * A block has the outputs of one or more bands. A band is up to 48 outputs, or 24 gates and their
 * ups. All blocks have the same number of bands; the last one may have fewer. Warps divide the
 * inputs of a band. A warp takes every 8th chunk of 1 to 4 lines (64 inputs). It has a ring of its
 * own and refills a stage when it has multiplied it. So it waits for no other warp until the sums
 * of a group of bands, mostly all of the block's, are joined in shared memory, in order. A copy is
 * a box of a tensor map.
 *
 * Two tiles of 8 outputs are the left operand of mma.sync m16n8k16 (8 gates and their ups if
 * gated), and rows of x are its columns. x, times the norm's weights, is in shared memory. The
 * norm's root is applied to the sums. A row's bits do not depend on the other rows.
 *
 * Layout: per warp stages of [lines of a chunk][band's outputs][128 bytes], swizzled as in
 * hopper.cuh; x [rows][x_stride]; sums [WARPS][rows][stride]; barriers.
 *
 * Launch: a block per multiprocessor or less, of 8 warps. Bytes: weights once. */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/linear/few_rows.cuh"
#include "backend/cuda/tensor_map.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32;
constexpr int BLOCKS = 3; // whose registers fit on a multiprocessor at once
constexpr int ROWS_MAX = CUDA_RING_ROWS;
constexpr int TILE = 8, PAIRS_MAX = 3; // outputs of a tile; pairs of tiles of a band
constexpr int LINE = 64, LINE_BYTES = LINE * 2, TILE_BYTES = TILE * LINE_BYTES;
constexpr int CHUNK_LINES_MAX = 4, CHUNK_BYTES = 6 << 10; // most of a chunk, if it is of many lines
constexpr int STAGES_MAX = 8; // of a warp's ring
constexpr int HALF_BYTES = 113 << 10; // two blocks fit on a multiprocessor, 1 KB each reserved
constexpr int CHAINS = 2; // of sums, so that a product need not wait for the one before it

struct ring_params {
    CUtensorMap weight; // [lines][gates, ups][outputs of each][LINE]
    few_rows_params base; // `weight` is not used
    int band; // outputs of a band, or gates
    int bands, block_bands; // of the matrix; of a block
    int group_bands; // bands whose sums are joined together
    int chunks, chunk_lines, chunk_bytes; // chunks of a band
    int stages; // of a warp's ring
    int x_stride; // bytes between rows of x in shared memory
};

struct ring_barriers {
    uint64_t full[WARPS][STAGES_MAX];
    float squares[WARPS][ROWS_MAX]; // of x, by the warp that brought them
};

// Bytes of shared memory. The ring comes first: its stages must be aligned.
__host__ __device__ inline int ring_bytes(const ring_params &p) {
    return WARPS * p.stages * p.chunk_bytes;
}
// Tiles of a band that are multiplied in pairs, as outputs.
__host__ __device__ inline int band_sums(const ring_params &p) {
    return p.base.is_gated ? 2 * p.band : (p.band + OUTPUTS - 1) / OUTPUTS * OUTPUTS;
}
// Floats between rows of sums; padded so that keep_sums()'s 32 stores hit 32 different banks.
__host__ __device__ inline int sums_stride(const ring_params &p) {
    return p.group_bands * band_sums(p) + 4;
}
__host__ __device__ inline int sums_floats(const ring_params &p) {
    return WARPS * p.base.rows * sums_stride(p);
}
inline int rest_bytes(const ring_params &p) {
    return p.base.rows * p.x_stride + sums_floats(p) * static_cast<int>(sizeof(float)) +
           static_cast<int>(sizeof(ring_barriers));
}

// A warp's copies: its chunks of the block's bands, in the order of their use.
struct warp_ring {
    const ring_params &p;
    uint32_t stages, full; // shared
    int warp, band, end; // the band to copy from next, and behind the last one
    int chunk, stage; // to copy next, and where to
    uint64_t policy;

    // Run by one lane. Does nothing if all are copied.
    __device__ __forceinline__ void fill() {
        if (band == end) return;
        uint32_t barrier = full + stage * 8;
        barrier_expect(barrier, p.chunk_bytes);
        copy_lines(stages + stage * p.chunk_bytes, &p.weight, band * p.band, chunk * p.chunk_lines,
                   barrier, policy);
        chunk += WARPS;
        if (chunk >= p.chunks) chunk = warp, band++;
        if (++stage == p.stages) stage = 0;
    }
};

// 8 inputs of a row times the norm's weights. Adds their squares to `squares`.
// linear/few_rows.cu has the same in its own function: with this one it takes 82 registers instead
// of 80, and a multiprocessor runs one block less.
__device__ __forceinline__ uint4 scale_inputs(uint4 x, const float *norm, float &squares) {
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        squares += bf16_low(words[i]) * bf16_low(words[i]);
        squares += bf16_high(words[i]) * bf16_high(words[i]);
    }
    float4 a = *reinterpret_cast<const float4 *>(norm);
    float4 b = *reinterpret_cast<const float4 *>(norm + 4);
    return make_uint4(scale_pair(x.x, a.x, a.y), scale_pair(x.y, a.z, a.w),
                      scale_pair(x.z, b.x, b.y), scale_pair(x.w, b.z, b.w));
}

// A row of x, and which of the turns in which a block's threads bring it.
struct row_turn {
    int row, turn;

    __device__ __forceinline__ void advance(int turns) {
        if (++turn == turns) turn = 0, row++;
    }
};

// Brings x to shared memory, times the norm's weights if there are any, with zeros behind the
// inputs. A thread has the same inputs of every row, so squares are added in the same order for any
// number of rows.
__device__ __forceinline__ void bring_x(const ring_params &p, uint32_t x, ring_barriers &s) {
    constexpr int BATCH = 8; // loads that are issued together
    int vectors = p.base.in / 8, room = p.x_stride / 16;
    int turns = (room + THREADS - 1) / THREADS;
    const auto *from = reinterpret_cast<const uint4 *>(of_step(p.base.x));
    row_turn load = {0, 0}, store = {0, 0};
    float squares = 0;
    while (store.row < p.base.rows) {
        uint4 v[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++, load.advance(turns)) {
            int at = load.turn * THREADS + threadIdx.x;
            v[b] = make_uint4(0, 0, 0, 0);
            if (load.row < p.base.rows && at < vectors)
                v[b] = __ldcg(from + load.row * vectors + at);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++, store.advance(turns)) {
            if (store.row >= p.base.rows) break;
            int at = store.turn * THREADS + threadIdx.x;
            if (p.base.norm && at < vectors) {
                v[b] = scale_inputs(v[b], p.base.norm + at * 8, squares);
            }
            if (at < room) store_shared16(x + store.row * p.x_stride + at * 16, v[b]);
            if (!p.base.norm || store.turn + 1 < turns) continue;
            squares = warp_sum(squares);
            if (threadIdx.x % 32 == 0) s.squares[threadIdx.x / 32][store.row] = squares;
            squares = 0;
        }
    }
}

// Where a lane reads: of the left operand's four 8 x 8 matrices the row lane % 8 of number
// lane / 8, which are the low and the high tile's first 8 inputs, then their next 8.
struct lane_place {
    uint32_t row, last_row; // bytes; last_row: of the last pair, which may lack the high tile
    uint32_t columns[LINE / 16]; // of each 16 inputs
    uint32_t pair_bytes, line_bytes;

    __device__ __forceinline__ lane_place(const ring_params &p, int lane) {
        bool is_high = lane / 8 % 2, is_gated = p.base.is_gated;
        uint32_t high = is_gated ? p.band * LINE_BYTES : TILE_BYTES;
        bool lacks_high = !is_gated && p.band % OUTPUTS;
        row = lane % 8 * LINE_BYTES + (is_high ? high : 0);
        last_row = lacks_high ? lane % 8 * LINE_BYTES : row;
#pragma unroll
        for (int k = 0; k < LINE / 16; k++) columns[k] = ((k * 2 + lane / 16) ^ lane % 8) * 16;
        pair_bytes = is_gated ? TILE_BYTES : 2 * TILE_BYTES;
        line_bytes = (is_gated ? 2 : 1) * p.band * LINE_BYTES;
    }
};

template <int PAIRS> using pair_sums = float[PAIRS][CHAINS][4];

// Adds the products of a line. `x`: this lane's address of it.
template <int PAIRS>
__device__ __forceinline__ void multiply_line(pair_sums<PAIRS> &acc, uint32_t line, uint32_t x,
                                              const lane_place &place) {
    uint32_t b[LINE / 32][4];
#pragma unroll
    for (int i = 0; i < LINE / 32; i++) load_matrix4(b[i], x + i * 64);
#pragma unroll
    for (int pair = 0; pair < PAIRS; pair++) {
        uint32_t from =
            line + pair * place.pair_bytes + (pair + 1 < PAIRS ? place.row : place.last_row);
#pragma unroll
        for (int k = 0; k < LINE / 16; k++) {
            uint32_t a[4];
            load_matrix4(a, from + place.columns[k]);
            multiply(acc[pair][k % CHAINS], a, b[k / 2][k % 2 * 2], b[k / 2][k % 2 * 2 + 1]);
        }
    }
}

// Stores a warp's sums as [row][output]. If gated, 8 gates and their ups follow each other.
template <int PAIRS>
__device__ __forceinline__ void keep_sums(float *sums, int stride, const pair_sums<PAIRS> &acc,
                                          int rows, int lane) {
    int row = lane % 4 * 2;
    float *to = sums + row * stride + lane / 4;
#pragma unroll
    for (int pair = 0; pair < PAIRS; pair++, to += OUTPUTS) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float sum = acc[pair][0][i];
#pragma unroll
            for (int c = 1; c < CHAINS; c++) sum += acc[pair][c][i];
            if (row + i % 2 < rows) to[i % 2 * stride + i / 2 * TILE] = sum;
        }
    }
}

// A result of a group of bands, and what is added to it.
struct group_result {
    int local, row; // position among the sums
    size_t at; // in memory
    bool is_there;
    float bias, up_bias, residual;

    // `number`: among the group's, output by output within a row. `band`: the group's first.
    __device__ __forceinline__ group_result(const ring_params &p, int band, int end, int number) {
        int outputs = p.group_bands * p.band, of_row = number % outputs, in_band = of_row % p.band;
        int output = band * p.band + of_row;
        local = of_row / p.band * band_sums(p) +
                (p.base.is_gated ? in_band / TILE * OUTPUTS + in_band % TILE : in_band);
        row = number / outputs;
        at = (size_t)row * columns_of(p.base) + output;
        is_there = row < p.base.rows && output < min(end * p.band, columns_of(p.base));
        bias = up_bias = residual = 0;
        if (!is_there || !p.base.bias) return;
        bias = __bfloat162float(p.base.bias[output]);
        if (p.base.is_gated) up_bias = __bfloat162float(p.base.bias[columns_of(p.base) + output]);
    }
    __device__ __forceinline__ void load_residual(const ring_params &p) {
        if (is_there && p.base.residual) residual = __bfloat162float(of_step(p.base.residual)[at]);
    }

    __device__ __forceinline__ float total(const ring_params &p, const float *sums, int of) const {
        float values[WARPS], sum = 0;
        int stride = sums_stride(p);
#pragma unroll
        for (int w = 0; w < WARPS; w++) values[w] = sums[(w * p.base.rows + row) * stride + of];
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += values[w];
        return sum;
    }

    __device__ __forceinline__ void write(const ring_params &p, const float *sums,
                                          const ring_barriers &s) const {
        if (!is_there) return;
        float scale = 1;
        if (p.base.norm) {
            float squares = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) squares += s.squares[w][row];
            scale = rsqrtf(squares * p.base.per_input + p.base.eps);
        }
        float y = total(p, sums, local) * scale + bias;
        if (p.base.is_gated) {
            y = activated(p.base.activation, y, total(p, sums, local + TILE) * scale + up_bias);
        }
        if (p.base.residual) {
            of_step(p.base.residual)[at] = __float2bfloat16(residual + y);
        } else {
            of_step(static_cast<__nv_bfloat16 *>(p.base.out))[at] = __float2bfloat16(y);
        }
    }
};

template <int PAIRS> __device__ __forceinline__ void run_block(const ring_params &p, char *memory) {
    int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    char *behind = memory + ring_bytes(p);
    auto *sums = reinterpret_cast<float *>(behind + p.base.rows * p.x_stride);
    auto &s = *reinterpret_cast<ring_barriers *>(sums + sums_floats(p));
    int band = blockIdx.x * p.block_bands, end = min(band + p.block_bands, p.bands);
    warp_ring ring = {p,
                      shared_address(memory) + warp * p.stages * p.chunk_bytes,
                      shared_address(s.full[warp]),
                      warp,
                      warp < p.chunks ? band : end, // there may be fewer chunks than warps
                      end,
                      warp,
                      0,
                      evict_first_policy()};
    if (lane < p.stages) barrier_init(ring.full + lane * 8, 1);
    barrier_init_done();
    __syncwarp();
    if (lane == 0) {
        for (int i = 0; i < p.stages; i++) ring.fill();
    }
    prefetch_floats(p.base.norm, p.base.in, threadIdx.x);
    const lane_place place(p, lane);
    group_result result(p, band, end, threadIdx.x);
    __syncwarp();
    wait_for_earlier();
    result.load_residual(p);
    uint32_t x = shared_address(behind);
    bring_x(p, x, s);
    __syncthreads();
    x += min(lane % 8, p.base.rows - 1) * p.x_stride + lane / 8 * 16;
    int stage = 0;
    uint32_t parity = 0;
    while (true) {
        float *to = sums + warp * p.base.rows * sums_stride(p);
        int last = min(band + p.group_bands, end);
        for (int b = band; b < last; b++, to += band_sums(p)) {
            pair_sums<PAIRS> acc = {};
            for (int chunk = warp; chunk < p.chunks; chunk += WARPS) {
                uint32_t line = ring.stages + stage * p.chunk_bytes;
                uint32_t of_x = x + chunk * p.chunk_lines * LINE_BYTES;
                barrier_wait(ring.full + stage * 8, parity, "weights in stage", stage);
#pragma unroll 1
                for (int i = 0; i < p.chunk_lines; i++) {
                    multiply_line<PAIRS>(acc, line, of_x, place);
                    line += place.line_bytes, of_x += LINE_BYTES;
                }
                __syncwarp(); // all lanes have read the stage
                if (lane == 0) ring.fill();
                if (++stage == p.stages) stage = 0, parity ^= 1;
            }
            keep_sums<PAIRS>(to, sums_stride(p), acc, p.base.rows, lane);
        }
        __syncthreads();
        int count = p.base.rows * p.group_bands * p.band;
        for (int i = threadIdx.x;;) {
            result.write(p, sums, s);
            i += THREADS;
            if (i >= count) break;
            result = group_result(p, band, end, i);
            result.load_residual(p);
        }
        band = last;
        if (band == end) break;
        result = group_result(p, band, end, threadIdx.x);
        result.load_residual(p);
        __syncthreads(); // all have read the sums
    }
}

template <int PAIRS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    few_rows_ring_kernel(const __grid_constant__ ring_params p) {
    extern __shared__ __align__(1024) char memory[];
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a, (let_next_start(); run_block<PAIRS>(p, memory);))
}

int divided_up(int a, int b) {
    return (a + b - 1) / b;
}

// Chooses the bands so that no block has more outputs than it needs to; of such ones the largest.
void divide_outputs(ring_params &p, int num_sms) {
    int tiles = columns_of(p.base) / TILE, least = tiles + 1;
    int most = p.base.is_gated ? PAIRS_MAX : 2 * PAIRS_MAX;
    for (int of_band = 1; of_band <= most; of_band++) {
        int bands = divided_up(tiles, of_band), block_bands = divided_up(bands, num_sms);
        if (block_bands * of_band > least) continue;
        least = block_bands * of_band;
        p.band = of_band * TILE;
        p.bands = bands;
        p.block_bands = block_bands;
    }
}

// Sums of a group take little shared memory. Most blocks have one group.
void divide_bands(ring_params &p) {
    constexpr int GROUP_SUMS = 192;
    int most = max(GROUP_SUMS / band_sums(p), 1), groups = divided_up(p.block_bands, most);
    p.group_bands = divided_up(p.block_bands, groups);
}

// Chooses the chunks so that no warp has more lines than it needs to; of such ones the largest.
void divide_inputs(ring_params &p) {
    int line_bytes = (p.base.is_gated ? 2 : 1) * p.band * LINE_BYTES;
    int lines = p.base.in / LINE, least = lines + 1;
    for (int of_chunk = 1; of_chunk <= CHUNK_LINES_MAX; of_chunk++) {
        int chunks = divided_up(lines, of_chunk), of_warp = divided_up(chunks, WARPS) * of_chunk;
        if (of_warp > least || (of_chunk > 1 && of_chunk * line_bytes > CHUNK_BYTES)) continue;
        least = of_warp;
        p.chunks = chunks;
        p.chunk_lines = of_chunk;
        p.chunk_bytes = of_chunk * line_bytes;
    }
    // 8 rows that are read together hit different banks.
    p.x_stride = p.chunks * p.chunk_lines * LINE_BYTES + 16;
}

// All but what a build with checks declares.
int dynamic_bytes_max(const cuda_device_info *info) {
    return info->shared_bytes_max - (CHECKED ? 1024 : 0);
}

// Chooses how many stages a warp's ring has. A block of one band leaves half of the
// multiprocessor's shared memory to the next kernel's, if x leaves it enough. A block of several
// bands takes all: with half of it fewer bytes are on their way than memory needs.
void choose_stages(ring_params &p, int bytes_max) {
    constexpr int STAGES_MIN = 2;
    int stage_bytes = WARPS * p.chunk_bytes, room = min(HALF_BYTES, bytes_max) - rest_bytes(p);
    if (p.block_bands > 1 || room < STAGES_MIN * stage_bytes) room = bytes_max - rest_bytes(p);
    p.stages = room < 0 ? 0 : min(room / stage_bytes, STAGES_MAX);
}

ring_params params_of(const few_rows_params &base, const cuda_device_info *info) {
    ring_params p = {};
    p.base = base;
    divide_outputs(p, info->num_sms);
    divide_bands(p);
    divide_inputs(p);
    choose_stages(p, dynamic_bytes_max(info));
    return p;
}

CUtensorMap map_of(const ring_params &p, const void *weight, const cuda_device_info *info) {
    uint64_t halves = p.base.is_gated ? 2 : 1, row = (uint64_t)p.base.in * 2;
    uint64_t outputs = static_cast<uint64_t>(columns_of(p.base));
    const tensor_shape<4> shape = {
        {LINE, outputs, halves, (uint64_t)p.base.in / LINE},
        {row, outputs * row, LINE_BYTES},
        {LINE, (uint32_t)p.band, (uint32_t)halves, (uint32_t)p.chunk_lines}};
    return encode_tensor_map(weight, shape, CU_TENSOR_MAP_SWIZZLE_128B, info);
}

template <int PAIRS>
void launch(const ring_params &p, const cuda_device_info *info, cudaStream_t stream) {
    auto kernel = few_rows_ring_kernel<PAIRS>;
    prefer_shared_memory(kernel, info);
    allow_shared_bytes(kernel, dynamic_bytes_max(info), info);
    launch_dependent(kernel, dim3(divided_up(p.bands, p.block_bands)), THREADS,
                     ring_bytes(p) + rest_bytes(p), info, stream, p);
}

} // namespace

extern "C" bool cuda_linear_few_rows_ring_fits(uint32_t rows, uint32_t out, uint32_t in,
                                               bool is_gated, const struct cuda_device_info *info) {
    few_rows_params base = {};
    base.rows = static_cast<int>(rows);
    base.in = static_cast<int>(in);
    base.num_outputs = static_cast<int>(out);
    base.is_gated = is_gated;
    int columns = columns_of(base);
    if (rows > CUDA_RING_ROWS || in % LINE || !columns || columns % TILE) return false;
    return params_of(base, info).stages > 1;
}

extern "C" void cuda_linear_few_rows_ring_launch(const struct cuda_few_rows_linear *args,
                                                 const struct cuda_device_info *info,
                                                 cudaStream_t stream) {
    ring_params p = params_of(few_rows_params_of(args), info);
    p.weight = map_of(p, args->linear.weight, info);
    int tiles = p.band / TILE, pairs = args->is_gated ? tiles : divided_up(tiles, 2);
    static_assert(PAIRS_MAX == 3, "a kernel each");
    if (pairs == 1) return launch<1>(p, info, stream);
    if (pairs == 2) return launch<2>(p, info, stream);
    launch<3>(p, info, stream);
}

/* The matrix products of layers/all_layers.cu. A unit is 8 outputs (if gated, 8 gates and their
 * ups), and a block takes every n-th unit. First x is copied to shared memory and multiplied by the
 * norm's weights. The norm's scale, 1 / root of the mean square, is applied to the sums. Four warps
 * share a slot of the ring. Their partial sums are added in shared memory, in order. */
#pragma once

#include "backend/cuda/layers/block.cuh"
#include "backend/cuda/ranks/ranks.cuh"

namespace {

enum product_kind { QKV, OUT, GATE_UP, DOWN };

struct product {
    const __nv_bfloat16 *weight, *bias;
    const void *x; // bf16 [rows][in]
    const float *norm; // RMS norm of x; NULL: none
    int in, num_units, chunks; // chunks: slots that 8 outputs take
    int tiles, up_row; // gated: 2 tiles, and up_row is where the second half of the rows begins
};

// Bytes between rows of x in shared memory. Whole lines plus 64 bytes, so that 2 rows have no bank
// conflicts.
__host__ __device__ inline int x_stride(int in) {
    return (in * 2 + 127) / 128 * 128 + 64;
}

__device__ __forceinline__ product product_of(const cuda_decode_layer &l,
                                              const cuda_decode_layers &a, int kind) {
    const cuda_linear_view &m = kind == QKV       ? l.qkv
                                : kind == OUT     ? l.o
                                : kind == GATE_UP ? l.gate_up
                                                  : l.down;
    product p = {};
    p.weight = static_cast<const __nv_bfloat16 *>(m.weight);
    p.bias = static_cast<const __nv_bfloat16 *>(m.bias);
    p.x = kind == OUT ? a.attended : kind == DOWN ? a.activated : a.residual;
    p.norm = kind == QKV ? l.input_norm : kind == GATE_UP ? l.mlp_norm : nullptr;
    p.in = static_cast<int>(m.in);
    p.chunks = (p.in + SLOT_INPUTS - 1) / SLOT_INPUTS;
    p.tiles = kind == GATE_UP ? 2 : 1;
    p.up_row = static_cast<int>(m.out) / 2;
    p.num_units = static_cast<int>(m.out) / (SLOT_OUTPUTS * p.tiles);
    return p;
}

// Run by the copying warps. Copies the block's weights in the order of their use.
__device__ void copy_weights(const cuda_decode_layers &a, const cuda_decode_layer *layers,
                             ring_view ring, int warp, int lane) {
    ring_writer writer = {ring, evict_first_policy(), 0};
    for (uint32_t l = 0; l < a.num_layers; l++) {
        for (int kind = QKV; kind <= DOWN; kind++) {
            product m = product_of(layers[l], a, kind);
            for (int unit = blockIdx.x; unit < m.num_units; unit += gridDim.x) {
                for (int t = 0; t < m.tiles; t++) {
                    const __nv_bfloat16 *rows =
                        m.weight + (size_t)(unit * SLOT_OUTPUTS + t * m.up_row) * m.in;
                    for (int k = 0; k < m.in; k += SLOT_INPUTS) {
                        writer.put(rows + k, m.in, min(SLOT_INPUTS, m.in - k), warp, lane);
                    }
                }
            }
        }
    }
}

__device__ __forceinline__ uint4 weigh(uint4 x, const float *norm, float *squares) {
    uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 n = *reinterpret_cast<const float2 *>(norm + i * 2);
        float low = bf16_low(words[i]), high = bf16_high(words[i]);
        *squares += low * low;
        *squares += high * high;
        words[i] = pack_bf16(low * n.x, high * n.y);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// log2 of how many warps share a row of x.
static_assert(ROWS_MAX <= 4, "two warps a row");
__device__ __forceinline__ int row_shift(int rows) {
    return rows == 1 ? 3 : rows == 2 ? 2 : 1; // rows <= CUDA_DECODE_ROWS = 4
}

// Copies the columns at `column`, `column` + `step`, ... of a row of x to the region.
template <int D>
__device__ __forceinline__ void stage_columns(const worker<D> &w, const product &m, int row,
                                              int column, int step, float *squares) {
    constexpr int AHEAD = 4;
    const uint4 *from = static_cast<const uint4 *>(m.x) + (size_t)row * m.in / 8;
    uint32_t to = w.region + row * x_stride(m.in);
    for (; column < m.in; column += AHEAD * step) {
        uint4 x[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int at = column + i * step;
            if (at < m.in) x[i] = __ldcg(from + at / 8);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int at = column + i * step;
            if (at >= m.in) break;
            if (m.norm) x[i] = weigh(x[i], m.norm + at, squares);
            store_shared16(to + at * 2, x[i]);
        }
    }
}

// Copies x times the norm's weights to the region, and computes the scale of each row.
template <int D> __device__ void stage(const worker<D> &w, const product &m) {
    int rows = static_cast<int>(w.a.rows);
    int shift = row_shift(rows), parts = 1 << shift, part = w.warp & (parts - 1);
    for (int row = w.warp >> shift; row < rows; row += WARPS >> shift) {
        float squares = 0;
        stage_columns(w, m, row, (part * 32 + w.lane) * 8, parts * 32 * 8, &squares);
        if (!m.norm) continue;
        squares = warp_sum(squares);
        if (w.lane == 0) w.s.squares[row][part] = squares;
    }
    computing_sync();
    if (w.thread >= rows) return;
    float scale = 1.0f; // 1 / root of the mean square
    if (m.norm) {
        float sum = 0;
        for (int i = 0; i < parts; i++) sum += w.s.squares[w.thread][i];
        scale = rsqrtf(sum / m.in + w.a.eps);
    }
    w.s.scale[w.thread] = scale;
}

// One sum of a group: output `output` of tile `tile` for one row.
template <int D>
__device__ __forceinline__ float total(const worker<D> &w, const product &m, int tile, int row,
                                       int output) {
    int step = static_cast<int>(w.a.rows) * SLOT_OUTPUTS, count = m.chunks * SHARERS;
    const float *first = w.s.sums + tile * count * step + row * SLOT_OUTPUTS + output;
    float sums[SHARERS] = {};
    for (int c = 0; c < count; c += SHARERS) {
#pragma unroll
        for (int i = 0; i < SHARERS; i++) sums[i] += first[(c + i) * step];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Where rank `owner` gets rank `writer`'s part of an output of o or down. The next layer's part
// overwrites it, but not too early: its writer first waits for this block's part of the other kind
// (o or down), which this block sends only after it has read this one.
__device__ __forceinline__ uint64_t *part_of(const cuda_decode_layers &a, uint32_t owner,
                                             uint32_t writer, int kind, int row, int output) {
    const cuda_ranks &r = a.ranks;
    auto parts = reinterpret_cast<uint64_t *>(r.memory[owner] + r.exchange_at);
    size_t of = ((kind == DOWN) * r.world_size + writer) * ROWS_MAX + row;
    return parts + of * a.hidden + output;
}

// The sum over ranks of an output of which this rank has the part y, in the order of the ranks.
__device__ __forceinline__ float sum_over_ranks(const cuda_decode_layers &a, int kind, int row,
                                                int output, float y, uint32_t tick) {
    const cuda_ranks &r = a.ranks;
    for (uint32_t k = 0; k < r.world_size; k++) {
        if (k == r.rank) continue;
        send_value(part_of(a, k, r.rank, kind, row, output), __float_as_uint(y), tick);
    }
    float sum = 0;
    for (uint32_t k = 0; k < r.world_size; k++) {
        sum +=
            k == r.rank
                ? y
                : __uint_as_float(take_value(r, part_of(a, r.rank, k, kind, row, output), tick, k));
    }
    return sum;
}

// Writes the outputs of `count` of this block's units, from its unit number `first` on.
template <int D>
__device__ void write(const worker<D> &w, const product &m, int kind, int first, int count) {
    const cuda_decode_layers &a = w.a;
    int rows = static_cast<int>(a.rows), columns = m.num_units * SLOT_OUTPUTS;
    // Division by rows as a multiplication and a shift; exact for small numbers.
    uint32_t inverse = 65536 / rows + 1;
    auto out = static_cast<__nv_bfloat16 *>(kind == QKV       ? a.qkv
                                            : kind == GATE_UP ? a.activated
                                                              : a.residual);
    for (int i = w.thread; i < count * SLOT_OUTPUTS * rows; i += COMPUTING) {
        int local = i % SLOT_OUTPUTS, pair = i / SLOT_OUTPUTS; // pair: (unit, row)
        int unit = static_cast<int>(pair * inverse >> 16), row = pair - unit * rows;
        int output = (blockIdx.x + (first + unit) * gridDim.x) * SLOT_OUTPUTS + local;
        float scale = w.s.scale[row];
        float y = total(w, m, unit * m.tiles, row, local) * scale;
        if (m.bias) y += __bfloat162float(m.bias[output]);
        if (kind == GATE_UP) {
            float up = total(w, m, unit * m.tiles + 1, row, local) * scale;
            if (m.bias) up += __bfloat162float(m.bias[m.up_row + output]);
            y = silu(y) * up;
        } else if (kind != QKV) {
            if (a.ranks.world_size > 1) {
                y = sum_over_ranks(a, kind, row, output, y, static_cast<uint32_t>(w.tick));
            }
            __nv_bfloat16 *mine = &w.s.residual[first * rows * SLOT_OUTPUTS + i];
            y += __bfloat162float(*mine);
            *mine = __float2bfloat16(y);
        }
        out[(size_t)row * columns + output] = __float2bfloat16(y);
    }
}

// Adds up this warp's shares of `num_slots` slots, starting with slot w.slot.
template <int D>
__device__ __forceinline__ void take_slots(const worker<D> &w, const product &m, int num_slots) {
    int rows = static_cast<int>(w.a.rows), stride = x_stride(m.in);
    int team = w.warp / SHARERS, share = w.warp % SHARERS;
    int j = (team - w.slot) & (TEAMS - 1), chunk = j < m.chunks ? j : 0; // j is 0 or 1
    for (; j < num_slots; j += TEAMS) {
        float acc[2][4] = {};
        int k = chunk * SLOT_INPUTS;
        take_slot(acc, w.ring, w.slot + j, share, w.region + k * 2, stride,
                  min(SLOT_INPUTS, m.in - k), m.in, rows, w.lane);
        float *sums = w.s.sums + (j * SHARERS + share) * rows * SLOT_OUTPUTS + w.lane % 4 * 2;
        int row = w.lane / 4;
        if (row < rows) {
            *reinterpret_cast<float2 *>(sums + row * SLOT_OUTPUTS) =
                make_float2(acc[0][0] + acc[1][0], acc[0][1] + acc[1][1]);
        }
        for (chunk += TEAMS; chunk >= m.chunks;) chunk -= m.chunks;
    }
}

// This block's part of a product.
__device__ product_share share_of(const cuda_decode_layer &l, const cuda_decode_layers &a,
                                  int kind) {
    product m = product_of(l, a, kind);
    int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    product_share share = {};
    if (block < m.num_units) share.units = (m.num_units - block - 1) / blocks + 1;
    // At least one: cuda_decode_layers_rows_max checked that.
    share.group =
        SUMS_MAX / (static_cast<int>(a.rows) * SLOT_OUTPUTS * m.tiles * m.chunks * SHARERS);
    return share;
}

// Computes all of this block's units of a product.
template <int D> __device__ void multiply_all(worker<D> &w, int layer, int kind) {
    product m = product_of(w.layers[layer], w.a, kind);
    product_share share = w.s.shares[kind];
    if (!share.units) return;
    stage(w, m);
    int slots_per_unit = m.tiles * m.chunks;
    for (int first = 0; first < share.units; first += share.group) {
        int count = min(share.group, share.units - first);
        take_slots(w, m, count * slots_per_unit);
        w.slot += count * slots_per_unit;
        computing_sync();
        write(w, m, kind, first, count);
        if (first + share.group < share.units) computing_sync(); // the sums have been read
    }
}

} // namespace

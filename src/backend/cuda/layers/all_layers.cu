/* All layers of a decode step of few sequences in one kernel (sm_90 and later). With so little work
 * per product, the speed depends on keeping memory busy, and between two kernels memory is idle.
 *
 * There is one block per multiprocessor, and all of them are resident at once (cooperative launch).
 * Four warps of a block copy its share of every layer's weights into a ring in shared memory, as
 * fast as places become free (layers/weight_ring.cuh). They wait for nothing else. Eight warps
 * compute, in phases:
 *
 *   qkv = norm(residual) Wqkv^T      attended = attention      residual += attended Wo^T
 *   activated = silu(gate) * up of norm(residual) Wgu^T        residual += activated Wdown^T
 *
 * layers/products.cuh and layers/attention.cuh compute the phases. Between phases all blocks meet
 * at a grid barrier, a counter in memory. Partial attention results go from block to block without
 * it (layers/flagged.cuh).
 *
 * With several ranks each has a slice of every matrix. Blocks of the same number then send each
 * other their parts of o's and down's outputs, and add them in the order of the ranks.
 *
 * Bytes: all weights once, keys and values once. layers/fusion.c chooses this kernel if a layer has
 * enough weights. Qwen3-8B's shape on an H200: 244 tokens a second, of the 300 that reading the
 * weights allows (doc/log-cuda.md). */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/layers/attention.cuh"
#include "backend/cuda/layers/products.cuh"

#include <nv/target>

namespace {

// Loads the elements of the residual that this block updates, in the order of write().
template <int D> __device__ void load_residual(const cuda_decode_layers &a, block_shared<D> &s) {
    int rows = static_cast<int>(a.rows), hidden = static_cast<int>(a.hidden);
    for (int i = threadIdx.x;; i += THREADS) {
        int unit = i / (SLOT_OUTPUTS * rows), row = i / SLOT_OUTPUTS % rows;
        int output = (blockIdx.x + unit * gridDim.x) * SLOT_OUTPUTS + i % SLOT_OUTPUTS;
        if (output >= hidden) break;
        s.residual[i] =
            static_cast<const __nv_bfloat16 *>(a.residual)[(size_t)row * hidden + output];
    }
}

template <int D> __device__ void run_layers(worker<D> &w) {
    const cuda_decode_layers &a = w.a;
    uint64_t first = *reinterpret_cast<volatile unsigned long long *>(a.tick);
    int num_layers = static_cast<int>(a.num_layers), hidden = static_cast<int>(a.hidden);
    for (int l = 0; l < num_layers; l++) {
        w.tick = first + l;
        // One call, so the code exists once: what runs once a layer must come from the instruction
        // cache.
#pragma unroll 1
        for (int kind = QKV; kind <= DOWN; kind++) {
            multiply_all(w, l, kind);
            if (kind == DOWN && l + 1 == num_layers) break;
            arrive(w);
            if (kind == QKV) {
                attend(w, l);
                arrive(w);
            }
            if (kind == OUT) prefetch_floats(w.layers[l].mlp_norm, hidden, w.thread);
            if (kind == DOWN) prefetch_floats(w.layers[l + 1].input_norm, hidden, w.thread);
            wait_for_blocks(w);
        }
    }
    // The last block to finish. All blocks have read the tick and the counter by now.
    if (w.thread == 0 && atomicAdd(a.arrived + 1, 1) == gridDim.x - 1) {
        *a.tick = first + num_layers;
        a.arrived[0] = a.arrived[1] = 0;
    }
}

template <int D> __device__ void run_block(const layers_params &p, char *memory) {
    auto &s = *reinterpret_cast<block_shared<D> *>(memory);
    auto layers = reinterpret_cast<cuda_decode_layer *>(memory + sizeof s);
    uint32_t table_bytes = p.a.num_layers * sizeof(cuda_decode_layer);
    char *region = memory + sizeof s + (table_bytes + 127) / 128 * 128;
    ring_view ring = {shared_address(region) + p.region_bytes, shared_address(s.full),
                      shared_address(s.empty), p.num_slots};
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    for (int i = thread; i < table_bytes / 4; i += THREADS) {
        reinterpret_cast<uint32_t *>(layers)[i] = reinterpret_cast<const uint32_t *>(p.a.layers)[i];
    }
    for (int i = thread; i < TILE * D; i += THREADS) {
        reinterpret_cast<uint32_t *>(s.fresh)[i] = 0;
    }
    if (thread < p.num_slots) {
        barrier_init(ring.full + thread * 8, 1);
        barrier_init(ring.empty + thread * 8, SHARERS);
        barrier_init_done();
    }
    if (thread < p.a.rows) {
        s.length[thread] = p.a.context_len[thread];
        s.table_row[thread] = p.a.table_row[thread];
        s.slot[thread] = p.a.slot_mapping[thread];
    }
    for (int i = thread; i < p.a.rows * D; i += THREADS) {
        s.rope[i / D][i % D] = p.a.rope[(size_t)p.a.positions[i / D] * D + i % D];
    }
    load_residual<D>(p.a, s);
    __syncthreads();
    if (thread == 0) cut_sequences<D>(p.a, s);
    if (thread >= 32 && thread <= 32 + DOWN) {
        s.shares[thread - 32] = share_of(layers[0], p.a, thread - 32);
    }
    __syncthreads();
    if (warp >= WARPS) {
        NV_IF_TARGET(NV_HAS_FEATURE_SM_90a, (give_registers<40>();))
        return copy_weights(p.a, layers, ring, warp - WARPS, lane);
    }
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a, (take_registers<232>();))
    worker<D> w = {p.a,    s,    layers, shared_address(region), ring, p.kv_stages, 0, 0, 0,
                   thread, warp, lane};
    if (thread == 0 && blockIdx.x < num_units(w)) s.unit = unit_of(w, blockIdx.x);
    computing_sync();
    run_layers(w);
}

template <int D>
__global__ void __launch_bounds__(THREADS, 1)
    layers_kernel(const __grid_constant__ layers_params p) {
    extern __shared__ __align__(128) char memory[];
    NV_IF_TARGET(NV_PROVIDES_SM_90, (run_block<D>(p, memory);))
}

// Shared memory besides the region and the ring.
int fixed_bytes(const cuda_decode_layers *a) {
    size_t table = (a->num_layers * sizeof(cuda_decode_layer) + 127) / 128 * 128;
    size_t block = a->head_dim == 64 ? sizeof(block_shared<64>) : sizeof(block_shared<128>);
    return static_cast<int>(table + block);
}

uint32_t most_inputs(const cuda_decode_layers *a) {
    uint32_t attended = a->num_heads * a->head_dim;
    uint32_t most = a->hidden > a->intermediate ? a->hidden : a->intermediate;
    return most > attended ? most : attended;
}

// With one or two sequences most warps have only one tile, and the ring makes better use of the
// memory. With more, some tiles should be loading while others are read.
int kv_stages(uint32_t rows) {
    return rows <= 2 ? 1 : 2;
}

int region_bytes(const cuda_decode_layers *a, uint32_t rows) {
    int x = static_cast<int>(rows) * x_stride(static_cast<int>(most_inputs(a)));
    int dim = static_cast<int>(a->head_dim);
    int tiles = WARPS * kv_stages(rows) * 2 * TILE * dim * 2;
    int joined = WARPS * GROUP * dim * static_cast<int>(sizeof(float));
    int most = x > tiles ? x : tiles;
    if (joined > most) most = joined;
    return (most + 127) / 128 * 128;
}

int num_slots(const cuda_decode_layers *a, uint32_t rows, const cuda_device_info *info) {
    int left = info->shared_bytes_max - fixed_bytes(a) - region_bytes(a, rows);
    // A multiple of COPYING, so that the same warp always fills a slot. Otherwise two laps could
    // overlap, which a barrier's parity cannot distinguish.
    int slots = SLOTS_MAX;
    while (slots && slots * SLOT_BYTES > left) slots /= 2;
    return slots >= COPYING ? slots : 0;
}

int shared_bytes(const cuda_decode_layers *a, const cuda_device_info *info) {
    return fixed_bytes(a) + region_bytes(a, a->rows) + num_slots(a, a->rows, info) * SLOT_BYTES;
}

// Whether the partial sums of a unit and a block's part of the residual fit.
bool outputs_fit(const cuda_decode_layers *a, uint32_t rows, uint32_t num_sms) {
    auto chunks = [](uint32_t in) { return (in + SLOT_INPUTS - 1) / SLOT_INPUTS; };
    uint32_t slots = 2 * chunks(a->hidden), others = chunks(most_inputs(a));
    if (others > slots) slots = others;
    uint32_t units = (a->hidden / SLOT_OUTPUTS + num_sms - 1) / num_sms;
    return slots * SHARERS * rows * SLOT_OUTPUTS <= SUMS_MAX &&
           units * rows * SLOT_OUTPUTS <= RESIDUALS_MAX;
}

// Whether a block fits on every multiprocessor. All must be resident at once.
template <int D> bool is_resident(int bytes, const cuda_device_info *info) {
    int blocks = 0;
    allow_shared_bytes(layers_kernel<D>, info->shared_bytes_max, info);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, layers_kernel<D>, THREADS,
                                                  static_cast<size_t>(bytes));
    return blocks > 0;
}

template <int D>
void launch(const layers_params &p, const cuda_device_info *info, cudaStream_t stream) {
    auto kernel = layers_kernel<D>;
    int bytes = shared_bytes(&p.a, info);
    allow_shared_bytes(layers_kernel<D>, info->shared_bytes_max, info);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(info->num_sms));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = static_cast<size_t>(bytes);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    launch_by(config, kernel, info, p);
}

} // namespace

extern "C" uint32_t cuda_decode_layers_rows_max(const struct cuda_decode_layers *args,
                                                const struct cuda_device_info *info) {
    bool has_kernel = args->head_dim == 64 || args->head_dim == 128;
    uint32_t attended = args->num_heads * args->head_dim;
    if (info->major < 9 || !has_kernel || args->num_heads / args->num_kv_heads > GROUP) return 0;
    if (args->hidden % SLOT_STEP || args->intermediate % SLOT_STEP || attended % SLOT_STEP)
        return 0;
    struct cuda_decode_layers at = *args;
    uint32_t num_sms = static_cast<uint32_t>(info->num_sms);
    for (at.rows = ROWS_MAX; at.rows; at.rows--) {
        if (num_slots(&at, at.rows, info) && outputs_fit(&at, at.rows, num_sms)) break;
    }
    if (!at.rows) return 0;
    int bytes = shared_bytes(&at, info);
    bool fits = at.head_dim == 64 ? is_resident<64>(bytes, info) : is_resident<128>(bytes, info);
    return fits ? at.rows : 0;
}

extern "C" void cuda_decode_layers_launch(const struct cuda_decode_layers *args,
                                          const struct cuda_device_info *info,
                                          cudaStream_t stream) {
    layers_params p = {*args, num_slots(args, args->rows, info), region_bytes(args, args->rows),
                       kv_stages(args->rows)};
    if (args->head_dim == 64) return launch<64>(p, info, stream);
    launch<128>(p, info, stream);
}

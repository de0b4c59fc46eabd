/* A model's layers as one op: the table of their weights on the device, and what the blocks of the
 * kernel share. decode_layers.cu says how it runs. */
#include <stdlib.h>

#include "backend/cuda/cuda_ops.h"

// Weights of a layer from which the kernel gains: where there is less to read, kernels one behind the
// other wait less for each other than its blocks do (measured in doc/kernels-cuda.md).
enum { BYTES_MIN = 64 << 20 };

struct decode_layers {
    // Shape and memory that no step changes; `layers`, `pieces`, `tick` and `arrived` are ours.
    struct cuda_decode_layers fixed;
};

static struct cuda_decode_layers shape_of(const struct decode_layers_spec *spec) {
    return (struct cuda_decode_layers){
        .num_layers = spec->num_layers,
        .hidden = spec->hidden,
        .intermediate = spec->intermediate,
        .num_heads = spec->num_heads,
        .num_kv_heads = spec->num_kv_heads,
        .head_dim = spec->head_dim,
        .eps = spec->eps,
    };
}

static size_t layer_bytes(const struct decode_layers_spec *spec) {
    size_t attention = (size_t)(2 * spec->num_heads + 2 * spec->num_kv_heads) * spec->head_dim;
    return (attention + 3 * (size_t)spec->intermediate) * spec->hidden * sizeof(uint16_t);
}

// Rows with which the kernel is the faster way.
static uint32_t rows_worthwhile(const struct decode_layers_spec *spec) {
    return spec->always || layer_bytes(spec) >= BYTES_MIN ? CUDA_DECODE_ROWS : 0;
}

// The table of weights, from the host to new device memory.
static enum status upload_table(const struct decode_layers_spec *spec, cudaStream_t stream,
                                void **out, struct err *err) {
    enum status status = OK;
    size_t bytes = spec->num_layers * sizeof(struct cuda_decode_layer);
    struct cuda_decode_layer *table = calloc(spec->num_layers, sizeof *table);
    if (!table) return err_nomem(err, "decode layers");
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        const struct decode_layer_spec *layer = &spec->layers[i];
        table[i] = (struct cuda_decode_layer){
            .qkv = cuda_linear_view_of(layer->qkv),
            .o = cuda_linear_view_of(layer->o),
            .gate_up = cuda_linear_view_of(layer->gate_up),
            .down = cuda_linear_view_of(layer->down),
            .input_norm = layer->input_norm,
            .attention_norm = layer->attention_norm,
            .q_norm = layer->q_norm,
            .k_norm = layer->k_norm,
        };
    }
    CU(cudaMalloc(out, bytes));
    CU(cudaMemcpyAsync(*out, table, bytes, cudaMemcpyHostToDevice, stream));
    CU(cudaStreamSynchronize(stream)); // the table is the host's until then
fail:
    free(table);
    return status;
}

static enum status alloc_pieces(struct decode_layers *layers, const struct cuda_backend *cuda,
                                struct err *err) {
    enum status status = OK;
    struct cuda_decode_layers *f = &layers->fixed;
    const unsigned long long first_tick = 1; // 0, of cleared memory, is in the past
    size_t pieces = (size_t)CUDA_DECODE_ROWS * f->num_kv_heads + (size_t)cuda->info.num_sms;
    size_t bytes = pieces * CUDA_DECODE_GROUP * (f->head_dim / 2 + 1) * 16;
    CU(cudaMalloc(&f->pieces, bytes));
    CU(cudaMemsetAsync(f->pieces, 0, bytes, cuda->stream));
    CU(cudaMalloc((void **)&f->tick, sizeof first_tick));
    CU(cudaMemcpyAsync(f->tick, &first_tick, sizeof first_tick, cudaMemcpyHostToDevice,
                       cuda->stream));
    CU(cudaMalloc((void **)&f->arrived, 2 * sizeof *f->arrived));
    CU(cudaMemsetAsync(f->arrived, 0, 2 * sizeof *f->arrived, cuda->stream));
    CU(cudaStreamSynchronize(cuda->stream)); // the tick is on this function's stack
    return OK;
fail:
    return status;
}

enum status cuda_decode_layers_create(struct backend *backend,
                                      const struct decode_layers_spec *spec,
                                      struct decode_layers **out, uint32_t *num_seqs_max,
                                      struct err *err) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct cuda_decode_layers shape = shape_of(spec);
    *out = NULL;
    *num_seqs_max = 0;
    uint32_t rows_max = cuda_decode_layers_rows_max(&shape, &cuda->info);
    if (rows_max > rows_worthwhile(spec)) rows_max = rows_worthwhile(spec);
    if (!rows_max) return OK;
    struct decode_layers *layers = calloc(1, sizeof *layers);
    if (!layers) return err_nomem(err, "decode layers");
    layers->fixed = shape;
    void *table = NULL;
    enum status status = upload_table(spec, cuda->stream, &table, err);
    layers->fixed.layers = table;
    if (!status) status = alloc_pieces(layers, cuda, err);
    if (status) {
        cuda_decode_layers_destroy(backend, layers);
        return status;
    }
    *out = layers;
    *num_seqs_max = rows_max;
    return OK;
}

void cuda_decode_layers_destroy(struct backend *backend, struct decode_layers *layers) {
    (void)backend;
    if (!layers) return;
    cudaFree((void *)(uintptr_t)layers->fixed.layers);
    cudaFree(layers->fixed.pieces);
    cudaFree(layers->fixed.tick);
    cudaFree(layers->fixed.arrived);
    free(layers);
}

void cuda_decode_layers(struct backend *backend, struct backend_stream *stream,
                        const struct decode_layers_args *args) {
    (void)stream;
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct kv_cache *cache = args->cache;
    struct cuda_decode_layers layers = args->layers->fixed;
    layers.rows = args->num_seqs;
    layers.residual = args->residual;
    layers.qkv = args->qkv;
    layers.attended = args->attended;
    layers.activated = args->activated;
    layers.rope = args->rope;
    layers.positions = args->positions;
    layers.slot_mapping = args->slot_mapping;
    layers.context_len = args->context_len;
    layers.block_tables = args->block_tables;
    layers.table_stride = args->block_table_stride;
    layers.kv = cache->data;
    layers.kv_part_bytes = cache->part_bytes;
    layers.block_size = cache->spec.block_size;
    layers.scale = args->scale;
    cuda_decode_layers_launch(&layers, &cuda->info, cuda->stream);
}

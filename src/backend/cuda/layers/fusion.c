/* All layers of a step as one op: whether layers/all_layers.cu is to run them, and its memory. */
#include <stdlib.h>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/ranks/collective.h"
#include "base/compiler.h"

struct fused_model {
    uint32_t max_layers_rows; // most rows that layers/all_layers.cu takes; 0: none
    const struct cuda_ranks *ranks; // with several ranks
    // Shape and memory that stay the same in every step. Owns `layers`, `splits`, `tick` and
    // `arrived`.
    struct cuda_decode_layers fixed;
};

static struct cuda_decode_layers shape_of(const struct fused_model_spec *spec) {
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

// The first format that is not the device's own, or that.
static struct weight_format format_of(const struct fused_model_spec *spec) {
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        const struct fused_layer *layer = &spec->layers[i];
        const struct linear *all[] = {layer->qkv, layer->o, layer->gate_up, layer->down};
        for (size_t l = 0; l < ARRAY_LEN(all); l++) {
            if (!weight_format_is(all[l]->format, WEIGHTS_NATIVE)) return all[l]->format;
        }
    }
    return WEIGHTS_NATIVE;
}

// Most rows of a step that layers/all_layers.cu gets. 0: none.
static uint32_t layers_rows(const struct fused_model_spec *spec, const struct cuda_backend *cuda) {
    const struct cuda_decode_layers shape = shape_of(spec);
    bool is_shared = spec->is_even && spec->collective && cuda_collective_ranks(spec->collective);
    if (!spec->is_whole && !is_shared) return 0;
    struct kernel_job job = {
        .op = OP_LAYERS, .format = format_of(spec), .head_dim = spec->head_dim, .layers = &shape};
    for (job.rows = CUDA_DECODE_ROWS; job.rows; job.rows--) {
        if (kernel_table_next(NULL, &job, &cuda->info)) return job.rows;
    }
    return 0;
}

// Copies the table of weights to newly allocated device memory.
static enum status upload_table(const struct fused_model_spec *spec, cudaStream_t stream,
                                void **out, struct err *err) {
    enum status status = OK;
    size_t bytes = spec->num_layers * sizeof(struct cuda_decode_layer);
    struct cuda_decode_layer *table = calloc(spec->num_layers, sizeof *table);
    if (!table) return err_nomem(err, "fused layers");
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        const struct fused_layer *layer = &spec->layers[i];
        table[i] = (struct cuda_decode_layer){
            .qkv = cuda_linear_view_of(layer->qkv),
            .o = cuda_linear_view_of(layer->o),
            .gate_up = cuda_linear_view_of(layer->gate_up),
            .down = cuda_linear_view_of(layer->down),
            .input_norm = layer->input_norm,
            .mlp_norm = layer->mlp_norm,
            .q_norm = layer->q_norm,
            .k_norm = layer->k_norm,
        };
    }
    CU(cudaMalloc(out, bytes));
    CU(cudaMemcpyAsync(*out, table, bytes, cudaMemcpyHostToDevice, stream));
    CU(cudaStreamSynchronize(stream)); // the copy reads `table` until then
fail:
    free(table);
    return status;
}

static enum status alloc_splits(struct fused_model *model, const struct cuda_backend *cuda,
                                struct err *err) {
    enum status status = OK;
    struct cuda_decode_layers *f = &model->fixed;
    const unsigned long long first_tick = 1; // the cleared memory's 0 is a past tick
    size_t splits = (size_t)CUDA_DECODE_ROWS * f->num_kv_heads + (size_t)cuda->info.num_sms;
    size_t bytes = splits * CUDA_DECODE_GROUP * (f->head_dim / 2 + 1) * 16;
    CU(cudaMalloc(&f->splits, bytes));
    CU(cudaMemsetAsync(f->splits, 0, bytes, cuda->stream));
    CU(cudaMalloc((void **)&f->tick, sizeof first_tick));
    CU(cudaMemcpyAsync(f->tick, &first_tick, sizeof first_tick, cudaMemcpyHostToDevice,
                       cuda->stream));
    CU(cudaMalloc((void **)&f->arrived, 2 * sizeof *f->arrived));
    CU(cudaMemsetAsync(f->arrived, 0, 2 * sizeof *f->arrived, cuda->stream));
    CU(cudaStreamSynchronize(cuda->stream)); // the copy reads first_tick, which is on the stack
    return OK;
fail:
    return status;
}

enum status cuda_fused_model_create(struct backend *backend, const struct fused_model_spec *spec,
                                    struct fused_model **out, struct err *err) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    *out = NULL;
    struct fused_model *model = calloc(1, sizeof *model);
    if (!model) return err_nomem(err, "fused layers");
    if (spec->collective) model->ranks = cuda_collective_ranks(spec->collective);
    model->fixed = shape_of(spec);
    model->max_layers_rows = layers_rows(spec, cuda);
    enum status status = OK;
    if (model->max_layers_rows) {
        void *table = NULL;
        status = upload_table(spec, cuda->stream, &table, err);
        model->fixed.layers = table;
        if (!status) status = alloc_splits(model, cuda, err);
    }
    if (status) {
        cuda_fused_model_destroy(backend, model);
        return status;
    }
    *out = model;
    return OK;
}

void cuda_fused_model_destroy(struct backend *backend, struct fused_model *model) {
    (void)backend;
    if (!model) return;
    cudaFree((void *)(uintptr_t)model->fixed.layers);
    cudaFree(model->fixed.splits);
    cudaFree(model->fixed.tick);
    cudaFree(model->fixed.arrived);
    free(model);
}

bool cuda_takes_layers(const struct fused_model *model, const struct kv_cache *cache,
                       const struct step *step) {
    return !cuda_kv_has_codes(cache->spec.dtype) && step->max_query_len == 1 &&
           step->num_seqs <= model->max_layers_rows;
}

void cuda_layers(struct backend *backend, struct fused_model *model,
                 const struct layers_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct kv_cache *cache = args->cache;
    const struct step *step = args->step;
    struct cuda_decode_layers layers = model->fixed;
    layers.rows = step->num_seqs;
    layers.residual = args->residual;
    layers.qkv = args->qkv;
    layers.attended = args->attended;
    layers.activated = args->activated;
    layers.rope = args->rope;
    layers.positions = step->positions;
    layers.slot_mapping = step->slot_mapping;
    layers.context_len = step->context_len;
    layers.block_tables = step->block_tables;
    layers.table_row = step->table_row;
    layers.table_stride = step->table_stride;
    layers.kv = cache->data;
    layers.kv_part_bytes = cache->part_bytes;
    layers.block_size = cache->spec.block_size;
    layers.scale = args->scale;
    if (model->ranks) layers.ranks = *model->ranks;
    cuda_decode_layers_launch(&layers, &cuda->info, cuda->stream);
}

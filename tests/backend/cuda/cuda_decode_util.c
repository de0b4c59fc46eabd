#include "backend/cuda/cuda_decode_util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/layers/layers_bytes_min.h"
#include "backend/kv_cache_dtype.h"
#include "base/compiler.h"

static size_t qkv_columns(const struct shape *s) {
    return ((size_t)s->num_heads + 2 * (size_t)s->num_kv_heads) * s->head_dim;
}

static size_t attended_columns(const struct shape *s) {
    return (size_t)s->num_heads * s->head_dim;
}

struct matrix {
    uint32_t out, in;
    float *weight, *bias; // bias may be NULL
};

// All weights are zero, except that o is the identity. qkv's bias makes a new token's values ones.
static void fill_counting(const struct shape *s, struct matrix *m, int product) {
    if (product == OUT) {
        for (uint32_t i = 0; i < m->out; i++) m->weight[(size_t)i * m->in + i] = 1;
    }
    if (product != QKV) return;
    m->bias = test_alloc(m->out * sizeof *m->bias);
    for (uint32_t i = (s->num_heads + s->num_kv_heads) * s->head_dim; i < m->out; i++) {
        m->bias[i] = 1;
    }
}

// The gains make the outputs of attention and MLP about as large as the residual.
static struct matrix matrix_make(const struct shape *s, uint32_t layer, int product) {
    const uint32_t outs[] = {(uint32_t)qkv_columns(s), s->hidden, 2 * s->intermediate, s->hidden};
    const uint32_t ins[] = {s->hidden, (uint32_t)attended_columns(s), s->hidden, s->intermediate};
    static const float gains[] = {2, 2, 2.5f, 2};
    struct matrix m = {.out = outs[product], .in = ins[product]};
    struct ops_rng rng = ops_rng_of(100 + layer * PRODUCTS + (uint32_t)product);
    size_t count = (size_t)m.out * m.in;
    if (s->counts) {
        m.weight = test_alloc(count * sizeof *m.weight);
        fill_counting(s, &m, product);
        return m;
    }
    m.weight = bf16_values(&rng, count, gains[product] / sqrtf((float)m.in));
    if (s->biases) m.bias = bf16_values(&rng, m.out, 0.5f);
    return m;
}

static struct linear *matrix_on(struct backend *backend, const struct matrix *m) {
    const struct matrix_slice part = {.source = {.data = m->weight},
                                      .dtype = DTYPE_F32,
                                      .rows = m->out,
                                      .cols = m->in,
                                      .row_stride = m->in};
    const struct matrix_slice bias = {.source = {.data = m->bias},
                                      .dtype = DTYPE_F32,
                                      .rows = 1,
                                      .cols = m->out,
                                      .row_stride = m->out};
    return linear_of(backend,
                     &(struct linear_spec){&part, m->bias ? &bias : NULL, 1, WEIGHTS_NATIVE});
}

static struct tensor norm_on(struct backend *backend, uint64_t seed, uint32_t count) {
    struct ops_rng rng = ops_rng_of(seed);
    float *values = test_alloc(count * sizeof *values);
    for (uint32_t i = 0; i < count; i++) values[i] = 1 + 0.5f * ops_rng_float(&rng);
    struct tensor tensor = tensor_raw(backend, values, count * sizeof *values);
    free(values);
    return tensor;
}

void models_make(const struct device_pair *pair, const struct shape *shape,
                 struct model models[2]) {
    for (uint32_t i = 0; i < 2; i++) {
        struct backend *backend = i ? pair->device : pair->scalar;
        models[i] = (struct model){.backend = backend, .shape = shape};
        for (uint32_t l = 0; l < shape->num_layers; l++) {
            struct layer *layer = &models[i].layers[l];
            layer->input_norm = norm_on(backend, 200 + l * 4, shape->hidden);
            layer->mlp_norm = norm_on(backend, 201 + l * 4, shape->hidden);
            if (!shape->norms) continue;
            layer->q_norm = norm_on(backend, 202 + l * 4, shape->head_dim);
            layer->k_norm = norm_on(backend, 203 + l * 4, shape->head_dim);
        }
    }
    for (uint32_t l = 0; l < shape->num_layers; l++) {
        for (int p = 0; p < PRODUCTS; p++) {
            struct matrix m = matrix_make(shape, l, p);
            for (int i = 0; i < 2; i++) {
                models[i].layers[l].products[p] = matrix_on(models[i].backend, &m);
            }
            free(m.weight);
            free(m.bias);
        }
    }
}

void models_free(struct model models[2]) {
    for (int i = 0; i < 2; i++) {
        const struct backend_ops *ops = models[i].backend->ops;
        const struct backend_fusion *fusion = models[i].backend->fusion;
        if (fusion) fusion->model_destroy(models[i].backend, models[i].fused);
        for (uint32_t l = 0; l < models[i].shape->num_layers; l++) {
            struct layer *layer = &models[i].layers[l];
            for (int p = 0; p < PRODUCTS; p++) {
                ops->linear_destroy(models[i].backend, layer->products[p]);
            }
            tensor_free(&layer->input_norm);
            tensor_free(&layer->mlp_norm);
            if (!models[i].shape->norms) continue;
            tensor_free(&layer->q_norm);
            tensor_free(&layer->k_norm);
        }
    }
}

// Writes `num` tokens to the cache; rows are [1 + 2 * num_kv_heads][head_dim]. They get position 0,
// where the rotation does nothing, so that both backends hold the same numbers.
static void write_tokens(const struct run *run, uint32_t layer, uint32_t num, const float *rows,
                         const int32_t *slots) {
    struct backend *backend = run->model->backend;
    const struct shape *s = run->model->shape;
    int32_t *zeros = test_alloc(num * sizeof *zeros);
    struct tensor qkv =
        tensor_of(backend, rows, num * (1 + 2 * (size_t)s->num_kv_heads) * s->head_dim);
    struct tensor positions = tensor_raw(backend, zeros, num * sizeof *zeros);
    struct tensor where = tensor_raw(backend, slots, num * sizeof *slots);
    const struct step step = {
        .num_tokens = num, .positions = positions.dev, .slot_mapping = where.dev};
    backend->ops->attention_prepare(backend,
                                    &(struct attention_args){.step = &step,
                                                             .cache = run->cache,
                                                             .layer = layer,
                                                             .num_heads = 1,
                                                             .num_kv_heads = s->num_kv_heads,
                                                             .head_dim = s->head_dim,
                                                             .qkv = qkv.dev,
                                                             .rope = run->rope.dev,
                                                             .eps = 1e-6f});
    tensor_free(&where);
    tensor_free(&positions);
    tensor_free(&qkv);
    free(zeros);
}

static int32_t slot_of(const struct run *run, uint32_t seq, uint32_t position) {
    uint32_t block_size = run->model->shape->block_size;
    int32_t block = run->tables[(size_t)seq * run->stride + position / block_size];
    return block * (int32_t)block_size + (int32_t)(position % block_size);
}

bool counts_in(uint32_t position, uint32_t kv_head, uint32_t layer, uint32_t d, uint32_t head_dim) {
    return (position + 7 * kv_head + 3 * layer) % head_dim == d;
}

// The values of a sequence have a mean besides noise. Otherwise 1,500 positions would average to
// almost zero.
static void fill_past(const struct shape *s, uint32_t seq, uint32_t layer, uint32_t first,
                      uint32_t num, float *rows) {
    uint32_t values = s->num_kv_heads * s->head_dim;
    size_t row_floats = 2 * (size_t)values + s->head_dim;
    struct ops_rng means = ops_rng_of(300 + seq * LAYERS_MAX + layer);
    float *mean = bf16_values(&means, values, 1.5f);
    for (uint32_t i = 0; i < num; i++) {
        float *value = rows + i * row_floats + row_floats - values;
        for (uint32_t j = 0; j < values; j++) {
            value[j] = s->counts ? (float)counts_in(first + i, j / s->head_dim, layer,
                                                    j % s->head_dim, s->head_dim)
                                 : value[j] + mean[j];
        }
    }
    round_to_bf16(rows, num * row_floats);
    free(mean);
}

static void write_past(const struct run *run, uint32_t seq, uint32_t layer) {
    const struct shape *s = run->model->shape;
    size_t row_floats = (1 + 2 * (size_t)s->num_kv_heads) * s->head_dim;
    uint32_t past = run->work->context[seq] ? run->work->context[seq] - 1 : 0;
    struct ops_rng rng = ops_rng_of(400 + seq * LAYERS_MAX + layer);
    int32_t slots[CHUNK];
    for (uint32_t first = 0; first < past; first += CHUNK) {
        uint32_t num = past - first < CHUNK ? past - first : CHUNK;
        float *rows = bf16_values(&rng, num * row_floats, 1.5f);
        fill_past(s, seq, layer, first, num, rows);
        for (uint32_t i = 0; i < num; i++) slots[i] = slot_of(run, seq, first + i);
        write_tokens(run, layer, num, rows, slots);
        free(rows);
    }
}

static void write_nans(const struct run *run) {
    const struct shape *s = run->model->shape;
    size_t bytes = CHUNK * (1 + 2 * (size_t)s->num_kv_heads) * s->head_dim * sizeof(float);
    float *rows = test_alloc(bytes);
    memset(rows, 0xff, bytes);
    uint32_t num_slots = run->num_blocks * s->block_size;
    int32_t slots[CHUNK];
    for (uint32_t first = 0; first < num_slots; first += CHUNK) {
        for (uint32_t i = 0; i < CHUNK; i++) {
            slots[i] = first + i < num_slots ? (int32_t)(first + i) : -1;
        }
        for (uint32_t l = 0; l < s->num_layers; l++) write_tokens(run, l, CHUNK, rows, slots);
    }
    free(rows);
}

// Assigns blocks in a shuffled order. But the cache's last block becomes the first block of the
// first sequence that has any: a write to slot -1 would end up there, one layer or part before.
// After a sequence's own blocks its table has a block of no sequence.
static void deal_blocks(struct run *run) {
    uint32_t block_size = run->model->shape->block_size, own[SEQS], used = 0;
    run->stride = 3;
    run->num_blocks = 2;
    for (uint32_t s = 0; s < run->work->num_seqs; s++) {
        uint32_t context = run->work->context[s];
        own[s] = context ? (context + STEPS - 1 + block_size - 1) / block_size : 0;
        if (own[s] + 2 > run->stride) run->stride = own[s] + 2;
        run->num_blocks += own[s];
    }
    int32_t *order = test_alloc(run->num_blocks * sizeof *order);
    struct ops_rng rng = ops_rng_of(99);
    order[0] = (int32_t)run->num_blocks - 1;
    for (uint32_t i = 1; i < run->num_blocks; i++) {
        uint32_t other = 1 + ops_rng_below(&rng, i);
        order[i] = order[other];
        order[other] = (int32_t)i - 1;
    }
    run->tables = test_alloc((size_t)run->work->num_seqs * run->stride * sizeof *run->tables);
    for (uint32_t s = 0; s < run->work->num_seqs; s++) {
        int32_t *table = run->tables + (size_t)s * run->stride;
        for (uint32_t i = 0; i < run->stride; i++) {
            table[i] = i < own[s] ? order[used + i] : order[run->num_blocks - 1];
        }
        used += own[s];
    }
    free(order);
}

static struct tensor rope_on(struct backend *backend, uint32_t num_positions, uint32_t head_dim) {
    size_t count = (size_t)num_positions * head_dim;
    float *rope = test_alloc(count * sizeof *rope);
    for (size_t i = 0; i < count; i++) {
        uint32_t d = (uint32_t)(i % head_dim), pair = d % (head_dim / 2);
        double angle = (double)(i / head_dim) * pow(10000.0, -2.0 * pair / head_dim);
        rope[i] = (float)(d < head_dim / 2 ? cos(angle) : sin(angle));
    }
    struct tensor tensor = tensor_raw(backend, rope, count * sizeof *rope);
    free(rope);
    return tensor;
}

struct run run_start(const struct model *model, const struct work *work) {
    struct run run = {.model = model, .work = work};
    struct backend *backend = model->backend;
    const struct shape *s = model->shape;
    uint32_t longest = 1;
    struct err err = {0};
    deal_blocks(&run);
    for (uint32_t i = 0; i < work->num_seqs; i++) {
        if (work->context[i] > longest) longest = work->context[i];
    }
    run.rope = rope_on(backend, longest + STEPS, s->head_dim);
    const struct kv_cache_spec spec = {.num_layers = s->num_layers,
                                       .num_blocks = run.num_blocks,
                                       .block_size = s->block_size,
                                       .num_kv_heads = s->num_kv_heads,
                                       .head_dim = s->head_dim,
                                       .num_heads = s->num_heads,
                                       .limits = {.max_num_tokens = CHUNK,
                                                  .max_num_seqs = ROWS_MAX,
                                                  .max_positions = longest + STEPS,
                                                  .max_blocks_per_seq = run.stride},
                                       .dtype = backend_has_kv_cache_dtype(backend, DTYPE_F32)
                                                    ? DTYPE_F32
                                                    : backend->kv_cache_dtype};
    if (backend->ops->kv_cache_create(backend, &spec, &run.cache, &err)) {
        fail_msg("%s", err.message);
    }
    write_nans(&run);
    for (uint32_t i = 0; i < work->num_seqs; i++) {
        for (uint32_t l = 0; l < s->num_layers; l++) write_past(&run, i, l);
    }
    return run;
}

void run_end(struct run *run) {
    struct backend *backend = run->model->backend;
    backend->ops->kv_cache_destroy(backend, run->cache);
    tensor_free(&run->rope);
    free(run->tables);
}

struct decodes decodes_make(const struct run *run, uint32_t number, uint32_t rows, uint64_t seed) {
    const struct shape *s = run->model->shape;
    struct ops_rng rng = ops_rng_of(seed);
    struct decodes decodes = {.rows = rows};
    decodes.residual = bf16_values(&rng, (size_t)rows * s->hidden, s->counts ? 0 : 1);
    for (uint32_t r = 0; r < rows; r++) {
        bool is_wanted = r < run->work->num_seqs && run->work->context[r];
        decodes.seq[r] = is_wanted ? r : 0;
        decodes.context[r] = is_wanted ? run->work->context[r] + number : 0;
        if (is_wanted) continue;
        memset(decodes.residual + (size_t)r * s->hidden, 0xff, s->hidden * sizeof(float));
    }
    return decodes;
}

struct batch batch_make(const struct run *run, const struct decodes *decodes) {
    struct backend *backend = run->model->backend;
    int32_t positions[ROWS_MAX], slots[ROWS_MAX], context[ROWS_MAX], query_start[ROWS_MAX + 1];
    int32_t table_row[ROWS_MAX];
    uint32_t rows = decodes->rows, longest = 1;
    size_t table_bytes = run->stride * sizeof(int32_t), bytes = rows * sizeof(int32_t);
    int32_t *tables = test_alloc(rows * table_bytes);
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t position = decodes->context[r] ? decodes->context[r] - 1 : 0;
        bool has_slot = decodes->context[r] && !decodes->no_slots;
        positions[r] = (int32_t)position;
        slots[r] = has_slot ? slot_of(run, decodes->seq[r], position) : -1;
        context[r] = (int32_t)decodes->context[r];
        if (decodes->context[r] > longest) longest = decodes->context[r];
        table_row[r] = (int32_t)(rows - 1 - r); // any order
        memcpy(tables + (size_t)table_row[r] * run->stride,
               run->tables + (size_t)decodes->seq[r] * run->stride, table_bytes);
    }
    for (uint32_t r = 0; r <= rows; r++) query_start[r] = (int32_t)r;
    size_t residual = (size_t)rows * run->model->shape->hidden;
    struct batch batch = {
        .residual = tensor_of(backend, decodes->residual, residual),
        .positions = tensor_raw(backend, positions, bytes),
        .slots = tensor_raw(backend, slots, bytes),
        .context = tensor_raw(backend, context, bytes),
        .tables = tensor_raw(backend, tables, rows * table_bytes),
        .table_row = tensor_raw(backend, table_row, bytes),
        .query_start = tensor_raw(backend, query_start, bytes + sizeof(int32_t)),
    };
    batch.step = (struct step){
        .num_tokens = rows,
        .num_seqs = rows,
        .table_stride = run->stride,
        .max_query_len = 1,
        .max_context_len = longest,
        .positions = batch.positions.dev,
        .slot_mapping = batch.slots.dev,
        .query_start = batch.query_start.dev,
        .context_len = batch.context.dev,
        .block_tables = batch.tables.dev,
        .table_row = batch.table_row.dev,
    };
    free(tables);
    return batch;
}

void batch_free(struct batch *b) {
    tensor_free(&b->residual);
    tensor_free(&b->positions);
    tensor_free(&b->slots);
    tensor_free(&b->context);
    tensor_free(&b->tables);
    tensor_free(&b->table_row);
    tensor_free(&b->query_start);
}

enum { HIDDEN, QKVS, ATTENDED, GATE_UPS, ACTIVATED, PROJECTED, BUFFERS }; // for the separate ops

// Adds `unadded` to the residual first, then computes the norm.
static void norm(const struct run *run, const struct batch *b, const void *unadded,
                 const float *weight, void *out) {
    struct backend *backend = run->model->backend;
    backend->ops->rms_norm(backend,
                           &(struct rms_norm_args){.x = unadded ? unadded : b->residual.dev,
                                                   .residual = unadded ? b->residual.dev : NULL,
                                                   .weight = weight,
                                                   .out = out,
                                                   .rows = b->step.num_tokens,
                                                   .cols = run->model->shape->hidden,
                                                   .eps = 1e-6f});
}

static void linear(const struct run *run, uint32_t layer, int product, const struct tensor *x,
                   const struct tensor *out, uint32_t rows) {
    struct backend *backend = run->model->backend;
    const struct linear *weights = run->model->layers[layer].products[product];
    backend->ops->linear(
        backend,
        &(struct linear_args){.linear = weights, .x = x->dev, .out = out->dev, .rows = rows});
}

static void attend(const struct run *run, const struct batch *b, uint32_t l, void *qkv,
                   void *attended) {
    struct backend *backend = run->model->backend;
    const struct shape *s = run->model->shape;
    const struct layer *layer = &run->model->layers[l];
    const struct attention_args args = {.step = &b->step,
                                        .cache = run->cache,
                                        .layer = l,
                                        .num_heads = s->num_heads,
                                        .num_kv_heads = s->num_kv_heads,
                                        .head_dim = s->head_dim,
                                        .qkv = qkv,
                                        .out = attended,
                                        .q_norm = layer->q_norm.dev,
                                        .k_norm = layer->k_norm.dev,
                                        .rope = run->rope.dev,
                                        .eps = 1e-6f,
                                        .scale = 1 / sqrtf((float)s->head_dim)};
    backend->ops->attention_prepare(backend, &args);
    backend->ops->attention(backend, &args);
}

float *one_by_one(const struct run *run, const struct decodes *decodes) {
    struct backend *backend = run->model->backend;
    const struct shape *s = run->model->shape;
    const size_t columns[BUFFERS] = {s->hidden,           qkv_columns(s),  attended_columns(s),
                                     2 * s->intermediate, s->intermediate, s->hidden};
    struct batch b = batch_make(run, decodes);
    uint32_t rows = decodes->rows;
    struct tensor t[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) t[i] = tensor_nan(backend, rows * columns[i]);
    if (backend->ops->attention_begin) {
        backend->ops->attention_begin(backend, run->cache, &b.step);
    }
    for (uint32_t l = 0; l < s->num_layers; l++) {
        const struct layer *layer = &run->model->layers[l];
        norm(run, &b, l ? t[PROJECTED].dev : NULL, layer->input_norm.dev, t[HIDDEN].dev);
        linear(run, l, QKV, &t[HIDDEN], &t[QKVS], rows);
        attend(run, &b, l, t[QKVS].dev, t[ATTENDED].dev);
        linear(run, l, OUT, &t[ATTENDED], &t[PROJECTED], rows);
        norm(run, &b, t[PROJECTED].dev, layer->mlp_norm.dev, t[HIDDEN].dev);
        linear(run, l, GATE_UP, &t[HIDDEN], &t[GATE_UPS], rows);
        backend->ops->silu_mul(backend,
                               &(struct silu_mul_args){t[GATE_UPS].dev, t[ACTIVATED].dev, rows,
                                                       s->intermediate, ACTIVATION_SILU});
        linear(run, l, DOWN, &t[ACTIVATED], &t[PROJECTED], rows);
    }
    norm(run, &b, t[PROJECTED].dev, run->model->layers[0].input_norm.dev, t[HIDDEN].dev);
    float *stream = tensor_read(&b.residual);
    for (int i = 0; i < BUFFERS; i++) tensor_free(&t[i]);
    batch_free(&b);
    return stream;
}

struct scratch scratch_make(const struct run *run, uint32_t rows, bool is_shared) {
    struct backend *backend = run->model->backend;
    const struct shape *s = run->model->shape;
    size_t qkv = rows * qkv_columns(s), attended = rows * attended_columns(s);
    size_t activated = (size_t)rows * s->intermediate;
    struct scratch c = {.is_shared = is_shared};
    if (is_shared) {
        c.qkv = tensor_nan(backend, qkv + attended > activated ? qkv + attended : activated);
        c.parts[0] = c.parts[2] = c.qkv.dev;
        c.parts[1] = (char *)c.qkv.dev + qkv * dtype_size(backend->activation_dtype);
        return c;
    }
    c.qkv = tensor_nan(backend, qkv);
    c.attended = tensor_nan(backend, attended);
    c.activated = tensor_nan(backend, activated);
    c.parts[0] = c.qkv.dev, c.parts[1] = c.attended.dev, c.parts[2] = c.activated.dev;
    return c;
}

void scratch_free(struct scratch *c) {
    tensor_free(&c->qkv);
    if (c->is_shared) return;
    tensor_free(&c->attended);
    tensor_free(&c->activated);
}

bool takes_layers(const struct run *run, const struct batch *b) {
    return run->model->backend->fusion->takes_layers(run->model->fused, run->cache, &b->step);
}

void run_layers(const struct run *run, const struct batch *b, const struct scratch *c) {
    struct backend *backend = run->model->backend;
    float scale = 1 / sqrtf((float)run->model->shape->head_dim);
    backend->fusion->layers(backend, run->model->fused,
                            &(struct layers_args){.step = &b->step,
                                                  .cache = run->cache,
                                                  .residual = b->residual.dev,
                                                  .qkv = c->parts[0],
                                                  .attended = c->parts[1],
                                                  .activated = c->parts[2],
                                                  .rope = run->rope.dev,
                                                  .scale = scale});
}

float *all_at_once(const struct run *run, const struct decodes *decodes, bool is_shared) {
    struct batch b = batch_make(run, decodes);
    struct scratch c = scratch_make(run, decodes->rows, is_shared);
    assert_true(takes_layers(run, &b));
    run_layers(run, &b, &c);
    float *stream = tensor_read(&b.residual);
    scratch_free(&c);
    batch_free(&b);
    return stream;
}

static bool takes_any_size;

// Replaces the backend's own.
size_t cuda_layers_bytes_min(void) {
    return takes_any_size ? 0 : (size_t)64 << 20;
}

struct fused_model *fused_make(const struct model *model, bool is_whole, bool is_any_size) {
    struct backend *device = model->backend;
    const struct shape *s = model->shape;
    struct fused_layer layers[LAYERS_MAX];
    for (uint32_t l = 0; l < s->num_layers; l++) {
        const struct layer *from = &model->layers[l];
        layers[l] = (struct fused_layer){
            .qkv = from->products[QKV],
            .o = from->products[OUT],
            .gate_up = from->products[GATE_UP],
            .down = from->products[DOWN],
            .input_norm = from->input_norm.dev,
            .mlp_norm = from->mlp_norm.dev,
            .q_norm = from->q_norm.dev,
            .k_norm = from->k_norm.dev,
        };
    }
    const struct fused_model_spec spec = {.layers = layers,
                                          .num_layers = s->num_layers,
                                          .hidden = s->hidden,
                                          .intermediate = s->intermediate,
                                          .num_heads = s->num_heads,
                                          .num_kv_heads = s->num_kv_heads,
                                          .head_dim = s->head_dim,
                                          .eps = 1e-6f,
                                          .is_whole = is_whole};
    struct fused_model *fused = NULL;
    struct err err = {0};
    takes_any_size = is_any_size;
    if (device->fusion->model_create(device, &spec, &fused, &err)) fail_msg("%s", err.message);
    return fused;
}

// Whether `layers` takes a step of `rows` rows.
static bool takes(const struct model *model, uint32_t rows) {
    static const struct work work = {SEQS, {1, 1, 1, 1}};
    struct run run = run_start(model, &work);
    struct decodes decodes = decodes_make(&run, 0, rows, 1);
    struct batch batch = batch_make(&run, &decodes);
    bool is_taken = takes_layers(&run, &batch);
    batch_free(&batch);
    free(decodes.residual);
    run_end(&run);
    return is_taken;
}

// Whether the device has to take every shape here. Other devices may be older than sm_90 or have
// too little shared memory (sm_120). The backend does not say which.
static bool must_take(const struct backend *device) {
    static const char *const names[] = {"H100", "H200", "H800", "B200", "B300"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strstr(device->description, names[i])) return true;
    }
    return false;
}

bool can_decode(struct model *model, uint32_t rows) {
    struct backend *device = model->backend;
    const struct shape *s = model->shape;
    if (!device->fusion) {
        print_message("skipped: %s has no fusion\n", device->description);
        return false;
    }
    model->fused = fused_make(model, true, true);
    if (takes(model, rows)) return true;
    print_message(
        "%s does not take %u rows of hidden %u, intermediate %u, %u heads over %u of %u\n",
        device->description, rows, s->hidden, s->intermediate, s->num_heads, s->num_kv_heads,
        s->head_dim);
    if (must_take(device)) fail_msg("want %u rows", rows);
    print_message("skipped: older than sm_90, or its shared memory is too small\n");
    return false;
}

#include "model/loader.h"

#include <stdlib.h>
#include <string.h>

#include "model/code_reader.h"

void loader_tell(const struct loader *l, uint64_t num_loaded) {
    if (l->progress.on_loaded) {
        l->progress.on_loaded(num_loaded, l->num_parameters, l->progress.user_data);
    }
}

enum status loader_take_matrix(struct loader *l, const char *name, uint32_t rows, uint32_t cols,
                               struct weight *out) {
    const uint64_t shape[2] = {rows, cols};
    enum status status = interrupt_check(l->interrupt, l->err);
    if (status) return status;
    loader_tell(l, l->num_loaded);
    l->num_loaded += (uint64_t)rows * cols;
    return weights_take(l->weights, name, 2, shape, out, l->err);
}

enum status loader_create_linear(struct loader *l, const struct linear_spec *spec,
                                 struct linear **out) {
    struct backend *backend = l->decoder->backend;
    enum status status = backend->ops->linear_create(backend, spec, out, l->err);
    weights_release(l->weights);
    return status;
}

struct matrix_slice loader_rows_of(const struct weight *weight, uint32_t start, uint32_t count) {
    uint64_t cols = weight->rank == 2 ? weight->shape[1] : 1;
    return (struct matrix_slice){
        .source = byte_source_skip(weight->source, start * cols * dtype_size(weight->dtype)),
        .dtype = weight->dtype,
        .rows = count,
        .cols = (uint32_t)cols,
        .row_stride = cols,
        .reader = weight->reader,
        .first_row = start,
    };
}

struct matrix_slice loader_cols_of(const struct weight *weight, uint32_t start, uint32_t count) {
    return (struct matrix_slice){
        .source = byte_source_skip(weight->source, start * dtype_size(weight->dtype)),
        .dtype = weight->dtype,
        .rows = (uint32_t)weight->shape[0],
        .cols = count,
        .row_stride = weight->shape[1],
        .reader = weight->reader,
        .first_col = start,
    };
}

// The slice [start, start + count) of a bias, which is a matrix of one row.
static struct matrix_slice bias_of(const struct weight *weight, uint32_t start, uint32_t count) {
    return (struct matrix_slice){
        .source = byte_source_skip(weight->source, start * dtype_size(weight->dtype)),
        .dtype = weight->dtype,
        .rows = 1,
        .cols = count,
        .row_stride = count,
    };
}

static bool is_partly_rotated(const struct row_part *part) {
    return part->rotary_dim < part->head_dim;
}

static uint32_t num_slices(const struct row_part *part) {
    return is_partly_rotated(part) ? part->count / part->head_dim * 4 : 1;
}

// The kernels rotate pairs (i, i + head_dim / 2). Where only the first rotary_dim elements r of a
// head are rotated, in pairs (i, i + rotary_dim / 2), and the others u are not, heads of q and k
// get another order: the first halves of r and of u, then the second halves. Scores stay the same.
struct head_runs {
    uint32_t start[4], count[4];
};

static struct head_runs head_runs_of(uint32_t head_dim, uint32_t rotary_dim) {
    uint32_t rotated = rotary_dim / 2, others = head_dim / 2 - rotated;
    return (struct head_runs){{0, rotary_dim, rotated, rotary_dim + others},
                              {rotated, others, rotated, others}};
}

static enum status take_part(struct loader *l, uint32_t layer, const struct row_part *part,
                             uint32_t cols, struct weight *weight, struct weight *bias) {
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, layer, part->module, ".weight");
    enum status status = loader_take_matrix(l, name, part->rows, cols, weight);
    if (status || !bias) return status;
    const uint64_t shape[1] = {part->rows};
    layer_weight_name(name, layer, part->module, ".bias");
    return weights_take(l->weights, name, 1, shape, bias, l->err);
}

static void slice_part(const struct row_part *part, const struct weight *weight,
                       const struct weight *bias, struct matrix_slice *slices,
                       struct matrix_slice *biases) {
    if (!is_partly_rotated(part)) {
        *slices = loader_rows_of(weight, part->start, part->count);
        if (bias) *biases = bias_of(bias, part->start, part->count);
        return;
    }
    const struct head_runs runs = head_runs_of(part->head_dim, part->rotary_dim);
    for (uint32_t i = 0; i < num_slices(part); i++) {
        uint32_t start = part->start + i / 4 * part->head_dim + runs.start[i % 4];
        slices[i] = loader_rows_of(weight, start, runs.count[i % 4]);
        if (bias) biases[i] = bias_of(bias, start, runs.count[i % 4]);
    }
}

enum status loader_load_rows(struct loader *l, uint32_t layer, const struct row_part *parts,
                             uint32_t num_parts, uint32_t cols, bool has_bias,
                             struct linear **out) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < num_parts; i++) count += num_slices(&parts[i]);
    struct matrix_slice *slices = calloc(2 * (size_t)count, sizeof *slices);
    if (!slices) return err_nomem(l->err, parts->module);
    struct matrix_slice *biases = slices + count;
    struct linear_spec spec = {slices, has_bias ? biases : NULL, count, parts->format};
    enum status status = OK;
    struct weight weight = {0}, bias = {0};
    for (uint32_t i = 0, at = 0; i < num_parts && !status; at += num_slices(&parts[i++])) {
        // Parts of one tensor follow each other.
        bool is_taken = i && strcmp(parts[i].module, parts[i - 1].module) == 0;
        if (!is_taken)
            status = take_part(l, layer, &parts[i], cols, &weight, has_bias ? &bias : NULL);
        if (!status)
            slice_part(&parts[i], &weight, has_bias ? &bias : NULL, slices + at, biases + at);
    }
    struct code_reader *readers = NULL;
    if (!status) status = code_readers_make(&readers, slices, count, parts->format, l->err);
    if (!status) status = loader_create_linear(l, &spec, out);
    free(readers);
    free(slices);
    return status;
}

enum status loader_load_cols(struct loader *l, uint32_t layer, const struct col_part *part,
                             bool has_bias, struct linear **out) {
    char name[WEIGHT_NAME_BYTES];
    struct weight weight, bias;
    layer_weight_name(name, layer, part->module, ".weight");
    enum status status = loader_take_matrix(l, name, part->rows, part->cols, &weight);
    if (status) return status;
    struct matrix_slice slice = loader_cols_of(&weight, part->start, part->count);
    struct matrix_slice bias_slice;
    if (has_bias) {
        const uint64_t shape[1] = {part->rows};
        layer_weight_name(name, layer, part->module, ".bias");
        status = weights_take(l->weights, name, 1, shape, &bias, l->err);
        if (status) return status;
        bias_slice = bias_of(&bias, 0, part->rows);
    }
    bool adds_bias = has_bias && l->decoder->comm->rank == 0;
    const struct linear_spec spec = {&slice, adds_bias ? &bias_slice : NULL, 1, part->format};
    return loader_create_linear(l, &spec, out);
}

static float element(const char *data, enum dtype dtype, size_t i) {
    const char *p = data + i * dtype_size(dtype);
    uint16_t half;
    float value;
    switch (dtype) {
    case DTYPE_BF16:
        memcpy(&half, p, sizeof half);
        return bf16_to_f32(half);
    case DTYPE_F16:
        memcpy(&half, p, sizeof half);
        return f16_to_f32(half);
    default:
        memcpy(&value, p, sizeof value);
        return value;
    }
}

enum status loader_to_device(struct decoder *d, const float *values, size_t count, float **out,
                             struct err *err) {
    void *dev = NULL;
    enum status status = d->backend->ops->alloc(d->backend, count * sizeof *values, &dev, err);
    if (status) return status;
    *out = dev; // the decoder owns it from here on, also on failure
    d->backend->ops->upload(d->backend, dev, values, count * sizeof *values);
    return d->backend->ops->synchronize(d->backend, err);
}

enum status loader_load_norm(struct loader *l, const char *name, uint32_t count, float factor,
                             float **out) {
    const uint64_t shape[1] = {count};
    float plus = l->decoder->table->norm_kind == NORM_ONE_PLUS_WEIGHT ? 1 : 0;
    struct weight weight;
    enum status status = weights_take(l->weights, name, 1, shape, &weight, l->err);
    if (status) return status;
    float *values = malloc(2 * count * sizeof *values); // the second half: bytes read from a file
    if (!values) return err_nomem(l->err, name);
    const char *data = byte_source_get(&weight.source, 0, count * dtype_size(weight.dtype),
                                       values + count, l->err);
    for (uint32_t i = 0; data && i < count; i++) {
        values[i] = factor * (plus + element(data, weight.dtype, i));
    }
    status = data ? loader_to_device(l->decoder, values, count, out, l->err) : ERR_IO;
    free(values);
    return status;
}

enum status loader_load_layer_norm(struct loader *l, uint32_t layer, const char *module,
                                   uint32_t count, float **out) {
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, layer, module, ".weight");
    return loader_load_norm(l, name, count, 1, out);
}

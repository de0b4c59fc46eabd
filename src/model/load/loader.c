#include "model/load/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model/code_reader.h"
#include "model/load/scaled_rows.h"

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

struct matrix_slice loader_part_of(const struct weight *weight, uint32_t row, uint32_t rows,
                                   uint32_t col, uint32_t cols) {
    uint64_t stride = weight->rank == 2 ? weight->shape[1] : 1;
    return (struct matrix_slice){
        .source =
            byte_source_skip(weight->source, (row * stride + col) * dtype_size(weight->dtype)),
        .dtype = weight->dtype,
        .rows = rows,
        .cols = cols,
        .row_stride = stride,
        .reader = weight->reader,
        .first_row = row,
        .first_col = col,
    };
}

struct matrix_slice loader_rows_of(const struct weight *weight, uint32_t start, uint32_t count) {
    return loader_part_of(weight, start, count, 0, (uint32_t)weight->shape[1]);
}

struct matrix_slice loader_cols_of(const struct weight *weight, uint32_t start, uint32_t count) {
    return loader_part_of(weight, 0, (uint32_t)weight->shape[0], start, count);
}

struct matrix_slice loader_bias_of(const struct weight *weight, uint32_t start, uint32_t count) {
    return (struct matrix_slice){
        .source = byte_source_skip(weight->source, start * dtype_size(weight->dtype)),
        .dtype = weight->dtype,
        .rows = 1,
        .cols = count,
        .row_stride = count,
    };
}

// Rows start, start + step and so on of a tensor, `count` of them.
struct row_run {
    uint32_t start, count, step;
};

// The kernels rotate pairs (i, i + head_dim / 2) of a head. A checkpoint has pairs of the first
// rotary_dim elements r, which are (i, i + rotary_dim / 2) or, interleaved, neighbours; the others
// u are not rotated. So heads of q and k get another order: the first elements of r's pairs, half
// of u, the second elements, the other half. Scores stay the same.
struct head_runs {
    uint32_t num;
    struct row_run runs[4];
};

static struct head_runs head_runs_of(uint32_t head_dim, struct head_rotation rotation) {
    uint32_t pairs = rotation.dim / 2, others = head_dim / 2 - pairs;
    uint32_t step = rotation.is_interleaved ? 2 : 1, second = rotation.is_interleaved ? 1 : pairs;
    const struct row_run all[] = {{0, pairs, step},
                                  {rotation.dim, others, 1},
                                  {second, pairs, step},
                                  {rotation.dim + others, others, 1}};
    struct head_runs found = {0};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (all[i].count) found.runs[found.num++] = all[i];
    }
    return found;
}

static bool is_reordered(const struct row_part *part) {
    return part->rotation.dim && (part->rotation.is_interleaved || part->rotation.dim < part->run);
}

static uint32_t num_runs(const struct row_part *part) {
    if (is_reordered(part)) {
        return part->count / part->run * head_runs_of(part->run, part->rotation).num;
    }
    return part->run && part->run != part->stride ? part->count / part->run : 1;
}

static struct row_run run_of(const struct row_part *part, uint32_t i) {
    if (is_reordered(part)) {
        const struct head_runs heads = head_runs_of(part->run, part->rotation);
        struct row_run run = heads.runs[i % heads.num];
        run.start += part->start + i / heads.num * part->stride;
        return run;
    }
    uint32_t count = num_runs(part) == 1 ? part->count : part->run;
    return (struct row_run){part->start + i * part->stride, count, 1};
}

// A tensor and its bias.
struct taken {
    const char *module;
    struct weight weight;
    float *bias; // [rows], or NULL
    bool is_repeated; // an earlier one has the same tensor, and owns the bias
};

// Takes the tensor of `part`, unless one of the others [num] is the same one.
static enum status take_part(struct loader *l, uint32_t layer, const struct row_part *part,
                             uint32_t cols, bool has_bias, const struct taken *others, uint32_t num,
                             struct taken *out) {
    for (uint32_t i = 0; i < num; i++) {
        if (strcmp(others[i].module, part->module) != 0) continue;
        *out = others[i];
        out->is_repeated = true;
        return OK;
    }
    char name[WEIGHT_NAME_BYTES];
    *out = (struct taken){.module = part->module};
    layer_weight_name(name, layer, part->module, ".weight");
    enum status status = loader_take_matrix(l, name, part->rows, cols, &out->weight);
    if (status || !has_bias) return status;
    const uint64_t shape[1] = {part->rows};
    layer_weight_name(name, layer, part->module, ".bias");
    return loader_read_floats(l, name, 1, shape, &out->bias);
}

static struct matrix_slice slice_run(const struct weight *weight, struct row_run run) {
    struct matrix_slice slice = loader_rows_of(weight, run.start, run.count);
    slice.row_stride *= run.step;
    slice.skipped_rows = run.step - 1;
    return slice;
}

static float factor_of(const struct row_part *part) {
    return part->factor == 0 ? 1 : part->factor;
}

// Copies elements of a vector in the order of a run. Returns the end of the copy.
static float *copy_run(float *out, const float *from, struct row_run run, float factor) {
    for (uint32_t i = 0; i < run.count; i++) *out++ = factor * from[run.start + i * run.step];
    return out;
}

// Slices of the parts' runs, and their biases, which are copied to `bias` [rows of all parts].
static void slice_parts(const struct row_linear *linear, const struct taken *taken,
                        struct matrix_slice *slice, struct matrix_slice *bias_slice, float *bias) {
    for (uint32_t i = 0; i < linear->num_parts; i++) {
        for (uint32_t k = 0; k < num_runs(&linear->parts[i]); k++) {
            struct row_run run = run_of(&linear->parts[i], k);
            *slice++ = slice_run(&taken[i].weight, run);
            if (!taken[i].bias) continue;
            *bias_slice++ = (struct matrix_slice){.source = {.data = bias},
                                                  .dtype = DTYPE_F32,
                                                  .rows = 1,
                                                  .cols = run.count,
                                                  .row_stride = run.count};
            bias = copy_run(bias, taken[i].bias, run, factor_of(&linear->parts[i]));
        }
    }
}

// Gives the slices of parts with a factor a reader of their rows. The caller frees *out.
static enum status scale_parts(struct scaled_rows **out, const struct row_linear *linear,
                               struct matrix_slice *slice, uint32_t count, struct err *err) {
    bool is_scaled = false;
    *out = NULL;
    for (uint32_t i = 0; i < linear->num_parts; i++) {
        is_scaled |= factor_of(&linear->parts[i]) != 1;
    }
    if (!is_scaled) return OK;
    struct scaled_rows *rows = calloc(count, sizeof *rows);
    if (!rows) return err_nomem(err, "scaled weights");
    *out = rows;
    for (uint32_t i = 0; i < linear->num_parts; i++) {
        for (uint32_t k = 0; k < num_runs(&linear->parts[i]); k++) {
            scaled_rows_init(rows++, slice++, factor_of(&linear->parts[i]));
        }
    }
    return OK;
}

static enum status create_row_linear(struct loader *l, const struct row_linear *linear,
                                     const struct taken *taken, bool has_bias) {
    uint32_t count = 0, rows = 0;
    for (uint32_t i = 0; i < linear->num_parts; i++) {
        count += num_runs(&linear->parts[i]);
        rows += linear->parts[i].count;
    }
    CHECK(count > 0, "no rows of %s", linear->parts->module);
    struct matrix_slice *slices = calloc(2 * (size_t)count, sizeof *slices);
    float *bias = has_bias ? malloc(rows * sizeof *bias) : NULL;
    struct code_reader *readers = NULL;
    struct scaled_rows *scaled = NULL;
    enum status status = OK;
    if (!slices || (has_bias && !bias)) {
        status = err_nomem(l->err, linear->parts->module);
        goto end;
    }
    struct matrix_slice *biases = slices + count;
    slice_parts(linear, taken, slices, biases, bias);
    struct backend *backend = l->decoder->backend;
    const struct linear_spec spec = {slices, has_bias ? biases : NULL, count, linear->format};
    status = scale_parts(&scaled, linear, slices, count, l->err);
    if (!status) status = code_readers_make(&readers, slices, count, linear->format, l->err);
    if (!status) status = backend->ops->linear_create(backend, &spec, linear->out, l->err);
end:
    free(readers);
    free(scaled);
    free(bias);
    free(slices);
    return status;
}

enum status loader_load_rows(struct loader *l, uint32_t layer, const struct row_linear *linears,
                             uint32_t num_linears, uint32_t cols, bool has_bias) {
    struct taken taken[ROW_PARTS_MAX];
    uint32_t num = 0;
    enum status status = OK;
    for (uint32_t i = 0; i < num_linears && !status; i++) {
        uint32_t first = num;
        CHECK(first + linears[i].num_parts <= ROW_PARTS_MAX, "layer=%u", layer);
        for (uint32_t k = 0; k < linears[i].num_parts && !status; k++, num++) {
            status =
                take_part(l, layer, &linears[i].parts[k], cols, has_bias, taken, num, &taken[num]);
        }
        if (!status) status = create_row_linear(l, &linears[i], taken + first, has_bias);
    }
    for (uint32_t i = 0; i < num; i++) {
        if (!taken[i].is_repeated) free(taken[i].bias);
    }
    weights_release(l->weights);
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
        bias_slice = loader_bias_of(&bias, 0, part->rows);
    }
    bool adds_bias = has_bias && l->decoder->comm->rank == 0;
    const struct linear_spec spec = {&slice, adds_bias ? &bias_slice : NULL, 1, part->format};
    return loader_create_linear(l, &spec, out);
}

enum status loader_load_vocabulary(struct loader *l, const char *module, uint32_t cols,
                                   bool has_bias, struct weight_format format,
                                   struct linear **out) {
    const struct decoder *d = l->decoder;
    const uint64_t shape[1] = {d->config->vocab_size};
    uint32_t start = d->shape.vocab_start, count = d->shape.vocab_size;
    char name[WEIGHT_NAME_BYTES];
    struct weight weight;
    float *bias = NULL;
    snprintf(name, sizeof name, "%s.weight", module);
    enum status status = loader_take_matrix(l, name, d->config->vocab_size, cols, &weight);
    snprintf(name, sizeof name, "%s.bias", module);
    if (!status && has_bias) status = loader_read_floats(l, name, 1, shape, &bias);
    if (status) return status;
    struct matrix_slice slice = loader_rows_of(&weight, start, count);
    struct matrix_slice biases = {
        .dtype = DTYPE_F32, .rows = 1, .cols = count, .row_stride = count};
    if (bias) biases.source.data = bias + start;
    const struct linear_spec spec = {&slice, bias ? &biases : NULL, 1, format};
    status = loader_create_linear(l, &spec, out);
    free(bias);
    return status;
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

enum status loader_read_floats(struct loader *l, const char *name, uint32_t rank,
                               const uint64_t *shape, float **out) {
    uint64_t num_columns = rank == 2 ? shape[1] : 1;
    size_t count = shape[0] * num_columns;
    struct weight weight;
    enum status status = weights_take(l->weights, name, rank, shape, &weight, l->err);
    if (status) return status;
    float *values = malloc(2 * count * sizeof *values); // the second half: bytes read from a file
    if (!values) return err_nomem(l->err, name);
    if (weight.reader) {
        for (uint64_t row = 0; row < shape[0] && !status; row++) {
            status = weight.reader->read(weight.reader, row, 0, num_columns,
                                         values + row * num_columns, l->err);
        }
        weights_release(l->weights);
        if (status) free(values);
        if (!status) *out = values;
        return status;
    }
    const char *data = byte_source_get(&weight.source, 0, count * dtype_size(weight.dtype),
                                       values + count, l->err);
    if (!data) {
        free(values);
        return ERR_IO;
    }
    for (size_t i = 0; i < count; i++) values[i] = element(data, weight.dtype, i);
    *out = values;
    return OK;
}

// *out is NULL before, and after an error.
static enum status read_norm(struct loader *l, const char *name, uint32_t count, float factor,
                             float **out) {
    const uint64_t shape[1] = {count};
    bool adds_one = l->decoder->table->norm_kind == NORM_ONE_PLUS_WEIGHT;
    float plus = adds_one && !weights_has_mlx_convs(l->weights) ? 1 : 0;
    enum status status = loader_read_floats(l, name, 1, shape, out);
    float *values = *out;
    for (uint32_t i = 0; i < count && values; i++) values[i] = factor * (plus + values[i]);
    return status;
}

enum status loader_load_norm(struct loader *l, const char *name, uint32_t count, float factor,
                             float **out) {
    float *values = NULL;
    enum status status = read_norm(l, name, count, factor, &values);
    if (!status) status = loader_to_device(l->decoder, values, count, out, l->err);
    free(values);
    return status;
}

enum status loader_load_hidden_norm(struct loader *l, const char *module, float factor,
                                    float **out) {
    uint32_t hidden = l->decoder->config->hidden_size;
    const uint64_t shape[1] = {hidden};
    char name[WEIGHT_NAME_BYTES];
    float *weight = NULL, *bias = NULL;
    snprintf(name, sizeof name, "%s.weight", module);
    if (!l->decoder->table->has_norm_bias) return loader_load_norm(l, name, hidden, factor, out);
    enum status status = read_norm(l, name, hidden, factor, &weight);
    snprintf(name, sizeof name, "%s.bias", module);
    if (!status) status = loader_read_floats(l, name, 1, shape, &bias);
    float *both = status ? NULL : malloc(2 * (size_t)hidden * sizeof *both);
    if (!status && !both) status = err_nomem(l->err, name);
    for (uint32_t i = 0; i < hidden && both; i++) {
        both[i] = weight[i];
        both[hidden + i] = factor * bias[i];
    }
    if (!status) status = loader_to_device(l->decoder, both, 2 * (size_t)hidden, out, l->err);
    free(both);
    free(bias);
    free(weight);
    return status;
}

enum status loader_load_head_norm(struct loader *l, uint32_t layer,
                                  const struct head_norm_part *part, float **out) {
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, layer, part->module, ".weight");
    const struct head_runs runs = head_runs_of(part->head_dim, part->rotation);
    uint32_t count = part->count * part->head_dim;
    float *values = NULL;
    float *ordered = malloc(count * sizeof *ordered), *at = ordered;
    if (!ordered) return err_nomem(l->err, name);
    enum status status = read_norm(l, name, part->num_heads * part->head_dim, 1, &values);
    for (uint32_t i = 0; i < part->count * runs.num && values; i++) {
        const float *head = values + (part->start + i / runs.num) * part->head_dim;
        at = copy_run(at, head, runs.runs[i % runs.num], 1);
    }
    if (!status) status = loader_to_device(l->decoder, ordered, count, out, l->err);
    free(values);
    free(ordered);
    return status;
}

// Moves *at behind what it writes: this rank's heads, in the order of their rows.
static enum status read_own_heads(struct loader *l, uint32_t layer, bool is_split,
                                  const struct head_norm_part *part, float **at) {
    const struct head_runs runs = head_runs_of(part->head_dim, part->rotation);
    const uint64_t shape[2] = {part->num_heads, part->head_dim};
    char name[WEIGHT_NAME_BYTES], module[WEIGHT_NAME_BYTES];
    float *values = NULL;
    enum status status = OK;
    layer_weight_name(name, layer, part->module, ".weight");
    if (!is_split) status = loader_read_floats(l, name, 2, shape, &values);
    for (uint32_t i = 0; i < part->num_heads && !status; i++) {
        bool is_own = i >= part->start && i - part->start < part->count;
        if (is_split) { // also other ranks', so that all tensors are used
            snprintf(module, sizeof module, "%s.%u", part->module, i);
            layer_weight_name(name, layer, module, ".weight");
            status = loader_read_floats(l, name, 1, &shape[1], &values);
        }
        const float *head = is_split || !values ? values : values + (size_t)i * part->head_dim;
        for (uint32_t k = 0; k < runs.num && is_own && !status; k++)
            *at = copy_run(*at, head, runs.runs[k], 1);
        if (!is_split) continue;
        free(values);
        values = NULL;
    }
    free(values);
    return status;
}

enum status loader_load_own_head_norms(struct loader *l, uint32_t layer, bool is_split,
                                       const struct head_norm_part *q,
                                       const struct head_norm_part *k, float **out) {
    size_t count = (size_t)(q->count + k->count) * q->head_dim;
    float *both = malloc(count * sizeof *both), *at = both;
    if (!both) return err_nomem(l->err, "norms of heads");
    enum status status = read_own_heads(l, layer, is_split, q, &at);
    if (!status) status = read_own_heads(l, layer, is_split, k, &at);
    if (!status) status = loader_to_device(l->decoder, both, count, out, l->err);
    free(both);
    return status;
}

enum status loader_load_layer_norm(struct loader *l, uint32_t layer, const char *module,
                                   uint32_t count, float **out) {
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, layer, module, ".weight");
    return loader_load_norm(l, name, count, 1, out);
}

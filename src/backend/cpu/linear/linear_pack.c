/* Creating a linear: the checkpoint's rows, of any float type and alignment, are interleaved into
 * blocks of 16 outputs, in parallel over blocks. Rows of a file are read when they are needed, 16
 * at a time, into a buffer that stays in a core's cache. Loading a model is mostly this. It runs at
 * memory speed when the rows are bf16 already. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_memory.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/linear/linear_packing.h"
#include "backend/cpu/ops.h"
#include "base/check.h"
#include "base/thread/first_touch.h"

struct pack_job {
    const struct cpu_kernels *kernels;
    const struct linear_spec *spec;
    struct linear *linear;
    uint32_t blocks_per_item;
    unsigned char *scratch; // [num_threads][scratch_bytes] for rows of files, or NULL
    size_t scratch_bytes;
    struct first_touch touch; // of the linear's weights
    struct thread_pool_fault fault;
};

// Decodes rows [first, first + count) of a part into `scratch`.
static enum status decode_rows(const struct matrix_slice *part, uint32_t first, uint32_t count,
                               unsigned char *scratch, struct source_row *rows, struct err *err) {
    for (uint32_t i = 0; i < count; i++) {
        float *out = (float *)(void *)scratch + (size_t)i * part->cols;
        enum status status = part->reader->read(part->reader, matrix_slice_row(part, first + i),
                                                part->first_col, part->cols, out, err);
        if (status) return status;
        rows[i] = (struct source_row){.data = (const unsigned char *)out, .dtype = DTYPE_F32};
    }
    return OK;
}

// Of a row of codes: how many groups it has, and how many floats of scales.
struct code_row {
    size_t groups, floats;
};

static struct code_row code_row_of(uint32_t cols, struct weight_format format) {
    size_t groups = format.group ? (cols + format.group - 1) / format.group : 1;
    return (struct code_row){groups, format.unit ? (cols + format.unit - 1) / format.unit : groups};
}

// Bytes of such a row: floats, codes and, with units, multiples.
static size_t code_row_bytes(uint32_t cols, struct weight_format format) {
    struct code_row row = code_row_of(cols, format);
    size_t multiples = format.unit ? 2 * row.groups : 0;
    return (2 * row.floats * sizeof(float) + cols + multiples + 7) / 8 * 8;
}

static struct matrix_codes codes_in(unsigned char *scratch, uint32_t cols,
                                    struct weight_format format) {
    struct code_row row = code_row_of(cols, format);
    float *floats = (float *)(void *)scratch;
    struct matrix_codes out = {.codes = scratch + 2 * row.floats * sizeof *floats,
                               .scales = floats,
                               .offsets = format.has_offsets ? floats + row.floats : NULL,
                               .unit = format.unit};
    if (!format.unit) return out;
    out.scale_multiples = (int8_t *)out.codes + cols;
    if (format.has_offsets) out.offset_multiples = out.scale_multiples + row.groups;
    return out;
}

// Reads codes, scales and offsets of rows [first, first + count) of a part into `scratch`.
static enum status read_codes(const struct matrix_slice *part, struct weight_format format,
                              uint32_t first, uint32_t count, unsigned char *scratch,
                              struct source_row *rows, struct err *err) {
    const struct matrix_reader *reader = part->reader;
    struct matrix_codes codes[LANES];
    for (uint32_t i = 0; i < count; i++, scratch += code_row_bytes(part->cols, format)) {
        codes[i] = codes_in(scratch, part->cols, format);
        rows[i] = (struct source_row){.data = codes[i].codes,
                                      .scales = codes[i].scales,
                                      .offsets = codes[i].offsets,
                                      .scale_multiples = codes[i].scale_multiples,
                                      .offset_multiples = codes[i].offset_multiples};
    }
    if (reader->read_code_rows && !part->skipped_rows) {
        return reader->read_code_rows(reader, part->first_row + first, count, part->first_col,
                                      part->cols, format.group, codes, err);
    }
    for (uint32_t i = 0; i < count; i++) {
        enum status status =
            reader->read_codes(reader, matrix_slice_row(part, first + i), part->first_col,
                               part->cols, format.group, &codes[i], err);
        if (status) return status;
    }
    return OK;
}

// Bytes that a row of a part takes in memory while it is packed.
static size_t scratch_row_bytes(const struct matrix_slice *part, struct weight_format format) {
    if (weight_format_is_packed(format)) return code_row_bytes(part->cols, format);
    return part->source.data ? 0 : part->cols * dtype_size(part->dtype);
}

// Finds rows [first, first + count) of a part; reads them into `scratch` if the part is in a file.
static enum status get_rows(const struct matrix_slice *part, uint32_t first, uint32_t count,
                            unsigned char *scratch, struct source_row *rows, struct err *err) {
    if (part->reader) return decode_rows(part, first, count, scratch, rows, err);
    size_t row_bytes = part->cols * dtype_size(part->dtype);
    size_t stride = part->row_stride * dtype_size(part->dtype);
    uint32_t together = stride == row_bytes ? count : 1; // rows read at once
    for (uint32_t i = 0; i < count; i += together) {
        const unsigned char *data = byte_source_get(&part->source, (first + i) * stride,
                                                    together * row_bytes, scratch, err);
        if (!data) return ERR_IO;
        for (uint32_t k = 0; k < together; k++) {
            rows[i + k] = (struct source_row){.data = data + k * row_bytes, .dtype = part->dtype};
        }
        if (!part->source.data) scratch += together * row_bytes;
    }
    return OK;
}

// Finds the rows of a block. `scratch` has space for LANES rows; NULL if all rows are in memory.
static enum status find_rows(const struct pack_job *job, uint32_t block, unsigned char *scratch,
                             struct source_row rows[LANES], struct err *err) {
    uint32_t first = block * LANES; // counted from the part's first row
    const struct matrix_slice *part = job->spec->parts;
    uint32_t parts_left = job->spec->num_parts, lane = 0;
    while (parts_left && lane < LANES) {
        if (first >= part->rows) {
            first -= part->rows;
            part++;
            parts_left--;
            continue;
        }
        uint32_t count = part->rows - first;
        if (count > LANES - lane) count = LANES - lane;
        struct weight_format format = job->linear->format;
        enum status status = weight_format_is_packed(format)
                                 ? read_codes(part, format, first, count, scratch, &rows[lane], err)
                                 : get_rows(part, first, count, scratch, &rows[lane], err);
        if (status) return status;
        if (scratch) scratch += count * scratch_row_bytes(part, format);
        first += count;
        lane += count;
    }
    for (; lane < LANES; lane++) rows[lane] = (struct source_row){.dtype = DTYPE_BF16};
    return OK;
}

static void pack_item(void *arg, uint32_t item, uint32_t thread) {
    struct pack_job *job = arg;
    const struct linear *linear = job->linear;
    uint32_t begin = item * job->blocks_per_item;
    uint32_t left = linear->num_blocks - begin;
    uint32_t count = left < job->blocks_per_item ? left : job->blocks_per_item;
    unsigned char *scratch = job->scratch ? job->scratch + thread * job->scratch_bytes : NULL;
    size_t begin_byte = begin * linear->block_bytes;
    first_touch_range(&job->touch, begin_byte, begin_byte + count * linear->block_bytes);
    for (uint32_t block = begin; block < begin + count; block++) {
        struct source_row rows[LANES];
        struct err err;
        if (atomic_load(&job->fault.is_set)) return;
        enum status status = find_rows(job, block, scratch, rows, &err);
        if (status) {
            thread_pool_fault_set(&job->fault, status, &err);
            return;
        }
        linear->packing->pack_block(job->kernels, linear, block, rows);
    }
}

static enum status pack_weights(struct cpu_backend *cpu, const struct linear_spec *spec,
                                struct linear *linear, struct err *err) {
    struct pack_job job = {
        .kernels = &cpu->kernels,
        .spec = spec,
        .linear = linear,
        .blocks_per_item = thread_pool_grain(cpu->pool, linear->num_blocks, 1),
    };
    for (uint32_t i = 0; i < spec->num_parts; i++) {
        size_t bytes = LANES * scratch_row_bytes(&spec->parts[i], linear->format);
        if (bytes > job.scratch_bytes) job.scratch_bytes = bytes;
    }
    if (job.scratch_bytes) {
        job.scratch = malloc(thread_pool_num_threads(cpu->pool) * job.scratch_bytes);
        if (!job.scratch) return err_nomem(err, "rows of weights");
    }
    size_t bytes = linear->num_blocks * linear->block_bytes;
    enum status status = first_touch_init(&job.touch, linear->weights, bytes, err);
    if (!status) {
        uint32_t num_items = (linear->num_blocks + job.blocks_per_item - 1) / job.blocks_per_item;
        thread_pool_for(cpu->pool, num_items, pack_item, &job);
        status = job.fault.status;
        if (status && err) *err = job.fault.err;
    }
    first_touch_fini(&job.touch);
    free(job.scratch);
    return status;
}

static enum status load_biases(const struct linear_spec *spec, float *start, struct err *err) {
    for (uint32_t i = 0; spec->biases && i < spec->num_parts; i++) {
        const struct matrix_slice *bias = &spec->biases[i];
        size_t element = dtype_size(bias->dtype);
        for (uint32_t begin = 0; begin < bias->cols; begin += SOURCE_LOAD_MAX) {
            unsigned char scratch[SOURCE_LOAD_MAX * sizeof(float)];
            uint32_t left = bias->cols - begin,
                     count = left < SOURCE_LOAD_MAX ? left : SOURCE_LOAD_MAX;
            struct source_row row = {.dtype = bias->dtype};
            row.data =
                byte_source_get(&bias->source, begin * element, count * element, scratch, err);
            if (!row.data) return ERR_IO;
            linear_source_load(&row, 0, count, start + begin);
        }
        start += bias->cols;
    }
    return OK;
}

static bool is_weight_dtype(enum dtype dtype) {
    return dtype == DTYPE_BF16 || dtype == DTYPE_F16 || dtype == DTYPE_F32;
}

static bool has_codes(const struct matrix_slice *part, struct weight_format format) {
    if (!part->reader) return false;
    const struct matrix_form *form = &part->reader->form;
    bool has_units = !format.unit || (form->unit && form->shift == format.shift);
    return form->code == format.code && form->has_offsets == format.has_offsets && has_units;
}

// Adds up the outputs of the parts. Parts or biases that do not match are an error.
static enum status check_spec(const struct linear_spec *spec, uint32_t *out, uint32_t *in,
                              struct err *err) {
    uint64_t rows = 0;
    if (spec->num_parts == 0) return err_set(err, ERR_INVALID, "a linear layer without weights");
    *in = spec->parts[0].cols;
    for (uint32_t i = 0; i < spec->num_parts; i++) {
        const struct matrix_slice *part = &spec->parts[i];
        if (!is_weight_dtype(part->dtype) || part->cols != *in) {
            return err_set(err, ERR_INVALID,
                           "weights are %s [%u][%u], want BF16, F16 or F32 [..][%u]",
                           dtype_name(part->dtype), part->rows, part->cols, *in);
        }
        rows += part->rows;
        if (weight_format_is_packed(spec->format) && !has_codes(part, spec->format)) {
            return err_set(err, ERR_INVALID, "weights do not have the codes of the linear layer");
        }
        if (!spec->biases) continue;
        const struct matrix_slice *bias = &spec->biases[i];
        if (!is_weight_dtype(bias->dtype) || bias->rows != 1 || bias->cols != part->rows) {
            return err_set(err, ERR_INVALID, "a bias is %s [%u][%u], want BF16, F16 or F32 [1][%u]",
                           dtype_name(bias->dtype), bias->rows, bias->cols, part->rows);
        }
    }
    // At most half the range of uint32_t, so that rounding up and adding block sizes cannot
    // overflow.
    if (rows == 0 || *in == 0 || rows > INT32_MAX || *in > INT32_MAX) {
        return err_set(err, ERR_INVALID,
                       "a linear layer of %llu outputs and %u inputs, want 1 to %d of each",
                       (unsigned long long)rows, *in, INT32_MAX);
    }
    *out = (uint32_t)rows;
    return OK;
}

static struct weight_format stored_format(const struct backend *backend,
                                          struct weight_format format) {
    if (format.bits) return format;
    return (struct weight_format){.bits = backend->weight_dtype == DTYPE_F32 ? 32 : 16};
}

bool cpu_has_format(const struct backend *backend, struct weight_format format) {
    return linear_packing_of(stored_format(backend, format)) != NULL;
}

// `in` padded to whole chunks of x; of float32 weights to an even number.
static uint32_t depth_of(struct weight_format format, uint32_t in) {
    uint32_t multiple = format.bits == 32                  ? 2
                        : !weight_format_has_bytes(format) ? CHUNK_BYTES / 2
                                                           : CHUNK_BYTES;
    return (in + multiple - 1) / multiple * multiple;
}

// The numbers of a block, and a byte for the s of each group.
static size_t block_bytes_of(struct weight_format format, uint32_t in) {
    size_t depth = depth_of(format, in), bytes = depth * LANES * format.bits / 8;
    if (weight_format_is_packed(format)) {
        struct packed_shape shape = packed_shape_of(format);
        return packed_block_bytes(&shape, (uint32_t)depth / PACKED_CHUNK);
    }
    if (format.group) bytes += depth / format.group * LANES;
    return (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
}

// Bytes per output beside the weights: the bias and, where x is bytes, a scale and a sum.
static size_t lane_bytes_of(struct weight_format format) {
    return weight_format_has_bytes(format) ? 3 * sizeof(float) : sizeof(float);
}

size_t cpu_linear_bytes(const struct backend *backend, uint32_t out, uint32_t in, bool bias,
                        struct weight_format format) {
    (void)bias; // there is always memory for it
    format = stored_format(backend, format);
    size_t num_blocks = out / LANES + (out % LANES != 0);
    return num_blocks * (block_bytes_of(format, in) + LANES * lane_bytes_of(format));
}

static enum status grow_scratch(struct cpu_backend *cpu, uint32_t depth, struct err *err) {
    if (depth <= cpu->linear_scratch_in) return OK;
    void *scratch = cpu_memory_alloc((size_t)depth * LINEAR_SCRATCH_BYTES);
    if (!cpu->linear_x_scale) {
        cpu->linear_x_scale = cpu_memory_alloc(LINEAR_SCRATCH_BYTES * sizeof(float));
    }
    if (!cpu->linear_sums) {
        size_t threads = thread_pool_num_threads(cpu->pool);
        cpu->linear_sums = cpu_memory_alloc(threads * LINEAR_SUMS * sizeof(float));
    }
    if (!scratch || !cpu->linear_x_scale || !cpu->linear_sums) {
        cpu_memory_free(scratch);
        return err_nomem(err, "scratch memory of linear layers");
    }
    cpu_memory_free(cpu->linear_scratch);
    cpu->linear_scratch = scratch;
    cpu->linear_scratch_in = depth;
    return OK;
}

void cpu_linear_destroy(struct backend *backend, struct linear *linear) {
    (void)backend;
    if (!linear) return;
    cpu_memory_free(linear->weights);
    cpu_memory_free(linear->start);
    cpu_memory_free(linear->scale);
    cpu_memory_free(linear->sum128);
    free(linear);
}

static enum status take_memory(const struct cpu_backend *cpu, struct linear *linear,
                               struct err *err) {
    bool is_bytes = weight_format_has_bytes(linear->format);
    if (is_bytes && linear->depth > QUANTIZED_DEPTH_MAX) {
        return err_set(err, ERR_UNSUPPORTED,
                       "a quantized linear layer of %u inputs, want at most %d", linear->in,
                       QUANTIZED_DEPTH_MAX);
    }
    size_t bytes = 0, lanes = (size_t)linear->num_blocks * LANES;
    if (__builtin_mul_overflow(linear->num_blocks, linear->block_bytes, &bytes)) bytes = 0;
    if (bytes) linear->weights = cpu_memory_alloc_on(bytes, cpu->nodes);
    linear->start = cpu_memory_alloc(lanes * sizeof *linear->start);
    bool ok = linear->weights && linear->start;
    if (ok && is_bytes) {
        linear->scale = cpu_memory_alloc(lanes * sizeof *linear->scale);
        linear->sum128 = cpu_memory_alloc(lanes * sizeof *linear->sum128);
        ok = linear->scale && linear->sum128;
    }
    if (ok) return OK;
    return err_set(err, ERR_NOMEM, "out of memory: weights [%u][%u] of %zu bytes", linear->out,
                   linear->in, bytes);
}

enum status cpu_linear_create(struct backend *backend, const struct linear_spec *spec,
                              struct linear **out, struct err *err) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    uint32_t rows = 0, cols = 0;
    enum status status = check_spec(spec, &rows, &cols, err);
    if (status != OK) return status;
    struct linear *linear = calloc(1, sizeof *linear);
    if (!linear) return err_nomem(err, "linear layer");
    *linear = (struct linear){.out = rows,
                              .in = cols,
                              .num_blocks = rows / LANES + (rows % LANES != 0),
                              .format = stored_format(backend, spec->format)};
    linear->packing = linear_packing_of(linear->format);
    CHECK(linear->packing, "bits=%u", linear->format.bits);
    linear->depth = depth_of(linear->format, cols);
    linear->block_bytes = block_bytes_of(linear->format, cols);
    linear->packed = packed_shape_of(linear->format);
    linear->rounds = linear_is_pairs(cpu, linear);
    status = take_memory(cpu, linear, err);
    if (status != OK) goto fail;
    status = grow_scratch(cpu, linear->depth, err);
    if (status != OK) goto fail;
    if ((status = load_biases(spec, linear->start, err))) goto fail;
    if ((status = pack_weights(cpu, spec, linear, err))) goto fail;
    *out = linear;
    return OK;

fail:
    cpu_linear_destroy(backend, linear);
    return status;
}

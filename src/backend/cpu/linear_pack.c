/* Creating a linear: the checkpoint's rows, of whichever float type and alignment, interleaved into
 * blocks of 16 outputs, in parallel over blocks. Loading a model is mostly this: it runs at memory
 * speed when the rows are bf16 already. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_memory.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"

// Elements of a row that are converted at a time.
enum { CONVERT_MAX = 256 };

struct source_row {
    const unsigned char *data; // NULL: padding, all zeros
    enum dtype dtype;
};

struct pack_job {
    const struct cpu_kernels *kernels;
    const struct linear_spec *spec;
    struct linear *linear;
    uint32_t blocks_per_item;
};

// Without branches, so that the compiler can do several at once (f16_to_f32 is for single values):
// scaling by 2^112 moves the exponent's bias and makes subnormals exact; only inf and NaN differ.
static float f16_convert(uint16_t bits) {
    uint32_t magnitude = (uint32_t)(bits & 0x7fffu) << 13;
    float value;
    memcpy(&value, &magnitude, sizeof value);
    value *= 0x1p112f;
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    wide |= magnitude >= 0x0f800000u ? 0x7f800000u : 0;
    wide |= (uint32_t)(bits & 0x8000u) << 16;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static void load_f32(const struct source_row *row, size_t begin, size_t count, float *out) {
    uint16_t narrow[CONVERT_MAX];
    switch (row->data ? row->dtype : DTYPE_NONE) {
    case DTYPE_F32:
        memcpy(out, row->data + begin * 4, count * 4);
        break;
    case DTYPE_BF16:
        memcpy(narrow, row->data + begin * 2, count * 2);
        for (size_t i = 0; i < count; i++) out[i] = bf16_to_f32(narrow[i]);
        break;
    case DTYPE_F16:
        memcpy(narrow, row->data + begin * 2, count * 2);
        for (size_t i = 0; i < count; i++) out[i] = f16_convert(narrow[i]);
        break;
    default:
        memset(out, 0, count * sizeof *out);
    }
}

static void load_bf16(const struct source_row *row, size_t begin, size_t count, uint16_t *out) {
    if (row->data && row->dtype == DTYPE_BF16) {
        memcpy(out, row->data + begin * 2, count * 2);
        return;
    }
    float wide[CONVERT_MAX];
    load_f32(row, begin, count, wide);
    for (size_t i = 0; i < count; i++) out[i] = f32_to_bf16(wide[i]);
}

static void find_rows(const struct pack_job *job, uint32_t block, struct source_row rows[LANES]) {
    uint32_t first = block * LANES; // outputs before the part at hand are subtracted on the way
    const struct matrix_slice *part = job->spec->parts;
    uint32_t parts_left = job->spec->num_parts;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        while (parts_left && first + lane >= part->rows) {
            first -= part->rows; // wraps below 0 once a part ends inside the block; first + lane is
                // right
            part++;
            parts_left--;
        }
        if (!parts_left) {
            rows[lane] = (struct source_row){NULL, DTYPE_BF16};
            continue;
        }
        size_t offset = (size_t)(first + lane) * part->row_stride * dtype_size(part->dtype);
        rows[lane] = (struct source_row){(const unsigned char *)part->data + offset, part->dtype};
    }
}

// Pairs one by one: what the fast kernel's multiples of 32 leave over.
static void pack_rest(const struct source_row rows[LANES], size_t begin, size_t in, uint16_t *out) {
    for (uint32_t lane = 0; lane < LANES; lane++) {
        for (size_t k = begin; k < in; k++) {
            load_bf16(&rows[lane], k, 1, out + (k / 2 * LANES + lane) * 2 + k % 2);
        }
    }
}

static void pack_block_bf16(const struct pack_job *job, const struct source_row rows[LANES],
                            uint16_t *out) {
    size_t in = job->linear->in, full = in / 32 * 32;
    const unsigned char *direct[LANES];
    bool all_direct = true;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        direct[lane] = rows[lane].data;
        all_direct = all_direct && rows[lane].data && rows[lane].dtype == DTYPE_BF16;
    }
    if (all_direct) {
        job->kernels->pack_bf16(direct, full, out);
    } else {
        uint16_t converted[LANES][CONVERT_MAX];
        for (uint32_t lane = 0; lane < LANES; lane++) direct[lane] = (void *)converted[lane];
        for (size_t k = 0; k < full; k += CONVERT_MAX) {
            size_t count = full - k < CONVERT_MAX ? full - k : CONVERT_MAX;
            for (uint32_t lane = 0; lane < LANES; lane++) {
                load_bf16(&rows[lane], k, count, converted[lane]);
            }
            job->kernels->pack_bf16(direct, count, out + k * LANES);
        }
    }
    pack_rest(rows, full, in, out);
}

static void pack_block_f32(const struct pack_job *job, const struct source_row rows[LANES],
                           float *out) {
    size_t in = job->linear->in;
    for (size_t k = 0; k < in; k += CONVERT_MAX) {
        size_t count = in - k < CONVERT_MAX ? in - k : CONVERT_MAX;
        for (uint32_t lane = 0; lane < LANES; lane++) {
            float wide[CONVERT_MAX];
            load_f32(&rows[lane], k, count, wide);
            for (size_t i = 0; i < count; i++) out[(k + i) * LANES + lane] = wide[i];
        }
    }
}

static void pack_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct pack_job *job = arg;
    const struct linear *linear = job->linear;
    uint32_t begin = item * job->blocks_per_item;
    uint32_t left = linear->num_blocks - begin;
    uint32_t count = left < job->blocks_per_item ? left : job->blocks_per_item;
    for (uint32_t block = begin; block < begin + count; block++) {
        struct source_row rows[LANES];
        find_rows(job, block, rows);
        size_t offset = (size_t)block * linear->depth * LANES;
        if (linear->dtype == DTYPE_BF16) {
            pack_block_bf16(job, rows, (uint16_t *)linear->weights + offset);
        } else {
            pack_block_f32(job, rows, (float *)linear->weights + offset);
        }
    }
}

static void load_biases(const struct linear_spec *spec, float *start) {
    if (!spec->biases) return;
    for (uint32_t i = 0; i < spec->num_parts; i++) {
        const struct matrix_slice *bias = &spec->biases[i];
        struct source_row row = {bias->data, bias->dtype};
        for (uint32_t begin = 0; begin < bias->cols; begin += CONVERT_MAX) {
            uint32_t left = bias->cols - begin;
            load_f32(&row, begin, left < CONVERT_MAX ? left : CONVERT_MAX, start + begin);
        }
        start += bias->cols;
    }
}

static bool is_weight_dtype(enum dtype dtype) {
    return dtype == DTYPE_BF16 || dtype == DTYPE_F16 || dtype == DTYPE_F32;
}

// Adds up the outputs and refuses what does not fit together.
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
        if (!spec->biases) continue;
        const struct matrix_slice *bias = &spec->biases[i];
        if (!is_weight_dtype(bias->dtype) || bias->rows != 1 || bias->cols != part->rows) {
            return err_set(err, ERR_INVALID, "a bias is %s [%u][%u], want BF16, F16 or F32 [1][%u]",
                           dtype_name(bias->dtype), bias->rows, bias->cols, part->rows);
        }
    }
    // Half the range, so that rounding up and adding block sizes cannot overflow.
    if (rows == 0 || *in == 0 || rows > INT32_MAX || *in > INT32_MAX) {
        return err_set(err, ERR_INVALID, "a linear layer of %llu outputs and %u inputs",
                       (unsigned long long)rows, *in);
    }
    *out = (uint32_t)rows;
    return OK;
}

// Bytes of the packed weights; 0 when they do not fit a size_t.
static size_t weight_bytes(uint32_t num_blocks, uint32_t depth, enum dtype dtype) {
    size_t bytes;
    if (__builtin_mul_overflow((size_t)num_blocks * LANES, (size_t)depth, &bytes)) return 0;
    return __builtin_mul_overflow(bytes, dtype_size(dtype), &bytes) ? 0 : bytes;
}

size_t cpu_linear_bytes(const struct backend *backend, uint32_t out, uint32_t in, bool bias) {
    (void)bias; // there is always a row for it
    uint32_t num_blocks = out / LANES + (out % LANES != 0);
    return weight_bytes(num_blocks, in + in % 2, backend->weight_dtype) +
           (size_t)num_blocks * LANES * sizeof(float);
}

static enum status grow_scratch(struct cpu_backend *cpu, uint32_t depth, struct err *err) {
    if (depth <= cpu->linear_scratch_in) return OK;
    float *scratch = cpu_memory_alloc((size_t)depth * LINEAR_ROWS_MAX * sizeof *scratch);
    if (!scratch) return err_nomem(err, "scratch memory of linear layers");
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
    free(linear);
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
                              .depth = cols + cols % 2,
                              .dtype = backend->weight_dtype};
    size_t bytes = weight_bytes(linear->num_blocks, linear->depth, linear->dtype);
    if (bytes) linear->weights = cpu_memory_alloc(bytes);
    linear->start = cpu_memory_alloc((size_t)linear->num_blocks * LANES * sizeof(float));
    if (!linear->weights || !linear->start) {
        status = err_set(err, ERR_NOMEM, "out of memory: weights [%u][%u] of %zu bytes", rows, cols,
                         bytes);
        goto fail;
    }
    status = grow_scratch(cpu, linear->depth, err);
    if (status != OK) goto fail;
    load_biases(spec, linear->start);
    struct pack_job job = {
        .kernels = cpu->kernels,
        .spec = spec,
        .linear = linear,
        .blocks_per_item = thread_pool_grain(cpu->pool, linear->num_blocks, 1),
    };
    uint32_t num_items = (linear->num_blocks + job.blocks_per_item - 1) / job.blocks_per_item;
    thread_pool_for(cpu->pool, num_items, pack_item, &job);
    *out = linear;
    return OK;

fail:
    cpu_linear_destroy(backend, linear);
    return status;
}

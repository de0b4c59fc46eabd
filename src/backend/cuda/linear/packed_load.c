#include "backend/cuda/linear/packed_load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/linear/packed.h"
#include "backend/cuda/staging.h"
#include "base/thread/thread_pool.h"

// The largest group that kernels have for the code and that divides the checkpoint's. 0: whole
// rows.
static uint32_t kept_group(struct weight_format format) {
    uint32_t group = format.group ? format.group : CUDA_PACKED_BLOCK, most = CUDA_PACKED_BLOCK;
    bool is_8_bit = format.code == WEIGHT_CODE_E4M3 || format.code == WEIGHT_CODE_INT8;
    if (!format.group && is_8_bit && !format.has_offsets) return 0;
    if (format.code == WEIGHT_CODE_E2M1) most = CUDA_PACKED_MINIMA_GROUP;
    if (format.code == WEIGHT_CODE_INT8 && (format.has_offsets || group < CUDA_PACKED_BLOCK)) {
        most = CUDA_PACKED_MINIMA_GROUP;
    }
    return group < most ? group : most;
}

struct weight_format cuda_packed_kept(struct weight_format format, uint32_t out, uint32_t in) {
    if (!weight_format_is_packed(format)) return format;
    if (out % CUDA_PACKED_TILE || in % CUDA_PACKED_BLOCK) return WEIGHTS_NATIVE;
    if (format.code == WEIGHT_CODE_IQ4 || format.code == WEIGHT_CODE_IQ3 ||
        format.code == WEIGHT_CODE_IQ2) {
        format.code = WEIGHT_CODE_INT8; // their levels are integers
    }
    if (format.code == WEIGHT_CODE_ODD) { // (2 code - 15) scale = (code - 8) 2 scale + scale
        format.code = WEIGHT_CODE_INT4;
        format.has_offsets = true;
        bool is_large = !format.group || format.group > CUDA_PACKED_MINIMA_GROUP;
        if (is_large) format.group = CUDA_PACKED_MINIMA_GROUP;
    }
    format.bits = weight_code_bits(format.code);
    format.group = kept_group(format);
    return format;
}

static uint32_t group_bytes_of(struct weight_format format) {
    return cuda_packed_group_bytes(format.code, format.group, format.has_offsets);
}

// Of the codes' columns; the last group may have fewer.
static uint32_t groups_of(struct weight_format format, uint32_t in) {
    return format.group ? (in + format.group - 1) / format.group : 1;
}

// Most bytes that the scales take.
static size_t scales_bytes(struct weight_format format, uint32_t out, uint32_t in) {
    return (size_t)out * groups_of(format, in) * group_bytes_of(format);
}

size_t cuda_packed_bytes(struct weight_format format, uint32_t out, uint32_t in) {
    return (size_t)out * in * format.bits / 8 + scales_bytes(format, out, in);
}

size_t cuda_packed_scratch_bytes(uint32_t out, uint32_t in, struct weight_format format) {
    bool is_packed = weight_format_is_packed(cuda_packed_kept(format, out, in));
    return is_packed ? (size_t)out * in * sizeof(uint16_t) : 0;
}

// Scales and offsets as the checkpoint has them. rows.group may be 0 where the linear's is not.
struct host_scales {
    struct cuda_code_rows rows;
    bool is_odd; // of WEIGHT_CODE_ODD, which the device has as integers with offsets
    void *ordered; // in the device's order
};

static void scales_free(struct host_scales *s) {
    free(s->rows.scales);
    free(s->rows.offsets);
    free(s->ordered);
}

static enum status scales_alloc(struct host_scales *s, const struct linear *linear,
                                const struct linear_spec *spec, struct err *err) {
    struct weight_format stored = spec->format;
    uint32_t groups = groups_of(stored, spec->parts[0].cols);
    size_t count = (size_t)linear->out * groups;
    *s = (struct host_scales){
        .rows = {.group = stored.group,
                 .num_groups = groups,
                 .row_codes = linear->in,
                 .scales = malloc(count * sizeof(float)),
                 .offsets = stored.has_offsets ? malloc(count * sizeof(float)) : NULL},
        .is_odd = stored.code == WEIGHT_CODE_ODD,
        .ordered = malloc(scales_bytes(linear->format, linear->out, linear->in))};
    if (s->rows.scales && s->ordered && (s->rows.offsets || !stored.has_offsets)) return OK;
    return err_nomem(err, "scales of weights");
}

// The end of the parts from `first` on that have whole tiles together, and their rows.
static uint32_t end_of_run(const struct linear_spec *spec, uint32_t first, uint32_t *rows) {
    *rows = 0;
    do {
        *rows += spec->parts[first++].rows;
    } while (first < spec->num_parts && *rows % CUDA_PACKED_TILE);
    return first;
}

static uint32_t most_rows_of_run(const struct linear_spec *spec) {
    uint32_t most = 0, rows;
    for (uint32_t i = 0; i < spec->num_parts;) {
        i = end_of_run(spec, i, &rows);
        if (rows > most) most = rows;
    }
    return most;
}

// Copies the codes of the parts first .. end to `raw`, a byte each, and moves `rows` on.
static enum status read_parts(struct cuda_backend *cuda, const struct linear_spec *spec,
                              uint32_t first, uint32_t end, uint8_t *raw,
                              struct cuda_code_rows *rows, struct err *err) {
    for (uint32_t i = first; i < end; i++) {
        const struct matrix_slice *part = &spec->parts[i];
        enum status status = cuda_copy_codes(cuda, raw, part, rows, err);
        if (status) return status;
        size_t count = (size_t)part->rows * rows->num_groups;
        raw += (size_t)part->rows * rows->row_codes;
        rows->scales += count;
        if (rows->offsets) rows->offsets += count;
    }
    return OK;
}

// Packs the codes of all parts, and reads their scales. A few parts at a time: linears of many
// experts are large.
static enum status load_codes(struct cuda_backend *cuda, const struct linear_spec *spec,
                              struct linear *linear, const struct host_scales *scales,
                              struct err *err) {
    struct cuda_code_rows rows = scales->rows;
    void *raw = NULL;
    enum status status = OK;
    size_t row_bytes = (size_t)linear->in * linear->format.bits / 8;
    char *codes;
    CU(cudaMalloc(&raw, (size_t)most_rows_of_run(spec) * linear->in));
    CU(cudaMalloc(&linear->weight, linear->out * row_bytes));
    codes = linear->weight;
    for (uint32_t first = 0; first < spec->num_parts;) {
        uint32_t num_rows, end = end_of_run(spec, first, &num_rows);
        status = read_parts(cuda, spec, first, end, raw, &rows, err);
        if (status) goto fail;
        cuda_packed_pack_launch(codes, raw, num_rows, linear->in, spec->format.code, cuda->stream);
        CU(cudaStreamSynchronize(cuda->stream)); // the packing reads `raw` until then
        codes += num_rows * row_bytes;
        first = end;
    }
fail:
    cudaFree(raw);
    return status;
}

// The word of a 4-bit group: value = (code - 8) * scale + offset = (code - zero) * scale. The scale
// and the offset may each have been rounded, where a factor of the model is a part of them.
static enum status zero_word(uint32_t *word, float scale, float offset, struct err *err) {
    uint32_t bits;
    float zero = scale == 0 ? 8 : 8 - roundf(offset / scale);
    float off = fabsf((8 - zero) * scale - offset);
    if (!(zero >= 0 && zero <= 255) || !(off <= fabsf(offset) * 0x1p-20f)) {
        return err_set(err, ERR_UNSUPPORTED,
                       "device cuda: an offset of 4-bit weights is no multiple of its scale");
    }
    memcpy(&bits, &scale, sizeof bits);
    *word = ((bits + 0x80u) & 0xffffff00u) | (uint32_t)zero;
    return OK;
}

// The byte of a scale that is a power of 2.
static enum status exponent_byte(uint8_t *byte, float scale, struct err *err) {
    const uint32_t least = 0x00400000; // 2^-127, a subnormal number
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    bool is_power = !(bits & 0x807fffffu) && bits && bits >> 23 != 255;
    if (!is_power && bits != least) {
        return err_set(err, ERR_UNSUPPORTED,
                       "device cuda: a scale of E2M1 weights in groups of 32 is no power of 2");
    }
    *byte = (uint8_t)(bits >> 23);
    return OK;
}

// Writes a group's scale and offset.
static enum status write_group(char *to, struct weight_format format, float scale, float offset,
                               struct err *err) {
    if (cuda_packed_has_exponents(format.code, format.group)) {
        return exponent_byte((uint8_t *)to, scale, err);
    }
    if (cuda_packed_has_zeros(format.code, format.group, format.has_offsets)) {
        uint32_t word = 0;
        enum status status = zero_word(&word, scale, offset, err);
        if (!status) memcpy(to, &word, sizeof word);
        return status;
    }
    memcpy(to, &scale, sizeof scale);
    if (format.has_offsets) memcpy(to + sizeof scale, &offset, sizeof offset);
    return OK;
}

// Brings the scales of groups into the device's order, by all threads.
struct order {
    const struct host_scales *scales;
    struct weight_format format;
    uint32_t out, groups; // of the linear: rows, groups of a row
    uint32_t per_span; // groups of a row that follow each other in the device's order
    uint32_t per_stored; // groups here for one of the checkpoint
    struct thread_pool_fault fault;
};

// Groups beyond the checkpoint's columns have any scale: their x is 0.
static enum status order_row(const struct order *o, uint32_t row, struct err *err) {
    const struct cuda_code_rows *from = &o->scales->rows;
    size_t bytes = group_bytes_of(o->format), first = (size_t)row * from->num_groups;
    size_t tile = row / CUDA_PACKED_TILE, in_tile = row % CUDA_PACKED_TILE;
    size_t at = (tile * CUDA_PACKED_TILE * o->groups + in_tile * o->per_span) * bytes;
    char *to = (char *)o->scales->ordered + at;
    enum status status = OK;
    for (uint32_t g = 0, stored = 0, same = 0; g < o->groups && !status; g++) {
        bool is_there = stored < from->num_groups;
        float scale = is_there ? from->scales[first + stored] : 1;
        float offset = is_there && from->offsets ? from->offsets[first + stored] : 0;
        if (o->scales->is_odd) {
            offset += scale;
            scale *= 2;
        }
        status = write_group(to, o->format, scale, offset, err);
        to += bytes;
        if ((g + 1) % o->per_span == 0) to += (CUDA_PACKED_TILE - 1) * o->per_span * bytes;
        if (++same == o->per_stored) same = 0, stored++;
    }
    return status;
}

enum { ORDERED_ROWS = 32 }; // of an item

static void order_item(void *arg, uint32_t item, uint32_t thread) {
    struct order *o = arg;
    (void)thread;
    if (atomic_load(&o->fault.is_set)) return;
    uint32_t first = item * ORDERED_ROWS, end = first + ORDERED_ROWS;
    for (uint32_t row = first; row < end && row < o->out; row++) {
        struct err err;
        enum status status = order_row(o, row, &err);
        if (!status) continue;
        thread_pool_fault_set(&o->fault, status, &err);
        return;
    }
}

static enum status order_groups(struct cuda_backend *cuda, const struct host_scales *s,
                                const struct linear *linear, struct err *err) {
    struct weight_format format = linear->format;
    uint32_t groups = linear->in / format.group, step = cuda_packed_step(format.bits);
    struct order o = {.scales = s,
                      .format = format,
                      .out = linear->out,
                      .groups = groups,
                      .per_span = format.group < step ? step / format.group : 1,
                      .per_stored = s->rows.group ? s->rows.group / format.group : groups};
    uint32_t items = (linear->out + ORDERED_ROWS - 1) / ORDERED_ROWS;
    cuda_staging_for(cuda->staging, items, order_item, &o);
    if (o.fault.status && err) *err = o.fault.err;
    return o.fault.status;
}

// Whether outputs n i to n i + n - 1 have the same scales.
static bool are_shared(const struct host_scales *s, const struct linear *linear, uint32_t n) {
    size_t row_bytes = s->rows.num_groups * sizeof(float);
    for (uint32_t row = 0; row < linear->out; row++) {
        const float *first = s->rows.scales + (size_t)(row - row % n) * s->rows.num_groups;
        const float *own = s->rows.scales + (size_t)row * s->rows.num_groups;
        if (memcmp(own, first, row_bytes) != 0) return false;
    }
    return true;
}

// Of groups that n outputs have one of, `stride` apart. Returns their bytes.
static size_t order_shared(struct host_scales *s, const struct linear *linear, uint32_t n,
                           uint32_t stride) {
    uint32_t groups = s->rows.num_groups, count = (linear->out + n - 1) / n;
    float *to = s->ordered;
    for (uint32_t i = 0; i < count; i++) {
        const float *from = s->rows.scales + (size_t)i * n * groups;
        for (uint32_t g = 0; g < stride; g++) *to++ = g < groups ? from[g] : 0;
    }
    return (size_t)count * stride * sizeof(float);
}

static enum status upload(const struct host_scales *s, size_t bytes, void **dev, struct err *err) {
    enum status status = OK;
    CU(cudaMalloc(dev, bytes));
    CU(cudaMemcpy(*dev, s->ordered, bytes, cudaMemcpyHostToDevice));
fail:
    return status;
}

// The scales of blocks of 128 x 128, if they have one each and inputs are rounded.
static enum status upload_block_scales(struct host_scales *s, struct linear *linear,
                                       struct err *err) {
    if (!linear->shares_scales || !linear->format.rounds_inputs) return OK;
    if (!are_shared(s, linear, CUDA_PACKED_BLOCK)) return OK;
    uint32_t stride = (s->rows.num_groups + 3) / 4 * 4; // as cuBLASLt reads them
    size_t bytes = order_shared(s, linear, CUDA_PACKED_BLOCK, stride);
    return upload(s, bytes, &linear->block_scales, err);
}

static enum status upload_scales(struct cuda_backend *cuda, struct host_scales *s,
                                 struct linear *linear, struct err *err) {
    struct weight_format format = linear->format;
    size_t bytes = scales_bytes(format, linear->out, linear->in);
    linear->shares_scales = format.bits == 8 && format.group == CUDA_PACKED_BLOCK &&
                            are_shared(s, linear, CUDA_PACKED_TILE);
    enum status status = upload_block_scales(s, linear, err);
    if (!format.group) {
        memcpy(s->ordered, s->rows.scales, bytes);
    } else if (linear->shares_scales) {
        bytes = order_shared(s, linear, CUDA_PACKED_TILE, s->rows.num_groups);
    } else if (!status) {
        status = order_groups(cuda, s, linear, err);
    }
    return status ? status : upload(s, bytes, &linear->scales, err);
}

enum status cuda_packed_load(struct cuda_backend *cuda, const struct linear_spec *spec,
                             struct linear *linear, struct err *err) {
    struct host_scales scales = {0};
    enum status status = scales_alloc(&scales, linear, spec, err);
    if (!status) status = load_codes(cuda, spec, linear, &scales, err);
    if (!status) status = upload_scales(cuda, &scales, linear, err);
    scales_free(&scales);
    return status;
}

enum status cuda_packed_grow_unpacked(struct cuda_backend *cuda, const struct linear *linear,
                                      struct err *err) {
    size_t bytes = cuda_packed_scratch_bytes(linear->out, linear->in, linear->format);
    enum status status = OK;
    if (bytes <= cuda->unpacked_bytes) return OK;
    CU(cudaStreamSynchronize(cuda->stream));
    cudaFree(cuda->unpacked);
    cuda->unpacked = NULL;
    cuda->unpacked_bytes = 0;
    CU(cudaMalloc(&cuda->unpacked, bytes));
    cuda->unpacked_bytes = bytes;
fail:
    return status;
}

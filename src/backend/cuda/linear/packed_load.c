#include "backend/cuda/linear/packed_load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/linear/packed.h"
#include "backend/cuda/staging.h"

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
    if (format.code == WEIGHT_CODE_IQ4) format.code = WEIGHT_CODE_INT8; // its levels are integers
    format.bits = weight_code_bits(format.code);
    format.group = kept_group(format);
    return format;
}

static uint32_t words_of(struct weight_format format) {
    return cuda_packed_words(format.code, format.group, format.has_offsets);
}

// Scales of the checkpoint.
static size_t num_scales(struct weight_format format, uint32_t out, uint32_t in) {
    return (size_t)out * (format.group ? in / format.group : 1);
}

size_t cuda_packed_bytes(struct weight_format format, uint32_t out, uint32_t in) {
    return (size_t)out * in * format.bits / 8 +
           num_scales(format, out, in) * words_of(format) * sizeof(float);
}

size_t cuda_packed_scratch_bytes(uint32_t out, uint32_t in, struct weight_format format) {
    bool is_packed = weight_format_is_packed(cuda_packed_kept(format, out, in));
    return is_packed ? (size_t)out * in * sizeof(uint16_t) : 0;
}

// What is read of the checkpoint. Its group may be 0 where the linear's is not.
struct host_scales {
    struct cuda_code_rows rows;
    uint32_t *words; // in the device's order
};

static void scales_free(struct host_scales *s) {
    free(s->rows.scales);
    free(s->rows.offsets);
    free(s->words);
}

static enum status scales_alloc(struct host_scales *s, const struct linear *linear,
                                struct weight_format stored, struct err *err) {
    size_t count = num_scales(stored, linear->out, linear->in);
    *s = (struct host_scales){
        .rows = {.group = stored.group,
                 .num_groups = stored.group ? linear->in / stored.group : 1,
                 .scales = malloc(count * sizeof(float)),
                 .offsets = stored.has_offsets ? malloc(count * sizeof(float)) : NULL},
        .words = malloc(num_scales(linear->format, linear->out, linear->in) *
                        words_of(linear->format) * sizeof(uint32_t))};
    if (s->rows.scales && s->words && (s->rows.offsets || !stored.has_offsets)) return OK;
    return err_nomem(err, "scales of weights");
}

// Reads all parts' codes to `raw`, a byte each.
static enum status read_parts(struct cuda_backend *cuda, const struct linear_spec *spec,
                              const struct linear *linear, uint8_t *raw,
                              const struct cuda_code_rows *all, struct err *err) {
    struct cuda_code_rows rows = *all;
    enum status status = OK;
    for (uint32_t i = 0; i < spec->num_parts && !status; i++) {
        const struct matrix_slice *part = &spec->parts[i];
        status = cuda_copy_codes(cuda, raw, part, &rows, err);
        size_t count = (size_t)part->rows * rows.num_groups;
        raw += (size_t)part->rows * linear->in;
        rows.scales += count;
        if (rows.offsets) rows.offsets += count;
    }
    return status;
}

// The word of a 4-bit group: value = (code - 8) * scale + offset = (code - zero) * scale.
static enum status zero_word(uint32_t *word, float scale, float offset, struct err *err) {
    uint32_t bits;
    float zero = scale == 0 ? 8 : 8 - roundf(offset / scale);
    if (!(zero >= 0 && zero <= 255) || (8 - zero) * scale != offset) {
        return err_set(err, ERR_UNSUPPORTED,
                       "device cuda: an offset of 4-bit weights is no multiple of its scale");
    }
    memcpy(&bits, &scale, sizeof bits);
    *word = ((bits + 0x80u) & 0xffffff00u) | (uint32_t)zero;
    return OK;
}

static enum status group_words(uint32_t *words, struct weight_format format, float scale,
                               float offset, struct err *err) {
    if (cuda_packed_has_zeros(format.code, format.group, format.has_offsets)) {
        return zero_word(words, scale, offset, err);
    }
    memcpy(words, &scale, sizeof scale);
    if (format.has_offsets) memcpy(words + 1, &offset, sizeof offset);
    return OK;
}

// Brings the scales of groups into the device's order. One of the checkpoint may be that of
// several groups here.
static enum status order_groups(struct host_scales *s, const struct linear *linear,
                                struct err *err) {
    struct weight_format format = linear->format;
    uint32_t groups = linear->in / format.group, step = cuda_packed_step(format.bits);
    uint32_t per_span = format.group < step ? step / format.group : 1;
    uint32_t words = words_of(format), per_stored = groups / s->rows.num_groups;
    enum status status = OK;
    for (uint32_t row = 0; row < linear->out; row++) {
        for (uint32_t g = 0; g < groups && !status; g++) {
            size_t from = (size_t)row * s->rows.num_groups + g / per_stored;
            size_t span = (size_t)(row / CUDA_PACKED_TILE) * (groups / per_span) + g / per_span;
            size_t to = (span * CUDA_PACKED_TILE + row % CUDA_PACKED_TILE) * per_span;
            float offset = s->rows.offsets ? s->rows.offsets[from] : 0;
            status = group_words(&s->words[(to + g % per_span) * words], format,
                                 s->rows.scales[from], offset, err);
        }
    }
    return status;
}

// Whether the 8 outputs of each tile have the same scales.
static bool are_shared(const struct host_scales *s, const struct linear *linear) {
    size_t row_bytes = s->rows.num_groups * sizeof(float);
    for (uint32_t row = 0; row < linear->out; row++) {
        const float *first =
            s->rows.scales + (size_t)(row - row % CUDA_PACKED_TILE) * s->rows.num_groups;
        const float *own = s->rows.scales + (size_t)row * s->rows.num_groups;
        if (memcmp(own, first, row_bytes) != 0) return false;
    }
    return true;
}

// Of groups that each tile has one of. Returns how many there are.
static size_t order_shared(struct host_scales *s, const struct linear *linear) {
    uint32_t groups = s->rows.num_groups, tiles = linear->out / CUDA_PACKED_TILE;
    for (uint32_t tile = 0; tile < tiles; tile++) {
        size_t row = (size_t)tile * CUDA_PACKED_TILE;
        memcpy(&s->words[tile * groups], &s->rows.scales[row * groups], groups * sizeof(float));
    }
    return (size_t)tiles * groups;
}

static enum status upload_scales(struct host_scales *s, struct linear *linear, struct err *err) {
    struct weight_format format = linear->format;
    size_t count = num_scales(format, linear->out, linear->in) * words_of(format);
    enum status status = OK;
    linear->shares_scales =
        format.bits == 8 && format.group == CUDA_PACKED_BLOCK && are_shared(s, linear);
    if (!format.group) {
        memcpy(s->words, s->rows.scales, count * sizeof(float));
    } else if (linear->shares_scales) {
        count = order_shared(s, linear);
    } else {
        status = order_groups(s, linear, err);
    }
    if (status) goto fail;
    CU(cudaMalloc(&linear->scales, count * sizeof(uint32_t)));
    CU(cudaMemcpy(linear->scales, s->words, count * sizeof(uint32_t), cudaMemcpyHostToDevice));
fail:
    return status;
}

static enum status grow_unpacked(struct cuda_backend *cuda, const struct linear *linear,
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

enum status cuda_packed_load(struct cuda_backend *cuda, const struct linear_spec *spec,
                             struct linear *linear, struct err *err) {
    size_t count = (size_t)linear->out * linear->in;
    struct host_scales scales = {0};
    void *raw = NULL;
    enum status status = scales_alloc(&scales, linear, spec->format, err);
    if (status) goto fail;
    CU(cudaMalloc(&raw, count));
    CU(cudaMalloc(&linear->weight, count * linear->format.bits / 8));
    status = read_parts(cuda, spec, linear, raw, &scales.rows, err);
    if (status) goto fail;
    cuda_packed_pack_launch(linear->weight, raw, linear->out, linear->in, spec->format.code,
                            cuda->stream);
    status = upload_scales(&scales, linear, err);
    if (!status) status = grow_unpacked(cuda, linear, err);
    if (status) goto fail;
    CU(cudaStreamSynchronize(cuda->stream)); // the packing reads `raw` until then
fail:
    cudaFree(raw);
    scales_free(&scales);
    return status;
}

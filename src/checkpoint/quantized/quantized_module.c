#include "checkpoint/quantized/quantized_module.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/dtype.h"
#include "checkpoint/quantized/bitsandbytes.h"
#include "checkpoint/quantized/quantized_matrix.h"

static const char *const part_names[NUM_MODULE_PARTS] = {
    [PART_WEIGHT] = "weight",
    [PART_WEIGHT_SCALE_INV] = "weight_scale_inv",
    [PART_WEIGHT_SCALE] = "weight_scale",
    [PART_WEIGHT_SCALE_2] = "weight_scale_2",
    [PART_WEIGHT_GLOBAL_SCALE] = "weight_global_scale",
    [PART_WEIGHT_PACKED] = "weight_packed",
    [PART_WEIGHT_SHAPE] = "weight_shape",
    [PART_WEIGHT_ZERO_POINT] = "weight_zero_point",
    [PART_WEIGHT_G_IDX] = "weight_g_idx",
    [PART_QWEIGHT] = "qweight",
    [PART_QZEROS] = "qzeros",
    [PART_SCALES] = "scales",
    [PART_BIASES] = "biases",
    [PART_GLOBAL_SCALE] = "global_scale",
    [PART_G_IDX] = "g_idx",
    [PART_WEIGHT_ABSMAX] = "weight.absmax",
    [PART_WEIGHT_MAP] = "weight.quant_map",
    [PART_WEIGHT_NESTED_ABSMAX] = "weight.nested_absmax",
    [PART_WEIGHT_NESTED_MAP] = "weight.nested_quant_map",
    [PART_WEIGHT_STATE_NF4] = "weight.quant_state.bitsandbytes__nf4",
    [PART_WEIGHT_STATE_FP4] = "weight.quant_state.bitsandbytes__fp4",
    [PART_SCB] = "SCB",
    [PART_WEIGHT_FORMAT] = "weight_format",
    [PART_ACTIVATION_SCALE] = "activation_scale",
    [PART_INPUT_SCALE] = "input_scale",
    [PART_INPUT_ZERO_POINT] = "input_zero_point",
    [PART_INPUT_GLOBAL_SCALE] = "input_global_scale",
};

const char *module_part_name(enum module_part part) {
    return part_names[part];
}

// A module that is being opened.
struct opening {
    struct quantized_module *module;
    const struct quantization_config *config;
    struct quantized_matrix matrix;
    struct err *err;
};

// Marks a part as used. One that is missing, or has another type or shape, is an error. Without
// `cols` the part is a vector.
static enum status use(struct opening *o, enum module_part part, enum dtype dtype, uint64_t rows,
                       uint64_t cols) {
    const struct quantized_module *module = o->module;
    const struct tensor *t = module->parts[part];
    if (!t) {
        int i = 0;
        while (i + 1 < NUM_MODULE_PARTS && !module->parts[i]) i++; // there is one at least
        const struct tensor *other = module->parts[i];
        return err_set(o->err, ERR_FORMAT, "%s: tensor \"%.150s\" is there without \"%.150s.%s\"",
                       other ? other->path : "", other ? other->name : "", module->name,
                       part_names[part]);
    }
    o->module->is_used[part] = true;
    if (t->dtype != dtype) {
        return err_set(o->err, ERR_FORMAT, "%s: tensor \"%.150s\" is %s, want %s", t->path, t->name,
                       dtype_name(t->dtype), dtype_name(dtype));
    }
    bool is_good =
        t->rank == (cols ? 2u : 1u) && t->shape[0] == rows && (!cols || t->shape[1] == cols);
    if (is_good) return OK;
    return err_set(o->err, ERR_FORMAT,
                   "%s: tensor \"%.150s\" has %u dimensions, [%llu][%llu], want [%llu][%llu]",
                   t->path, t->name, t->rank, (unsigned long long)(t->rank ? t->shape[0] : 1),
                   (unsigned long long)(t->rank > 1 ? t->shape[1] : 1), (unsigned long long)rows,
                   (unsigned long long)(cols ? cols : 1));
}

static uint64_t ceil_div(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

static enum matrix_code code_of_bits(uint32_t bits) {
    return bits == 4 ? CODE_UINT4 : bits == 8 ? CODE_UINT8 : CODE_UINT;
}

// Codes that lie in a tensor row by row.
static void set_codes(struct opening *o, enum module_part part, enum matrix_code code) {
    const struct tensor *t = o->module->parts[part];
    o->matrix.name = t->name;
    o->matrix.path = t->path;
    o->matrix.code = code;
    o->matrix.codes = t->source;
    o->matrix.row_bytes = t->shape[1] * dtype_size(t->dtype);
}

// The sizes that follow from the configuration.
static void set_groups(struct opening *o) {
    struct quantized_matrix *m = &o->matrix;
    m->rows = o->module->out;
    m->cols = o->module->in;
    m->block_rows = o->config->block_rows ? o->config->block_rows : m->rows;
    m->block_cols = o->config->block_cols ? o->config->block_cols : m->cols;
    m->num_groups = ceil_div(m->cols, m->block_cols);
}

// The form of the codes, whatever `groups` says.
static struct matrix_form form_of(const struct quantization_config *config, uint64_t in) {
    enum weight_code of_integers = config->bits <= 4 ? WEIGHT_CODE_INT4 : WEIGHT_CODE_INT8;
    struct matrix_form form = {.group = config->block_cols};
    switch (config->method) {
    case QUANTIZED_FP8:
        form.code = WEIGHT_CODE_E4M3;
        form.rounds_inputs = config->rounds_inputs;
        break;
    case QUANTIZED_INT8:
    case QUANTIZED_BNB8:
        form.code = WEIGHT_CODE_INT8;
        break;
    case QUANTIZED_PACKED:
    case QUANTIZED_GPTQ:
        form.code = of_integers;
        form.has_offsets = !config->is_symmetric;
        break;
    case QUANTIZED_MLX:
        form.code = of_integers;
        form.has_offsets = true;
        // Offsets that are no multiples of the scale: some devices have them in small groups only.
        if (config->bits <= 4 && form.group > 32) form.group = 32;
        break;
    case QUANTIZED_AWQ:
        form.code = of_integers;
        form.has_offsets = true;
        break;
    case QUANTIZED_MLX_FLOATS:
        form.code = config->bits == 4 ? WEIGHT_CODE_E2M1 : WEIGHT_CODE_E4M3;
        break;
    case QUANTIZED_NVFP4:
    case QUANTIZED_MXFP4:
        form.code = WEIGHT_CODE_E2M1;
        form.group = config->method == QUANTIZED_NVFP4 ? 16 : 32;
        break;
    case QUANTIZED_BNB4: // its levels are no integers
    case QUANTIZED_NOT:
        break;
    }
    if (form.group >= in) form.group = 0;
    return form;
}

static bool is_scale_dtype(enum dtype dtype) {
    return dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16 ||
           dtype == DTYPE_F8_E8M0;
}

// A scale of type E8M0 or U8 is a power of two.
static float scale_at(const char *bytes, enum dtype dtype, size_t i) {
    uint16_t half;
    float value;
    switch (dtype) {
    case DTYPE_U8:
    case DTYPE_F8_E8M0:
        return ((const uint8_t *)bytes)[i] == 255
                   ? NAN
                   : ldexpf(1, (int)((const uint8_t *)bytes)[i] - 127);
    case DTYPE_F8_E4M3:
        return e4m3_to_f32(((const uint8_t *)bytes)[i]);
    case DTYPE_BF16:
        memcpy(&half, bytes + i * sizeof half, sizeof half);
        return bf16_to_f32(half);
    case DTYPE_F16:
        memcpy(&half, bytes + i * sizeof half, sizeof half);
        return f16_to_f32(half);
    default:
        memcpy(&value, bytes + i * sizeof value, sizeof value);
        return value;
    }
}

// All elements of a tensor of scales as floats, which the caller frees.
static enum status load_floats(const struct tensor *t, float **out, struct err *err) {
    CHECK(t, "out=%p", (void *)out);
    size_t count = t->size_bytes / dtype_size(t->dtype);
    char *buffer = calloc(t->size_bytes + 1, 1);
    float *values = calloc(count + 1, sizeof *values);
    if (!buffer || !values) {
        free(buffer);
        free(values);
        return err_nomem(err, "scales of weights");
    }
    const char *bytes = byte_source_get(&t->source, 0, t->size_bytes, buffer, err);
    enum status status = bytes ? OK : ERR_IO;
    for (size_t i = 0; i < count && !status; i++) {
        values[i] = scale_at(bytes, t->dtype, i);
        if (isfinite(values[i])) continue;
        status = err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" has a scale that is no number",
                         t->path, t->name);
    }
    free(buffer);
    if (status) {
        free(values);
        return status;
    }
    *out = values;
    return OK;
}

// Whether the shape is [rows][cols] but for dimensions of 1: ModelOpt has [rows][1][cols][1].
static bool is_grid(const struct tensor *t, uint64_t rows, uint64_t cols) {
    const uint64_t want[2] = {rows, cols};
    uint32_t at = 0, i = 0;
    for (;; at++, i++) {
        while (at < 2 && want[at] == 1) at++;
        while (i < t->rank && t->shape[i] == 1) i++;
        if (at == 2 || i == t->rank) return at == 2 && i == t->rank;
        if (want[at] != t->shape[i]) return false;
    }
}

// Scales as the configuration cuts the matrix: [block rows][groups]. Those of 8-bit floats are
// bytes in MXFP8: powers of two.
static enum status load_scales(struct opening *o, enum module_part part) {
    struct quantized_matrix *m = &o->matrix;
    const struct tensor *t = o->module->parts[part];
    uint64_t rows = ceil_div(m->rows, m->block_rows), cols = m->num_groups;
    if (!t) return use(o, part, DTYPE_F32, rows, cols);
    o->module->is_used[part] = true;
    bool is_exponent = t->dtype == DTYPE_U8 && o->config->method == QUANTIZED_FP8;
    if (!is_exponent && !is_scale_dtype(t->dtype)) {
        return err_set(o->err, ERR_UNSUPPORTED,
                       "%s: tensor \"%.150s\" is %s, want F32, BF16, F16 or F8_E8M0, or U8 of FP8",
                       t->path, t->name, dtype_name(t->dtype));
    }
    if (is_grid(t, rows, cols)) return load_floats(t, &m->scales, o->err);
    return err_set(o->err, ERR_FORMAT,
                   "%s: tensor \"%.150s\" has %zu bytes of rank %u, want scales [%llu][%llu]",
                   t->path, t->name, t->size_bytes, t->rank, (unsigned long long)rows,
                   (unsigned long long)cols);
}

static void use_input_parts(struct opening *o) {
    static const enum module_part parts[] = {PART_ACTIVATION_SCALE, PART_INPUT_SCALE,
                                             PART_INPUT_ZERO_POINT, PART_INPUT_GLOBAL_SCALE};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (o->module->parts[parts[i]]) o->module->is_used[parts[i]] = true;
    }
}

// fp8 and int8: one code a byte, as the tensor "weight".
static enum status open_bytes(struct opening *o, enum dtype dtype, enum matrix_code code) {
    bool is_inv = o->module->parts[PART_WEIGHT_SCALE_INV] != NULL;
    enum status status = use(o, PART_WEIGHT, dtype, o->module->out, o->module->in);
    if (status) return status;
    set_codes(o, PART_WEIGHT, code);
    use_input_parts(o);
    return load_scales(o, is_inv ? PART_WEIGHT_SCALE_INV : PART_WEIGHT_SCALE);
}

// The group of each input. `part` has group numbers [in].
static enum status load_groups(struct opening *o, enum module_part part) {
    const struct tensor *t = o->module->parts[part];
    uint64_t in = o->module->in;
    enum status status = use(o, part, DTYPE_I32, in, 0);
    if (status) return status;
    uint32_t *groups = malloc(in * sizeof *groups);
    if (!groups) return err_nomem(o->err, "groups of weights");
    o->matrix.groups = groups;
    const void *bytes = byte_source_get(&t->source, 0, t->size_bytes, groups, o->err);
    if (!bytes) return ERR_IO;
    if (bytes != groups) memcpy(groups, bytes, t->size_bytes);
    bool is_in_order = true;
    for (uint64_t i = 0; i < in; i++) {
        is_in_order = is_in_order && groups[i] == i / o->matrix.block_cols;
        if (groups[i] < o->matrix.num_groups) continue;
        return err_set(o->err, ERR_FORMAT, "%s: tensor \"%.150s\" has the group %d, want 0 to %llu",
                       t->path, t->name, (int)groups[i],
                       (unsigned long long)(o->matrix.num_groups - 1));
    }
    if (!is_in_order) return OK;
    free(groups); // many checkpoints have them although they say nothing
    o->matrix.groups = NULL;
    return OK;
}

// compressed-tensors packs zeros along the outputs: [words of all outputs][groups].
static enum status load_packed_zeros(struct opening *o) {
    struct quantized_matrix *m = &o->matrix;
    const struct tensor *t = o->module->parts[PART_WEIGHT_ZERO_POINT];
    uint32_t bits = o->config->bits;
    enum status status =
        use(o, PART_WEIGHT_ZERO_POINT, DTYPE_I32, ceil_div(m->rows * bits, 32), m->num_groups);
    if (status) return status;
    m->zeros = malloc(m->rows * m->num_groups);
    uint32_t *buffer = calloc(t->size_bytes + 1, 1);
    if (!m->zeros || !buffer) {
        free(buffer);
        return err_nomem(o->err, "zeros of weights");
    }
    const void *bytes = byte_source_get(&t->source, 0, t->size_bytes, buffer, o->err);
    if (!bytes) status = ERR_IO;
    if (bytes && bytes != buffer) memcpy(buffer, bytes, t->size_bytes);
    for (uint64_t r = 0; r < m->rows && !status; r++) {
        for (uint64_t g = 0; g < m->num_groups; g++) {
            uint32_t zero = quantized_code_at(buffer + g, m->num_groups, r, bits);
            m->zeros[r * m->num_groups + g] = (uint8_t)zero;
        }
    }
    free(buffer);
    return status;
}

static enum status check_packed_shape(struct opening *o) {
    const struct tensor *t = o->module->parts[PART_WEIGHT_SHAPE];
    if (!t) return OK;
    int64_t shape[2] = {0};
    enum status status = use(o, PART_WEIGHT_SHAPE, DTYPE_I64, 2, 0);
    if (status) return status;
    const void *bytes = byte_source_get(&t->source, 0, sizeof shape, shape, o->err);
    if (!bytes) return ERR_IO;
    if (bytes != shape) memcpy(shape, bytes, sizeof shape);
    if ((uint64_t)shape[0] == o->module->out && (uint64_t)shape[1] == o->module->in) return OK;
    return err_set(o->err, ERR_FORMAT,
                   "%s: tensor \"%.150s\" is [%lld, %lld], the model wants [%llu, %llu]", t->path,
                   t->name, (long long)shape[0], (long long)shape[1],
                   (unsigned long long)o->module->out, (unsigned long long)o->module->in);
}

// compressed-tensors "pack-quantized": words of codes along the inputs, the first in the low bits.
static enum status open_packed(struct opening *o) {
    uint32_t bits = o->config->bits;
    enum status status =
        use(o, PART_WEIGHT_PACKED, DTYPE_I32, o->module->out, ceil_div(o->module->in * bits, 32));
    if (status) return status;
    set_codes(o, PART_WEIGHT_PACKED, code_of_bits(bits));
    o->matrix.bits = bits;
    o->matrix.zero = (uint8_t)(1u << (bits - 1));
    use_input_parts(o);
    status = check_packed_shape(o);
    if (!status) status = load_scales(o, PART_WEIGHT_SCALE);
    if (!status && !o->config->is_symmetric) status = load_packed_zeros(o);
    if (!status && o->module->parts[PART_WEIGHT_G_IDX]) status = load_groups(o, PART_WEIGHT_G_IDX);
    return status;
}

// One float, a factor of all scales or, in compressed-tensors, what they are divided by.
static enum status apply_global_scale(struct opening *o, size_t num_scales) {
    bool divides = o->module->parts[PART_WEIGHT_GLOBAL_SCALE] != NULL;
    enum module_part part = divides ? PART_WEIGHT_GLOBAL_SCALE : PART_WEIGHT_SCALE_2;
    const struct tensor *t = o->module->parts[part];
    if (!t) return use(o, PART_WEIGHT_GLOBAL_SCALE, DTYPE_F32, 1, 0);
    o->module->is_used[part] = true;
    if (t->dtype != DTYPE_F32 || t->size_bytes != sizeof(float)) {
        return err_set(o->err, ERR_FORMAT, "%s: tensor \"%.150s\" is not one F32", t->path,
                       t->name);
    }
    float *global = NULL;
    enum status status = load_floats(t, &global, o->err);
    if (status) return status;
    for (size_t i = 0; i < num_scales; i++) {
        float scale = o->matrix.scales[i];
        o->matrix.scales[i] = divides ? scale / *global : scale * *global;
        if (isfinite(o->matrix.scales[i])) continue;
        status =
            err_set(o->err, ERR_FORMAT, "%s: tensor \"%.150s\" makes scales that are no numbers",
                    t->path, t->name);
        break;
    }
    free(global);
    return status;
}

// nvfp4: 16 codes share an E4M3 scale, and all a float; mxfp4: 32 share a power of two.
static enum status open_fp4(struct opening *o, bool is_nvfp4) {
    struct quantized_module *module = o->module;
    bool is_packed = module->parts[PART_WEIGHT_PACKED] != NULL;
    enum module_part part = is_packed ? PART_WEIGHT_PACKED : PART_WEIGHT;
    if (module->in % 2) {
        return err_set(o->err, ERR_UNSUPPORTED, "\"%.150s\" has %llu inputs, want an even number",
                       module->name, (unsigned long long)module->in);
    }
    enum status status = use(o, part, DTYPE_U8, module->out, module->in / 2);
    if (status) return status;
    set_codes(o, part, CODE_E2M1);
    use_input_parts(o);
    o->matrix.block_rows = 1;
    o->matrix.block_cols = is_nvfp4 ? 16 : 32;
    o->matrix.num_groups = ceil_div(module->in, o->matrix.block_cols);
    const struct tensor *scales = module->parts[PART_WEIGHT_SCALE];
    bool is_u8 = !is_nvfp4 && scales && scales->dtype == DTYPE_U8;
    status = use(o, PART_WEIGHT_SCALE,
                 is_nvfp4 ? DTYPE_F8_E4M3
                 : is_u8  ? DTYPE_U8
                          : DTYPE_F8_E8M0,
                 module->out, o->matrix.num_groups);
    if (!status) status = load_floats(scales, &o->matrix.scales, o->err);
    if (status || !is_nvfp4) return status;
    return apply_global_scale(o, module->out * o->matrix.num_groups);
}

// As use, of any type that floats are stored in.
static enum status use_floats(struct opening *o, enum module_part part, uint64_t rows,
                              uint64_t cols) {
    const struct tensor *t = o->module->parts[part];
    bool is_float = t && is_scale_dtype(t->dtype);
    return use(o, part, is_float ? t->dtype : DTYPE_F16, rows, cols);
}

// MLX: words of codes along the inputs. A group fills whole words.
static enum status use_mlx_words(struct opening *o) {
    const struct quantized_matrix *m = &o->matrix;
    if (m->cols % m->block_cols == 0) {
        return use(o, PART_WEIGHT, DTYPE_U32, m->rows, m->cols * o->config->bits / 32);
    }
    return err_set(o->err, ERR_UNSUPPORTED, "\"%.150s\" has %llu inputs, want a multiple of %llu",
                   o->module->name, (unsigned long long)m->cols, (unsigned long long)m->block_cols);
}

// Codes of any width, and a scale and a bias for each group.
static enum status open_mlx(struct opening *o) {
    struct quantized_matrix *m = &o->matrix;
    uint32_t bits = o->config->bits;
    enum status status = use_mlx_words(o);
    if (!status) status = use_floats(o, PART_SCALES, m->rows, m->num_groups);
    if (!status) status = use_floats(o, PART_BIASES, m->rows, m->num_groups);
    if (status) return status;
    set_codes(o, PART_WEIGHT, code_of_bits(bits));
    m->bits = bits;
    status = load_floats(o->module->parts[PART_SCALES], &m->scales, o->err);
    return status ? status : load_floats(o->module->parts[PART_BIASES], &m->biases, o->err);
}

// The largest product of an E4M3 scale and an E2M1 code. MLX's global scale is the largest weight
// that it stands for.
static const float nvfp4_largest = 448 * 6;

// Floats with a byte for the scale of each group: E4M3 for groups of 16 (nvfp4), else E8M0.
static enum status open_mlx_floats(struct opening *o) {
    struct quantized_matrix *m = &o->matrix;
    bool is_nvfp4 = o->config->block_cols == 16;
    enum status status = use_mlx_words(o);
    if (!status) status = use(o, PART_SCALES, DTYPE_U8, m->rows, m->num_groups);
    if (status) return status;
    set_codes(o, PART_WEIGHT, o->config->bits == 4 ? CODE_E2M1 : CODE_E4M3);
    struct tensor scales = *o->module->parts[PART_SCALES];
    scales.dtype = is_nvfp4 ? DTYPE_F8_E4M3 : DTYPE_F8_E8M0;
    status = load_floats(&scales, &m->scales, o->err);
    bool has_global = o->config->has_global_scale || o->module->parts[PART_GLOBAL_SCALE];
    if (status || !is_nvfp4 || !has_global) return status;
    float *global = NULL;
    status = use(o, PART_GLOBAL_SCALE, DTYPE_F32, 1, 0);
    if (!status) status = load_floats(o->module->parts[PART_GLOBAL_SCALE], &global, o->err);
    for (uint64_t i = 0; i < m->rows * m->num_groups && !status; i++) {
        m->scales[i] *= *global / nvfp4_largest;
    }
    free(global);
    return status;
}

// Two codes a byte, all of a matrix in one column.
static enum status open_bnb4(struct opening *o) {
    uint64_t in = o->module->in, out = o->module->out;
    if (in % 2) {
        return err_set(o->err, ERR_UNSUPPORTED, "\"%.150s\" has %llu inputs, want an even number",
                       o->module->name, (unsigned long long)in);
    }
    enum status status = use(o, PART_WEIGHT, DTYPE_U8, out * (in / 2), 1);
    if (status) return status;
    set_codes(o, PART_WEIGHT, CODE_LEVEL);
    o->matrix.row_bytes = in / 2;
    return bitsandbytes_load(&o->matrix, o->module, o->err);
}

// "weight_format": 0 is rows, as the codes always are where it is missing.
static enum status check_rows(struct opening *o) {
    const struct tensor *t = o->module->parts[PART_WEIGHT_FORMAT];
    uint8_t buffer = 0;
    if (!t) return OK;
    o->module->is_used[PART_WEIGHT_FORMAT] = true;
    bool is_byte = t->dtype == DTYPE_U8 && t->size_bytes == 1;
    const uint8_t *byte = is_byte ? byte_source_get(&t->source, 0, 1, &buffer, o->err) : NULL;
    if (is_byte && !byte) return ERR_IO;
    if (byte && *byte == 0) return OK;
    return err_set(o->err, ERR_UNSUPPORTED, "%s: tensor \"%.150s\" is not the byte 0, for rows",
                   t->path, t->name);
}

static enum status open_bnb8(struct opening *o) {
    enum status status = use(o, PART_WEIGHT, DTYPE_I8, o->module->out, o->module->in);
    if (!status) status = use(o, PART_SCB, DTYPE_F32, o->module->out, 0);
    if (!status) status = check_rows(o);
    if (status) return status;
    o->matrix.block_cols = o->module->in; // a scale for each row
    o->matrix.num_groups = 1;
    set_codes(o, PART_WEIGHT, CODE_INT8);
    status = load_floats(o->module->parts[PART_SCB], &o->matrix.scales, o->err);
    for (uint64_t i = 0; i < o->module->out && !status; i++) o->matrix.scales[i] /= 127;
    return status;
}

// gptq and awq: codes, scales and zeros [in][out], brought into rows.
static enum status open_columns(struct opening *o) {
    const uint64_t in = o->module->in, out = o->module->out, groups = o->matrix.num_groups;
    bool is_gptq = o->config->method == QUANTIZED_GPTQ;
    const uint64_t bits = o->config->bits;
    if (in * bits % 32 || out * bits % 32) {
        return err_set(o->err, ERR_UNSUPPORTED,
                       "\"%.150s\" is [%llu][%llu], want whole words of codes of %llu bits",
                       o->module->name, (unsigned long long)out, (unsigned long long)in,
                       (unsigned long long)bits);
    }
    enum status status = use(o, PART_QWEIGHT, DTYPE_I32, is_gptq ? in * bits / 32 : in,
                             is_gptq ? out : out * bits / 32);
    bool has_zeros = o->module->parts[PART_QZEROS] || !is_gptq || !o->config->is_symmetric;
    if (!status && has_zeros) status = use(o, PART_QZEROS, DTYPE_I32, groups, out * bits / 32);
    if (!status) status = use_floats(o, PART_SCALES, groups, out);
    if (!status && o->module->parts[PART_G_IDX] && is_gptq) status = load_groups(o, PART_G_IDX);
    if (status) return status;
    o->matrix.name = o->module->parts[PART_QWEIGHT]->name;
    o->matrix.path = o->module->parts[PART_QWEIGHT]->path;
    o->matrix.code = code_of_bits(o->config->bits);
    o->matrix.bits = o->config->bits;
    float *by_group = NULL; // [groups][out]
    status = load_floats(o->module->parts[PART_SCALES], &by_group, o->err);
    if (status) return status;
    o->matrix.scales = malloc(groups * out * sizeof(float));
    if (!o->matrix.scales) status = err_nomem(o->err, "scales of weights");
    for (uint64_t r = 0; r < out && !status; r++) {
        for (uint64_t g = 0; g < groups; g++) {
            o->matrix.scales[r * groups + g] = by_group[g * out + r];
        }
    }
    free(by_group);
    return status ? status : quantized_columns_load(&o->matrix, o->module, o->config, o->err);
}

static enum status open_method(struct opening *o) {
    switch (o->config->method) {
    case QUANTIZED_FP8:
        return open_bytes(o, DTYPE_F8_E4M3, CODE_E4M3);
    case QUANTIZED_INT8:
        return open_bytes(o, DTYPE_I8, CODE_INT8);
    case QUANTIZED_PACKED:
        return open_packed(o);
    case QUANTIZED_NVFP4:
        return open_fp4(o, true);
    case QUANTIZED_MXFP4:
        return open_fp4(o, false);
    case QUANTIZED_GPTQ:
    case QUANTIZED_AWQ:
        return open_columns(o);
    case QUANTIZED_MLX:
        return open_mlx(o);
    case QUANTIZED_MLX_FLOATS:
        return open_mlx_floats(o);
    case QUANTIZED_BNB4:
        return open_bnb4(o);
    case QUANTIZED_BNB8:
        return open_bnb8(o);
    case QUANTIZED_NOT:
        break;
    }
    return err_set(o->err, ERR_FORMAT, "\"%.150s\" is quantized, but the configuration is not",
                   o->module->name);
}

enum status quantized_module_open(struct matrix_reader **out, struct quantized_module *module,
                                  const struct quantization_config *config, struct err *err) {
    struct opening o = {.module = module, .config = config, .err = err};
    *out = NULL;
    set_groups(&o);
    enum status status = open_method(&o);
    if (status) {
        quantized_matrix_fini(&o.matrix);
        return status;
    }
    if (!o.matrix.groups) o.matrix.form = form_of(config, module->in);
    return quantized_matrix_open(out, &o.matrix, err);
}

enum status quantized_module_form(struct matrix_form *out, const struct quantized_module *module,
                                  const struct quantization_config *config, struct err *err) {
    struct quantized_module copy = *module;
    struct opening o = {.module = &copy, .config = config, .err = err};
    *out = form_of(config, module->in);
    set_groups(&o);
    enum status status = OK;
    if (config->method == QUANTIZED_GPTQ && module->parts[PART_G_IDX]) {
        status = load_groups(&o, PART_G_IDX);
    } else if (config->method == QUANTIZED_PACKED && module->parts[PART_WEIGHT_G_IDX]) {
        status = load_groups(&o, PART_WEIGHT_G_IDX);
    }
    if (o.matrix.groups) *out = (struct matrix_form){0};
    quantized_matrix_fini(&o.matrix);
    return status;
}

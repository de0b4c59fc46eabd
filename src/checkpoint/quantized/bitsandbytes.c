#include "checkpoint/quantized/bitsandbytes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "checkpoint/config_read.h"
#include "checkpoint/quantized/compressed_config.h"

enum { STATE_BYTES_MAX = 4096, BLOCK_MAX = 4096, LEVELS = 16, NESTED_LEVELS = 256 };

enum status bitsandbytes_config_read(struct quantization_config *out, const json_t *object,
                                     const char *what, struct err *err) {
    // Which program ran it, or said by the tensors too: their types, and "quant_state".
    static const char *const known[] = {"quant_method",
                                        "load_in_4bit",
                                        "load_in_8bit",
                                        "_load_in_4bit",
                                        "_load_in_8bit",
                                        "bnb_4bit_compute_dtype",
                                        "bnb_4bit_quant_storage",
                                        "bnb_4bit_quant_type",
                                        "bnb_4bit_use_double_quant",
                                        "llm_int8_enable_fp32_cpu_offload",
                                        "llm_int8_has_fp16_weight",
                                        "llm_int8_skip_modules",
                                        "llm_int8_threshold"};
    static const char *const types[] = {"nf4", "fp4"}, *const storages[] = {"uint8"};
    bool is_4bit = false, is_8bit = false, is_float = false;
    enum status status = quantization_config_check_keys(object, known, ARRAY_LEN(known), what, err);
    if (!status) status = jread_bool(object, "load_in_4bit", &is_4bit, what, err);
    if (!status) status = jread_bool(object, "load_in_8bit", &is_8bit, what, err);
    if (!status) status = jread_bool(object, "llm_int8_has_fp16_weight", &is_float, what, err);
    if (!status) {
        status = quantization_config_want(object, "bnb_4bit_quant_type", types, ARRAY_LEN(types),
                                          NULL, what, err);
    }
    if (!status) {
        status = quantization_config_want(object, "bnb_4bit_quant_storage", storages, 1, NULL, what,
                                          err);
    }
    if (status) return status;
    if (is_4bit == is_8bit || is_float) {
        return err_set(
            err, ERR_UNSUPPORTED,
            "%s: \"quantization_config\" of bitsandbytes has to have one of "
            "\"load_in_4bit\" and \"load_in_8bit\", without \"llm_int8_has_fp16_weight\"",
            what);
    }
    out->method = is_4bit ? QUANTIZED_BNB4 : QUANTIZED_BNB8;
    out->bits = is_4bit ? 4 : 8;
    out->block_rows = 1;
    out->is_symmetric = true;
    return quantization_config_skip_list(out, object, "llm_int8_skip_modules", what, err);
}

// All bytes of a part, which the caller frees. Its shape does not matter, but its size does.
static enum status load(void **out, struct quantized_module *module, enum module_part part,
                        enum dtype dtype, uint64_t count, struct err *err) {
    const struct tensor *t = module->parts[part], *weight = module->parts[PART_WEIGHT];
    size_t size = dtype_size(dtype);
    *out = NULL;
    if (!t) {
        return err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" is there without \"%.150s.%s\"",
                       weight ? weight->path : "", weight ? weight->name : "", module->name,
                       module_part_name(part));
    }
    module->is_used[part] = true;
    if (t->dtype != dtype || t->size_bytes / size != count || t->size_bytes % size) {
        return err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" is %zu bytes of %s, want %llu of %s",
                       t->path, t->name, t->size_bytes, dtype_name(t->dtype),
                       (unsigned long long)(count * size), dtype_name(dtype));
    }
    *out = malloc(t->size_bytes + 1);
    if (!*out) return err_nomem(err, "scales of weights");
    const void *bytes = byte_source_get(&t->source, 0, t->size_bytes, *out, err);
    if (bytes && bytes != *out) memcpy(*out, bytes, t->size_bytes);
    return bytes ? OK : ERR_IO;
}

// What "quant_state" says, a JSON text.
struct state {
    int64_t block, nested_block;
    double nested_offset;
};

// The tensor's name says nf4 or fp4, and the values are read as floats. So the texts decide
// nothing, but a state that contradicts them, or has other keys, is of a format that is not known.
static enum status check_texts(const json_t *root, bool is_fp4, const struct tensor *t,
                               struct err *err) {
    static const char *const known[] = {"blocksize",    "dtype",         "nested_blocksize",
                                        "nested_dtype", "nested_offset", "quant_type",
                                        "shape"};
    const struct {
        const char *key, *values[4]; // up to the first NULL
    } texts[] = {{"quant_type", {is_fp4 ? "fp4" : "nf4"}},
                 {"dtype", {"bfloat16", "float16", "float32"}},
                 {"nested_dtype", {"float32"}}};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        size_t i = 0;
        while (i < ARRAY_LEN(known) && strcmp(known[i], key) != 0) i++;
        if (i < ARRAY_LEN(known) || json_is_null(value)) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: tensor \"%.150s\" has the key \"%.60s\", which is not known", t->path,
                       t->name, key);
    }
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char *text = NULL;
        enum status status = jread_string(root, texts[i].key, &text, t->name, err);
        if (status) return status;
        size_t k = 0;
        while (text && texts[i].values[k] && strcmp(texts[i].values[k], text) != 0) k++;
        if (!text || texts[i].values[k]) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: tensor \"%.150s\" has \"%s\" of \"%.60s\", which is not supported",
                       t->path, t->name, texts[i].key, text);
    }
    return OK;
}

// "shape" is that of the weights, [out, in].
static enum status check_shape(const json_t *root, const struct quantized_module *module,
                               const struct tensor *t, struct err *err) {
    const json_t *shape = jread_get(root, "shape");
    const json_t *out = json_array_get(shape, 0), *in = json_array_get(shape, 1);
    if (!shape || (json_array_size(shape) == 2 && json_is_integer(out) && json_is_integer(in) &&
                   json_integer_value(out) == (json_int_t)module->out &&
                   json_integer_value(in) == (json_int_t)module->in)) {
        return OK;
    }
    return err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" has another \"shape\" than [%llu, %llu]",
                   t->path, t->name, (unsigned long long)module->out,
                   (unsigned long long)module->in);
}

static enum status read_state(struct state *out, struct quantized_module *module, struct err *err) {
    bool is_fp4 = module->parts[PART_WEIGHT_STATE_FP4] != NULL;
    enum module_part part = is_fp4 ? PART_WEIGHT_STATE_FP4 : PART_WEIGHT_STATE_NF4;
    const struct tensor *t = module->parts[part];
    void *text = NULL;
    json_t *root = NULL;
    uint64_t count = t && t->size_bytes <= STATE_BYTES_MAX ? t->size_bytes : STATE_BYTES_MAX;
    *out = (struct state){.block = 0, .nested_block = 256};
    enum status status = load(&text, module, part, DTYPE_U8, count, err);
    if (!status) status = config_read_object(&root, text, count, t->name, err);
    if (!status) status = check_texts(root, is_fp4, t, err);
    if (!status) status = check_shape(root, module, t, err);
    if (!status) status = jread_int(root, "blocksize", 1, BLOCK_MAX, &out->block, t->name, err);
    if (!status) {
        status =
            jread_int(root, "nested_blocksize", 1, BLOCK_MAX, &out->nested_block, t->name, err);
    }
    const json_t *offset = status ? NULL : json_object_get(root, "nested_offset");
    if (!status && module->parts[PART_WEIGHT_NESTED_ABSMAX] && !json_is_number(offset)) {
        status = err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" has no number \"nested_offset\"",
                         t->path, t->name);
    }
    if (!status) out->nested_offset = json_number_value(offset);
    bool divides = !status && out->block && module->in % (uint64_t)out->block == 0;
    if (!status && !divides) {
        status = err_set(err, ERR_UNSUPPORTED,
                         "%s: tensor \"%.150s\" has blocks of %lld for %llu inputs, want a divisor",
                         t->path, t->name, (long long)out->block, (unsigned long long)module->in);
    }
    json_decref(root);
    free(text);
    return status;
}

// Scales that are codes: level[code] * scale of 256 of them + offset.
static enum status load_nested(struct quantized_matrix *m, struct quantized_module *module,
                               const struct state *state, uint64_t count, struct err *err) {
    uint64_t block = (uint64_t)state->nested_block;
    void *codes = NULL, *levels = NULL, *scales = NULL;
    enum status status = load(&codes, module, PART_WEIGHT_ABSMAX, DTYPE_U8, count, err);
    if (!status) {
        status = load(&levels, module, PART_WEIGHT_NESTED_MAP, DTYPE_F32, NESTED_LEVELS, err);
    }
    if (!status) {
        status = load(&scales, module, PART_WEIGHT_NESTED_ABSMAX, DTYPE_F32,
                      count / block + (count % block != 0), err);
    }
    if (!status) m->scales = malloc(count * sizeof *m->scales);
    if (!status && !m->scales) status = err_nomem(err, "scales of weights");
    for (uint64_t i = 0; i < count && !status; i++) {
        float level = ((const float *)levels)[((const uint8_t *)codes)[i]];
        m->scales[i] = level * ((const float *)scales)[i / block] + (float)state->nested_offset;
    }
    free(codes);
    free(levels);
    free(scales);
    return status;
}

enum status bitsandbytes_load(struct quantized_matrix *m, struct quantized_module *module,
                              struct err *err) {
    struct state state;
    void *levels = NULL, *scales = NULL;
    enum status status = read_state(&state, module, err);
    if (!status) status = load(&levels, module, PART_WEIGHT_MAP, DTYPE_F32, LEVELS, err);
    if (!status) memcpy(m->levels, levels, sizeof m->levels);
    free(levels);
    if (status) return status;
    m->block_rows = 1;
    m->block_cols = (uint64_t)state.block;
    m->num_groups = m->cols / m->block_cols;
    uint64_t count = m->rows * m->num_groups;
    if (module->parts[PART_WEIGHT_NESTED_ABSMAX]) {
        status = load_nested(m, module, &state, count, err);
    } else {
        status = load(&scales, module, PART_WEIGHT_ABSMAX, DTYPE_F32, count, err);
        m->scales = scales;
    }
    for (uint64_t i = 0; i < count && !status; i++) {
        if (isfinite(m->scales[i])) continue;
        status = err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" has a scale that is no number",
                         m->path, m->name);
    }
    for (size_t i = 0; i < LEVELS && !status; i++) {
        if (isfinite(m->levels[i])) continue;
        status = err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" has a level that is no number",
                         m->path, m->name);
    }
    return status;
}

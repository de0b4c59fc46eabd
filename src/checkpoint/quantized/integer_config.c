#include "checkpoint/quantized/integer_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "checkpoint/quantized/compressed_config.h"

enum { PATTERN_MAX = 1024 };

enum { BITS_MIN = 2, BITS_MAX = 8 };
enum { BITS_OF_FLOATS = 16 }; // of what is not quantized

// GPTQ's codes have 2 to 8 bits, AWQ's 4.
static enum status read_bits(struct quantization_config *out, const json_t *object,
                             const char *what, struct err *err) {
    int64_t bits = 0;
    enum status status = jread_int(object, "bits", 0, 64, &bits, what, err);
    if (status) return status;
    out->bits = (uint32_t)bits;
    bool is_gptq = out->method == QUANTIZED_GPTQ;
    if (bits == 4 || (is_gptq && bits >= BITS_MIN && bits <= BITS_MAX)) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"bits\" of \"quantization_config\" is %lld, which is not supported", what,
                   (long long)bits);
}

// Keys of AWQ and GPTQ that say how the weights were made or which program ran them. Their values
// do not change what the numbers mean.
#define INFORMATION                                                                                \
    "act_bits", "act_data_type", "act_dynamic", "act_group_aware", "act_group_size", "act_sym",    \
        "amp", "autoround_version", "backend", "batch_size", "block_name_to_quantize",             \
        "cache_block_outputs", "damp_auto_increment", "damp_percent", "dataset",                   \
        "disable_exllama", "do_fuse", "enable_minmax_tuning", "enable_norm_bias_tuning",           \
        "enable_quanted_input", "exllama_config", "fuse_max_seq_len", "gradient_accumulate_steps", \
        "hyb_act", "iters", "low_cpu_mem_usage", "low_gpu_mem_usage", "lr", "max_input_length",    \
        "meta", "minmax_lr", "model_file_base_name", "model_free", "model_name_or_path",           \
        "model_seqlen", "module_name_preceding_first_block", "mse", "nsamples", "offload_to_disk", \
        "pack_impl", "pad_token_id", "provider", "quant_block_list", "scale_dtype", "seqlen",      \
        "static_attention_dtype", "static_attention_granularity", "static_groups",                 \
        "static_kv_dtype", "static_kv_granularity", "supported_types", "to_quant_block_names",     \
        "tokenizer", "true_sequential", "use_cuda_fp16", "use_exllama"

// AutoRound's float types. Its integers are packed as GPTQ's or AWQ's.
static const struct {
    const char *begin; // of "data_type": "mx_fp_rceil" has the codes of "mx_fp"
    int64_t bits;
    enum quantization_method method;
    uint32_t group;
} float_types[] = {{"mx_fp", 4, QUANTIZED_MXFP4, 32},
                   {"mx_fp", 8, QUANTIZED_FP8, 32},
                   {"nv_fp", 4, QUANTIZED_NVFP4, 16},
                   {"fp", 8, QUANTIZED_FP8, 0}};

// "group_size" of 8-bit floats: [rows, columns] of a block, -1 for a row, or 0 for the matrix.
static enum status read_float_group(struct quantization_config *out, const json_t *object,
                                    const char *what, struct err *err) {
    const json_t *size = jread_get(object, "group_size");
    if (json_is_array(size)) return quantization_config_block(out, object, "group_size", what, err);
    if (json_is_integer(size) && json_integer_value(size) == 0) return OK;
    return quantization_config_group(out, object, what, err);
}

// *is_float: the configuration is that of floats, and is read.
static enum status read_auto_round_floats(bool *is_float, struct quantization_config *out,
                                          const json_t *object, const char *what, struct err *err) {
    static const struct wanted wanted[] = {{"fmt", {"e4m3"}, NULL},
                                           {"activation_scheme", {"dynamic", "static"}, NULL}};
    const char *type = NULL;
    int64_t bits = 0, act_bits = BITS_OF_FLOATS;
    enum status status = jread_string(object, "data_type", &type, what, err);
    if (!status) status = jread_int(object, "bits", 0, 64, &bits, what, err);
    if (!status) status = jread_int(object, "act_bits", 0, 64, &act_bits, what, err);
    for (size_t i = 0; i < ARRAY_LEN(float_types) && type && !status && !*is_float; i++) {
        size_t len = strlen(float_types[i].begin);
        if (strncmp(type, float_types[i].begin, len) != 0 || bits != float_types[i].bits) continue;
        *is_float = true;
        out->method = float_types[i].method;
        out->bits = (uint32_t)bits;
        out->is_symmetric = true;
        out->block_rows = 1;
        out->block_cols = float_types[i].group;
        if (out->method != QUANTIZED_FP8 || out->block_cols) continue;
        out->rounds_inputs = act_bits < BITS_OF_FLOATS;
        out->block_rows = 0;
        status = read_float_group(out, object, what, err);
    }
    if (status || !*is_float) return status;
    return quantization_config_want_all(object, wanted, ARRAY_LEN(wanted), what, err);
}

// Whether a module of "extra_config" has what all modules have.
static enum status read_float_override(bool *is_same, const struct quantization_config *all,
                                       const json_t *object, const json_t *module, const char *what,
                                       struct err *err) {
    struct quantization_config own = {0};
    bool is_float = false;
    const char *key;
    json_t *value, *both = json_copy((json_t *)(uintptr_t)object);
    int failed = both ? 0 : -1;
    json_object_foreach((json_t *)(uintptr_t)module, key, value) {
        if (!json_is_null(value)) failed |= json_object_set(both, key, value);
    }
    if (failed) {
        json_decref(both);
        return err_nomem(err, "extra_config");
    }
    enum status status = read_auto_round_floats(&is_float, &own, both, what, err);
    json_decref(both);
    if (status) return status;
    const json_t *size = jread_get(module, "group_size");
    json_int_t group = json_integer_value(size); // -1 and 0: a row or the matrix, without groups
    *is_same = is_float && own.method == all->method && own.bits == all->bits &&
               own.block_rows == all->block_rows && own.block_cols == all->block_cols &&
               own.rounds_inputs == all->rounds_inputs &&
               (!json_is_integer(size) || (group > 0 ? group : 0) == all->block_cols);
    return OK;
}

// Other sizes for the modules that `key` of `list` matches. Those of floats have to be as all are.
static enum status read_override(struct quantization_config *out, const json_t *all,
                                 const char *list, const char *key, const json_t *object,
                                 const char *what, struct err *err) {
    static const char *const known[] = {INFORMATION, "bits", "group_size",
                                        "desc_act",  "sym",  "data_type"};
    static const char *const types[] = {"int"};
    if (!json_is_object(object)) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"%s\" of \"quantization_config\" has %s, want objects", what, list,
                       jread_type_name(object));
    }
    enum status status = quantization_config_check_keys(object, known, ARRAY_LEN(known), what, err);
    if (!status && out->method != QUANTIZED_GPTQ && out->method != QUANTIZED_AWQ) {
        bool is_same = false;
        status = read_float_override(&is_same, out, all, object, what, err);
        if (status || is_same) return status;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" of \"quantization_config\" has other floats or integers for "
                       "\"%.60s\" than for the rest, which is not supported",
                       what, list, key);
    }
    if (!status) status = quantization_config_want(object, "data_type", types, 1, NULL, what, err);
    if (!status && jread_get(object, "bits")) status = read_bits(out, object, what, err);
    if (!status && jread_get(object, "group_size")) {
        status = quantization_config_group(out, object, what, err);
    }
    return status ? status : jread_bool(object, "sym", &out->is_symmetric, what, err);
}

// GPTQModel's "dynamic" has patterns that the beginning of a name matches, with "+:" or nothing
// before them. AutoRound's "extra_config" has names, and patterns that any part of a name matches.
// False: it is too long.
static bool write_target(char out[PATTERN_MAX], const char *key, bool is_dynamic) {
    const char *prefix = "re:", *suffix = "";
    if (is_dynamic) {
        if (strncmp(key, "+:", 2) == 0) key += 2;
    } else if (!strpbrk(key, "*+?[](){}|^$\\")) {
        prefix = "";
    } else if (*key != '^') {
        prefix = "re:.*?(?:";
        suffix = ")";
    }
    return snprintf(out, PATTERN_MAX, "%s%s%s", prefix, key, suffix) < PATTERN_MAX;
}

// Modules that are not quantized: their tensors say so too.
static bool is_left_out(const char *key, const json_t *override) {
    return strncmp(key, "-:", 2) == 0 ||
           json_integer_value(json_object_get(override, "bits")) >= BITS_OF_FLOATS;
}

// Modules with other sizes; the first key that matches counts.
static enum status read_overrides(struct quantization_config *out, const json_t *object,
                                  const char *list, const char *what, struct err *err) {
    const char *key;
    json_t *override, *overrides = jread_get(object, list);
    if (!overrides) return OK;
    if (!json_is_object(overrides)) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"%s\" of \"quantization_config\" is %s, want an object", what, list,
                       jread_type_name(overrides));
    }
    struct quantization_config all = *out;
    all.skipped = NULL;
    all.num_skipped = 0;
    all.skip_patterns = (struct module_targets){0};
    out->groups = calloc(json_object_size(overrides) + 1, sizeof *out->groups);
    if (!out->groups) return err_nomem(err, list);
    out->groups[out->num_groups++] = all;
    out->targets.keeps_order = true;
    enum status status = module_targets_add(&out->targets, "Linear", 0, what, err);
    json_object_foreach(overrides, key, override) {
        char target[PATTERN_MAX];
        if (status) break;
        if (is_left_out(key, override)) continue;
        if (!write_target(target, key, strcmp(list, "dynamic") == 0)) {
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: \"%s\" of \"quantization_config\" has a key of %zu bytes, want at "
                           "most %d",
                           what, list, strlen(key), PATTERN_MAX - 16);
        }
        struct quantization_config *group = &out->groups[out->num_groups];
        *group = all;
        status = read_override(group, object, list, key, override, what, err);
        if (!status) {
            status = module_targets_add(&out->targets, target, out->num_groups++, what, err);
        }
    }
    return status;
}

enum status gptq_config_read(struct quantization_config *out, const json_t *object,
                             const char *what, struct err *err) {
    static const char *const known[] = {INFORMATION,
                                        "quant_method",
                                        "bits",
                                        "group_size",
                                        "desc_act",
                                        "sym",
                                        "checkpoint_format",
                                        "format",
                                        "method",
                                        "pack_dtype",
                                        "data_type",
                                        "packing_format",
                                        "is_marlin_format",
                                        "dynamic",
                                        "lm_head",
                                        "modules_in_block_to_quantize",
                                        "modules_to_not_convert"};
    out->method = QUANTIZED_GPTQ;
    bool is_marlin = false;
    size_t format = 0; // "gptq"
    const struct wanted wanted[] = {
        {"method", {"gptq"}, NULL},
        {"format", {"gptq", "gptq_v2"}, &format},
        {"checkpoint_format", {"gptq", "gptq_v2"}, &format},
        {"pack_dtype", {"int32"}, NULL},
        // AutoRound's names of what "checkpoint_format" calls "gptq".
        {"packing_format", {"auto_round:auto_gptq", "auto_round:gptq", "auto_gptq", "gptq"}, NULL},
        {"data_type", {"int"}, NULL}};
    out->is_symmetric = true;
    enum status status = quantization_config_check_keys(object, known, ARRAY_LEN(known), what, err);
    if (!status) status = read_bits(out, object, what, err);
    if (!status) status = quantization_config_group(out, object, what, err);
    if (!status) status = jread_bool(object, "sym", &out->is_symmetric, what, err);
    if (!status) status = jread_bool(object, "is_marlin_format", &is_marlin, what, err);
    if (!status)
        status = quantization_config_want_all(object, wanted, ARRAY_LEN(wanted), what, err);
    if (status) return status;
    out->is_zero_less_one = format == 0;
    if (is_marlin) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"is_marlin_format\" of \"quantization_config\" is true, which is not "
                       "supported",
                       what);
    }
    status = quantization_config_skip_list(out, object, "modules_to_not_convert", what, err);
    return status ? status : read_overrides(out, object, "dynamic", what, err);
}

enum status awq_config_read(struct quantization_config *out, const json_t *object, const char *what,
                            struct err *err) {
    static const char *const known[] = {INFORMATION,
                                        "quant_method",
                                        "bits",
                                        "group_size",
                                        "zero_point",
                                        "sym",
                                        "version",
                                        "checkpoint_format",
                                        "format",
                                        "method",
                                        "pack_dtype",
                                        "data_type",
                                        "packing_format",
                                        "lm_head",
                                        "desc_act",
                                        "modules_to_fuse",
                                        "modules_to_not_convert"};
    static const struct wanted wanted[] = {
        {"version", {"gemm", "GEMM"}, NULL},
        {"checkpoint_format", {"gemm", "GEMM"}, NULL},
        {"format", {"gemm", "GEMM"}, NULL},
        {"method", {"awq"}, NULL},
        {"pack_dtype", {"int32"}, NULL},
        {"packing_format", {"auto_round:auto_awq", "auto_round:awq", "auto_awq", "awq"}, NULL},
        {"data_type", {"int"}, NULL}};
    out->method = QUANTIZED_AWQ;
    enum status status = quantization_config_check_keys(object, known, ARRAY_LEN(known), what, err);
    if (!status) status = read_bits(out, object, what, err);
    if (!status) status = quantization_config_group(out, object, what, err);
    if (!status)
        status = quantization_config_want_all(object, wanted, ARRAY_LEN(wanted), what, err);
    return status ? status
                  : quantization_config_skip_list(out, object, "modules_to_not_convert", what, err);
}

enum packing { PACKING_V1, PACKING_V2, PACKING_AWQ, PACKING_NONE };

// AutoRound's name of a packing begins with one of these. The rest names a kernel, in old
// checkpoints ("auto_round:gptq:exllamav2"); the longest counts.
static enum packing find_packing(const char *text) {
    static const struct {
        const char *begin;
        enum packing packing;
    } names[] = {{"auto_round:auto_gptq", PACKING_V1}, {"auto_round:gptqmodel", PACKING_V2},
                 {"auto_round:gptq", PACKING_V1},      {"auto_round:auto_awq", PACKING_AWQ},
                 {"auto_round:awq", PACKING_AWQ},      {"auto_round:exllamav2", PACKING_V2},
                 {"auto_round:tritonv2", PACKING_V2},  {"auto_round", PACKING_V2}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        size_t len = strlen(names[i].begin);
        if (strncmp(text, names[i].begin, len) != 0) continue;
        bool is_whole = text[len] == '\0' || (text[len] == ':' && i + 1 < ARRAY_LEN(names));
        if (is_whole) return names[i].packing;
    }
    return PACKING_NONE;
}

// Whether zeros are read from tensors, of all modules or of some.
static bool has_zeros(const json_t *object) {
    const char *key;
    json_t *override;
    if (json_is_false(jread_get(object, "sym"))) return true;
    json_object_foreach(jread_get(object, "extra_config"), key, override) {
        if (json_is_false(jread_get(override, "sym"))) return true;
    }
    return false;
}

// Old checkpoints have it as "backend". Without either it is GPTQ's, as for the program itself, and
// where any kernel may run ("auto"). Other backends may have stored zeros in another way, so they
// are refused where there are zeros.
static enum status read_packing(enum packing *out, const json_t *object, const char *what,
                                struct err *err) {
    const char *text = NULL, *backend = NULL;
    enum status status = jread_string(object, "packing_format", &text, what, err);
    if (!status) status = jread_string(object, "backend", &backend, what, err);
    if (status) return status;
    bool is_known = backend && find_packing(backend) != PACKING_NONE;
    const char *key = text ? "packing_format" : "backend";
    bool is_any = !backend || strcmp(backend, "auto") == 0;
    if (!text && (is_known || (!is_any && has_zeros(object)))) text = backend;
    *out = find_packing(text ? text : "auto_round:auto_gptq");
    if (*out != PACKING_NONE) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"%s\" of \"quantization_config\" is \"%.60s\", which is not supported",
                   what, key, text);
}

enum status auto_round_config_read(struct quantization_config *out, const json_t *object,
                                   const char *what, struct err *err) {
    static const char *const known[] = {
        INFORMATION, "quant_method",   "bits",         "group_size",
        "sym",       "data_type",      "fmt",          "activation_scheme",
        "desc_act",  "packing_format", "extra_config", "modules_to_not_convert"};
    static const char *const types[] = {"int"};
    enum packing packing = PACKING_NONE;
    bool is_float = false;
    enum status status = quantization_config_check_keys(object, known, ARRAY_LEN(known), what, err);
    if (!status) status = read_auto_round_floats(&is_float, out, object, what, err);
    if (!status && !is_float) {
        status = quantization_config_want(object, "data_type", types, 1, NULL, what, err);
        if (!status) status = read_packing(&packing, object, what, err);
        if (status) return status;
        out->method = packing == PACKING_AWQ ? QUANTIZED_AWQ : QUANTIZED_GPTQ;
        out->is_zero_less_one = packing == PACKING_V1;
        out->is_symmetric = true;
        status = read_bits(out, object, what, err);
        if (!status) status = quantization_config_group(out, object, what, err);
        if (!status) status = jread_bool(object, "sym", &out->is_symmetric, what, err);
    }
    if (!status) {
        status = quantization_config_skip_list(out, object, "modules_to_not_convert", what, err);
    }
    return status ? status : read_overrides(out, object, "extra_config", what, err);
}

#include "checkpoint/quantized/quantization_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "checkpoint/config_read.h"
#include "checkpoint/quantized/bitsandbytes.h"
#include "checkpoint/quantized/compressed_config.h"
#include "checkpoint/quantized/integer_config.h"
#include "checkpoint/quantized/mlx_config.h"
#include "checkpoint/quantized/quark_config.h"

enum { BLOCK_MAX = 1 << 16 };
enum { KIND_FP8, KIND_NVFP4, NUM_KINDS }; // groups of ModelOpt's "MIXED_PRECISION"

enum status quantization_config_check_keys(const json_t *object, const char *const *known,
                                           size_t num_known, const char *what, struct err *err) {
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
        const char *key = json_object_iter_key(at);
        size_t i = 0;
        while (i < num_known && strcmp(known[i], key) != 0) i++;
        if (i < num_known || json_is_null(json_object_iter_value(at))) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"quantization_config\" has the key \"%.60s\", which is not known",
                       what, key);
    }
    return OK;
}

enum status quantization_config_want(const json_t *object, const char *key,
                                     const char *const *values, size_t num_values, size_t *found,
                                     const char *what, struct err *err) {
    const char *text = NULL;
    enum status status = jread_string(object, key, &text, what, err);
    if (status || !text) return status;
    for (size_t i = 0; i < num_values; i++) {
        if (strcmp(values[i], text) != 0) continue;
        if (found) *found = i;
        return OK;
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"%s\" of \"quantization_config\" is \"%.60s\", which is not supported",
                   what, key, text);
}

enum status quantization_config_want_all(const json_t *object, const struct wanted *list,
                                         size_t count, const char *what, struct err *err) {
    enum status status = OK;
    for (size_t i = 0; i < count && !status; i++) {
        size_t num_values = 0;
        while (num_values < ARRAY_LEN(list[i].values) && list[i].values[num_values]) num_values++;
        status = quantization_config_want(object, list[i].key, list[i].values, num_values,
                                          list[i].found, what, err);
    }
    return status;
}

enum status quantization_config_skip_list(struct quantization_config *out, const json_t *object,
                                          const char *key, const char *what, struct err *err) {
    const json_t *list = jread_get(object, key);
    size_t count = json_array_size(list);
    if (list && !json_is_array(list)) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" of \"quantization_config\" is %s, want a list",
                       what, key, jread_type_name(list));
    }
    if (!count) return OK;
    char **more = realloc(out->skipped, (out->num_skipped + count) * sizeof *more);
    if (!more) return err_nomem(err, key);
    out->skipped = more;
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item)) {
            return err_set(err, ERR_FORMAT,
                           "%s: \"%s\" of \"quantization_config\" has %s, want strings", what, key,
                           jread_type_name(item));
        }
        if (strncmp(json_string_value(item), "re:", 3) == 0) {
            enum status status =
                module_targets_add(&out->skip_patterns, json_string_value(item), 0, what, err);
            if (status) return status;
            continue;
        }
        out->skipped[out->num_skipped] = strdup(json_string_value(item));
        if (!out->skipped[out->num_skipped]) return err_nomem(err, key);
        out->num_skipped++;
    }
    return OK;
}

// A group of -1 columns is a whole row.
enum status quantization_config_group(struct quantization_config *out, const json_t *object,
                                      const char *what, struct err *err) {
    int64_t group = -1;
    out->block_rows = 1;
    enum status status = jread_int(object, "group_size", -1, BLOCK_MAX, &group, what, err);
    if (status) return status;
    if (group == 0) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"group_size\" of \"quantization_config\" is 0, want -1 or 1 to %d",
                       what, BLOCK_MAX);
    }
    out->block_cols = group > 0 ? (uint32_t)group : 0;
    return OK;
}

enum status quantization_config_block(struct quantization_config *out, const json_t *object,
                                      const char *key, const char *what, struct err *err) {
    const json_t *size = jread_get(object, key);
    if (!size) return OK;
    json_int_t rows = json_integer_value(json_array_get(size, 0));
    json_int_t cols = json_integer_value(json_array_get(size, 1));
    if (json_array_size(size) != 2 || rows < 1 || cols < 1 || rows > BLOCK_MAX ||
        cols > BLOCK_MAX) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"%s\" of \"quantization_config\" is %s, want two numbers from 1 to %d",
                       what, key, jread_type_name(size), BLOCK_MAX);
    }
    out->block_rows = (uint32_t)rows;
    out->block_cols = (uint32_t)cols;
    return OK;
}

// "weight_block_size" is [rows, columns], or null for one scale for each matrix.
static enum status read_fp8(struct quantization_config *out, const json_t *object, const char *what,
                            struct err *err) {
    static const char *const known[] = {
        "quant_method",           "activation_scheme", "weight_block_size", "fmt",
        "modules_to_not_convert", "ignored_layers",    "scale_fmt",         "dequantize",
        "expert_dtype",           "kv_cache_scheme"};
    static const struct wanted wanted[] = {
        {"fmt", {"e4m3", "float8_e4m3fn"}, NULL},
        {"scale_fmt", {"float", "ue8m0"}, NULL}, // the tensor's type says which
        {"expert_dtype", {"fp8"}, NULL},
        {"activation_scheme", {"dynamic", "static"}, NULL}}; // none: dynamic
    out->method = QUANTIZED_FP8;
    out->bits = 8;
    out->rounds_inputs = true;
    enum status status = quantization_config_check_keys(object, known, ARRAY_LEN(known), what, err);
    if (!status)
        status = quantization_config_want_all(object, wanted, ARRAY_LEN(wanted), what, err);
    if (!status) status = quantization_config_block(out, object, "weight_block_size", what, err);
    if (!status) {
        status = quantization_config_skip_list(out, object, "modules_to_not_convert", what, err);
    }
    return status ? status
                  : quantization_config_skip_list(out, object, "ignored_layers", what, err);
}

// A scale for each output.
static enum status read_fbgemm(struct quantization_config *out, const json_t *object,
                               const char *what, struct err *err) {
    // "activation_scale_ub" bounds the scales of inputs.
    static const char *const known[] = {"quant_method", "activation_scale_ub",
                                        "modules_to_not_convert"};
    out->method = QUANTIZED_FP8;
    out->bits = 8;
    out->block_rows = 1;
    out->rounds_inputs = true;
    enum status status = quantization_config_check_keys(object, known, ARRAY_LEN(known), what, err);
    return status ? status
                  : quantization_config_skip_list(out, object, "modules_to_not_convert", what, err);
}

// Of several kinds, each module's tensors say which one it has.
static enum status read_modelopt_kinds(struct quantization_config *out, struct err *err) {
    out->groups = calloc(NUM_KINDS, sizeof *out->groups);
    if (!out->groups) return err_nomem(err, "quantized_layers");
    out->num_groups = NUM_KINDS;
    out->is_by_tensors = true;
    out->groups[KIND_FP8] = (struct quantization_config){
        .method = QUANTIZED_FP8, .bits = 8, .rounds_inputs = true, .is_symmetric = true};
    out->groups[KIND_NVFP4] =
        (struct quantization_config){.method = QUANTIZED_NVFP4, .bits = 4, .is_symmetric = true};
    return OK;
}

// "config_groups" and "quantized_layers" repeat what "quant_algo" and the tensors say.
static enum status read_modelopt(struct quantization_config *out, const json_t *object,
                                 const char *what, struct err *err) {
    static const char *const known[] = {"quant_method",    "quant_algo", "config_groups",
                                        "ignore",          "producer",   "kv_cache_scheme",
                                        "exclude_modules", "group_size", "kv_cache_quant_algo",
                                        "quantized_layers"};
    static const struct {
        const char *name;
        enum quantization_method method;
        uint32_t block_rows, block_cols;
        bool rounds_inputs;
    } algos[] = {{"FP8", QUANTIZED_FP8, 0, 0, true},
                 {"FP8_PER_CHANNEL_PER_TOKEN", QUANTIZED_FP8, 1, 0, true},
                 {"FP8_PB_WO", QUANTIZED_FP8, 128, 128, false},
                 {"MXFP8", QUANTIZED_FP8, 1, 32, false},
                 {"NVFP4", QUANTIZED_NVFP4, 0, 0, false},
                 {"W4A16_NVFP4", QUANTIZED_NVFP4, 0, 0, false},
                 {"MIXED_PRECISION", QUANTIZED_NVFP4, 0, 0, false}};
    enum { MIXED = ARRAY_LEN(algos) - 1 };
    const char *names[ARRAY_LEN(algos)];
    for (size_t i = 0; i < ARRAY_LEN(algos); i++) names[i] = algos[i].name;
    size_t algo = ARRAY_LEN(algos);
    enum status status = quantization_config_check_keys(object, known, ARRAY_LEN(known), what, err);
    if (!status) {
        status = quantization_config_want(object, "quant_algo", names, ARRAY_LEN(algos), &algo,
                                          what, err);
    }
    if (status) return status;
    if (algo == ARRAY_LEN(algos)) {
        return err_set(err, ERR_FORMAT, "%s: \"quantization_config\" has no \"quant_algo\"", what);
    }
    out->method = algos[algo].method;
    out->bits = out->method == QUANTIZED_FP8 ? 8 : 4;
    out->block_rows = algos[algo].block_rows;
    out->block_cols = algos[algo].block_cols;
    out->rounds_inputs = algos[algo].rounds_inputs;
    out->is_symmetric = true;
    if (algo == MIXED) status = read_modelopt_kinds(out, err);
    if (!status) status = quantization_config_skip_list(out, object, "ignore", what, err);
    return status ? status
                  : quantization_config_skip_list(out, object, "exclude_modules", what, err);
}

// gpt-oss: the experts alone, in tensors for all of a layer (expert_stack.h).
static enum status read_mxfp4(struct quantization_config *out, const json_t *object,
                              const char *what, struct err *err) {
    static const char *const known[] = {"quant_method", "modules_to_not_convert", "dequantize"};
    out->method = QUANTIZED_MXFP4;
    out->bits = 4;
    out->is_symmetric = true;
    enum status status = quantization_config_check_keys(object, known, ARRAY_LEN(known), what, err);
    return status ? status
                  : quantization_config_skip_list(out, object, "modules_to_not_convert", what, err);
}

static enum status read_method(struct quantization_config *out, const json_t *object,
                               const char *what, struct err *err) {
    static const struct {
        const char *name;
        enum status (*read)(struct quantization_config *out, const json_t *object, const char *what,
                            struct err *err);
    } methods[] = {{"fp8", read_fp8},
                   {"fbgemm_fp8", read_fbgemm},
                   {"gptq", gptq_config_read},
                   {"awq", awq_config_read},
                   {"modelopt", read_modelopt},
                   {"mxfp4", read_mxfp4},
                   {"quark", quark_config_read},
                   {"compressed-tensors", compressed_config_read},
                   {"bitsandbytes", bitsandbytes_config_read},
                   {"auto-round", auto_round_config_read},
                   {"intel/auto-round", auto_round_config_read}};
    const char *method = json_string_value(json_object_get(object, "quant_method"));
    for (size_t i = 0; method && i < ARRAY_LEN(methods); i++) {
        if (strcmp(methods[i].name, method) == 0) return methods[i].read(out, object, what, err);
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"quantization_config\" says that the weights are quantized (%.60s), which "
                   "is not supported; want fp8, fbgemm_fp8, gptq, awq, auto-round, modelopt, "
                   "mxfp4, quark, compressed-tensors, bitsandbytes, MLX's \"quantization\", or "
                   "BF16, F16 or F32 weights",
                   what, method ? method : "no \"quant_method\"");
}

enum status quantization_config_read(struct quantization_config *out, const json_t *root,
                                     const char *what, struct err *err) {
    *out = (struct quantization_config){0};
    // MLX repeats its own under the other name. mlx-lm too reads this one first.
    const json_t *of_mlx = jread_get(root, "quantization");
    const json_t *object = jread_get(root, "quantization_config");
    if (!object) object = jread_get(root, "compression_config");
    if (!of_mlx && !object) return OK;
    enum status status =
        of_mlx ? mlx_config_read(out, of_mlx, what, err) : read_method(out, object, what, err);
    if (status) quantization_config_fini(out);
    return status;
}

const struct quantization_config *quantization_config_kind(const struct quantization_config *config,
                                                           bool is_fp8) {
    if (!config->is_by_tensors) return config;
    return &config->groups[is_fp8 ? KIND_FP8 : KIND_NVFP4];
}

void quantization_config_fini(struct quantization_config *config) {
    for (uint32_t i = 0; i < config->num_skipped; i++) free(config->skipped[i]);
    free(config->skipped);
    free(config->groups); // they have no lists of their own
    module_targets_fini(&config->skip_patterns);
    module_targets_fini(&config->targets);
    *config = (struct quantization_config){0};
}

// ---- a module ----

// Whether `name` begins with `part`, up to the end of a component. A component "*" is any.
static bool begins_with(const char *name, const char *part) {
    for (; *part; part++) {
        if (*part == '*') {
            name += strcspn(name, ".");
        } else if (*name++ != *part) {
            return false;
        }
    }
    return *name == '\0' || *name == '.';
}

// Whether `part` is in `name`, from the begin of a component to the end of one.
static bool has_components(const char *name, const char *part) {
    for (const char *at = *part ? name : NULL; at; at = strchr(at, '.')) {
        if (*at == '.') at++;
        if (begins_with(at, part)) return true;
    }
    return false;
}

bool quantization_config_skips(const struct quantization_config *config, const char *module) {
    for (uint32_t i = 0; i < config->num_skipped; i++) {
        if (has_components(module, config->skipped[i])) return true;
    }
    return false;
}

// How the list names the module, by either of its names.
static enum status find_target(enum target_kind *kind, uint32_t *owner,
                               const struct module_targets *targets, const char *module,
                               const char *own_name, struct err *err) {
    enum target_kind other = TARGET_NONE;
    uint32_t other_owner = 0;
    enum status status = module_targets_find(kind, owner, targets, module, err);
    if (status || strcmp(module, own_name) == 0) return status;
    status = module_targets_find(&other, &other_owner, targets, own_name, err);
    if (status || other >= *kind) return status;
    *kind = other;
    *owner = other_owner;
    return OK;
}

enum status quantization_config_of(const struct quantization_config **out,
                                   const struct quantization_config *config, const char *module,
                                   const char *own_name, struct err *err) {
    enum target_kind kind;
    uint32_t group;
    *out = NULL;
    if (quantization_config_skips(config, module)) return OK;
    if (quantization_config_skips(config, own_name)) return OK;
    enum status status = find_target(&kind, &group, &config->skip_patterns, module, own_name, err);
    if (status || kind != TARGET_NONE) return status;
    if (!config->groups || config->is_by_tensors) {
        *out = config;
        return OK;
    }
    status = find_target(&kind, &group, &config->targets, module, own_name, err);
    if (status || kind == TARGET_NONE) return status;
    if (config->groups[group].method != QUANTIZED_NOT) *out = &config->groups[group];
    return OK;
}

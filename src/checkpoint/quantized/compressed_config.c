#include "checkpoint/quantized/compressed_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"

enum { GROUPS_MAX = 64 };

enum strategy { BY_TENSOR, BY_CHANNEL, BY_GROUP, BY_BLOCK, BY_TENSOR_GROUP, NO_STRATEGY };
static const char *const strategies[] = {"tensor", "channel", "group", "block", "tensor_group"};

// The scheme of a group's weights.
struct scheme {
    bool is_float;
    int64_t bits;
    size_t strategy;
};

enum format { FLOAT, NAIVE, INT, PACK, NVFP4, MXFP4, MXFP8, NO_FORMAT };
static const char *const formats[] = {
    "float-quantized",      "naive-quantized",      "int-quantized",  "pack-quantized",
    "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized"};

// Objects that must be empty, because they change what the numbers mean. The format "dense" says
// that nothing is left out.
static enum status check_empty(const json_t *object, const char *key, const char *what,
                               struct err *err) {
    const json_t *value = jread_get(object, key);
    if (!value || (json_is_object(value) && !json_object_size(value))) return OK;
    const char *format = json_string_value(jread_get(value, "format"));
    if (format && strcmp(format, "dense") == 0) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"%s\" of \"quantization_config\" is not empty, which is not supported",
                   what, key);
}

// The strategy that the package takes where the configuration has none.
static enum strategy strategy_of_size(const json_t *size) {
    if (!size) return BY_TENSOR;
    return json_integer_value(size) == -1 ? BY_CHANNEL : BY_GROUP;
}

static enum status read_scheme(struct scheme *scheme, struct quantization_config *out,
                               const json_t *weights, const char *what, struct err *err) {
    static const char *const known[] = {
        "num_bits", "type",     "symmetric", "strategy",        "group_size",  "block_structure",
        "dynamic",  "actorder", "observer",  "observer_kwargs", "scale_dtype", "zp_dtype"};
    static const char *const types[] = {"int", "float"};
    static const char *const orders[] = {"group", "dynamic", "weight", "static"};
    size_t type = 0;
    bool is_dynamic = false;
    scheme->strategy = NO_STRATEGY;
    out->is_symmetric = true;
    enum status status =
        quantization_config_check_keys(weights, known, ARRAY_LEN(known), what, err);
    if (!status) status = jread_int(weights, "num_bits", 0, 64, &scheme->bits, what, err);
    if (!status) status = quantization_config_want(weights, "type", types, 2, &type, what, err);
    if (!status) status = jread_bool(weights, "symmetric", &out->is_symmetric, what, err);
    if (!status) status = jread_bool(weights, "dynamic", &is_dynamic, what, err);
    if (!status && !json_is_boolean(jread_get(weights, "actorder"))) {
        status = quantization_config_want(weights, "actorder", orders, ARRAY_LEN(orders), NULL,
                                          what, err);
    }
    if (!status) {
        status = quantization_config_want(weights, "strategy", strategies, ARRAY_LEN(strategies),
                                          &scheme->strategy, what, err);
    }
    if (status) return status;
    if (is_dynamic) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"dynamic\" of the weights of \"quantization_config\" is true, which "
                       "is not supported",
                       what);
    }
    scheme->is_float = type == 1;
    if (scheme->strategy == NO_STRATEGY) {
        scheme->strategy = strategy_of_size(jread_get(weights, "group_size"));
    }
    switch (scheme->strategy) {
    case BY_TENSOR:
        return OK;
    case BY_BLOCK:
        if (!jread_get(weights, "block_structure")) break;
        return quantization_config_block(out, weights, "block_structure", what, err);
    case BY_GROUP:
    case BY_TENSOR_GROUP:
        if (!jread_get(weights, "group_size")) break;
        return quantization_config_group(out, weights, what, err);
    case BY_CHANNEL:
        out->block_rows = 1;
        return OK;
    default:
        break;
    }
    return err_set(
        err, ERR_FORMAT,
        "%s: the weights of \"quantization_config\" have the \"strategy\" %s, but not the "
        "size that it needs",
        what, strategies[scheme->strategy]);
}

// The method is what the format and the weights' type and bits say together.
static enum status choose_method(struct quantization_config *out, const struct scheme *scheme,
                                 size_t format, const char *what, struct err *err) {
    static const struct {
        bool is_float;
        int64_t bits_min, bits_max;
        size_t format;
        enum quantization_method method;
    } rows[] = {
        {true, 8, 8, FLOAT, QUANTIZED_FP8},   {true, 8, 8, NAIVE, QUANTIZED_FP8},
        {true, 8, 8, MXFP8, QUANTIZED_FP8},   {false, 2, 8, INT, QUANTIZED_INT8}, // a code a byte
        {false, 2, 8, NAIVE, QUANTIZED_INT8}, {false, 2, 8, PACK, QUANTIZED_PACKED},
        {true, 4, 4, NVFP4, QUANTIZED_NVFP4}, {true, 4, 4, MXFP4, QUANTIZED_MXFP4},
    };
    out->bits = (uint32_t)scheme->bits;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].is_float != scheme->is_float || rows[i].format != format ||
            scheme->bits < rows[i].bits_min || scheme->bits > rows[i].bits_max) {
            continue;
        }
        out->method = rows[i].method;
        if (out->is_symmetric || out->method == QUANTIZED_PACKED) return OK;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"symmetric\" of \"quantization_config\" is false, which is not "
                       "supported with the format %s",
                       what, formats[format]);
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"quantization_config\" has %s of %lld bits in the format %s, which is not "
                   "supported",
                   what, scheme->is_float ? "floats" : "integers", (long long)scheme->bits,
                   format < NO_FORMAT ? formats[format] : "(none)");
}

// Whether inputs of the modules are rounded to floats of 8 bits. Those of MXFP8 have a scale for 32
// of them, and are left as they are.
static enum status read_inputs(struct quantization_config *out, const json_t *group, size_t format,
                               const char *what, struct err *err) {
    const json_t *inputs = jread_get(group, "input_activations");
    const char *type = NULL;
    int64_t bits = 0;
    enum status status = jread_int(inputs, "num_bits", 0, 64, &bits, what, err);
    if (!status) status = jread_string(inputs, "type", &type, what, err);
    out->rounds_inputs = out->method == QUANTIZED_FP8 && format != MXFP8 && bits == 8 && type &&
                         strcmp(type, "float") == 0;
    return status;
}

// Reads how the group's modules are stored. `format`: the one of all groups, unless it has its own.
static enum status read_group(struct quantization_config *out, const json_t *group, size_t format,
                              const char *what, struct err *err) {
    static const char *const known[] = {"targets", "weights", "input_activations",
                                        "output_activations", "format"};
    const json_t *weights = jread_get(group, "weights");
    if (!json_is_object(group) || !json_is_object(weights)) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"config_groups\" of \"quantization_config\" has no \"weights\"", what);
    }
    struct scheme scheme = {0};
    enum status status = quantization_config_check_keys(group, known, ARRAY_LEN(known), what, err);
    if (!status) {
        status = quantization_config_want(group, "format", formats, ARRAY_LEN(formats), &format,
                                          what, err);
    }
    if (status) return status;
    if (jread_get(group, "output_activations")) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"output_activations\" of \"quantization_config\" is not supported",
                       what);
    }
    status = read_scheme(&scheme, out, weights, what, err);
    if (!status) status = choose_method(out, &scheme, format, what, err);
    return status ? status : read_inputs(out, group, format, what, err);
}

static enum status read_targets(struct quantization_config *out, const json_t *group,
                                uint32_t index, const char *what, struct err *err) {
    const json_t *targets = jread_get(group, "targets");
    enum status status = OK;
    if (!json_array_size(targets)) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"targets\" of \"quantization_config\" is %s, want a list of names",
                       what, json_is_array(targets) ? "empty" : jread_type_name(targets));
    }
    for (size_t i = 0; i < json_array_size(targets) && !status; i++) {
        const char *text = json_string_value(json_array_get(targets, i));
        if (!text) {
            return err_set(err, ERR_FORMAT,
                           "%s: \"targets\" of \"quantization_config\" has %s, want strings", what,
                           jread_type_name(json_array_get(targets, i)));
        }
        status = module_targets_add(&out->targets, text, index, what, err);
    }
    return status;
}

static bool is_all_linears(const struct module_targets *targets) {
    return targets->count == 1 && strcmp(targets->items[0].text, "Linear") == 0;
}

static enum status read_groups(struct quantization_config *out, const json_t *object, size_t format,
                               const char *what, struct err *err) {
    json_t *groups = jread_get(object, "config_groups");
    size_t count = json_object_size(groups);
    if (!count || count > GROUPS_MAX) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"config_groups\" of \"quantization_config\" has %zu groups, want 1 to "
                       "%d",
                       what, count, GROUPS_MAX);
    }
    out->groups = calloc(count, sizeof *out->groups);
    if (!out->groups) return err_nomem(err, "config_groups");
    enum status status = OK;
    for (void *at = json_object_iter(groups); at && !status;
         at = json_object_iter_next(groups, at)) {
        const json_t *group = json_object_iter_value(at);
        status = read_group(&out->groups[out->num_groups], group, format, what, err);
        if (!status) status = read_targets(out, group, out->num_groups++, what, err);
    }
    if (status) return status;
    const struct quantization_config *first = &out->groups[0];
    out->method = first->method;
    out->bits = first->bits;
    out->block_rows = first->block_rows;
    out->block_cols = first->block_cols;
    out->is_symmetric = first->is_symmetric;
    out->rounds_inputs = first->rounds_inputs;
    if (count > 1 || !is_all_linears(&out->targets)) return OK;
    free(out->groups);
    module_targets_fini(&out->targets);
    out->groups = NULL;
    out->num_groups = 0;
    return OK;
}

enum status compressed_config_read(struct quantization_config *out, const json_t *object,
                                   const char *what, struct err *err) {
    static const char *const known[] = {
        "quant_method",    "format",          "config_groups",       "ignore",
        "kv_cache_scheme", "version",         "quantization_status", "global_compression_ratio",
        "sparsity_config", "transform_config"};
    // "frozen": what older versions of the package wrote. The tensors are the same.
    static const char *const stored[] = {"compressed", "frozen"};
    size_t format = NO_FORMAT;
    enum status status = quantization_config_check_keys(object, known, ARRAY_LEN(known), what, err);
    if (!status) {
        status = quantization_config_want(object, "quantization_status", stored, ARRAY_LEN(stored),
                                          NULL, what, err);
    }
    if (!status) status = check_empty(object, "sparsity_config", what, err);
    if (!status) status = check_empty(object, "transform_config", what, err);
    if (!status && !json_is_string(jread_get(object, "format"))) {
        status = err_set(err, ERR_FORMAT, "%s: \"format\" of \"quantization_config\" is %s", what,
                         jread_type_name(jread_get(object, "format")));
    }
    const char *name = json_string_value(jread_get(object, "format"));
    // "mixed-precision": each group has its own.
    if (!status && strcmp(name, "mixed-precision") != 0) {
        status = quantization_config_want(object, "format", formats, ARRAY_LEN(formats), &format,
                                          what, err);
    }
    if (!status) status = read_groups(out, object, format, what, err);
    return status ? status : quantization_config_skip_list(out, object, "ignore", what, err);
}

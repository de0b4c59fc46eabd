#include "checkpoint/quantized/quark_config.h"

#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "checkpoint/quantized/compressed_config.h"

// Keys of a tensor's scheme whose values matter.
static const char *const scheme_keys[] = {"dtype",      "qscheme",      "group_size", "ch_axis",
                                          "is_dynamic", "scale_format", "symmetric"};

static enum status read_weights(struct quantization_config *out, const json_t *weights,
                                const char *what, struct err *err) {
    static const struct {
        const char *dtype, *scheme;
        int64_t group, axis; // 0: the scheme has none
        enum quantization_method method;
        uint32_t block_rows, block_cols;
    } rows[] = {{"fp8_e4m3", "per_tensor", 0, 0, QUANTIZED_FP8, 0, 0},
                {"fp8_e4m3", "per_channel", 0, 0, QUANTIZED_FP8, 1, 0},
                {"fp4", "per_group", 32, -1, QUANTIZED_MXFP4, 1, 32}};
    const char *dtype = NULL, *scheme = NULL, *format = NULL;
    int64_t group = 0, axis = 0;
    bool is_dynamic = false;
    enum status status = jread_string(weights, "dtype", &dtype, what, err);
    if (!status) status = jread_string(weights, "qscheme", &scheme, what, err);
    if (!status) status = jread_string(weights, "scale_format", &format, what, err);
    if (!status) status = jread_int(weights, "group_size", 0, 1 << 16, &group, what, err);
    if (!status) status = jread_int(weights, "ch_axis", -1, 1, &axis, what, err);
    if (!status) status = jread_bool(weights, "is_dynamic", &is_dynamic, what, err);
    for (size_t i = 0; i < ARRAY_LEN(rows) && dtype && scheme && !status && !is_dynamic; i++) {
        bool is_scale = (format && strcmp(format, "e8m0") == 0) == (rows[i].group != 0);
        if (strcmp(rows[i].dtype, dtype) != 0 || strcmp(rows[i].scheme, scheme) != 0) continue;
        if (rows[i].group != group || rows[i].axis != axis || !is_scale) continue;
        out->method = rows[i].method;
        out->bits = out->method == QUANTIZED_FP8 ? 8 : 4;
        out->block_rows = rows[i].block_rows;
        out->block_cols = rows[i].block_cols;
        out->is_symmetric = true;
        return OK;
    }
    return status
               ? status
               : err_set(err, ERR_UNSUPPORTED,
                         "%s: \"quantization_config\" has weights of the type %.40s, %.40s, which "
                         "are not supported; want fp8_e4m3 per_tensor or per_channel, or fp4 with "
                         "a scale in e8m0 for 32",
                         what, dtype ? dtype : "(none)", scheme ? scheme : "(none)");
}

// Layers with schemes of their own: their weights have to be as all are.
static enum status check_layers(const json_t *object, const char *key, const json_t *weights,
                                const char *what, struct err *err) {
    const char *name;
    json_t *layer, *layers = jread_get(object, key);
    if (layers && !json_is_object(layers)) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"%s\" of \"quantization_config\" is %s, want an object", what, key,
                       jread_type_name(layers));
    }
    json_object_foreach(layers, name, layer) {
        const json_t *own = jread_get(layer, "weight");
        for (size_t i = 0; i < ARRAY_LEN(scheme_keys); i++) {
            const json_t *a = jread_get(own, scheme_keys[i]);
            const json_t *b = jread_get(weights, scheme_keys[i]);
            if ((!a && !b) || json_equal(a, b)) continue;
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: \"%s\" of \"quantization_config\" has other weights for \"%.60s\", "
                           "which is not supported",
                           what, key, name);
        }
    }
    return OK;
}

// Algorithms that change weights before they are rounded. Others may change inputs too.
static enum status check_algorithms(const json_t *object, const char *what, struct err *err) {
    static const char *const names[] = {"awq", "gptq", "gptaq", "smooth", "autosmoothquant"};
    const json_t *list = jread_get(object, "algo_config");
    enum status status = OK;
    if (json_is_object(list)) {
        return quantization_config_want(list, "name", names, ARRAY_LEN(names), NULL, what, err);
    }
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        status = quantization_config_want(json_array_get(list, i), "name", names, ARRAY_LEN(names),
                                          NULL, what, err);
    }
    return status;
}

enum status quark_config_read(struct quantization_config *out, const json_t *object,
                              const char *what, struct err *err) {
    static const char *const known[] = {"quant_method",
                                        "global_quant_config",
                                        "exclude",
                                        "algo_config",
                                        "export",
                                        "kv_cache_post_rope",
                                        "kv_cache_quant_config",
                                        "layer_quant_config",
                                        "layer_type_quant_config",
                                        "quant_mode",
                                        "softmax_quant_spec",
                                        "version"};
    static const char *const layers[] = {"layer_quant_config", "layer_type_quant_config"};
    const json_t *all = jread_get(object, "global_quant_config");
    const json_t *weights = jread_get(all, "weight"), *inputs = jread_get(all, "input_tensors");
    const char *type = json_string_value(jread_get(inputs, "dtype"));
    enum status status = quantization_config_check_keys(object, known, ARRAY_LEN(known), what, err);
    if (!status && !json_is_object(weights)) {
        status = err_set(err, ERR_FORMAT,
                         "%s: \"global_quant_config\" of \"quantization_config\" has no \"weight\"",
                         what);
    }
    if (!status) status = check_algorithms(object, what, err);
    if (!status) status = read_weights(out, weights, what, err);
    for (size_t i = 0; i < ARRAY_LEN(layers) && !status; i++) {
        status = check_layers(object, layers[i], weights, what, err);
    }
    out->rounds_inputs = out->method == QUANTIZED_FP8 && type && strcmp(type, "fp8_e4m3") == 0;
    return status ? status : quantization_config_skip_list(out, object, "exclude", what, err);
}

/* Layers without KV heads in a file's metadata: LFM2's short convolutions, Granite's Mamba-2. */
#include "base/json/json_out.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/gguf_model.h"

enum status gguf_read_of_layer(const struct gguf *gguf, const struct gguf_model *model,
                               const char *name, int64_t layer, bool *has_any, int64_t *number,
                               struct err *err) {
    char key[GGUF_KEY_MAX];
    struct gguf_value list;
    int64_t own = 0;
    gguf_model_key(model, name, key, sizeof key);
    bool is_found = gguf_find(gguf, key, &list);
    if (!is_found || !list.is_array || list.count < (uint64_t)model->num_layers) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is not a list of a number for each layer",
                       gguf_path(gguf), key);
    }
    bool is_number = gguf_integer(&list, (uint64_t)layer, &own);
    if (!is_number || own < 0 || own > INT32_MAX || (own && *number && own != *number)) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" has another number than 0 and %lld, which is not supported",
                       gguf_path(gguf), key, (long long)*number);
    }
    *has_any = own > 0;
    if (own) *number = own;
    return OK;
}

enum status gguf_write_layer_types(const struct gguf *gguf, const struct gguf_model *model,
                                   const char *without, struct json_out *out, struct err *err) {
    int64_t num_kv_heads = 0;
    json_out_raw(out, ", \"layer_types\": [");
    for (int64_t i = 0; i < model->num_layers; i++) {
        bool attends = false;
        enum status status = gguf_read_of_layer(gguf, model, "attention.head_count_kv", i, &attends,
                                                &num_kv_heads, err);
        if (status) return status;
        json_out_rawf(out, "%s\"%s\"", i ? ", " : "", attends ? "full_attention" : without);
    }
    json_out_rawf(out, "], \"num_key_value_heads\": %lld", (long long)num_kv_heads);
    return OK;
}

// A file has the MLP's size as adjust_mlp_size makes it, so nothing is left to adjust.
enum status gguf_write_convs(const struct gguf *gguf, const struct gguf_model *model,
                             struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    int64_t taps = 0;
    gguf_model_key(model, "shortconv.l_cache", key, sizeof key);
    enum status status = gguf_read_int(gguf, key, 1, INT32_MAX, &taps, err);
    if (status) return status;
    if (!taps) return gguf_missing(gguf, key, err);
    json_out_rawf(out, ", \"conv_L_cache\": %lld, \"block_auto_adjust_ff_dim\": false",
                  (long long)taps);
    return gguf_write_layer_types(gguf, model, "conv", out, err);
}

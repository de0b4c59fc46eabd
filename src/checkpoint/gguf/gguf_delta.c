/* Gated delta nets of Qwen3-Next, Qwen3.5 and Qwen3.6 in a file's metadata. llama.cpp has its keys
 * of Mamba for them. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/json_out.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/gguf_model.h"

static const char shared_size_key[] = "expert_shared_feed_forward_length";
static const char recurrent_key[] = "attention.recurrent_layers";
static const char interval_key[] = "full_attention_interval";

bool gguf_delta_has_key(const char *key) {
    const char *const keys[] = {shared_size_key,   recurrent_key,        interval_key,
                                "ssm.conv_kernel", "ssm.group_count",    "ssm.inner_size",
                                "ssm.state_size",  "ssm.time_step_rank", "nextn_predict_layers"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (strcmp(key, keys[i]) == 0) return true;
    }
    return false;
}

enum status gguf_delta_read(struct gguf_model *model, const struct gguf *gguf, struct err *err) {
    enum { HEADS_MAX = 1 << 10, DIM_MAX = 1 << 10, INNER_MAX = 1 << 20 };
    int64_t keys = 0, heads = 0, key_dim = 0, inner = 0;
    const struct {
        const char *key;
        int64_t max, *out;
    } sizes[] = {
        {"ssm.group_count", HEADS_MAX, &keys},
        {"ssm.time_step_rank", HEADS_MAX, &heads},
        {"ssm.state_size", DIM_MAX, &key_dim},
        {"ssm.inner_size", INNER_MAX, &inner},
    };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char key[GGUF_KEY_MAX];
        gguf_model_key(model, sizes[i].key, key, sizeof key);
        enum status status = gguf_read_int(gguf, key, 1, sizes[i].max, sizes[i].out, err);
        if (status) return status;
        if (!*sizes[i].out) return gguf_missing(gguf, key, err);
    }
    if (heads % keys || inner % heads) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"%s.ssm.inner_size\" is %lld, want a multiple of the %lld of "
                       "\"ssm.time_step_rank\", and that of the %lld of \"ssm.group_count\"",
                       gguf_path(gguf), model->name, (long long)inner, (long long)heads,
                       (long long)keys);
    }
    model->delta = (struct gguf_delta){.num_keys = (uint32_t)keys,
                                       .num_heads = (uint32_t)heads,
                                       .key_dim = (uint32_t)key_dim,
                                       .value_dim = (uint32_t)(inner / heads)};
    return OK;
}

// The layers with a state are a list, or all but every so many-th.
static enum status write_layer_types(const struct gguf *gguf, const struct gguf_model *model,
                                     struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    struct gguf_value list;
    bool has_list = false;
    int64_t interval = 4;
    gguf_model_key(model, recurrent_key, key, sizeof key);
    enum status status = gguf_read_array(gguf, key, GGUF_BOOL, &list, &has_list, err);
    if (!status && has_list && list.count < (uint64_t)model->num_layers) {
        status =
            err_set(err, ERR_FORMAT, "%s: \"%s\" has %llu entries for %lld layers", gguf_path(gguf),
                    key, (unsigned long long)list.count, (long long)model->num_layers);
    }
    gguf_model_key(model, interval_key, key, sizeof key);
    if (!status) status = gguf_read_int(gguf, key, 1, UINT16_MAX, &interval, err);
    if (status) return status;
    json_out_raw(out, ", \"layer_types\": [");
    for (uint32_t i = 0; i < model->num_layers; i++) {
        int64_t is_linear = (i + 1) % interval != 0;
        if (has_list && !gguf_integer(&list, i, &is_linear)) is_linear = 0;
        json_out_rawf(out, "%s\"%s_attention\"", i ? ", " : "", is_linear ? "linear" : "full");
    }
    json_out_raw(out, "]");
    return OK;
}

// Layers without a router are dense.
static void write_dense_layers(const struct gguf_files *files, const struct gguf_model *model,
                               struct json_out *out) {
    const char *separator = "";
    json_out_raw(out, ", \"mlp_only_layers\": [");
    for (uint32_t i = 0; i < model->num_layers; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", i);
        if (gguf_files_find(files, name)) continue;
        json_out_rawf(out, "%s%u", separator, i);
        separator = ", ";
    }
    json_out_raw(out, "]");
}

enum status gguf_write_delta(const struct gguf_files *files, const struct gguf_model *model,
                             struct json_out *out, struct err *err) {
    const struct gguf *gguf = files->files[0];
    const struct gguf_delta *delta = &model->delta;
    char key[GGUF_KEY_MAX];
    int64_t taps = 0, shared_size = 0;
    gguf_model_key(model, "ssm.conv_kernel", key, sizeof key);
    enum status status = gguf_read_int(gguf, key, 1, UINT16_MAX, &taps, err);
    if (!status && !taps) status = gguf_missing(gguf, key, err);
    gguf_model_key(model, shared_size_key, key, sizeof key);
    if (!status) status = gguf_read_int(gguf, key, 1, INT32_MAX, &shared_size, err);
    if (!status && !shared_size && model->shared) status = gguf_missing(gguf, key, err);
    if (status) return status;
    json_out_rawf(out,
                  ", \"linear_num_key_heads\": %u, \"linear_num_value_heads\": %u, "
                  "\"linear_key_head_dim\": %u, \"linear_value_head_dim\": %u, "
                  "\"linear_conv_kernel_dim\": %lld",
                  delta->num_keys, delta->num_heads, delta->key_dim, delta->value_dim,
                  (long long)taps);
    if (model->shared) {
        json_out_rawf(out, ", \"shared_expert_intermediate_size\": %lld", (long long)shared_size);
        if (strcmp(model->name, "qwen3next") == 0) write_dense_layers(files, model, out);
    }
    json_out_rawf(out, ", \"mtp_num_hidden_layers\": %lld", (long long)model->num_draft_layers);
    return write_layer_types(gguf, model, out, err);
}

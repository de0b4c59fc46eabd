/* Models with Mamba-2 in a file's metadata. In Granite 4's, layers without KV heads have it, and
 * each layer has an MLP. A layer of Nemotron-H is one block: it is attention if it has KV heads, an
 * MLP or experts if it has a width of these, else Mamba-2. All layers of Falcon-H1 are alike. Its
 * factors are a part of the weights. */
#include <string.h>

#include "base/compiler.h"
#include "base/json/json_out.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/gguf_model.h"

static const char shared_size_key[] = "expert_shared_feed_forward_length";

// A file's keys, and config.json's names of Granite 4 and Falcon-H1, and of Nemotron-H.
static const struct {
    const char *key, *granite, *nemotron;
} sizes[] = {{"ssm.conv_kernel", "mamba_d_conv", "conv_kernel"},
             {"ssm.state_size", "mamba_d_state", "ssm_state_size"},
             {"ssm.group_count", "mamba_n_groups", "n_groups"},
             {"ssm.time_step_rank", "mamba_n_heads", "mamba_num_heads"}};

bool gguf_mamba_has_key(const char *key) {
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        if (strcmp(key, sizes[i].key) == 0) return true;
    }
    return strcmp(key, shared_size_key) == 0 || strcmp(key, "ssm.inner_size") == 0;
}

static enum status require(const struct gguf *gguf, const struct gguf_model *model,
                           const char *name, int64_t *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    *out = 0;
    gguf_model_key(model, name, key, sizeof key);
    enum status status = gguf_read_int(gguf, key, 1, INT32_MAX, out, err);
    return status || *out ? status : gguf_missing(gguf, key, err);
}

// What the file calls in_proj's rows of x: as wide as all heads. Granite 4's are a multiple of
// hidden_size.
static enum status write_width(const struct gguf *gguf, const struct gguf_model *model,
                               struct json_out *out, struct err *err) {
    int64_t inner, heads, hidden;
    enum status status = require(gguf, model, "ssm.time_step_rank", &heads, err);
    if (!status) status = require(gguf, model, "embedding_length", &hidden, err);
    if (!status) status = require(gguf, model, "ssm.inner_size", &inner, err);
    if (status) return status;
    bool is_granite = !model->has_blocks && !model->is_hybrid;
    if (inner % heads || (is_granite && inner % hidden)) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"%s.ssm.inner_size\" is %lld, want a multiple of the %lld of "
                       "\"ssm.time_step_rank\"%s",
                       gguf_path(gguf), model->name, (long long)inner, (long long)heads,
                       is_granite ? " and of \"embedding_length\"" : "");
    }
    json_out_rawf(out, ", \"%s\": %lld", model->has_blocks ? "mamba_head_dim" : "mamba_d_head",
                  (long long)(inner / heads));
    if (is_granite) {
        json_out_rawf(out, ", \"mamba_expand\": %lld", (long long)(inner / hidden));
    }
    if (model->is_hybrid) json_out_rawf(out, ", \"mamba_d_ssm\": %lld", (long long)inner);
    return OK;
}

// Nemotron-H's pattern of blocks, and the sizes of attention and of MLPs.
static enum status write_blocks(const struct gguf *gguf, const struct gguf_model *model,
                                struct json_out *out, struct err *err) {
    int64_t num_kv_heads = 0, width = 0;
    json_out_raw(out, ", \"hybrid_override_pattern\": \"");
    for (int64_t i = 0; i < model->num_layers; i++) {
        bool attends = false, has_mlp = false;
        enum status status = gguf_read_of_layer(gguf, model, "attention.head_count_kv", i, &attends,
                                                &num_kv_heads, err);
        if (!status) {
            status =
                gguf_read_of_layer(gguf, model, "feed_forward_length", i, &has_mlp, &width, err);
        }
        if (status) return status;
        if (attends && has_mlp) {
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: layer %lld has KV heads and an MLP, which is not supported of %s",
                           gguf_path(gguf), (long long)i, model->name);
        }
        json_out_raw(out, attends ? "*" : !has_mlp ? "M" : model->experts ? "E" : "-");
    }
    json_out_rawf(out, "\", \"num_key_value_heads\": %lld, \"intermediate_size\": %lld",
                  (long long)num_kv_heads, (long long)width);
    return OK;
}

// Groups of experts may be missing, as in files of before llama.cpp knew them.
static enum status write_nemotron(const struct gguf *gguf, const struct gguf_model *model,
                                  struct json_out *out, struct err *err) {
    static const struct {
        const char *key, *name;
    } groups[] = {{"expert_group_count", "n_group"}, {"expert_group_used_count", "topk_group"}};
    int64_t shared = 0;
    enum status status = write_blocks(gguf, model, out, err);
    if (status || !model->experts) return status;
    for (size_t i = 0; i < ARRAY_LEN(groups) && !status; i++) {
        char key[GGUF_KEY_MAX];
        int64_t number = 1;
        gguf_model_key(model, groups[i].key, key, sizeof key);
        status = gguf_read_int(gguf, key, 0, INT32_MAX, &number, err);
        json_out_rawf(out, ", \"%s\": %lld", groups[i].name, (long long)(number ? number : 1));
    }
    if (!status) status = require(gguf, model, shared_size_key, &shared, err);
    json_out_rawf(out, ", \"moe_shared_expert_intermediate_size\": %lld", (long long)shared);
    return status;
}

static enum status write_granite(const struct gguf *gguf, const struct gguf_model *model,
                                 struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    int64_t shared = 0;
    bool has_rope = false;
    const char *size_key = model->experts ? shared_size_key : "feed_forward_length";
    enum status status = require(gguf, model, size_key, &shared, err);
    gguf_model_key(model, "rope.scaling.finetuned", key, sizeof key);
    if (!status) status = gguf_read_bool(gguf, key, &has_rope, err);
    if (status) return status;
    json_out_rawf(out, ", \"shared_intermediate_size\": %lld, \"position_embedding_type\": \"%s\"",
                  (long long)shared, has_rope ? "rope" : "nope");
    if (!model->experts) json_out_raw(out, ", \"num_local_experts\": 0");
    return gguf_write_layer_types(gguf, model, "mamba", out, err);
}

enum status gguf_write_mamba(const struct gguf_files *files, const struct gguf_model *model,
                             struct json_out *out, struct err *err) {
    const struct gguf *gguf = files->files[0];
    enum status status = write_width(gguf, model, out, err);
    for (size_t i = 0; i < ARRAY_LEN(sizes) && !status; i++) {
        int64_t size;
        status = require(gguf, model, sizes[i].key, &size, err);
        json_out_rawf(out, ", \"%s\": %lld",
                      model->has_blocks ? sizes[i].nemotron : sizes[i].granite, (long long)size);
    }
    if (status) return status;
    if (model->has_blocks) return write_nemotron(gguf, model, out, err);
    if (!model->is_hybrid) return write_granite(gguf, model, out, err);
    bool has_norm = gguf_files_find(files, "blk.0.ssm_norm.weight");
    json_out_rawf(out, ", \"mamba_rms_norm\": %s, \"mamba_norm_before_gate\": false",
                  has_norm ? "true" : "false");
    return OK;
}

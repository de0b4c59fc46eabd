/* Granite 4's hybrid models in a file's metadata: Mamba-2, and layers with attention, which are
 * those with KV heads. */
#include <string.h>

#include "base/compiler.h"
#include "base/json/json_out.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/gguf_model.h"

static const char shared_size_key[] = "expert_shared_feed_forward_length";

bool gguf_mamba_has_key(const char *key) {
    const char *const keys[] = {shared_size_key,  "ssm.conv_kernel", "ssm.group_count",
                                "ssm.inner_size", "ssm.state_size",  "ssm.time_step_rank"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (strcmp(key, keys[i]) == 0) return true;
    }
    return false;
}

// What the file calls in_proj's rows of x: as wide as all heads, and a multiple of hidden_size.
static enum status write_width(const struct gguf *gguf, const struct gguf_model *model,
                               struct json_out *out, struct err *err) {
    int64_t inner = 0, heads = 0, hidden = 0;
    char key[GGUF_KEY_MAX];
    gguf_model_key(model, "ssm.time_step_rank", key, sizeof key);
    enum status status = gguf_read_int(gguf, key, 1, INT32_MAX, &heads, err);
    gguf_model_key(model, "embedding_length", key, sizeof key);
    if (!status) status = gguf_read_int(gguf, key, 1, INT32_MAX, &hidden, err);
    gguf_model_key(model, "ssm.inner_size", key, sizeof key);
    if (!status) status = gguf_read_int(gguf, key, 1, INT32_MAX, &inner, err);
    if (status) return status;
    if (!inner || !heads || inner % heads || inner % hidden) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"%s\" is %lld, want a multiple of the %lld of \"ssm.time_step_rank\" "
                       "and the %lld of \"embedding_length\"",
                       gguf_path(gguf), key, (long long)inner, (long long)heads, (long long)hidden);
    }
    json_out_rawf(out, ", \"mamba_n_heads\": %lld, \"mamba_d_head\": %lld, \"mamba_expand\": %lld",
                  (long long)heads, (long long)(inner / heads), (long long)(inner / hidden));
    return OK;
}

enum status gguf_write_mamba(const struct gguf *gguf, const struct gguf_model *model,
                             struct json_out *out, struct err *err) {
    static const struct {
        const char *key, *name;
    } sizes[] = {{"ssm.conv_kernel", "mamba_d_conv"},
                 {"ssm.state_size", "mamba_d_state"},
                 {"ssm.group_count", "mamba_n_groups"}};
    char key[GGUF_KEY_MAX];
    int64_t shared = 0;
    bool has_rope = false;
    enum status status = write_width(gguf, model, out, err);
    for (size_t i = 0; i < ARRAY_LEN(sizes) && !status; i++) {
        int64_t size = 0;
        gguf_model_key(model, sizes[i].key, key, sizeof key);
        status = gguf_read_int(gguf, key, 1, INT32_MAX, &size, err);
        if (!status && !size) status = gguf_missing(gguf, key, err);
        json_out_rawf(out, ", \"%s\": %lld", sizes[i].name, (long long)size);
    }
    gguf_model_key(model, model->experts ? shared_size_key : "feed_forward_length", key,
                   sizeof key);
    if (!status) status = gguf_read_int(gguf, key, 1, INT32_MAX, &shared, err);
    if (!status && !shared) status = gguf_missing(gguf, key, err);
    gguf_model_key(model, "rope.scaling.finetuned", key, sizeof key);
    if (!status) status = gguf_read_bool(gguf, key, &has_rope, err);
    if (status) return status;
    json_out_rawf(out, ", \"shared_intermediate_size\": %lld, \"position_embedding_type\": \"%s\"",
                  (long long)shared, has_rope ? "rope" : "nope");
    if (!model->experts) json_out_raw(out, ", \"num_local_experts\": 0");
    return gguf_write_layer_types(gguf, model, "mamba", out, err);
}

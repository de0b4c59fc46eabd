/* DeepSeek's architecture, which GLM-4.7-Flash has too: latent attention, and experts in groups.
 * The scores of experts tell V2 (softmax) from V3 (sigmoids). Newer files have the sizes of the
 * cache's row under the keys of k and v, and those of heads under keys that end in _mla. */
#include "base/json/json_out.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/gguf_model.h"

enum { GATING_SIGMOID = 2, DIM_MAX = 1 << 14 };

static enum status read_size(const struct gguf *gguf, const struct gguf_model *model,
                             const char *key, int64_t *out, struct err *err) {
    char full[GGUF_KEY_MAX];
    return gguf_read_int(gguf, gguf_model_key(model, key, full, sizeof full), 0, DIM_MAX, out, err);
}

enum status gguf_latent_read(struct gguf_model *model, const struct gguf *gguf, struct err *err) {
    int64_t gating = 1;
    enum status status = read_size(gguf, model, "expert_gating_func", &gating, err);
    if (!status && gating != GATING_SIGMOID) {
        model->architecture = "DeepseekV2ForCausalLM";
        model->choice_bias = NULL;
    }
    if (!status) status = read_size(gguf, model, "rope.dimension_count", &model->head_dim, err);
    return status;
}

static enum status write_groups(const struct gguf *gguf, const struct gguf_model *model,
                                struct json_out *out, struct err *err) {
    int64_t count = 1, top = 1;
    enum status status = read_size(gguf, model, "expert_group_count", &count, err);
    if (!status) status = read_size(gguf, model, "expert_group_used_count", &top, err);
    if (count < 1) count = 1;
    if (top < 1) top = count;
    json_out_rawf(out, ", \"n_group\": %lld, \"topk_group\": %lld", (long long)count,
                  (long long)top);
    if (count > 1 && !model->choice_bias) {
        json_out_raw(out, ", \"topk_method\": \"group_limited_greedy\"");
    }
    return status;
}

enum status gguf_write_latent(const struct gguf_files *files, const struct gguf_model *model,
                              struct json_out *out, struct err *err) {
    const struct gguf *gguf = files->files[0];
    int64_t query_rank = 0, rank = 0, key_dim = 0, value_dim = 0, rope_dim = model->head_dim;
    const struct {
        const char *key;
        int64_t *out;
    } sizes[] = {
        {"attention.q_lora_rank", &query_rank}, {"attention.kv_lora_rank", &rank},
        {"attention.key_length", &key_dim},     {"attention.value_length", &value_dim},
        {"attention.key_length_mla", &key_dim}, {"attention.value_length_mla", &value_dim}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        enum status status = read_size(gguf, model, sizes[i].key, sizes[i].out, err);
        if (status) return status;
    }
    if (!rank || !value_dim || key_dim <= rope_dim) {
        return err_set(
            err, ERR_FORMAT,
            "%s: latents of %lld, keys of %lld, of which %lld are rotated, and values of "
            "%lld do not fit together",
            gguf_path(gguf), (long long)rank, (long long)key_dim, (long long)rope_dim,
            (long long)value_dim);
    }
    json_out_rawf(
        out,
        ", \"kv_lora_rank\": %lld, \"qk_nope_head_dim\": %lld, \"qk_rope_head_dim\": %lld, "
        "\"v_head_dim\": %lld",
        (long long)rank, (long long)(key_dim - rope_dim), (long long)rope_dim,
        (long long)value_dim);
    if (query_rank) {
        json_out_rawf(out, ", \"q_lora_rank\": %lld", (long long)query_rank);
    } else {
        json_out_raw(out, ", \"q_lora_rank\": null");
    }
    return write_groups(gguf, model, out, err);
}

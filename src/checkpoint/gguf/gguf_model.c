#include "checkpoint/gguf/gguf_model.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "checkpoint/gguf/file/gguf_read.h"

// Mistral's dense models are published as llama. With experts llama is Mixtral.
static const struct gguf_model models[] = {
    {.name = "llama", .architecture = "LlamaForCausalLM", .is_interleaved = true},
    {.name = "llama",
     .architecture = "MixtralForCausalLM",
     .is_interleaved = true,
     .router = "block_sparse_moe.gate",
     .experts = "block_sparse_moe.experts",
     .gate = "w1",
     .up = "w3",
     .down = "w2"},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM"},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM"},
    {.name = "qwen3moe",
     .architecture = "Qwen3MoeForCausalLM",
     .router = "mlp.gate",
     .experts = "mlp.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj"},
};

const char *gguf_model_key(const struct gguf_model *model, const char *key, char *out,
                           size_t size) {
    snprintf(out, size, "%s.%s", model->name, key);
    return out;
}

static enum status check_kind(const struct gguf *gguf, struct gguf_string architecture,
                              struct err *err) {
    struct gguf_string type = {"model", 5};
    enum status status = gguf_read_string(gguf, "general.type", &type, err);
    if (status) return status;
    if (gguf_string_is(type, "adapter")) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s is a LoRA adapter, which is not run beside its model: merge the two and "
                       "convert that",
                       gguf_path(gguf));
    }
    if (gguf_string_is(type, "mmproj") || gguf_string_is(architecture, "clip")) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s is a projector of images or sound (mmproj): give the file of the "
                       "language model",
                       gguf_path(gguf));
    }
    if (gguf_string_is(type, "model")) return OK;
    return err_set(err, ERR_UNSUPPORTED, "%s: \"general.type\" is \"%.*s\", want model",
                   gguf_path(gguf), (int)type.len, type.text);
}

static enum status find_model(struct gguf_model *model, const struct gguf *gguf,
                              struct gguf_string name, struct err *err) {
    char known[200] = "", key[GGUF_KEY_MAX];
    size_t used = 0;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        *model = models[i];
        int64_t num_experts = 0;
        if (!model->experts || strcmp(model->name, "llama") != 0) {
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     model->name);
        }
        if (!gguf_string_is(name, model->name)) continue;
        enum status status =
            gguf_read_int(gguf, gguf_model_key(model, "expert_count", key, sizeof key), 0, 1 << 12,
                          &num_experts, err);
        if (status) return status;
        if (i + 1 < ARRAY_LEN(models) && strcmp(models[i + 1].name, model->name) == 0 &&
            num_experts) {
            continue; // the next entry has experts
        }
        model->num_experts = num_experts;
        if (!num_experts == !model->experts) return OK;
        return err_set(err, ERR_UNSUPPORTED, "%s: \"%s\" is %lld, which is not supported of %s",
                       gguf_path(gguf), key, (long long)num_experts, model->name);
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"general.architecture\" is \"%.*s\", which is not supported, want one of "
                   "%s",
                   gguf_path(gguf), (int)name.len, name.text, known);
}

static enum status require(const struct gguf *gguf, const struct gguf_model *model,
                           const char *name, int64_t max, int64_t *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    struct gguf_value value;
    gguf_model_key(model, name, key, sizeof key);
    if (!gguf_find(gguf, key, &value)) return gguf_missing(gguf, key, err);
    return gguf_read_int(gguf, key, 1, max, out, err);
}

enum status gguf_model_read(struct gguf_model *model, const struct gguf *gguf, struct err *err) {
    struct gguf_string name = {"", 0};
    int64_t hidden_size = 0, num_heads = 1;
    char key[GGUF_KEY_MAX];
    enum status status = gguf_read_string(gguf, "general.architecture", &name, err);
    if (!status) status = check_kind(gguf, name, err);
    if (!status && !name.len) {
        status = gguf_missing(gguf, "general.architecture", err);
    }
    if (!status) status = find_model(model, gguf, name, err);
    if (!status) status = require(gguf, model, "block_count", 1 << 12, &model->num_layers, err);
    if (!status) status = require(gguf, model, "embedding_length", 1 << 18, &hidden_size, err);
    if (!status) status = require(gguf, model, "attention.head_count", 1 << 12, &num_heads, err);
    if (status) return status;
    model->head_dim = hidden_size / num_heads;
    gguf_model_key(model, "attention.key_length", key, sizeof key);
    struct gguf_value value;
    if (!gguf_find(gguf, key, &value) && hidden_size % num_heads) {
        return gguf_missing(gguf, key, err);
    }
    return gguf_read_int(gguf, key, 2, 1 << 12, &model->head_dim, err);
}

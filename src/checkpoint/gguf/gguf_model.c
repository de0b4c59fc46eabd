#include "checkpoint/gguf/gguf_model.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "checkpoint/gguf/file/gguf_read.h"

// Mistral's dense models are published as llama. With experts llama is Mixtral, and with windows
// olmo2 is OLMo 3.
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
    {.name = "gemma", .architecture = "GemmaForCausalLM", .has_norms_plus_one = true},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .has_norms_plus_one = true,
     .window_pattern = 2,
     .has_one_rope = true},
    {.name = "gemma3",
     .architecture = "Gemma3ForCausalLM",
     .has_norms_plus_one = true,
     .window_pattern = 6},
    {.name = "gemma4",
     .architecture = "Gemma4ForCausalLM",
     .has_global_heads = true,
     .window_pattern = 6},
    {.name = "gemma4",
     .architecture = "Gemma4ForCausalLM",
     .has_global_heads = true,
     .window_pattern = 6,
     .router = "router.proj",
     .router_norm = "router.scale",
     .expert_scales = "router.per_expert_scale",
     .experts = "experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj"},
    {.name = "deepseek2",
     .architecture = "DeepseekV3ForCausalLM",
     .has_latents = true,
     .router = "mlp.gate",
     .experts = "mlp.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .shared = "mlp.shared_experts",
     .choice_bias = "mlp.gate.e_score_correction_bias"},
    {.name = "arcee", .architecture = "ArceeForCausalLM", .is_interleaved = true},
    {.name = "command-r", .architecture = "CohereForCausalLM", .has_layer_norm = true},
    {.name = "cohere2",
     .architecture = "Cohere2ForCausalLM",
     .has_layer_norm = true,
     .window_pattern = 4,
     .has_one_rope = true},
    {.name = "lfm2", .architecture = "Lfm2ForCausalLM", .has_convs = true},
    {.name = "lfm2moe",
     .architecture = "Lfm2MoeForCausalLM",
     .has_convs = true,
     .router = "feed_forward.gate",
     .experts = "feed_forward.experts",
     .gate = "w1",
     .up = "w3",
     .down = "w2",
     .choice_bias = "feed_forward.expert_bias"},
    {.name = "nemotron",
     .architecture = "NemotronForCausalLM",
     .has_layer_norm = true,
     .has_norms_plus_one = true,
     .is_partial = true},
    {.name = "nemotron_h",
     .architecture = "NemotronHForCausalLM",
     .mamba = "mixer",
     .has_blocks = true},
    {.name = "nemotron_h_moe",
     .architecture = "NemotronHForCausalLM",
     .mamba = "mixer",
     .has_blocks = true,
     .router = "mixer.gate",
     .experts = "mixer.experts",
     .up = "up_proj",
     .down = "down_proj",
     .shared = "mixer.shared_experts",
     .choice_bias = "mixer.gate.e_score_correction_bias"},
    {.name = "stablelm",
     .architecture = "StableLmForCausalLM",
     .has_layer_norm = true,
     .is_partial = true},
    {.name = "starcoder2", .architecture = "Starcoder2ForCausalLM", .has_layer_norm = true},
    {.name = "dots1",
     .architecture = "Dots1ForCausalLM",
     .router = "mlp.gate",
     .experts = "mlp.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .shared = "mlp.shared_experts",
     .choice_bias = "mlp.gate.e_score_correction_bias"},
    {.name = "ernie4_5", .architecture = "Ernie4_5ForCausalLM"},
    {.name = "ernie4_5-moe",
     .architecture = "Ernie4_5_MoeForCausalLM",
     .router = "mlp.gate",
     .experts = "mlp.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .shared = "mlp.shared_experts",
     .choice_bias = "mlp.moe_statics.e_score_correction_bias"},
    {.name = "falcon-h1",
     .architecture = "FalconH1ForCausalLM",
     .mamba = "mamba",
     .is_hybrid = true,
     .final_norm = "model.final_layernorm"},
    {.name = "glm4", .architecture = "Glm4ForCausalLM", .is_partial = true},
    {.name = "glm4moe",
     .architecture = "Glm4MoeForCausalLM",
     .is_partial = true,
     .router = "mlp.gate",
     .experts = "mlp.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .shared = "mlp.shared_experts",
     .choice_bias = "mlp.gate.e_score_correction_bias"},
    {.name = "gpt-oss",
     .architecture = "GptOssForCausalLM",
     .window_pattern = 2,
     .has_one_rope = true,
     .router = "mlp.router",
     .experts = "mlp.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .has_expert_bias = true},
    {.name = "hunyuan-dense", .architecture = "HunYuanDenseV1ForCausalLM"},
    {.name = "hunyuan-moe",
     .architecture = "HunYuanMoEV1ForCausalLM",
     .router = "mlp.gate.wg",
     .experts = "mlp.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .shared = "mlp.shared_mlp"},
    {.name = "minimax-m2",
     .architecture = "MiniMaxM2ForCausalLM",
     .is_partial = true,
     .router = "block_sparse_moe.gate",
     .experts = "block_sparse_moe.experts",
     .gate = "w1",
     .up = "w3",
     .down = "w2",
     .choice_bias = "block_sparse_moe.e_score_correction_bias"},
    {.name = "mistral3", .architecture = "Ministral3ForCausalLM", .is_interleaved = true},
    {.name = "granite",
     .architecture = "GraniteForCausalLM",
     .is_interleaved = true,
     .has_mamba_keys = true},
    {.name = "granitemoe",
     .architecture = "GraniteMoeForCausalLM",
     .is_interleaved = true,
     .router = "block_sparse_moe.router.layer",
     .experts = "block_sparse_moe",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj"},
    {.name = "granitehybrid",
     .architecture = "GraniteMoeHybridForCausalLM",
     .is_interleaved = true,
     .mamba = "mamba"},
    {.name = "granitehybrid",
     .architecture = "GraniteMoeHybridForCausalLM",
     .is_interleaved = true,
     .mamba = "mamba",
     .router = "block_sparse_moe.router.layer",
     .experts = "block_sparse_moe",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .shared = "shared_mlp"},
    {.name = "olmo2", .architecture = "Olmo2ForCausalLM"},
    {.name = "olmo2", .architecture = "Olmo3ForCausalLM", .window_pattern = 4},
    {.name = "olmoe",
     .architecture = "OlmoeForCausalLM",
     .router = "mlp.gate",
     .experts = "mlp.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .has_plain_weights = true},
    {.name = "phi3", .architecture = "Phi3ForCausalLM", .has_longrope = true},
    {.name = "smollm3", .architecture = "SmolLM3ForCausalLM", .is_interleaved = true},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM"},
    {.name = "seed_oss", .architecture = "SeedOssForCausalLM"},
    {.name = "exaone4",
     .architecture = "Exaone4ForCausalLM",
     .window_pattern = 4,
     .has_one_rope = true},
    {.name = "qwen2vl", .architecture = "Qwen2ForCausalLM", .has_sections = true},
    {.name = "qwen3vl", .architecture = "Qwen3ForCausalLM", .has_sections = true},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM"},
    {.name = "qwen3moe",
     .architecture = "Qwen3MoeForCausalLM",
     .router = "mlp.gate",
     .experts = "mlp.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj"},
    {.name = "qwen35",
     .architecture = "Qwen3_5ForCausalLM",
     .has_norms_plus_one = true,
     .has_sections = true,
     .is_partial = true,
     .has_delta = true,
     .has_tiled_heads = true},
    {.name = "qwen35moe",
     .architecture = "Qwen3_5MoeForCausalLM",
     .has_norms_plus_one = true,
     .has_sections = true,
     .is_partial = true,
     .has_delta = true,
     .has_tiled_heads = true,
     .router = "mlp.gate",
     .experts = "mlp.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .shared = "mlp.shared_expert",
     .shared_gate = "mlp.shared_expert_gate"},
    {.name = "qwen3next",
     .architecture = "Qwen3NextForCausalLM",
     .has_norms_plus_one = true,
     .is_partial = true,
     .has_delta = true,
     .router = "mlp.gate",
     .experts = "mlp.experts",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .shared = "mlp.shared_expert",
     .shared_gate = "mlp.shared_expert_gate"},
    {.name = "qwen3vlmoe",
     .architecture = "Qwen3MoeForCausalLM",
     .has_sections = true,
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
    char key[GGUF_KEY_MAX];
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        int64_t num_experts = 0, window = 0;
        *model = models[i];
        if (!gguf_string_is(name, model->name)) continue;
        bool has_other = i + 1 < ARRAY_LEN(models) && strcmp(models[i + 1].name, model->name) == 0;
        bool has_window = has_other && models[i + 1].window_pattern && !model->window_pattern;
        gguf_model_key(model, "attention.sliding_window", key, sizeof key);
        enum status status = has_window ? gguf_read_int(gguf, key, 0, INT32_MAX, &window, err) : OK;
        gguf_model_key(model, "expert_count", key, sizeof key);
        if (!status) status = gguf_read_int(gguf, key, 0, 1 << 12, &num_experts, err);
        if (status) return status;
        if (has_other && (has_window ? window : num_experts)) *model = models[i + 1];
        model->num_experts = num_experts;
        if (!num_experts == !model->experts) return OK;
        return err_set(err, ERR_UNSUPPORTED, "%s: \"%s\" is %lld, which is not supported of %s",
                       gguf_path(gguf), key, (long long)num_experts, model->name);
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"general.architecture\" is \"%.*s\", which is not supported; doc/gguf.md "
                   "lists those that are",
                   gguf_path(gguf), (int)name.len, name.text);
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
    if (status) return status; // there may be no model
    gguf_model_key(model, "nextn_predict_layers", key, sizeof key);
    status = gguf_read_int(gguf, key, 0, model->num_layers - 1, &model->num_draft_layers, err);
    if (status) return status;
    model->num_layers -= model->num_draft_layers;
    if (model->has_delta) status = gguf_delta_read(model, gguf, err);
    if (status) return status;
    if (model->has_latents) return gguf_latent_read(model, gguf, err);
    model->head_dim = model->heads_width = hidden_size / num_heads;
    gguf_model_key(model, "attention.key_length", key, sizeof key);
    struct gguf_value value;
    if (!gguf_find(gguf, key, &value) && hidden_size % num_heads) {
        return gguf_missing(gguf, key, err);
    }
    status = gguf_read_int(gguf, key, 2, 1 << 12, &model->head_dim, err);
    if (status || !model->has_global_heads) return status;
    model->global_head_dim = model->head_dim;
    return require(gguf, model, "attention.key_length_swa", 1 << 12, &model->head_dim, err);
}

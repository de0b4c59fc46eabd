#include "checkpoint/classes/own_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "checkpoint/classes/class_defaults.h"
#include "checkpoint/classes/mamba_config.h"
#include "checkpoint/classes/only_values.h"
#include "checkpoint/classes/rope_config.h"
#include "checkpoint/config_read.h"

enum { KEYS_MAX = 7 };

static const struct {
    const char *architecture;
    const char *keys[KEYS_MAX];
} owners[] = {
    {"ArceeForCausalLM", {"rope_interleave"}},
    {"BambaForCausalLM", {"partial_rotary_factor"}},
    {"CohereForCausalLM", {"logit_scale", "use_qk_norm"}},
    {"Cohere2ForCausalLM", {"logit_scale"}},
    {"Cohere2MoeForCausalLM",
     {"logit_scale", "prefix_dense_sliding_window_pattern", "prefix_dense_intermediate_size"}},
    {"AfmoeForCausalLM", {"mup_enabled"}},
    {"AXK1ForCausalLM", {"kv_lora_rank", "q_lora_rank", "rope_interleave"}},
    {"DeepseekV2ForCausalLM", {"kv_lora_rank", "q_lora_rank"}},
    {"DeepseekV3ForCausalLM", {"kv_lora_rank", "q_lora_rank", "rope_interleave"}},
    {"Glm4MoeLiteForCausalLM", {"kv_lora_rank", "q_lora_rank", "rope_interleave"}},
    {"FalconH1ForCausalLM", {"embedding_multiplier", "ssm_multipliers"}},
    {"Gemma2ForCausalLM",
     {"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"}},
    {"VaultGemmaForCausalLM",
     {"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"}},
    {"Gemma3ForCausalLM", {"query_pre_attn_scalar", "rope_local_base_freq"}},
    {"GptOssForCausalLM", {"swiglu_limit", "swiglu_alpha"}},
    {"Gemma4ForCausalLM",
     {"final_logit_softcapping", "global_head_dim", "use_bidirectional_attention"}},
    {"GlmForCausalLM", {"partial_rotary_factor"}},
    {"Glm4ForCausalLM", {"partial_rotary_factor"}},
    {"Glm4MoeForCausalLM", {"partial_rotary_factor", "use_qk_norm"}},
    {"GraniteForCausalLM",
     {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling",
      "rope_interleave"}},
    {"GraniteMoeForCausalLM",
     {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling",
      "rope_interleave"}},
    {"GraniteMoeSharedForCausalLM",
     {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}},
    {"GraniteMoeHybridForCausalLM",
     {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling",
      "position_embedding_type", "mamba_n_heads", "rope_interleave"}},
    {"GraniteMoeSWAForCausalLM",
     {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling",
      "layer_rope_theta"}},
    {"GraniteSWAForCausalLM",
     {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling",
      "layer_rope_theta"}},
    {"HunYuanDenseV1ForCausalLM", {"alpha"}},
    {"HyperCLOVAXForCausalLM",
     {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling",
      "use_post_norm"}},
    {"HunYuanMoEV1ForCausalLM", {"alpha"}},
    {"Lfm2ForCausalLM", {"conv_L_cache", "tie_embedding", "block_ff_dim"}},
    {"Lfm2MoeForCausalLM", {"conv_L_cache", "tie_embedding"}},
    {"Llama4ForCausalLM",
     {"attention_chunk_size", "attn_temperature_tuning", "no_rope_layers", "no_rope_layer_interval",
      "use_qk_norm"}},
    {"LlamaForCausalLM", {"rope_interleave"}}, // of GGUF files, as of the five others that have it
    {"MiniCPMForCausalLM", {"scale_emb", "scale_depth", "dim_model_base"}},
    {"MiniMaxM2ForCausalLM", {"partial_rotary_factor", "rotary_dim"}},
    {"Ministral3ForCausalLM", {"llama_4_scaling_beta", "rope_interleave"}},
    {"Mistral4ForCausalLM",
     {"kv_lora_rank", "q_lora_rank", "rope_interleave", "llama_4_scaling_beta",
      "partial_rotary_factor"}},
    {"MixtralForCausalLM", {"rope_interleave"}},
    {"NanoChatForCausalLM", {"final_logit_softcapping"}},
    {"NemotronForCausalLM", {"partial_rotary_factor"}},
    {"NemotronHForCausalLM", {"hybrid_override_pattern"}},
    {"PhiForCausalLM", {"partial_rotary_factor"}},
    {"Phi3ForCausalLM", {"partial_rotary_factor"}},
    {"Qwen3NextForCausalLM", {"partial_rotary_factor", "linear_num_key_heads"}},
    {"Qwen3_5ForCausalLM", {"partial_rotary_factor", "linear_num_key_heads"}},
    {"Qwen3_5MoeForCausalLM", {"partial_rotary_factor", "linear_num_key_heads"}},
    {"StableLmForCausalLM", {"partial_rotary_factor", "use_parallel_residual", "qk_layernorm"}},
    {"SarvamMoEForCausalLM", {"use_qk_norm"}},
    {"SmolLM3ForCausalLM", {"no_rope_layers", "no_rope_layer_interval", "rope_interleave"}},
    {"YoutuForCausalLM", {"kv_lora_rank", "q_lora_rank", "rope_interleave"}},
};

bool own_config_has(const char *architecture, const char *key) {
    for (size_t i = 0; i < ARRAY_LEN(owners); i++) {
        if (strcmp(owners[i].architecture, architecture) != 0) continue;
        for (size_t k = 0; k < KEYS_MAX && owners[i].keys[k]; k++) {
            if (strcmp(owners[i].keys[k], key) == 0) return true;
        }
    }
    return false;
}

static enum status read_factors(struct own_config *out, const json_t *root,
                                const char *architecture, const char *what, struct err *err) {
    bool is_minicpm = own_config_has(architecture, "scale_emb");
    const struct {
        const char *key;
        double value;
        float *out;
    } factors[] = {
        {is_minicpm ? "scale_emb" : "embedding_multiplier", 1, &out->embedding_multiplier},
        {is_minicpm ? "scale_depth" : "residual_multiplier", 1, &out->residual_multiplier},
        {"dim_model_base", 1, &out->dim_model_base},
        {"attention_multiplier", 0, &out->attention_multiplier},
        {"logits_scaling", 1, &out->logits_scaling},
        {"logit_scale", own_config_has(architecture, "logit_scale") ? 0.0625 : 1,
         &out->logit_scale},
        {"query_pre_attn_scalar", 0, &out->query_pre_attn_scalar},
    };
    for (size_t i = 0; i < ARRAY_LEN(factors); i++) {
        double value = factors[i].value;
        if (own_config_has(architecture, factors[i].key)) {
            enum status status =
                config_read_double(root, factors[i].key, 1e-6, 1e6, &value, what, err);
            if (status) return status;
        }
        *factors[i].out = (float)value;
    }
    return OK;
}

// Where a key is missing, the classes of Gemma 2 and NanoChat have a limit, and Gemma 4's none.
static enum status read_softcaps(struct own_config *out, const json_t *root,
                                 const char *architecture, const char *what, struct err *err) {
    const struct {
        const char *key;
        double value;
        float *out;
    } caps[] = {{"attn_logit_softcapping", 50, &out->scores_softcap},
                {"final_logit_softcapping", 30, &out->logits_softcap}};
    bool has_defaults = own_config_has(architecture, caps[0].key);
    for (size_t i = 0; i < ARRAY_LEN(caps); i++) {
        if (!own_config_has(architecture, caps[i].key)) continue;
        double value =
            has_defaults ? caps[i].value : class_defaults_of(architecture).logits_softcap;
        if (json_object_get(root, caps[i].key)) value = 0;
        enum status status = config_read_double(root, caps[i].key, 1e-6, 1e6, &value, what, err);
        if (status) return status;
        *caps[i].out = (float)value;
    }
    return OK;
}

// The one activation that is supported (ACTIVATION_CLAMPED_SILU of backend.h).
static enum status check_swiglu(const json_t *root, const char *what, struct err *err) {
    static const struct {
        const char *key;
        double want;
    } numbers[] = {{"swiglu_limit", 7}, {"swiglu_alpha", 1.702}};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        double value = numbers[i].want;
        enum status status = config_read_double(root, numbers[i].key, 0, 1e6, &value, what, err);
        if (status) return status;
        if (value == numbers[i].want) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" is %.9g, which is not supported, want it %.9g", what,
                       numbers[i].key, value, numbers[i].want);
    }
    return OK;
}

// "no_rope_layers" has a 1 for each layer *with* a rotary embedding, and may be longer than the
// model. Without it each layer whose number from 1 on is a multiple of the interval has none.
static enum status read_no_rope(struct own_config *out, const json_t *root, uint32_t num_layers,
                                const char *what, struct err *err) {
    const json_t *list = jread_get(root, "no_rope_layers");
    uint32_t interval = 4;
    if (json_is_array(list) && !json_array_size(list)) list = NULL; // as Llama 4 is published
    enum status status =
        config_read_u32(root, "no_rope_layer_interval", 1, UINT16_MAX, &interval, what, err);
    if (status) return status;
    if (list && (!json_is_array(list) || json_array_size(list) < num_layers)) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"no_rope_layers\" is %s of %zu, want a list of 0 and 1 for each of "
                       "the %u layers",
                       what, jread_type_name(list), json_array_size(list), num_layers);
    }
    out->has_no_rope = calloc(num_layers, sizeof *out->has_no_rope);
    if (!out->has_no_rope) return err_nomem(err, "layers without a rotary embedding");
    for (uint32_t i = 0; i < num_layers; i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t value = list ? json_integer_value(item) : (i + 1) % interval != 0;
        if (list && (!json_is_integer(item) || (value != 0 && value != 1))) {
            return err_set(err, ERR_FORMAT, "%s: \"no_rope_layers\" has %s at %u, want 0 or 1",
                           what, json_is_integer(item) ? "another number" : jread_type_name(item),
                           i);
        }
        out->has_no_rope[i] = value == 0;
    }
    return OK;
}

static enum status read_delta(struct delta_config *out, const json_t *root, const char *what,
                              struct err *err) {
    enum { CONV_TAPS = 4, HEADS_MAX = 1 << 10, DIM_MAX = 256 };
    *out = (struct delta_config){16, 32, 128, 128};
    uint32_t taps = CONV_TAPS;
    const struct {
        const char *key;
        uint32_t max, *out;
    } sizes[] = {
        {"linear_num_key_heads", HEADS_MAX, &out->num_key_heads},
        {"linear_num_value_heads", HEADS_MAX, &out->num_heads},
        {"linear_key_head_dim", DIM_MAX, &out->key_dim},
        {"linear_value_head_dim", DIM_MAX, &out->value_dim},
        {"linear_conv_kernel_dim", UINT16_MAX, &taps},
    };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        enum status status =
            config_read_u32(root, sizes[i].key, 1, sizes[i].max, sizes[i].out, what, err);
        if (status) return status;
    }
    bool has_gate = true;
    enum status status = jread_bool(root, "attn_output_gate", &has_gate, what, err);
    if (status) return status;
    if (out->num_heads % out->num_key_heads) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"linear_num_value_heads\" is %u, want a multiple of "
                       "\"linear_num_key_heads\", %u",
                       what, out->num_heads, out->num_key_heads);
    }
    if (out->key_dim % 16 || out->value_dim % 16) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"linear_key_head_dim\" is %u and \"linear_value_head_dim\" is %u, "
                       "only multiples of 16 are supported",
                       what, out->key_dim, out->value_dim);
    }
    if (taps != CONV_TAPS) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"linear_conv_kernel_dim\" is %u, only %d is supported", what, taps,
                       CONV_TAPS);
    }
    if (has_gate) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"attn_output_gate\" is false, which is not supported, want it true", what);
}

// The layers without a window: the last one is always one of them, and by default each sixth.
static uint32_t count_global_layers(const json_t *types, uint32_t num_layers) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < num_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool is_global = type ? strcmp(type, "full_attention") == 0 : (i + 1) % 6 == 0;
        count += is_global || i + 1 == num_layers;
    }
    return count;
}

// transformers 5 writes in what each layer without a window differs from those with one, by its
// number. All are the same: a layer that is left out would have the heads of those with a window.
static enum status read_layer_heads(struct own_config *out, const json_t *root, uint32_t num_layers,
                                    const char *what, struct err *err) {
    const json_t *first = NULL, *types = jread_get(root, "layer_types");
    const json_t *layers = jread_get(root, "per_layer_config");
    uint32_t num_global = count_global_layers(types, num_layers);
    const char *number;
    json_t *layer;
    if (!json_is_object(layers)) return OK;
    if (json_object_size(layers) && json_object_size(layers) != num_global) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"per_layer_config\" has %zu layers, but %u have no window; that some "
                       "are left out is not supported",
                       what, json_object_size(layers), num_global);
    }
    json_object_foreach((json_t *)(uintptr_t)layers, number, layer) {
        const char *type = json_string_value(json_array_get(types, strtoul(number, NULL, 10)));
        bool is_other = first && !json_equal((json_t *)(uintptr_t)first, layer);
        if (is_other || (type && strcmp(type, "full_attention") != 0)) {
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: \"per_layer_config\" differs between layers of one type, which is "
                           "not supported",
                           what);
        }
        first = layer;
    }
    out->global_head_dim = out->num_global_kv_heads = 0;
    enum status status =
        config_read_u32(first, "head_dim", 16, 512, &out->global_head_dim, what, err);
    return status ? status
                  : config_read_u32(first, "num_key_value_heads", 1, 1 << 12,
                                    &out->num_global_kv_heads, what, err);
}

// The keys of E2B and E4B. The class' default is theirs, so a model without must say 0 or null.
static enum status read_layer_inputs(struct own_config *out, const json_t *root,
                                     uint32_t num_layers, const char *what, struct err *err) {
    static const char size_key[] = "hidden_size_per_layer_input";
    static const char vocab_key[] = "vocab_size_per_layer_input";
    uint32_t vocab_size = 262144, layer_vocab_size = 262144, shared = 0;
    out->layer_input_size = json_object_get(root, size_key) ? 0 : 256;
    enum status status =
        config_read_u32(root, size_key, 0, 1 << 14, &out->layer_input_size, what, err);
    if (!status) status = config_read_u32(root, "vocab_size", 1, INT32_MAX, &vocab_size, what, err);
    if (!status) {
        status = config_read_u32(root, vocab_key, 1, INT32_MAX, &layer_vocab_size, what, err);
    }
    if (!status) {
        status =
            config_read_u32(root, "num_kv_shared_layers", 0, num_layers - 1, &shared, what, err);
    }
    if (!status) {
        status = jread_bool(root, "use_double_wide_mlp", &out->has_wide_shared_layers, what, err);
    }
    out->num_shared_kv_layers = shared;
    if (status || !out->layer_input_size || vocab_size == layer_vocab_size) return status;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"%s\" is %u, which is not supported, want \"vocab_size\", %u", what,
                   vocab_key, layer_vocab_size, vocab_size);
}

// Heads of the layers without a window. Where v is k they may have another number of them.
static enum status read_global_heads(struct own_config *out, const json_t *root,
                                     uint32_t num_layers, const char *what, struct err *err) {
    enum { HEADS_MAX = 1 << 12, DIM_MAX = 512 };
    out->global_head_dim = DIM_MAX;
    enum status status =
        config_read_u32(root, "global_head_dim", 16, DIM_MAX, &out->global_head_dim, what, err);
    if (!status) status = jread_bool(root, "attention_k_eq_v", &out->has_keys_as_values, what, err);
    if (!status && out->has_keys_as_values) {
        status = config_read_u32(root, "num_global_key_value_heads", 1, HEADS_MAX,
                                 &out->num_global_kv_heads, what, err);
    }
    return status ? status : read_layer_heads(out, root, num_layers, what, err);
}

// The layers that "layer_types" names, or without it all but every full_attention_interval-th.
static enum status read_is_linear(struct own_config *out, const json_t *root, uint32_t num_layers,
                                  const char *what, struct err *err) {
    uint32_t interval = 4;
    const json_t *types = jread_get(root, "layer_types");
    enum status status =
        config_read_u32(root, "full_attention_interval", 1, UINT16_MAX, &interval, what, err);
    if (status) return status;
    if (types && json_array_size(types) != num_layers) {
        return err_set(
            err, ERR_FORMAT,
            "%s: \"layer_types\" is %s of %zu, want a list of strings for each of the %u "
            "layers",
            what, jread_type_name(types), json_array_size(types), num_layers);
    }
    out->is_linear = calloc(num_layers, sizeof *out->is_linear);
    if (!out->is_linear) return err_nomem(err, "layers with a state");
    for (uint32_t i = 0; i < num_layers; i++) {
        const json_t *item = json_array_get(types, i);
        const char *type = json_string_value(item);
        out->is_linear[i] =
            types ? type && strcmp(type, "linear_attention") == 0 : (i + 1) % interval != 0;
        if (!types || out->is_linear[i] || (type && strcmp(type, "full_attention") == 0)) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"layer_types\" has %.60s at %u, only full_attention and "
                       "linear_attention are supported",
                       what, type ? type : jread_type_name(item), i);
    }
    return OK;
}

// q_lora_rank: null means that q is made of the residual, a missing key the class's default.
static enum status read_latent(struct latent_config *out, const json_t *root,
                               const char *architecture, const char *what, struct err *err) {
    enum { RANK_MAX = 1 << 14, LATENT_MAX = 1 << 11, DIM_MAX = 512 };
    static const struct {
        const char *architecture;
        struct latent_config latent;
    } others[] = {{"Glm4MoeLiteForCausalLM", {768, 512, 192, 64, 256}},
                  {"Mistral4ForCausalLM", {1024, 256, 64, 64, 128}}};
    *out = (struct latent_config){1536, 512, 128, 64, 128};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (strcmp(others[i].architecture, architecture) == 0) *out = others[i].latent;
    }
    if (json_is_null(json_object_get(root, "q_lora_rank"))) out->query_rank = 0;
    const struct {
        const char *key;
        uint32_t step, max, *out;
    } sizes[] = {{"q_lora_rank", 8, RANK_MAX, &out->query_rank},
                 {"kv_lora_rank", 16, LATENT_MAX, &out->rank},
                 {"qk_nope_head_dim", 16, DIM_MAX, &out->nope_dim},
                 {"qk_rope_head_dim", 16, DIM_MAX, &out->rope_dim},
                 {"v_head_dim", 16, DIM_MAX, &out->value_dim}};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        enum status status = config_read_u32(root, sizes[i].key, sizes[i].step, sizes[i].max,
                                             sizes[i].out, what, err);
        if (status) return status;
        if (*sizes[i].out % sizes[i].step == 0) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s: \"%s\" is %u, only multiples of %u are supported",
                       what, sizes[i].key, *sizes[i].out, sizes[i].step);
    }
    return OK;
}

// LFM2's layers with a short convolution: those that "layer_types" names, or the others than
// "full_attn_idxs".
static enum status read_has_conv(struct own_config *out, const json_t *root, uint32_t num_layers,
                                 const char *what, struct err *err) {
    const json_t *types = jread_get(root, "layer_types");
    const json_t *attended = jread_get(root, "full_attn_idxs");
    const json_t *list = types ? types : attended;
    if (list && (!json_is_array(list) || (types && json_array_size(types) != num_layers))) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s of %zu, want a list for the %u layers",
                       what, types ? "layer_types" : "full_attn_idxs", jread_type_name(list),
                       json_array_size(list), num_layers);
    }
    out->is_linear = calloc(num_layers, sizeof *out->is_linear);
    if (!out->is_linear) return err_nomem(err, "layers with a state");
    for (uint32_t i = 0; i < num_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        out->is_linear[i] = types ? type && strcmp(type, "conv") == 0 : attended != NULL;
        if (!types || out->is_linear[i] || (type && strcmp(type, "full_attention") == 0)) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"layer_types\" has %.60s at %u, only full_attention and conv are "
                       "supported",
                       what, type ? type : "no string", i);
    }
    if (types) return OK;
    return config_clear_layers(root, "full_attn_idxs", num_layers, out->is_linear, what, err);
}

// Llama 4's scale of q in layers without a rotary embedding. The switch is a number in its files.
static enum status read_temperature(struct own_config *out, const json_t *root, const char *what,
                                    struct err *err) {
    static const char key[] = "attn_temperature_tuning";
    const json_t *value = jread_get(root, key);
    bool is_on = !value || json_is_true(value) || json_integer_value(value) != 0;
    uint32_t length = 8192;
    double scale = 0.1;
    if (value && !json_is_boolean(value) && !json_is_integer(value)) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s, want true or false", what, key,
                       jread_type_name(value));
    }
    enum status status = config_read_u32(root, "floor_scale", 1, INT32_MAX, &length, what, err);
    if (!status) status = config_read_double(root, "attn_scale", 0, 1e3, &scale, what, err);
    out->temperature_length = length;
    out->temperature_scale = is_on ? scale : 0;
    return status;
}

static enum status read_cohere2_moe(struct own_config *out, const json_t *root, const char *what,
                                    struct err *err) {
    static const char key[] = "shared_expert_combination_strategy";
    uint32_t num_shared = 0, pattern = 1;
    const char *how = "average";
    enum status status = jread_string(root, key, &how, what, err);
    if (!status)
        status = config_read_u32(root, "num_shared_experts", 0, 1 << 12, &num_shared, what, err);
    if (!status) {
        status = config_read_u32(root, "prefix_dense_sliding_window_pattern", 1, UINT16_MAX,
                                 &pattern, what, err);
    }
    if (status) return status;
    out->has_rms_norms = jread_get(root, "rms_norm_eps") != NULL;
    out->has_dense_ropes = pattern == 1;
    out->averages_experts = num_shared && strcmp(how, "average") == 0;
    if (strcmp(how, "average") == 0 || strcmp(how, "sum") == 0) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"%s\" is \"%.40s\", only average and sum are supported", what, key, how);
}

enum status own_config_read(struct own_config *out, const json_t *root, const char *architecture,
                            uint32_t num_layers, const char *what, struct err *err) {
    *out = (struct own_config){0};
    enum status status = only_values_check(root, architecture, what, err);
    if (!status) status = read_factors(out, root, architecture, what, err);
    if (!status) status = read_softcaps(out, root, architecture, what, err);
    if (!status && own_config_has(architecture, "global_head_dim")) {
        status = read_global_heads(out, root, num_layers, what, err);
        if (!status) status = read_layer_inputs(out, root, num_layers, what, err);
    }
    if (!status && own_config_has(architecture, "attn_temperature_tuning")) {
        out->use_qk_norm = true;
        status = read_temperature(out, root, what, err);
    }
    if (strcmp(architecture, "SarvamMoEForCausalLM") == 0) out->use_qk_norm = true; // by default
    if (!status && own_config_has(architecture, "use_qk_norm")) {
        status = jread_bool(root, "use_qk_norm", &out->use_qk_norm, what, err);
    }
    if (!status && own_config_has(architecture, "qk_layernorm")) {
        status = jread_bool(root, "qk_layernorm", &out->use_qk_norm, what, err);
    }
    if (!status && own_config_has(architecture, "prefix_dense_sliding_window_pattern")) {
        status = read_cohere2_moe(out, root, what, err);
    }
    if (!status && own_config_has(architecture, "mup_enabled")) {
        status = jread_bool(root, "mup_enabled", &out->scales_embeddings, what, err);
        // Its layers of full attention are those without a window (families/afmoe.c).
        if (!status && json_is_null(json_object_get(root, "sliding_window"))) {
            status = err_set(err, ERR_UNSUPPORTED,
                             "%s: \"sliding_window\" is null, which is not supported", what);
        }
    }
    if (!status && own_config_has(architecture, "use_post_norm")) {
        bool has_post_norm = true;
        status = jread_bool(root, "use_post_norm", &has_post_norm, what, err);
        out->lacks_post_norm = !has_post_norm;
    }
    if (!status && own_config_has(architecture, "kv_lora_rank")) {
        out->has_interleaved_rope = true;
        status = read_latent(&out->latent, root, architecture, what, err);
    }
    if (!status && own_config_has(architecture, "use_parallel_residual")) {
        status = jread_bool(root, "use_parallel_residual", &out->is_parallel, what, err);
    }
    if (!status && own_config_has(architecture, "conv_L_cache")) {
        status = read_has_conv(out, root, num_layers, what, err);
    }
    if (!status && own_config_has(architecture, "rope_interleave")) {
        status = config_read_bool(root, "rope_interleave", &out->has_interleaved_rope, what, err);
    }
    if (!status && own_config_has(architecture, "position_embedding_type")) {
        const char *type = "none";
        status = jread_string(root, "position_embedding_type", &type, what, err);
        out->lacks_rope = !status && strcmp(type, "rope") != 0;
    }
    if (!status && own_config_has(architecture, "no_rope_layers")) {
        status = read_no_rope(out, root, num_layers, what, err);
    }
    if (!status && own_config_has(architecture, "layer_rope_theta")) {
        status = rope_config_read_thetas(&out->layer_thetas, root, num_layers, what, err);
    }
    if (!status && own_config_has(architecture, "linear_num_key_heads")) {
        status = read_delta(&out->delta, root, what, err);
        if (!status) status = read_is_linear(out, root, num_layers, what, err);
    }
    if (!status && own_config_has(architecture, "swiglu_limit")) {
        status = check_swiglu(root, what, err);
    }
    if (!status) status = mamba_config_read(out, root, architecture, num_layers, what, err);
    if (status) own_config_fini(out);
    return status;
}

void own_config_fini(struct own_config *config) {
    free(config->has_no_rope);
    free(config->layer_thetas);
    free(config->is_linear);
    free(config->blocks);
    *config = (struct own_config){0};
}

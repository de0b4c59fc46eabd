#include "checkpoint/text_part.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"

// What Gemma 3's class has where a key is missing. Its published files leave these out.
#define GEMMA3_DEFAULTS                                                                            \
    "{\"vocab_size\": 262208, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "            \
    "\"max_position_embeddings\": 131072}"

#define GEMMA4_DEFAULTS                                                                            \
    "{\"vocab_size\": 262144, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "            \
    "\"max_position_embeddings\": 131072}"

// Other values than those of Qwen2's and Qwen3's own classes.
#define QWEN2_VL_DEFAULTS "{\"rms_norm_eps\": 1e-5, \"rope_theta\": 1000000}"
#define QWEN3_VL_DEFAULTS "{\"rope_theta\": 500000}"

// Its class has no key norm_topk_prob, and always does.
#define QWEN3_VL_MOE_DEFAULTS "{\"norm_topk_prob\": true, \"rope_theta\": 500000}"

// GLM-4.1V's class has what GLM-4's has not.
#define GLM4V_DEFAULTS                                                                             \
    "{\"attention_bias\": true, \"rms_norm_eps\": 1e-5, \"partial_rotary_factor\": 1}"
#define GLM4V_MOE_DEFAULTS "{\"attention_bias\": true}"

#define SARVAM_MLA_DEFAULTS                                                                        \
    "{\"n_routed_experts\": 128, \"q_lora_rank\": null, \"n_group\": 1, \"topk_group\": 1, "       \
    "\"first_k_dense_replace\": 1, \"max_position_embeddings\": 4096, \"hidden_size\": 4096, "     \
    "\"intermediate_size\": 16384, \"num_hidden_layers\": 32, \"num_attention_heads\": 64, "       \
    "\"vocab_size\": 262144}"

// Text models and the architecture that computes them. Qwen's position of a token has three parts,
// for time, height and width. Of text they are equal, so it is an ordinary rotary embedding.
static const struct {
    const char *model_type, *architecture;
    const char *defaults; // of missing keys, as JSON; NULL: none
} text_models[] = {
    {"deepseek_v3", "DeepseekV3ForCausalLM", NULL},
    {"exaone4", "Exaone4ForCausalLM", NULL},
    {"exaone4_5_text", "Exaone4ForCausalLM", NULL},
    {"gemma3_text", "Gemma3ForCausalLM", GEMMA3_DEFAULTS},
    {"gemma4_text", "Gemma4ForCausalLM", GEMMA4_DEFAULTS},
    {"glm4v_moe_text", "Glm4MoeForCausalLM", GLM4V_MOE_DEFAULTS},
    {"glm4v_text", "Glm4ForCausalLM", GLM4V_DEFAULTS},
    {"kimi_k2", "DeepseekV3ForCausalLM", NULL},
    {"llama", "LlamaForCausalLM", NULL},
    {"llama4_text", "Llama4ForCausalLM", NULL},
    {"ministral3", "Ministral3ForCausalLM", NULL},
    {"mistral", "MistralForCausalLM", NULL},
    {"mistral4", "Mistral4ForCausalLM", NULL},
    {"qwen2", "Qwen2ForCausalLM", NULL},
    {"qwen2_5_vl_text", "Qwen2ForCausalLM", QWEN2_VL_DEFAULTS},
    {"qwen2_vl_text", "Qwen2ForCausalLM", QWEN2_VL_DEFAULTS},
    {"qwen3", "Qwen3ForCausalLM", NULL},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", NULL},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", NULL},
    {"qwen3_vl_moe_text", "Qwen3MoeForCausalLM", QWEN3_VL_MOE_DEFAULTS},
    {"qwen3_vl_text", "Qwen3ForCausalLM", QWEN3_VL_DEFAULTS},
};

static enum status model_of(size_t *out, const json_t *text, const char *what, struct err *err) {
    const char *type = NULL;
    enum status status = jread_string(text, "model_type", &type, what, err);
    if (status) return status;
    for (size_t i = 0; i < ARRAY_LEN(text_models) && type; i++) {
        if (strcmp(text_models[i].model_type, type) != 0) continue;
        *out = i;
        return OK;
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"model_type\" of \"text_config\" is %.60s, which is not supported", what,
                   type ? type : "missing");
}

// Keys that are about the whole checkpoint. Those of the text model come first, but one: which
// matrices are tied is the whole model's. Those of Qwen2-VL, Qwen2.5-VL, GLM-4.1V and GLM-4.5V are
// tied if either says so.
static int take_outer_keys(json_t *text, const json_t *root) {
    static const char *const keys[] = {"quantization_config",
                                       "quantization",
                                       "use_bidirectional_attention",
                                       "is_encoder_decoder",
                                       "add_cross_attention",
                                       "eos_token_id",
                                       "dtype",
                                       "torch_dtype"};
    int failed = 0;
    json_t *tied = json_object_get(root, "tie_word_embeddings");
    const char *type = json_string_value(jread_get(text, "model_type"));
    bool is_either = type && (strncmp(type, "qwen2_", 6) == 0 || strncmp(type, "glm4v_", 6) == 0);
    if (is_either && json_is_true(json_object_get(text, "tie_word_embeddings"))) tied = NULL;
    if (tied) failed |= json_object_set(text, "tie_word_embeddings", tied);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        json_t *value = json_object_get(root, keys[i]);
        if (!value || jread_get(text, keys[i])) continue;
        failed |= json_object_set(text, keys[i], value);
    }
    return failed;
}

// GLM-4.1V's heads share the hidden size.
static int set_head_dim(json_t *text) {
    json_int_t hidden = json_integer_value(json_object_get(text, "hidden_size"));
    json_int_t heads = json_integer_value(json_object_get(text, "num_attention_heads"));
    if (hidden <= 0 || heads <= 0) return 0; // which model_config.c refuses
    return json_object_set_new(text, "head_dim", json_integer(hidden / heads));
}

// A theta may be in a section.
static int add_defaults(json_t *text, const char *defaults) {
    static const char *const sections[] = {"rope_scaling", "rope_parameters"};
    json_t *object = jread_literal(defaults);
    for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
        if (!jread_get(jread_get(text, sections[i]), "rope_theta")) continue;
        (void)json_object_del(object, "rope_theta");
    }
    int failed = object ? json_object_update_missing(text, object) : -1;
    json_decref(object);
    return failed;
}

// A copy with the same members; NULL: out of memory. json_copy leaves out those that it cannot set.
static json_t *copy_object(const json_t *object) {
    json_t *copy = json_copy((json_t *)(uintptr_t)object);
    if (json_object_size(copy) == json_object_size(object)) return copy;
    json_decref(copy);
    return NULL;
}

// Rewrites a rotary embedding of three parts as an ordinary one.
static int drop_parts_of_rope(json_t *text) {
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    int failed = 0;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        json_t *rope = json_object_get(text, keys[i]);
        if (!json_object_get(rope, "mrope_section") &&
            !json_object_get(rope, "mrope_interleaved")) {
            continue;
        }
        rope = copy_object(rope);
        if (!rope) return -1;
        (void)json_object_del(rope, "mrope_section");
        (void)json_object_del(rope, "mrope_interleaved");
        static const char *const types[] = {"rope_type", "type"};
        for (size_t k = 0; k < ARRAY_LEN(types); k++) {
            const char *type = json_string_value(json_object_get(rope, types[k]));
            if (!type || strcmp(type, "mrope") != 0) continue;
            failed |= json_object_set_new(rope, types[k], json_string("default"));
        }
        failed |= json_object_set_new(text, keys[i], rope);
    }
    return failed;
}

// Sarvam 105B is DeepSeek-V3 with other defaults, and is published with names of its own.
static int read_sarvam(json_t *text) {
    static const struct {
        const char *key, *instead;
    } names[] = {{"num_experts", "n_routed_experts"}, {"num_shared_experts", "n_shared_experts"}};
    static const char *const types[] = {"rope_type", "type"};
    int failed = add_defaults(text, SARVAM_MLA_DEFAULTS);
    failed |= json_object_set_new(text, "architectures", json_pack("[s]", "DeepseekV3ForCausalLM"));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *value = json_object_get(text, names[i].key);
        if (value) failed |= json_object_set(text, names[i].instead, value);
    }
    json_t *rope = json_object_get(text, "rope_scaling");
    if (!json_is_object(rope)) return failed;
    rope = copy_object(rope);
    for (size_t i = 0; i < ARRAY_LEN(types) && rope; i++) {
        const char *type = json_string_value(json_object_get(rope, types[i]));
        if (!type || strcmp(type, "deepseek_yarn") != 0) continue; // the same as yarn
        failed |= json_object_set_new(rope, types[i], json_string("yarn"));
    }
    return failed | json_object_set_new(text, "rope_scaling", rope);
}

// Sarvam 30B as transformers writes it has the class' name of GLM-4.5, and tensors of its own.
static int read_sarvam_moe(json_t *text) {
    static const struct {
        const char *key, *instead;
    } names[] = {{"n_routed_experts", "num_experts"}, {"n_shared_experts", "num_shared_experts"}};
    int failed =
        json_object_set_new(text, "architectures", json_pack("[s]", "SarvamMoEForCausalLM"));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *value = json_object_get(text, names[i].key);
        if (value) failed |= json_object_set(text, names[i].instead, value);
    }
    return failed;
}

// A checkpoint of a text model alone may have the positions of three parts too. Qwen2-VL and
// Qwen2.5-VL are published with the text model's keys beside "vision_config".
static enum status text_model_config(json_t **out, json_t *root, const char *what,
                                     struct err *err) {
    const char *type = NULL;
    enum status status = jread_string(root, "model_type", &type, what, err);
    if (status) return status;
    bool is_flat = type && (strcmp(type, "qwen2_vl") == 0 || strcmp(type, "qwen2_5_vl") == 0);
    bool is_sarvam = type && strcmp(type, "sarvam_mla") == 0;
    bool is_sarvam_moe = type && strcmp(type, "sarvam_moe") == 0;
    if (!is_flat && !is_sarvam && !is_sarvam_moe &&
        (!type || strncmp(type, "qwen3_5_", strlen("qwen3_5_")) != 0)) {
        *out = json_incref(root);
        return OK;
    }
    json_t *text = copy_object(root);
    int failed = text ? drop_parts_of_rope(text) : -1;
    if (is_sarvam && !failed) failed = read_sarvam(text);
    if (is_flat && !failed) failed = add_defaults(text, QWEN2_VL_DEFAULTS);
    if (is_sarvam_moe && !failed) failed = read_sarvam_moe(text);
    if (is_flat && !failed) {
        (void)json_object_del(text, "vision_config");
        failed = json_object_set_new(text, "architectures", json_pack("[s]", "Qwen2ForCausalLM"));
    }
    if (failed) {
        json_decref(text);
        return err_nomem(err, "config.json");
    }
    *out = text;
    return OK;
}

enum status text_part_config(json_t **out, json_t *root, const char *what, struct err *err) {
    const json_t *inner = jread_get(root, "text_config");
    *out = NULL;
    if (!inner) return text_model_config(out, root, what, err);
    if (!json_is_object(inner)) {
        return err_set(err, ERR_FORMAT, "%s: \"text_config\" is %s, want an object", what,
                       jread_type_name(inner));
    }
    size_t model = 0;
    enum status status = model_of(&model, inner, what, err);
    if (status) return status;
    json_t *text = copy_object(inner);
    if (!text) return err_nomem(err, "text_config");
    int failed = json_object_set_new(text, "architectures",
                                     json_pack("[s]", text_models[model].architecture));
    failed |= take_outer_keys(text, root);
    if (text_models[model].defaults) failed |= add_defaults(text, text_models[model].defaults);
    if (strcmp(text_models[model].model_type, "glm4v_text") == 0) failed |= set_head_dim(text);
    failed |= drop_parts_of_rope(text);
    if (failed) {
        json_decref(text);
        return err_nomem(err, "text_config");
    }
    *out = text;
    return OK;
}

bool text_part_tensor_name(const char *name, char *out, size_t size) {
    static const struct {
        const char *prefix, *instead;
    } rules[] = {
        {"model.language_model.", "model."},
        {"language_model.", ""},
        {"backbone.embeddings.", "model.embed_tokens."},
        {"backbone.norm_f.", "model.norm."},
        {"backbone.", "model."},
        {"model.word_embeddings.", "model.embed_tokens."},
        {"embed_tokens.", "model.embed_tokens."},
        {"layers.", "model.layers."},
        {"norm.", "model.norm."},
    };
    static const char *const others[] = {"model.visual.",
                                         "visual.",
                                         "model.vision_tower.",
                                         "vision_tower.",
                                         "vision_model.",
                                         "model.embed_vision.",
                                         "model.audio_tower.",
                                         "model.embed_audio.",
                                         "model.multi_modal_projector.",
                                         "multi_modal_projector.",
                                         "mm_projector.",
                                         "model.mm_projector.",
                                         "mtp.",
                                         "model.mtp_"}; // drafts of the tokens behind the next one
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (strncmp(name, others[i], strlen(others[i])) == 0) return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        size_t len = strlen(rules[i].prefix);
        if (strncmp(name, rules[i].prefix, len) != 0) continue;
        snprintf(out, size, "%s%s", rules[i].instead, name + len);
        return true;
    }
    snprintf(out, size, "%s", name);
    return true;
}

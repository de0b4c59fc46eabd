/* Writes config.json and generation_config.json from the metadata. model_config.c then checks what
 * it says, as of any configuration. A key of the architecture that is not known here is refused,
 * because it may change the computation. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/json_out.h"
#include "checkpoint/classes/class_defaults.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/gguf_model.h"
#include "checkpoint/gguf/tokens/gguf_tokens.h"

// An integer of the metadata under config.json's name.
struct size_key {
    const char *key, *name;
    bool is_required;
    bool is_of_experts; // required where there are experts
};

static const struct size_key sizes[] = {
    {"context_length", "max_position_embeddings", true, false},
    {"embedding_length", "hidden_size", true, false},
    {"attention.head_count", "num_attention_heads", true, false},
    {"attention.head_count_kv", "num_key_value_heads", false, false},
    {"expert_used_count", "num_experts_per_tok", false, true},
    {"expert_feed_forward_length", "moe_intermediate_size", false, false},
};

// Names that a class has for keys of config.json.
static const struct {
    const char *model, *usual, *name;
} own_names[] = {
    {"ernie4_5-moe", "num_experts_per_tok", "moe_k"},
    {"ernie4_5-moe", "n_shared_experts", "moe_num_shared_experts"},
    {"ernie4_5-moe", "first_k_dense_replace", "moe_layer_start_index"},
    {"gemma4", "num_experts_per_tok", "top_k_experts"},
    {"hunyuan-moe", "num_experts_per_tok", "moe_topk"},
    {"lfm2moe", "first_k_dense_replace", "num_dense_layers"},
};

static const char *own_name(const struct gguf_model *model, const char *usual) {
    for (size_t i = 0; i < ARRAY_LEN(own_names); i++) {
        if (strcmp(own_names[i].model, model->name) != 0) continue;
        if (strcmp(own_names[i].usual, usual) == 0) return own_names[i].name;
    }
    return usual;
}

// Keys that change the computation, and the only value that does not. Others that are known are
// read here or do not matter.
static const struct {
    const char *key;
    double neutral;
} neutral_keys[] = {
    {"attention.causal", 1},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"use_parallel_residual", 0},
    {"expert_shared_count", 0},
    {"leading_dense_block_count", 0},
    {"nextn_predict_layers", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"logit_scale", 1},
    {"residual_scale", 1},
    {"embedding_scale", 1},
    {"attention.sliding_window", 0},
    {"expert_gating_func", 1}, // softmax
    {"interleave_moe_layer_step", 1},
};

// Keys that only some architectures have. Those with config.json's name are required.
static const struct {
    const char *model, *key, *name; // NULL: it is read elsewhere, or does not matter
} own_keys[] = {
    {"command-r", "logit_scale", "logit_scale"},
    {"cohere2", "logit_scale", "logit_scale"},
    {"cohere2", "attention.sliding_window", NULL}, // write_windows
    {"cohere2", "attention.sliding_window_pattern", NULL},
    {"lfm2", "shortconv.l_cache", NULL}, // gguf_write_convs
    {"lfm2moe", "shortconv.l_cache", NULL},
    {"lfm2moe", "leading_dense_block_count", NULL}, // write_routed
    {"lfm2moe", "expert_gating_func", NULL}, // check_gating
    {"stablelm", "use_parallel_residual", NULL}, // write_parallel
    {"granite", "attention.scale", "attention_multiplier"},
    {"granite", "embedding_scale", "embedding_multiplier"},
    {"granite", "residual_scale", "residual_multiplier"},
    {"granite", "logit_scale", "logits_scaling"},
    {"granitemoe", "attention.scale", "attention_multiplier"},
    {"granitemoe", "embedding_scale", "embedding_multiplier"},
    {"granitemoe", "residual_scale", "residual_multiplier"},
    {"granitemoe", "logit_scale", "logits_scaling"},
    {"granitehybrid", "attention.scale", "attention_multiplier"},
    {"granitehybrid", "embedding_scale", "embedding_multiplier"},
    {"granitehybrid", "residual_scale", "residual_multiplier"},
    {"granitehybrid", "logit_scale", "logits_scaling"},
    {"hunyuan-moe", "expert_shared_count", NULL}, // 1
    {"hunyuan-moe", "expert_shared_feed_forward_length", NULL}, // that of a dense MLP
    {"mistral3", "attention.temperature_scale", NULL}, // gguf_rope.c
    {"deepseek2", "expert_shared_count", NULL}, // write_routed
    {"deepseek2", "leading_dense_block_count", NULL},
    {"deepseek2", "nextn_predict_layers", NULL},
    {"deepseek2", "expert_gating_func", NULL}, // gguf_latent_read
    {"deepseek2", "attention.q_lora_rank", NULL}, // gguf_write_latent
    {"deepseek2", "attention.kv_lora_rank", NULL},
    {"deepseek2", "attention.key_length_mla", NULL},
    {"deepseek2", "attention.value_length_mla", NULL},
    {"dots1", "expert_shared_count", NULL}, // write_routed
    {"dots1", "leading_dense_block_count", NULL},
    {"dots1", "expert_gating_func", NULL}, // check_gating
    {"ernie4_5-moe", "expert_shared_count", NULL},
    {"ernie4_5-moe", "leading_dense_block_count", NULL},
    {"ernie4_5-moe", "expert_shared_feed_forward_length", NULL}, // that of so many experts
    {"glm4moe", "expert_shared_count", NULL},
    {"glm4moe", "leading_dense_block_count", NULL},
    {"glm4moe", "nextn_predict_layers", NULL},
    {"glm4moe", "expert_gating_func", NULL},
    {"minimax-m2", "expert_gating_func", NULL},
    {"nemotron_h_moe", "expert_gating_func", NULL},
    {"nemotron_h_moe", "expert_shared_count", NULL}, // write_routed
    {"nemotron_h_moe", "nextn_predict_layers", NULL},
    {"gpt-oss", "expert_gating_func", NULL},
    {"gpt-oss", "attention.sliding_window", NULL}, // write_windows
    {"gpt-oss", "attention.sliding_window_pattern", NULL},
    {"phi3", "attention.sliding_window", NULL},
    {"gemma2", "attn_logit_softcapping", "attn_logit_softcapping"},
    {"gemma2", "final_logit_softcapping", "final_logit_softcapping"},
    {"gemma2", "attention.sliding_window", NULL},
    {"gemma2", "attention.sliding_window_pattern", NULL},
    {"exaone4", "attention.sliding_window", NULL},
    {"exaone4", "attention.sliding_window_pattern", NULL},
    {"gemma3", "attention.sliding_window", NULL},
    {"gemma3", "attention.sliding_window_pattern", NULL},
    {"gemma4", "attention.sliding_window", NULL},
    {"gemma4", "attention.sliding_window_pattern", NULL},
    {"gemma4", "attention.key_length_swa", NULL}, // gguf_model_read
    {"gemma4", "attention.value_length_swa", NULL}, // write_head_dim
    {"gemma4", "attention.shared_kv_layers", NULL}, // gguf_gemma4.c
    {"gemma4", "embedding_length_per_layer_input", NULL},
    {"gemma4", "final_logit_softcapping", NULL},
    {"olmo2", "attention.sliding_window", NULL},
    {"olmo2", "attention.sliding_window_pattern", NULL},
    {"qwen3vl", "n_deepstack_layers", NULL}, // of images
    {"qwen3vlmoe", "n_deepstack_layers", NULL},
};

static bool is_own(const struct gguf_model *model, const char *key) {
    for (size_t i = 0; i < ARRAY_LEN(own_keys); i++) {
        if (strcmp(own_keys[i].model, model->name) == 0 && strcmp(own_keys[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

static const char *const known_keys[] = {
    "block_count",
    "expert_group_count", // check_groups
    "expert_group_used_count",
    "feed_forward_length",
    "vocab_size",
    "tensor_data_layout", // of the first converter: the rows of q and k, always permuted by now
    "pooling_type", // gguf_write_pooling
    "expert_count",
    "expert_weights_norm",
    "expert_weights_scale",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon",
};

static bool is_known(const char *key) {
    for (size_t i = 0; i < ARRAY_LEN(known_keys); i++) {
        if (strcmp(key, known_keys[i]) == 0) return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        if (strcmp(key, sizes[i].key) == 0) return true;
    }
    return strncmp(key, "rope.", 5) == 0; // gguf_rope.c
}

static bool is_neutral(const struct gguf *gguf, const char *full, const char *key, bool *found) {
    struct gguf_value value;
    *found = false;
    for (size_t i = 0; i < ARRAY_LEN(neutral_keys) && !*found; i++) {
        if (strcmp(key, neutral_keys[i].key) != 0) continue;
        *found = true;
        if (!gguf_find(gguf, full, &value) || value.type == GGUF_STRING || value.is_array) {
            return false;
        }
        return gguf_real(&value, 0) == neutral_keys[i].neutral;
    }
    return true;
}

static enum status check_keys(const struct gguf *gguf, const struct gguf_model *model,
                              struct err *err) {
    char prefix[64], full[GGUF_KEY_MAX];
    snprintf(prefix, sizeof prefix, "%s.", model->name);
    for (size_t i = 0; i < gguf_num_values(gguf); i++) {
        struct gguf_string key = gguf_key(gguf, i);
        if (!gguf_string_begins(key, prefix)) continue;
        bool fits = key.len < sizeof full, found = false;
        snprintf(full, sizeof full, "%.*s", (int)(fits ? key.len : sizeof full - 1), key.text);
        const char *name = full + strlen(prefix);
        if (fits && is_own(model, name)) continue;
        if (fits && model->has_delta && gguf_delta_has_key(name)) continue;
        bool may_have_mamba = model->mamba || model->has_mamba_keys;
        if (fits && may_have_mamba && gguf_mamba_has_key(name)) continue;
        bool is_good = is_neutral(gguf, full, name, &found);
        if (fits && (found ? is_good : is_known(name))) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s: \"%s\" is %s", gguf_path(gguf), full,
                       found ? "set to a value that is not supported" : "not known");
    }
    return OK;
}

static enum status write_sizes(const struct gguf *gguf, const struct gguf_model *model,
                               struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        int64_t number = -1;
        const char *name = own_name(model, sizes[i].name);
        bool has_lists =
            model->has_global_heads || model->has_convs || (model->mamba && !model->is_hybrid);
        if (has_lists && strcmp(name, "num_key_value_heads") == 0) continue;
        gguf_model_key(model, sizes[i].key, key, sizeof key);
        enum status status = gguf_read_int(gguf, key, 0, INT32_MAX, &number, err);
        if (status) return status;
        bool is_required = sizes[i].is_required || (sizes[i].is_of_experts && model->num_experts);
        if (number < 0 && is_required) return gguf_missing(gguf, key, err);
        if (number < 0) continue;
        json_out_rawf(out, ", \"%s\": %lld", name, (long long)number);
    }
    return OK;
}

// feed_forward_length; of a model whose layers all have experts it may be missing.
static enum status write_intermediate_size(const struct gguf *gguf, const struct gguf_model *model,
                                           struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    int64_t size = 0;
    if (model->has_global_heads || model->has_blocks) return OK; // gguf_gemma4.c, gguf_mamba.c
    gguf_model_key(model, "expert_feed_forward_length", key, sizeof key);
    enum status status = gguf_read_int(gguf, key, 1, INT32_MAX, &size, err);
    gguf_model_key(model, "feed_forward_length", key, sizeof key);
    if (!status) status = gguf_read_int(gguf, key, 1, INT32_MAX, &size, err);
    if (status) return status;
    if (!size) return gguf_missing(gguf, key, err);
    json_out_rawf(out, ", \"intermediate_size\": %lld", (long long)size);
    return OK;
}

// The width of v's heads is that of k's.
static enum status write_head_dim(const struct gguf *gguf, const struct gguf_model *model,
                                  struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    const struct {
        const char *key;
        int64_t key_dim;
    } sizes_of_values[] = {
        {"attention.value_length", gguf_model_wide(model)},
        {"attention.value_length_swa", model->head_dim}, // known of Gemma 4 only
    };
    for (size_t i = 0; i < ARRAY_LEN(sizes_of_values); i++) {
        int64_t key_dim = sizes_of_values[i].key_dim, value_dim = key_dim;
        gguf_model_key(model, sizes_of_values[i].key, key, sizeof key);
        enum status status = gguf_read_int(gguf, key, 1, INT32_MAX, &value_dim, err);
        if (status) return status;
        if (value_dim == key_dim) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" is %lld, but keys have %lld dimensions, which is not supported",
                       gguf_path(gguf), key, (long long)value_dim, (long long)key_dim);
    }
    json_out_rawf(out, ", \"head_dim\": %lld", (long long)model->head_dim);
    return OK;
}

static enum status write_eps(const struct gguf *gguf, const struct gguf_model *model,
                             struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    double eps = 0;
    const char *kind =
        model->has_layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
    gguf_model_key(model, kind, key, sizeof key);
    enum status status = gguf_read_real(gguf, key, &eps, err);
    if (status) return status;
    if (eps <= 0) return gguf_missing(gguf, key, err);
    json_out_rawf(out, ", \"%s\": ", class_defaults_of(model->architecture).eps_key);
    json_out_float(out, (float)eps);
    return OK;
}

static enum status write_own(const struct gguf *gguf, const struct gguf_model *model,
                             struct json_out *out, struct err *err) {
    for (size_t i = 0; i < ARRAY_LEN(own_keys); i++) {
        char key[GGUF_KEY_MAX];
        struct gguf_value value;
        double number = 0;
        if (!own_keys[i].name || strcmp(own_keys[i].model, model->name) != 0) continue;
        gguf_model_key(model, own_keys[i].key, key, sizeof key);
        if (!gguf_find(gguf, key, &value)) return gguf_missing(gguf, key, err);
        enum status status = gguf_read_real(gguf, key, &number, err);
        if (status) return status;
        json_out_rawf(out, ", \"%s\": ", own_keys[i].name);
        json_out_float(out, (float)number);
    }
    return OK;
}

// Whether a layer has a window. The key is a number, as gguf_model's, or a list for the layers.
enum status gguf_layer_slides(bool *out, const struct gguf *gguf, const struct gguf_model *model,
                              uint32_t layer, struct err *err) {
    char key[GGUF_KEY_MAX];
    struct gguf_value value;
    int64_t pattern = model->window_pattern;
    gguf_model_key(model, "attention.sliding_window_pattern", key, sizeof key);
    if (gguf_find(gguf, key, &value) && value.is_array) {
        if (value.type != GGUF_BOOL || value.count != (uint64_t)model->num_layers) {
            return err_set(err, ERR_FORMAT,
                           "%s: \"%s\" is not a list of true and false for each layer",
                           gguf_path(gguf), key);
        }
        *out = gguf_integer(&value, layer, &pattern) && pattern;
        return OK;
    }
    enum status status = gguf_read_int(gguf, key, 1, INT32_MAX, &pattern, err);
    *out = (layer + 1) % pattern != 0;
    return status;
}

// Without a number there is no window, whatever the family's default is.
static enum status write_windows(const struct gguf *gguf, const struct gguf_model *model,
                                 struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    int64_t window = 0;
    if (!model->window_pattern && !model->has_longrope) return OK;
    gguf_model_key(model, "attention.sliding_window", key, sizeof key);
    enum status status = gguf_read_int(gguf, key, 0, INT32_MAX, &window, err);
    if (status) return status;
    if (!window) {
        json_out_raw(out, ", \"sliding_window\": null");
        return OK;
    }
    json_out_rawf(out, ", \"sliding_window\": %lld", (long long)window);
    if (model->has_longrope) return OK; // in all layers
    json_out_raw(out, ", \"layer_types\": [");
    for (uint32_t i = 0; i < model->num_layers && !status; i++) {
        bool slides = false;
        status = gguf_layer_slides(&slides, gguf, model, i, err);
        json_out_rawf(out, "%s\"%s_attention\"", i ? ", " : "", slides ? "sliding" : "full");
    }
    json_out_raw(out, "]");
    return status;
}

// Gemma 2 and 3 scale scores by the width of a head; their models of 27B, which have so many
// layers, by that of all heads' mean.
static void write_query_scale(const struct gguf_model *model, struct json_out *out) {
    bool is_2 = strcmp(model->name, "gemma2") == 0;
    if (!is_2 && strcmp(model->name, "gemma3") != 0) return;
    bool is_27b = model->num_layers == (is_2 ? 46 : 62);
    int64_t scalar = is_27b ? model->heads_width : model->head_dim;
    json_out_rawf(out, ", \"query_pre_attn_scalar\": %lld", (long long)scalar);
}

// llama.cpp's numbers: 1 softmax, 2 sigmoid, 3 softmax of the chosen. neutral_keys has the 1.
static enum status check_gating(const struct gguf *gguf, const struct gguf_model *model,
                                struct err *err) {
    char key[GGUF_KEY_MAX];
    int64_t want = model->choice_bias ? 2 : 3, function = want, num_groups = 1;
    enum status status = OK;
    if (model->has_latents && !model->choice_bias) want = function = 1;
    gguf_model_key(model, "expert_gating_func", key, sizeof key);
    if (is_own(model, "expert_gating_func")) {
        status = gguf_read_int(gguf, key, 0, INT32_MAX, &function, err);
    }
    if (!status && function != want) {
        return err_set(err, ERR_UNSUPPORTED, "%s: \"%s\" is %lld, want %lld", gguf_path(gguf), key,
                       (long long)function, (long long)want);
    }
    gguf_model_key(model, "expert_group_count", key, sizeof key);
    if (!status) status = gguf_read_int(gguf, key, 0, INT32_MAX, &num_groups, err);
    if (status || num_groups <= 1 || model->has_latents || model->has_blocks) return status;
    return err_set(err, ERR_UNSUPPORTED, "%s: \"%s\" is %lld, only 1 group is supported",
                   gguf_path(gguf), key, (long long)num_groups);
}

// Keys of mixtures with a shared expert and dense layers, with the file's numbers.
static enum status write_routed(const struct gguf_files *files, const struct gguf_model *model,
                                struct json_out *out, struct err *err) {
    const struct gguf *gguf = files->files[0];
    static const struct {
        const char *key, *name;
    } numbers[] = {{"expert_shared_count", "n_shared_experts"},
                   {"leading_dense_block_count", "first_k_dense_replace"}};
    bool norm = !model->has_latents || model->choice_bias; // where the file does not say
    double factor = 1;
    char key[GGUF_KEY_MAX];
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        struct gguf_value value;
        int64_t number = 0;
        gguf_model_key(model, numbers[i].key, key, sizeof key);
        if (!is_own(model, numbers[i].key)) continue;
        if (!gguf_find(gguf, key, &value)) return gguf_missing(gguf, key, err);
        enum status status = gguf_read_int(gguf, key, 0, INT32_MAX, &number, err);
        if (status) return status;
        const char *name = own_name(model, numbers[i].name);
        json_out_rawf(out, ", \"%s\": %lld", name, (long long)number);
    }
    gguf_model_key(model, "expert_weights_norm", key, sizeof key);
    enum status status = gguf_read_bool(gguf, key, &norm, err);
    gguf_model_key(model, "expert_weights_scale", key, sizeof key);
    if (!status) status = gguf_read_real(gguf, key, &factor, err);
    json_out_rawf(out,
                  ", \"norm_topk_prob\": %s, \"routed_scaling_factor\": ", norm ? "true" : "false");
    json_out_float(out, (float)(factor == 0 ? 1 : factor));
    json_out_rawf(out, ", \"num_nextn_predict_layers\": %lld, \"use_qk_norm\": %s",
                  (long long)model->num_draft_layers,
                  gguf_files_find(files, "blk.0.attn_q_norm.weight") ? "true" : "false");
    return status;
}

// The other families scale a token's weights to the sum 1, or all of them do not.
static enum status write_experts(const struct gguf_files *files, const struct gguf_model *model,
                                 struct json_out *out, struct err *err) {
    const struct gguf *gguf = files->files[0];
    char key[GGUF_KEY_MAX];
    bool norm = !model->has_plain_weights;
    double scale = 1;
    if (!model->experts) return OK;
    enum status status = check_gating(gguf, model, err);
    if (status) return status;
    json_out_rawf(out, ", \"num_local_experts\": %lld", (long long)model->num_experts);
    bool is_routed = is_own(model, "leading_dense_block_count") || model->has_blocks;
    if (is_routed) return write_routed(files, model, out, err);
    gguf_model_key(model, "expert_weights_norm", key, sizeof key);
    status = gguf_read_bool(gguf, key, &norm, err);
    gguf_model_key(model, "expert_weights_scale", key, sizeof key);
    if (!status) status = gguf_read_real(gguf, key, &scale, err);
    if (status) return status;
    if (norm == model->has_plain_weights || (scale != 0 && scale != 1)) {
        return err_set(err, ERR_UNSUPPORTED, "%s: other weights of experts are not supported (%s)",
                       gguf_path(gguf), key);
    }
    json_out_rawf(out, ", \"norm_topk_prob\": %s", norm ? "true" : "false");
    return OK;
}

// The vocabulary's size is that of the embedding; tokens may be fewer.
static enum status write_vocabulary(const struct gguf_files *files, struct json_out *out,
                                    struct err *err) {
    const struct gguf *gguf = files->files[0];
    const struct gguf_tensor *embedding = gguf_files_find(files, "token_embd.weight");
    if (!embedding || embedding->rank != 2) {
        return err_set(err, ERR_FORMAT, "%s has no matrix \"token_embd.weight\"", gguf_path(gguf));
    }
    struct gguf_special special;
    enum status status = gguf_special_read(&special, gguf, err);
    if (status) return status;
    if (special.num_tokens > embedding->shape[0]) {
        return err_set(err, ERR_FORMAT, "%s has %llu tokens, but the embedding has %llu rows",
                       gguf_path(gguf), (unsigned long long)special.num_tokens,
                       (unsigned long long)embedding->shape[0]);
    }
    json_out_rawf(out, ", \"vocab_size\": %llu", (unsigned long long)embedding->shape[0]);
    json_out_raw(out, ", \"eos_token_id\": [");
    for (size_t i = 0; i < special.num_ends; i++) {
        json_out_rawf(out, "%s%lld", i ? ", " : "", (long long)special.ends[i]);
    }
    json_out_raw(out, "]");
    return OK;
}

static void write_flags(const struct gguf_files *files, const struct gguf_model *model,
                        struct json_out *out) {
    bool is_tied = !gguf_files_find(files, "output.weight");
    json_out_rawf(out, ", \"tie_word_embeddings\": %s", is_tied ? "true" : "false");
    // Qwen2 always has these biases, and its configuration has no key for them.
    bool has_bias = gguf_files_find(files, "blk.0.attn_q.bias");
    if (strcmp(model->architecture, "Qwen2ForCausalLM") != 0) {
        json_out_rawf(out, ", \"attention_bias\": %s", has_bias ? "true" : "false");
    }
    if (gguf_files_find(files, "blk.0.attn_output.bias")) {
        json_out_raw(out, ", \"attention_out_bias\": true");
    }
    if (gguf_files_find(files, "blk.0.ffn_up.bias")) json_out_raw(out, ", \"mlp_bias\": true");
    if (model->is_interleaved) json_out_raw(out, ", \"rope_interleave\": true");
}

// StableLM's attention and MLP may read the same norm.
static enum status write_parallel(const struct gguf *gguf, const struct gguf_model *model,
                                  struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    bool is_parallel = false;
    if (!is_own(model, "use_parallel_residual")) return OK;
    gguf_model_key(model, "use_parallel_residual", key, sizeof key);
    enum status status = gguf_read_bool(gguf, key, &is_parallel, err);
    json_out_rawf(out, ", \"use_parallel_residual\": %s", is_parallel ? "true" : "false");
    return status;
}

enum status gguf_write_config(const struct gguf_files *files, struct json_out *out,
                              struct err *err) {
    const struct gguf *gguf = files->files[0];
    struct gguf_model model;
    enum status status = gguf_model_read(&model, gguf, err);
    if (!status) status = check_keys(gguf, &model, err);
    if (status) return status;
    json_out_rawf(out, "{\"architectures\": [\"%s\"], \"dtype\": \"bfloat16\"", model.architecture);
    json_out_rawf(out, ", \"num_hidden_layers\": %lld", (long long)model.num_layers);
    write_flags(files, &model, out);
    status = write_sizes(gguf, &model, out, err);
    if (!status) status = write_intermediate_size(gguf, &model, out, err);
    if (!status && !model.has_latents) status = write_head_dim(gguf, &model, out, err);
    if (!status && model.has_latents) status = gguf_write_latent(files, &model, out, err);
    if (!status) status = write_eps(gguf, &model, out, err);
    if (!status) status = write_experts(files, &model, out, err);
    if (!status && model.has_global_heads) status = gguf_write_gemma4(files, &model, out, err);
    if (!status && model.has_convs) status = gguf_write_convs(gguf, &model, out, err);
    if (!status && model.mamba) status = gguf_write_mamba(files, &model, out, err);
    if (!status) status = write_parallel(gguf, &model, out, err);
    if (!status && model.has_delta) status = gguf_write_delta(files, &model, out, err);
    if (!status) status = write_own(gguf, &model, out, err);
    if (!status) status = write_windows(gguf, &model, out, err);
    if (!status) write_query_scale(&model, out);
    if (!status) status = write_vocabulary(files, out, err);
    if (!status && !model.has_blocks) status = gguf_write_rope(files, &model, out, err);
    json_out_raw(out, "}");
    return status;
}

static const struct {
    const char *key, *name;
} sampling_keys[] = {
    {"general.sampling.temp", "temperature"},
    {"general.sampling.top_k", "top_k"},
    {"general.sampling.top_p", "top_p"},
    {"general.sampling.min_p", "min_p"},
    {"general.sampling.penalty_repeat", "repetition_penalty"},
};

// How the model's vectors are pooled, by llama.cpp's numbers; -1: the file does not say.
static int pooling_type(const struct gguf *gguf) {
    struct gguf_string model = {"", 0};
    struct gguf_value value;
    char key[GGUF_KEY_MAX];
    if (gguf_read_string(gguf, "general.architecture", &model, NULL)) return -1;
    int len = snprintf(key, sizeof key, "%.*s.pooling_type", (int)model.len, model.text);
    if (len < 0 || (size_t)len >= sizeof key || !gguf_find(gguf, key, &value)) return -1;
    if (value.type == GGUF_STRING || value.is_array) return -1;
    return (int)gguf_real(&value, 0);
}

bool gguf_has_pooling(const struct gguf *gguf) {
    return pooling_type(gguf) > 0; // 0: none
}

void gguf_write_pooling(const struct gguf *gguf, struct json_out *out) {
    static const char *const modes[] = {"none", "mean", "cls", "lasttoken", "rank"};
    int type = pooling_type(gguf);
    const char *mode = type >= 0 && (size_t)type < ARRAY_LEN(modes) ? modes[type] : "unknown";
    json_out_rawf(out, "{\"pooling_mode\": \"%s\"}", mode);
}

bool gguf_has_generation_config(const struct gguf *gguf) {
    struct gguf_value unused;
    for (size_t i = 0; i < ARRAY_LEN(sampling_keys); i++) {
        if (gguf_find(gguf, sampling_keys[i].key, &unused)) return true;
    }
    return false;
}

enum status gguf_write_generation_config(const struct gguf *gguf, struct json_out *out,
                                         struct err *err) {
    bool is_first = true;
    json_out_raw(out, "{");
    for (size_t i = 0; i < ARRAY_LEN(sampling_keys); i++) {
        struct gguf_value value;
        double number = 0;
        if (!gguf_find(gguf, sampling_keys[i].key, &value)) continue;
        enum status status = gguf_read_real(gguf, sampling_keys[i].key, &number, err);
        if (status) return status;
        json_out_rawf(out, "%s\"%s\": ", is_first ? "" : ", ", sampling_keys[i].name);
        is_first = false;
        if (value.type == GGUF_F32 || value.type == GGUF_F64) {
            json_out_float(out, (float)number);
        } else {
            json_out_rawf(out, "%lld", (long long)number);
        }
    }
    json_out_raw(out, "}");
    return OK;
}

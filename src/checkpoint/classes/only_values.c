#include "checkpoint/classes/only_values.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "base/text/c_locale.h"

// Keys of which only one value is supported, as JSON. Of a list each item must be it.
static const struct {
    const char *architecture, *key, *want;
} only_values[] = {
    {"AfmoeForCausalLM", "global_attn_every_n_layers", "4"},
    {"AfmoeForCausalLM", "n_group", "1"},
    {"AfmoeForCausalLM", "route_norm", "true"},
    {"AfmoeForCausalLM", "score_func", "\"sigmoid\""},
    {"AfmoeForCausalLM", "topk_group", "1"},
    {"ApertusForCausalLM", "qk_norm", "true"},
    {"ApertusForCausalLM", "post_norm", "false"},
    {"AXK1ForCausalLM", "moe_layer_freq", "1"},
    {"AXK1ForCausalLM", "scoring_func", "\"sigmoid\""},
    {"AXK1ForCausalLM", "topk_method", "\"noaux_tc\""},
    {"BambaForCausalLM", "partial_rotary_factor", "0.5"},
    {"Cohere2ForCausalLM", "use_parallel_block", "true"},
    {"Cohere2ForCausalLM", "use_gated_activation", "true"},
    {"DeepseekV2ForCausalLM", "moe_layer_freq", "1"},
    {"DeepseekV2ForCausalLM", "norm_topk_prob", "false"},
    {"DeepseekV2ForCausalLM", "scoring_func", "\"softmax\""},
    {"DeepseekV3ForCausalLM", "moe_layer_freq", "1"},
    {"DeepseekV3ForCausalLM", "scoring_func", "\"sigmoid\""},
    {"DeepseekV3ForCausalLM", "topk_method", "\"noaux_tc\""},
    {"Dots1ForCausalLM", "n_group", "1"},
    {"Dots1ForCausalLM", "topk_group", "1"},
    {"Ernie4_5ForCausalLM", "use_bias", "false"},
    {"Ernie4_5_MoeForCausalLM", "use_bias", "false"},
    {"FalconH1ForCausalLM", "attn_layer_indices", "null"}, // all layers attend
    {"FalconH1ForCausalLM", "mamba_use_mlp", "true"},
    {"FalconH1ForCausalLM", "projectors_bias", "false"},
    {"Gemma4ForCausalLM", "use_bidirectional_attention", "\"vision\""}, // of images
    {"Glm4MoeForCausalLM", "n_group", "1"},
    {"Glm4MoeForCausalLM", "topk_group", "1"},
    {"Glm4MoeLiteForCausalLM", "topk_method", "\"noaux_tc\""},
    {"Qwen2MoeForCausalLM", "qkv_bias", "true"},
    {"HunYuanDenseV1ForCausalLM", "use_cla", "false"},
    {"HunYuanDenseV1ForCausalLM", "use_qk_norm", "true"},
    {"HunYuanMoEV1ForCausalLM", "moe_layer_num_skipped", "0"},
    {"HunYuanMoEV1ForCausalLM", "num_shared_expert", "1"},
    {"HunYuanMoEV1ForCausalLM", "use_cla", "false"},
    {"HunYuanMoEV1ForCausalLM", "use_qk_norm", "true"},
    {"HYV3ForCausalLM", "first_k_dense_replace", "1"}, // mlp_layer_types says it
    {"Lfm2ForCausalLM", "conv_bias", "false"},
    {"Lfm2ForCausalLM", "conv_L_cache", "3"},
    {"Lfm2MoeForCausalLM", "conv_bias", "false"},
    {"Lfm2MoeForCausalLM", "conv_L_cache", "3"},
    {"Lfm2MoeForCausalLM", "use_expert_bias", "true"},
    {"NemotronHForCausalLM", "attention_head_dim", "128"}, // another name of head_dim
    {"NemotronHForCausalLM", "mamba_hidden_act", "\"silu\""},
    {"NemotronHForCausalLM", "mlp_hidden_act", "\"relu2\""},
    {"NemotronHForCausalLM", "n_shared_experts", "1"},
    {"NemotronHForCausalLM", "use_bias", "false"},
    {"PhiForCausalLM", "qk_layernorm", "false"},
    {"PhiForCausalLM", "tie_word_embeddings", "false"}, // lm_head has a bias
    {"Llama4ForCausalLM", "num_experts_per_tok", "1"},
    {"SolarOpenForCausalLM", "n_group", "1"},
    {"SolarOpenForCausalLM", "topk_group", "1"},
    {"MiniCPMForCausalLM", "sparse_config", "null"}, // attention to some blocks
    {"MiniCPMForCausalLM", "num_experts", "0"},
    {"MiniMaxM2ForCausalLM", "attn_type_list", "1"},
    {"MiniMaxM2ForCausalLM", "qk_norm_type", "\"per_layer\""},
    {"MiniMaxM2ForCausalLM", "scoring_func", "\"sigmoid\""},
    {"MiniMaxM2ForCausalLM", "shared_intermediate_size", "0"},
    {"MiniMaxM2ForCausalLM", "use_qk_norm", "true"},
    {"MiniMaxM2ForCausalLM", "use_routing_bias", "true"},
};

// The value, or the item of the list, that is another one; NULL: there is none.
static const json_t *find_other(const json_t *value, const json_t *want) {
    json_t *wanted = (json_t *)(uintptr_t)want;
    if (!json_is_array(value)) return json_equal((json_t *)(uintptr_t)value, wanted) ? NULL : value;
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *item = json_array_get(value, i);
        if (!json_equal(item, wanted)) return item;
    }
    return NULL;
}

static enum status check_only_value(const json_t *root, const char *key, const char *want,
                                    const char *what, struct err *err) {
    const json_t *value = jread_get(root, key);
    if (!value) return OK;
    json_t *wanted = jread_literal(want);
    if (!wanted) return err_nomem(err, key);
    const json_t *other = find_other(value, wanted);
    json_decref(wanted);
    if (!other) return OK;
    locale_t before = c_locale_enter();
    char *found = json_dumps(other, JSON_ENCODE_ANY | JSON_COMPACT);
    c_locale_leave(before);
    enum status status =
        err_set(err, ERR_UNSUPPORTED, "%s: \"%s\" %s %.60s, which is not supported, want %s", what,
                key, json_is_array(value) ? "has" : "is", found ? found : "another", want);
    free(found);
    return status;
}

enum status only_values_check(const json_t *root, const char *architecture, const char *what,
                              struct err *err) {
    for (size_t i = 0; i < ARRAY_LEN(only_values); i++) {
        if (strcmp(only_values[i].architecture, architecture) != 0) continue;
        enum status status =
            check_only_value(root, only_values[i].key, only_values[i].want, what, err);
        if (status) return status;
    }
    return OK;
}

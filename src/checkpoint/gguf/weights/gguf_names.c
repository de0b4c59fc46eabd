#include "checkpoint/gguf/weights/gguf_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "checkpoint/gguf/file/gguf_read.h"

static const struct {
    const char *gguf, *module;
} globals[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"token_embd_norm", "model.embedding_norm"}, // of LFM2, behind the layers
    {"output", "lm_head"},
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
};

static const struct {
    const char *gguf, *module; // of a layer
} modules[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
};

// Modules of which models have other names.
static const struct {
    const char *model, *gguf, *module;
} own_modules[] = {
    {"deepseek2", "attn_q_a", "self_attn.q_a_proj"},
    {"deepseek2", "attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"deepseek2", "attn_q_b", "self_attn.q_b_proj"},
    {"deepseek2", "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"deepseek2", "attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"deepseek2", "attn_kv_b", "self_attn.kv_b_proj"},
    {"falcon-h1", "ffn_norm", "pre_ff_layernorm"},
    {"falcon-h1", "ffn_gate", "feed_forward.gate_proj"},
    {"falcon-h1", "ffn_up", "feed_forward.up_proj"},
    {"falcon-h1", "ffn_down", "feed_forward.down_proj"},
    {"gemma2", "ffn_norm", "pre_feedforward_layernorm"},
    {"gemma3", "ffn_norm", "pre_feedforward_layernorm"},
    {"gemma4", "ffn_norm", "pre_feedforward_layernorm"},
    {"glm4", "post_attention_norm", "post_self_attn_layernorm"},
    {"glm4", "post_ffw_norm", "post_mlp_layernorm"},
    {"glm4", "ffn_up", "mlp.gate_up_proj"},
    {"hunyuan-dense", "attn_q_norm", "self_attn.query_layernorm"},
    {"hunyuan-dense", "attn_k_norm", "self_attn.key_layernorm"},
    {"hunyuan-moe", "attn_q_norm", "self_attn.query_layernorm"},
    {"hunyuan-moe", "attn_k_norm", "self_attn.key_layernorm"},
    {"lfm2", "attn_norm", "operator_norm"},
    {"lfm2", "ffn_norm", "ffn_norm"},
    {"lfm2", "attn_output", "self_attn.out_proj"},
    {"lfm2", "attn_q_norm", "self_attn.q_layernorm"},
    {"lfm2", "attn_k_norm", "self_attn.k_layernorm"},
    {"lfm2", "ffn_gate", "feed_forward.w1"},
    {"lfm2", "ffn_up", "feed_forward.w3"},
    {"lfm2", "ffn_down", "feed_forward.w2"},
    {"lfm2", "shortconv.conv", "conv.conv"},
    {"lfm2", "shortconv.in_proj", "conv.in_proj"},
    {"lfm2", "shortconv.out_proj", "conv.out_proj"},
    {"lfm2moe", "attn_norm", "operator_norm"},
    {"lfm2moe", "ffn_norm", "ffn_norm"},
    {"lfm2moe", "attn_output", "self_attn.out_proj"},
    {"lfm2moe", "attn_q_norm", "self_attn.q_layernorm"},
    {"lfm2moe", "attn_k_norm", "self_attn.k_layernorm"},
    {"lfm2moe", "ffn_gate", "feed_forward.w1"},
    {"lfm2moe", "ffn_up", "feed_forward.w3"},
    {"lfm2moe", "ffn_down", "feed_forward.w2"},
    {"lfm2moe", "shortconv.conv", "conv.conv"},
    {"lfm2moe", "shortconv.in_proj", "conv.in_proj"},
    {"lfm2moe", "shortconv.out_proj", "conv.out_proj"},
    {"granitehybrid", "ffn_gate", "shared_mlp.gate_proj"},
    {"granitehybrid", "ffn_up", "shared_mlp.up_proj"},
    {"granitehybrid", "ffn_down", "shared_mlp.down_proj"},
    {"nemotron_h", "attn_norm", "norm"},
    {"nemotron_h", "attn_q", "mixer.q_proj"},
    {"nemotron_h", "attn_k", "mixer.k_proj"},
    {"nemotron_h", "attn_v", "mixer.v_proj"},
    {"nemotron_h", "attn_output", "mixer.o_proj"},
    {"nemotron_h", "ffn_up", "mixer.up_proj"},
    {"nemotron_h", "ffn_down", "mixer.down_proj"},
    {"nemotron_h_moe", "attn_norm", "norm"},
    {"nemotron_h_moe", "attn_q", "mixer.q_proj"},
    {"nemotron_h_moe", "attn_k", "mixer.k_proj"},
    {"nemotron_h_moe", "attn_v", "mixer.v_proj"},
    {"nemotron_h_moe", "attn_output", "mixer.o_proj"},
    {"starcoder2", "ffn_up", "mlp.c_fc"},
    {"starcoder2", "ffn_down", "mlp.c_proj"},
    {"phi3", "attn_qkv", "self_attn.qkv_proj"},
    {"phi3", "ffn_up", "mlp.gate_up_proj"},
};

// Of a gated delta net: what is of its heads, and so may be stored tiled.
enum delta_heads { NO_HEADS, HEADS, HEAD_ROWS, HEAD_ROWS_BEHIND_KEYS, HEAD_COLS };

static const struct {
    const char *gguf, *name;
    enum delta_heads heads;
} delta_tensors[] = {
    {"attn_qkv.weight", "in_proj_qkv.weight", HEAD_ROWS_BEHIND_KEYS},
    {"attn_gate.weight", "in_proj_z.weight", HEAD_ROWS},
    {"ssm_in.weight", "in_proj_qkvz.weight", NO_HEADS}, // of old files of qwen3next
    {"ssm_ba.weight", "in_proj_ba.weight", NO_HEADS}, // of qwen3next, which has no tiled heads
    {"ssm_alpha.weight", "in_proj_a.weight", HEADS},
    {"ssm_beta.weight", "in_proj_b.weight", HEADS},
    {"ssm_a", "A", HEADS},
    {"ssm_dt.bias", "dt_bias", HEADS},
    {"ssm_conv1d.weight", "conv1d.weight", HEAD_ROWS_BEHIND_KEYS},
    {"ssm_norm.weight", "norm.weight", NO_HEADS},
    {"ssm_out.weight", "out_proj.weight", HEAD_COLS},
};

static void set_delta_order(const struct gguf_delta *delta, enum delta_heads heads,
                            struct gguf_place *out) {
    uint64_t keys = delta->num_keys, members = delta->num_heads / keys;
    uint64_t first = heads == HEAD_ROWS_BEHIND_KEYS ? 2 * keys * delta->key_dim : 0;
    uint64_t run = heads == HEADS ? 1 : delta->value_dim;
    struct gguf_order order = {first, keys, members, run};
    if (heads == NO_HEADS || members == 1) return;
    *(heads == HEAD_COLS ? &out->cols : &out->rows) = order;
}

static bool name_delta(const struct gguf_model *model, long layer, const char *rest,
                       struct gguf_place *out) {
    for (size_t i = 0; i < ARRAY_LEN(delta_tensors) && model->delta.num_keys; i++) {
        if (strcmp(rest, delta_tensors[i].gguf) != 0) continue;
        snprintf(out->name, sizeof out->name, "model.layers.%ld.linear_attn.%s", layer,
                 delta_tensors[i].name);
        out->is_as_stored = true;
        if (model->has_tiled_heads) set_delta_order(&model->delta, delta_tensors[i].heads, out);
        return true;
    }
    return false;
}

// Of a layer with Mamba-2. Vectors of heads, and the norm by groups, are stored as matrices.
static bool name_mamba(const struct gguf_model *model, long layer, const char *rest,
                       struct gguf_place *out) {
    static const struct {
        const char *gguf, *name;
        bool is_vector;
    } tensors[] = {
        {"ssm_in.weight", "in_proj.weight", false},
        {"ssm_conv1d.weight", "conv1d.weight", false},
        {"ssm_conv1d.bias", "conv1d.bias", true},
        {"ssm_dt.bias", "dt_bias", true},
        {"ssm_a", "A", true},
        {"ssm_d", "D", true},
        {"ssm_norm.weight", "norm.weight", true},
        {"ssm_out.weight", "out_proj.weight", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(tensors) && model->mamba; i++) {
        if (strcmp(rest, tensors[i].gguf) != 0) continue;
        snprintf(out->name, sizeof out->name, "model.layers.%ld.%s.%s", layer, model->mamba,
                 tensors[i].name);
        out->is_vector = tensors[i].is_vector;
        return true;
    }
    return false;
}

// Names that are no module's with ".weight" or ".bias".
static bool name_whole(const struct gguf_model *model, long layer, const char *rest,
                       struct gguf_place *out) {
    const struct {
        const char *gguf, *name; // NULL: the model has none
    } tensors[] = {
        {"attn_sinks.weight", "self_attn.sinks"},
        {"exp_probs_b.bias", model->choice_bias},
        {"ffn_gate_inp.scale", model->router_norm},
        {"ffn_down_exps.scale", model->expert_scales},
        {"layer_output_scale.weight", model->has_global_heads ? "layer_scalar" : NULL},
        {"ffn_norm", model->is_hybrid ? "pre_ff_layernorm.weight" : NULL}, // as it is written
    };
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        if (!tensors[i].name || strcmp(rest, tensors[i].gguf) != 0) continue;
        snprintf(out->name, sizeof out->name, "model.layers.%ld.%s", layer, tensors[i].name);
        return true;
    }
    return false;
}

static const char *name_module(const struct gguf_model *model, const char *module) {
    for (size_t i = 0; i < ARRAY_LEN(own_modules); i++) {
        if (strcmp(model->name, own_modules[i].model) != 0) continue;
        if (strcmp(module, own_modules[i].gguf) == 0) return own_modules[i].module;
    }
    for (size_t i = 0; i < ARRAY_LEN(modules); i++) {
        if (strcmp(module, modules[i].gguf) == 0) return modules[i].module;
    }
    return NULL;
}

// The number at *p, which has no leading zeros; *p moves behind it. -1: it is none.
static long take_number(const char **p) {
    char *end;
    if (**p < '0' || **p > '9' || (**p == '0' && (*p)[1] >= '0' && (*p)[1] <= '9')) return -1;
    long number = strtol(*p, &end, 10);
    *p = end;
    return number;
}

// An expert's part: "gate_exps", as all files have it by now, or "gate.7" of old ones.
static bool name_expert(const struct gguf_model *model, long layer, const char *module,
                        const char *suffix, struct gguf_place *out) {
    const struct {
        const char *gguf, *part;
    } parts[] = {{"ffn_gate", model->gate}, {"ffn_up", model->up}, {"ffn_down", model->down}};
    if (model->gate && strcmp(module, "ffn_gate_up_exps") == 0 && strcmp(suffix, ".weight") == 0) {
        snprintf(out->name, sizeof out->name, "model.layers.%ld.%s", layer, model->experts);
        out->expert_part = model->gate;
        out->second_part = model->up;
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        size_t len = strlen(parts[i].gguf);
        if (!parts[i].part || strncmp(module, parts[i].gguf, len) != 0) continue;
        const char *rest = module + len;
        bool is_bias = strcmp(suffix, ".bias") == 0;
        if (strcmp(rest, "_exps") == 0 && (!is_bias || model->has_expert_bias)) {
            snprintf(out->name, sizeof out->name, "model.layers.%ld.%s", layer, model->experts);
            out->expert_part = parts[i].part;
            out->is_bias = is_bias;
            return true;
        }
        if (strcmp(rest, "_shexp") == 0 && model->shared) {
            snprintf(out->name, sizeof out->name, "model.layers.%ld.%s.%s%s", layer, model->shared,
                     parts[i].part, suffix);
            return true;
        }
        if (*rest++ != '.') continue;
        long expert = take_number(&rest);
        if (expert < 0 || *rest) continue;
        snprintf(out->name, sizeof out->name, "model.layers.%ld.%s.%ld.%s%s", layer, model->experts,
                 expert, parts[i].part, suffix);
        return true;
    }
    return false;
}

// The matrices of heads that latent attention has: those of keys, transposed, and of values.
static bool name_latent(const struct gguf_model *model, long layer, const char *rest,
                        struct gguf_place *out) {
    bool is_key = strcmp(rest, "attn_k_b.weight") == 0;
    if (!model->has_latents || (!is_key && strcmp(rest, "attn_v_b.weight") != 0)) return false;
    snprintf(out->name, sizeof out->name, "model.layers.%ld.self_attn.kv_b_heads", layer);
    out->expert_part = is_key ? "key" : "value";
    return true;
}

static bool name_layer(const struct gguf_model *model, const char *name, struct gguf_place *out) {
    if (strncmp(name, "blk.", 4) != 0) return false;
    const char *p = name + 4;
    long layer = take_number(&p);
    const char *suffix = strrchr(name, '.');
    if (layer < 0 || *p++ != '.') return false;
    if (name_delta(model, layer, p, out) || name_mamba(model, layer, p, out)) return true;
    if (name_whole(model, layer, p, out)) return true;
    if (name_latent(model, layer, p, out)) return true;
    if (!suffix || suffix < p) return false;
    if (strcmp(suffix, ".weight") != 0 && strcmp(suffix, ".bias") != 0) return false;
    char module[64];
    int len = snprintf(module, sizeof module, "%.*s", (int)(suffix - p), p);
    if (len < 0 || (size_t)len >= sizeof module) return false;
    if (model->experts && strcmp(module, "ffn_gate_inp") == 0) {
        snprintf(out->name, sizeof out->name, "model.layers.%ld.%s%s", layer, model->router,
                 suffix);
        return true;
    }
    if (model->shared_gate && strcmp(module, "ffn_gate_inp_shexp") == 0) {
        snprintf(out->name, sizeof out->name, "model.layers.%ld.%s%s", layer, model->shared_gate,
                 suffix);
        out->is_row = true;
        return true;
    }
    if (strncmp(module, "nextn.", strlen("nextn.")) == 0) { // of a layer that is not loaded
        snprintf(out->name, sizeof out->name, "model.layers.%ld.%s%s", layer, module, suffix);
        return true;
    }
    if (model->experts && name_expert(model, layer, module, suffix, out)) return true;
    const char *known = name_module(model, module);
    if (!known) return false;
    snprintf(out->name, sizeof out->name, "model.layers.%ld.%s%s", layer, known, suffix);
    return true;
}

void gguf_name_tensor(const struct gguf_model *model, struct gguf_string name,
                      struct gguf_place *out) {
    *out = (struct gguf_place){0};
    char text[sizeof out->name];
    snprintf(text, sizeof text, "%.*s", (int)name.len, name.text);
    if (name_layer(model, text, out)) return;
    for (size_t i = 0; i < ARRAY_LEN(globals); i++) {
        size_t len = strlen(globals[i].gguf);
        const char *suffix = text + len;
        if (strncmp(text, globals[i].gguf, len) != 0) continue;
        bool is_bias = strcmp(text, "output_norm.bias") == 0; // of a LayerNorm
        if (strcmp(suffix, ".weight") != 0 && !is_bias) continue;
        bool is_norm = model->final_norm && strcmp(globals[i].gguf, "output_norm") == 0;
        snprintf(out->name, sizeof out->name, "%s%s",
                 is_norm ? model->final_norm : globals[i].module, suffix);
        return;
    }
    memcpy(out->name, text, sizeof text);
}

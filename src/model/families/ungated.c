/* Models whose MLP has no gate: down(activation(up(x))).
 *
 * Arcee (AFM) is Llama with max(x, 0)^2. Jais 2 has that, LayerNorms with biases, and biases of
 * all linears. Nemotron (Minitron, Nemotron-4) has it too, LayerNorms by 1 + weight with biases,
 * and rotates half of each head. StarCoder2 has GELU, LayerNorms with biases and biases of all
 * linears. Apertus has xIELU with two numbers of each layer, and q and k normed by head.
 *
 * Sources: arXiv 2407.14679, arXiv 2402.19173, arXiv 2509.14233, and transformers' Arcee, Jais2,
 * Nemotron, Starcoder2 and Apertus. */
#include "model/family.h"

static void set_activation(struct layer_table *table, enum activation activation) {
    table->mlp.gate = NULL;
    for (uint32_t i = 0; i < table->num_layers; i++) table->layers[i].activation = activation;
}

static void change_arcee(struct layer_table *table, const struct model_config *config) {
    (void)config;
    set_activation(table, ACTIVATION_RELU_SQUARED);
}

static void change_nemotron(struct layer_table *table, const struct model_config *config) {
    change_arcee(table, config);
    table->norm_kind = NORM_ONE_PLUS_WEIGHT;
    table->is_layer_norm = table->has_norm_bias = true;
}

static void change_jais2(struct layer_table *table, const struct model_config *config) {
    change_arcee(table, config);
    table->is_layer_norm = table->has_norm_bias = true;
}

static void change_starcoder2(struct layer_table *table, const struct model_config *config) {
    (void)config;
    set_activation(table, ACTIVATION_GELU_TANH);
    table->is_layer_norm = table->has_norm_bias = true;
    table->mlp.up = "mlp.c_fc";
    table->mlp.down = "mlp.c_proj";
}

static void change_apertus(struct layer_table *table, const struct model_config *config) {
    static const struct norm_names norms = {.attention = "attention_layernorm",
                                            .mlp = "feedforward_layernorm",
                                            .q = "self_attn.q_norm",
                                            .k = "self_attn.k_norm"};
    (void)config;
    set_activation(table, ACTIVATION_XIELU);
    table->norms = &norms;
}

const struct model_family family_arcee = {
    .name = "Arcee",
    .architecture = "ArceeForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
    .change = change_arcee,
};

const struct model_family family_jais2 = {
    .name = "Jais 2",
    .architecture = "Jais2ForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION, .by_default = true},
    .o_bias = {.key = BIAS_ATTENTION, .by_default = true},
    .mlp_bias = {.key = BIAS_MLP, .by_default = true},
    .change = change_jais2,
};

const struct model_family family_nemotron = {
    .name = "Nemotron",
    .architecture = "NemotronForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
    .change = change_nemotron,
};

const struct model_family family_starcoder2 = {
    .name = "StarCoder2",
    .architecture = "Starcoder2ForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION, .by_default = true},
    .o_bias = {.key = BIAS_ATTENTION, .by_default = true},
    .mlp_bias = {.key = BIAS_MLP, .by_default = true},
    .change = change_starcoder2,
};

const struct model_family family_apertus = {
    .name = "Apertus",
    .architecture = "ApertusForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .change = change_apertus,
};

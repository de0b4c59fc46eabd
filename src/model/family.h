/* The differences between model families within the one forward pass (decoder.c). A family is a
 * table entry, from which come the entries of its layers (layer_table.h); doc/adding-a-model.md
 * shows how to add one. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include <stdbool.h>

#include "base/err.h"
#include "checkpoint/model_config.h"
#include "model/layer_table.h"

// The key of config.json that says whether a linear has a bias.
enum bias_key {
    BIAS_NO_KEY,
    BIAS_ATTENTION, // attention_bias
    BIAS_ATTENTION_OUT, // attention_out_bias
    BIAS_MLP, // mlp_bias
};

// All-zero: never a bias.
struct bias_rule {
    enum bias_key key;
    bool by_default; // whether there is a bias where config.json lacks the key, or there is no key
};

struct model_family {
    const char *name; // for people: "Qwen3"
    const char *architecture; // config.json's architectures[0]
    enum head_norm head_norm;
    struct bias_rule qkv_bias;
    struct bias_rule o_bias;
    struct bias_rule mlp_bias; // gate, up and down of a dense MLP
    const struct expert_names *expert_names; // NULL: never a mixture of experts
    // Changes what else is different from Llama's layers. NULL: nothing is.
    void (*change)(struct layer_table *table, const struct model_config *config);
};

// Finds the family of config->architecture and describes the layers of a model of it.
// ERR_UNSUPPORTED lists the supported architectures, or names what the forward pass lacks. After
// an error *out is empty; else the caller calls layer_table_fini.
MUST_USE enum status family_resolve(struct layer_table *out, const struct model_config *config,
                                    struct err *err);
// The same for a given family.
MUST_USE enum status family_apply(struct layer_table *out, const struct model_family *family,
                                  const struct model_config *config, struct err *err);

// All families; NULL is the end. The list is in a file of its own, so that tests can link another.
extern const struct model_family *const model_families[];

// DeepSeek's experts beside shared ones, ranked with a bias (families/glm4_moe.c).
extern const struct expert_names deepseek_expert_names;
// Qwen's experts beside a shared one with a gate (families/qwen3_next.c).
extern const struct expert_names qwen_expert_names;
// Experts alone (families/qwen3_moe.c).
extern const struct expert_names plain_expert_names;

extern const struct model_family family_afmoe;
extern const struct model_family family_apertus;
extern const struct model_family family_arcee;
extern const struct model_family family_axk1;
extern const struct model_family family_bamba;
extern const struct model_family family_cohere2;
extern const struct model_family family_cohere2_moe;
extern const struct model_family family_cohere;
extern const struct model_family family_cwm;
extern const struct model_family family_deepseek_v2;
extern const struct model_family family_deepseek_v3;
extern const struct model_family family_dots1;
extern const struct model_family family_ernie4_5;
extern const struct model_family family_ernie4_5_moe;
extern const struct model_family family_exaone4;
extern const struct model_family family_exaone_moe;
extern const struct model_family family_falcon_h1;
extern const struct model_family family_flex_olmo;
extern const struct model_family family_gemma2;
extern const struct model_family family_gemma3;
extern const struct model_family family_gemma4;
extern const struct model_family family_gemma;
extern const struct model_family family_glm4;
extern const struct model_family family_glm4_moe;
extern const struct model_family family_glm4_moe_lite;
extern const struct model_family family_glm;
extern const struct model_family family_gpt_oss;
extern const struct model_family family_granite;
extern const struct model_family family_granite_hybrid;
extern const struct model_family family_granite_moe;
extern const struct model_family family_granite_moe_shared;
extern const struct model_family family_granite_moe_swa;
extern const struct model_family family_granite_swa;
extern const struct model_family family_helium;
extern const struct model_family family_hunyuan_dense;
extern const struct model_family family_hunyuan_moe;
extern const struct model_family family_hunyuan_v3;
extern const struct model_family family_hyperclovax;
extern const struct model_family family_internlm3;
extern const struct model_family family_jais2;
extern const struct model_family family_lfm2;
extern const struct model_family family_lfm2_moe;
extern const struct model_family family_llama4;
extern const struct model_family family_llama;
extern const struct model_family family_mellum;
extern const struct model_family family_minicpm;
extern const struct model_family family_minimax_m2;
extern const struct model_family family_ministral3;
extern const struct model_family family_ministral;
extern const struct model_family family_mistral4;
extern const struct model_family family_mistral;
extern const struct model_family family_mixtral;
extern const struct model_family family_nanochat;
extern const struct model_family family_nemotron;
extern const struct model_family family_nemotron_h;
extern const struct model_family family_olmo2;
extern const struct model_family family_olmo3;
extern const struct model_family family_olmoe;
extern const struct model_family family_phi3;
extern const struct model_family family_phi;
extern const struct model_family family_qwen2;
extern const struct model_family family_qwen2_moe;
extern const struct model_family family_qwen3;
extern const struct model_family family_qwen3_5;
extern const struct model_family family_qwen3_5_moe;
extern const struct model_family family_qwen3_moe;
extern const struct model_family family_qwen3_next;
extern const struct model_family family_sarvam_moe;
extern const struct model_family family_seed_oss;
extern const struct model_family family_smollm3;
extern const struct model_family family_solar_open;
extern const struct model_family family_stablelm;
extern const struct model_family family_starcoder2;
extern const struct model_family family_vault_gemma;
extern const struct model_family family_youtu;

#endif

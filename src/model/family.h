/* The differences between model families within the one forward pass (decoder.c). A family is a
 * table entry; doc/adding-a-model.md shows how to add one. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include <stdbool.h>

#include "base/err.h"
#include "checkpoint/model_config.h"

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

// Tensor names of a layer's experts, below "model.layers.N.".
struct expert_names {
    const char *router; // "mlp.gate"
    const char *experts; // "mlp.experts": ".N." and one of the following are appended
    const char *gate, *up, *down; // "gate_proj"
};

struct model_family {
    const char *name; // for people: "Qwen3"
    const char *architecture; // config.json's architectures[0]
    bool qk_norm; // RMS norm of every q and k head before the rotary embedding
    struct bias_rule qkv_bias;
    struct bias_rule o_bias;
    struct bias_rule mlp_bias; // gate, up and down of a dense MLP
    const struct expert_names *expert_names; // NULL: never a mixture of experts
};

// The table entry applied to one model's config.
struct family_traits {
    const char *family; // static
    bool qk_norm;
    bool qkv_bias;
    bool o_bias;
    bool mlp_bias;
    const struct expert_names *expert_names; // static
};

// Finds the family of config->architecture and applies it. ERR_UNSUPPORTED lists the supported
// architectures, or names the config key that the forward pass does not support.
MUST_USE enum status family_resolve(struct family_traits *out, const struct model_config *config,
                                    struct err *err);
// The same for a given family.
MUST_USE enum status family_apply(struct family_traits *out, const struct model_family *family,
                                  const struct model_config *config, struct err *err);

extern const struct model_family family_llama;
extern const struct model_family family_mistral;
extern const struct model_family family_mixtral;
extern const struct model_family family_qwen2;
extern const struct model_family family_qwen3;
extern const struct model_family family_qwen3_moe;

#endif

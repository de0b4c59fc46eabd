/* Defaults of config.json's keys that differ between transformers' configuration classes. Those of
 * experts are in moe_defaults.c, those of windows in window_config.c. */
#ifndef CHECKPOINT_CLASS_DEFAULTS_H
#define CHECKPOINT_CLASS_DEFAULTS_H

#include <stdbool.h>
#include <stdint.h>

enum { SAME_THETA = -1 }; // the rope of layers with a window has the theta of the others

// What a class does without a key.
struct class_defaults {
    const char *architecture;
    double rms_norm_eps, rope_theta; // 0: 1e-6 and 10000
    const char *eps_key; // the name of rms_norm_eps; NULL: that
    double local_theta; // of layers with a window; 0: they have the rope of all layers
    bool ties_embeddings;
    const char *activation; // the only one; NULL: silu
    const char *activation_too; // another name that the class has for it; NULL: none
    // Other names of attention_bias and mlp_bias; NULL: the class has none.
    const char *attention_bias_key, *mlp_bias_key;
    uint32_t head_dim; // 0: hidden_size / num_attention_heads
    double partial; // partial_rotary_factor; 0: 1
    bool has_one_partial; // a partial_rotary_factor of null means 1
    double logits_softcap; // final_logit_softcapping; 0: none
    const char *rope; // the section of the rotary embedding, as JSON; NULL: a plain one
    uint32_t original_length; // original_max_position_embeddings; 0: max_position_embeddings
    const char *mlp_key; // the size of a dense MLP; NULL: intermediate_size
    bool has_no_dense_layer; // that key may be missing
};

// Of a class without a row: those that most have.
struct class_defaults class_defaults_of(const char *architecture);

#endif

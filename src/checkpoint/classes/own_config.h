/* Keys of config.json that only some architectures have, because each changes the computation.
 * Where an architecture does not have a key, model_config.c refuses it by name. */
#ifndef CHECKPOINT_OWN_CONFIG_H
#define CHECKPOINT_OWN_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

// A gated delta net's heads (backend.h). Each key head serves num_heads / num_key_heads of them.
struct delta_config {
    uint32_t num_key_heads, num_heads;
    uint32_t key_dim, value_dim; // of a head
};

// The heads of a Mamba-2 layer (backend/recurrent.h), and the limits of its step.
struct mamba_config {
    uint32_t num_groups, num_heads;
    uint32_t state_dim, head_dim;
    float dt_min, dt_max;
};

// Falcon-H1's factors: of keys, of what attention and Mamba-2 read and of what they add to the
// residual, of the logits, of the MLP's gate and of its result, and of Mamba's z, x, B, C and dt.
struct hybrid_factors {
    float key, attention_in, attention_out, ssm_in, ssm_out, lm_head, gate, down;
    float ssm[5];
};

// Multi-head latent attention (backend/latent.h).
struct latent_config {
    uint32_t query_rank; // q is made of a latent of so many elements; 0: of the residual
    uint32_t rank; // elements of the latent of keys and values
    uint32_t nope_dim, rope_dim, value_dim; // of a head
};

struct own_config {
    float embedding_multiplier; // factor of the embeddings; 1 by default
    // Of what attention and MLP add to the residual; MiniCPM's is divided by sqrt(layers); 1 by
    // default.
    float residual_multiplier;
    float attention_multiplier; // of the scores q k^T; 0: the family's own
    float logits_scaling; // logits are divided by it; 1 by default
    float dim_model_base; // MiniCPM's logits are multiplied by it / hidden_size; 1 by default
    float logit_scale; // logits are multiplied by it; 1 by default, Cohere's 1/16
    float query_pre_attn_scalar; // scores are q k^T / sqrt of it; 0: head_dim
    float scores_softcap, logits_softcap; // 0: none
    // Of Gemma 4's layers without a window; 0: as many KV heads as the others.
    uint32_t global_head_dim, num_global_kv_heads;
    bool has_keys_as_values; // of those layers: v is k
    // Gemma 4's E2B and E4B: the width of a token's input to each layer, 0: none; how many layers
    // at the end read the keys and values of earlier ones; whether their MLPs are twice as wide.
    uint32_t layer_input_size, num_shared_kv_layers;
    bool has_wide_shared_layers;
    // In layers without a rotary embedding q is scaled by its position, as rope_config has it.
    double temperature_scale, temperature_length; // 0: it is not
    bool scales_embeddings; // the embeddings are multiplied by sqrt(hidden_size)
    // Of Command A+: norms are RMS norms; dense layers have a rotary embedding, also without a
    // window; what the shared expert and the others add is halved.
    bool has_rms_norms, has_dense_ropes, averages_experts;
    bool use_qk_norm; // q and k are normed by head; StableLM's qk_layernorm
    bool lacks_post_norm; // there are no norms behind attention and MLP
    bool is_parallel; // attention and MLP read the same norm
    bool lacks_rope; // no layer has a rotary embedding
    bool has_interleaved_rope; // its pairs in a head are neighbours
    bool *has_no_rope; // [num_layers]; NULL: all layers have a rotary embedding
    double *layer_thetas; // [num_layers] of rotary embeddings, 0: none; NULL: all have rope.theta
    struct delta_config delta; // all zero: the architecture has no such layers
    struct mamba_config mamba; // all zero: no layer has it
    bool lacks_mamba_norm; // there is no norm behind Mamba-2
    struct hybrid_factors factors; // all zero: the architecture has none
    struct latent_config latent; // all zero: the architecture has none
    // [num_layers] whether the layer is a gated delta net, has Mamba-2 or, of LFM2, a short
    // convolution; NULL: none is.
    bool *is_linear;
    // [num_layers] the only block of each layer: Mamba-2, attention, MLP or experts, as Nemotron-H
    // names them; NULL: layers have two blocks.
    char *blocks;
};

enum { BLOCK_MAMBA = 'M', BLOCK_ATTENTION = '*', BLOCK_MLP = '-', BLOCK_EXPERTS = 'E' };

bool own_config_has(const char *architecture, const char *key);

// Keys that the architecture does not have get their defaults. After an error *out is empty.
MUST_USE enum status own_config_read(struct own_config *out, const json_t *root,
                                     const char *architecture, uint32_t num_layers,
                                     const char *what, struct err *err);
void own_config_fini(struct own_config *config); // all-zero is fine

#endif

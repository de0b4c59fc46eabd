/* What a GGUF file's architecture says: which of our families it is, and how its tensors are named
 * and stored. */
#ifndef CHECKPOINT_GGUF_GGUF_MODEL_H
#define CHECKPOINT_GGUF_GGUF_MODEL_H

#include "checkpoint/gguf/file/gguf_files.h"

// The heads of gated delta nets. No key heads: the model has no such layers.
struct gguf_delta {
    uint32_t num_keys, num_heads; // each key head serves num_heads / num_keys
    uint32_t key_dim, value_dim; // of a head
};

struct gguf_model {
    const char *name; // general.architecture: "llama"
    const char *architecture; // of config.json: "LlamaForCausalLM"
    bool is_interleaved; // of each head neighbours are rotated, in folders elements of both halves
    bool has_norms_plus_one; // weights of norms are stored with 1 added
    bool has_longrope; // Phi-3's: lists of divisors may be there, and all layers have the window
    bool has_layer_norm; // the key of eps is that of LayerNorms
    bool has_convs; // layers without KV heads are LFM2's short convolutions
    const char *mamba; // they have Mamba-2, in a module of this name; NULL: they have not
    bool has_mamba_keys; // Granite 4's, also where no layer has Mamba-2; they do not matter then
    bool has_blocks; // Nemotron-H's: a layer is Mamba-2, attention, an MLP or experts
    bool is_hybrid; // Falcon-H1's: each layer has Mamba-2 and attention
    const char *final_norm; // NULL: "model.norm"
    bool has_sections; // a rotation in sections, which differ for images only
    bool is_partial; // a part of each head may be rotated
    bool has_one_rope; // layers with a window have the rotation of the others
    bool has_global_heads; // Gemma 4's keys
    bool has_delta; // layers that are gated delta nets
    bool has_latents; // latent attention; head_dim is that of what is rotated
    bool has_tiled_heads; // of them: the first head of each key head, then the second of each ...
    // Layers without a window, counted from 1, are multiples of this; 0: the family has no windows
    // or no such layers. Their rotation is not that of the others.
    uint32_t window_pattern;
    const char *router, *experts; // modules of a layer; NULL: there are no experts
    const char *gate, *up, *down; // of an expert
    const char *shared; // the module of the expert that all tokens go to, whose parts have the same
    const char *shared_gate; // of its gate; NULL: it has none
    // Of a router with a norm: that norm, and the factors of experts. NULL: it has neither.
    const char *router_norm, *expert_scales;
    const char *choice_bias; // of the router; its scores are sigmoids
    bool has_expert_bias;
    bool has_plain_weights; // those of experts are not divided by their sum
    int64_t head_dim; // where global_head_dim is not 0: of layers with a window
    int64_t global_head_dim; // of the others; 0: the same
    int64_t heads_width; // hidden_size / number of heads
    int64_t num_layers;
    int64_t num_draft_layers; // behind them, for drafts
    int64_t num_experts; // 0: none
    struct gguf_delta delta;
};

// Refuses what is no language model (a LoRA adapter, a projector of images), and an architecture
// that is not known.
MUST_USE enum status gguf_model_read(struct gguf_model *model, const struct gguf *gguf,
                                     struct err *err);
// "<architecture>.<key>"
const char *gguf_model_key(const struct gguf_model *model, const char *key, char *out, size_t size);

// The width of the heads of layers without a window.
static inline int64_t gguf_model_wide(const struct gguf_model *model) {
    return model->global_head_dim ? model->global_head_dim : model->head_dim;
}

struct json_out;
// config.json and generation_config.json, written from the metadata.
MUST_USE enum status gguf_write_config(const struct gguf_files *files, struct json_out *out,
                                       struct err *err);
// Of a model with gated delta nets: adds the keys of these, and of its shared expert, to
// config.json.
MUST_USE enum status gguf_write_delta(const struct gguf_files *files,
                                      const struct gguf_model *model, struct json_out *out,
                                      struct err *err);
// Of a model with has_convs: adds which layers these are, and the number of KV heads of the others.
MUST_USE enum status gguf_write_convs(const struct gguf *gguf, const struct gguf_model *model,
                                      struct json_out *out, struct err *err);
// Of a model with Mamba-2: adds the keys of these layers and of its MLPs, and which layer is what.
MUST_USE enum status gguf_write_mamba(const struct gguf_files *files,
                                      const struct gguf_model *model, struct json_out *out,
                                      struct err *err);
bool gguf_mamba_has_key(const char *key); // that gguf_write_mamba knows
// The number that the list `name` has for a layer: 0, so that *has_any is false, or *number. That
// is the same for all such layers; 0: it is not known yet.
MUST_USE enum status gguf_read_of_layer(const struct gguf *gguf, const struct gguf_model *model,
                                        const char *name, int64_t layer, bool *has_any,
                                        int64_t *number, struct err *err);
// Adds "layer_types", where layers without KV heads are `without`, and "num_key_value_heads".
MUST_USE enum status gguf_write_layer_types(const struct gguf *gguf, const struct gguf_model *model,
                                            const char *without, struct json_out *out,
                                            struct err *err);
bool gguf_delta_has_key(const char *key); // that gguf_write_delta or gguf_delta_read knows
MUST_USE enum status gguf_delta_read(struct gguf_model *model, const struct gguf *gguf,
                                     struct err *err);
// Of a model with latents: finds out which it is, and adds its keys to config.json.
MUST_USE enum status gguf_latent_read(struct gguf_model *model, const struct gguf *gguf,
                                      struct err *err);
MUST_USE enum status gguf_write_latent(const struct gguf_files *files,
                                       const struct gguf_model *model, struct json_out *out,
                                       struct err *err);
// Whether layer `layer` has a window, in a model that may have some.
MUST_USE enum status gguf_layer_slides(bool *out, const struct gguf *gguf,
                                       const struct gguf_model *model, uint32_t layer,
                                       struct err *err);
// Of a model with has_global_heads: adds what is of it alone to config.json, but the rotation.
MUST_USE enum status gguf_write_gemma4(const struct gguf_files *files,
                                       const struct gguf_model *model, struct json_out *out,
                                       struct err *err);
// Adds the type of its rotation, from the divisors [num] of the frequencies.
MUST_USE enum status gguf_write_proportional(const struct gguf *gguf, const float *divisors,
                                             uint32_t num, struct json_out *out, struct err *err);
// 1_Pooling/config.json of a model of embeddings.
bool gguf_has_pooling(const struct gguf *gguf);
void gguf_write_pooling(const struct gguf *gguf, struct json_out *out);
bool gguf_has_generation_config(const struct gguf *gguf);
MUST_USE enum status gguf_write_generation_config(const struct gguf *gguf, struct json_out *out,
                                                  struct err *err);
// Adds "rope_parameters" to config.json.
MUST_USE enum status gguf_write_rope(const struct gguf_files *files, const struct gguf_model *model,
                                     struct json_out *out, struct err *err);

#endif

/* The decoder's struct, shared by decoder.c and compose.c (the pass), decoder_load.c and loader.c
 * (building it) and decoder_plan.c (its sizes). */
#ifndef MODEL_DECODER_INTERNAL_H
#define MODEL_DECODER_INTERNAL_H

#include "model/decoder.h"

enum { SHARED_GATES = 8 }; // equal outputs: devices want as many, and one is read

struct delta_weights {
    float *conv; // dev [DELTA_TAPS][channels]
    float *decay, *dt_bias; // dev [heads]
    float *norm; // dev [value_dim]
};

struct mamba_weights {
    float *conv; // dev [DELTA_TAPS][channels]
    float *conv_bias; // dev [channels]
    float *decay, *dt_bias, *skip; // dev [heads]
    float *norm; // dev [heads head_dim]; NULL: none
};

struct decoder_layer {
    // Norms with biases have these behind the weights: dev [2][hidden].
    float *input_norm; // dev [hidden]; NULL: no norm in front of attention
    float *mlp_norm; // dev [hidden]; NULL: none in front of the MLP, or the same one
    float *input_post_norm, *mlp_post_norm; // dev [hidden]: behind them; NULL: none
    // dev [head_dim] or, of all heads together, [heads head_dim]; NULL: none
    float *q_norm, *k_norm;
    float *v_norm; // dev [head_dim] ones; NULL: v is not normed
    float *sinks; // dev [num_heads]; NULL: none
    float scalar; // factor of the residual behind the layer
    // [(num_heads + 2 num_kv_heads) head_dim][hidden]; delta net: q, k, v, z; convolution: b, c, x;
    // Mamba: x, B, C, z
    struct linear *qkv;
    // [num_heads head_dim][hidden] gates of attention's result; delta net: b and a; Mamba: dt;
    // NULL: none
    struct linear *gates;
    struct linear *o; // [hidden][num_heads head_dim]
    // Of Mamba-2 beside attention, whose dt is `gates`: x, B, C, z, and [hidden][heads head_dim].
    struct linear *mamba_in, *mamba_out;
    // Of latent attention, where qkv is [rank + rope_dim][hidden], and q_norm, k_norm are those of
    // the latents: [query_rank][hidden] or NULL, then of q [num_heads nope_dim][query_rank, or
    // hidden] and [num_heads rope_dim][the same].
    struct linear *query_latent, *query_nope, *query_rope;
    struct latent *latent;
    struct delta_weights delta; // of a gated delta net
    struct mamba_weights mamba; // of Mamba-2
    float *conv_taps; // dev [SHORT_CONV_TAPS][channels] of a short convolution; NULL: it is none
    float *rope; // dev [max_positions][head_dim]; NULL: of a recurrent layer
    float *q_rope; // behind it: of q, as in attention_args; NULL: the same
    bool owns_rope; // else it is that of a layer before
    // dev [max_num_seqs + num_snapshots][bytes of a slot]: of a layer with a state, else NULL
    void *states;
    // A dense layer has the first two, a sparse one the next three; the others are NULL.
    struct linear *gate_up; // [2 intermediate][hidden]; without a gate [intermediate][hidden]
    struct linear *down; // [hidden][intermediate]
    float xielu[2]; // of ACTIVATION_XIELU: activate_args' positive and negative
    struct linear *router; // [num_experts][hidden]
    float *choice_bias; // dev [num_experts], as in route_args; NULL: none
    struct experts *experts;
    // Of the expert that all tokens go to; NULL: there is none.
    struct linear *shared_gate_up, *shared_down;
    struct linear *shared_gate; // [SHARED_GATES][hidden]; NULL: its result is added as it is
    // Of a layer with an input: [layer_input_size][hidden], [hidden][layer_input_size], and the
    // norm behind them.
    struct linear *input_gate, *input_projection;
    float *input_end_norm; // dev [hidden]
    // Of a layer with branches: in front of the router and the experts, and behind the two.
    float *router_norm, *experts_norm, *shared_post_norm, *experts_post_norm; // dev [hidden]
    float *expert_scales; // dev [num_experts], as in route_args
};

// Activations of one pass, inside one allocation; T = max_num_tokens, R = max_num_seqs.
struct decoder_workspace {
    void *residual; // dev [T][hidden]
    void *hidden; // dev [T][hidden] output of a norm
    void *projected; // dev [T][hidden] output of o or down
    void *qkv; // dev [T][(num_heads + 2 num_kv_heads) head_dim]; shares memory with gate_up
    void *attended; // dev [T][num_heads head_dim]
    // dev [T][num_heads head_dim]; of a delta net float [T][2 heads], of Mamba float [T][heads].
    // They share this memory.
    void *gates;
    void *state_scratch; // dev, of a delta net or Mamba
    // Of latent attention, where qkv is [T][rank + rope_dim]: dev [T][query_rank],
    // [T][num_heads][nope_dim], [T][num_heads][rope_dim].
    void *q_latent, *q_nope, *q_rope;
    void *latent_scratch; // dev
    void *gate_up; // dev [T][2 intermediate]
    void *activated; // dev [T][intermediate]
    // Of sparse layers. They share memory with qkv and gate_up.
    float *router_logits; // dev [T][num_experts]
    int32_t *expert_ids; // dev [T][num_experts_per_tok]
    float *expert_weights; // dev [T][num_experts_per_tok]
    void *experts_scratch; // dev
    // Of the shared expert.
    void *shared_gate_up, *shared_activated; // dev [T][2 shared size], [T][shared size]
    void *shared; // dev [T][hidden]
    void *shared_gate; // dev [T][SHARED_GATES]
    // Of models with inputs of layers; all but the first share memory with qkv and gate_up.
    void *layer_inputs, *layer_projections; // dev [T][num_layers][layer_input_size]
    void *layer_gate, *layer_gated; // dev [T][layer_input_size]
    void *last_residual, *last_projected, *last_hidden; // dev [R][hidden]
    float *logits; // dev [R][vocab]; NULL with several ranks: comm has memory for them
    size_t size_bytes;
};

// The norms of latents have one eps in all models.
#define LATENT_EPS 1e-6f

struct decoder {
    const struct model_config *config;
    struct backend *backend;
    struct linear_formats formats; // its layers are borrowed
    struct comm *comm;
    const struct layer_table *table;
    struct decoder_shape shape;
    struct step_limits limits;

    struct linear *embedding; // [vocab of this rank][hidden]
    struct linear *lm_head; // the embedding when tied
    float *final_norm; // as a layer's
    // Of models with inputs of layers: [vocab][num_layers layer_input_size] and the same rows
    // [hidden], and a norm of the latter's result, times 1 / sqrt(2).
    struct linear *layer_embedding, *layer_projection;
    float *layer_projection_norm; // dev [layer_input_size]
    float *expert_ones; // dev [max_num_tokens], with layer_table.scales_expert_inputs: each is 1
    struct decoder_layer *layers; // [num_layers]
    struct fused_model *fused; // NULL where the backend has no fused layers

    uint32_t num_rows; // of the last pass's residual
    bool has_unadded; // the last pass left workspace.projected to be added to the residual
    void *workspace_memory; // dev
    void *state_memory; // dev: the states of all recurrent layers; NULL: there are none
    struct decoder_workspace workspace;
};

// Elements of a layer's norms, of so many ranks; and of the last norm.
size_t decoder_norm_size(const struct model_config *config, const struct layer_table *table,
                         const struct layer *layer, uint32_t world_size);
size_t decoder_final_norm_size(const struct model_config *config, const struct layer_table *table);
// Matrices in front of a dense MLP's activation: gate and up, or up alone.
uint32_t decoder_mlp_inputs(const struct layer_table *table);

struct experts_shape decoder_experts_shape(const struct model_config *config,
                                           const struct layer_table *table,
                                           const struct layer *layer,
                                           const struct decoder_shape *shape);

// Bytes of one slot of a layer's states; 0: the layer has none.
size_t decoder_slot_bytes(const struct layer *layer, const struct decoder_shape *shape,
                          const struct backend *backend);

// Places the activations from `base` on. `base` may be NULL to compute only size_bytes.
void decoder_workspace_layout(struct decoder_workspace *out, char *base,
                              const struct model_config *config, const struct layer_table *table,
                              const struct decoder_shape *shape, const struct step_limits *limits,
                              const struct backend *backend);

#endif

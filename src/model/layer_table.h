/* A model's layers, one entry each. The entries say how layers differ from one another and how a
 * family differs from others. The decoder reads nothing else about them: no family's name, no key
 * of config.json.
 *
 * family.c makes the table. It fills each entry with what holds for most families (Llama's layers,
 * with the sizes and the window of config.json), then the family changes what is different.
 *
 * Some values have no code yet, because no family here uses them. layer_table_check refuses those
 * by name. */
#ifndef MODEL_LAYER_TABLE_H
#define MODEL_LAYER_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"
#include "checkpoint/model_config.h"

// rms_norm(x) = x / sqrt(mean(x^2) + eps), or the same of x - mean(x), times this.
enum norm_kind {
    NORM_WEIGHT, // weight
    NORM_ONE_PLUS_WEIGHT, // 1 + weight
};

// Where attention and MLP have their norms; f is one of the two.
enum norm_place {
    NORM_BEFORE, // residual += f(norm(residual))
    NORM_AFTER, // residual += norm(f(residual))
    NORM_AROUND, // residual += norm(f(norm(residual)))
};

// The norm of q and of k, before the rotary embedding unless has_norm_after_rope says otherwise.
enum head_norm {
    HEAD_NORM_NONE,
    HEAD_NORM_EACH, // of each head, with a weight [head_dim] for all
    HEAD_NORM_ROW, // of all heads together, with a weight [heads * head_dim]
    HEAD_NORM_OWN, // a LayerNorm of each head, with a weight of its own: [heads][head_dim]
};

// How a layer's tokens see the ones before them.
enum mixer {
    MIXER_ATTENTION, // softmax attention over the KV cache
    MIXER_SHORT_CONV, // a gated convolution over a few tokens (recurrent.h), whose state they are
    MIXER_GATED_DELTA_NET, // a state in place of keys and values, of the shape layer_table.delta
    MIXER_MAMBA, // Mamba-2 (recurrent.h): another such state, of the shape layer_table.mamba
    // Softmax attention over latents (backend/latent.h), of the shape layer_table.latent. The KV
    // cache has one head of a latent and a rotated part of the key.
    MIXER_LATENT_ATTENTION,
    MIXER_NONE, // the layer is an MLP or experts alone
};

enum { ROPE_TABLES_MAX = 4, MAMBA_PARTS = 5 };
#define ROPE_NONE UINT32_MAX
#define KV_OWN UINT32_MAX

struct layer {
    enum mixer mixer; // with a state: no rope, window, softcap or sinks, and no KV group
    uint32_t window; // tokens that a query sees, itself included; 0: all
    uint32_t rope; // index of layer_table.ropes, or ROPE_NONE: positions change nothing
    uint32_t head_dim, num_kv_heads;
    uint32_t rotary_dim; // the leading elements of a head that are rotated; <= head_dim
    enum norm_place norm_place;
    enum head_norm head_norm;
    // The MLP and each expert are down(activation(gate, up)), or without a gate
    // down(activation(up)).
    enum activation activation;
    float query_scale; // factor of the scores q k^T
    float residual_scale; // factor of what attention, or what takes its place, adds to the residual
    float mlp_scale; // of what the MLP, or experts, add
    float mamba_scale; // with has_mamba: of what Mamba-2 adds
    float softcap; // scores become softcap * tanh(score / softcap); 0: none
    bool has_norm_after_rope; // with HEAD_NORM_EACH
    bool has_sinks; // each head has one more logit in its softmax, without a value
    bool has_qkv_bias, has_o_bias;
    bool has_v_norm; // each head of v is normed, without a weight
    bool has_keys_as_values; // v is k before its norm and rotation
    bool has_scalar; // the residual behind the layer is multiplied by a number of the checkpoint
    bool has_output_gate; // attention's result *= sigmoid(gate(norm(residual)))
    bool has_mlp_bias; // gate, up and down of a dense MLP
    bool is_sparse; // experts instead of the dense MLP
    bool lacks_mlp; // and experts
    // residual += attention(h) + mamba(h), where h = norm(residual): one norm, by NORM_BEFORE. So
    // the layer has keys and values, and a state.
    bool has_mamba;
    // residual += attention(h) + mlp(h), or experts(h), where h = norm(residual): one norm, by
    // NORM_BEFORE.
    bool is_parallel;
    // Of a sparse layer: the shared expert and the others both begin at the residual, each with
    // norms of its own around it. The router has one too, and a factor for each expert's weight.
    bool has_branches;
    bool has_expert_bias; // of the router, and of each expert's gate, up and down
    // It has no keys and values of its own, and reads those of this earlier layer. kv_source is
    // KV_OWN: it has its own.
    uint32_t kv_source;
    uint32_t mlp_factor; // the dense MLP is so many times intermediate_size wide
    // Where its keys and values are: its index in its KV group, and this rank's part of a block.
    uint32_t kv_group, kv_index;
    struct kv_place kv_place;
};

// Of a layer with branches, below "model.layers.N.".
#define ROUTER_NORM "router.scale" // times 1 / sqrt(hidden_size)
#define EXPERT_SCALES "router.per_expert_scale"
#define EXPERTS_NORM "pre_feedforward_layernorm_2"
#define SHARED_POST_NORM "post_feedforward_layernorm_1"
#define EXPERTS_POST_NORM "post_feedforward_layernorm_2"

// Names of a layer's norms, below "model.layers.N.".
struct norm_names {
    // Before and behind it. attention_post is NULL: with NORM_AROUND, no norm behind attention.
    const char *attention, *attention_post;
    const char *mlp, *mlp_post;
    const char *q, *k; // of heads
};

// Tensor names of an MLP, below "model.layers.N.".
struct mlp_names {
    // The same pointer: one tensor has gate's rows, then up's. gate is NULL: there is none.
    const char *gate, *up;
    const char *down;
};

// Tensor names of a layer's experts, below "model.layers.N.".
struct expert_names {
    const char *router; // "mlp.gate"
    const char *choice_bias; // as in route_args; NULL: none
    struct mlp_names shared; // of the expert that all tokens go to, if there is one
    const char *shared_gate; // of that expert's gate; NULL: its result is added as it is
    const char *experts; // "mlp.experts": ".N." and one of the following are appended
    const char *gate, *up, *down; // "gate_proj"; gate is NULL: there is none
    // Of all experts in one tensor each: [num_experts][2 intermediate][hidden], gate before up, and
    // [num_experts][hidden][intermediate]. A checkpoint may have these instead. NULL: none has.
    const char *stacked_gate_up, *stacked_down;
};

struct layer_table {
    const char *family; // static, for people: "Qwen3"
    const struct expert_names *expert_names; // static; NULL: no layer is sparse
    enum norm_kind norm_kind; // of all norms, the last one included
    // LayerNorms (row_args.h), the last one too, but not those of heads; has_norm_bias: with biases
    bool is_layer_norm, has_norm_bias;
    float embedding_scale, logits_scale; // factors of the embeddings and of the logits
    float logits_softcap; // as a layer's softcap; 0: none
    // Each layer ends with residual += norm(W2(gelu(W1 residual) * input)), where a token's inputs
    // [num_layers][layer_input_size] are made of its embedding and of a table. 0: none does.
    uint32_t layer_input_size;
    struct rope_config ropes[ROPE_TABLES_MAX]; // [num_ropes]
    uint32_t num_ropes;
    bool is_chunked; // windows begin at their multiples: attention_args
    // A token's one expert reads its input times the router's weight.
    bool scales_expert_inputs;
    bool has_split_head_norms; // HEAD_NORM_OWN: each head's weights are a tensor, q.N and k.N
    bool has_plain_head_norms; // those of HEAD_NORM_EACH have no weights
    bool has_plain_norms; // no other norm has weights either; logits_scale is 1
    bool norms_embeddings; // in front of the first layer embeddings pass the final norm
    // Static: the module of the output gates. NULL: q has them too, of each head behind its q.
    const char *gate_module;
    bool is_qkv_stacked; // the checkpoint has q, k and v in one tensor
    const char *stacked_qkv; // static: that module, "self_attn.qkv_proj"
    bool is_rope_interleaved; // pairs of its heads of q and k that are rotated are neighbours
    struct mlp_names mlp; // of dense layers
    float gate_scale; // factor of their gates, in front of the activation
    // Static: names that a checkpoint may have instead, also of the shared expert. NULL: none.
    const struct mlp_names *mlp_apart;
    const struct norm_names *norms; // static; NULL: those of most models with the norms' places
    bool has_lm_head_bias;
    const char *final_norm, *o_module; // static: "model.norm", "self_attn.o_proj"
    const char *const *qkv_modules; // static, [3]: "self_attn.q_proj"
    struct delta_config delta; // of layers that are gated delta nets, of all ranks
    struct mamba_config mamba; // of layers with Mamba-2, of all ranks
    const char *mamba_module; // static: "mamba", below "model.layers.N."
    // Factors of Mamba's z, x, B, C and dt. They and gate_scale become part of the weights.
    float mamba_scales[MAMBA_PARTS];
    bool lacks_mamba_norm; // there is no norm behind Mamba-2
    // MLX multiplies weights by such factors when it converts a checkpoint, but leaves some out.
    bool loses_factors_by_mlx;
    struct latent_config latent; // of layers with latent attention
    // A checkpoint may have q, k, v and z of such a layer in one tensor, and b and a, by key head.
    bool is_delta_stacked;
    uint32_t num_layers;
    struct layer *layers; // [num_layers]
    // The KV groups of the layers with KV (backend.h, struct step), each of at most
    // layers_per_group. No layer of a group reads positions before its window; 0: all are read.
    uint32_t num_kv_groups, layers_per_group;
    uint32_t kv_windows[KV_GROUPS_MAX];
    // Of layers with different shapes: the end of a block in the largest group, and each shape, of
    // this rank's heads, once. Zeros: all have the same shape.
    struct kv_place kv_block_end;
    struct kv_shape kv_shapes[KV_SHAPES_MAX]; // [num_kv_shapes]
    uint32_t num_kv_shapes;
};

// Every layer as in Llama, in the sizes of `config`; one KV group.
MUST_USE enum status layer_table_init(struct layer_table *table, const struct model_config *config,
                                      struct err *err);
void layer_table_fini(struct layer_table *table); // all-zero is fine

// Whether a layer has a place in the KV cache.
static inline bool layer_attends(const struct layer *layer) {
    return layer->mixer == MIXER_ATTENTION || layer->mixer == MIXER_LATENT_ATTENTION;
}

// Whether it keeps a state of each sequence, in place of keys and values or beside them.
static inline bool layer_has_state(const struct layer *layer) {
    return layer->has_mamba || (!layer_attends(layer) && layer->mixer != MIXER_NONE);
}

// Elements of a head of attention's result.
static inline uint32_t layer_value_dim(const struct layer_table *table, const struct layer *layer) {
    return layer->mixer == MIXER_LATENT_ATTENTION ? table->latent.value_dim : layer->head_dim;
}

// Elements of a position's row in the table of rotary angles.
static inline uint32_t layer_rope_dim(const struct layer *layer) {
    return layer->mixer == MIXER_LATENT_ATTENTION ? layer->rotary_dim : layer->head_dim;
}

// The KV heads of a rank. Where there are more ranks than heads, several have the same one.
static inline uint32_t layer_kv_heads(const struct layer *layer, uint32_t world_size) {
    return layer->num_kv_heads > world_size ? layer->num_kv_heads / world_size : 1;
}

// Makes the KV groups, at most max_groups, for sequences of at most max_positions tokens. Windows
// that are as long have no effect, and go; so do scales of q that begin behind them. Layers with
// equal windows are put into groups whose blocks have one size, and which waste the least memory.
// Where there are too many different windows, all layers are in one group that keeps everything.
void layer_table_plan_kv(struct layer_table *table, uint32_t max_positions, uint32_t max_groups,
                         uint32_t world_size);
bool layer_table_has_windows(const struct layer_table *table);
// Layers with KV differ in num_kv_heads or head_dim.
bool layer_table_has_kv_shapes(const struct layer_table *table);
// The first layer whose table of rotary angles is that of layer `i`, which is one with KV; of a
// recurrent layer num_layers.
uint32_t layer_table_first_with_rope(const struct layer_table *table, uint32_t i);
// The rotary embedding of layer `i`; NULL: it has none.
const struct rope_config *layer_table_rope(const struct layer_table *table, uint32_t i);
bool layer_table_has_own_head_norms(const struct layer_table *table); // some are HEAD_NORM_OWN
bool layer_table_has_row_norms(const struct layer_table *table); // some head_norm is of all heads
bool layer_table_has_branches(const struct layer_table *table);
// The dense MLPs have no gate.
static inline bool layer_table_lacks_gate(const struct layer_table *table) {
    return !table->mlp.gate;
}
// The experts have none.
static inline bool layer_table_lacks_expert_gate(const struct layer_table *table) {
    return table->expert_names && !table->expert_names->gate;
}
bool layer_table_shares_kv(const struct layer_table *table); // some kv_source is not KV_OWN
// Layers that have a state.
uint32_t layer_table_num_states(const struct layer_table *table);

bool layer_table_has_latents(const struct layer_table *table); // latent attention

// All layers attend over keys and values of their own, of one shape, with scores as they are, and a
// norm of heads is before their rotation, which is the same for q and k.
bool layer_table_has_plain_heads(const struct layer_table *table);

// All layers are dense and have KV, the same shape, rope and scale, and no window, soft limit of
// scores, scale of q by its position or sinks: ops that run all of them at once (backend.h,
// layers_args) need to know only one.
bool layer_table_is_even(const struct layer_table *table);

// ERR_UNSUPPORTED names the first value that the decoder cannot compute.
MUST_USE enum status layer_table_check(const struct layer_table *table, struct err *err);

#endif

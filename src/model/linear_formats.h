/* In which format each linear of a model is kept: all in one, or each as a quantized checkpoint has
 * it. The memory plan counts by it, and the loader creates linears by it. */
#ifndef MODEL_LINEAR_FORMATS_H
#define MODEL_LINEAR_FORMATS_H

#include "backend/backend.h"
#include "checkpoint/model_config.h"
#include "checkpoint/weights.h"
#include "model/layer_table.h"

struct decoder_shape;

struct layer_formats {
    struct weight_format qkv, o, gate_up, down; // as in struct decoder_layer
    struct weight_format gates; // of attention's result
    struct weight_format experts, shared_gate_up, shared_down;
    struct weight_format q_latent, q; // of latent attention
    struct weight_format mamba_in, mamba_out; // beside attention
};

// All-zero: floats.
struct linear_formats {
    struct weight_format format; // of all layers, if `layers` is NULL
    struct layer_formats *layers; // [num_layers] of a quantized checkpoint
    struct weight_format embedding, lm_head; // of a quantized checkpoint
    struct weight_format
        layer_embedding; // likewise, of models whose layers have inputs of their own
};

enum { WEIGHT_NAME_BYTES = 128 };

// The names of a layer's linears in a checkpoint, below "model.layers.N.". Those of attention and
// of MLPs are in the layer table.
// Of a gated delta net: q, k and v, then z; or all of them (layer_table.is_delta_stacked).
extern const char *const delta_modules[2];
#define STACKED_DELTA_MODULE "linear_attn.in_proj_qkvz"
#define DELTA_OUT_MODULE "linear_attn.out_proj"
#define LATENT_Q_MODULE "self_attn.q_a_proj" // of latent attention
#define LATENT_KV_MODULE "self_attn.kv_a_proj_with_mqa"
// q of a latent, or of the residual.
static inline const char *latent_q_module(const struct latent_config *config) {
    return config->query_rank ? "self_attn.q_b_proj" : "self_attn.q_proj";
}
// A module of a layer with Mamba-2: "mamba.in_proj".
#define MAMBA_IN "in_proj" // z, x, B, C and dt
#define MAMBA_OUT "out_proj"
void mamba_module_name(char out[WEIGHT_NAME_BYTES], const struct layer_table *table,
                       const char *part);
#define CONV_IN_MODULE "conv.in_proj" // of a short convolution: b, c and x
#define CONV_OUT_MODULE "conv.out_proj"
#define SINKS_MODULE "self_attn.sinks"

void layer_weight_name(char out[WEIGHT_NAME_BYTES], uint32_t layer, const char *module,
                       const char *suffix);
void expert_weight_name(char out[WEIGHT_NAME_BYTES], uint32_t layer, const char *experts,
                        uint32_t expert, const char *part, const char *suffix);

// Whether q, k, v and z of a gated delta net are in one tensor. Where the table says so, a GGUF
// file may have them apart.
bool delta_is_stacked(const struct layer_table *table, const struct weights *weights,
                      uint32_t layer);

// The names of an MLP that the layer has: these, or table->mlp_apart.
const struct mlp_names *mlp_names_of(const struct layer_table *table, const struct mlp_names *names,
                                     const struct weights *weights, uint32_t layer);

// Finds the formats in which this rank's linears are stored and the backend can keep them; the
// others' are floats. A linear of several matrices is packed if one kind of codes can stand for
// the codes of all (code_reader.h).
MUST_USE enum status linear_formats_find(struct linear_formats *out,
                                         const struct model_config *config,
                                         const struct layer_table *table,
                                         const struct decoder_shape *shape,
                                         const struct backend *backend,
                                         const struct weights *weights, struct err *err);
void linear_formats_fini(struct linear_formats *formats); // all-zero is fine

struct layer_formats linear_formats_layer(const struct linear_formats *formats, uint32_t layer);
// A router decides between experts by small differences, and is small, so it is never quantized.
// The vocabulary's rows are embeddings as well as outputs, so made numbers have at least 8 bits.
struct weight_format linear_formats_router(void);
#define LAYER_EMBEDDING "model.embed_tokens_per_layer"
struct weight_format linear_formats_layer_embedding(const struct linear_formats *formats);
struct weight_format linear_formats_embedding(const struct linear_formats *formats);
struct weight_format linear_formats_lm_head(const struct linear_formats *formats);

// A packed format of some layer; WEIGHTS_NATIVE: none is packed.
struct weight_format linear_formats_packed(const struct linear_formats *formats,
                                           uint32_t num_layers);

#endif

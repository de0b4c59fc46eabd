/* The forward pass of a decoder-only transformer, written once for every backend, rank and family:
 *
 *   residual = embed(tokens)
 *   per layer:
 *     residual += o(attention(qkv(norm(residual))))
 *     residual += mlp(norm(residual))
 *   logits = lm_head(norm(residual)), of the rows that need them
 *
 * In a recurrent layer linear attention over a state of fixed size takes attention's place. The
 * states are the decoder's: they stay from step to step, one slot for each active sequence.
 *
 * Above, mlp(x) = down(silu(gate(x)) * up(x)). In a sparse layer mlp(x) is the weighted sum of the
 * experts that the router chooses for x, each of that form.
 *
 * Linears hold this rank's slice: q/k/v, gate/up and the vocabulary are cut by rows, o and down by
 * columns. comm adds or joins their partial results. Experts are cut like the dense MLP, so every
 * rank has a part of each expert. The router is whole on every rank. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"
#include "base/thread/interrupt.h"
#include "checkpoint/model_config.h"
#include "checkpoint/weights.h"
#include "comm/comm.h"
#include "model/layer_table.h"
#include "model/linear_formats.h"

// One rank's share of the model.
struct decoder_shape {
    uint32_t rank, world_size;
    uint32_t num_heads, head_start; // of this rank
    uint32_t intermediate_start, intermediate_size; // of the dense MLPs
    uint32_t expert_start, expert_size; // of every expert's intermediate size
    uint32_t shared_start, shared_size; // of the shared expert's
    uint32_t vocab_start, vocab_size;
    uint32_t conv_start, conv_size; // of the channels of short convolutions
    struct gated_delta_shape delta;
    uint32_t delta_key_start; // its first key head
    // Where there is one group, every rank has a copy of its B and C.
    struct mamba_shape mamba;
    uint32_t mamba_head_start, mamba_group_start;
};

// Told how much is loaded: before each matrix and at the end.
struct load_progress {
    void (*on_loaded)(uint64_t num_loaded, uint64_t num_parameters, void *user_data); // or NULL
    void *user_data;
};

struct decoder_options {
    // Borrowed for the decoder's life, like backend and comm.
    const struct model_config *config;
    const struct layer_table *table; // of the config
    const struct decoder_shape *shape; // of this rank; copied
    struct backend *backend;
    struct linear_formats formats; // its layers are borrowed
    struct comm *comm;
    struct step_limits limits;
    size_t spare_bytes; // of the device's memory: for weights_finish of backend.h
    const struct interrupt *interrupt; // asked before each matrix is loaded; NULL: none
    struct load_progress progress;
};

struct decoder;

// Takes every tensor of `weights` and calls weights_finish; `weights` may be closed afterwards.
MUST_USE enum status decoder_create(struct decoder **out, const struct decoder_options *options,
                                    struct weights *weights, struct err *err);
void decoder_destroy(struct decoder *decoder); // NULL is fine

// Runs the forward pass. The result is dev [num_logits][vocabulary of this rank] float32, memory of
// the decoder or of comm, valid until the next pass; NULL when num_logits is 0.
const float *decoder_forward(struct decoder *decoder, struct kv_cache *cache,
                             const struct step *step);

// The same for further rows of the last pass: index dev [num_rows], num_rows <= max_num_seqs. Valid
// until the next pass or the next call; the pass's own logits are gone.
const float *decoder_logits(struct decoder *decoder, const int32_t *index, uint32_t num_rows);

// The last hidden states of rows of the last pass, which lm_head would read: dev [num_rows]
// [hidden_size] of the backend's activation_dtype. The rest as decoder_logits; logits that the pass
// or a call gave stay.
const void *decoder_hidden(struct decoder *decoder, const int32_t *index, uint32_t num_rows);

// Runs each shape of linear once with `rows` rows, and lm_head with at most max_num_seqs, on the
// workspace's current content. A device measures its kernels for a linear at its first use.
void decoder_warm_up_linears(struct decoder *decoder, uint32_t rows);
// Runs every op of the step's forward pass once, but not every layer, so that its kernels are
// loaded. The logits mean nothing.
const float *decoder_warm_up_step(struct decoder *decoder, struct kv_cache *cache,
                                  const struct step *step);

// Computes the share of `rank` < world_size. ERR_UNSUPPORTED when the model's shapes cannot be run
// or split.
MUST_USE enum status decoder_shape_of(struct decoder_shape *out, const struct model_config *config,
                                      const struct layer_table *table, uint32_t rank,
                                      uint32_t world_size, struct err *err);
// This rank's share of layers with latent attention.
static inline struct latent_shape decoder_latent_shape(const struct layer_table *table,
                                                       const struct decoder_shape *shape) {
    const struct latent_config *c = &table->latent;
    return (struct latent_shape){.num_heads = shape->num_heads,
                                 .rank = c->rank,
                                 .nope_dim = c->nope_dim,
                                 .rope_dim = c->rope_dim,
                                 .value_dim = c->value_dim,
                                 .scales_queries = table->ropes[0].query_beta != 0};
}
// The first token id of a rank's slice of the vocabulary. For rank world_size: the vocabulary's
// size.
uint32_t decoder_vocab_start(const struct model_config *config, uint32_t rank, uint32_t world_size);
// For the memory plan: bytes of this rank's weights, and of its activations.
size_t decoder_weights_bytes(const struct model_config *config, const struct layer_table *table,
                             const struct decoder_shape *shape, const struct backend *backend,
                             const struct linear_formats *formats);
size_t decoder_workspace_bytes(const struct model_config *config, const struct layer_table *table,
                               const struct decoder_shape *shape, const struct step_limits *limits,
                               const struct backend *backend);
// Bytes of the states that this rank keeps of one sequence in all recurrent layers. The decoder has
// memory for max_num_seqs sequences.
size_t decoder_state_bytes(const struct layer_table *table, const struct decoder_shape *shape,
                           const struct backend *backend);
// Parameters of the whole model (all ranks), tied weights once.
uint64_t decoder_num_parameters(const struct model_config *config, const struct layer_table *table);
// Parameters that one token uses: of a layer's experts only num_experts_per_tok. For a dense model
// all.
uint64_t decoder_num_active_parameters(const struct model_config *config,
                                       const struct layer_table *table);

#endif

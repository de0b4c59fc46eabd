/* The forward pass of a decoder-only transformer, written once for every backend, rank and family:
 *
 *   residual = embed(tokens)
 *   per layer:
 *     residual += o(attention(qkv(norm(residual))))
 *     residual += mlp(norm(residual))
 *   logits = lm_head(norm(residual)), of the rows that need them
 *
 * where mlp(x) = down(silu(gate(x)) * up(x)), or in a sparse layer the weighted sum of the experts
 * that the router chooses for x, each of that form.
 *
 * Linear layers hold this rank's slice: q/k/v, gate/up and the vocabulary by rows, o and down by
 * columns; their partial results meet in comm. Experts are cut like the dense MLP, so every rank
 * has a part of each; the router is whole on every rank. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"
#include "checkpoint/model_config.h"
#include "checkpoint/weights.h"
#include "comm/comm.h"
#include "model/family.h"

// What one rank holds of the model.
struct decoder_shape {
    uint32_t num_heads, num_kv_heads; // of this rank
    uint32_t intermediate_start, intermediate_size; // of the dense MLPs
    uint32_t expert_start, expert_size; // of every expert's intermediate size
    uint32_t vocab_start, vocab_size;
    uint32_t head_start, kv_head_start;
};

struct decoder_limits {
    uint32_t max_num_tokens; // of one forward pass
    uint32_t max_num_logits; // rows of logits of one pass
    uint32_t max_positions; // longest sequence
    bool decode_layers_always; // wherever a backend can (decode_layers_spec.always)
};

struct decoder;

// One pass: device pointers into the uploaded batch, shapes as in backend.h.
struct decoder_input {
    const int32_t *tokens; // dev [num_tokens]
    const int32_t *positions; // dev [num_tokens]
    const int32_t *slot_mapping; // dev [num_tokens]
    const int32_t *query_start; // dev [num_seqs + 1]
    const int32_t *context_len; // dev [num_seqs]
    const int32_t *block_tables; // dev [num_seqs][block_table_stride]
    const int32_t *logit_index; // dev [num_logits]: rows of tokens
    uint32_t num_tokens, num_seqs, num_logits;
    uint32_t block_table_stride;
    const uint32_t *device_stride; // dev: the same number; recorded steps read it
    uint32_t max_query_len, max_context_len;
    const struct sample_result *previous; // dev, for embed_args; may be NULL
};

// Takes every tensor of `weights` (and calls weights_finish); `weights` may be closed afterwards.
// `config`, `backend` and `comm` are borrowed for the decoder's life.
MUST_USE enum status decoder_create(struct decoder **out, const struct model_config *config,
                                    struct weights *weights, struct backend *backend,
                                    const struct comm *comm, const struct decoder_limits *limits,
                                    struct err *err);
void decoder_destroy(struct decoder *decoder); // NULL is fine

// Runs the pass; the result is dev [num_logits][vocab_size] float32, the decoder's own, valid until
// the next pass; NULL when num_logits is 0.
const float *decoder_forward(struct decoder *decoder, struct kv_cache *cache,
                             const struct decoder_input *input);

// ERR_INVALID / ERR_UNSUPPORTED when the shapes cannot be run or split.
MUST_USE enum status decoder_shape_of(struct decoder_shape *out, const struct model_config *config,
                                      const struct comm *comm, struct err *err);
// The memory plan: bytes of this rank's weights, and of the activations by formula.
size_t decoder_weights_bytes(const struct model_config *config, const struct family_traits *traits,
                             const struct decoder_shape *shape, const struct backend *backend);
size_t decoder_workspace_bytes(const struct model_config *config, const struct decoder_shape *shape,
                               const struct decoder_limits *limits, const struct backend *backend);
// Parameters of the whole model (all ranks), tied weights once.
uint64_t decoder_num_parameters(const struct model_config *config,
                                const struct family_traits *traits);
// Without the experts that a token does not go to; the same for a dense model.
uint64_t decoder_num_active_parameters(const struct model_config *config,
                                       const struct family_traits *traits);

#endif

/* The parts of a layer. Each runs as one fused op where the backend has it, else as several of the
 * required ops. Only this module knows both ways.
 *
 * The residual is workspace.residual. Where pass.has_unadded, workspace.projected is still to be
 * added: the next op that reads the residual does so on the way. With several ranks it is the sum
 * of all ranks' partials: comm adds them and norms the residual in one op. */
#ifndef MODEL_COMPOSE_H
#define MODEL_COMPOSE_H

#include "model/decoder_internal.h"

// One run of the forward pass.
struct pass {
    struct decoder *d;
    struct kv_cache *cache;
    const struct step *step;
    bool has_unadded; // something is still to be added to workspace.residual
    const float *unadded_norm; // that is normed first; NULL: it is not
    bool is_first; // with several ranks: that sum becomes the residual instead of being added
    bool runs_layers; // all layers run as one op
    bool is_alone; // the other ranks have no such pass: nothing is summed
};

// Before the first op of a pass.
void compose_begin(struct pass *pass);
// workspace.hidden = norm(residual).
void compose_norm(struct pass *pass, const float *weight);
// A norm in front of attention, MLP or logits: the model's kind, RMSNorm or LayerNorm. Of args a
// LayerNorm does not take stride, groups and x_norm.
void compose_run_norm(const struct decoder *d, const struct rms_norm_args *args);
// out = linear(norm(residual)); with is_gated activation(first half) * second half of that product.
struct project_in {
    const struct linear *linear;
    const float *norm; // NULL: out = linear(residual)
    bool reads_hidden; // workspace.hidden has norm(residual) already; norm is NULL
    void *out;
    bool is_gated;
    uint32_t gated_size; // with is_gated: of a half
    enum activation activation; // with is_gated
    const struct linear *reader; // as in project_in_args
};
void compose_project_in(struct pass *pass, const struct project_in *in);

// What becomes of a block's result y: residual += factor * norm(y).
struct block_end {
    const float *norm; // NULL: none
    float factor;
};
// Whether compose_project_out of that end may be the backend's project_out.
bool compose_is_fused_out(const struct pass *pass, const struct block_end *end);
// y = linear(x).
void compose_project_out(struct pass *pass, const struct linear *linear, const void *x,
                         const struct block_end *end);
// Where the caller writes a result that compose_add_projected then adds. Call it once for each.
void *compose_projected(struct pass *pass);
// Adds that result y, or with several ranks the sum of theirs: now or by the next op.
void compose_add_projected(struct pass *pass, const struct block_end *end);
// out = norm(y), of that result. It is not added to the residual. `out` may be workspace.projected.
void compose_norm_projected(struct pass *pass, const float *norm, void *out);
// The same of workspace.projected, which has all of y on every rank, as compose_add_projected.
void compose_add_whole(struct pass *pass, const struct block_end *end);
// Adds what is still to be added to the residual.
void compose_settle(struct pass *pass);
// x [num_tokens][cols] becomes the sum of all ranks' x. Sums have rows of hidden_size, so behind x
// is room for one, without its last element.
void compose_sum_wide(struct pass *pass, void *x, uint32_t cols);
// Norms vectors that are cut among several ranks: fills in what is missing in `args`. Overwrites
// workspace.hidden.
void compose_cut_norm(struct pass *pass, const struct cut_norm_args *args);
// The embeddings times the model's factor.
void compose_scale_embeddings(struct pass *pass, void *embeddings);
// Where the model has a norm of its embeddings: workspace.residual, with what is still to be added.
void compose_norm_embeddings(struct pass *pass);
// residual *= factor, with what is still to be added to it.
void compose_scale_residual(struct pass *pass, float factor);
// After the last layer: with several ranks the residual is whole.
void compose_end(struct pass *pass);
// attention_prepare, then attention.
void compose_attend(const struct pass *pass, const struct attention_args *args);
// All layers as one op; false: not done, because the backend has no such op for this step.
bool compose_layers(struct pass *pass);

#endif

/* The pieces of a layer, by the backend's fusion where it does them, else composed from its
 * required ops: the one place that knows both ways.
 *
 * The residual stream is workspace.residual plus, where has_pending, workspace.projected: a result
 * that is added by whoever reads the stream next, in the op that reads it. */
#ifndef MODEL_COMPOSE_H
#define MODEL_COMPOSE_H

#include "model/decoder_internal.h"

// One run of the forward pass.
struct pass {
    struct decoder *d;
    struct kv_cache *cache;
    const struct step *step;
    bool has_pending; // workspace.projected is not part of the residual stream yet
};

// Before the first op of a pass.
void compose_begin(struct pass *pass);
// workspace.hidden = norm(residual stream).
void compose_norm(struct pass *pass, const float *weight);
// out = linear(norm(residual stream)); with is_gated silu(first half) * second half of that.
void compose_project_in(struct pass *pass, const float *norm, const struct linear *linear,
                        void *out, bool is_gated);
// The residual stream += linear(x).
void compose_project_out(struct pass *pass, const struct linear *linear, const void *x);
// Where a result belongs that compose_add_projected then adds: ask once for each.
void *compose_projected(struct pass *pass);
// That result, with several ranks the sum of theirs, joins the residual stream.
void compose_add_projected(struct pass *pass);
// attention_prepare, then attention.
void compose_attend(const struct pass *pass, const struct attention_args *args);
// All layers as one op; false: not done.
bool compose_layers(struct pass *pass);

#endif

/* The group of backend.h for multi-head latent attention: the KV cache has one row for each token,
 * which all heads share, and from which keys and values are made by a matrix of each head. */
#ifndef BACKEND_LATENT_H
#define BACKEND_LATENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/kv_cache_spec.h"
#include "base/err.h"

struct backend;
struct latent; // the packed matrices of one layer; made and owned through the backend
struct matrix_slice;
struct step;

struct latent_shape {
    uint32_t num_heads; // of this rank
    uint32_t rank; // elements of a latent
    uint32_t nope_dim, rope_dim; // of a head of q: without and with a rotary embedding
    uint32_t value_dim; // of a head of the result
    bool scales_queries; // query_beta may be other than 0
};

// A row of the cache: the latent, then the rotated part of the key.
static inline uint32_t latent_row_dim(const struct latent_shape *shape) {
    return shape->rank + shape->rope_dim;
}

struct latent_spec {
    struct latent_shape shape;
    const struct matrix_slice *keys; // [num_heads] of [rank][nope_dim]
    const struct matrix_slice *values; // [num_heads] of [value_dim][rank]
};

/* Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), in the form that needs no keys and
 * values of heads. For each token, with the keys K_h and values V_h of a head h:
 *   row = [rms_norm(kv[0 .. rank)) * norm, rotated kv[rank .. rank + rope_dim)]
 *   query_h = [K_h q_nope_h, rotated q_rope_h]
 *   out_h = V_h (sum over positions p <= own of softmax(scale * query_h row_p) row_p[0 .. rank))
 * With query_beta other than 0 query_h is then multiplied by
 *   1 + query_beta ln(1 + floor(own / query_length)).
 * The rotation is the half-split one of attention_args. The row goes to the cache at the token's
 * slot: one KV head of latent_row_dim elements. */
struct latent_args {
    const struct step *step;
    struct kv_cache *cache;
    uint32_t layer, kv_group; // as in attention_args
    struct kv_place place;
    const struct latent *latent;
    const void *q_nope; // dev [num_tokens][num_heads][nope_dim]
    void *q_rope; // dev [num_tokens][num_heads][rope_dim], overwritten
    void *kv; // dev [num_tokens][rank + rope_dim], overwritten
    const float *norm; // dev [rank]
    const float *rope; // dev [max_positions][rope_dim]: cosines, then sines
    void *out; // dev [num_tokens][num_heads][value_dim]
    void *scratch; // dev [scratch_bytes]
    float eps; // of the norm
    float scale;
    float query_beta, query_length;
};

// Without this group models with such layers are refused.
struct backend_latent {
    // ERR_UNSUPPORTED: there are no kernels for this shape. Asked before weights are read; `create`
    // gets no such shape. NULL: every shape runs.
    enum status (*check_shape)(const struct backend *backend, const struct latent_shape *shape,
                               struct err *err);
    enum status (*create)(struct backend *backend, const struct latent_spec *spec,
                          struct latent **out, struct err *err);
    void (*destroy)(struct backend *backend, struct latent *latent); // NULL is fine
    size_t (*bytes)(const struct backend *backend, const struct latent_shape *shape);
    // The result also suffices for any smaller number of tokens.
    size_t (*scratch_bytes)(const struct backend *backend, const struct latent_shape *shape,
                            uint32_t num_tokens);
    void (*attend)(struct backend *backend, const struct latent_args *args);
    bool has_narrow_caches; // rows may be kept as I8 and F8_E4M3
};

#endif

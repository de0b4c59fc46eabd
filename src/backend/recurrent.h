/* The group of backend.h for layers that keep a state of each sequence in place of keys and
 * values. */
#ifndef BACKEND_RECURRENT_H
#define BACKEND_RECURRENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend;
struct linear;
struct step;

// The heads of a gated delta net. Each key head serves num_heads / num_key_heads heads in a row.
struct gated_delta_shape {
    uint32_t num_key_heads, num_heads;
    uint32_t key_dim, value_dim; // multiples of 16, at most 256
};

enum { DELTA_TAPS = 4 }; // of the convolution, Mamba's too: a token and the three before it

static inline uint32_t gated_delta_channels(const struct gated_delta_shape *shape) {
    return 2 * shape->num_key_heads * shape->key_dim + shape->num_heads * shape->value_dim;
}

/* Gated delta net: linear attention whose state forgets, and takes only what it does not know yet
 * (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464). For each token, in order:
 *   q, k, v = silu(convolution over the last four tokens), of each channel by itself
 *   q = q / |q| / sqrt(key_dim), k = k / |k|, by head; |x| = sqrt(sum x^2 + 1e-6)
 *   g = exp(-decay * softplus(a + dt_bias)), beta = sigmoid(b)
 *   S = g S; S += k (beta (v - S^T k))^T, where S is [key_dim][value_dim] of each head
 *   out = rms_norm(S^T q) * norm * silu(z)
 * The state is S and the last three tokens' q, k and v before the convolution, all zero at the
 * sequence's start.
 *
 * A sequence's state is in the slot step->table_row[s], which no other active sequence has. Nobody
 * clears slots: a sequence whose first query is at position 0 begins with zeros, whatever the slot
 * holds. Any other one goes on from the slot step->state_row[s]: its own, with what the step before
 * has left, so that its tokens come in order and each once; or a snapshot. The state behind the
 * token snapshot_token[i] is also written to the slot snapshot_slot[i]. A padding sequence
 * (context_len 0) reads and writes no slot.
 *
 * On the CPU every token goes through the state by itself. So its result is the same to the bit
 * alone, batched, in a prompt of any cut, behind a snapshot, and recomputed as part of a prompt
 * after a preemption. A device may take a prompt's tokens in chunks, which begin with the
 * sequence's first token of the step: there a cut changes results by rounding. */
struct gated_delta_args {
    const struct step *step;
    void *states; // dev [slots][gated_delta_bytes] of this layer
    struct gated_delta_shape shape;
    // dev [num_tokens][channels + num_heads * value_dim]: q, k and v, then z, each head by head
    const void *qkvz;
    // dev [num_tokens][2 * num_heads]: b, then a. NULL, only where computes_gates said so: they are
    // gates_linear's product of the RMS norm of `residual` with the weights input_norm.
    const float *gates;
    const struct linear *gates_linear; // [2 * num_heads][hidden]
    const void *residual; // dev [num_tokens][hidden]
    const float *input_norm; // dev [hidden]
    void *out; // dev [num_tokens][num_heads * value_dim], not overlapping qkvz
    const float *conv; // dev [DELTA_TAPS][channels], the oldest token's first
    const float *decay, *dt_bias; // dev [num_heads]
    const float *norm; // dev [value_dim]
    float eps; // of the norms
    void *scratch; // dev [gated_delta_scratch_bytes]
};

enum { SHORT_CONV_TAPS = 3 }; // a token and the two before it

/* A gated short convolution (LFM2). Of each channel by itself, for a row b, c, x of the input:
 *   out[t] = c[t] * sum over SHORT_CONV_TAPS i of taps[i] * (b x)[t - SHORT_CONV_TAPS + 1 + i]
 * The state is b x of the last two tokens, zero at the sequence's start. Slots and snapshots are as
 * of gated_delta. A token's result is the same to the bit in any step. */
struct short_conv_args {
    const struct step *step;
    float *states; // dev [slots][short_conv_floats], of this layer: [SHORT_CONV_TAPS - 1][channels]
    const void *bcx; // dev [num_tokens][3 * channels]
    const float *taps; // dev [SHORT_CONV_TAPS][channels], the oldest token's first
    void *out; // dev [num_tokens][channels], not overlapping bcx
    uint32_t channels; // a multiple of 8
};

// Floats of one slot.
static inline size_t short_conv_floats(uint32_t channels) {
    enum { ALIGN = 16 };
    return ((size_t)(SHORT_CONV_TAPS - 1) * channels + ALIGN - 1) / ALIGN * ALIGN;
}

// The heads of a Mamba-2 layer. Each group serves num_heads / num_groups heads in a row.
struct mamba_shape {
    uint32_t num_groups, num_heads;
    uint32_t state_dim, head_dim; // multiples of 16, at most 256
};

static inline uint32_t mamba_channels(const struct mamba_shape *shape) {
    return shape->num_heads * shape->head_dim + 2 * shape->num_groups * shape->state_dim;
}

/* Mamba-2: a state that forgets by a factor of each head and takes all it is given (Dao and Gu
 * 2024, arXiv 2405.21060). For each token, in order:
 *   x, B, C = silu(convolution over the last four tokens + conv_bias), of each channel by itself
 *   d = dt + dt_bias; d = log(1 + exp(d)), at least dt_min and at most dt_max
 *   S = exp(-decay * d) S + B (d x)^T, where S is [state_dim][head_dim] of each head
 *   out = (S^T C + skip * x) * silu(z)
 * B and C are the group's. The state is S and the last three tokens' x, B and C before the
 * convolution, all zero at the sequence's start. Slots, snapshots and what a cut of a prompt may
 * change are as of gated_delta. */
struct mamba_args {
    const struct step *step;
    void *states; // dev [slots][mamba_bytes] of this layer
    struct mamba_shape shape;
    // dev [num_tokens][channels + num_heads * head_dim]: x by head, B and C by group, z by head
    const void *xbcz;
    const float *dt; // dev [num_tokens][num_heads]
    void *out; // dev [num_tokens][num_heads * head_dim], not overlapping xbcz
    const float *conv; // dev [DELTA_TAPS][channels], the oldest token's first
    const float *conv_bias; // dev [channels]
    const float *decay, *dt_bias, *skip; // dev [num_heads]
    void *scratch; // dev [mamba_scratch_bytes]
    float dt_min, dt_max;
};

// Without this group models with such layers are refused.
struct backend_recurrent {
    // Bytes of one slot of a layer; a multiple of 64.
    size_t (*gated_delta_bytes)(const struct backend *backend,
                                const struct gated_delta_shape *shape);
    // Device memory that the op needs for a step of so many tokens. NULL: none.
    size_t (*gated_delta_scratch_bytes)(const struct backend *backend,
                                        const struct gated_delta_shape *shape, uint32_t num_tokens);
    void (*gated_delta)(struct backend *backend, const struct gated_delta_args *args);
    // Whether gated_delta computes the gates of this step itself. NULL: never.
    bool (*computes_gates)(const struct backend *backend, const struct gated_delta_args *args);
    void (*short_conv)(struct backend *backend, const struct short_conv_args *args);
    // NULL, all three: models with Mamba layers are refused.
    size_t (*mamba_bytes)(const struct backend *backend, const struct mamba_shape *shape);
    // As of gated_delta, or NULL.
    size_t (*mamba_scratch_bytes)(const struct backend *backend, const struct mamba_shape *shape,
                                  uint32_t num_tokens);
    void (*mamba)(struct backend *backend, const struct mamba_args *args);
};

#endif

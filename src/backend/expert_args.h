// Arguments of the ops of a mixture of experts: backend.h, struct backend_moe.
#ifndef BACKEND_EXPERT_ARGS_H
#define BACKEND_EXPERT_ARGS_H

#include <stdbool.h>
#include <stdint.h>

struct experts;
struct linear;

enum { ROUTE_GROUPS_MAX = 32 };

// Chooses a token's experts and their weights. The scores are the softmax of all its logits, or
// sigmoid(logit). The top_k with the largest score + bias are chosen, best first (ties: the smaller
// id first). With groups, which are equally many experts in a row, only experts of the top_groups
// best groups are chosen: a group is as good as the sum of its group_best largest score + bias. The
// weights are the chosen scores, with `normalize` divided by their sum, then times `factor` and the
// expert's own of `scales`.
struct route_args {
    float *logits; // dev [num_tokens][num_experts], of the router; overwritten
    const float *bias; // dev [num_experts] or NULL
    const float *scales; // dev [num_experts] or NULL; only where backend_moe.has_branches
    int32_t *ids; // dev [num_tokens][top_k]; distinct within a row, also where logits are NaN
    float *weights; // dev [num_tokens][top_k]
    uint32_t num_tokens, num_experts;
    uint32_t top_k; // 1 .. num_experts
    uint32_t num_groups; // 0: none; only where backend_moe.has_groups
    uint32_t top_groups, group_best; // group_best: 1 or 2
    bool is_sigmoid, normalize;
    float factor;
};

// What comes before the experts as one op: hidden = norm(residual), and `route` of the router's
// logits of hidden. route.logits is not used.
struct norm_route_args {
    const struct linear *router; // [num_experts][hidden]
    const float *norm; // dev [hidden], of an RMS norm; not NULL
    const void *residual; // dev [num_tokens][hidden]
    void *hidden; // dev [num_tokens][hidden], not overlapping residual
    struct route_args route;
    float eps;
};

// An expert that every token has. Its weight is the sigmoid of the first output of `gate`, or 1.
struct shared_expert {
    const struct linear *gate_up, *down; // NULL: there is none
    const struct linear *gate; // or NULL
};

// out[t] = sum over i, ascending, of weights[t][i] * E(x[t]), where E is the expert ids[t][i]. The
// shared expert, if there is one, comes last. An expert's weights are read once, and only if a
// token goes to it.
struct experts_args {
    const struct experts *experts;
    const void *x; // dev [num_tokens][hidden]
    const int32_t *ids; // dev [num_tokens][top_k], distinct within a row
    const float *weights; // dev [num_tokens][top_k]
    void *out; // dev [num_tokens][hidden], not overlapping x
    void *scratch; // dev [experts_scratch_bytes(shape, num_tokens, top_k)]
    uint32_t num_tokens, top_k;
    struct shared_expert shared; // only where backend_moe.takes_shared says so of these args
    bool is_added; // the sum is added to out; only where backend_moe.adds_sums says so of them
};

#endif

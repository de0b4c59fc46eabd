/* What the recurrent ops share: which tokens of a step are a sequence's, where its state is, and
 * behind which tokens snapshots of it are taken. */
#ifndef BACKEND_CPU_RECURRENT_STEP_H
#define BACKEND_CPU_RECURRENT_STEP_H

#include <math.h>

#include "backend/backend.h"

struct recurrent_span {
    int32_t begin, end; // tokens begin .. end - 1 of the step
    bool is_new; // its first token is at position 0: there is no state yet
    int32_t own, from; // slots: its own, and the one with what is left of the tokens before
};

// False: sequence `s` is padding.
static inline bool recurrent_span_of(const struct step *step, uint32_t s,
                                     struct recurrent_span *out) {
    int32_t begin = step->query_start[s], end = step->query_start[s + 1];
    int32_t start = step->context_len[s] - (end - begin); // the first token's position
    int32_t own = step->table_row[s], from = step->state_row ? step->state_row[s] : own;
    *out = (struct recurrent_span){begin, end, start == 0, own, from};
    return start >= 0;
}

// The next token from `t` on, before `end`, behind which a snapshot is taken, to *slot; `end`: none
// is.
static inline int32_t recurrent_next_snapshot(const struct step *step, int32_t t, int32_t end,
                                              int32_t *slot) {
    int32_t best = end;
    for (uint32_t i = 0; i < step->num_snapshots; i++) {
        int32_t token = step->snapshot_token[i];
        if (token < t || token >= best) continue;
        best = token;
        *slot = step->snapshot_slot[i];
    }
    return best;
}

static inline float softplus(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

#endif

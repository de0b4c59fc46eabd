// A naive sampler that sorts, in double precision. The sample op must agree with it.
#ifndef BACKEND_SAMPLE_ORACLE_H
#define BACKEND_SAMPLE_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

struct entry {
    uint32_t id;
    double logit, weight;
};

struct oracle {
    struct entry *entries; // [vocab_size] best first
    uint32_t num_kept; // leading entries
    double mass; // of the kept ones
    bool close; // a rule's decision was so close that rounding may change it
};

// The tokens that the row's rules keep. Its penalties are ignored. temperature > 0.
struct oracle oracle_make(const float *logits, uint32_t vocab_size, struct sample_row row);
void oracle_fini(struct oracle *oracle);
// Inverts the distribution at `uniform`. Leaves the kept entries in the order of their ids.
uint32_t oracle_draw(struct oracle *oracle, double uniform);

#endif

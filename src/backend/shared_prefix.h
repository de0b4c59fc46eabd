/* Decodes that share a prefix: sequences of one token each in a step (backend.h, struct step) whose
 * block tables begin with the same blocks, as prefix caching leaves them. A device may read those
 * blocks once for all of them. It need not: their tables are whole. */
#ifndef BACKEND_SHARED_PREFIX_H
#define BACKEND_SHARED_PREFIX_H

#include <stdint.h>

enum { SHARED_PREFIXES_MAX = 8 }; // in a step

struct shared_prefix {
    uint32_t first, num_seqs; // its sequences: so many of shared_prefixes.seqs
    // In whole blocks, which the step does not write. Each of the sequences has more positions.
    uint32_t num_positions;
};

// The arrays are `dev`, as in struct step, and of the first KV group.
struct shared_prefixes {
    uint32_t num; // 0: the arrays are not there
    struct shared_prefix list[SHARED_PREFIXES_MAX]; // host
    int32_t *prefix_of; // [num_seqs of the step]: index in `list`; -1: none
    int32_t *seqs; // the prefixes' sequences, by their number in the step
};

#endif

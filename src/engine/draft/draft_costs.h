/* What steps with drafts cost, in steps without. Fixed numbers, measured once on a few machines and
 * rounded up (doc/drafts.md). They do not depend on the machine at hand, so they are the same in
 * every run. They may be too low for CPUs that have only AVX2. Pure.
 *
 * A step reads all weights, so a row more costs little where reading is what takes the time. That
 * is so on GPUs and with wide vectors, for models that are larger than the caches. For others
 * nothing is guessed. */
#ifndef ENGINE_DRAFT_DRAFT_COSTS_H
#define ENGINE_DRAFT_DRAFT_COSTS_H

#include <stdbool.h>
#include <stdint.h>

// What the costs depend on.
struct draft_machine {
    bool has_queue; // a device that works beside the host: a GPU
    bool has_cheap_rows; // as of the backend
    bool is_packed; // weights are codes of 8 bits or fewer, which each row decodes anew
    bool has_experts; // each row reads other weights
    // On a GPU a kernel of its own prepares attention's heads (layer_table_has_plain_heads).
    bool prepares_apart;
    uint32_t num_ranks; // that compute a step together
    uint64_t num_parameters;
};

enum { DRAFT_SIZES = 8 }; // of steps: up to 2, 4, 8, ..., 256 rows

struct draft_costs {
    uint32_t seqs_max; // most sequences of a step for which drafts are guessed; 0: none are
    struct draft_price {
        double wait; // for the results of the step before, as a share of a step without drafts
        // As shares of a step of one sequence:
        double sizes[DRAFT_SIZES]; // of a step with drafts, by its rows; 0: as one without drafts
        double token; // of each token of the drafts besides
        double sequence; // of each sequence after the first, in a step without drafts
    } price;
};

struct draft_costs draft_costs_of(const struct draft_machine *machine);
// What a step of num_seqs sequences, 1 or more, costs above one without drafts, as a share of that.
// has_waited: for the results of the step before.
double draft_costs_more(const struct draft_costs *costs, uint32_t num_seqs, uint32_t num_drafts,
                        bool has_waited);

#endif

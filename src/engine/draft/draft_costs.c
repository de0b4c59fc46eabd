#include "engine/draft/draft_costs.h"

// The smallest model that was measured on a GPU. Smaller ones may lie in a CPU's caches, where rows
// are not cheap.
static const double smallest = 0.59e9;

// One H200. Steps with drafts are recorded for powers of two of rows, and a step of one to four
// sequences without them has kernels of its own. The difference takes about as long for any model,
// so it is a smaller share of a larger one's step.
static const struct draft_price gpu = {
    .wait = 0.05, .sizes = {1.08, 1.22, 1.34, 1.8, 2.4, 3, 3.8, 4.7}, .sequence = 0.03};
// The same where attention's heads are prepared apart.
static const struct draft_price gpu_apart = {
    .wait = 0.05, .sizes = {1.33, 1.41, 1.54, 1.95, 2.4, 3, 3.8, 4.7}, .sequence = 0.03};
static const double large = 8.19e9; // parameters
static const struct draft_price gpu_large = {
    .wait = 0.004, .sizes = {1.12, 1.15, 1.15, 1.16, 1.24, 1.38, 1.65, 2.4}, .sequence = 0.0055};
// Most sequences for the smallest model, and for any.
static const uint32_t gpu_seqs_least = 8, gpu_seqs_most = 32;

// Two cores of an EPYC (Zen 4). With AVX2 alone rows are the most expensive: 7 drafts behind one
// token add 1.1 to 1.6 steps. This price is no upper bound there. With AVX-512 and bfloat16
// they add 0.1.
static const struct draft_price cpu = {.wait = 0.05, .token = 0.2, .sequence = 0.03};
static const struct draft_price cpu_packed = {.wait = 0.05, .token = 0.25};
static const uint32_t cpu_seqs_max = 4, cpu_packed_seqs_max = 2;

static double between(double a, double b, double share) {
    return a + (b - a) * share;
}

static struct draft_price price_of(const struct draft_machine *machine) {
    if (!machine->has_queue) return machine->is_packed ? cpu_packed : cpu;
    // 1 for the smallest model, 0 from the large one on.
    double num = (double)machine->num_parameters;
    double share = (smallest / num - smallest / large) / (1 - smallest / large);
    if (share > 1) share = 1;
    if (share < 0) share = 0;
    const struct draft_price *least = machine->prepares_apart ? &gpu_apart : &gpu;
    struct draft_price price = {.wait = between(gpu_large.wait, least->wait, share),
                                .sequence = between(gpu_large.sequence, least->sequence, share)};
    for (int i = 0; i < DRAFT_SIZES; i++) {
        price.sizes[i] = between(gpu_large.sizes[i], least->sizes[i], share);
    }
    return price;
}

static uint32_t seqs_max_of(const struct draft_machine *machine) {
    double num = (double)machine->num_parameters;
    if (!machine->has_cheap_rows || machine->has_experts || num < smallest) return 0;
    // Not measured: several ranks, and GPUs' steps of few rows with packed weights, for which one
    // row has kernels of its own.
    if (machine->num_ranks > 1 || (machine->has_queue && machine->is_packed)) return 0;
    if (!machine->has_queue) return machine->is_packed ? cpu_packed_seqs_max : cpu_seqs_max;
    double most = gpu_seqs_least * num / smallest;
    return most < gpu_seqs_most ? (uint32_t)most : gpu_seqs_most;
}

struct draft_costs draft_costs_of(const struct draft_machine *machine) {
    return (struct draft_costs){.seqs_max = seqs_max_of(machine), .price = price_of(machine)};
}

double draft_costs_more(const struct draft_costs *costs, uint32_t num_seqs, uint32_t num_drafts,
                        bool has_waited) {
    const struct draft_price *price = &costs->price;
    double more = has_waited ? price->wait : 0;
    if (!num_drafts) return more;
    double alone = 1 + price->sequence * (num_seqs - 1), step = alone; // in steps of one sequence
    uint32_t size = 0;
    while (size < DRAFT_SIZES - 1 && 2u << size < num_seqs + num_drafts) size++;
    if (price->sizes[size] > step) step = price->sizes[size];
    return more + (step + price->token * num_drafts) / alone - 1;
}

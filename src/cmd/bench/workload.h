/* The workloads of `nanovllm bench`: lists of token ids and output lengths, the same on every
 * machine. */
#ifndef CMD_BENCH_WORKLOAD_H
#define CMD_BENCH_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum workload_kind {
    WORKLOAD_NANO_VLLM, // nano-vllm's bench.py: 256 sequences of 100-1024 in, 100-1024 out
    WORKLOAD_ONE_STREAM, // one sequence: latency
    WORKLOAD_BATCH, // equal sequences at once
    WORKLOAD_PREFILL, // long prompts, one token out
    WORKLOAD_SHARED_PREFIX, // a common prefix, then a different tail for each
};

struct workload_options {
    enum workload_kind kind;
    // 0: the kind's default. nano-vllm accepts none of these.
    int32_t batch_size; // sequences
    int32_t input_len; // prompt tokens after the shared prefix
    int32_t output_len; // generated tokens
    int32_t prefix_len; // shared prompt tokens
    double scale; // (0, 1]: the first part of the requests, at least one
    uint32_t vocab_size; // ids are taken modulo this
};

struct workload_request {
    int32_t *prompt; // [prompt_len]
    uint32_t prompt_len;
    int32_t max_tokens;
};

struct workload {
    struct workload_request *requests; // [num_requests]
    size_t num_requests;
    uint64_t num_input_tokens, num_output_tokens;
    int32_t ids_limit; // ids were drawn from [0, ids_limit)
    int32_t *ids; // memory of all prompts
};

// "nano-vllm", "one-stream", "batch", "prefill", "shared-prefix". "batch-8" is batch with
// *batch_size = 8. False: unknown.
bool workload_from_name(const char *name, enum workload_kind *kind, int32_t *batch_size);
const char *workload_name(enum workload_kind kind);
MUST_USE enum status workload_create(struct workload *workload,
                                     const struct workload_options *options, struct err *err);
void workload_fini(struct workload *workload); // all-zero is fine

/* CPython's random.seed(int) and random.randint, bit for bit (the Mersenne Twister MT19937), so
 * that a workload defined by a Python script is the same here. */

enum { PYTHON_RANDOM_WORDS = 624 };

struct python_random {
    uint32_t state[PYTHON_RANDOM_WORDS];
    uint32_t next; // index of the next word to return
};

void python_random_seed(struct python_random *random, uint64_t seed);
// Uniform in [min, max]; the range must be smaller than 2^32.
int32_t python_random_randint(struct python_random *random, int32_t min, int32_t max);

#endif

/* All ids come from one generator with seed 0. They are drawn in a fixed order before --scale cuts
 * the list and before the modulo of the vocabulary. So a scaled workload equals the first part of
 * the whole one. */
#include "cmd/bench/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

// ---- CPython's random numbers ----

enum { WORDS = PYTHON_RANDOM_WORDS, MIDDLE = 397 };

static void seed_by_number(uint32_t *state, uint32_t seed) {
    state[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
    }
}

// init_by_array of the generator's authors. CPython calls it with the integer's 32-bit digits.
void python_random_seed(struct python_random *random, uint64_t seed) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t key_len = key[1] ? 2 : 1;
    uint32_t *state = random->state;
    seed_by_number(state, 19650218u);
    uint32_t i = 1, j = 0;
    for (uint32_t k = 0; k < WORDS; k++) {
        state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1664525u)) + key[j] + j;
        if (++i == WORDS) {
            state[0] = state[WORDS - 1];
            i = 1;
        }
        j = (j + 1) % key_len;
    }
    for (uint32_t k = 1; k < WORDS; k++) {
        state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1566083941u)) - i;
        if (++i == WORDS) {
            state[0] = state[WORDS - 1];
            i = 1;
        }
    }
    state[0] = 0x80000000u;
    random->next = WORDS;
}

static void refill(struct python_random *random) {
    uint32_t *state = random->state;
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t y = (state[i] & 0x80000000u) | (state[(i + 1) % WORDS] & 0x7fffffffu);
        state[i] = state[(i + MIDDLE) % WORDS] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    random->next = 0;
}

static uint32_t next_word(struct python_random *random) {
    if (random->next == WORDS) refill(random);
    uint32_t y = random->state[random->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

int32_t python_random_randint(struct python_random *random, int32_t min, int32_t max) {
    CHECK(min <= max, "min=%d max=%d", min, max);
    uint64_t count = (uint64_t)((int64_t)max - min) + 1;
    CHECK(count <= UINT32_MAX, "count=%llu", (unsigned long long)count);
    int bits = 0;
    while (count >> bits) bits++;
    uint32_t value; // redrawn while out of range, as in CPython's _randbelow
    do {
        value = next_word(random) >> (32 - bits);
    } while (value >= count);
    return (int32_t)(min + (int64_t)value);
}

// ---- workloads ----

// nano-vllm's bench.py: 256 prompts of randint(100, 1024) ids from randint(0, 10000).
enum { UPSTREAM_SEQS = 256, LEN_MIN = 100, LEN_MAX = 1024, ID_MAX = 10000 };

struct shape {
    int32_t batch_size, input_len, output_len, prefix_len;
};

static const struct {
    const char *name;
    struct shape shape;
} kinds[] = {
    [WORKLOAD_NANO_VLLM] = {"nano-vllm", {UPSTREAM_SEQS, 0, 0, 0}},
    [WORKLOAD_ONE_STREAM] = {"one-stream", {1, 128, 512, 0}},
    [WORKLOAD_BATCH] = {"batch", {8, 128, 64, 0}},
    [WORKLOAD_PREFILL] = {"prefill", {8, 512, 1, 0}},
    [WORKLOAD_SHARED_PREFIX] = {"shared-prefix", {256, 64, 64, 2048}},
};
enum { NUM_KINDS = sizeof kinds / sizeof kinds[0] };

const char *workload_name(enum workload_kind kind) {
    return kinds[kind].name;
}

bool workload_from_name(const char *name, enum workload_kind *kind, int32_t *batch_size) {
    for (int i = 0; i < NUM_KINDS; i++) {
        if (strcmp(kinds[i].name, name) != 0) continue;
        *kind = (enum workload_kind)i;
        return true;
    }
    if (strncmp(name, "batch-", 6) != 0) return false;
    char *end = NULL;
    long size = strtol(name + 6, &end, 10);
    if (end == name + 6 || *end || size < 1 || size > 1000000) return false;
    *kind = WORKLOAD_BATCH;
    *batch_size = (int32_t)size;
    return true;
}

static struct shape resolve_shape(const struct workload_options *options) {
    struct shape shape = kinds[options->kind].shape;
    if (options->batch_size) shape.batch_size = options->batch_size;
    if (options->input_len) shape.input_len = options->input_len;
    if (options->output_len) shape.output_len = options->output_len;
    if (options->prefix_len) shape.prefix_len = options->prefix_len;
    return shape;
}

// Draws the ids of every request in order. The order of the draws defines the workload.
static void draw_upstream(struct workload *workload, struct python_random *random) {
    int32_t *ids = workload->ids;
    for (size_t i = 0; i < UPSTREAM_SEQS; i++) {
        struct workload_request *request = &workload->requests[i];
        request->prompt_len = (uint32_t)python_random_randint(random, LEN_MIN, LEN_MAX);
        request->prompt = ids;
        for (uint32_t j = 0; j < request->prompt_len; j++) {
            *ids++ = python_random_randint(random, 0, ID_MAX);
        }
    }
    for (size_t i = 0; i < UPSTREAM_SEQS; i++) {
        workload->requests[i].max_tokens = python_random_randint(random, LEN_MIN, LEN_MAX);
    }
}

static void draw_shape(struct workload *workload, struct python_random *random,
                       const struct shape *shape) {
    size_t prefix_len = (size_t)shape->prefix_len;
    size_t prompt_len = prefix_len + (size_t)shape->input_len;
    for (size_t i = 0; i < (size_t)shape->batch_size; i++) {
        int32_t *prompt = workload->ids + i * prompt_len;
        size_t shared = i ? prefix_len : 0;
        if (shared) memcpy(prompt, workload->ids, shared * sizeof *prompt);
        for (size_t j = shared; j < prompt_len; j++) {
            prompt[j] = python_random_randint(random, 0, ID_MAX);
        }
        workload->requests[i] = (struct workload_request){
            .prompt = prompt, .prompt_len = (uint32_t)prompt_len, .max_tokens = shape->output_len};
    }
}

enum status workload_create(struct workload *workload, const struct workload_options *options,
                            struct err *err) {
    *workload = (struct workload){.ids_limit = ID_MAX + 1};
    struct shape shape = resolve_shape(options);
    bool upstream = options->kind == WORKLOAD_NANO_VLLM;
    size_t num_requests = (size_t)shape.batch_size;
    size_t longest = upstream ? LEN_MAX : (size_t)shape.prefix_len + (size_t)shape.input_len;
    workload->requests = calloc(num_requests, sizeof *workload->requests);
    workload->ids = calloc(num_requests * longest, sizeof *workload->ids);
    if (!workload->requests || !workload->ids) {
        workload_fini(workload);
        return err_nomem(err, "workload");
    }
    struct python_random random;
    python_random_seed(&random, 0);
    if (upstream) {
        draw_upstream(workload, &random);
    } else {
        draw_shape(workload, &random, &shape);
    }
    double part = round(options->scale * (double)num_requests);
    workload->num_requests = part < 1 ? 1 : (size_t)part;
    for (size_t i = 0; i < workload->num_requests; i++) {
        struct workload_request *request = &workload->requests[i];
        workload->num_input_tokens += request->prompt_len;
        workload->num_output_tokens += (uint64_t)request->max_tokens;
        for (uint32_t j = 0; j < request->prompt_len; j++) {
            request->prompt[j] = (int32_t)((uint32_t)request->prompt[j] % options->vocab_size);
        }
    }
    return OK;
}

void workload_fini(struct workload *workload) {
    free(workload->requests);
    free(workload->ids);
    *workload = (struct workload){0};
}

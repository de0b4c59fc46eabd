// What the simulation of scheduler_sim.c keeps.
#ifndef ENGINE_SCHEDULER_SIM_STATE_H
#define ENGINE_SCHEDULER_SIM_STATE_H

#include "engine/schedule/scheduler_sim.h"

enum { REQUESTS_MAX = 24, BASES_MAX = 4, PROMPT_MAX = 96, NEW_MAX = 40, ROWS_MAX = 64 };
enum { GROUPS_MAX = 4, EOS = 0 };
enum { DRAFTS_MAX = 9 };
enum abort_phase { ABORT_BEFORE, ABORT_MIDSTEP, ABORT_AFTER_RUN, ABORT_AMONG_OUTPUTS, NUM_PHASES };

struct sim_request {
    struct sequence *seq; // NULL before it is added and after it ended
    struct sequence *first_seq; // the same, and still after it ended
    int32_t tokens[PROMPT_MAX + NEW_MAX]; // [num_tokens] prompt, then what it generates alone
    uint64_t prefix[PROMPT_MAX + NEW_MAX]; // [num_tokens] what the slot of each position must hold
    uint32_t num_prompt, num_tokens, num_tokens_max;
    uint64_t salt, seed;
    struct sim_request *origin; // the request whose prompt this is another output of; NULL: none
    bool ignore_eos, skips_cache;
    int32_t priority;
    uint64_t arrival_step, abort_step; // abort_step counts from its arrival; UINT64_MAX: never
    enum abort_phase abort_phase;
    bool was_running; // before this step's schedule
    uint32_t num_deferrals; // before this step's schedule
    bool ended;
};

struct sim {
    uint64_t random;
    struct scheduler_config config;
    struct scheduler *scheduler;
    struct schedule schedule;
    struct sim_request requests[REQUESTS_MAX];
    struct sequence *seqs[REQUESTS_MAX]; // those that are in the scheduler, else NULL
    struct sequence *ended[REQUESTS_MAX]; // [num_ended], freed at the end: schedules point to them
    uint32_t num_requests, num_ended;
    // What the newest token that was run reads, and then each draft behind it.
    uint64_t outputs[REQUESTS_MAX][1 + DRAFTS_MAX];
    bool has_weak_hashes; // chain hashes take few values only, so that they collide all the time
    uint64_t *slots; // [num_blocks * block_size] the KV cache
    uint64_t *written_at; // [num_blocks * block_size] step that wrote the slot
    // A device's block tables, by table_row.
    uint32_t tables[GROUPS_MAX][ROWS_MAX][PROMPT_MAX + NEW_MAX];
    uint64_t step;
    uint64_t num_preemptions; // before this step's schedule
    struct sim_totals *totals;
    char fault[256]; // empty: none so far
};

static inline uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ (b * 0x9E3779B97F4A7C15u)) + 0xD1B54A32D192ED03u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// What a position's slot holds: the prefix before it and its own token.
static inline uint64_t slot_content(uint64_t before, int32_t token) {
    return mix(before, (uint64_t)token + 17);
}

// The model: the next token from the last position's slot and the request's seed. Few different
// tokens, so that contents repeat.
static inline int32_t next_token(uint64_t content, uint64_t seed) {
    uint64_t logits = mix(content, 99 + seed);
    if (logits % 29 == 0) return EOS;
    return 1 + (int32_t)((logits >> 32) % 3);
}

#endif

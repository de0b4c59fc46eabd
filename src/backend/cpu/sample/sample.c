/* Weights are exp((logit - largest) / temperature). The largest weight is 1, so min_p is a plain
 * threshold and nothing overflows.
 *
 * top_k and top_p choose among candidates: all tokens whose logit reaches a bound. For top_k the
 * bound is the k-th largest maximum of a chunk: the k-th largest logit is no smaller, and few other
 * logits reach it. For top_p it starts near the largest logit and falls until the candidates hold
 * enough. Only the chunks whose maximum reaches the bound are read, and the choice among candidates
 * is exact.
 *
 * nano-vllm's Sampler runs an exponential race (Gumbel's trick) over all tokens. Here one
 * counter-based random number inverts the distribution. */
#include "backend/cpu/sample/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_memory.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/sample/philox.h"
#include "backend/cpu/sample/sample_select.h"
#include "backend/cpu/sample/sample_weigh.h"
#include "base/check.h"
#include "base/thread/float_mode.h"

enum {
    CHUNK = SAMPLE_CHUNK, // logits that a pass handles at a time
    SKIP = 64, // tokens that are skipped together where none of them matters
    TASK_CHUNKS_MIN = 8, // fewer are not worth waking a thread for
};

// The highest bit of a count: the prompt has the token. The others: how often it was generated.
#define TOKEN_COUNT_PROMPT 0x80000000u
#define TOKEN_COUNT_MASK 0x7fffffffu

struct token_counts {
    uint32_t num_slots, vocab_size;
    uint32_t *counts; // [num_slots][vocab_size]; memory is taken when a slot is first used
};

// One thread's scratch memory.
struct space {
    float *adjusted; // [vocab_size] logits after penalties and bias
    float *weights; // [vocab_size], of candidates only
    uint64_t *keys; // [vocab_size] candidates, ascending ids
    uint64_t *spare; // [vocab_size]
    double *chunk_sum; // [num_chunks] of weights
    float *chunk_max; // [num_chunks] of clean logits
};

// One row being sampled.
struct work {
    const struct sample_row *row;
    const float *logits; // [vocab_size] of the current pass
    uint32_t vocab_size, num_chunks;
    struct space space;
    uint32_t *counts; // [vocab_size] as in token_counts; NULL: no penalties
    const uint32_t *mask; // [ceil(vocab_size / 32)] or NULL
    struct thread_pool *pool; // shares this row's passes; NULL: only this thread works on it
    void (*pass)(struct work *work, uint32_t chunk);
    uint32_t task_chunks; // chunks of an item
    float max; // of the clean logits
    struct sample_weigh how; // how logits become weights
    const struct cpu_kernels *kernels;
};

static uint32_t chunks_of(uint32_t vocab_size) {
    return (vocab_size + CHUNK - 1) / CHUNK;
}

// The size of a part of a space, rounded up so that the next one starts on a cache line.
static size_t round_floats(size_t floats) {
    return (floats + 15) & ~(size_t)15;
}

static size_t space_floats(uint32_t vocab_size) {
    size_t num_chunks = chunks_of(vocab_size);
    return 2 * round_floats(vocab_size) + 2 * round_floats((size_t)vocab_size * 2) +
           round_floats(num_chunks * 2) + round_floats(num_chunks);
}

static struct space space_at(float *scratch, uint32_t vocab_size) {
    size_t num_chunks = chunks_of(vocab_size);
    struct space space;
    space.adjusted = scratch;
    space.weights = space.adjusted + round_floats(vocab_size);
    float *at = space.weights + round_floats(vocab_size);
    space.keys = (uint64_t *)(void *)at;
    at += round_floats((size_t)vocab_size * 2);
    space.spare = (uint64_t *)(void *)at;
    at += round_floats((size_t)vocab_size * 2);
    space.chunk_sum = (double *)(void *)at;
    space.chunk_max = at + round_floats(num_chunks * 2);
    return space;
}

size_t cpu_sample_scratch_floats(const struct backend *backend, uint32_t vocab_size,
                                 uint32_t num_rows) {
    uint32_t num_threads = thread_pool_num_threads(cpu_backend_of_const(backend)->pool);
    return space_floats(vocab_size) * (num_rows < num_threads ? 1 : num_threads);
}

static uint32_t chunk_end(const struct work *work, uint32_t chunk) {
    uint32_t rest = work->vocab_size - chunk * CHUNK;
    return chunk * CHUNK + (rest < CHUNK ? rest : CHUNK);
}

static void pass_max(struct work *work, uint32_t chunk) {
    uint32_t start = chunk * CHUNK;
    float max = work->kernels->sample_max(work->logits + start, chunk_end(work, chunk) - start);
    work->space.chunk_max[chunk] = sample_clean(max);
}

// Writes the weights of a chunk to `weights`, [CHUNK]. Returns their sum.
static double weigh_chunk(const struct work *work, uint32_t chunk, float *weights) {
    uint32_t start = chunk * CHUNK;
    return work->kernels->sample_weigh(work->logits + start, weights,
                                       chunk_end(work, chunk) - start, &work->how);
}

// The weights are not kept: writing all of them would take longer than computing some again.
static void pass_weigh(struct work *work, uint32_t chunk) {
    float weights[CHUNK];
    work->space.chunk_sum[chunk] = weigh_chunk(work, chunk, weights);
}

static void pass_copy(struct work *work, uint32_t chunk) {
    uint32_t start = chunk * CHUNK;
    memcpy(work->space.adjusted + start, work->logits + start,
           (chunk_end(work, chunk) - start) * sizeof(float));
}

static void run_task(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    struct work *work = arg;
    uint32_t start = item * work->task_chunks, end = start + work->task_chunks;
    if (end > work->num_chunks) end = work->num_chunks;
    for (uint32_t chunk = start; chunk < end; chunk++) work->pass(work, chunk);
}

static void run_pass(struct work *work, void (*pass)(struct work *, uint32_t)) {
    work->pass = pass;
    if (!work->pool) {
        for (uint32_t chunk = 0; chunk < work->num_chunks; chunk++) pass(work, chunk);
        return;
    }
    work->task_chunks = thread_pool_grain(work->pool, work->num_chunks, TASK_CHUNKS_MIN);
    uint32_t num_tasks = (work->num_chunks + work->task_chunks - 1) / work->task_chunks;
    thread_pool_for(work->pool, num_tasks, run_task, work);
}

static void find_max(struct work *work) {
    run_pass(work, pass_max);
    work->max = -INFINITY;
    for (uint32_t chunk = 0; chunk < work->num_chunks; chunk++) {
        float max = work->space.chunk_max[chunk];
        if (max > work->max) work->max = max;
    }
}

static double weigh_all(struct work *work) {
    run_pass(work, pass_weigh);
    double sum = 0;
    for (uint32_t chunk = 0; chunk < work->num_chunks; chunk++) sum += work->space.chunk_sum[chunk];
    return sum;
}

// Lists the best tokens, best first; needs chunk_max. Once the list is full, a chunk or logit that
// only equals its worst entry is skipped: its ids are larger.
static void list_top(const struct work *work, uint32_t num_top, double log_sum,
                     struct sample_result *result) {
    uint64_t best[SAMPLE_TOP_MAX];
    uint32_t count = 0;
    float worst = -INFINITY;
    for (uint32_t chunk = 0; chunk < work->num_chunks && num_top; chunk++) {
        if (count == num_top && !(work->space.chunk_max[chunk] > worst)) continue;
        for (uint32_t i = chunk * CHUNK; i < chunk_end(work, chunk); i++) {
            if (count == num_top && !(work->logits[i] > worst)) continue;
            uint64_t key = sample_key(sample_clean(work->logits[i]), i);
            if (count == num_top && key > best[count - 1]) continue; // +inf after +inf
            uint32_t at = count < num_top ? count++ : num_top - 1;
            for (; at > 0 && best[at - 1] > key; at--) best[at] = best[at - 1];
            best[at] = key;
            worst = sample_key_logit(best[count - 1]);
        }
    }
    for (uint32_t i = 0; i < num_top; i++) {
        float logit = i < count ? sample_key_logit(best[i]) : -INFINITY;
        bool there = i < count && !(work->row->masks_logprobs && logit == -INFINITY);
        result->top_id[i] = there ? (int32_t)sample_key_id(best[i]) : -1;
        result->top_logprob[i] = sample_logprob(logit, work->max, log_sum);
    }
}

static void list_given(const struct work *work, const struct sample_bias *given, double log_sum,
                       struct sample_result *result) {
    for (uint32_t i = 0; i < work->row->num_given && i < SAMPLE_TOP_MAX; i++) {
        uint32_t id = (uint32_t)given[i].token_id;
        CHECK(id < work->vocab_size, "id=%u vocab_size=%u", id, work->vocab_size);
        result->top_id[i] = given[i].token_id;
        result->top_logprob[i] = sample_logprob(sample_clean(work->logits[id]), work->max, log_sum);
    }
}

static void pass_mask(struct work *work, uint32_t chunk) {
    float *adjusted = work->space.adjusted;
    for (uint32_t i = chunk * CHUNK; i < chunk_end(work, chunk); i++) {
        if (!(work->mask[i / 32] >> (i % 32) & 1)) adjusted[i] = -INFINITY;
    }
}

// Fills in the best or the given tokens by the raw logits. Leaves log(sum of exp(logit - max)) in
// *log_sum, and the raw logits' chunk maxima and max in work.
static void raw_logprobs(struct work *work, const struct sample_bias *biases, double *log_sum,
                         struct sample_result *result) {
    const struct sample_row *row = work->row;
    if (work->mask && row->masks_logprobs) {
        run_pass(work, pass_copy);
        run_pass(work, pass_mask);
        work->logits = work->space.adjusted;
    }
    find_max(work);
    work->how = (struct sample_weigh){work->max, 1.0f, SAMPLE_WEIGHT_MIN};
    *log_sum = log(weigh_all(work));
    if (row->num_given) {
        list_given(work, biases + row->bias_start + row->bias_count, *log_sum, result);
        return;
    }
    uint32_t num_top = (uint32_t)row->num_top;
    list_top(work, num_top < SAMPLE_TOP_MAX ? num_top : SAMPLE_TOP_MAX, *log_sum, result);
}

static float penalize(const struct sample_row *row, uint32_t count, float logit) {
    if (count) {
        logit = logit > 0 ? logit / row->repetition_penalty : logit * row->repetition_penalty;
    }
    uint32_t times = count & TOKEN_COUNT_MASK;
    if (times) logit -= row->presence_penalty + row->frequency_penalty * (float)times;
    return logit;
}

static void pass_penalize(struct work *work, uint32_t chunk) {
    uint32_t start = chunk * CHUNK, end = chunk_end(work, chunk);
    const uint32_t *counts = work->counts;
    float *adjusted = work->space.adjusted;
    pass_copy(work, chunk);
    for (; start < end; start += SKIP) { // most tokens were never seen
        uint32_t any = 0, stop = end - start < SKIP ? end : start + SKIP;
        for (uint32_t i = start; i < stop; i++) any |= counts[i];
        for (uint32_t i = start; any && i < stop; i++) {
            if (counts[i]) adjusted[i] = penalize(work->row, counts[i], adjusted[i]);
        }
    }
}

// Whether anything changes the row's logits.
static bool is_adjusted(const struct work *work) {
    return work->counts || work->mask || work->row->bias_count;
}

// biases: of the whole step; NULL if no row has one.
static void adjust(struct work *work, const struct sample_bias *biases) {
    run_pass(work, work->counts ? pass_penalize : pass_copy);
    for (uint32_t i = 0; i < work->row->bias_count; i++) {
        const struct sample_bias *bias = &biases[work->row->bias_start + i];
        uint32_t id = (uint32_t)bias->token_id;
        CHECK(id < work->vocab_size, "id=%u vocab_size=%u", id, work->vocab_size);
        float *logit = &work->space.adjusted[id];
        if (bias->count) {
            CHECK(work->counts, "token %u is counted, and the row has no counts", id);
            *logit = penalize(work->row, work->counts[id] + bias->count, work->logits[id]);
        }
        *logit += bias->bias;
    }
    if (work->mask) run_pass(work, pass_mask);
    work->logits = work->space.adjusted;
}

static uint32_t first_largest(const struct work *work) {
    uint32_t chunk = 0;
    while (work->space.chunk_max[chunk] < work->max) chunk++;
    uint32_t i = chunk * CHUNK;
    while (!(work->logits[i] >= work->max)) i++;
    return i;
}

// The token where the running sum of all weights passes `uniform` of `total`.
static uint32_t draw_from_all(const struct work *work, double total, double uniform) {
    double target = uniform * total, sum = 0;
    uint32_t chunk = 0, last = 0; // last: the last chunk so far that has any weight
    for (; chunk < work->num_chunks; chunk++) {
        double chunk_sum = work->space.chunk_sum[chunk];
        if (chunk_sum > 0) last = chunk;
        if (sum + chunk_sum > target) break;
        sum += chunk_sum;
    }
    float weights[CHUNK];
    weigh_chunk(work, last, weights);
    uint32_t start = last * CHUNK, token = start;
    for (uint32_t i = start; i < chunk_end(work, last); i++) {
        float weight = weights[i - start];
        if (!(weight > 0)) continue;
        token = i;
        sum += (double)weight;
        if (chunk < work->num_chunks && sum > target) break;
    }
    return token; // after rounding errors: the last token that has any weight
}

// Lists the candidates, all tokens whose logit is at least `bound`, in the order of their ids, and
// writes their weights. Returns how many they are.
static uint32_t collect(struct work *work, float bound) {
    const struct cpu_kernels *kernels = work->kernels;
    const float *logits = work->logits;
    float *weights = work->space.weights;
    uint64_t *keys = work->space.keys;
    uint32_t n = 0;
    for (uint32_t chunk = 0; chunk < work->num_chunks; chunk++) {
        if (work->space.chunk_max[chunk] < bound) continue;
        for (uint32_t i = chunk * CHUNK, end = chunk_end(work, chunk); i < end;) {
            uint32_t count = end - i < SKIP ? end - i : SKIP;
            if (kernels->sample_max(logits + i, count) < bound) {
                i += count;
                continue;
            }
            kernels->sample_weigh(logits + i, weights + i, count, &work->how);
            for (uint32_t stop = i + count; i < stop; i++) {
                keys[n] = sample_key(sample_clean(logits[i]), i); // n <= i
                // Without a branch, which would often be mispredicted.
                n += logits[i] >= bound;
            }
        }
    }
    return n;
}

static double candidates_mass(const struct space *space, uint32_t n) {
    double mass = 0;
    for (uint32_t i = 0; i < n; i++) mass += (double)space->weights[sample_key_id(space->keys[i])];
    return mass;
}

// Collects tokens until there are `count` of them and they weigh `mass`, or all that have a weight.
static uint32_t collect_enough(struct work *work, uint32_t count, double mass) {
    uint32_t n = 0;
    // Weights end before exp(-96).
    for (int depth = 3; depth <= 96; depth *= 2) {
        n = collect(work, work->max - (float)depth * work->row->temperature);
        if (n >= count && candidates_mass(&work->space, n) >= mass) break;
    }
    return n;
}

static uint32_t collect_top_k(struct work *work, uint32_t top_k) {
    struct space *space = &work->space;
    if (top_k >= work->num_chunks) return collect_enough(work, top_k, 0);
    for (uint32_t chunk = 0; chunk < work->num_chunks; chunk++) {
        space->keys[chunk] = sample_key(space->chunk_max[chunk], chunk);
    }
    uint64_t end = sample_prefix_end(space->keys, space->spare, work->num_chunks, NULL, top_k);
    return collect(work, sample_key_logit(end));
}

// Keeps the candidates up to the key `end`, in the order of their ids.
static uint32_t keep_until(struct space *space, uint32_t n, uint64_t end) {
    uint32_t num_kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (space->keys[i] <= end) space->keys[num_kept++] = space->keys[i];
    }
    return num_kept;
}

static uint32_t draw_filtered(struct work *work, double uniform) {
    struct space *space = &work->space;
    const struct sample_row *row = work->row;
    uint32_t n;
    double mass;
    if (row->top_k > 0) {
        n = collect_top_k(work, (uint32_t)row->top_k);
        if (n > (uint32_t)row->top_k) {
            n = keep_until(space, n,
                           sample_prefix_end(space->keys, space->spare, n, NULL, row->top_k));
        }
        mass = candidates_mass(space, n);
    } else {
        mass = weigh_all(work);
        n = collect_enough(work, 1, (double)row->top_p * mass);
    }
    if (row->top_p < 1.0f) {
        double target = (double)row->top_p * mass;
        n = keep_until(space, n,
                       sample_prefix_end(space->keys, space->spare, n, space->weights, target));
        mass = candidates_mass(space, n);
    }
    double target = uniform * mass, sum = 0;
    uint32_t i = 0;
    for (; i + 1 < n; i++) { // after rounding errors: the last one
        sum += (double)space->weights[sample_key_id(space->keys[i])];
        if (sum > target) break;
    }
    return sample_key_id(space->keys[i]);
}

static uint32_t draw_token(struct work *work) {
    const struct sample_row *row = work->row;
    if (!(row->temperature > 0)) return first_largest(work);
    double uniform = philox_uniform(row->seed_low, row->seed_high, row->draw);
    work->how = (struct sample_weigh){
        .max = work->max,
        .inverse_temperature = 1.0f / row->temperature,
        .weight_min = row->min_p > SAMPLE_WEIGHT_MIN ? row->min_p : SAMPLE_WEIGHT_MIN,
    };
    if (row->top_k > 0 || row->top_p < 1.0f) return draw_filtered(work, uniform);
    double total = weigh_all(work);
    return draw_from_all(work, total, uniform);
}

static uint32_t *counts_of(const struct sample_args *args, const struct sample_row *row) {
    if (!row->counts_slot) return NULL;
    const struct token_counts *counts = args->counts;
    CHECK(counts && row->counts_slot <= counts->num_slots, "slot=%u", row->counts_slot);
    return counts->counts + (size_t)(row->counts_slot - 1) * counts->vocab_size;
}

static const uint32_t *mask_of(const struct sample_args *args, const struct sample_row *row) {
    size_t words = (args->vocab_size + 31) / 32;
    return row->mask ? args->masks + (row->mask - 1) * words : NULL;
}

static void sample_one(const struct cpu_backend *cpu, const struct sample_args *args, uint32_t row,
                       float *scratch, struct thread_pool *pool) {
    const float *raw = args->logits + (size_t)row * args->vocab_size;
    struct sample_result *result = &args->results[row];
    struct work work = {
        .row = &args->rows[row],
        .logits = raw,
        .vocab_size = args->vocab_size,
        .num_chunks = chunks_of(args->vocab_size),
        .space = space_at(scratch, args->vocab_size),
        .counts = counts_of(args, &args->rows[row]),
        .mask = mask_of(args, &args->rows[row]),
        .pool = pool,
        .kernels = &cpu->kernels,
    };
    double log_sum = 0;
    float raw_max = 0;
    bool logprobs = work.row->num_top >= 0;
    if (logprobs) {
        raw_logprobs(&work, args->biases, &log_sum, result);
        raw_max = work.max;
        work.logits = raw;
    }
    if (is_adjusted(&work)) adjust(&work, args->biases);
    if (is_adjusted(&work) || !logprobs) find_max(&work);
    result->token_id = -1;
    result->logprob = logprobs ? -INFINITY : 0.0f;
    if (!(work.max > -INFINITY)) return; // every logit is NaN, -inf or banned
    uint32_t token = draw_token(&work);
    result->token_id = (int32_t)token;
    if (work.counts && !work.row->is_tentative) work.counts[token]++;
    if (logprobs) {
        result->logprob = sample_logprob(sample_clean(raw[token]), raw_max, log_sum);
    }
}

struct rows_work {
    const struct cpu_backend *cpu;
    const struct sample_args *args;
    size_t space_floats;
};

static void sample_row_item(void *arg, uint32_t item, uint32_t thread) {
    const struct rows_work *work = arg;
    float *scratch = work->args->scratch + thread * work->space_floats;
    sample_one(work->cpu, work->args, item, scratch, NULL);
}

static void sample_rows(const struct cpu_backend *cpu, const struct sample_args *args) {
    if (args->num_rows < thread_pool_num_threads(cpu->pool)) {
        for (uint32_t row = 0; row < args->num_rows; row++) {
            sample_one(cpu, args, row, args->scratch, cpu->pool);
        }
        return;
    }
    struct rows_work work = {cpu, args, space_floats(args->vocab_size)};
    thread_pool_for(cpu->pool, args->num_rows, sample_row_item, &work);
}

void cpu_sample(struct backend *backend, const struct sample_args *args) {
    uint64_t mode = float_mode_enter(); // rows that all threads share are computed here too
    sample_rows(cpu_backend_of(backend), args);
    float_mode_leave(mode);
}

enum status cpu_counts_create(struct backend *backend, uint32_t num_slots, uint32_t vocab_size,
                              uint32_t max_ids, struct token_counts **out, struct err *err) {
    (void)backend, (void)max_ids;
    *out = NULL;
    struct token_counts *counts = calloc(1, sizeof *counts);
    if (!counts) return err_nomem(err, "token counts");
    *counts = (struct token_counts){.num_slots = num_slots, .vocab_size = vocab_size};
    counts->counts = cpu_memory_alloc((size_t)num_slots * vocab_size * sizeof *counts->counts);
    if (!counts->counts) {
        free(counts);
        return err_nomem(err, "token counts");
    }
    *out = counts;
    return OK;
}

void cpu_counts_destroy(struct backend *backend, struct token_counts *counts) {
    (void)backend;
    if (!counts) return;
    cpu_memory_free(counts->counts);
    free(counts);
}

size_t cpu_counts_bytes(const struct backend *backend, uint32_t num_slots, uint32_t vocab_size,
                        uint32_t max_ids) {
    (void)backend, (void)num_slots, (void)vocab_size, (void)max_ids;
    return 0;
}

void cpu_counts_begin(struct backend *backend, struct token_counts *counts, uint32_t slot,
                      const int32_t *ids, uint32_t num_prompt, uint32_t num_ids) {
    (void)backend;
    CHECK(slot > 0 && slot <= counts->num_slots, "slot=%u of %u", slot, counts->num_slots);
    uint32_t *row = counts->counts + (size_t)(slot - 1) * counts->vocab_size;
    memset(row, 0, counts->vocab_size * sizeof *row);
    for (uint32_t i = 0; i < num_ids; i++) {
        uint32_t id = (uint32_t)ids[i];
        CHECK(id < counts->vocab_size, "id=%u vocab_size=%u", id, counts->vocab_size);
        if (i < num_prompt) {
            row[id] |= TOKEN_COUNT_PROMPT;
        } else {
            row[id]++;
        }
    }
}

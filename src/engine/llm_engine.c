#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "engine/llm_engine_internal.h"

// tokenizer.json is read on a thread of its own beside the weights.
struct tokenizer_load {
    char path[FILE_PATH_MAX];
    struct tokenizer *tokenizer;
    enum status status;
    struct err err;
    pthread_t thread;
    bool started;
};

static void *run_tokenizer_load(void *arg) {
    struct tokenizer_load *load = arg;
    load->status = tokenizer_open(&load->tokenizer, load->path, &load->err);
    return NULL;
}

static enum status start_tokenizer_load(struct tokenizer_load *load, const char *model,
                                        struct err *err) {
    *load = (struct tokenizer_load){0};
    enum status status = file_join(load->path, sizeof load->path, model, "tokenizer.json", err);
    bool present = false;
    if (!status) status = tokenizer_check_present(load->path, &present, err);
    if (status) return status;
    if (!present) {
        return err_set(err, ERR_IO,
                       "%s is missing (skip_tokenizer_init runs token ids without a tokenizer)",
                       load->path);
    }
    sigset_t all, before; // the program's signals are for the program's own threads
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    load->started = pthread_create(&load->thread, NULL, run_tokenizer_load, load) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!load->started) run_tokenizer_load(load); // no thread to be had: load it here
    return OK;
}

static enum status finish_tokenizer_load(struct tokenizer_load *load, struct tokenizer **out,
                                         struct err *err) {
    if (load->started) pthread_join(load->thread, NULL);
    *out = load->tokenizer;
    if (load->status && err) *err = load->err;
    return load->status;
}

static enum status load_weights(struct llm_engine *engine, const char *model, struct err *err) {
    struct weights *weights = NULL;
    enum status status = engine->plan.dummy_weights ? weights_open_dummy(&weights, err)
                                                    : weights_open(&weights, model, err);
    if (status) return status;
    status = model_runner_create(&engine->runner, &engine->plan.config, weights,
                                 engine->plan.backend, &engine->plan.runner, err);
    weights_close(weights);
    return status;
}

// Cached prefixes are found by hash; a seed nobody can know keeps others from forging one.
static uint64_t secret_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed) return seed;
    double now = clock_seconds();
    return XXH3_64bits(&now, sizeof now);
}

static enum status create_scheduler(struct llm_engine *engine, struct err *err) {
    struct scheduler_config config = engine->plan.scheduler;
    engine->secret = secret_seed();
    config.hash_seed = engine->secret;
    enum status status = scheduler_create(&engine->scheduler, &config, err);
    if (status) return status;
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        status = batch_init(&engine->batches[i], engine->plan.backend, &engine->plan.batch, err);
        if (status) return status;
        engine->flights[i].slot = i;
        engine->flights[i].requests =
            calloc(engine->plan.batch.max_num_seqs, sizeof *engine->flights[i].requests);
        if (!engine->flights[i].requests) return err_nomem(err, "scheduler");
    }
    return OK;
}

// A token beyond the model's output would be sampled and then have no text; the other way round,
// ids of prompts would be outside the embedding.
static enum status check_vocabulary(const struct llm_engine *engine, struct err *err) {
    if (!engine->tokenizer) return OK;
    uint32_t num_tokens = tokenizer_num_tokens(engine->tokenizer);
    uint32_t vocab_size = engine->plan.config.vocab_size;
    if (num_tokens <= vocab_size) return OK; // models pad their vocabulary
    return err_set(err, ERR_FORMAT,
                   "tokenizer.json has %u token ids, but the model's vocab_size is %u", num_tokens,
                   vocab_size);
}

enum status llm_engine_create(struct llm_engine **out, const struct nvllm_engine_options *options,
                              struct err *err) {
    *out = NULL;
    double start = clock_seconds();
    struct llm_engine *engine = calloc(1, sizeof *engine);
    struct tokenizer_load *load = calloc(1, sizeof *load);
    enum status status = OK;
    if (!engine || !load) {
        status = err_nomem(err, "engine");
        goto fail;
    }
    engine->model = strdup(options->model);
    if (!engine->model) {
        status = err_nomem(err, "engine");
        goto fail;
    }
    if ((status = engine_plan_make(&engine->plan, options, err))) goto fail;
    if ((status = engine_plan_check_memory(&engine->plan, err))) goto fail;
    if (options->chat_template) { // the model's own is opened when the first chat comes
        const char *model = options->model, *path = options->chat_template;
        if ((status = chat_template_open(&engine->chat_template, model, path, err))) goto fail;
    }
    if (!options->skip_tokenizer_init) {
        if ((status = start_tokenizer_load(load, options->model, err))) goto fail;
    }
    status = load_weights(engine, options->model, err);
    enum status tokenizer_status =
        finish_tokenizer_load(load, &engine->tokenizer, status ? NULL : err);
    if (!status) status = tokenizer_status;
    if (status) goto fail;
    if ((status = check_vocabulary(engine, err))) goto fail;
    if ((status = create_scheduler(engine, err))) goto fail;
    free(load);
    engine->next_id = 1;
    engine->stats.load_seconds = clock_seconds() - start;
    *out = engine;
    return OK;
fail:
    free(load);
    llm_engine_destroy(engine);
    return status;
}

static enum status land(struct llm_engine *engine, struct flight *flight, struct err *err);

void llm_engine_destroy(struct llm_engine *engine) {
    if (!engine) return;
    if (engine->scheduler) llm_engine_abort_all(engine);
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        // Until the device no longer reads what is freed below.
        if (engine->flights[i].is_launched) (void)!land(engine, &engine->flights[i], NULL);
    }
    request_table_fini(&engine->requests);
    scheduler_destroy(engine->scheduler);
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        batch_fini(&engine->batches[i], engine->plan.backend);
        free(engine->flights[i].requests);
    }
    model_runner_destroy(engine->runner);
    engine_plan_fini(&engine->plan);
    tokenizer_close(engine->tokenizer);
    chat_template_close(engine->chat_template);
    free(engine->model);
    buf_fini(&engine->piece);
    free(engine);
}

// A request's own stream of random numbers when it brings no seed.
static uint64_t request_seed(const struct llm_engine *engine, uint64_t id) {
    const uint64_t key[2] = {engine->plan.seed, id};
    return XXH3_64bits(key, sizeof key);
}

// Keyed by the secret: nobody can make two salts that meet. 0 is the common salt.
static uint64_t salt_of(const struct llm_engine *engine, const char *salt) {
    uint64_t hash = XXH3_64bits_withSeed(salt, strlen(salt), engine->secret);
    return hash ? hash : 1;
}

static enum status build_request(struct llm_engine *engine, struct request *request,
                                 const struct nvllm_request *in, const int32_t *ids, uint32_t count,
                                 struct err *err) {
    uint64_t id = engine->next_id;
    enum status status =
        sampling_init(&request->sampling, in->sampling, &engine->plan.generation,
                      engine->plan.config.vocab_size, request_seed(engine, id), ids, count, err);
    if (status) return status;
    const struct nvllm_sampling_params *params = &request->sampling.params;
    if (params->num_stop && !engine->tokenizer) {
        return err_set(err, ERR_INVALID,
                       "stop strings need the tokenizer, which skip_tokenizer_init left out");
    }
    status = output_text_init(&request->text, engine->tokenizer, params->stop, params->num_stop,
                              in->keep_special_tokens != 0, err);
    if (status) return status;
    size_t piece = output_text_max_piece(&request->text, engine->tokenizer);
    buf_clear(&engine->piece);
    if ((status = buf_reserve(&engine->piece, piece, err))) return status;

    uint32_t room = engine->plan.max_model_len - count;
    uint32_t max_new = (uint32_t)params->max_tokens < room ? (uint32_t)params->max_tokens : room;
    uint64_t salt = in->cache_salt ? salt_of(engine, in->cache_salt) : 0;
    status = sequence_create(&request->seq, id, ids, count, max_new,
                             engine->plan.scheduler.block_size, salt, err);
    if (status) return status;
    request->seq->user = request;
    request->on_event = in->on_event;
    request->user_data = in->user_data;
    request->finish_event_only = in->finish_event_only != 0;
    return OK;
}

enum status llm_engine_add_request(struct llm_engine *engine, const struct nvllm_request *in,
                                   uint64_t *request_id, struct err *err) {
    if (engine->failed)
        return err_set(err, ERR_DEVICE, "the engine has failed and must be destroyed");
    if (engine->in_callback) {
        return err_set(err, ERR_INVALID, "requests cannot be added from an event callback");
    }
    struct token_list encoded = {0};
    const int32_t *ids = NULL;
    size_t count = 0;
    struct request *request = calloc(1, sizeof *request);
    enum status status = request ? OK : err_nomem(err, "request");
    if (!status) status = llm_engine_prompt_ids(engine, in, &encoded, &ids, &count, err);
    if (!status) status = build_request(engine, request, in, ids, (uint32_t)count, err);
    if (!status) status = request_table_add(&engine->requests, request, err);
    if (!status) {
        status = scheduler_add(engine->scheduler, request->seq, err);
        if (status) request_table_remove(&engine->requests, request->seq->id);
    }
    token_list_fini(&encoded);
    if (status) {
        request_destroy(request);
        return status;
    }
    *request_id = engine->next_id++;
    engine->stats.num_requests_added++;
    return OK;
}

static const struct sampling *sampling_of(const struct sequence *seq) {
    const struct request *request = seq->user;
    return &request->sampling;
}

static void fail_all(struct llm_engine *engine, const char *why) {
    engine->failed = true;
    for (struct sequence *seq; (seq = scheduler_first(engine->scheduler));) {
        llm_engine_end_request(engine, seq->user, NVLLM_FINISH_ERROR, why);
    }
}

// Batch and launch of what the scheduler picked.
static enum status launch(struct llm_engine *engine, const struct schedule *schedule, double start,
                          struct err *err) {
    struct flight *flight = &engine->flights[engine->next_slot];
    struct batch *batch = &engine->batches[engine->next_slot];
    uint32_t block_size = engine->plan.scheduler.block_size;
    uint32_t padded = 0;
    if (schedule->num_prefill_tokens == 0) {
        padded = model_runner_padded_rows(engine->runner, schedule->num_items);
    }
    if (padded) {
        batch_build_padded(batch, schedule, block_size, sampling_of, padded);
    } else {
        batch_build(batch, schedule, block_size, sampling_of);
    }
    flight->num_rows = 0;
    flight->needs_history = false;
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        if (!schedule->items[i].needs_token) continue;
        struct request *request = schedule->items[i].seq->user;
        request->flight_entries[flight->slot] = &flight->requests[flight->num_rows];
        flight->requests[flight->num_rows++] = request;
        flight->needs_history = flight->needs_history || request->sampling.track_outputs;
    }
    engine->stats.schedule_seconds += clock_seconds() - start;

    struct model_runner_times times = {0};
    enum status status =
        model_runner_launch(engine->runner, &batch->arrays, flight->slot, &times, err);
    if (status) return status;
    engine->stats.forward_seconds += times.forward_seconds;
    engine->stats.sample_seconds += times.sample_seconds;
    flight->num_prefill_tokens = schedule->num_prefill_tokens;
    flight->num_decode_tokens = schedule->num_decode_tokens;
    flight->is_launched = true;
    engine->next_slot = (engine->next_slot + 1) % MODEL_RUNNER_SLOTS;
    return OK;
}

// The step counts as done for the scheduler: whatever is launched next runs after it. Its tokens
// are there, if not known.
static void advance(struct llm_engine *engine, struct flight *flight) {
    scheduler_advance(engine->scheduler);
    for (uint32_t row = 0; row < flight->num_rows; row++) {
        struct request *request = flight->requests[row];
        if (!request) continue;
        scheduler_append_pending(engine->scheduler, request->seq, row);
    }
}

// Waits for a step's results and hands them out. An event's callback may abort requests further
// on, whose entries are NULL then.
static enum status land(struct llm_engine *engine, struct flight *flight, struct err *err) {
    const struct sample_result *results = NULL;
    struct model_runner_times times = {0};
    flight->is_launched = false;
    enum status status = model_runner_wait(engine->runner, flight->slot, &results, &times, err);
    engine->stats.forward_seconds += times.forward_seconds;
    if (status) return status;
    double start = clock_seconds();
    // Not at the launch: rates are taken over the call that waited for the tokens.
    engine->stats.num_steps++;
    engine->stats.num_prefill_tokens += flight->num_prefill_tokens;
    engine->stats.num_decode_tokens += flight->num_decode_tokens;
    for (uint32_t row = 0; row < flight->num_rows; row++) {
        struct request *request = flight->requests[row];
        if (!request) continue;
        request->flight_entries[flight->slot] = NULL;
        llm_engine_take_token(engine, request, &results[row]);
    }
    engine->stats.output_seconds += clock_seconds() - start;
    return OK;
}

// One step, or in asynchronous operation the launch of one and the results of the one before.
static enum status step(struct llm_engine *engine, struct err *err) {
    double start = clock_seconds();
    struct flight *before = &engine->flights[(engine->next_slot + 1) % MODEL_RUNNER_SLOTS];
    if (before->is_launched) {
        advance(engine, before);
        if (before->needs_history) {
            enum status status = land(engine, before, err);
            if (status) return status;
            start = clock_seconds();
        }
    }
    const struct schedule *schedule = scheduler_schedule(engine->scheduler);
    struct flight *now = &engine->flights[engine->next_slot];
    if (schedule->num_items > 0) {
        enum status status = launch(engine, schedule, start, err);
        if (status) return status;
    }
    if (before->is_launched) return land(engine, before, err);
    if (engine->plan.is_async || !now->is_launched) return OK;
    advance(engine, now);
    return land(engine, now, err);
}

enum status llm_engine_step(struct llm_engine *engine, struct err *err) {
    if (engine->failed)
        return err_set(err, ERR_DEVICE, "the engine has failed and must be destroyed");
    if (engine->in_callback) {
        return err_set(err, ERR_INVALID, "an event callback cannot step the engine");
    }
    struct err why = {0};
    enum status status = step(engine, &why);
    if (!status) return OK;
    fail_all(engine, why.message);
    return err_set(err, status, "%s", why.message);
}

bool llm_engine_has_unfinished(const struct llm_engine *engine) {
    return scheduler_has_unfinished(engine->scheduler);
}

bool llm_engine_abort(struct llm_engine *engine, uint64_t request_id) {
    struct request *request = request_table_find(&engine->requests, request_id);
    if (!request || request->ending || request->abort_requested) return false;
    if (engine->in_callback) {
        request->abort_requested = true;
        request->next_aborted = engine->aborted;
        engine->aborted = request;
    } else {
        llm_engine_end_request(engine, request, NVLLM_FINISH_ABORT, NULL);
    }
    return true;
}

void llm_engine_abort_all(struct llm_engine *engine) {
    for (struct sequence *seq; (seq = scheduler_first(engine->scheduler));) {
        llm_engine_end_request(engine, seq->user, NVLLM_FINISH_ABORT, NULL);
    }
}

void llm_engine_stats(const struct llm_engine *engine, struct nvllm_stats *stats) {
    *stats = engine->stats;
    stats->struct_size = sizeof *stats;
    stats->num_cached_tokens = scheduler_num_cached_tokens(engine->scheduler);
    stats->num_preemptions = scheduler_num_preemptions(engine->scheduler);
    stats->num_running = scheduler_num_running(engine->scheduler);
    stats->num_waiting = scheduler_num_waiting(engine->scheduler);
    stats->num_kv_blocks = engine->plan.scheduler.num_blocks;
    stats->num_kv_blocks_used = scheduler_num_blocks_used(engine->scheduler);
    stats->num_kv_blocks_peak = scheduler_num_blocks_peak(engine->scheduler);
    stats->block_size = engine->plan.scheduler.block_size;
    stats->max_model_len = engine->plan.max_model_len;
    stats->peak_rss_bytes = cpu_peak_rss_bytes();
    stats->weights_bytes = engine->plan.weights_bytes;
    stats->workspace_bytes = engine->plan.workspace_bytes;
    stats->kv_cache_bytes = (uint64_t)engine->plan.kv_block_bytes * stats->num_kv_blocks;
}

const struct tokenizer *llm_engine_tokenizer(const struct llm_engine *engine) {
    return engine->tokenizer;
}

struct model_runner *llm_engine_runner(struct llm_engine *engine) {
    return engine->runner;
}

/* Turns a caller's request into sequences for the scheduler. The submitter's thread builds it and
 * reads only parts of the engine that never change. The engine's thread accepts it. What other
 * threads ask of the inbox is here too. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/os/clock.h"
#include "base/os/cpu.h"
#include "engine/llm_engine_internal.h"
#include "engine/request/call_form.h"

// Keyed by the secret, so that nobody can find two texts with the same hash. 0 is the common salt.
static uint64_t salt_of(const struct llm_engine *engine, const char *salt) {
    uint64_t hash = XXH3_64bits_withSeed(salt, strlen(salt), engine->secret);
    return hash ? hash : 1;
}

static enum status init_text(const struct llm_engine *engine, struct request *request,
                             struct err *err) {
    const struct nvllm_sampling_params *params = &request->sampling.params;
    const struct output_text_options text = {
        .stops = params->stop,
        .num_stops = params->num_stop,
        .min_tokens = (uint32_t)params->min_tokens,
        .skip_special = params->skip_special_tokens != 0,
        .include_stop = params->include_stop_str_in_output != 0,
    };
    enum status status = output_text_init(&request->text, engine->tokenizer, &text, err);
    if (status) return status;
    size_t text_bytes =
        output_text_max_bytes(&request->text, engine->tokenizer, LLM_ENGINE_STEP_TOKENS_MAX);
    return buf_reserve(&request->event_text, text_bytes, err);
}

// The most tokens to generate after a prompt of `count`. If max_tokens is all that the context has
// left, the KV cache may hold less: then that is the bound. A smaller max_tokens is a promise,
// which scheduler_check refuses where the cache is too small.
static uint32_t max_new_tokens(const struct llm_engine *engine, uint32_t count,
                               uint32_t max_tokens) {
    uint32_t left = engine->plan.max_model_len - count;
    if (max_tokens < left) return max_tokens;
    // The last token's KV is never read, so it needs no slot.
    uint32_t cached = engine_plan_context_len(&engine->plan) + 1;
    return cached > count && cached - count < left ? cached - count : left;
}

// Fills in what each output has for itself. Its sampling is set already.
static enum status fill_output(const struct llm_engine *engine, struct request *request,
                               const struct nvllm_request *in, const int32_t *ids, uint32_t count,
                               struct err *err) {
    const struct nvllm_sampling_params *params = &request->sampling.params;
    enum status status = init_text(engine, request, err);
    if (status) return status;
    // A vector takes the place of one token.
    uint32_t max_new =
        in->pooling ? 1 : max_new_tokens(engine, count, (uint32_t)params->max_tokens);
    status =
        sequence_create(&request->seq, 0, ids, count, max_new, engine->plan.scheduler.block_size,
                        engine->plan.runner.decoder.limits.num_kv_groups, err);
    if (status) return status;
    request->seq->user = request;
    request->seq->cache_salt = in->cache_salt ? salt_of(engine, in->cache_salt) : 0;
    request->seq->priority = params->priority;
    request->keeps_stop_token = in->keep_stop_token || params->include_stop_str_in_output;
    request->on_event = in->on_event;
    request->user_data = in->user_data;
    request->finish_event_only = in->finish_event_only != 0;
    return in->pooling ? OK : llm_engine_init_output_drafts(engine, request, err);
}

static enum status add_outputs(const struct llm_engine *engine, struct request *first,
                               const struct nvllm_request *in, const int32_t *ids, uint32_t count,
                               struct err *err) {
    enum status status = OK;
    while (!status && first->num_outputs < (uint32_t)first->sampling.params.n) {
        struct request *request;
        status = request_create_output(first, &request, err);
        if (status) return status;
        request->times = first->times;
        status = sampling_init_borrowed(&request->sampling, &first->sampling, err);
        if (!status) status = fill_output(engine, request, in, ids, count, err);
        // Without a prefix cache none has the other's states of recurrent layers at its end.
        bool has_no_states =
            engine->plan.state_bytes && !engine->plan.scheduler.enable_prefix_caching;
        if (status || has_no_states) continue;
        request->seq->origin = first->seq;
        first->seq->is_origin = true;
    }
    return status;
}

// Checks a request whose rows report the whole vocabulary: its memory has a bound.
static enum status check_whole_rows(const struct llm_engine *engine, size_t num_rows,
                                    struct err *err) {
    size_t vocab_size = engine->plan.config.vocab_size;
    size_t row_bytes = (1 + vocab_size) * sizeof(struct nvllm_logprob);
    size_t num_rows_max = REQUEST_ALL_LOGPROBS_BYTES_MAX / row_bytes;
    enum status status =
        executor_check_rows(engine->executor, "prompt_logprobs of the whole vocabulary", err);
    if (status) return status;
    if (num_rows <= num_rows_max) return OK;
    return err_set(err, ERR_INVALID,
                   "prompt_logprobs of the whole vocabulary, %zu tokens, take %zu MiB for a prompt "
                   "of %zu tokens: want at most %zu MiB, %zu tokens",
                   vocab_size, num_rows * row_bytes >> 20, num_rows + 1,
                   REQUEST_ALL_LOGPROBS_BYTES_MAX >> 20, num_rows_max + 1);
}

static enum status want_prompt_logprobs(const struct llm_engine *engine, struct request *request,
                                        struct err *err) {
    int32_t num_top = request->sampling.params.prompt_logprobs;
    if (num_top < 0) return OK;
    size_t num_rows = request->seq->num_prompt_tokens - 1, row = 1 + (size_t)num_top;
    enum status status = num_top > SAMPLE_TOP_MAX ? check_whole_rows(engine, num_rows, err) : OK;
    if (status) return status;
    request->prompt_logprobs =
        malloc((num_rows ? num_rows * row : 1) * sizeof *request->prompt_logprobs);
    if (!request->prompt_logprobs) return err_nomem(err, "prompt_logprobs");
    request->num_prompt_rows = (uint32_t)num_rows;
    request->seq->skips_cache = num_rows > 0;
    return OK;
}

// The automaton of structured_outputs or of call_prefixes; *out stays NULL where there are none.
static enum status find_form(const struct llm_engine *engine, const struct nvllm_request *in,
                             struct automaton **out, struct err *err) {
    const struct nvllm_sampling_params *params = in->sampling;
    size_t len = params ? params->num_structured_outputs : 0;
    if (!in->num_call_prefixes) {
        return len ? forms_get(engine->forms, params->structured_outputs, len, out, err) : OK;
    }
    if (len) {
        return err_set(err, ERR_INVALID,
                       "structured_outputs and call_prefixes each give the output a form: want one "
                       "of them");
    }
    struct buf text = {0};
    enum status status = call_form_write(&text, in->call_prefixes, in->num_call_prefixes,
                                         engine->tokenizer, engine->plan.config.vocab_size, err);
    if (!status) status = forms_get(engine->forms, text.data, text.len, out, err);
    buf_fini(&text);
    return status;
}

// The form that the outputs must have, if they must have one.
static enum status constrain(const struct llm_engine *engine, struct request *request,
                             const struct nvllm_request *in, const int32_t *ids, uint32_t count,
                             struct err *err) {
    struct automaton *automaton = NULL;
    enum status status = find_form(engine, in, &automaton, err);
    if (status || !automaton) return status;
    const struct constraint_options options = {
        .tokenizer = engine->tokenizer,
        .prompt = ids,
        .num_prompt = count,
        .vocab_size = engine->plan.config.vocab_size,
        .blanks = engine->forms->blanks,
        .num_blanks = engine->forms->num_blanks,
        .stats = &engine->forms->stats,
        .may_reason = in->chat || in->may_reason || in->num_call_prefixes,
        .may_force = !request->sampling.mask.min_tokens &&
                     (!in->sampling ||
                      (!in->sampling->num_bad_words && !in->sampling->num_allowed_token_ids)),
    };
    status = token_mask_constrain(&request->sampling.mask, automaton, &options, err);
    automaton_release(automaton); // the constraint holds it
    return status;
}

static enum status fill_request(const struct llm_engine *engine, struct request *request,
                                const struct nvllm_request *in, const int32_t *ids, uint32_t count,
                                struct err *err) {
    if (!in->pooling && engine->plan.config.lacks_lm_head) {
        return err_set(err, ERR_UNSUPPORTED,
                       "the model has no lm_head: it gives embeddings, not text");
    }
    enum status status = sampling_init(&request->sampling, in->sampling, &engine->plan.generation,
                                       &engine->plan.config, engine->tokenizer, err);
    if (status) return status;
    status = constrain(engine, request, in, ids, count, err);
    if (status) return status;
    if (request->sampling.params.num_stop && !engine->tokenizer) {
        return err_set(err, ERR_INVALID,
                       "stop strings need the tokenizer, which skip_tokenizer_init left out");
    }
    status = fill_output(engine, request, in, ids, count, err);
    if (!status && in->pooling) status = llm_engine_pool(engine, request, in->pooling, err);
    if (!status) status = want_prompt_logprobs(engine, request, err);
    if (!status) status = scheduler_check(engine->scheduler, request->seq, err);
    return status ? status : add_outputs(engine, request, in, ids, count, err);
}

enum status llm_engine_build_request(const struct llm_engine *engine,
                                     const struct nvllm_request *in, bool is_rendered,
                                     struct request **out, struct err *err) {
    *out = NULL;
    struct request *request;
    enum status status = request_create(&request, err);
    if (status) return status;
    request->times.arrival = clock_seconds();
    struct token_list encoded = {0};
    const int32_t *ids = NULL;
    size_t count = 0;
    struct buf *echo = in->sampling && in->sampling->echo ? &request->echo : NULL;
    struct nvllm_request given = *in;
    struct buf text = {0};
    if (in->pooling && in->pooling->prompt_name) {
        status = llm_engine_prefix_prompt(engine, in, &text, err);
        given.prompt = text.data;
        given.prompt_len = text.len;
    }
    if (!status) {
        status =
            llm_engine_prompt_ids(engine, &given, is_rendered, &encoded, &ids, &count, echo, err);
    }
    if (!status) status = fill_request(engine, request, &given, ids, (uint32_t)count, err);
    token_list_fini(&encoded);
    buf_fini(&text);
    if (status) {
        request_destroy(request);
        return status;
    }
    *out = request;
    return OK;
}

enum status llm_engine_submit(struct llm_engine *engine, struct request *request, uint64_t *id,
                              struct err *err) {
    return inbox_submit(&engine->inbox, request, id, err);
}

void llm_engine_wake(struct llm_engine *engine) {
    inbox_wake(&engine->inbox);
}

void llm_engine_drain(struct llm_engine *engine) {
    inbox_drain(&engine->inbox);
}

bool llm_engine_abort(struct llm_engine *engine, uint64_t request_id) {
    return inbox_abort(&engine->inbox, request_id);
}

uint32_t llm_engine_num_unfinished(struct llm_engine *engine) {
    return inbox_num_unfinished(&engine->inbox);
}

uint32_t llm_engine_num_aborting(struct llm_engine *engine) {
    return inbox_num_aborting(&engine->inbox);
}

uint64_t llm_engine_num_tokens(struct llm_engine *engine) {
    return inbox_num_tokens(&engine->inbox);
}

bool llm_engine_is_unfinished(struct llm_engine *engine, uint64_t request_id) {
    return inbox_is_unfinished(&engine->inbox, request_id);
}

enum status llm_engine_check_open(struct llm_engine *engine, struct err *err) {
    return inbox_check_open(&engine->inbox, err);
}

void llm_engine_stats(struct llm_engine *engine, struct nvllm_stats *stats) {
    inbox_read_stats(&engine->inbox, stats);
    stats->peak_rss_bytes = cpu_peak_rss_bytes();
    if (engine->forms) form_stats_read(&engine->forms->stats, stats);
}

void llm_engine_default_sampling(const struct llm_engine *engine,
                                 struct nvllm_sampling_params *params) {
    *params = (struct nvllm_sampling_params)NVLLM_SAMPLING_PARAMS_INIT;
    sampling_fill_defaults(params, &engine->plan.generation);
}

uint64_t llm_engine_num_step_tokens(const struct llm_engine *engine) {
    return atomic_load(&engine->num_step_tokens);
}

bool llm_engine_caches_prefixes(const struct llm_engine *engine) {
    return engine->plan.scheduler.enable_prefix_caching;
}

const struct tokenizer *llm_engine_tokenizer(const struct llm_engine *engine) {
    return engine->text_of ? engine->text_of->tokenizer : engine->tokenizer;
}

// Chooses an output's seed where its request has none. Only accepted requests take an id, so a
// refused one changes nobody's tokens.
static void choose_seed(const struct llm_engine *engine, struct request *request) {
    const uint64_t key[3] = {engine->plan.seed, request->seq->id, request->index};
    size_t num_keys = request->index ? 3 : 2; // output 0 draws as it would with n = 1
    uint64_t seed = XXH3_64bits(key, num_keys * sizeof *key);
    sampling_set_seed(&request->sampling, seed, request->index);
}

void llm_engine_accept(struct llm_engine *engine, struct request *first) {
    for (struct request *request = first; request; request = request->next_output) {
        choose_seed(engine, request);
        enum status status = scheduler_add(engine->scheduler, request->seq, NULL);
        CHECK(!status, "request %llu was checked", (unsigned long long)request->seq->id);
    }
}

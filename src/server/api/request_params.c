#include "server/api/request_params.h"

#include <stdio.h>
#include <string.h>

#include "api/parsed.h"
#include "base/json/jread.h"
#include "server/api/logprobs.h"
#include "server/loop/body.h"

// ---- members that are not built ----

struct member {
    const char *name;
    // JSON list of the values that change nothing; NULL: false, "" and the empty list.
    const char *neutral;
};

// Members that only another one gives an effect (mirostat_tau, dry_base) are not here.
static const struct member not_built[] = {
    // Constraints on the output.
    {"grammar_lazy", NULL},
    {"grammar_triggers", NULL},
    // OpenAI's.
    {"modalities", "[[\"text\"]]"},
    {"verbosity", "[\"medium\"]"},
    {"web_search_options", NULL},
    // vLLM's.
    {"use_beam_search", NULL},
    {"logits_processors", NULL},
    {"prompt_embeds", NULL},
    {"truncate_prompt_tokens", NULL},
    {"thinking_token_budget", "[-1]"},
    {"repetition_detection", NULL},
    {"watermarking", NULL},
    {"return_prompt_text", NULL},
    {"kv_transfer_params", "[{}]"},
    {"ec_transfer_params", "[{}]"},
    {"vllm_xargs", "[{}]"},
    // SGLang's.
    {"stop_regex", NULL},
    {"no_stop_trim", NULL},
    {"custom_logit_processor", NULL},
    {"lora_path", NULL},
    {"session_params", NULL},
    {"return_hidden_states", NULL},
    {"separate_reasoning", "[true]"},
    {"stream_reasoning", "[true]"},
    {"input_ids", NULL},
    // llama-server's. Its repeat_penalty sees the last 64 tokens, repetition_penalty all of them.
    {"repeat_penalty", "[1]"},
    {"dry_multiplier", "[0]"},
    {"mirostat", "[0]"},
    {"xtc_probability", "[0]"},
    {"typical_p", "[1]"},
    {"typ_p", "[1]"},
    {"tfs_z", "[1]"},
    {"top_a", "[0]"},
    {"top_n_sigma", "[-1, 0]"},
    {"dynatemp_range", "[0]"},
    {"adaptive_target", "[-1]"},
    {"min_keep", "[0]"},
    {"n_probs", "[0]"},
    {"n_indent", "[0]"},
    {"t_max_predict_ms", "[-1, 0]"},
    {"samplers", NULL},
    {"post_sampling_probs", NULL},
    {"parse_special", "[true]"},
    {"parse_tool_calls", "[true]"},
    {"reasoning_in_content", NULL},
    {"reasoning_budget", "[-1]"},
    {"thinking_budget_tokens", "[-1]"},
    {"return_progress", NULL},
    {"return_tokens", NULL},
    {"response_fields", NULL},
    {"image_data", NULL},
    {"lora", NULL},
};

bool request_params_unsupported(struct api_request *request, const char *key, const char *what) {
    return api_error_set(&request->error, 400, "unsupported", key, "%s is not supported yet", what);
}

// False without memory too: the member is then refused.
static bool is_one_of(const char *list, const json_t *value) {
    json_t *neutral = NULL;
    bool found = false;
    if (jread_text(&neutral, list, strlen(list), "a table", NULL)) return false;
    for (size_t i = 0; i < json_array_size(neutral) && !found; i++) {
        found = json_equal(json_array_get(neutral, i), value);
    }
    json_decref(neutral);
    return found;
}

// llama-server's window of all three penalties: without one of them it has no effect. The model's
// own repetition_penalty sees all tokens.
static bool check_window(struct api_request *request) {
    const struct nvllm_sampling_params *sampling = &request->sampling;
    bool has_repetition =
        sampling->repetition_penalty != 1 && sampling->repetition_penalty != NVLLM_UNSET_FLOAT;
    bool has_penalty =
        has_repetition || sampling->presence_penalty != 0 || sampling->frequency_penalty != 0;
    if (!body_get(request, "repeat_last_n") || !has_penalty) return true;
    return request_params_unsupported(request, "repeat_last_n", "a penalty with repeat_last_n");
}

static bool refuse_unsupported(struct api_request *request) {
    for (size_t i = 0; i < ARRAY_LEN(not_built); i++) {
        const struct member *member = &not_built[i];
        const json_t *value = body_get(request, member->name);
        if (!value) continue;
        if (member->neutral ? is_one_of(member->neutral, value) : body_is_nothing(value)) continue;
        return request_params_unsupported(request, member->name, member->name);
    }
    return check_window(request);
}

bool request_params_refuse(struct api_request *request, const char *const *keys, size_t num_keys) {
    for (size_t i = 0; i < num_keys; i++) {
        const json_t *value = body_get(request, keys[i]);
        if (body_is_nothing(value)) continue;
        return api_error_set(&request->error, 400, "unsupported", keys[i],
                             "%s is not supported here", keys[i]);
    }
    return true;
}

// ---- the model and what else every request has ----

bool request_params_model(struct api_request *request) {
    const char *name = NULL;
    if (!body_string(request, "model", &name)) return false;
    if (!api_check_model(request->api, name, &request->error)) return false;
    request->answer.model = name ? name : api_model_name(request->api);
    return true;
}

// ---- parameters of the library's table ----

// Members that have the name of a parameter, and are read by the endpoint.
static bool is_own_member(const char *name) {
    static const char *const names[] = {"logprobs", "max_tokens", "n", "echo", "prompt_logprobs"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

// The library's sentence has its own name of the member: "stop has ...", "entry 0 of stop is ...".
static void name_as_given(struct nvllm_error *fault, const char *name, const char *key) {
    const char *at = strstr(fault->message, name);
    if (!at || strcmp(name, key) == 0) return;
    const struct nvllm_error own = *fault;
    size_t before = (size_t)(at - fault->message);
    snprintf(fault->message, sizeof fault->message, "%.*s%s%.*s", (int)before, own.message, key,
             (int)(sizeof own.message - 1 - before - strlen(key)),
             own.message + before + strlen(name));
}

// The parameter `name` has the value of the member `key`.
static bool set_param(struct api_request *request, const char *name, const char *key,
                      const json_t *value) {
    struct nvllm_error fault = {0};
    enum nvllm_status status = api_sampling_params_set(&request->sampling, name, value, &fault);
    name_as_given(&fault, name, key);
    return api_error_library(&request->error, status, &fault, key);
}

// The library's booleans may be 0 and 1; JSON has its own.
static bool set_params(struct api_request *request) {
    const struct nvllm_param *row;
    for (size_t i = 0; (row = nvllm_sampling_param(i)); i++) {
        // Each kind of endpoint reads these in its own way. Where one is not read, it is unknown.
        const json_t *value = is_own_member(row->name) ? NULL : body_get(request, row->name);
        if (!value) continue;
        if (row->type == NVLLM_PARAM_BOOL && !json_is_boolean(value)) {
            return body_wrong_type(request, row->name, value, "true or false");
        }
        bool number = row->type == NVLLM_PARAM_INT || row->type == NVLLM_PARAM_INT64 ||
                      row->type == NVLLM_PARAM_FLOAT || row->type == NVLLM_PARAM_DOUBLE;
        if (number && !json_is_number(value) && !jread_big_integer(value)) {
            return body_wrong_type(request, row->name, value, "a number");
        }
        if (!set_param(request, row->name, row->name, value)) return false;
    }
    return true;
}

bool request_params_set(struct api_request *request, const char *name, const json_t *value) {
    return set_param(request, name, name, value);
}

bool request_params_take(struct api_request *request, const char *name, const char *key) {
    const json_t *value = body_get(request, key);
    return !value || set_param(request, name, key, value);
}

// ---- streams ----

static bool read_stream(struct api_request *request) {
    if (!body_bool(request, "stream", &request->answer.stream)) return false;
    const json_t *options = body_get(request, "stream_options");
    if (!options) return true;
    if (!jread_is_object(options)) {
        return body_wrong_type(request, "stream_options", options, "an object");
    }
    if (!request->answer.stream) {
        return api_error_invalid(&request->error, "stream_options",
                                 "stream_options is given, but stream is not true");
    }
    const struct {
        const char *key;
        bool *out;
    } members[] = {{"include_usage", &request->answer.include_usage},
                   {"continuous_usage_stats", &request->answer.continuous_usage}};
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const json_t *value = jread_get(options, members[i].key);
        if (value && !json_is_boolean(value)) {
            return body_wrong_type(request, "stream_options", value,
                                   "true or false in its members");
        }
        if (value) *members[i].out = json_is_true(value);
    }
    static const char *const known[] = {"include_usage", "continuous_usage_stats",
                                        "include_obfuscation"}; // OpenAI's, of chunks' padding
    if (!body_leave_out_others(request, "stream_options", options, known, ARRAY_LEN(known))) {
        return false;
    }
    if (!request->answer.include_usage) request->answer.continuous_usage = false;
    return true;
}

// ---- outputs ----

// best_of samples more answers than it returns, by a rule that the library does not have.
static bool refuse_best_of(struct api_request *request, int64_t n) {
    int64_t best_of = n;
    if (!body_int(request, "best_of", 1, 128, &best_of)) return false;
    if (best_of < n) {
        return api_error_invalid(&request->error, "best_of", "best_of is below n: %lld and %lld",
                                 (long long)best_of, (long long)n);
    }
    return best_of > n ? request_params_unsupported(request, "best_of", "best_of above n") : true;
}

bool request_params_cache_salt(struct api_request *request) {
    if (!body_string(request, "cache_salt", &request->cache_salt)) return false;
    size_t len = request->cache_salt ? strlen(request->cache_salt) : 1;
    if (len >= 1 && len <= 1024) return true;
    return api_error_invalid(&request->error, "cache_salt",
                             "cache_salt has %zu bytes, want 1 to 1024", len);
}

bool request_params_outputs(struct api_request *request) {
    int64_t n = 1, prompt_logprobs = -1;
    if (!body_int(request, "n", 1, 128, &n) || !refuse_best_of(request, n) ||
        !logprobs_read_count(request, "prompt_logprobs", &prompt_logprobs)) {
        return false;
    }
    if (n > request->api->options->outputs_max) {
        return api_error_invalid(&request->error, "n",
                                 "n is %lld, want at most %u: so many run at once", (long long)n,
                                 request->api->options->outputs_max);
    }
    if (prompt_logprobs >= 0 && request->answer.stream) {
        return api_error_invalid(&request->error, "prompt_logprobs",
                                 "prompt_logprobs are not in a stream");
    }
    if (!body_bool(request, "return_token_ids", &request->answer.token_ids)) return false;
    request->sampling.n = (int32_t)n;
    request->sampling.prompt_logprobs = (int32_t)prompt_logprobs;
    request->answer.prompt_logprobs = prompt_logprobs >= 0;
    return true;
}

bool request_params_one_output(struct api_request *request) {
    static const char *const refused[] = {"echo", "prompt_logprobs", "return_token_ids",
                                          "logprob_token_ids"};
    if (!request_params_refuse(request, refused, ARRAY_LEN(refused)) ||
        !request_params_outputs(request)) {
        return false;
    }
    return request->sampling.n > 1 ? request_params_unsupported(request, "n", "n above 1") : true;
}

bool request_params_n_predict(struct api_request *request, int64_t *max_tokens) {
    return body_int(request, "n_predict", -1, INT32_MAX, max_tokens);
}

bool request_params_read(struct api_request *request) {
    return request_params_model(request) && read_stream(request) && set_params(request) &&
           refuse_unsupported(request) && request_params_cache_salt(request) &&
           body_bool(request, "return_tokens_as_token_ids", &request->answer.tokens_as_ids) &&
           body_bool(request, "timings_per_token", &request->answer.timings_per_token);
}

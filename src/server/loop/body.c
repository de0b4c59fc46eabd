#include "server/loop/body.h"

#include <string.h>

#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "server/api/logprobs.h"
#include "server/api/unsupported.h"
#include "server/loop/unknown_members.h"

// 5.0 is an integer in JSON's own terms, and some languages write it so: members that are numbers
// or lists of them become integers. Objects stay as they are, for they go to the template.
static json_t *as_integer(json_t *value) {
    double number = json_real_value(value);
    bool fits = json_is_real(value) && number >= -9007199254740992.0 && // 2^53
                number <= 9007199254740992.0 && number == (double)(int64_t)number;
    return fits ? json_integer((json_int_t)number) : NULL;
}

static void take_integers(json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i), *integer = as_integer(item);
        if (integer) {
            json_array_set_new(list, i, integer);
        } else if (json_is_array(item)) {
            take_integers(item);
        }
    }
}

static void take_integer_members(json_t *root) {
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(root, next, key, value) {
        json_t *integer = as_integer(value);
        if (integer) {
            json_object_set_new(root, key, integer);
        } else if (json_is_array(value)) {
            take_integers(value);
        }
    }
}

bool body_parse(struct call *call) {
    struct err err = {0};
    const char *text = call->body.len ? call->body.data : "";
    enum status status = jread_request(&call->root, text, call->body.len, "the body", &err);
    buf_fini(&call->body);
    if (status == ERR_NOMEM) return api_error_nomem(&call->error);
    if (status) {
        return api_error_set(&call->error, 400, "invalid_json", NULL, "%s", err.message);
    }
    if (jread_is_object(call->root)) {
        take_integer_members(call->root);
        return call_is_wanted(call);
    }
    return api_error_set(&call->error, 400, "invalid_json", NULL,
                         "the body is %s, want a JSON object", jread_type_name(call->root));
}

void body_forget(struct call *call) {
    // The first two are borrowed from here, the others are in the answers of some endpoints.
    static const char *const kept[] = {"model", "cache_salt", "tool_choice", "tools", "metadata"};
    size_t num_kept = call->endpoint->repeats_members ? ARRAY_LEN(kept) : 2;
    json_t *root = call->root ? json_object() : NULL;
    for (size_t i = 0; root && i < num_kept; i++) {
        json_t *value = json_object_get(call->root, kept[i]);
        if (value && json_object_set(root, kept[i], value)) {
            json_decref(root);
            root = NULL;
        }
        call->keeps_members |= value && i > 1;
    }
    if (!root) return; // nothing was read, or no memory: it stays as it is
    json_decref(call->root);
    call->root = root;
}

json_t *body_get(struct call *call, const char *key) {
    json_t *value = jread_get(call->root, key);
    if (value) unknown_members_note_read(call, key);
    return value;
}

bool body_wrong_type(struct call *call, const char *key, const json_t *value, const char *want) {
    return api_error_set(&call->error, 400, "invalid_type", key, "%s is %s, want %s", key,
                         jread_type_name(value), want);
}

bool body_bool(struct call *call, const char *key, bool *out) {
    const json_t *value = body_get(call, key);
    if (!value) return true;
    if (!json_is_boolean(value)) return body_wrong_type(call, key, value, "true or false");
    *out = json_is_true(value);
    return true;
}

bool body_int(struct call *call, const char *key, int64_t min, int64_t max, int64_t *out) {
    const json_t *value = body_get(call, key);
    if (!value) return true;
    if (!json_is_integer(value)) {
        bool big = jread_big_integer(value) != NULL;
        if (!big) return body_wrong_type(call, key, value, "an integer");
    } else if (json_integer_value(value) >= min && json_integer_value(value) <= max) {
        *out = json_integer_value(value);
        return true;
    }
    return api_error_invalid(&call->error, key,
                             "%s is out of range, want an integer from %lld to %lld", key,
                             (long long)min, (long long)max);
}

bool body_string(struct call *call, const char *key, const char **out) {
    const json_t *value = body_get(call, key);
    if (!value) return true;
    if (!json_is_string(value)) return body_wrong_type(call, key, value, "a string");
    const char *text = json_string_value(value);
    if (strlen(text) != json_string_length(value)) {
        return api_error_invalid(&call->error, key, "%s contains a NUL character", key);
    }
    *out = text;
    return true;
}

bool body_model(struct call *call) {
    const char *name = NULL;
    if (!body_string(call, "model", &name)) return false;
    if (!api_check_model(call->api, name, &call->error)) return false;
    call->answer.model = name ? name : api_model_name(call->api);
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

static bool set_param(struct call *call, const char *name, const json_t *value) {
    struct buf text = {0};
    struct err err = {0};
    struct nvllm_error fault = {0};
    bool is_good = true;
    if (jwrite(&text, value, JSON_ENCODE_ANY | JSON_COMPACT, "the body", &err)) {
        is_good = api_error_nomem(&call->error);
    } else {
        enum nvllm_status status =
            nvllm_sampling_params_set(&call->sampling, name, text.data, &fault);
        is_good = api_error_library(&call->error, status, &fault, name);
    }
    buf_fini(&text);
    return is_good;
}

// The library's booleans may be 0 and 1; JSON has its own.
static bool set_params(struct call *call) {
    const struct nvllm_param *row;
    for (size_t i = 0; (row = nvllm_sampling_param(i)); i++) {
        // What the endpoint does not read is unknown there: nothing else looks for it.
        const json_t *value = is_own_member(row->name) ? NULL : body_get(call, row->name);
        if (!value) continue;
        if (row->type == NVLLM_PARAM_BOOL && !json_is_boolean(value)) {
            return body_wrong_type(call, row->name, value, "true or false");
        }
        bool number = row->type == NVLLM_PARAM_INT || row->type == NVLLM_PARAM_INT64 ||
                      row->type == NVLLM_PARAM_FLOAT || row->type == NVLLM_PARAM_DOUBLE;
        if (number && !json_is_number(value) && !jread_big_integer(value)) {
            return body_wrong_type(call, row->name, value, "a number");
        }
        if (!set_param(call, row->name, value)) return false;
    }
    return true;
}

// ---- streams ----

static bool read_stream(struct call *call) {
    if (!body_bool(call, "stream", &call->answer.stream)) return false;
    const json_t *options = body_get(call, "stream_options");
    if (!options) return true;
    if (!jread_is_object(options)) {
        return body_wrong_type(call, "stream_options", options, "an object");
    }
    if (!call->answer.stream) {
        return api_error_invalid(&call->error, "stream_options",
                                 "stream_options is given, but stream is not true");
    }
    const struct {
        const char *key;
        bool *out;
    } members[] = {{"include_usage", &call->answer.include_usage},
                   {"continuous_usage_stats", &call->answer.continuous_usage}};
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const json_t *value = jread_get(options, members[i].key);
        if (value && !json_is_boolean(value)) {
            return body_wrong_type(call, "stream_options", value, "true or false in its members");
        }
        if (value) *members[i].out = json_is_true(value);
    }
    if (!call->answer.include_usage) call->answer.continuous_usage = false;
    return true;
}

// ---- outputs ----

// best_of samples more answers than it returns, by a rule that the library does not have.
static bool refuse_best_of(struct call *call, int64_t n) {
    int64_t best_of = n;
    if (!body_int(call, "best_of", 1, 128, &best_of)) return false;
    if (best_of < n) {
        return api_error_invalid(&call->error, "best_of", "best_of is below n: %lld and %lld",
                                 (long long)best_of, (long long)n);
    }
    return best_of > n ? unsupported_set(call, "best_of", "best_of above n") : true;
}

static bool read_cache_salt(struct call *call) {
    if (!body_string(call, "cache_salt", &call->cache_salt)) return false;
    size_t len = call->cache_salt ? strlen(call->cache_salt) : 1;
    if (len >= 1 && len <= 1024) return true;
    return api_error_invalid(&call->error, "cache_salt", "cache_salt has %zu bytes, want 1 to 1024",
                             len);
}

bool body_outputs(struct call *call) {
    int64_t n = 1, prompt_logprobs = -1;
    if (!body_int(call, "n", 1, 128, &n) || !refuse_best_of(call, n) ||
        !logprobs_read_count(call, "prompt_logprobs", &prompt_logprobs)) {
        return false;
    }
    if (n > call->api->options->outputs_max) {
        return api_error_invalid(&call->error, "n",
                                 "n is %lld, want at most %u: so many run at once", (long long)n,
                                 call->api->options->outputs_max);
    }
    if (prompt_logprobs >= 0 && call->answer.stream) {
        return api_error_invalid(&call->error, "prompt_logprobs",
                                 "prompt_logprobs are not in a stream");
    }
    if (!body_bool(call, "return_token_ids", &call->answer.token_ids)) return false;
    call->sampling.n = (int32_t)n;
    call->sampling.prompt_logprobs = (int32_t)prompt_logprobs;
    call->answer.prompt_logprobs = prompt_logprobs >= 0;
    return true;
}

bool body_one_output(struct call *call) {
    static const char *const refused[] = {"echo", "prompt_logprobs", "return_token_ids",
                                          "logprob_token_ids"};
    if (!unsupported_refuse_keys(call, refused, ARRAY_LEN(refused)) || !body_outputs(call)) {
        return false;
    }
    return call->sampling.n > 1 ? unsupported_set(call, "n", "n above 1") : true;
}

bool body_n_predict(struct call *call, int64_t *max_tokens) {
    return body_int(call, "n_predict", -1, INT32_MAX, max_tokens);
}

bool body_generation(struct call *call) {
    return body_model(call) && read_stream(call) && set_params(call) && unsupported_refuse(call) &&
           read_cache_salt(call) &&
           body_bool(call, "return_tokens_as_token_ids", &call->answer.tokens_as_ids) &&
           body_bool(call, "timings_per_token", &call->answer.timings_per_token);
}

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

bool body_parse(struct api_request *request) {
    struct err err = {0};
    const char *text = request->body.len ? request->body.data : "";
    enum status status = jread_request(&request->root, text, request->body.len, "the body", &err);
    buf_fini(&request->body);
    if (status == ERR_NOMEM) return api_error_nomem(&request->error);
    if (status) {
        return api_error_set(&request->error, 400, "invalid_json", NULL, "%s", err.message);
    }
    if (jread_is_object(request->root)) {
        take_integer_members(request->root);
        return api_request_is_wanted(request);
    }
    return api_error_set(&request->error, 400, "invalid_json", NULL,
                         "the body is %s, want a JSON object", jread_type_name(request->root));
}

void body_forget(struct api_request *request) {
    // The first two are borrowed from here, the others are in the answers of some endpoints.
    static const char *const kept[] = {"model", "cache_salt", "tool_choice", "tools", "metadata"};
    size_t num_kept = request->endpoint->repeats_members ? ARRAY_LEN(kept) : 2;
    json_t *root = request->root ? json_object() : NULL;
    for (size_t i = 0; root && i < num_kept; i++) {
        json_t *value = json_object_get(request->root, kept[i]);
        if (value && json_object_set(root, kept[i], value)) {
            json_decref(root);
            root = NULL;
        }
        request->keeps_members |= value && i > 1;
    }
    if (!root) return; // nothing was read, or no memory: it stays as it is
    json_decref(request->root);
    request->root = root;
}

json_t *body_get(struct api_request *request, const char *key) {
    json_t *value = jread_get(request->root, key);
    if (value) unknown_members_note_read(request, key);
    return value;
}

bool body_wrong_type(struct api_request *request, const char *key, const json_t *value,
                     const char *want) {
    return api_error_set(&request->error, 400, "invalid_type", key, "%s is %s, want %s", key,
                         jread_type_name(value), want);
}

bool body_bool(struct api_request *request, const char *key, bool *out) {
    const json_t *value = body_get(request, key);
    if (!value) return true;
    if (!json_is_boolean(value)) return body_wrong_type(request, key, value, "true or false");
    *out = json_is_true(value);
    return true;
}

bool body_int(struct api_request *request, const char *key, int64_t min, int64_t max,
              int64_t *out) {
    const json_t *value = body_get(request, key);
    if (!value) return true;
    if (!json_is_integer(value)) {
        bool big = jread_big_integer(value) != NULL;
        if (!big) return body_wrong_type(request, key, value, "an integer");
    } else if (json_integer_value(value) >= min && json_integer_value(value) <= max) {
        *out = json_integer_value(value);
        return true;
    }
    return api_error_invalid(&request->error, key,
                             "%s is out of range, want an integer from %lld to %lld", key,
                             (long long)min, (long long)max);
}

bool body_string(struct api_request *request, const char *key, const char **out) {
    const json_t *value = body_get(request, key);
    if (!value) return true;
    if (!json_is_string(value)) return body_wrong_type(request, key, value, "a string");
    const char *text = json_string_value(value);
    if (strlen(text) != json_string_length(value)) {
        return api_error_invalid(&request->error, key, "%s contains a NUL character", key);
    }
    *out = text;
    return true;
}

bool body_model(struct api_request *request) {
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

static bool set_param(struct api_request *request, const char *name, const json_t *value) {
    struct buf text = {0};
    struct err err = {0};
    struct nvllm_error fault = {0};
    bool is_good = true;
    if (jwrite(&text, value, JSON_ENCODE_ANY | JSON_COMPACT, "the body", &err)) {
        is_good = api_error_nomem(&request->error);
    } else {
        enum nvllm_status status =
            nvllm_sampling_params_set(&request->sampling, name, text.data, &fault);
        is_good = api_error_library(&request->error, status, &fault, name);
    }
    buf_fini(&text);
    return is_good;
}

// The library's booleans may be 0 and 1; JSON has its own.
static bool set_params(struct api_request *request) {
    const struct nvllm_param *row;
    for (size_t i = 0; (row = nvllm_sampling_param(i)); i++) {
        // What the endpoint does not read is unknown there: nothing else looks for it.
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
        if (!set_param(request, row->name, value)) return false;
    }
    return true;
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
    return best_of > n ? unsupported_set(request, "best_of", "best_of above n") : true;
}

static bool read_cache_salt(struct api_request *request) {
    if (!body_string(request, "cache_salt", &request->cache_salt)) return false;
    size_t len = request->cache_salt ? strlen(request->cache_salt) : 1;
    if (len >= 1 && len <= 1024) return true;
    return api_error_invalid(&request->error, "cache_salt",
                             "cache_salt has %zu bytes, want 1 to 1024", len);
}

bool body_outputs(struct api_request *request) {
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

bool body_one_output(struct api_request *request) {
    static const char *const refused[] = {"echo", "prompt_logprobs", "return_token_ids",
                                          "logprob_token_ids"};
    if (!unsupported_refuse_keys(request, refused, ARRAY_LEN(refused)) || !body_outputs(request)) {
        return false;
    }
    return request->sampling.n > 1 ? unsupported_set(request, "n", "n above 1") : true;
}

bool body_n_predict(struct api_request *request, int64_t *max_tokens) {
    return body_int(request, "n_predict", -1, INT32_MAX, max_tokens);
}

bool body_generation(struct api_request *request) {
    return body_model(request) && read_stream(request) && set_params(request) &&
           unsupported_refuse(request) && read_cache_salt(request) &&
           body_bool(request, "return_tokens_as_token_ids", &request->answer.tokens_as_ids) &&
           body_bool(request, "timings_per_token", &request->answer.timings_per_token);
}

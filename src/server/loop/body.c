#include "server/loop/body.h"

#include <string.h>

#include "base/check.h"
#include "base/json/jread.h"
#include "base/text/suggest.h"
#include "base/text/utf8.h"

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
    request->memory_left = jread_request_memory(request->body.len);
    enum status status = jread_request_part(&request->root, text, request->body.len,
                                            &request->memory_left, "the body", &err);
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

static bool is_in(const char *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

static void note_read(struct api_request *request, const char *key) {
    if (is_in(key, request->read_members, request->num_read_members)) return;
    CHECK(request->num_read_members < ARRAY_LEN(request->read_members), "%s", key);
    request->read_members[request->num_read_members++] = key;
}

json_t *body_get(struct api_request *request, const char *key) {
    json_t *value = jread_get(request->root, key);
    if (value) note_read(request, key);
    return value;
}

bool body_is_word(const json_t *value, const char *word) {
    const char *text = json_string_value(value);
    return text && strcmp(text, word) == 0;
}

bool body_is_nothing(const json_t *value) {
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && !json_string_length(value)) ||
           (json_is_array(value) && !json_array_size(value));
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

const char *body_blamed(const struct api_request *request, const char *sentence,
                        const char *otherwise) {
    if (*sentence == '"') sentence++;
    size_t len = strspn(sentence, "abcdefghijklmnopqrstuvwxyz_0123456789");
    for (size_t i = 0; i < request->num_read_members; i++) {
        const char *name = request->read_members[i];
        if (strlen(name) == len && memcmp(name, sentence, len) == 0) return name;
    }
    return otherwise;
}

// ---- members that no code has asked for ----

enum { SHOWN_MAX = 8, PARTS_SHOWN_MAX = 3, NAME_BYTES_MAX = 40, CANDIDATES_MAX = 128 };

// Members that OpenAI, vLLM, llama-server, SGLang and Anthropic define and clients send, and that
// change no answer of this server: who asks, how the request is counted, cached or sped up.
static const char *const harmless[] = {
    "user",
    "metadata",
    "client_metadata",
    "safety_identifier",
    "store",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "prediction", // a guess at the answer, for speed
    "include", // nothing is stored, so nothing is to be included from there
    "truncation", // a prompt that is too long is refused, never cut
    "max_tool_calls", // of tools that the server runs
    "request_id",
    "rid", // SGLang's name of it
    "session_id",
    "stream_interval", // how many tokens a chunk has
    "spaces_between_special_tokens", // tokenizer.json knows none
    "truncation_side", // of truncate_prompt_tokens, which is refused
    "early_stopping", // as length_penalty
    "guided_decoding_backend",
    "guided_whitespace_pattern", // of guided_json
    "mm_processor_kwargs", // of images and sound, which are refused
    "media_io_kwargs",
    "length_penalty", // of beam search, which is refused
    "cache_prompt",
    "backend_sampling", // where it samples
    "id_slot",
    "n_keep", // of a context that is full: here the answer ends
    "n_discard",
    "sse_ping_interval",
    // Of samplers that server/api/request_params.c refuses where they are on.
    "mirostat_tau",
    "mirostat_eta",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "xtc_threshold",
    "dynatemp_exponent",
    "adaptive_decay",
    "keep_alive",
    "anthropic_version",
    "anthropic_beta",
};

// A name of a request. Of a long one the beginning, whole characters, and "...".
struct short_name {
    char text[NAME_BYTES_MAX + sizeof "..."];
};

static struct short_name shorten(const char *name) {
    struct short_name out;
    size_t len = strlen(name), kept = len;
    if (len > NAME_BYTES_MAX) kept = utf8_valid_prefix(name, NAME_BYTES_MAX);
    snprintf(out.text, sizeof out.text, "%.*s%s", (int)kept, name, kept < len ? "..." : "");
    return out;
}

// `part` of the member `name`; NULL is the whole member.
struct part_name {
    char text[2 * sizeof(struct short_name)];
};

static struct part_name name_of_part(const char *name, const char *part) {
    struct part_name out;
    snprintf(out.text, sizeof out.text, "%s%s%s", shorten(name).text, part ? "." : "",
             part ? shorten(part).text : "");
    return out;
}

// Adds a name to the list "a, b, ...", which stands in a field of the answer's head and in the log.
static void add_name(char *list, size_t size, struct part_name safe) {
    size_t len = strlen(list), left = size - len;
    for (char *c = safe.text; *c; c++) {
        if (*c <= ' ' || *c > '~' || *c == ',') *c = '?';
    }
    // A list that is full ends in "...", not within a name.
    bool is_full = len + strlen(safe.text) + sizeof ", , ..." > size;
    if (is_full && len >= 3 && strcmp(list + len - 3, "...") == 0) return;
    snprintf(list + len, left, "%s%s", len ? ", " : "", is_full ? "..." : safe.text);
}

bool body_ignore(struct api_request *request, const char *name) {
    add_name(request->ignored, sizeof request->ignored, name_of_part(name, NULL));
    return true;
}

bool body_leave_out_tool(struct api_request *request, const char *type) {
    if (request->api->options->refuses_unknown) {
        return api_error_set(&request->error, 400, "unsupported", "tools",
                             "a tool is of the type \"%s\", which this server does not run",
                             shorten(type).text);
    }
    if (request->num_left_out == PARTS_SHOWN_MAX) return true;
    bool is_last = ++request->num_left_out == PARTS_SHOWN_MAX;
    add_name(request->ignored, sizeof request->ignored,
             name_of_part("tools", is_last ? "..." : type));
    return true;
}

bool body_leave_out(struct api_request *request, const char *member, const char *name) {
    struct part_name full = name_of_part(member, name);
    if (request->api->options->refuses_unknown) {
        return api_error_set(&request->error, 400, "unknown_member", member,
                             "%s has no effect here", full.text);
    }
    add_name(request->ignored, sizeof request->ignored, full);
    return true;
}

// The members that are not in `known`, or those that are not `is_known`.
static bool leave_out(struct api_request *request, const char *member, const json_t *object,
                      const char *const *known, size_t num_known,
                      bool (*is_known)(const struct api_request *request, const char *name)) {
    size_t num_shown = 0;
    const char *name;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        bool knows = is_known ? is_known(request, name) : is_in(name, known, num_known);
        if (json_is_null(value) || knows) continue;
        bool is_more = num_shown++ == PARTS_SHOWN_MAX;
        if (!body_leave_out(request, member, is_more ? "..." : name)) return false;
        if (is_more) break;
    }
    return true;
}

bool body_leave_out_unknown(struct api_request *request, const char *member, const json_t *object,
                            bool (*is_known)(const struct api_request *request, const char *name)) {
    return leave_out(request, member, object, NULL, 0, is_known);
}

bool body_leave_out_others(struct api_request *request, const char *member, const json_t *object,
                           const char *const *known, size_t num_known) {
    if (!jread_is_object(object)) return body_wrong_type(request, member, object, "an object");
    return leave_out(request, member, object, known, num_known, NULL);
}

static bool refuse_unknown(struct api_request *request, const char *name) {
    const char *candidates[CANDIDATES_MAX];
    size_t count = 0;
    const struct nvllm_param *row;
    for (size_t i = 0; count < CANDIDATES_MAX && (row = nvllm_sampling_param(i)); i++) {
        candidates[count++] = row->name;
    }
    const char *nearest = suggest_nearest(name, candidates, count);
    if (!nearest || strcmp(nearest, name) == 0) { // known elsewhere
        return api_error_set(&request->error, 400, "unknown_member", name,
                             "the member \"%s\" is not known here", shorten(name).text);
    }
    return api_error_set(&request->error, 400, "unknown_member", name,
                         "the member \"%s\" is not known here; did you mean %s?",
                         shorten(name).text, nearest);
}

bool body_check_unknown(struct api_request *request) {
    size_t num_shown = 0;
    const char *name;
    json_t *value;
    // Names beyond SHOWN_MAX end the search, so that an object of a million members costs no more.
    json_object_foreach(request->root, name, value) {
        if (json_is_null(value) || is_in(name, harmless, ARRAY_LEN(harmless)) ||
            is_in(name, request->read_members, request->num_read_members)) {
            continue;
        }
        if (request->api->options->refuses_unknown) return refuse_unknown(request, name);
        if (num_shown == SHOWN_MAX) {
            body_ignore(request, "...");
            break;
        }
        body_ignore(request, name);
        num_shown++;
    }
    return true;
}

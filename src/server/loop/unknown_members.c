#include "server/loop/unknown_members.h"

#include <string.h>

#include "base/check.h"
#include "base/text/suggest.h"
#include "server/loop/api_request.h"

enum { SHOWN_MAX = 8, NAME_BYTES_MAX = 40, CANDIDATES_MAX = 128 };

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
    "mm_processor_kwargs", // of images and sound, which are refused
    "media_io_kwargs",
    "length_penalty", // of beam search, which is refused
    "cache_prompt",
    "backend_sampling", // where it samples
    "id_slot",
    "n_keep", // of a context that is full: here the answer ends
    "n_discard",
    "sse_ping_interval",
    // Of samplers that unsupported.c refuses where they are on.
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

static bool is_in(const char *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

void unknown_members_note_read(struct api_request *request, const char *key) {
    if (is_in(key, request->read_members, request->num_read_members)) return;
    CHECK(request->num_read_members < ARRAY_LEN(request->read_members), "%s", key);
    request->read_members[request->num_read_members++] = key;
}

// Adds a name to the list "a, b, ...", which stands in a field of the answer's head and in the log.
static void add_name(char *list, size_t size, const char *name) {
    size_t len = strlen(list), room = size - len;
    char safe[NAME_BYTES_MAX + 1];
    snprintf(safe, sizeof safe, "%s", name);
    for (char *c = safe; *c; c++) {
        if (*c <= ' ' || *c > '~' || *c == ',') *c = '?';
    }
    snprintf(list + len, room, "%s%s", len ? ", " : "", safe);
}

static bool refuse(struct api_request *request, const char *name) {
    const char *candidates[CANDIDATES_MAX];
    size_t count = 0;
    const struct nvllm_param *row;
    for (size_t i = 0; count < CANDIDATES_MAX && (row = nvllm_sampling_param(i)); i++) {
        candidates[count++] = row->name;
    }
    const char *nearest = suggest_nearest(name, candidates, count);
    if (!nearest || strcmp(nearest, name) == 0) { // known elsewhere
        return api_error_set(&request->error, 400, "unknown_member", name,
                             "the member \"%.100s\" is not known here", name);
    }
    return api_error_set(&request->error, 400, "unknown_member", name,
                         "the member \"%.100s\" is not known here; did you mean %s?", name,
                         nearest);
}

bool unknown_members_check(struct api_request *request) {
    size_t num_shown = 0;
    const char *name;
    json_t *value;
    // Names beyond SHOWN_MAX end the search, so that an object of a million members costs no more.
    json_object_foreach(request->root, name, value) {
        if (json_is_null(value) || is_in(name, harmless, ARRAY_LEN(harmless)) ||
            is_in(name, request->read_members, request->num_read_members)) {
            continue;
        }
        if (request->api->options->refuses_unknown) return refuse(request, name);
        if (num_shown == SHOWN_MAX) {
            add_name(request->ignored, sizeof request->ignored, "...");
            break;
        }
        add_name(request->ignored, sizeof request->ignored, name);
        num_shown++;
    }
    return true;
}

#include "server/api/unsupported.h"

#include <string.h>

#include "base/json/jread.h"
#include "server/loop/body.h"

struct member {
    const char *name;
    // JSON list of the values that change nothing; NULL: false, "" and the empty list. An empty
    // object is none of them: as a schema it asks for JSON.
    const char *neutral;
};

// Members that only another one gives an effect (mirostat_tau, dry_base) are not here.
static const struct member members[] = {
    // Constraints on the output.
    {"structured_outputs", "[]"},
    {"structural_tag", "[]"},
    {"guided_json", "[]"},
    {"guided_regex", "[]"},
    {"guided_choice", "[]"},
    {"guided_grammar", "[]"},
    {"guided_json_object", "[]"},
    {"grammar", "[\"\"]"},
    {"grammar_lazy", NULL},
    {"grammar_triggers", NULL},
    {"json_schema", "[]"},
    {"regex", "[]"},
    {"ebnf", "[]"},
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

bool unsupported_set(struct api_request *request, const char *key, const char *what) {
    return api_error_set(&request->error, 400, "unsupported", key, "%s is not supported yet", what);
}

static bool is_empty(const json_t *value) {
    return json_is_false(value) || (json_is_array(value) && !json_array_size(value)) ||
           (json_is_string(value) && !json_string_length(value));
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
    return unsupported_set(request, "repeat_last_n", "a penalty with repeat_last_n");
}

static bool check_response_format(struct api_request *request) {
    const json_t *format = body_get(request, "response_format");
    if (!format) return true;
    if (!jread_is_object(format)) {
        return body_wrong_type(request, "response_format", format, "an object");
    }
    const char *type = json_string_value(json_object_get(format, "type"));
    if (type && strcmp(type, "text") == 0) return true;
    if (type && (strcmp(type, "json_object") == 0 || strcmp(type, "json_schema") == 0 ||
                 strcmp(type, "structural_tag") == 0)) {
        return unsupported_set(request, "response_format", "a response_format other than text");
    }
    return api_error_invalid(&request->error, "response_format",
                             "response_format has no known type, want text");
}

bool unsupported_refuse(struct api_request *request) {
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const struct member *member = &members[i];
        const json_t *value = body_get(request, member->name);
        if (!value) continue;
        if (member->neutral ? is_one_of(member->neutral, value) : is_empty(value)) continue;
        return unsupported_set(request, member->name, member->name);
    }
    return check_window(request) && check_response_format(request);
}

bool unsupported_refuse_keys(struct api_request *request, const char *const *keys,
                             size_t num_keys) {
    for (size_t i = 0; i < num_keys; i++) {
        const json_t *value = body_get(request, keys[i]);
        if (!value || is_empty(value)) continue;
        return api_error_set(&request->error, 400, "unsupported", keys[i],
                             "%s is not supported here", keys[i]);
    }
    return true;
}

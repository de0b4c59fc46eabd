/* POST /v1/embeddings, and what is made of vectors or of a model's yes and no: /v1/score, as vLLM
 * has it, and /v1/rerank, as Jina and Cohere have it.
 *
 * A model that says how it makes embeddings scores by the cosine of two vectors. Any other is asked
 * whether the document answers the query (nvllm_score_chat), and the score is the probability of
 * "yes" against "no". */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "server/api/answer.h"
#include "server/api/endpoints.h"
#include "server/api/prompts.h"
#include "server/api/request_params.h"
#include "server/loop/body.h"

enum { INPUTS_MAX = 2048 }; // of one request; OpenAI's limit

// Numbers that a delta brings go to choice->text as they are.
static bool collect(struct choice *choice, const struct choice_delta *delta) {
    const void *numbers = delta->embedding;
    size_t count = delta->num_dimensions;
    float answers[2];
    if (delta->logprobs && delta->num_tokens == 1 && delta->num_top == 2) {
        for (int i = 0; i < 2; i++) answers[i] = delta->logprobs[1 + i].logprob;
        numbers = answers;
        count = 2;
    }
    return !count || !buf_append(&choice->text, numbers, count * sizeof(float), NULL);
}

static void read_numbers(const struct choice *choice, size_t i, float *out, size_t count) {
    memcpy(out, choice->text.data + i * sizeof *out, count * sizeof *out);
}

static size_t num_numbers(const struct choice *choice) {
    return choice->text.len / sizeof(float);
}

static void write_vector_usage(struct json_out *out, const struct api_request *request) {
    uint32_t count = api_request_num_prompt_tokens(request);
    json_out_rawf(out,
                  "\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u,"
                  "\"completion_tokens\":0,\"prompt_tokens_details\":{\"cached_tokens\":%u}}",
                  count, count, api_request_num_cached_tokens(request));
}

// ---- embeddings ----

static bool read_kind(struct api_request *request) {
    static const char *const names[] = {"model", "last", "mean"}; // by enum nvllm_pooling_kind
    const char *kind = NULL;
    if (!body_string(request, "pooling", &kind)) return false;
    for (size_t i = 0; kind && i < ARRAY_LEN(names); i++) {
        if (strcmp(kind, names[i]) != 0) continue;
        request->pooling.kind = (enum nvllm_pooling_kind)i;
        return true;
    }
    return !kind || api_error_invalid(&request->error, "pooling",
                                      "pooling is %.40s, want model, last or mean", kind);
}

static bool read_encoding(struct api_request *request) {
    const char *encoding = NULL;
    if (!body_string(request, "encoding_format", &encoding)) return false;
    if (!encoding || strcmp(encoding, "float") == 0) return true;
    request->answer.base64 = strcmp(encoding, "base64") == 0;
    return request->answer.base64 ||
           api_error_invalid(&request->error, "encoding_format",
                             "encoding_format is %.40s, want float or base64", encoding);
}

// The text that the model has under the name that the request gives; NULL: it gives none.
static bool read_prefix(struct api_request *request, const char **prefix) {
    const char *name = NULL;
    *prefix = NULL;
    if (!body_string(request, "prompt_name", &name)) return false;
    if (!name) return true;
    *prefix = nvllm_engine_prompt_text(request->api->engine, name);
    return *prefix || api_error_invalid(&request->error, "prompt_name",
                                        "the model has no prompt named %.60s", name);
}

// Reads the members that all of these endpoints have. Refuses members of other servers that would
// change the answer.
static bool read_common(struct api_request *request) {
    static const char *const unsupported[] = {"truncate_prompt_tokens",
                                              "messages",
                                              "embed_dtype",
                                              "endianness",
                                              "use_activation",
                                              "rank_fields",
                                              "max_tokens_per_doc",
                                              "max_chunks_per_doc",
                                              "softmax",
                                              "truncate_side",
                                              "chat_template",
                                              "chat_template_kwargs"};
    int64_t priority = 0;
    request->pooling = (struct nvllm_pooling)NVLLM_POOLING_INIT;
    if (!body_parse(request) || !request_params_model(request) ||
        !request_params_cache_salt(request) ||
        !body_int(request, "priority", INT32_MIN, INT32_MAX, &priority) ||
        !request_params_refuse(request, unsupported, ARRAY_LEN(unsupported))) {
        return false;
    }
    request->sampling.priority = (int32_t)priority;
    return true;
}

// Scores have vectors as the model makes them.
static bool read_common_score(struct api_request *request) {
    static const char *const unsupported[] = {"dimensions", "pooling", "normalize", "prompt_name"};
    return read_common(request) &&
           request_params_refuse(request, unsupported, ARRAY_LEN(unsupported));
}

// A vector needs no place for an answer.
static bool fit(struct api_request *request, const struct prompt *prompt, size_t number,
                const char *param) {
    uint32_t context = request->api->max_model_len;
    return prompt->num_ids <= context ||
           api_error_set(&request->error, 400, "context_length_exceeded", param,
                         "text %zu of %s has %zu tokens and the context holds %u", number, param,
                         prompt->num_ids, context);
}

static bool prepare_embeddings(struct api_request *request) {
    struct prompts_options options = {
        .key = "input", .add_special_tokens = true, .most = INPUTS_MAX};
    int64_t dimensions = 0;
    bool normalize = true;
    if (!read_common(request) || !read_kind(request) || !read_encoding(request) ||
        !read_prefix(request, &options.prefix) ||
        !body_int(request, "dimensions", 1, UINT32_MAX, &dimensions) ||
        !body_bool(request, "add_special_tokens", &options.add_special_tokens)) {
        return false;
    }
    if (body_get(request, "normalize")) {
        if (!body_bool(request, "normalize", &normalize)) return false;
        request->pooling.normalize = normalize;
    }
    request->pooling.dimensions = (uint32_t)dimensions;
    request->wants_vectors = true;
    if (!prompts_read(request, &options)) return false;
    for (uint32_t i = 0; i < request->num_prompts; i++) {
        if (!fit(request, &request->prompts[i], i, "input")) return false;
    }
    return true;
}

static void write_vector(struct json_out *out, const struct choice *choice) {
    // The numbers lie in choice->text, whose memory malloc has aligned.
    const float *vector = (const void *)choice->text.data;
    if (choice->request->answer.base64) {
        json_out_base64(out, vector, choice->text.len);
    } else {
        json_out_floats(out, vector, num_numbers(choice));
    }
}

static void write_embeddings(struct api_request *request, struct json_out *out) {
    answer_write_head(out, request, "list");
    json_out_raw(out, ",\"data\":[");
    for (uint32_t i = 0; i < request->num_choices; i++) {
        json_out_rawf(out, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", i ? "," : "",
                      i);
        write_vector(out, &request->choices[i]);
        json_out_raw(out, "}");
    }
    json_out_raw(out, "],");
    write_vector_usage(out, request);
    json_out_raw(out, "}");
}

const struct endpoint endpoint_embeddings = {.id_prefix = "embd-",
                                             .prepare = prepare_embeddings,
                                             .collect = collect,
                                             .write_whole = write_embeddings};

// ---- scores ----

// A text of a list, or a Cohere document {"text": ...}. NULL: neither.
static const char *text_of(const json_t *value) {
    return json_string_value(jread_is_object(value) ? json_object_get(value, "text") : value);
}

// The texts of a request: `queries` has one, or as many as there are documents.
struct pairs {
    const json_t *queries, *documents;
    const char *query_key, *document_key;
    const char *instruction; // NULL: the library's
};

static size_t num_texts(const json_t *member) {
    return json_is_array(member) ? json_array_size(member) : 1;
}

static const char *pair_text(const json_t *member, size_t i) {
    if (!json_is_array(member)) return text_of(member);
    return text_of(json_array_get(member, json_array_size(member) == 1 ? 0 : i));
}

static bool check_texts(struct api_request *request, const json_t *member, const char *key) {
    if (!member) return api_error_invalid(&request->error, key, "%s is missing", key);
    size_t count = num_texts(member);
    if (!count) return api_error_invalid(&request->error, key, "%s is empty", key);
    if (count > INPUTS_MAX / 2) {
        return api_error_invalid(&request->error, key, "%s has %zu texts, want at most %d", key,
                                 count, INPUTS_MAX / 2);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(member) ? json_array_get(member, i) : member;
        const char *text = text_of(one);
        const json_t *string = jread_is_object(one) ? json_object_get(one, "text") : one;
        if (text && *text && strlen(text) == json_string_length(string)) continue;
        return api_error_invalid(&request->error, key,
                                 "%s: want texts that are not empty and without NUL characters",
                                 key);
    }
    return true;
}

static bool check_pairs(struct api_request *request, const struct pairs *pairs) {
    if (!check_texts(request, pairs->queries, pairs->query_key) ||
        !check_texts(request, pairs->documents, pairs->document_key)) {
        return false;
    }
    size_t num_queries = num_texts(pairs->queries), num_documents = num_texts(pairs->documents);
    if (num_queries == 1 || num_queries == num_documents) return true;
    return api_error_invalid(&request->error, pairs->query_key,
                             "%s has %zu texts and %s %zu: want one, or as many", pairs->query_key,
                             num_queries, pairs->document_key, num_documents);
}

// The ids of "yes" and "no", which must be one token each.
static bool find_answers(struct api_request *request, int32_t ids[2]) {
    static const char *const words[] = {"yes", "no"};
    for (int i = 0; i < 2; i++) {
        int32_t *found = NULL;
        size_t count = 0;
        struct nvllm_error fault = {0};
        enum nvllm_status status =
            nvllm_tokenizer_encode(request->api->tokenizer, words[i], strlen(words[i]), 0,
                                   &request->interrupt, &found, &count, &fault);
        if (!status && count == 1) ids[i] = found[0];
        nvllm_free(found);
        if (!api_error_library(&request->error, status, &fault, NULL)) return false;
        if (count == 1) continue;
        return api_error_set(&request->error, 400, "unsupported", NULL,
                             "the model has no token \"%s\", so it cannot be asked for a score",
                             words[i]);
    }
    return true;
}

static bool encode_question(struct api_request *request, struct prompt *prompt,
                            const struct pairs *pairs, size_t i) {
    struct nvllm_error fault = {0};
    char *chat = NULL, *text = NULL;
    size_t chat_len = 0, text_len = 0;
    if (!request->api->chat_template) {
        return api_error_library(&request->error, NVLLM_ERR_INVALID, &request->api->chat_fault,
                                 NULL);
    }
    enum nvllm_status status =
        nvllm_score_chat(pair_text(pairs->queries, i), pair_text(pairs->documents, i),
                         pairs->instruction, &chat, &chat_len, &fault);
    if (!status) {
        status = nvllm_chat_template_render(request->api->chat_template, chat, chat_len,
                                            &request->interrupt, &text, &text_len, &fault);
    }
    bool is_good =
        api_error_library(&request->error, status, &fault, NULL) &&
        api_request_encode(request, prompt, text, text_len, false, pairs->document_key) &&
        api_request_fit(request, prompt, 1, pairs->document_key);
    nvllm_free(chat);
    nvllm_free(text);
    return is_good;
}

// A prompt for each pair.
static bool make_questions(struct api_request *request, const struct pairs *pairs) {
    size_t count = num_texts(pairs->documents);
    int32_t answers[2] = {0};
    if (!find_answers(request, answers)) return false;
    json_t *list = json_pack("[i, i]", (int)answers[0], (int)answers[1]);
    bool is_set = list ? request_params_set(request, "logprob_token_ids", list)
                       : api_error_nomem(&request->error);
    json_decref(list);
    if (!is_set) return false;
    request->sampling.logprobs = 0;
    request->sampling.temperature = 0;
    if (!api_request_make_prompts(request, (uint32_t)count)) return false;
    for (size_t i = 0; i < count; i++) {
        if (!encode_question(request, &request->prompts[i], pairs, i)) return false;
    }
    return true;
}

// The queries' vectors, then the documents'.
static bool make_vectors(struct api_request *request, const struct pairs *pairs) {
    size_t num_queries = num_texts(pairs->queries), count = num_texts(pairs->documents);
    request->wants_vectors = true;
    request->pooling.normalize = 1;
    if (!api_request_make_prompts(request, (uint32_t)(num_queries + count))) return false;
    for (size_t i = 0; i < num_queries + count; i++) {
        bool is_query = i < num_queries;
        size_t number = is_query ? i : i - num_queries;
        const char *key = is_query ? pairs->query_key : pairs->document_key;
        const char *text = pair_text(is_query ? pairs->queries : pairs->documents, number);
        struct prompt *prompt = &request->prompts[i];
        if (!api_request_encode(request, prompt, text, strlen(text), true, key) ||
            !fit(request, prompt, number, key)) {
            return false;
        }
    }
    return true;
}

static bool make_pairs(struct api_request *request, struct pairs *pairs) {
    bool embeds = nvllm_engine_is_embedder(request->api->engine);
    if (!body_string(request, "instruction", &pairs->instruction)) return false;
    if (embeds && pairs->instruction) {
        return api_error_invalid(&request->error, "instruction",
                                 "instruction is for models that are asked yes or no; this one "
                                 "compares vectors");
    }
    request->answer.num_queries = embeds ? (uint32_t)num_texts(pairs->queries) : 0;
    return check_pairs(request, pairs) &&
           (embeds ? make_vectors(request, pairs) : make_questions(request, pairs));
}

static uint32_t num_scores(const struct api_request *request) {
    return request->num_choices - request->answer.num_queries;
}

static double score_of(const struct api_request *request, uint32_t i) {
    uint32_t num_queries = request->answer.num_queries;
    const struct choice *document = &request->choices[num_queries + i];
    if (!num_queries) {
        float answers[2]; // the log-probabilities of yes and no
        if (num_numbers(document) != 2) return 0;
        read_numbers(document, 0, answers, 2);
        return 1 / (1 + exp((double)answers[1] - (double)answers[0]));
    }
    const struct choice *query = &request->choices[num_queries == 1 ? 0 : i];
    double sum = 0;
    for (size_t k = 0; k < num_numbers(query) && k < num_numbers(document); k++) {
        float a, b;
        read_numbers(query, k, &a, 1);
        read_numbers(document, k, &b, 1);
        sum += (double)a * (double)b;
    }
    return sum;
}

static bool prepare_score(struct api_request *request) {
    struct pairs pairs = {.query_key = "text_1", .document_key = "text_2"};
    if (!read_common_score(request)) return false;
    pairs.queries = body_get(request, "text_1");
    pairs.documents = body_get(request, "text_2");
    if (!pairs.queries && !pairs.documents) { // vLLM's newer names
        pairs.query_key = "queries";
        pairs.document_key = "documents";
        pairs.queries = body_get(request, "queries");
        pairs.documents = body_get(request, "documents");
    }
    return make_pairs(request, &pairs);
}

static void write_scores(struct api_request *request, struct json_out *out) {
    answer_write_head(out, request, "list");
    json_out_raw(out, ",\"data\":[");
    for (uint32_t i = 0; i < num_scores(request); i++) {
        json_out_rawf(out, "%s{\"index\":%u,\"object\":\"score\",\"score\":", i ? "," : "", i);
        json_out_float(out, (float)score_of(request, i));
        json_out_raw(out, "}");
    }
    json_out_raw(out, "],");
    write_vector_usage(out, request);
    json_out_raw(out, "}");
}

const struct endpoint endpoint_score = {.id_prefix = "score-",
                                        .prepare = prepare_score,
                                        .collect = collect,
                                        .write_whole = write_scores};

// ---- rerank ----

static bool prepare_rerank(struct api_request *request) {
    struct pairs pairs = {.query_key = "query", .document_key = "documents"};
    int64_t top_n = 0;
    bool returns = true; // as in vLLM
    if (!read_common_score(request) || !body_int(request, "top_n", 0, INT32_MAX, &top_n) ||
        !body_bool(request, "return_documents", &returns)) {
        return false;
    }
    pairs.queries = body_get(request, "query");
    pairs.documents = body_get(request, "documents");
    if (pairs.queries && !json_is_string(pairs.queries)) {
        return body_wrong_type(request, "query", pairs.queries, "a string");
    }
    if (!make_pairs(request, &pairs)) return false;
    request->answer.top_n = (uint32_t)top_n;
    if (!returns) return true;
    // The answer has the documents, when the body is forgotten.
    uint32_t first = request->answer.num_queries;
    for (uint32_t i = 0; i < num_scores(request); i++) {
        const char *text = pair_text(pairs.documents, i);
        struct prompt *prompt = &request->prompts[first + i];
        prompt->echo_len = strlen(text);
        prompt->echo = strdup(text);
        if (!prompt->echo) return api_error_nomem(&request->error);
    }
    return true;
}

struct ranked {
    double score;
    uint32_t index;
};

// The highest score first; equal ones in the order of the request.
static int compare(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static void write_ranked(struct api_request *request, struct json_out *out) {
    uint32_t count = num_scores(request), most = request->answer.top_n;
    struct ranked *ranked = malloc(count * sizeof *ranked);
    if (!ranked) {
        json_out_check(out, ERR_NOMEM);
        return;
    }
    for (uint32_t i = 0; i < count; i++) ranked[i] = (struct ranked){score_of(request, i), i};
    qsort(ranked, count, sizeof *ranked, compare);
    if (!most || most > count) most = count;
    json_out_rawf(out, "{\"id\":\"%s\",\"model\":", request->id);
    json_out_cstring(out, request->answer.model);
    json_out_raw(out, ",\"results\":[");
    for (uint32_t i = 0; i < most; i++) {
        const struct prompt *prompt =
            &request->prompts[request->answer.num_queries + ranked[i].index];
        json_out_rawf(out, "%s{\"index\":%u,", i ? "," : "", ranked[i].index);
        if (prompt->echo) {
            json_out_raw(out, "\"document\":{\"text\":");
            json_out_string(out, prompt->echo, prompt->echo_len);
            json_out_raw(out, "},");
        }
        json_out_raw(out, "\"relevance_score\":");
        json_out_float(out, (float)ranked[i].score);
        json_out_raw(out, "}");
    }
    json_out_raw(out, "],");
    write_vector_usage(out, request);
    json_out_raw(out, "}");
    free(ranked);
}

const struct endpoint endpoint_rerank = {.id_prefix = "rerank-",
                                         .prepare = prepare_rerank,
                                         .collect = collect,
                                         .write_whole = write_ranked};

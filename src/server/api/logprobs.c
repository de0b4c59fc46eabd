#include "server/api/logprobs.h"

#include <stdio.h>
#include <string.h>

#include "server/loop/body.h"

// In choice->logprobs_more: completions' other lists.
enum { TOKEN_LOGPROBS, TOP_LOGPROBS, TEXT_OFFSETS };

// A token as clients see it.
struct logprobs_token {
    char *text; // [len] of the library
    size_t len;
    char id[24]; // "token_id:17"
    const char *shown; // [shown_len] one of the two
    size_t shown_len;
};

bool logprobs_read_count(struct api_request *request, const char *key, int64_t *count) {
    const json_t *value = body_get(request, key);
    if (json_is_integer(value) && json_integer_value(value) == -1) {
        return api_error_set(&request->error, 400, "unsupported", key,
                             "%s is -1, the whole vocabulary, which is not supported: want 0 to %d",
                             key, NVLLM_LOGPROBS_MAX);
    }
    return body_int(request, key, 0, NVLLM_LOGPROBS_MAX, count);
}

bool logprobs_check_given(struct api_request *request) {
    size_t num_given = request->sampling.num_logprob_token_ids;
    if (!num_given) return true;
    if (request->answer.num_logprobs < 0) {
        return api_error_invalid(&request->error, "logprob_token_ids",
                                 "logprob_token_ids is given, but logprobs is not");
    }
    request->answer.num_logprobs = (int32_t)num_given;
    return true;
}

// `out` is where it will be written: without memory that has a fault.
static void get_token(const struct api_request *request, int32_t token_id,
                      struct logprobs_token *token, struct json_out *out) {
    *token = (struct logprobs_token){0};
    if (nvllm_tokenizer_decode(request->api->tokenizer, &token_id, 1, NVLLM_DECODE_SKIP_UNKNOWN,
                               &token->text, &token->len, NULL)) {
        token->text = NULL;
        token->len = 0;
        json_out_check(out, ERR_NOMEM);
    }
    token->shown = token->text ? token->text : "";
    token->shown_len = token->len;
    if (!request->answer.tokens_as_ids) return;
    snprintf(token->id, sizeof token->id, "token_id:%d", token_id);
    token->shown = token->id;
    token->shown_len = strlen(token->id);
}

static void end_token(struct logprobs_token *token) {
    nvllm_free(token->text);
}

// Values that JSON lacks: a token that cannot be drawn.
static void write_value(struct json_out *out, float logprob) {
    json_out_float(out, logprob < -9999.0f ? -9999.0f : logprob);
}

static void separate(struct json_out *list) {
    if (list->buf.len) json_out_raw(list, ",");
}

// How many of the best ones are shown: asking for 0 shows the chosen one alone.
static size_t num_top(const struct choice *choice, const struct choice_delta *delta) {
    size_t wanted = (size_t)choice->request->answer.num_logprobs;
    return delta->num_top < wanted ? delta->num_top : wanted;
}

// The log-probabilities of the delta's i-th token; NULL past its last, and if none are wanted.
static const struct nvllm_logprob *row_of(const struct choice *choice,
                                          const struct choice_delta *delta, uint32_t i) {
    bool is_wanted = choice->request->answer.num_logprobs >= 0 && delta->logprobs;
    if (!is_wanted || i == delta->num_tokens) return NULL;
    return delta->logprobs + i * (1 + delta->num_top);
}

// ---- chat ----

static void write_chat_token(struct json_out *out, const struct api_request *request,
                             const struct nvllm_logprob *logprob) {
    struct logprobs_token token;
    get_token(request, logprob->token_id, &token, out);
    json_out_raw(out, "{\"token\":");
    json_out_string(out, token.shown, token.shown_len);
    json_out_raw(out, ",\"logprob\":");
    write_value(out, logprob->logprob);
    json_out_raw(out, ",\"bytes\":[");
    for (size_t i = 0; i < token.len; i++) {
        json_out_rawf(out, i ? ",%u" : "%u", (unsigned)(unsigned char)token.text[i]);
    }
    json_out_raw(out, "]");
    end_token(&token);
}

static void add_chat_row(struct choice *choice, const struct nvllm_logprob *row, size_t num_top) {
    struct json_out *out = &choice->logprobs;
    separate(out);
    write_chat_token(out, choice->request, &row[0]);
    json_out_raw(out, ",\"top_logprobs\":[");
    for (size_t i = 0; i < num_top && row[1 + i].token_id >= 0; i++) {
        if (i) json_out_raw(out, ",");
        write_chat_token(out, choice->request, &row[1 + i]);
        json_out_raw(out, "}");
    }
    json_out_raw(out, "]}");
}

void logprobs_collect_chat(struct choice *choice, const struct choice_delta *delta) {
    const struct nvllm_logprob *row;
    for (uint32_t i = 0; (row = row_of(choice, delta, i)); i++) {
        add_chat_row(choice, row, num_top(choice, delta));
    }
}

void logprobs_write_chat(struct choice *choice, struct json_out *out) {
    if (choice->request->answer.num_logprobs < 0) {
        json_out_raw(out, "null");
        return;
    }
    json_out_raw(out, "{\"content\":");
    json_out_take_list(out, &choice->logprobs);
    json_out_raw(out, ",\"refusal\":null}");
}

// ---- completions ----

static size_t count_characters(const char *text, size_t len) {
    size_t count = 0;
    for (size_t i = 0; i < len; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

static void add_top(struct choice *choice, const struct nvllm_logprob *values, size_t count) {
    struct json_out *top = &choice->logprobs_more[TOP_LOGPROBS];
    separate(top);
    json_out_raw(top, "{");
    // The token itself is among them, as in vLLM, once.
    bool is_first = true;
    for (size_t i = 0; i <= count && values[i].token_id >= 0; i++) {
        if (i && values[i].token_id == values[0].token_id) continue;
        struct logprobs_token token;
        get_token(choice->request, values[i].token_id, &token, top);
        if (!is_first) json_out_raw(top, ",");
        is_first = false;
        json_out_string(top, token.shown, token.shown_len);
        json_out_raw(top, ":");
        write_value(top, values[i].logprob);
        end_token(&token);
    }
    json_out_raw(top, "}");
}

static void add_token(struct choice *choice, int32_t token_id) {
    struct json_out *offsets = &choice->logprobs_more[TEXT_OFFSETS];
    struct logprobs_token token;
    get_token(choice->request, token_id, &token, &choice->logprobs);
    separate(&choice->logprobs);
    json_out_string(&choice->logprobs, token.shown, token.shown_len);
    separate(offsets);
    json_out_rawf(offsets, "%zu", choice->text_offset);
    choice->text_offset += count_characters(token.text ? token.text : "", token.len);
    end_token(&token);
}

// The first token of a prompt, which follows nothing.
static void add_first(struct choice *choice, int32_t token_id) {
    add_token(choice, token_id);
    json_out_raw(&choice->logprobs_more[TOKEN_LOGPROBS], "null");
    json_out_raw(&choice->logprobs_more[TOP_LOGPROBS], "null");
}

// `values`: the token's own, then num_top best ones.
static void add_completion(struct choice *choice, const struct nvllm_logprob *values,
                           size_t num_top) {
    struct json_out *list = &choice->logprobs_more[TOKEN_LOGPROBS];
    add_token(choice, values[0].token_id);
    separate(list);
    write_value(list, values[0].logprob);
    add_top(choice, values, num_top);
}

void logprobs_collect_completion(struct choice *choice, const struct choice_delta *delta) {
    const struct nvllm_logprob *row;
    for (uint32_t i = 0; (row = row_of(choice, delta, i)); i++) {
        add_completion(choice, row, num_top(choice, delta));
    }
}

void logprobs_write_completion(struct choice *choice, struct json_out *out) {
    struct json_out *more = choice->logprobs_more;
    if (choice->request->answer.num_logprobs < 0) {
        json_out_raw(out, "null");
        return;
    }
    json_out_raw(out, "{\"tokens\":");
    json_out_take_list(out, &choice->logprobs);
    json_out_raw(out, ",\"token_logprobs\":");
    json_out_take_list(out, &more[TOKEN_LOGPROBS]);
    json_out_raw(out, ",\"top_logprobs\":");
    json_out_take_list(out, &more[TOP_LOGPROBS]);
    json_out_raw(out, ",\"text_offset\":");
    json_out_take_list(out, &more[TEXT_OFFSETS]);
    json_out_raw(out, "}");
}

// ---- of a prompt's tokens ----

static size_t num_columns(const struct prompt *prompt) {
    return 1 + (size_t)prompt->sampling.prompt_logprobs;
}

// `rank` counts from 1; 0: it is not known, because the token is not among the best ones.
static void write_one(const struct prompt *prompt, const struct nvllm_logprob *value, size_t rank,
                      struct json_out *out) {
    struct logprobs_token token;
    get_token(prompt->request, value->token_id, &token, out);
    json_out_rawf(out, "\"%d\":{\"logprob\":", value->token_id);
    write_value(out, value->logprob);
    json_out_rawf(out, rank ? ",\"rank\":%zu" : ",\"rank\":null", rank);
    json_out_raw(out, ",\"decoded_token\":");
    json_out_string(out, token.text, token.text ? token.len : 0);
    json_out_raw(out, "}");
    end_token(&token);
}

// The token's own first; among the best ones it is not repeated.
static void write_row(const struct prompt *prompt, const struct nvllm_logprob *row,
                      struct json_out *out) {
    size_t rank = 0;
    for (size_t i = 1; i < num_columns(prompt); i++) {
        if (row[i].token_id == row[0].token_id) rank = i;
    }
    json_out_raw(out, "{");
    write_one(prompt, row, rank, out);
    for (size_t i = 1; i < num_columns(prompt); i++) {
        if (i == rank) continue;
        json_out_raw(out, ",");
        write_one(prompt, &row[i], i, out);
    }
    json_out_raw(out, "}");
}

void prompt_logprobs_write(const struct prompt *prompt, struct json_out *out) {
    if (!prompt->logprobs || !prompt->request->answer.prompt_logprobs) {
        json_out_raw(out, "null");
        return;
    }
    json_out_raw(out, "[null");
    for (size_t i = 0; i + 1 < prompt->num_ids; i++) {
        json_out_raw(out, ",");
        write_row(prompt, prompt->logprobs + i * num_columns(prompt), out);
    }
    json_out_raw(out, "]");
}

void prompt_logprobs_collect(struct choice *choice) {
    const struct prompt *prompt = choice->prompt;
    int32_t num_top = choice->request->answer.num_logprobs;
    if (num_top < 0 || !prompt->logprobs) return;
    // logprob_token_ids are not the prompt's.
    if (num_top > prompt->sampling.prompt_logprobs) num_top = prompt->sampling.prompt_logprobs;
    add_first(choice, prompt->ids[0]);
    for (size_t i = 0; i + 1 < prompt->num_ids; i++) {
        add_completion(choice, prompt->logprobs + i * num_columns(prompt), (size_t)num_top);
    }
}

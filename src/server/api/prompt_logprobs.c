#include "server/api/prompt_logprobs.h"

#include "server/api/logprobs.h"

static size_t num_columns(const struct prompt *prompt) {
    return 1 + (size_t)prompt->sampling.prompt_logprobs;
}

// `rank` counts from 1; 0: it is not known, because the token is not among the best ones.
static void write_one(const struct prompt *prompt, const struct nvllm_logprob *value, size_t rank,
                      struct json_out *out) {
    struct logprobs_token token;
    logprobs_get_token(prompt->request, value->token_id, &token, out);
    json_out_rawf(out, "\"%d\":{\"logprob\":", value->token_id);
    logprobs_write_value(out, value->logprob);
    json_out_rawf(out, rank ? ",\"rank\":%zu" : ",\"rank\":null", rank);
    json_out_raw(out, ",\"decoded_token\":");
    json_out_string(out, token.text, token.text ? token.len : 0);
    json_out_raw(out, "}");
    logprobs_end_token(&token);
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
    logprobs_add_first(choice, prompt->ids[0]);
    for (size_t i = 0; i + 1 < prompt->num_ids; i++) {
        logprobs_add_completion(choice, prompt->logprobs + i * num_columns(prompt),
                                (size_t)num_top);
    }
}

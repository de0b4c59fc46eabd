/* The merges of a SentencePiece model in GGUF, by the scores of its tokens. */
#include <math.h>
#include <stdlib.h>

#include "base/json/json_out.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/tokens/gguf_tokens.h"
#include "checkpoint/tokens/token_json.h"

struct source {
    struct gguf_value tokens, scores, types;
    bool found, has_scores, has_types;
};

static enum status read_source(struct source *source, const struct gguf *gguf, struct err *err) {
    static const char scores_key[] = "tokenizer.ggml.scores";
    enum status status = gguf_read_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING,
                                         &source->tokens, &source->found, err);
    if (!status) {
        status =
            gguf_read_array(gguf, scores_key, GGUF_F32, &source->scores, &source->has_scores, err);
    }
    if (!status) {
        status = gguf_read_array(gguf, "tokenizer.ggml.token_type", GGUF_I32, &source->types,
                                 &source->has_types, err);
    }
    if (status || !source->found) return status;
    if (source->has_scores && source->scores.count == source->tokens.count) return OK;
    return err_set(err, ERR_FORMAT, "%s: \"%s\" does not have a score of each token",
                   gguf_path(gguf), scores_key);
}

static enum status read_tokens(struct token_text *tokens, const struct source *source,
                               const struct gguf *gguf, struct err *err) {
    const char *at = source->tokens.data;
    for (uint64_t id = 0; id < source->tokens.count; id++) {
        struct gguf_string text = gguf_next_string(&at);
        int64_t type = GGUF_TOKEN_NORMAL;
        float score = (float)gguf_real(&source->scores, id);
        if (source->has_types && !gguf_integer(&source->types, id, &type)) type = GGUF_TOKEN_NORMAL;
        // No text is joined to them.
        bool is_never_joined =
            type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_UNKNOWN || type == GGUF_TOKEN_BYTE;
        if (isnan(score) && !is_never_joined) {
            return err_set(err, ERR_FORMAT, "%s: the score of token %llu is not a number",
                           gguf_path(gguf), (unsigned long long)id);
        }
        tokens[id] = (struct token_text){text.text, text.len, score, is_never_joined};
    }
    return OK;
}

enum status gguf_write_spm_merges(const struct gguf *gguf, struct json_out *out, struct err *err) {
    struct source source = {0};
    enum status status = read_source(&source, gguf, err);
    if (status) return status;
    size_t count = source.found ? (size_t)source.tokens.count : 0;
    struct token_text *tokens = calloc(count + 1, sizeof *tokens);
    if (!tokens) return err_nomem(err, "tokens");
    if (count) status = read_tokens(tokens, &source, gguf, err);
    if (!status) status = token_json_merges(tokens, count, false, gguf_path(gguf), out, err);
    free(tokens);
    return status;
}

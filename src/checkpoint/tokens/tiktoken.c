/* tiktoken.model, as Moonshot publishes it for Kimi K2 and Moonlight: on each line a token's bytes
 * in base64 and its rank, which is its id. The expression that cuts words is in the models' Python
 * file, so it is here. The ids after the vocabulary are special tokens, named by
 * tokenizer_config.json; those between them that have no name there are reserved. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "checkpoint/tokens/rank_tokens.h"
#include "checkpoint/tokens/tokenizer_form.h"

enum { SPECIAL_MAX = 1 << 16 };

#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]"
#define ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
const char tiktoken_pattern[] =
    "[\\p{Han}]+"
    "|[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" ENDING "|[^\\r\\n\\p{L}\\p{N}]?[" UPPER
    "]+[" LOWER "]*" ENDING "|\\p{N}{1,3}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+"
    "|\\s+(?!\\S)"
    "|\\s+";

static size_t count_lines(const char *text, size_t len) {
    size_t count = 1;
    for (size_t i = 0; i < len; i++) count += text[i] == '\n';
    return count;
}

// "BASE64 RANK".
static enum status read_line(struct rank_tokens *tokens, const char *line, size_t len,
                             size_t number, struct err *err) {
    const char *space = memchr(line, ' ', len);
    uint64_t rank = 0;
    size_t at = space ? (size_t)(space - line) + 1 : len;
    bool is_rank = at < len && len - at <= 10;
    for (size_t i = at; i < len && is_rank; i++) {
        is_rank = line[i] >= '0' && line[i] <= '9';
        rank = rank * 10 + (uint64_t)(line[i] - '0');
    }
    if (is_rank) return rank_tokens_add(tokens, rank, line, at - 1, err);
    return err_set(err, ERR_FORMAT, "%s: line %zu is no token in base64 with its rank",
                   tokens->what, number);
}

static enum status read_lines(struct rank_tokens *tokens, const struct form_source *source,
                              struct err *err) {
    const char *at = source->text, *end = source->text + source->len;
    enum status status = OK;
    for (size_t number = 1; at < end && !status; number++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) line_end = end;
        size_t len = (size_t)(line_end - at);
        if (len && at[len - 1] == '\r') len--;
        if (len) status = read_line(tokens, at, len, number, err);
        at = line_end + (line_end < end);
    }
    return status;
}

// Ranks are ids, so they must not leave any out.
static enum status check_ranks(struct rank_tokens *tokens, struct err *err) {
    for (size_t rank = 0; rank < tokens->count; rank++) {
        if (tokens->tokens[rank].text) continue;
        return err_set(err, ERR_FORMAT, "%s: no token has rank %zu", tokens->what, rank);
    }
    tokens->count_max = tokens->count;
    return OK;
}

// The number of special tokens up to the last that has a name.
static enum status count_special(const json_t *decoder, const struct rank_tokens *tokens,
                                 size_t *count, struct err *err) {
    const char *key;
    json_t *item;
    *count = 0;
    json_object_foreach((json_t *)(uintptr_t)decoder, key, item) {
        char *end;
        unsigned long long id = strtoull(key, &end, 10);
        if (*end || end == key || id < tokens->count) continue; // checked with the tokenizer
        if (id - tokens->count >= SPECIAL_MAX) {
            return err_set(err, ERR_FORMAT,
                           "%s has %zu tokens, but tokenizer_config.json names one with id %.40s",
                           tokens->what, tokens->count, key);
        }
        if (id - tokens->count >= *count) *count = (size_t)(id - tokens->count) + 1;
    }
    return OK;
}

static enum status read_special(struct special_token *special, size_t count, const json_t *decoder,
                                const struct rank_tokens *tokens, struct err *err) {
    for (size_t i = 0; i < count; i++) {
        char key[24];
        const char *text = NULL;
        bool is_special = false;
        snprintf(key, sizeof key, "%zu", tokens->count + i);
        const json_t *item = json_object_get(decoder, key);
        enum status status = jread_string(item, "content", &text, tokens->what, err);
        if (!status) status = jread_bool(item, "special", &is_special, tokens->what, err);
        if (status) return status;
        special[i] = (struct special_token){.text = text,
                                            .len = text ? strlen(text) : 0,
                                            .filler = tokens->count + i,
                                            .is_plain = !is_special};
    }
    return OK;
}

static enum status write_all(struct rank_tokens *tokens, const json_t *decoder,
                             struct json_out *out, struct err *err) {
    size_t count = 0;
    enum status status = count_special(decoder, tokens, &count, err);
    if (status) return status;
    struct special_token *items = calloc(count + 1, sizeof *items);
    if (!items) return err_nomem(err, "special tokens");
    status = read_special(items, count, decoder, tokens, err);
    const struct special_tokens special = {.items = items,
                                           .count = count,
                                           .first_id = tokens->count,
                                           .filler_begin = "<|reserved_token_",
                                           .filler_end = "|>"};
    if (!status) status = rank_tokens_write(tokens, 0, &special, tiktoken_pattern, -1, out, err);
    free(items);
    return status;
}

enum status tiktoken_write_tokenizer(const struct form_source *source, struct json_out *out,
                                     struct err *err) {
    struct rank_tokens tokens = {0};
    const json_t *decoder = json_object_get(source->config, "added_tokens_decoder");
    if (!json_is_object(decoder)) {
        return err_set(
            err, ERR_FORMAT,
            "%s needs \"added_tokens_decoder\" in tokenizer_config.json beside it, which "
            "names its special tokens",
            source->what);
    }
    size_t count = count_lines(source->text, source->len);
    if (count > RANK_IDS_MAX) {
        return err_set(err, ERR_FORMAT, "%s has %zu lines, want at most %d", source->what, count,
                       RANK_IDS_MAX);
    }
    enum status status = rank_tokens_init(&tokens, count, source->len, source->what, err);
    if (!status) status = read_lines(&tokens, source, err);
    if (!status) status = check_ranks(&tokens, err);
    if (!status) status = write_all(&tokens, decoder, out, err);
    rank_tokens_fini(&tokens);
    return status;
}

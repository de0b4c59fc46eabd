#include "checkpoint/tokens/rank_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/json_out.h"

enum status rank_tokens_init(struct rank_tokens *tokens, size_t count_max, size_t bytes_max,
                             const char *what, struct err *err) {
    *tokens = (struct rank_tokens){.count_max = count_max, .bytes_max = bytes_max, .what = what};
    tokens->tokens = calloc(count_max + 1, sizeof *tokens->tokens);
    tokens->bytes = malloc(bytes_max + 1);
    return tokens->tokens && tokens->bytes ? OK : err_nomem(err, "tokens");
}

void rank_tokens_fini(struct rank_tokens *tokens) {
    free(tokens->tokens);
    free(tokens->bytes);
    *tokens = (struct rank_tokens){0};
}

// -1: no digit of base64.
static int digit_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Whole groups of four, padded with '=', at most two. Returns the number of bytes; 0: bad or empty.
static size_t decode(char *out, const char *base64, size_t len) {
    size_t size = 0, padding = 0;
    if (!len || len % 4) return 0;
    while (padding < 2 && base64[len - 1 - padding] == '=') padding++;
    for (size_t i = 0; i < len; i += 4) {
        uint32_t group = 0;
        size_t num_digits = i + 4 < len ? 4 : 4 - padding;
        for (size_t k = 0; k < 4; k++) {
            int digit = k < num_digits ? digit_of(base64[i + k]) : 0;
            if (digit < 0) return 0;
            group = group << 6 | (uint32_t)digit;
        }
        if (group & ((1u << (8 * (4 - num_digits))) - 1)) return 0; // bits of no byte
        for (size_t k = 0; k + 1 < num_digits; k++) out[size++] = (char)(group >> (16 - 8 * k));
    }
    return size;
}

enum status rank_tokens_add(struct rank_tokens *tokens, uint64_t rank, const char *base64,
                            size_t len, struct err *err) {
    if (rank >= tokens->count_max) {
        return err_set(err, ERR_FORMAT, "%s: a token has rank %llu, want less than %zu",
                       tokens->what, (unsigned long long)rank, tokens->count_max);
    }
    struct token_text *token = &tokens->tokens[rank];
    if (token->text) {
        return err_set(err, ERR_FORMAT, "%s: two tokens have rank %llu", tokens->what,
                       (unsigned long long)rank);
    }
    bool fits = len / 4 * 3 <= tokens->bytes_max - tokens->num_bytes;
    char *bytes = tokens->bytes + tokens->num_bytes;
    size_t size = fits ? decode(bytes, base64, len) : 0;
    if (!size) {
        return err_set(err, ERR_FORMAT, "%s: the bytes of token %llu are not in base64: \"%.*s\"",
                       tokens->what, (unsigned long long)rank, len > 60 ? 60 : (int)len, base64);
    }
    *token = (struct token_text){.text = bytes, .len = size, .score = -(float)rank};
    tokens->num_bytes += size;
    tokens->count++;
    return OK;
}

// Each byte needs a token, or texts would lose it.
static enum status check_bytes(const struct rank_tokens *tokens, struct err *err) {
    bool has[256] = {false};
    for (size_t rank = 0; rank < tokens->count_max; rank++) {
        const struct token_text *token = &tokens->tokens[rank];
        if (token->text && token->len == 1) has[(unsigned char)token->text[0]] = true;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        if (has[byte]) continue;
        return err_set(err, ERR_FORMAT, "%s: byte 0x%02x has no token", tokens->what, byte);
    }
    return OK;
}

static void write_special(const struct special_tokens *special, size_t i, struct json_out *out) {
    const struct special_token *token = &special->items[i];
    if (token->text) {
        json_out_string(out, token->text, token->len);
    } else {
        json_out_rawf(out, "\"%s%llu%s\"", special->filler_begin, (unsigned long long)token->filler,
                      special->filler_end);
    }
}

static void write_vocab(const struct rank_tokens *tokens, uint64_t first_id,
                        const struct special_tokens *special, struct json_out *out) {
    bool is_first = true;
    json_out_raw(out, "\"vocab\": {");
    for (size_t i = 0; i < special->count; i++) {
        json_out_raw(out, is_first ? "" : ", ");
        write_special(special, i, out);
        json_out_rawf(out, ": %llu", (unsigned long long)(special->first_id + i));
        is_first = false;
    }
    for (size_t rank = 0; rank < tokens->count_max; rank++) {
        const struct token_text *token = &tokens->tokens[rank];
        if (!token->text) continue;
        json_out_raw(out, is_first ? "" : ", ");
        token_json_byte_level(out, token->text, token->len);
        json_out_rawf(out, ": %llu", (unsigned long long)(first_id + rank));
        is_first = false;
    }
    json_out_raw(out, "}, ");
}

static void write_added_tokens(const struct special_tokens *special, struct json_out *out) {
    json_out_raw(out, "\"added_tokens\": [");
    for (size_t i = 0; i < special->count; i++) {
        json_out_rawf(out, "%s{\"id\": %llu, \"content\": ", i ? ", " : "",
                      (unsigned long long)(special->first_id + i));
        write_special(special, i, out);
        json_out_rawf(out, ", \"normalized\": false, \"special\": %s}",
                      special->items[i].is_plain ? "false" : "true");
    }
    json_out_raw(out, "], ");
}

enum status rank_tokens_write(struct rank_tokens *tokens, uint64_t first_id,
                              const struct special_tokens *special, const char *pattern,
                              int64_t bos, struct json_out *out, struct err *err) {
    const char *const patterns[] = {pattern, NULL};
    enum status status = check_bytes(tokens, err);
    if (status) return status;
    json_out_raw(out, "{\"version\": \"1.0\", ");
    token_json_byte_level_components(out, patterns);
    if (bos >= 0) {
        const struct special_token *token = &special->items[bos - (int64_t)special->first_id];
        const struct token_text text = {.text = token->text, .len = token->len};
        token_json_post_processor(out, &text, bos, NULL, -1);
    }
    write_added_tokens(special, out);
    json_out_raw(out, "\"model\": {\"type\": \"BPE\", \"ignore_merges\": true, ");
    write_vocab(tokens, first_id, special, out);
    status = token_json_merges(tokens->tokens, tokens->count_max, true, tokens->what, out, err);
    json_out_raw(out, "}}");
    return status;
}

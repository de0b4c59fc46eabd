#include "checkpoint/tokens/tekken_vocab.h"

#include <string.h>

#include "checkpoint/tokens/rank_tokens.h"

enum { RANK_DIGITS_MAX = 7 }; // of RANK_IDS_MAX

// Takes `c` and the spaces around it.
static bool take(const char **p, const char *end, char c) {
    const char *q = json_skip_spaces(*p, end);
    if (q == end || *q != c) return false;
    *p = json_skip_spaces(q + 1, end);
    return true;
}

static bool take_digits(const char **p, const char *end, int64_t *value) {
    const char *digits = *p;
    for (*value = 0; *p < end && **p >= '0' && **p <= '9'; ++*p) {
        if (*p - digits == RANK_DIGITS_MAX) return false;
        *value = *value * 10 + (**p - '0');
    }
    return *p > digits && (*digits != '0' || *p == digits + 1);
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Takes an escape; *p is at its backslash. Halves of surrogate pairs are not counted, since no
// string with an escape is used.
static bool take_escape(const char **p, const char *end) {
    if (end - *p < 2 || !memchr("\"\\/bfnrtu", (*p)[1], 9)) return false;
    size_t num_digits = (*p)[1] == 'u' ? 4 : 0;
    *p += 2;
    if ((size_t)(end - *p) < num_digits) return false;
    for (size_t i = 0; i < num_digits; i++) {
        if (!is_hex((*p)[i])) return false;
    }
    *p += num_digits;
    return true;
}

// `out` is what stands between the quotes.
static bool take_string(const char **p, const char *end, struct json_span *out, bool *has_escapes) {
    if (*p == end || **p != '"') return false;
    out->text = ++*p;
    while (*p < end && **p != '"') {
        if ((unsigned char)**p < 0x20) return false;
        if (**p != '\\') {
            ++*p;
            continue;
        }
        *has_escapes = true;
        if (!take_escape(p, end)) return false;
    }
    out->len = (size_t)(*p - out->text);
    return *p < end && *(*p)++ == '"';
}

// The value of `key`. A key may come once.
static bool take_member(const char **p, const char *end, struct json_span key,
                        struct tekken_token *token, struct json_span *text) {
    bool has_escapes = false;
    if (json_span_is(key, "rank")) return token->rank < 0 && take_digits(p, end, &token->rank);
    if (json_span_is(key, "token_bytes")) {
        if (token->bytes.text) return false;
        return take_string(p, end, &token->bytes, &has_escapes) && !has_escapes;
    }
    if (!json_span_is(key, "token_str") || text->text) return false;
    if (end - *p < 4 || memcmp(*p, "null", 4) != 0) return take_string(p, end, text, &has_escapes);
    *text = (struct json_span){*p, 4};
    *p += 4;
    return true;
}

static bool take_plain_token(const char **p, const char *end, struct tekken_token *token) {
    struct json_span text = {0};
    if (!take(p, end, '{')) return false;
    do {
        struct json_span key;
        bool has_escapes = false;
        if (!take_string(p, end, &key, &has_escapes) || !take(p, end, ':')) return false;
        if (!take_member(p, end, key, token, &text)) return false;
    } while (take(p, end, ','));
    return take(p, end, '}');
}

static enum status read_with_jansson(const struct tekken_vocab *vocab, struct json_span item,
                                     struct tekken_token *token, struct err *err) {
    const char *bytes = NULL;
    enum status status = jread_request(&token->item, item.text, item.len, vocab->what, err);
    if (!status) status = jread_string(token->item, "token_bytes", &bytes, vocab->what, err);
    if (!status) {
        status = jread_int(token->item, "rank", 0, RANK_IDS_MAX, &token->rank, vocab->what, err);
    }
    if (status || !bytes) return status;
    size_t len = json_string_length(json_object_get(token->item, "token_bytes"));
    token->bytes = (struct json_span){bytes, len};
    return OK;
}

static enum status no_list(const struct tekken_vocab *vocab, struct err *err) {
    size_t at = (size_t)((vocab->p ? vocab->p : vocab->list.text) - vocab->list.text);
    return err_set(err, ERR_FORMAT, "%s: \"vocab\" is no list of tokens at byte %zu of this value",
                   vocab->what, at);
}

enum status tekken_vocab_next(struct tekken_vocab *vocab, struct tekken_token *token, bool *found,
                              struct err *err) {
    *token = (struct tekken_token){.rank = -1};
    *found = false;
    if (!vocab->list.text) return OK;
    const char *end = vocab->list.text + vocab->list.len;
    bool is_first = !vocab->p;
    const char *p = is_first ? vocab->list.text : vocab->p;
    if (is_first && !take(&p, end, '[')) return no_list(vocab, err);
    vocab->p = p;
    if (take(&p, end, ']')) return OK;
    if (!is_first && !take(&p, end, ',')) return no_list(vocab, err);
    *found = true;
    vocab->p = p;
    if (take_plain_token(&vocab->p, end, token)) return OK;
    *token = (struct tekken_token){.rank = -1};
    const char *item_end = json_skip_value(p, end);
    vocab->p = item_end ? item_end : p;
    if (!item_end || *p != '{') return no_list(vocab, err);
    enum status status =
        read_with_jansson(vocab, (struct json_span){p, (size_t)(item_end - p)}, token, err);
    if (status) tekken_token_fini(token);
    return status;
}

void tekken_token_fini(struct tekken_token *token) {
    json_decref(token->item);
    token->item = NULL;
}

/* tekken.json, as Mistral publishes it: the vocabulary by ranks, each token's bytes in base64; the
 * expression that cuts words; special tokens. The special tokens have the first ids, and the
 * vocabulary, cut to the rest of default_vocab_size, the ids after them. A text begins with <s>. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "base/json/json_out.h"
#include "checkpoint/tokens/rank_tokens.h"
#include "checkpoint/tokens/tekken_vocab.h"
#include "checkpoint/tokens/tokenizer_form.h"

// The special tokens of files that list none, up to version 7.
static const char *const old_special[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};
enum { OLD_VERSION_MAX = 7, SPECIAL_MAX = 1 << 16 };
static const char bos_text[] = "<s>";

struct tekken {
    const json_t *root;
    const char *what;
    const char *pattern;
    int64_t vocab_size, num_special;
    struct special_token *special; // [num_special]
    struct json_span vocab; // a list
    struct rank_tokens tokens;
};

// Finds the vocabulary, which is nearly all of the file. Where its key comes twice, jansson sees
// the duplicate.
static struct json_span find_vocab(const struct form_source *source) {
    const char *p = source->text, *end = p + source->len;
    struct json_span key;
    while (p && json_next_key(&p, end, &key)) {
        const char *value = p;
        p = json_skip_value(p, end);
        if (p && *value == '[' && json_span_is(key, "vocab")) {
            return (struct json_span){value, (size_t)(p - value)};
        }
    }
    return (struct json_span){0};
}

static enum status read_config(struct tekken *tekken, struct err *err) {
    const json_t *config = json_object_get(tekken->root, "config");
    const char *what = tekken->what;
    if (!json_is_object(config)) {
        return err_set(err, ERR_FORMAT, "%s: \"config\" is %s, want an object", what,
                       jread_type_name(config));
    }
    tekken->vocab_size = tekken->num_special = -1;
    enum status status = jread_string(config, "pattern", &tekken->pattern, what, err);
    if (!status) {
        status = jread_int(config, "default_vocab_size", 1, RANK_IDS_MAX, &tekken->vocab_size, what,
                           err);
    }
    if (!status) {
        status = jread_int(config, "default_num_special_tokens", 1, SPECIAL_MAX,
                           &tekken->num_special, what, err);
    }
    if (status) return status;
    const char *missing = !tekken->pattern          ? "pattern"
                          : tekken->vocab_size < 0  ? "default_vocab_size"
                          : tekken->num_special < 0 ? "default_num_special_tokens"
                                                    : NULL;
    if (missing) return err_set(err, ERR_FORMAT, "%s: config has no \"%s\"", what, missing);
    if (strlen(tekken->pattern) != json_string_length(json_object_get(config, "pattern"))) {
        return err_set(err, ERR_FORMAT, "%s: \"pattern\" contains a NUL character", what);
    }
    if (tekken->num_special < tekken->vocab_size) return OK;
    return err_set(err, ERR_FORMAT, "%s: all of the %lld ids are special tokens", what,
                   (long long)tekken->vocab_size);
}

static enum status use_old_special(struct tekken *tekken, struct err *err) {
    const char *version = NULL;
    enum status status = jread_string(json_object_get(tekken->root, "config"), "version", &version,
                                      tekken->what, err);
    if (status) return status;
    if (version && (*version != 'v' || strtol(version + 1, NULL, 10) > OLD_VERSION_MAX)) {
        return err_set(err, ERR_FORMAT, "%s: version \"%.40s\" has no list \"special_tokens\"",
                       tekken->what, version);
    }
    for (size_t i = 0; i < ARRAY_LEN(old_special) && i < (size_t)tekken->num_special; i++) {
        tekken->special[i].text = old_special[i];
        tekken->special[i].len = strlen(old_special[i]);
    }
    return OK;
}

static enum status read_special_token(struct tekken *tekken, size_t index, const json_t *item,
                                      struct err *err) {
    const char *text = NULL;
    int64_t rank = (int64_t)index;
    bool is_control = true;
    const char *what = tekken->what;
    if (!json_is_object(item)) {
        return err_set(err, ERR_FORMAT, "%s: special token %zu is %s, want an object", what, index,
                       jread_type_name(item));
    }
    enum status status = jread_string(item, "token_str", &text, what, err);
    if (!status) status = jread_int(item, "rank", 0, tekken->num_special - 1, &rank, what, err);
    if (!status) status = jread_bool(item, "is_control", &is_control, what, err);
    if (status) return status;
    struct special_token *token = &tekken->special[rank];
    if (!text || !*text || token->text) {
        return err_set(err, ERR_FORMAT, "%s: special token %zu has %s", what, index,
                       token->text ? "the rank of another" : "no text");
    }
    token->text = text;
    token->len = json_string_length(json_object_get(item, "token_str"));
    token->is_plain = !is_control;
    return OK;
}

static enum status read_special(struct tekken *tekken, struct err *err) {
    const json_t *list = jread_get(tekken->root, "special_tokens");
    tekken->special = calloc((size_t)tekken->num_special, sizeof *tekken->special);
    if (!tekken->special) return err_nomem(err, "special tokens");
    for (size_t i = 0; i < (size_t)tekken->num_special; i++) tekken->special[i].filler = i;
    if (!list) return use_old_special(tekken, err);
    if (!json_is_array(list)) {
        return err_set(err, ERR_FORMAT, "%s: \"special_tokens\" is %s, want a list", tekken->what,
                       jread_type_name(list));
    }
    enum status status = OK;
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        status = read_special_token(tekken, i, json_array_get(list, i), err);
    }
    return status;
}

static enum status add_token(struct tekken *tekken, size_t index, const struct tekken_token *token,
                             struct err *err) {
    bool has_rank = token->rank < 0 || token->rank == (int64_t)index;
    if (!token->bytes.text || !has_rank) {
        return err_set(err, ERR_FORMAT, "%s: token %zu of the vocabulary has %s", tekken->what,
                       index, has_rank ? "no bytes" : "another rank than its place");
    }
    return rank_tokens_add(&tekken->tokens, index, token->bytes.text, token->bytes.len, err);
}

// Reads the vocabulary and cuts it to the ids that special tokens leave.
static enum status read_vocab(struct tekken *tekken, size_t bytes_max, struct err *err) {
    size_t count = (size_t)(tekken->vocab_size - tekken->num_special), index = 0;
    enum status status = rank_tokens_init(&tekken->tokens, count, bytes_max, tekken->what, err);
    struct tekken_vocab vocab = {.list = tekken->vocab, .what = tekken->what};
    while (!status) {
        struct tekken_token token;
        bool found = false;
        status = tekken_vocab_next(&vocab, &token, &found, err);
        if (status || !found) break;
        if (index < count) status = add_token(tekken, index, &token, err);
        tekken_token_fini(&token);
        index++;
    }
    if (status || index >= count) return status;
    return err_set(err, ERR_FORMAT, "%s: \"vocab\" is no list of at least %zu tokens", tekken->what,
                   count);
}

static enum status find_bos(const struct tekken *tekken, int64_t *bos, struct err *err) {
    for (*bos = 0; *bos < tekken->num_special; ++*bos) {
        const char *text = tekken->special[*bos].text;
        if (text && strcmp(text, bos_text) == 0) return OK;
    }
    return err_set(err, ERR_FORMAT, "%s has no special token %s", tekken->what, bos_text);
}

enum status tekken_write_tokenizer(const struct form_source *source, struct json_out *out,
                                   struct err *err) {
    struct tekken tekken = {.what = source->what, .vocab = find_vocab(source)};
    json_t *root = NULL;
    int64_t bos = -1;
    enum status status = json_span_read_rest(&root, (struct json_span){source->text, source->len},
                                             &tekken.vocab, 1, jread_request, source->what, err);
    tekken.root = root;
    if (!status) status = read_config(&tekken, err);
    if (!status) status = read_special(&tekken, err);
    if (!status) status = find_bos(&tekken, &bos, err);
    if (!status) status = read_vocab(&tekken, source->len, err);
    if (!status) {
        const struct special_tokens special = {.items = tekken.special,
                                               .count = (size_t)tekken.num_special,
                                               .filler_begin = "<SPECIAL_",
                                               .filler_end = ">"};
        status = rank_tokens_write(&tekken.tokens, special.count, &special, tekken.pattern, bos,
                                   out, err);
    }
    rank_tokens_fini(&tekken.tokens);
    free(tekken.special);
    json_decref(root);
    return status;
}

enum status tekken_write_config(const struct form_source *source, struct json_out *out,
                                struct err *err) {
    (void)source, (void)err;
    json_out_raw(out, "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    return OK;
}

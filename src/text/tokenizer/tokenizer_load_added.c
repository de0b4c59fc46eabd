/* Added tokens: those of tokenizer.json and of "added_tokens_decoder" in tokenizer_config.json, put
 * together as transformers does. A token in both files has the flags of the second, but is special
 * where either file says so. Tokens that only the second file has are added after the others, in
 * the order of their ids. */
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "text/tokenizer/tokenizer_parts.h"

struct added_fields {
    const char *text;
    int64_t id;
    bool single_word, lstrip, rstrip, normalized, special;
};

struct loading {
    struct tokenizer *tokenizer;
    struct added_fields *tokens; // [num_tokens], in the order of addition
    size_t num_tokens;
    int64_t max_id; // the largest id of an added token so far; -1: none
    struct err *err;
};

// Refuses unknown keys: one may be a misspelled flag, which would silently stay off. `unless` is
// known too.
static enum status check_keys(const json_t *item, const char *unless, const char *what,
                              struct err *err) {
    static const char *const known[] = {"content", "single_word", "lstrip",
                                        "rstrip",  "normalized",  "special"};
    for (void *it = json_object_iter((json_t *)(uintptr_t)item); it;
         it = json_object_iter_next((json_t *)(uintptr_t)item, it)) {
        const char *key = json_object_iter_key(it);
        size_t i = 0;
        while (i < ARRAY_LEN(known) && strcmp(key, known[i]) != 0) i++;
        if (i < ARRAY_LEN(known) || strcmp(key, unless) == 0) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: an added token has the key \"%.60s\", which is not known", what, key);
    }
    return OK;
}

// Reads the content and the flags. Missing flags are off; a missing "normalized" leaves
// fields->normalized as it is.
static enum status read_fields(const json_t *item, struct added_fields *fields, const char *what,
                               struct err *err) {
    enum status status = jread_string(item, "content", &fields->text, what, err);
    if (!status) status = jread_bool(item, "single_word", &fields->single_word, what, err);
    if (!status) status = jread_bool(item, "lstrip", &fields->lstrip, what, err);
    if (!status) status = jread_bool(item, "rstrip", &fields->rstrip, what, err);
    if (!status) status = jread_bool(item, "special", &fields->special, what, err);
    return status ? status : jread_bool(item, "normalized", &fields->normalized, what, err);
}

static enum status read_own(const json_t *item, struct added_fields *fields, const char *what,
                            struct err *err) {
    *fields = (struct added_fields){.id = -1, .normalized = true};
    if (!json_is_object(item)) {
        return err_set(err, ERR_FORMAT, "%s: an added token is %s, want an object", what,
                       jread_type_name(item));
    }
    enum status status = check_keys(item, "id", what, err);
    if (!status) status = jread_int(item, "id", 0, VOCAB_IDS_MAX - 1, &fields->id, what, err);
    if (!status) status = read_fields(item, fields, what, err);
    if (!status && (!fields->text || !*fields->text || fields->id < 0)) {
        return err_set(err, ERR_FORMAT, "%s: an added token has no content or no id", what);
    }
    return status;
}

// Reads an id in decimal digits without leading zeros; -1: it is none.
static int64_t read_id(const char *key) {
    int64_t id = 0;
    if (!*key || (*key == '0' && key[1])) return -1;
    for (const char *p = key; *p; p++) {
        if (*p < '0' || *p > '9') return -1;
        id = id * 10 + (*p - '0');
        if (id >= VOCAB_IDS_MAX) return -1;
    }
    return id;
}

static enum status read_config_token(const char *key, const json_t *item,
                                     struct added_fields *fields, const char *what,
                                     struct err *err) {
    *fields = (struct added_fields){.id = read_id(key)};
    if (fields->id < 0) {
        return err_set(err, ERR_FORMAT,
                       "%s: added_tokens_decoder has the key \"%.60s\", want an id below %d", what,
                       key, VOCAB_IDS_MAX);
    }
    if (!json_is_object(item)) {
        return err_set(err, ERR_FORMAT, "%s: added_tokens_decoder: token %s is %s, want an object",
                       what, key, jread_type_name(item));
    }
    enum status status = check_keys(item, "__type", what, err);
    if (!status) status = jread_bool(item, "special", &fields->special, what, err);
    fields->normalized = !fields->special;
    if (!status) status = read_fields(item, fields, what, err);
    if (!status && (!fields->text || !*fields->text)) {
        return err_set(err, ERR_FORMAT, "%s: added_tokens_decoder: token %s has no content", what,
                       key);
    }
    return status;
}

// Gives the token its place in the vocabulary. Hugging Face numbers added tokens itself: tokens of
// the model keep their id, others get ascending ids. A file with other ids is refused.
static enum status place(struct loading *loading, const struct added_fields *fields,
                         const char *what) {
    struct vocab *vocab = &loading->tokenizer->bpe.vocab;
    size_t len = strlen(fields->text);
    uint32_t flags = TOKEN_ADDED | (fields->special ? TOKEN_SPECIAL : 0);
    uint32_t id;
    if (vocab_find(vocab, fields->text, len, &id)) {
        if (!(vocab->tokens[id].flags & TOKEN_MODEL)) {
            return err_set(loading->err, ERR_FORMAT, "%s: added token \"%.60s\" appears twice",
                           what, fields->text);
        }
        vocab->tokens[id].flags |= flags;
    } else {
        int64_t num_model = (int64_t)vocab->num_model_tokens;
        id = (uint32_t)(loading->max_id >= num_model ? loading->max_id + 1 : num_model);
        if (id == (uint64_t)fields->id) {
            enum status status = vocab_add(vocab, fields->text, len, id, flags, loading->err);
            if (status == ERR_INVALID) {
                return err_set(loading->err, ERR_FORMAT,
                               "%s: added token \"%.60s\" has the id %u of another", what,
                               fields->text, id);
            }
            if (status) return status;
        }
    }
    if (loading->max_id < id) loading->max_id = id;
    if (id == (uint64_t)fields->id) return OK;
    return err_set(loading->err, ERR_FORMAT,
                   "%s: added token \"%.60s\" has id %lld, but Hugging Face tokenizers gives it %u",
                   what, fields->text, (long long)fields->id, id);
}

static enum status load_own(struct loading *loading, const json_t *items, const char *what) {
    enum status status = OK;
    for (size_t i = 0; i < json_array_size(items) && !status; i++) {
        struct added_fields fields;
        status = read_own(json_array_get(items, i), &fields, what, loading->err);
        if (!status) status = place(loading, &fields, what);
        if (!status) loading->tokens[loading->num_tokens++] = fields;
    }
    return status;
}

// Whether the file gives the text a role (bos_token and the like). Such tokens are special whatever
// their flags say.
static bool has_role(const json_t *config, const char *text) {
    static const char *const roles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        const json_t *token = json_object_get(config, roles[i]);
        if (json_is_object(token)) token = json_object_get(token, "content");
        if (json_is_string(token) && strcmp(json_string_value(token), text) == 0) return true;
    }
    return false;
}

static int compare_ids(const void *a, const void *b) {
    const struct added_fields *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

// Adds a token of tokenizer_config.json; they come in ascending order of ids. token_of_id [num_ids]
// is the index + 1 of tokenizer.json's token with an id; 0: none.
static enum status merge(struct loading *loading, const struct added_fields *fields,
                         const uint32_t *token_of_id, size_t num_ids, const char *what) {
    struct vocab *vocab = &loading->tokenizer->bpe.vocab;
    uint32_t id;
    bool known = vocab_find(vocab, fields->text, strlen(fields->text), &id) && id < num_ids &&
                 token_of_id[id];
    if (!known) {
        enum status status = place(loading, fields, what);
        if (!status) loading->tokens[loading->num_tokens++] = *fields;
        return status;
    }
    if (id != (uint64_t)fields->id) {
        return err_set(loading->err, ERR_FORMAT,
                       "%s: added_tokens_decoder gives \"%.60s\" the id %lld, tokenizer.json %u",
                       what, fields->text, (long long)fields->id, id);
    }
    if (fields->special) vocab->tokens[id].flags |= TOKEN_SPECIAL;
    loading->tokens[token_of_id[id] - 1] = *fields;
    return OK;
}

static enum status load_config(struct loading *loading, const json_t *decoder,
                               const struct added_source *config) {
    size_t num_ids = loading->tokenizer->bpe.vocab.num_ids, count = 0;
    struct added_fields *sorted = malloc((json_object_size(decoder) + 1) * sizeof *sorted);
    uint32_t *token_of_id = calloc(num_ids + 1, sizeof *token_of_id);
    enum status status = sorted && token_of_id ? OK : err_nomem(loading->err, "added tokens");
    for (void *it = json_object_iter((json_t *)(uintptr_t)decoder); it && !status;
         it = json_object_iter_next((json_t *)(uintptr_t)decoder, it)) {
        struct added_fields *fields = &sorted[count++];
        status = read_config_token(json_object_iter_key(it), json_object_iter_value(it), fields,
                                   config->what, loading->err);
        if (!status && has_role(config->root, fields->text)) fields->special = true;
    }
    if (!status) qsort(sorted, count, sizeof *sorted, compare_ids);
    for (size_t i = 0; i < loading->num_tokens && !status; i++) {
        token_of_id[loading->tokens[i].id] = (uint32_t)i + 1;
    }
    for (size_t i = 0; i < count && !status; i++) {
        status = merge(loading, &sorted[i], token_of_id, num_ids, config->what);
    }
    free(sorted);
    free(token_of_id);
    return status;
}

// Puts the token into the set that finds it. A token that is matched in normalised text is
// normalised first.
static enum status put(struct loading *loading, const struct added_fields *fields,
                       struct tokenizer_scratch *scratch, const char *what) {
    struct tokenizer *tokenizer = loading->tokenizer;
    const char *text = fields->text;
    size_t len = strlen(text);
    if (fields->normalized) {
        enum status status = tokenizer_normalize(tokenizer, scratch, &text, &len, loading->err);
        if (!status && text != fields->text) { // as in Hugging Face it also decodes to that text
            status = vocab_set_decoded(&tokenizer->bpe.vocab, (uint32_t)fields->id, text, len,
                                       loading->err);
        }
        if (status) return status;
    }
    if (len == 0) {
        return err_set(loading->err, ERR_UNSUPPORTED,
                       "%s: the normalizer removes all of the added token \"%.60s\"", what,
                       fields->text);
    }
    const struct added_token token = {.text = text,
                                      .len = len,
                                      .id = (int32_t)fields->id,
                                      .single_word = fields->single_word,
                                      .lstrip = fields->lstrip,
                                      .rstrip = fields->rstrip,
                                      .normalized = fields->normalized};
    return added_set_put(fields->normalized ? &tokenizer->normalized : &tokenizer->raw, &token,
                         loading->err);
}

static enum status put_all(struct loading *loading, const char *what) {
    struct tokenizer *tokenizer = loading->tokenizer;
    struct tokenizer_scratch scratch = {0};
    size_t total = 0;
    for (size_t i = 0; i < loading->num_tokens; i++) total += strlen(loading->tokens[i].text);
    tokenizer_scratch_begin(&scratch, total, NULL);
    enum status status = OK;
    for (size_t i = 0; i < loading->num_tokens && !status; i++) {
        status = put(loading, &loading->tokens[i], &scratch, what);
    }
    tokenizer_scratch_fini(&scratch);
    struct added_set *const sets[] = {&tokenizer->raw, &tokenizer->normalized};
    for (size_t i = 0; i < ARRAY_LEN(sets) && !status; i++) {
        const struct added_token *duplicate;
        added_set_finish(sets[i], tokenizer->flags, &duplicate);
        if (!duplicate) continue;
        status =
            err_set(loading->err, ERR_FORMAT, "%s: two added tokens stand for the text \"%.*s\"",
                    what, duplicate->len > 60 ? 60 : (int)duplicate->len, duplicate->text);
    }
    return status;
}

enum status tokenizer_load_added_tokens(struct tokenizer *tokenizer, const struct added_source *own,
                                        const struct added_source *config, struct err *err) {
    const json_t *items = jread_get(own->root, "added_tokens");
    if (items && !json_is_array(items)) {
        return err_set(err, ERR_FORMAT, "%s: \"added_tokens\" is %s, want a list", own->what,
                       jread_type_name(items));
    }
    if (config->root && !json_is_object(config->root)) {
        return err_set(err, ERR_FORMAT, "%s is %s, want an object", config->what,
                       jread_type_name(config->root));
    }
    const json_t *decoder = jread_get(config->root, "added_tokens_decoder");
    if (decoder && !json_is_object(decoder)) {
        return err_set(err, ERR_FORMAT, "%s: \"added_tokens_decoder\" is %s, want an object",
                       config->what, jread_type_name(decoder));
    }
    size_t num_tokens_max = json_array_size(items) + json_object_size(decoder);
    struct added_fields *tokens = malloc((num_tokens_max + 1) * sizeof *tokens);
    if (!tokens) return err_nomem(err, "added tokens");
    struct loading loading = {.tokenizer = tokenizer, .tokens = tokens, .max_id = -1, .err = err};
    enum status status = load_own(&loading, items, own->what);
    if (!status && decoder) status = load_config(&loading, decoder, config);
    if (!status) status = put_all(&loading, own->what);
    free(tokens);
    return status;
}

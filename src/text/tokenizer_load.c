/* Building a tokenizer from tokenizer.json: the model and the added tokens. Everything is checked
 * here, so that encoding and decoding have only memory to run out of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/jread.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_parts.h"

enum { TEXT_BYTES_MAX = 1 << 30 };

// A token's text for an error message: short, whatever it is.
static int shown(size_t len) {
    return len > 60 ? 60 : (int)len;
}

// Reads straight from the file's text: there is no copy of it in between.
static enum status load_vocab(struct vocab *vocab, struct json_span span, const char *what,
                              struct err *err) {
    struct json_reader reader;
    json_reader_init(&reader, span, what, "model.vocab");
    enum status status = buf_reserve(&vocab->data, span.len / 2, err);
    while (!status) {
        bool found;
        int64_t id;
        status = json_reader_next_entry(&reader, &id, &found, err);
        if (status || !found) break;
        const struct buf *text = &reader.first;
        if (id >= VOCAB_IDS_MAX) {
            status = err_set(err, ERR_FORMAT, "%s: token \"%.*s\" has id %lld, want less than %d",
                             what, shown(text->len), text->data, (long long)id, VOCAB_IDS_MAX);
            break;
        }
        status = vocab_add(vocab, text->data, text->len, (uint32_t)id, TOKEN_MODEL, err);
        if (status == ERR_INVALID) {
            status = err_set(err, ERR_FORMAT, "%s: token \"%.*s\" or its id %lld appears twice",
                             what, shown(text->len), text->data, (long long)id);
        }
    }
    json_reader_fini(&reader);
    return status;
}

// How many merges there can be at most: an element takes two quotes at least.
static size_t count_merges(struct json_span span) {
    size_t quotes = 0;
    const char *p = span.text, *end = span.text + span.len;
    bool pairs = false;
    for (; p < end && (p = memchr(p, '"', (size_t)(end - p))); p++) quotes++;
    p = span.text + 1;
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    pairs = p < end && *p == '[';
    return pairs ? quotes / 4 + 1 : quotes / 2 + 1;
}

// An empty token would make a join that joins nothing: it is refused with the unknown ones.
static enum status find_merged(const struct vocab *vocab, const struct buf *text, uint32_t *id,
                               size_t rank, const char *what, struct err *err) {
    if (text->len && vocab_find(vocab, text->data, text->len, id)) return OK;
    return err_set(err, ERR_FORMAT, "%s: merge %zu names \"%.*s\", which is not in the vocabulary",
                   what, rank, shown(text->len), text->data ? text->data : "");
}

static enum status load_merges(struct bpe *bpe, struct json_span span, const char *what,
                               struct err *err) {
    struct json_reader reader;
    struct buf joined = {0};
    json_reader_init(&reader, span, what, "model.merges");
    size_t num_merges_max = count_merges(span);
    enum status status = bpe_reserve_merges(bpe, num_merges_max, err);
    while (!status) {
        bool found;
        uint32_t left, right, new_id;
        status = json_reader_next_pair(&reader, &found, err);
        if (status || !found) break;
        if (bpe->num_merges == num_merges_max) { // the two forms mixed
            status = err_set(err, ERR_FORMAT, "%s: model.merges mixes strings and pairs", what);
            break;
        }
        size_t rank = bpe->num_merges;
        status = find_merged(&bpe->vocab, &reader.first, &left, rank, what, err);
        if (!status) status = find_merged(&bpe->vocab, &reader.second, &right, rank, what, err);
        if (status) break;
        buf_clear(&joined);
        status = buf_append(&joined, reader.first.data, reader.first.len, err);
        if (!status) status = buf_append(&joined, reader.second.data, reader.second.len, err);
        if (!status) status = find_merged(&bpe->vocab, &joined, &new_id, rank, what, err);
        if (!status) bpe_add_merge(bpe, left, right, new_id);
    }
    buf_fini(&joined);
    json_reader_fini(&reader);
    return status;
}

// Options of the model that must be off: absent, null, false, 0 or "", each of its own type.
static enum status check_off(const json_t *model, const char *what, struct err *err) {
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    double dropout = 0;
    enum status status = jread_number(model, "dropout", &dropout, what, err);
    if (status) return status;
    const char *on = dropout != 0 ? "dropout" : NULL;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char *text = "";
        status = jread_string(model, texts[i], &text, what, err);
        if (status) return status;
        if (*text) on = texts[i];
    }
    if (!on) return OK;
    return err_set(err, ERR_UNSUPPORTED, "%s: model: \"%s\" is not supported", what, on);
}

// What Hugging Face does to every encoded text where the file says so. Padding evens out the texts
// of a batch, which there is none of here.
static enum status check_encoding(const json_t *root, const char *what, struct err *err) {
    static const char *const keys[] = {"truncation", "padding"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const json_t *value = jread_get(root, keys[i]);
        if (!value || json_is_object(value)) continue;
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s, want an object or null", what, keys[i],
                       jread_type_name(value));
    }
    if (!jread_get(root, "truncation")) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"truncation\" would cut long prompts, which is not supported, want null",
                   what);
}

// The tokens of the single bytes in the byte-level alphabet; *missing is one that has none, or -1.
static enum status load_bytes(struct bpe *bpe, int *missing, struct err *err) {
    struct buf text = {0};
    enum status status = OK;
    *missing = -1;
    for (unsigned byte = 0; byte < 256 && !status; byte++) {
        const unsigned char one = (unsigned char)byte;
        uint32_t id;
        buf_clear(&text);
        status = vocab_spell(&bpe->vocab, &one, 1, &text, err);
        if (status) break;
        bool found = vocab_find(&bpe->vocab, text.data, text.len, &id);
        bpe->byte_ids[byte] = found ? (int32_t)id : -1;
        if (!found) *missing = (int)byte;
    }
    buf_fini(&text);
    return status;
}

// The tokens of single bytes and characters, and what stands for one that has none.
static enum status load_symbols(struct bpe *bpe, const json_t *model, const char *what,
                                struct err *err) {
    bpe->unk_id = -1;
    const char *unk = NULL;
    enum status status = jread_string(model, "unk_token", &unk, what, err);
    if (status) return status;
    uint32_t id;
    bool known = unk && vocab_find(&bpe->vocab, unk, strlen(unk), &id);
    if (known) bpe->unk_id = (int32_t)id;
    int missing = -1;
    if (bpe->vocab.byte_level) {
        status = load_bytes(bpe, &missing, err);
    } else {
        status = bpe_use_characters(bpe, err);
        for (int byte = 0; byte < 256; byte++) {
            if (bpe->byte_ids[byte] < 0 || !bpe->byte_fallback) missing = byte;
        }
    }
    if (status || missing < 0) return status;
    if (unk && !known) {
        return err_set(err, ERR_FORMAT,
                       "%s: byte 0x%02x has no token, and neither has unk_token \"%.60s\"", what,
                       (unsigned)missing, unk);
    }
    if (!bpe->vocab.byte_level || !bpe->byte_fallback) return OK;
    // The alphabet's characters, not the text's bytes, would be spelled in bytes.
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: model: \"byte_fallback\" beside ByteLevel is not supported unless each "
                   "byte has a token, which 0x%02x has not",
                   what, (unsigned)missing);
}

// The options first: they say more about a file that is not ours than its vocabulary does.
static enum status load_model(struct tokenizer *tokenizer,
                              const struct tokenizer_document *document, const char *what,
                              struct err *err) {
    const json_t *model = json_object_get(document->root, "model");
    if (!json_is_object(model)) {
        return err_set(err, ERR_FORMAT, "%s: \"model\" is %s, want an object", what,
                       jread_type_name(model));
    }
    const char *type = "BPE"; // old files have none
    enum status status = jread_string(model, "type", &type, what, err);
    if (status) return status;
    if (strcmp(type, "BPE") != 0) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: model of type \"%.80s\" is not supported, want BPE", what, type);
    }
    status = check_off(model, what, err);
    struct bpe *bpe = &tokenizer->bpe;
    if (!status) status = jread_bool(model, "fuse_unk", &bpe->fuse_unk, what, err);
    if (!status) status = jread_bool(model, "ignore_merges", &bpe->ignore_merges, what, err);
    if (!status) status = jread_bool(model, "byte_fallback", &bpe->byte_fallback, what, err);
    if (!status) {
        status = tokenizer_find_byte_level(document->root, &bpe->vocab.byte_level, what, err);
    }
    if (status) return status;
    if (!document->vocab.text || !document->merges.text) {
        return err_set(err, ERR_FORMAT, "%s: model has no %s", what,
                       document->vocab.text ? "list \"merges\"" : "object \"vocab\"");
    }
    status = load_vocab(&bpe->vocab, document->vocab, what, err);
    if (!status) status = load_merges(bpe, document->merges, what, err);
    return status ? status : load_symbols(bpe, model, what, err);
}

struct added_fields {
    const char *text;
    int64_t id;
    bool single_word, lstrip, rstrip, normalized, special;
};

// A key that is not known may be a misspelled one, whose flag would stay off unseen.
static enum status check_added_keys(const json_t *item, const char *what, struct err *err) {
    static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                        "rstrip", "normalized", "special"};
    for (void *it = json_object_iter((json_t *)(uintptr_t)item); it;
         it = json_object_iter_next((json_t *)(uintptr_t)item, it)) {
        const char *key = json_object_iter_key(it);
        size_t i = 0;
        while (i < ARRAY_LEN(known) && strcmp(key, known[i]) != 0) i++;
        if (i < ARRAY_LEN(known)) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: an added token has the key \"%.60s\", which is not known", what, key);
    }
    return OK;
}

// Missing flags are off, but "normalized", which Hugging Face switches on.
static enum status read_added(const json_t *item, struct added_fields *fields, const char *what,
                              struct err *err) {
    *fields = (struct added_fields){.id = -1};
    if (!json_is_object(item)) {
        return err_set(err, ERR_FORMAT, "%s: an added token is %s, want an object", what,
                       jread_type_name(item));
    }
    enum status status = check_added_keys(item, what, err);
    if (!status) status = jread_string(item, "content", &fields->text, what, err);
    if (!status) status = jread_int(item, "id", 0, VOCAB_IDS_MAX - 1, &fields->id, what, err);
    if (!status) status = jread_bool(item, "single_word", &fields->single_word, what, err);
    if (!status) status = jread_bool(item, "lstrip", &fields->lstrip, what, err);
    if (!status) status = jread_bool(item, "rstrip", &fields->rstrip, what, err);
    fields->normalized = true;
    if (!status) status = jread_bool(item, "normalized", &fields->normalized, what, err);
    if (!status) status = jread_bool(item, "special", &fields->special, what, err);
    if (!status && (!fields->text || !*fields->text || fields->id < 0)) {
        return err_set(err, ERR_FORMAT, "%s: an added token has no content or no id", what);
    }
    return status;
}

// Gives the token its place in the vocabulary. Hugging Face numbers added tokens itself: those of
// the model keep their id, others follow each other; a file that says otherwise is refused.
static enum status place_added(struct vocab *vocab, const struct added_fields *fields,
                               int64_t *max_added, const char *what, struct err *err) {
    size_t len = strlen(fields->text);
    uint32_t flags = fields->special ? TOKEN_SPECIAL : 0;
    uint32_t id;
    if (vocab_find(vocab, fields->text, len, &id)) {
        if (!(vocab->tokens[id].flags & TOKEN_MODEL)) {
            return err_set(err, ERR_FORMAT, "%s: added token \"%.60s\" appears twice", what,
                           fields->text);
        }
        vocab->tokens[id].flags |= flags;
    } else {
        int64_t num_model = (int64_t)vocab->num_model_tokens;
        id = (uint32_t)(*max_added >= num_model ? *max_added + 1 : num_model);
        if (id == (uint64_t)fields->id) {
            enum status status = vocab_add(vocab, fields->text, len, id, flags, err);
            if (status == ERR_INVALID) {
                return err_set(err, ERR_FORMAT,
                               "%s: added token \"%.60s\" has the id %u of another", what,
                               fields->text, id);
            }
            if (status) return status;
        }
    }
    if (*max_added < id) *max_added = id;
    if (id == (uint64_t)fields->id) return OK;
    return err_set(err, ERR_FORMAT,
                   "%s: added token \"%.60s\" has id %lld, but Hugging Face tokenizers gives it %u",
                   what, fields->text, (long long)fields->id, id);
}

// The text that a token is looked for by, normalised when it is looked for in normalised text.
static enum status put_added(struct tokenizer *tokenizer, const struct added_fields *fields,
                             struct tokenizer_scratch *scratch, struct err *err) {
    const char *text = fields->text;
    size_t len = strlen(text);
    if (fields->normalized) {
        enum status status = tokenizer_normalize(tokenizer, scratch, &text, &len, err);
        if (!status && text != fields->text) { // Hugging Face decodes it normalised as well
            status = vocab_set_decoded(&tokenizer->bpe.vocab, (uint32_t)fields->id, text, len, err);
        }
        if (status) return status;
    }
    struct added_token token = {.text = malloc(len),
                                .len = len,
                                .id = (int32_t)fields->id,
                                .single_word = fields->single_word,
                                .lstrip = fields->lstrip,
                                .rstrip = fields->rstrip,
                                .normalized = fields->normalized};
    if (!token.text) return err_nomem(err, "added tokens");
    memcpy(token.text, text, len);
    return added_set_put(fields->normalized ? &tokenizer->normalized : &tokenizer->raw, &token,
                         err);
}

enum status tokenizer_load_added_tokens(struct tokenizer *tokenizer, const json_t *root,
                                        const char *what, struct err *err) {
    const json_t *items = jread_get(root, "added_tokens");
    if (items && !json_is_array(items)) {
        return err_set(err, ERR_FORMAT, "%s: \"added_tokens\" is %s, want a list", what,
                       jread_type_name(items));
    }
    struct tokenizer_scratch scratch = {0};
    struct vocab *vocab = &tokenizer->bpe.vocab;
    int64_t max_added = -1;
    enum status status = OK;
    for (size_t i = 0; i < json_array_size(items) && !status; i++) {
        struct added_fields fields;
        status = read_added(json_array_get(items, i), &fields, what, err);
        if (!status) status = place_added(vocab, &fields, &max_added, what, err);
        if (!status) status = put_added(tokenizer, &fields, &scratch, err);
    }
    tokenizer_scratch_fini(&scratch);
    struct added_set *const sets[] = {&tokenizer->raw, &tokenizer->normalized};
    for (size_t i = 0; i < ARRAY_LEN(sets) && !status; i++) {
        const struct added_token *duplicate;
        added_set_finish(sets[i], tokenizer->flags, &duplicate);
        if (!duplicate) continue;
        status = err_set(err, ERR_FORMAT, "%s: two added tokens stand for the text \"%.*s\"", what,
                         shown(duplicate->len), duplicate->text);
    }
    return status;
}

// Order matters: added tokens need the model and the normalizer, templates the added tokens.
static enum status load(struct tokenizer *tokenizer, const struct tokenizer_document *document,
                        const char *what, struct err *err) {
    const json_t *root = document->root;
    if (!json_is_object(root)) {
        return err_set(err, ERR_FORMAT, "%s is %s, want an object", what, jread_type_name(root));
    }
    const char *version = "1.0";
    enum status status = jread_string(root, "version", &version, what, err);
    if (status) return status;
    if (strcmp(version, "1.0") != 0) {
        return err_set(err, ERR_UNSUPPORTED, "%s: version \"%.40s\" is not supported, want 1.0",
                       what, version);
    }
    status = check_encoding(root, what, err);
    if (!status) status = unicode_flags_create(&tokenizer->flags, err);
    if (!status) status = load_model(tokenizer, document, what, err);
    if (!status) status = tokenizer_load_normalizer(tokenizer, root, what, err);
    if (!status) status = tokenizer_load_added_tokens(tokenizer, root, what, err);
    if (!status) status = tokenizer_load_pre_tokenizer(tokenizer, root, what, err);
    if (!status) status = tokenizer_load_post_processor(tokenizer, root, what, err);
    if (!status) status = tokenizer_load_decoder(tokenizer, root, what, err);
    return status;
}

enum status tokenizer_parse(struct tokenizer **out, const char *json, size_t len, const char *what,
                            struct err *err) {
    *out = NULL;
    if (len > TEXT_BYTES_MAX) {
        return err_set(err, ERR_FORMAT, "%s has %zu bytes, want at most %d", what, len,
                       TEXT_BYTES_MAX);
    }
    struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer) return err_nomem(err, "tokenizer");
    vocab_init(&tokenizer->bpe.vocab);
    if (pthread_mutex_init(&tokenizer->lock, NULL)) {
        vocab_fini(&tokenizer->bpe.vocab);
        free(tokenizer);
        return err_nomem(err, "tokenizer");
    }
    struct tokenizer_document document;
    enum status status = tokenizer_document_read(&document, json, len, what, err);
    if (!status) status = load(tokenizer, &document, what, err);
    tokenizer_document_fini(&document);
    if (status) {
        tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return OK;
}

// What stands in a file's place beside it, when that is all that a model was published with.
static const char *find_other_form(const char *path) {
    static const char *const names[] = {"tokenizer.model", "tekken.json"};
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char other[FILE_PATH_MAX];
        int len = snprintf(other, sizeof other, "%.*s%s", folder, path, names[i]);
        if (len < (int)sizeof other && file_exists(other)) return names[i];
    }
    return NULL;
}

enum status tokenizer_check_present(const char *path, bool *present, struct err *err) {
    enum status status = file_is_present(path, present, err);
    if (status || *present) return status;
    const char *other = find_other_form(path);
    if (!other) return OK;
    return err_set(
        err, ERR_UNSUPPORTED,
        "%s is missing, and %s beside it is not read: make the fast tokenizer's file, in "
        "Python AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
        path, other);
}

enum status tokenizer_open(struct tokenizer **out, const char *path, struct err *err) {
    *out = NULL;
    bool present;
    enum status status = tokenizer_check_present(path, &present, err);
    if (status == ERR_UNSUPPORTED) return status; // what else is wrong, opening says
    struct file_map map;
    status = file_map_open(&map, path, err);
    if (status) return status;
    status = tokenizer_parse(out, map.data, map.size, path, err);
    file_map_close(&map);
    return status;
}

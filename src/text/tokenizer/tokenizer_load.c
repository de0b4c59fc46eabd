/* Builds a tokenizer from tokenizer.json: the model, and the order of all parts. Everything is
 * checked here, so that encoding fails only over memory or a text's budget. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/text/blank.h"
#include "checkpoint/checkpoint.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_parts.h"

enum { TEXT_BYTES_MAX = 1 << 30 };

static const char own_name[] = "tokenizer.json";

// How much of a token's text an error message shows.
static int shown(size_t len) {
    return len > 60 ? 60 : (int)len;
}

// Reads straight from the file's text, without a copy in between.
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

// An upper bound of the number of merges: a string takes two quotes, a pair four.
static size_t count_merges(struct json_span span) {
    size_t quotes = 0;
    const char *p = span.text, *end = span.text + span.len;
    bool pairs = false;
    for (; p < end && (p = memchr(p, '"', (size_t)(end - p))); p++) quotes++;
    p = span.text + 1;
    while (p < end && is_blank(*p)) p++;
    pairs = p < end && *p == '[';
    return pairs ? quotes / 4 + 1 : quotes / 2 + 1;
}

// An empty token is refused like an unknown one: a merge with it would join nothing.
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
        if (bpe->num_merges == num_merges_max) { // count_merges assumes one form
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

// Refuses options of the model that are not supported, unless they are off: absent, null, 0 or "".
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

// "truncation" and "padding" are leftovers of training: how to bring a batch's texts to one length.
// transformers sets both for each call, so they are ignored here.
static enum status check_encoding(const json_t *root, const char *what, struct err *err) {
    static const char *const keys[] = {"truncation", "padding"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const json_t *value = jread_get(root, keys[i]);
        if (!value || json_is_object(value)) continue;
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s, want an object or null", what, keys[i],
                       jread_type_name(value));
    }
    return OK;
}

// Finds the tokens of the single bytes in the byte-level alphabet; *missing is a byte without one,
// or -1.
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

// Finds the tokens of single bytes and characters, and unk_id, the token of those that have none.
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
    // In Hugging Face the fallback would spell the bytes of the alphabet's character, not the
    // text's byte.
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: model: \"byte_fallback\" with ByteLevel is not supported unless each byte "
                   "has a token: 0x%02x has none",
                   what, (unsigned)missing);
}

// The type of the model in an old file that names none, by the shape of its vocabulary.
static const char *guess_type(const struct tokenizer_document *document, const json_t *model) {
    if (json_is_array(json_object_get(model, "vocab"))) return "Unigram";
    bool has_merges = document->merges.text || json_object_get(model, "merges");
    return document->vocab.text && !has_merges ? "WordPiece or WordLevel" : "BPE";
}

// Options are checked first: for a file of another kind their error says more than the
// vocabulary's.
static enum status load_model(struct tokenizer *tokenizer,
                              const struct tokenizer_document *document, const char *what,
                              struct err *err) {
    const json_t *model = json_object_get(document->root, "model");
    if (!json_is_object(model)) {
        return err_set(err, ERR_FORMAT, "%s: \"model\" is %s, want an object", what,
                       jread_type_name(model));
    }
    const char *type = guess_type(document, model);
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

// The order matters: added tokens need the model and the normalizer; the post-processor's templates
// need the added tokens.
static enum status load(struct tokenizer *tokenizer, const struct tokenizer_document *document,
                        const struct added_source *config, const char *what, struct err *err) {
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
    const struct added_source own = {.root = root, .what = what};
    if (!status) status = tokenizer_load_added_tokens(tokenizer, &own, config, err);
    if (!status) status = tokenizer_load_pre_tokenizer(tokenizer, root, what, err);
    if (!status) status = tokenizer_load_post_processor(tokenizer, root, what, err);
    if (!status) status = tokenizer_load_decoder(tokenizer, root, what, err);
    return status;
}

// `config`: tokenizer_config.json; its root is NULL where there is none.
static enum status parse(struct tokenizer **out, const char *json, size_t len, const char *what,
                         const struct added_source *config, struct err *err) {
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
    if (!status) status = load(tokenizer, &document, config, what, err);
    tokenizer_document_fini(&document);
    if (status) {
        tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return OK;
}

enum status tokenizer_parse(struct tokenizer **out, const char *json, size_t len, const char *what,
                            struct err *err) {
    const struct added_source none = {0};
    return parse(out, json, len, what, &none, err);
}

static enum status check_document(const struct checkpoint *checkpoint, const char *document,
                                  struct document_name *what, bool *present, struct err *err) {
    static const char other[] = "vocab.json"; // beside merges.txt: a form that is not read
    struct document_name unused;
    bool has_other = false;
    enum status status = checkpoint_find(checkpoint, document, what, present, err);
    if (status || *present) return status;
    if (checkpoint_find(checkpoint, other, &unused, &has_other, NULL) || !has_other) return OK;
    return err_set(
        err, ERR_UNSUPPORTED,
        "%s is missing, and %s in the same folder is not supported: make tokenizer.json with "
        "Python's AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
        what->text, other);
}

enum status tokenizer_check_present(const struct checkpoint *checkpoint, struct document_name *what,
                                    bool *present, struct err *err) {
    return check_document(checkpoint, own_name, what, present, err);
}

static enum status open_document(struct tokenizer **out, const struct checkpoint *checkpoint,
                                 const char *document, struct err *err) {
    *out = NULL;
    struct document_name what, config_what;
    bool present;
    enum status status = check_document(checkpoint, document, &what, &present, err);
    // checkpoint_read reports all others.
    if (status == ERR_UNSUPPORTED || status == ERR_INVALID) return status;
    struct added_source config = {.what = config_what.text};
    json_t *root = NULL;
    struct buf text = {0};
    status = OK;
    if (strcmp(document, own_name) == 0) {
        status =
            checkpoint_read_strings(checkpoint, "tokenizer_config.json", &config_what, &root, err);
    }
    config.root = root;
    if (!status) status = checkpoint_read(checkpoint, document, &text, err);
    if (!status) status = parse(out, text.data, text.len, what.text, &config, err);
    buf_fini(&text);
    json_decref(root);
    return status;
}

enum status tokenizer_open(struct tokenizer **out, const struct checkpoint *checkpoint,
                           struct err *err) {
    return open_document(out, checkpoint, own_name, err);
}

enum status tokenizer_open_file(struct tokenizer **out, const char *path, struct err *err) {
    *out = NULL;
    struct checkpoint *checkpoint = NULL;
    const char *name = NULL;
    enum status status = checkpoint_open_around(&checkpoint, path, &name, err);
    if (!status) status = open_document(out, checkpoint, name, err);
    checkpoint_close(checkpoint);
    return status;
}

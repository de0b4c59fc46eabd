#include "engine/step/bad_words.h"

#include <stdlib.h>
#include <string.h>

#include "engine/step/token_mask.h"
#include "text/unicode/unicode.h"

// Whether Python's str.lstrip removes it.
static bool is_space(uint32_t c) {
    if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static const char *skip_space(const char *text) {
    size_t left = utf8_valid_prefix(text, strlen(text)), size;
    for (; left && is_space(utf8_decode((const unsigned char *)text, &size)); left -= size) {
        text += size;
    }
    return text;
}

// Appends the tokens of `prefix` and `word` together to `ids`.
static enum status encode(const struct tokenizer *tokenizer, const char *prefix, const char *word,
                          struct token_list *ids, struct err *err) {
    struct buf text = {0};
    enum status status = buf_append_str(&text, prefix, err);
    if (!status) status = buf_append_str(&text, word, err);
    if (!status) status = tokenizer_encode(tokenizer, text.data, text.len, false, NULL, ids, err);
    buf_fini(&text);
    return status;
}

// Appends the word's forms to `ids` and `words`, which hold two.
static enum status add_word(struct bad_words *bad, const char *text, size_t index,
                            const struct tokenizer *tokenizer, struct token_list *ids,
                            struct err *err) {
    const char *word = skip_space(text);
    size_t start = ids->len;
    enum status status = encode(tokenizer, "", word, ids, err);
    if (status) return status;
    size_t len = ids->len - start;
    if (!len) {
        return err_set(err, ERR_INVALID, "entry %zu of bad_words has no token: it is white space",
                       index);
    }
    bad->words[bad->num_words++] = (struct bad_word){(uint32_t)start, (uint32_t)len};
    size_t behind = ids->len;
    status = encode(tokenizer, " ", word, ids, err);
    if (status) return status;
    if (ids->len - behind == len && ids->ids[behind] != ids->ids[start]) {
        bad->words[bad->num_words++] = (struct bad_word){(uint32_t)behind, (uint32_t)len};
    } else {
        ids->len = behind;
    }
    return OK;
}

static void take_single(struct bad_words *bad, uint32_t *always) {
    size_t num_kept = 0;
    for (size_t i = 0; i < bad->num_words; i++) {
        struct bad_word word = bad->words[i];
        if (word.len == 1) {
            token_mask_ban(always, bad->ids[word.start]);
        } else {
            bad->words[num_kept++] = word;
        }
    }
    bad->num_words = num_kept;
}

// The word's last token but one: where the output ends with it, the word may be about to complete.
static int32_t key_of(const struct bad_words *bad, struct bad_word word) {
    return bad->ids[word.start + word.len - 2];
}

static int compare_keys(const void *a, const void *b) {
    const int32_t *left = a, *right = b;
    return (left[0] > right[0]) - (left[0] < right[0]);
}

// qsort passes no context for the ids, so each word is sorted together with its key.
static enum status sort_words(struct bad_words *bad, struct err *err) {
    struct keyed {
        int32_t key;
        struct bad_word word;
    } *keyed = malloc((bad->num_words ? bad->num_words : 1) * sizeof *keyed);
    if (!keyed) return err_nomem(err, "bad_words");
    for (size_t i = 0; i < bad->num_words; i++) {
        keyed[i] = (struct keyed){key_of(bad, bad->words[i]), bad->words[i]};
    }
    qsort(keyed, bad->num_words, sizeof *keyed, compare_keys);
    for (size_t i = 0; i < bad->num_words; i++) bad->words[i] = keyed[i].word;
    free(keyed);
    return OK;
}

enum status bad_words_init(struct bad_words *bad, const char *const *texts, size_t num_texts,
                           const struct tokenizer *tokenizer, uint32_t *always, struct err *err) {
    *bad = (struct bad_words){0};
    struct token_list ids = {0};
    enum status status = OK;
    bad->words = calloc(num_texts ? num_texts : 1, 2 * sizeof *bad->words);
    if (!bad->words) return err_nomem(err, "bad_words");
    for (size_t i = 0; i < num_texts && !status; i++) {
        status = add_word(bad, texts[i], i, tokenizer, &ids, err);
    }
    bad->ids = ids.ids;
    if (!status && bad->ids) { // NULL: there are no words
        take_single(bad, always);
        status = sort_words(bad, err);
    }
    if (status) bad_words_fini(bad);
    return status;
}

void bad_words_fini(struct bad_words *bad) {
    free(bad->ids);
    free(bad->words);
    *bad = (struct bad_words){0};
}

// The first word whose key is at least this.
static size_t find_key(const struct bad_words *bad, int32_t key) {
    size_t low = 0, high = bad->num_words;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (key_of(bad, bad->words[middle]) < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool bad_words_ban(const struct bad_words *bad, const int32_t *generated, uint32_t num_generated,
                   uint32_t *mask) {
    if (!bad->num_words || !num_generated) return false;
    int32_t last = generated[num_generated - 1];
    bool is_any = false;
    for (size_t i = find_key(bad, last); i < bad->num_words; i++) {
        struct bad_word word = bad->words[i];
        const int32_t *ids = bad->ids + word.start;
        uint32_t num_before = word.len - 1;
        if (ids[num_before - 1] != last) break;
        if (num_before > num_generated) continue;
        const int32_t *tail = generated + num_generated - num_before;
        if (memcmp(tail, ids, num_before * sizeof *ids) != 0) continue;
        is_any = true;
        if (mask) token_mask_ban(mask, ids[num_before]);
    }
    return is_any;
}

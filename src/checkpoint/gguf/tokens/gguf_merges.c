/* The merges of a SentencePiece model: each way to make a token of two others, in the order of the
 * tokens' scores, the highest first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_out.h"
#include "base/os/map.h"
#include "base/text/utf8.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/tokens/gguf_tokens.h"

enum { WORK_MAX = 1 << 30 }; // sum of the squares of the tokens' bytes

struct merge {
    float score;
    uint32_t id; // of the token that is made
    uint32_t left; // bytes of its first part
};

struct merges {
    struct gguf_string *texts; // [num_tokens]
    uint64_t num_tokens;
    struct strmap ids; // text -> id
    struct merge *list; // [len]
    size_t len, capacity;
};

// By score, then by id, so that the order does not depend on the sort.
static int compare(const void *left, const void *right) {
    const struct merge *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    if (a->id != b->id) return a->id < b->id ? -1 : 1;
    return a->left < b->left ? -1 : a->left > b->left;
}

static enum status add(struct merges *merges, struct merge merge, struct err *err) {
    if (merges->len == merges->capacity) {
        size_t capacity = merges->capacity ? 2 * merges->capacity : 1 << 12;
        struct merge *list = realloc(merges->list, capacity * sizeof *list);
        if (!list) return err_nomem(err, "merges");
        merges->list = list;
        merges->capacity = capacity;
    }
    merges->list[merges->len++] = merge;
    return OK;
}

// Adds the ways to make token `id`.
static enum status split_token(struct merges *merges, uint32_t id, float score, struct err *err) {
    struct gguf_string text = merges->texts[id];
    enum status status = OK;
    size_t size;
    for (size_t left = 0; left < text.len && !status; left += size) {
        uint32_t unused;
        utf8_decode((const unsigned char *)text.text + left, &size);
        if (left && strmap_get(&merges->ids, text.text, left, &unused) &&
            strmap_get(&merges->ids, text.text + left, text.len - left, &unused)) {
            status = add(merges, (struct merge){score, id, (uint32_t)left}, err);
        }
    }
    return status;
}

static enum status read_texts(struct merges *merges, const struct gguf *gguf,
                              const struct gguf_value *tokens, struct err *err) {
    merges->num_tokens = tokens->count;
    merges->texts = calloc(tokens->count + 1, sizeof *merges->texts);
    if (!merges->texts) return err_nomem(err, "tokens");
    enum status status = strmap_reserve(&merges->ids, tokens->count, err);
    const char *at = tokens->data;
    uint64_t work = 0;
    for (uint64_t id = 0; id < tokens->count && !status; id++) {
        struct gguf_string text = gguf_next_string(&at);
        merges->texts[id] = text;
        work += (uint64_t)text.len * text.len; // a header's bytes squared fit
        status = strmap_put(&merges->ids, text.text, text.len, (uint32_t)id, NULL, err);
    }
    if (status || work <= WORK_MAX) return status;
    return err_set(err, ERR_UNSUPPORTED, "%s: its tokens are too long for a SentencePiece model",
                   gguf_path(gguf));
}

static enum status make(struct merges *merges, const struct gguf *gguf, struct err *err) {
    struct gguf_value tokens, scores, types;
    bool found = false, has_scores = false, has_types = false;
    static const char scores_key[] = "tokenizer.ggml.scores";
    enum status status =
        gguf_read_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, &found, err);
    if (!status) {
        status = gguf_read_array(gguf, scores_key, GGUF_F32, &scores, &has_scores, err);
    }
    if (!status) {
        status =
            gguf_read_array(gguf, "tokenizer.ggml.token_type", GGUF_I32, &types, &has_types, err);
    }
    if (status || !found) return status;
    if (!has_scores || scores.count != tokens.count) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" does not have a score of each token",
                       gguf_path(gguf), scores_key);
    }
    status = read_texts(merges, gguf, &tokens, err);
    for (uint64_t id = 0; id < tokens.count && !status; id++) {
        int64_t type = GGUF_TOKEN_NORMAL;
        float score = (float)gguf_real(&scores, id);
        if (has_types && !gguf_integer(&types, id, &type)) type = GGUF_TOKEN_NORMAL;
        if (type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_UNKNOWN || type == GGUF_TOKEN_BYTE) {
            continue; // no text is joined to them
        }
        if (isnan(score)) {
            return err_set(err, ERR_FORMAT, "%s: the score of token %llu is not a number",
                           gguf_path(gguf), (unsigned long long)id);
        }
        status = split_token(merges, (uint32_t)id, score, err);
    }
    return status;
}

enum status gguf_write_spm_merges(const struct gguf *gguf, struct json_out *out, struct err *err) {
    struct merges merges = {0};
    enum status status = make(&merges, gguf, err);
    if (!status && merges.len) qsort(merges.list, merges.len, sizeof *merges.list, compare);
    json_out_raw(out, "\"merges\": [");
    for (size_t i = 0; i < merges.len && !status; i++) {
        const struct merge *merge = &merges.list[i];
        struct gguf_string text = merges.texts[merge->id];
        json_out_raw(out, i ? ", [" : "[");
        json_out_string(out, text.text, merge->left);
        json_out_raw(out, ", ");
        json_out_string(out, text.text + merge->left, text.len - merge->left);
        json_out_raw(out, "]");
    }
    json_out_raw(out, "]");
    strmap_fini(&merges.ids);
    free(merges.texts);
    free(merges.list);
    return status;
}

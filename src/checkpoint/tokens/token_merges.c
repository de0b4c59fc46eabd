#include <stdlib.h>
#include <string.h>

#include "base/json/json_out.h"
#include "base/os/map.h"
#include "base/text/utf8.h"
#include "checkpoint/tokens/token_json.h"

enum { WORK_MAX = 1 << 30 }; // sum of the squares of the tokens' bytes

struct merge {
    float score;
    uint32_t id; // of the token that is made
    uint32_t left; // bytes of its first part
};

struct merges {
    const struct token_text *tokens; // [num_tokens]
    size_t num_tokens;
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
static enum status split_token(struct merges *merges, uint32_t id, bool by_bytes, struct err *err) {
    const struct token_text *token = &merges->tokens[id];
    enum status status = OK;
    size_t size = 1;
    for (size_t left = 0; left < token->len && !status; left += size) {
        uint32_t unused;
        if (!by_bytes) utf8_decode((const unsigned char *)token->text + left, &size);
        if (left && strmap_get(&merges->ids, token->text, left, &unused) &&
            strmap_get(&merges->ids, token->text + left, token->len - left, &unused)) {
            status = add(merges, (struct merge){token->score, id, (uint32_t)left}, err);
        }
    }
    return status;
}

static enum status read_texts(struct merges *merges, const char *what, struct err *err) {
    enum status status = strmap_reserve(&merges->ids, merges->num_tokens, err);
    uint64_t work = 0;
    for (size_t id = 0; id < merges->num_tokens && !status; id++) {
        const struct token_text *token = &merges->tokens[id];
        if (!token->text) continue;
        work += (uint64_t)token->len * token->len; // the squares of a file's bytes fit
        status = strmap_put(&merges->ids, token->text, token->len, (uint32_t)id, NULL, err);
    }
    if (status || work <= WORK_MAX) return status;
    return err_set(err, ERR_UNSUPPORTED, "%s: its tokens are too long to find their merges", what);
}

static void write_part(struct json_out *out, const char *text, size_t len, bool by_bytes) {
    if (by_bytes) {
        token_json_byte_level(out, text, len);
    } else {
        json_out_string(out, text, len);
    }
}

enum status token_json_merges(const struct token_text *tokens, size_t num_tokens, bool by_bytes,
                              const char *what, struct json_out *out, struct err *err) {
    struct merges merges = {.tokens = tokens, .num_tokens = num_tokens};
    enum status status = read_texts(&merges, what, err);
    for (size_t id = 0; id < num_tokens && !status; id++) {
        if (!tokens[id].text || tokens[id].is_never_joined) continue;
        status = split_token(&merges, (uint32_t)id, by_bytes, err);
    }
    if (!status && merges.len) qsort(merges.list, merges.len, sizeof *merges.list, compare);
    json_out_raw(out, "\"merges\": [");
    for (size_t i = 0; i < merges.len && !status; i++) {
        const struct merge *merge = &merges.list[i];
        const struct token_text *token = &tokens[merge->id];
        json_out_raw(out, i ? ", [" : "[");
        write_part(out, token->text, merge->left, by_bytes);
        json_out_raw(out, ", ");
        write_part(out, token->text + merge->left, token->len - merge->left, by_bytes);
        json_out_raw(out, "]");
    }
    json_out_raw(out, "]");
    strmap_fini(&merges.ids);
    free(merges.list);
    return status;
}

#include "structured/vocabulary/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/text/utf8.h"

// A token's bytes as the tree has them.
struct key {
    const unsigned char *bytes;
    uint32_t len, token;
    uint32_t chars; // of a plain token; 0: it is not plain
};

static int compare_keys(const void *x, const void *y) {
    const struct key *a = x, *b = y;
    int order = memcmp(a->bytes, b->bytes, a->len < b->len ? a->len : b->len);
    if (order == 0) order = (a->len > b->len) - (a->len < b->len);
    return order ? order : (a->token > b->token) - (a->token < b->token);
}

// Characters of a plain token, else 0.
static uint32_t plain_chars(const char *bytes, size_t len) {
    uint32_t chars = 0;
    for (size_t i = 0; i < len; chars++) {
        unsigned char byte = (unsigned char)bytes[i];
        size_t size = utf8_char_bytes(bytes + i, len - i);
        bool plain = byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7f;
        if (size == 0 || !plain) return 0;
        i += size;
    }
    return chars;
}

// ---- the tree ----

static uint32_t common_bytes(const struct key *a, const struct key *b) {
    uint32_t len = a->len < b->len ? a->len : b->len, i = 0;
    while (i < len && a->bytes[i] == b->bytes[i]) i++;
    return i;
}

// The keys are sorted. A key adds the nodes behind what it shares with the one before.
static enum status build_tree(struct vocabulary_tree *tree, const struct key *keys, size_t num_keys,
                              bool rest_only, struct err *err) {
    const struct key *before = NULL;
    size_t num_nodes = 0;
    for (size_t i = 0; i < num_keys; i++) {
        if (rest_only && keys[i].chars) continue;
        num_nodes += keys[i].len - (before ? common_bytes(before, &keys[i]) : 0);
        before = &keys[i];
    }
    if (num_nodes > VOCABULARY_NODES_MAX) {
        return err_set(err, ERR_UNSUPPORTED,
                       "the vocabulary's tokens need %zu nodes, want at most %d", num_nodes,
                       VOCABULARY_NODES_MAX);
    }
    tree->nodes = malloc((num_nodes + 1) * sizeof *tree->nodes);
    uint32_t *open = calloc(VOCABULARY_TOKEN_BYTES_MAX + 1, sizeof *open);
    if (!tree->nodes || !open) {
        free(open);
        return err_nomem(err, "structured output");
    }
    uint32_t depth = 0; // open[0 .. depth) are the nodes of the key before
    before = NULL;
    for (size_t i = 0; i < num_keys; i++) {
        const struct key *key = &keys[i];
        if (rest_only && key->chars) continue;
        uint32_t common = before ? common_bytes(before, key) : 0;
        while (depth > common) {
            uint32_t node = open[--depth];
            tree->nodes[node].size = (tree->num_nodes - node) & VOCABULARY_NODES_MAX;
        }
        for (; depth < key->len; depth++) {
            open[depth] = tree->num_nodes;
            tree->nodes[tree->num_nodes++] = (struct vocabulary_node){
                .byte = key->bytes[depth], .token = VOCABULARY_NO_TOKEN, .depth = depth & 1023};
        }
        tree->nodes[open[depth - 1]].token = key->token & VOCABULARY_NO_TOKEN;
        before = key;
    }
    while (depth > 0) {
        uint32_t node = open[--depth];
        tree->nodes[node].size = (tree->num_nodes - node) & VOCABULARY_NODES_MAX;
    }
    free(open);
    return OK;
}

// A node's kinds are those of its token and of the nodes below, which come behind it.
static enum status find_kinds_below(struct vocabulary *vocabulary, struct err *err) {
    const struct vocabulary_tree *tree = &vocabulary->all;
    uint16_t *below = malloc((tree->num_nodes + 1) * sizeof *below);
    vocabulary->kinds_below = below;
    if (!below) return err_nomem(err, "structured output");
    uint32_t open[VOCABULARY_TOKEN_BYTES_MAX + 2] = {0}; // [depth]
    bool in_names = true; // they begin with byte FF, so their nodes are the last ones
    for (uint32_t i = tree->num_nodes; i-- > 0;) {
        struct vocabulary_node node = tree->nodes[i];
        uint32_t kinds = open[node.depth + 1] | (in_names ? VOCABULARY_NOT_PLAIN : 0);
        if (node.depth == 0) in_names = false;
        open[node.depth + 1] = 0;
        if (node.token != VOCABULARY_NO_TOKEN) {
            uint32_t word = node.token / 32, bit = 1u << (node.token % 32);
            if (!(vocabulary->plain[word] & bit)) kinds |= VOCABULARY_NOT_PLAIN;
            for (uint32_t kind = 0; kind < VOCABULARY_KINDS; kind++) {
                if (vocabulary->having[kind][word] & bit) kinds |= 1u << kind;
            }
        }
        below[i] = (uint16_t)kinds;
        open[node.depth] |= kinds;
    }
    return OK;
}

// How many characters a token has that begins inside of a JSON string: up to its end, or up to the
// quote that closes the string. 0 where it cannot stand there. Never too few.
static uint32_t count_string_chars(const unsigned char *bytes, uint32_t len) {
    uint32_t num_chars = 0;
    for (uint32_t i = 0; i < len && bytes[i] != '"'; i++) {
        if (bytes[i] < 0x20 || bytes[i] == 0xff) return 0; // a name begins with FF
        if ((bytes[i] & 0xc0) != 0x80) num_chars++;
        if (bytes[i] != '\\') continue;
        bool is_escape = ++i == len || (bytes[i] && strchr("\"\\/bfnrtu", bytes[i]));
        if (!is_escape) return 0;
    }
    return num_chars;
}

static void find_rest_chars(struct vocabulary *vocabulary) {
    unsigned char path[VOCABULARY_TOKEN_BYTES_MAX + 3] = {0}; // [depth]
    for (uint32_t i = 0; i < vocabulary->rest.num_nodes; i++) {
        struct vocabulary_node node = vocabulary->rest.nodes[i];
        path[node.depth] = node.byte;
        if (node.token == VOCABULARY_NO_TOKEN) continue;
        uint32_t num_chars = count_string_chars(path, node.depth + 1u);
        if (num_chars > vocabulary->rest_chars_max) vocabulary->rest_chars_max = num_chars;
    }
}

static enum status find_quotes_below(struct vocabulary *vocabulary, struct err *err) {
    const struct vocabulary_tree *tree = &vocabulary->rest;
    bool *below = malloc((tree->num_nodes + 1) * sizeof *below);
    vocabulary->quotes_below = below;
    if (!below) return err_nomem(err, "structured output");
    bool open[VOCABULARY_TOKEN_BYTES_MAX + 2] = {0}; // [depth]
    for (uint32_t i = tree->num_nodes; i-- > 0;) {
        struct vocabulary_node node = tree->nodes[i];
        below[i] = open[node.depth + 1];
        open[node.depth + 1] = false;
        if (node.token != VOCABULARY_NO_TOKEN) {
            uint32_t len;
            const char *text = vocabulary_text(vocabulary, node.token, &len);
            below[i] |= memchr(text, '"', len) || memchr(text, '\\', len);
        }
        open[node.depth] |= below[i];
    }
    return OK;
}

static void find_roots(struct vocabulary *vocabulary) {
    const struct vocabulary_tree *tree = &vocabulary->all;
    for (size_t i = 0; i < ARRAY_LEN(vocabulary->roots); i++) {
        vocabulary->roots[i] = VOCABULARY_NO_ROOT;
    }
    for (uint32_t i = 0; i < tree->num_nodes; i += tree->nodes[i].size) {
        vocabulary->roots[tree->nodes[i].byte] = i;
    }
}

static enum status find_lists(struct vocabulary *vocabulary, struct err *err) {
    vocabulary->lists = malloc((vocabulary->num_tokens + 1) * sizeof *vocabulary->lists);
    if (!vocabulary->lists) return err_nomem(err, "structured output");
    for (uint32_t i = 0; i < vocabulary->num_tokens; i++) {
        uint32_t len;
        const char *text = vocabulary_text(vocabulary, i, &len);
        if (len > 1 && memchr(text + 1, ',', len - 1)) {
            vocabulary->lists[vocabulary->num_lists++] = i;
        }
    }
    return OK;
}

// ---- sets of plain tokens ----

static int compare_longs(const void *x, const void *y) {
    const struct vocabulary_long *a = x, *b = y;
    return (a->chars < b->chars) - (a->chars > b->chars);
}

static enum status build_slices(struct vocabulary *vocabulary, const struct key *keys,
                                size_t num_keys, struct err *err) {
    vocabulary->plain = calloc(vocabulary->num_words, sizeof *vocabulary->plain);
    if (!vocabulary->plain) return err_nomem(err, "structured output");
    for (size_t k = 0; k < VOCABULARY_SLICES + VOCABULARY_KINDS; k++) {
        uint32_t *words = calloc(vocabulary->num_words, sizeof *words);
        if (!words) return err_nomem(err, "structured output");
        if (k < VOCABULARY_SLICES) {
            vocabulary->slices[k] = words;
        } else {
            vocabulary->having[k - VOCABULARY_SLICES] = words;
        }
    }
    uint32_t num_longs = 0;
    for (size_t i = 0; i < num_keys; i++) num_longs += keys[i].chars > VOCABULARY_SLICES;
    vocabulary->longs = malloc((num_longs + 1) * sizeof *vocabulary->longs);
    if (!vocabulary->longs) return err_nomem(err, "structured output");
    for (size_t i = 0; i < num_keys; i++) {
        uint32_t chars = keys[i].chars, token = keys[i].token, bit = 1u << (token % 32);
        if (!chars) continue;
        vocabulary->plain[token / 32] |= bit;
        for (uint32_t k = 0; k < keys[i].len; k++) {
            uint32_t kind = vocabulary_kind(keys[i].bytes[k]);
            vocabulary->having[kind][token / 32] |= bit;
        }
        for (size_t k = chars - 1; k < VOCABULARY_SLICES; k++) {
            vocabulary->slices[k][token / 32] |= bit;
        }
        if (chars > VOCABULARY_SLICES) {
            vocabulary->longs[vocabulary->num_longs++] =
                (struct vocabulary_long){.token = token, .chars = chars};
        }
    }
    if (num_longs) {
        qsort(vocabulary->longs, num_longs, sizeof *vocabulary->longs, compare_longs);
    }
    return OK;
}

void vocabulary_write_plain(const struct vocabulary *vocabulary, uint32_t chars, uint32_t kinds,
                            uint32_t *mask) {
    size_t bytes = vocabulary->num_words * sizeof *mask;
    if (chars == 0) {
        memset(mask, 0, bytes);
        return;
    }
    if (chars <= VOCABULARY_SLICES) {
        memcpy(mask, vocabulary->slices[chars - 1], bytes);
    } else {
        memcpy(mask, vocabulary->plain, bytes);
        for (uint32_t i = 0; i < vocabulary->num_longs; i++) {
            if (vocabulary->longs[i].chars <= chars) break;
            mask[vocabulary->longs[i].token / 32] &= ~(1u << (vocabulary->longs[i].token % 32));
        }
    }
    for (uint32_t kind = 0; kind < VOCABULARY_KINDS; kind++) {
        if (kinds >> kind & 1) continue;
        const uint32_t *having = vocabulary->having[kind];
        for (uint32_t i = 0; i < vocabulary->num_words; i++) mask[i] &= ~having[i];
    }
}

bool vocabulary_has_plain(const struct vocabulary *vocabulary, uint32_t chars, uint32_t kinds) {
    for (uint32_t i = 0; i < vocabulary->num_words; i++) {
        uint32_t word = chars <= VOCABULARY_SLICES && chars > 0 ? vocabulary->slices[chars - 1][i]
                                                                : vocabulary->plain[i];
        for (uint32_t kind = 0; kind < VOCABULARY_KINDS; kind++) {
            if (!(kinds >> kind & 1)) word &= ~vocabulary->having[kind][i];
        }
        if (word) return chars > 0;
    }
    return false;
}

// ---- the whole ----

// Copies bytes to `at`, those of a name between two bytes FF (expr_special_token).
static uint32_t copy_bytes(char *at, const struct vocabulary_token *token, bool is_name) {
    uint32_t len = 0;
    if (is_name) at[len++] = (char)0xff;
    memcpy(at + len, token->bytes, token->len);
    len += token->len;
    if (is_name) at[len++] = (char)0xff;
    return len;
}

// Copies the tokens' bytes, and behind them the names of those that have both.
static enum status copy_tokens(struct vocabulary *vocabulary, const struct vocabulary_token *tokens,
                               struct err *err) {
    size_t total = 0;
    for (uint32_t i = 0; i < vocabulary->num_tokens; i++) total += 2 * (size_t)tokens[i].len + 2;
    if (total > UINT32_MAX) return err_set(err, ERR_UNSUPPORTED, "the vocabulary is too large");
    vocabulary->offsets = calloc(vocabulary->num_tokens + 1, sizeof *vocabulary->offsets);
    vocabulary->lens = calloc(vocabulary->num_tokens + 1, sizeof *vocabulary->lens);
    vocabulary->bytes = malloc(total + 1);
    vocabulary->named = calloc(vocabulary->num_tokens + 1, sizeof *vocabulary->named);
    if (!vocabulary->offsets || !vocabulary->lens || !vocabulary->bytes || !vocabulary->named) {
        return err_nomem(err, "structured output");
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < vocabulary->num_tokens; i++) {
        const struct vocabulary_token *token = &tokens[i];
        uint32_t most = token->len + (token->special || token->named ? 2 : 0);
        vocabulary->offsets[i] = at;
        if (token->len == 0 || most > VOCABULARY_TOKEN_BYTES_MAX) continue;
        if (memchr(token->bytes, 0xff, token->len)) continue; // it would begin or end a name
        vocabulary->lens[i] = copy_bytes(vocabulary->bytes + at, token, token->special);
        at += vocabulary->lens[i];
        vocabulary->named[i] = token->named && !token->special;
        vocabulary->num_named += vocabulary->named[i];
        if (vocabulary->named[i]) at += copy_bytes(vocabulary->bytes + at, token, true);
        if (most > vocabulary->token_bytes_max) vocabulary->token_bytes_max = most;
    }
    return OK;
}

static size_t sort_keys(const struct vocabulary *vocabulary, struct key *keys) {
    size_t num_all = 0;
    CHECK(vocabulary->offsets, "%u tokens", vocabulary->num_tokens);
    for (uint32_t i = 0; i < vocabulary->num_tokens; i++) {
        uint32_t len;
        const char *bytes = vocabulary_text(vocabulary, i, &len);
        if (len == 0 || vocabulary_is_ending(vocabulary, (int32_t)i)) continue;
        keys[num_all++] = (struct key){.bytes = (const unsigned char *)bytes,
                                       .len = len,
                                       .token = i,
                                       .chars = plain_chars(bytes, len)};
    }
    if (num_all) qsort(keys, num_all, sizeof *keys, compare_keys);
    return num_all;
}

static int compare_twins(const void *x, const void *y) {
    const struct vocabulary_pair *a = x, *b = y;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return (a->second > b->second) - (a->second < b->second);
}

static void forget_name(struct vocabulary *vocabulary, uint32_t token) {
    vocabulary->num_named -= vocabulary->named[token];
    vocabulary->named[token] = false;
}

// Puts aside the keys whose bytes the one before has. Tokens with equal bytes have no names,
// because a token is allowed wherever its twin is.
static enum status split_twins(struct vocabulary *vocabulary, struct key *keys, size_t *num_keys,
                               struct err *err) {
    size_t num_all = *num_keys, num_different = 0;
    vocabulary->twins = malloc((num_all + 1) * sizeof *vocabulary->twins);
    if (!vocabulary->twins) return err_nomem(err, "structured output");
    for (size_t i = 0; i < num_all; i++) {
        const struct key *last = num_different ? &keys[num_different - 1] : NULL;
        if (last && last->len == keys[i].len &&
            memcmp(last->bytes, keys[i].bytes, last->len) == 0) {
            vocabulary->twins[vocabulary->num_twins++] =
                (struct vocabulary_pair){.first = last->token, .second = keys[i].token};
            forget_name(vocabulary, last->token);
            forget_name(vocabulary, keys[i].token);
        } else {
            keys[num_different++] = keys[i];
        }
    }
    if (vocabulary->num_twins) {
        qsort(vocabulary->twins, vocabulary->num_twins, sizeof *vocabulary->twins, compare_twins);
    }
    *num_keys = num_different;
    return OK;
}

static void add_names(const struct vocabulary *vocabulary, struct key *keys, size_t *num_keys) {
    size_t num_texts = *num_keys;
    for (uint32_t i = 0; i < vocabulary->num_tokens; i++) {
        uint32_t len;
        const char *name = vocabulary_name(vocabulary, i, &len);
        if (len == 0 || vocabulary_is_ending(vocabulary, (int32_t)i)) continue;
        keys[(*num_keys)++] =
            (struct key){.bytes = (const unsigned char *)name, .len = len, .token = i};
    }
    if (*num_keys > num_texts) qsort(keys, *num_keys, sizeof *keys, compare_keys);
}

enum status vocabulary_create(struct vocabulary **out, const struct vocabulary_token *tokens,
                              uint32_t num_tokens, const int32_t *ending, uint32_t num_ending,
                              struct err *err) {
    if (num_tokens >= VOCABULARY_NO_TOKEN) {
        return err_set(err, ERR_UNSUPPORTED, "a vocabulary of %u tokens, want fewer than %d",
                       num_tokens, VOCABULARY_NO_TOKEN);
    }
    struct vocabulary *vocabulary = calloc(1, sizeof *vocabulary);
    struct key *keys = malloc((2 * (size_t)num_tokens + 1) * sizeof *keys); // texts and names
    size_t num_keys = 0;
    enum status status = OK;
    if (!vocabulary || !keys) {
        status = err_nomem(err, "structured output");
        goto fail;
    }
    vocabulary->num_tokens = num_tokens;
    vocabulary->num_words = (num_tokens + 31) / 32;
    vocabulary->ending = malloc((num_ending + 1) * sizeof *vocabulary->ending);
    if (!vocabulary->ending) {
        status = err_nomem(err, "structured output");
        goto fail;
    }
    for (uint32_t i = 0; i < num_ending; i++) { // a model may name an id that it cannot generate
        if (ending[i] >= 0 && (uint32_t)ending[i] < num_tokens) {
            vocabulary->ending[vocabulary->num_ending++] = ending[i];
        }
    }
    status = copy_tokens(vocabulary, tokens, err);
    if (!status) {
        num_keys = sort_keys(vocabulary, keys);
        status = build_slices(vocabulary, keys, num_keys, err);
    }
    if (!status) status = split_twins(vocabulary, keys, &num_keys, err);
    if (!status) add_names(vocabulary, keys, &num_keys);
    if (!status) status = build_tree(&vocabulary->all, keys, num_keys, false, err);
    if (!status) status = build_tree(&vocabulary->rest, keys, num_keys, true, err);
    if (!status) status = find_kinds_below(vocabulary, err);
    if (!status) status = find_quotes_below(vocabulary, err);
    if (!status) status = find_lists(vocabulary, err);
    if (status) goto fail;
    find_rest_chars(vocabulary);
    find_roots(vocabulary);
    free(keys);
    *out = vocabulary;
    return OK;
fail:
    free(keys);
    vocabulary_destroy(vocabulary);
    return status;
}

void vocabulary_destroy(struct vocabulary *vocabulary) {
    if (!vocabulary) return;
    for (size_t k = 0; k < VOCABULARY_SLICES; k++) free(vocabulary->slices[k]);
    for (size_t k = 0; k < VOCABULARY_KINDS; k++) free(vocabulary->having[k]);
    free(vocabulary->all.nodes);
    free(vocabulary->kinds_below);
    free(vocabulary->quotes_below);
    free(vocabulary->lists);
    free(vocabulary->rest.nodes);
    free(vocabulary->twins);
    free(vocabulary->plain);
    free(vocabulary->longs);
    free(vocabulary->ending);
    free(vocabulary->offsets);
    free(vocabulary->bytes);
    free(vocabulary->lens);
    free(vocabulary->named);
    free(vocabulary);
}

const struct vocabulary_pair *vocabulary_twins(const struct vocabulary *vocabulary, uint32_t first,
                                               uint32_t *num_twins) {
    uint32_t low = 0, high = vocabulary->num_twins, end;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (vocabulary->twins[mid].first < first) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    for (end = low; end < vocabulary->num_twins && vocabulary->twins[end].first == first;) end++;
    *num_twins = end - low;
    return vocabulary->twins + low;
}

const char *vocabulary_text(const struct vocabulary *vocabulary, uint32_t token, uint32_t *len) {
    *len = vocabulary->lens[token];
    return vocabulary->bytes + vocabulary->offsets[token];
}

const char *vocabulary_name(const struct vocabulary *vocabulary, uint32_t token, uint32_t *len) {
    uint32_t text_len = vocabulary->lens[token];
    *len = vocabulary->named[token] ? text_len + 2 : 0;
    return vocabulary->bytes + vocabulary->offsets[token] + text_len;
}

// Goes down from the nodes [*first, *end) by the bytes.
static void find_below(const struct vocabulary *vocabulary, const char *bytes, size_t len,
                       uint32_t *first, uint32_t *end) {
    const struct vocabulary_tree *tree = &vocabulary->all;
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        while (*first < *end && tree->nodes[*first].byte != byte)
            *first += tree->nodes[*first].size;
        if (*first == *end) return;
        *end = *first + tree->nodes[*first].size;
        ++*first;
    }
}

void vocabulary_find_longer(const struct vocabulary *vocabulary, const char *bytes, size_t len,
                            uint32_t *first, uint32_t *end) {
    *first = 0;
    *end = vocabulary->all.num_nodes;
    find_below(vocabulary, bytes, len, first, end);
}

bool vocabulary_has_name(const struct vocabulary *vocabulary, const char *name, size_t len) {
    const struct vocabulary_node *nodes = vocabulary->all.nodes;
    uint32_t at, end;
    vocabulary_find_longer(vocabulary, "\xff", 1, &at, &end);
    find_below(vocabulary, name, len, &at, &end);
    while (at < end && nodes[at].byte != 0xff) at += nodes[at].size;
    return len && at < end;
}

bool vocabulary_is_ending(const struct vocabulary *vocabulary, int32_t token) {
    for (uint32_t i = 0; i < vocabulary->num_ending; i++) {
        if (vocabulary->ending[i] == token) return true;
    }
    return false;
}

/* Matching narrows a sorted list of tokens byte by byte. In most texts a token can begin at few
 * places only; a search for its first byte finds them. */
#include "text/tokenizer/tokenizer_added.h"

#include <stdlib.h>
#include <string.h>

#include "text/unicode/unicode.h"

// Sorts by bytes, and a text before the longer texts that begin with it: match_at relies on that.
static int compare_tokens(const void *a, const void *b) {
    const struct added_token *x = a, *y = b;
    size_t len = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->text, y->text, len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

enum status added_set_put(struct added_set *set, const struct added_token *token, struct err *err) {
    if (set->num_tokens == set->capacity) {
        size_t capacity = set->capacity ? set->capacity * 2 : 32;
        struct added_token *tokens = realloc(set->tokens, capacity * sizeof *tokens);
        if (!tokens) return err_nomem(err, "added tokens");
        set->tokens = tokens;
        set->capacity = capacity;
    }
    char *text = malloc(token->len);
    if (!text) return err_nomem(err, "added tokens");
    memcpy(text, token->text, token->len);
    set->tokens[set->num_tokens] = *token;
    set->tokens[set->num_tokens++].text = text;
    return OK;
}

void added_set_finish(struct added_set *set, const uint8_t *flags,
                      const struct added_token **duplicate) {
    *duplicate = NULL;
    set->flags = flags;
    set->only_byte = -1;
    if (set->num_tokens == 0) return;
    qsort(set->tokens, set->num_tokens, sizeof *set->tokens, compare_tokens);
    for (size_t i = 0; i < set->num_tokens; i++) {
        set->first[(unsigned char)set->tokens[i].text[0] + 1]++;
        if (i > 0 && compare_tokens(&set->tokens[i - 1], &set->tokens[i]) == 0) {
            *duplicate = &set->tokens[i];
        }
    }
    for (size_t b = 0; b < 256; b++) set->first[b + 1] += set->first[b];
    unsigned char byte = (unsigned char)set->tokens[0].text[0];
    if (set->first[byte + 1] == set->num_tokens) set->only_byte = byte;
}

void added_set_fini(struct added_set *set) {
    for (size_t i = 0; i < set->num_tokens; i++) free((char *)(uintptr_t)set->tokens[i].text);
    free(set->tokens);
    *set = (struct added_set){0};
}

// The first of the tokens [low, high) whose byte at `depth` is greater than `byte`. Their bytes
// before `depth` are equal.
static size_t first_above(const struct added_set *set, size_t low, size_t high, size_t depth,
                          int byte) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((unsigned char)set->tokens[middle].text[depth] > byte) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

// The longest token that the text begins with, or NULL. `text` is not empty. *steps is the number
// of bytes compared.
static const struct added_token *match_at(const struct added_set *set, const char *text, size_t len,
                                          size_t *steps) {
    unsigned char byte = (unsigned char)text[0];
    size_t low = set->first[byte], high = set->first[byte + 1];
    const struct added_token *longest = NULL;
    *steps = 1;
    for (size_t depth = 1; low < high; depth++) {
        *steps = depth;
        // Shorter texts are sorted first, so only the first token can end here.
        if (set->tokens[low].len == depth) longest = &set->tokens[low++];
        if (depth == len) break;
        byte = (unsigned char)text[depth];
        low = first_above(set, low, high, depth, (int)byte - 1);
        high = first_above(set, low, high, depth, byte);
    }
    return longest;
}

// The next token at or after cursor->search. NULL: there is none, or cursor->status is an error.
// Most texts have few bytes that a token can begin with, so the search looks for those: with memchr
// when all tokens begin with the same byte.
static const struct added_token *find_token(const struct added_set *set,
                                            struct added_cursor *cursor, size_t *start) {
    const char *text = cursor->text;
    size_t len = cursor->len;
    for (size_t i = cursor->search; i < len; i++) {
        if (set->only_byte >= 0) {
            const char *hit = memchr(text + i, set->only_byte, len - i);
            if (!hit) return NULL;
            i = (size_t)(hit - text);
        } else {
            while (i < len &&
                   set->first[(unsigned char)text[i]] == set->first[(unsigned char)text[i] + 1]) {
                i++;
            }
            if (i == len) return NULL;
        }
        size_t steps;
        const struct added_token *token = match_at(set, text + i, len - i, &steps);
        // Hostile input: tokens as long as the text, and a text that nearly matches one everywhere.
        cursor->status = effort_spend_on_pattern(cursor->effort, steps, cursor->err);
        if (cursor->status) return NULL;
        if (token) {
            *start = i;
            return token;
        }
    }
    return NULL;
}

// The flags of the character that ends at `at` > 0; *start is where it begins.
static unsigned flags_before(const struct added_set *set, const char *text, size_t at,
                             size_t *start) {
    *start = at - 1;
    while (*start > 0 && ((unsigned char)text[*start] & 0xc0) == 0x80) --*start;
    size_t size;
    return set->flags[utf8_decode((const unsigned char *)text + *start, &size)];
}

// The flags of the character that begins at `at`; *end is where it ends.
static unsigned flags_after(const struct added_set *set, const char *text, size_t at, size_t *end) {
    size_t size;
    unsigned flags = set->flags[utf8_decode((const unsigned char *)text + at, &size)];
    *end = at + size;
    return flags;
}

// Whether there is no word character before or after the match.
static bool stands_alone(const struct added_set *set, const struct added_cursor *cursor,
                         size_t start, size_t end) {
    size_t unused;
    if (start > 0 && flags_before(set, cursor->text, start, &unused) & UNICODE_WORD) return false;
    return end == cursor->len || !(flags_after(set, cursor->text, end, &unused) & UNICODE_WORD);
}

// Widens a match over the white space that its token takes.
static void strip(const struct added_set *set, const struct added_cursor *cursor,
                  const struct added_token *token, size_t *start, size_t *end) {
    size_t next;
    if (token->lstrip) {
        while (*start > cursor->done &&
               flags_before(set, cursor->text, *start, &next) & UNICODE_SPACE) {
            *start = next;
        }
        if (*start < cursor->done) *start = cursor->done;
    }
    if (token->rstrip) {
        while (*end < cursor->len && flags_after(set, cursor->text, *end, &next) & UNICODE_SPACE) {
            *end = next;
        }
    }
}

// Sets the next piece, [start, end). `done` can move back: as in Hugging Face, a token may begin in
// the white space that the token before it took along.
static bool hand_out(struct added_cursor *cursor, size_t start, size_t end, int32_t id) {
    cursor->start = start;
    cursor->end = end;
    cursor->id = id;
    cursor->done = end;
    return true;
}

bool added_next(const struct added_set *set, struct added_cursor *cursor) {
    if (cursor->queued) {
        cursor->queued = false;
        return hand_out(cursor, cursor->done, cursor->queued_end, cursor->queued_id);
    }
    while (set->num_tokens && cursor->search < cursor->len) {
        size_t start;
        const struct added_token *token = find_token(set, cursor, &start);
        if (cursor->status) return false;
        if (!token) break;
        size_t end = start + token->len;
        cursor->search = end;
        // A refused match is skipped as a whole: no token is searched inside it.
        if (token->single_word && !stands_alone(set, cursor, start, end)) continue;
        strip(set, cursor, token, &start, &end);
        if (start >= end) continue; // as in Hugging Face: the token before it took all of it along
        if (start <= cursor->done) return hand_out(cursor, start, end, token->id);
        cursor->queued = true;
        cursor->queued_end = end;
        cursor->queued_id = token->id;
        return hand_out(cursor, cursor->done, start, -1);
    }
    cursor->search = cursor->len;
    if (cursor->done >= cursor->len) return false;
    return hand_out(cursor, cursor->done, cursor->len, -1);
}

#include "engine/step/forced_call.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/text/blank.h"
#include "engine/step/prompt_reasoning.h"

enum { BLANK_BYTES_MAX = 4 }; // of a token between the reasoning and the call

static size_t skip_blanks(const char *bytes, size_t len, size_t at) {
    while (at < len && is_blank(bytes[at])) at++;
    return at;
}

// ---- tables ----

static enum status add_id(struct forced_ids *list, int32_t id, struct err *err) {
    if ((list->len & (list->len - 1)) == 0) { // full: its capacity is a power of two
        size_t capacity = list->len ? 2 * (size_t)list->len : 1;
        int32_t *ids = realloc(list->ids, capacity * sizeof *ids);
        if (!ids) return err_nomem(err, "forced call");
        list->ids = ids;
    }
    list->ids[list->len++] = id;
    return OK;
}

// " {", "{\"" or "{}", but no text that cannot begin an object.
static bool begins_object(const char *bytes, size_t len) {
    size_t at = skip_blanks(bytes, len, 0);
    if (at == len || bytes[at] != '{') return false;
    at = skip_blanks(bytes, len, at + 1);
    return at == len || bytes[at] == '"' || bytes[at] == '}';
}

static enum status sort_tokens(struct forced_call *call, uint32_t vocab_size, struct err *err) {
    uint32_t count = tokenizer_num_tokens(call->tokenizer);
    if (count > vocab_size) count = vocab_size;
    enum status status = OK;
    for (uint32_t id = 0; id < count && !status; id++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(call->tokenizer, (int32_t)id, &len);
        if (!bytes || !len) continue;
        if (begins_object(bytes, len)) {
            status = add_id(&call->brace, (int32_t)id, err);
        } else if (len <= BLANK_BYTES_MAX && skip_blanks(bytes, len, 0) == len) {
            status = add_id(&call->blank, (int32_t)id, err);
        }
    }
    int32_t opening[REASONING_OPENING_MAX];
    uint32_t num_opening = reasoning_opening_tokens(call->tokenizer, vocab_size, opening);
    for (uint32_t i = 0; i < num_opening && !status; i++) {
        status = add_id(&call->opening, opening[i], err);
    }
    if (!status && !call->brace.len) {
        status = err_set(err, ERR_UNSUPPORTED, "the vocabulary has no token that begins with {");
    }
    return status;
}

static enum status encode_prefix(struct forced_call *call, const char *text, struct token_list *ids,
                                 uint32_t vocab_size, struct err *err) {
    size_t start = ids->len, len = strlen(text);
    if (!len || len > FORCED_CALL_PREFIX_BYTES_MAX) {
        return err_set(err, ERR_INVALID, "a call's prefix has %zu bytes, want 1 to %d", len,
                       FORCED_CALL_PREFIX_BYTES_MAX);
    }
    enum status status = tokenizer_encode(call->tokenizer, text, len, false, NULL, ids, err);
    if (status) return status;
    for (size_t i = start; i < ids->len; i++) {
        if ((uint32_t)ids->ids[i] < vocab_size) continue;
        return err_set(err, ERR_INVALID, "a call's prefix has a token out of the vocabulary");
    }
    call->prefixes[call->num_prefixes++] =
        (struct forced_prefix){(uint32_t)start, (uint32_t)(ids->len - start)};
    return OK;
}

static int compare_prefixes(const void *a, const void *b, void *context) {
    const struct forced_prefix *left = a, *right = b;
    const int32_t *ids = context;
    uint32_t len = left->len < right->len ? left->len : right->len;
    for (uint32_t i = 0; i < len; i++) {
        int32_t l = ids[left->start + i], r = ids[right->start + i];
        if (l != r) return l < r ? -1 : 1;
    }
    return (left->len > right->len) - (left->len < right->len);
}

static enum status encode_prefixes(struct forced_call *call, const char *const *texts,
                                   size_t num_texts, uint32_t vocab_size, struct err *err) {
    struct token_list ids = {0};
    enum status status = OK;
    call->prefixes = malloc(num_texts * sizeof *call->prefixes);
    if (!call->prefixes) return err_nomem(err, "forced call");
    for (size_t i = 0; i < num_texts && !status; i++) {
        status = encode_prefix(call, texts[i], &ids, vocab_size, err);
    }
    call->ids = ids.ids;
    if (status) return status;
    qsort_r(call->prefixes, num_texts, sizeof *call->prefixes, compare_prefixes, call->ids);
    return OK;
}

// ---- the start ----

static void begin_prefix(const struct forced_call *call, struct forced_state *state) {
    state->phase = FORCED_PREFIX;
    state->first = state->len = 0;
    state->count = call->num_prefixes;
}

// Whether the prompt ends in reasoning, or behind it, or before any.
static enum status begin(const struct forced_call *call, struct forced_state *state,
                         const int32_t *prompt, uint32_t num_prompt, struct err *err) {
    bool is_over;
    begin_prefix(call, state);
    enum status status =
        prompt_reasoning(&state->think, &is_over, call->tokenizer, prompt, num_prompt, err);
    if (status) return status;
    if (state->think.state == THINK_INSIDE) {
        state->phase = FORCED_REASONING;
    } else if (!is_over && call->opening.len) {
        state->phase = FORCED_START;
    }
    return OK;
}

enum status forced_call_init(struct forced_call *call, struct forced_state *state,
                             const struct forced_call_options *options,
                             const struct tokenizer *tokenizer, uint32_t vocab_size,
                             struct err *err) {
    size_t num_prefixes = options->num_prefixes;
    *call = (struct forced_call){.tokenizer = tokenizer, .num_words = (vocab_size + 31) / 32};
    *state = (struct forced_state){0};
    if (!num_prefixes) return OK;
    if (num_prefixes > FORCED_CALL_PREFIXES_MAX) {
        return err_set(err, ERR_INVALID, "a call is forced to be one of %zu, want at most %d",
                       num_prefixes, FORCED_CALL_PREFIXES_MAX);
    }
    if (!tokenizer) {
        return err_set(err, ERR_INVALID,
                       "a forced call needs the tokenizer, which skip_tokenizer_init left out");
    }
    call->kept = malloc(call->num_words * sizeof *call->kept);
    enum status status = call->kept ? OK : err_nomem(err, "forced call");
    if (!status) status = encode_prefixes(call, options->prefixes, num_prefixes, vocab_size, err);
    if (!status) status = sort_tokens(call, vocab_size, err);
    if (!status) status = begin(call, state, options->prompt, options->num_prompt, err);
    if (status) forced_call_fini(call);
    return status;
}

void forced_call_fini(struct forced_call *call) {
    free(call->kept);
    free(call->ids);
    free(call->prefixes);
    free(call->opening.ids);
    free(call->blank.ids);
    free(call->brace.ids);
    *call = (struct forced_call){0};
}

// ---- tokens ----

static bool has_id(const struct forced_ids *list, int32_t id) {
    for (uint32_t i = 0; i < list->len; i++) {
        if (list->ids[i] == id) return true;
    }
    return false;
}

// What think_feed emits: only its state is wanted.
static enum status drop(void *user_data, const char *text, size_t len, enum think_part part,
                        struct err *err) {
    (void)user_data, (void)text, (void)len, (void)part, (void)err;
    return OK;
}

static void take_reasoning(const struct forced_call *call, struct forced_state *state,
                           const char *bytes, size_t len) {
    enum status status = think_feed(&state->think, bytes, len, drop, NULL, NULL);
    CHECK(status == OK, "status=%d", (int)status);
    if (state->think.state != THINK_AFTER) return;
    begin_prefix(call, state);
    state->may_be_blank = true;
}

static int32_t id_at(const struct forced_call *call, uint32_t prefix, uint32_t at) {
    return call->ids[call->prefixes[prefix].start + at];
}

// Narrows the prefixes to those that go on with the token.
static void take_prefix(const struct forced_call *call, struct forced_state *state,
                        int32_t token_id) {
    if (state->may_be_blank && has_id(&call->blank, token_id)) {
        state->may_be_blank = false;
        return;
    }
    state->may_be_blank = false;
    uint32_t first = state->first, end = first + state->count;
    while (first < end && (call->prefixes[first].len <= state->len ||
                           id_at(call, first, state->len) != token_id)) {
        first++;
    }
    uint32_t last = first;
    while (last < end && id_at(call, last, state->len) == token_id) last++;
    state->first = first;
    state->count = last - first;
    state->len++;
    // The shortest stands first: a longer one that begins with it is not told from its object.
    bool is_whole = !state->count || call->prefixes[first].len == state->len;
    if (!is_whole) return;
    state->phase = FORCED_BRACE;
    state->may_be_blank = true;
}

static void take_object(struct forced_state *state, const char *bytes, size_t len) {
    for (size_t i = 0; i < len && state->phase == FORCED_OBJECT; i++) {
        char c = bytes[i];
        if (state->is_escaped) {
            state->is_escaped = false;
        } else if (state->in_string) {
            state->is_escaped = c == '\\';
            state->in_string = c != '"';
        } else if (c == '"') {
            state->in_string = true;
        } else if (c == '{' || c == '[') {
            state->depth++;
        } else if ((c == '}' || c == ']') && --state->depth == 0) {
            state->phase = FORCED_DONE;
        }
    }
}

void forced_call_take(const struct forced_call *call, struct forced_state *state,
                      int32_t token_id) {
    size_t len = 0;
    if (state->phase == FORCED_DONE) return;
    const char *bytes = tokenizer_token_bytes(call->tokenizer, token_id, &len);
    if (!bytes) return; // an id of a padded vocabulary
    switch (state->phase) {
    case FORCED_START:
        if (has_id(&call->opening, token_id)) {
            state->phase = FORCED_REASONING;
            take_reasoning(call, state, bytes, len);
            return;
        }
        begin_prefix(call, state);
        take_prefix(call, state, token_id);
        return;
    case FORCED_REASONING:
        take_reasoning(call, state, bytes, len);
        return;
    case FORCED_PREFIX:
        take_prefix(call, state, token_id);
        return;
    case FORCED_BRACE:
        if (state->may_be_blank && has_id(&call->blank, token_id)) {
            state->may_be_blank = false;
            return;
        }
        state->phase = FORCED_OBJECT;
        take_object(state, bytes, len);
        return;
    case FORCED_OBJECT:
        take_object(state, bytes, len);
        return;
    case FORCED_DONE:
        return;
    }
}

bool forced_call_restricts(const struct forced_state *state) {
    return state->phase == FORCED_START || state->phase == FORCED_PREFIX ||
           state->phase == FORCED_BRACE;
}

static void keep(const uint32_t *words, uint32_t *kept, int32_t id) {
    kept[id / 32] |= words[id / 32] & (1u << (id % 32));
}

static void keep_list(const uint32_t *words, uint32_t *kept, const struct forced_ids *list) {
    for (uint32_t i = 0; i < list->len; i++) keep(words, kept, list->ids[i]);
}

void forced_call_restrict(const struct forced_call *call, const struct forced_state *state,
                          uint32_t *words) {
    size_t bytes = call->num_words * sizeof *words;
    uint32_t first = 0, end = call->num_prefixes, len = 0;
    memset(call->kept, 0, bytes);
    if (state->may_be_blank) keep_list(words, call->kept, &call->blank);
    if (state->phase == FORCED_BRACE) {
        keep_list(words, call->kept, &call->brace);
        end = 0;
    } else if (state->phase == FORCED_START) {
        keep_list(words, call->kept, &call->opening);
    } else {
        first = state->first;
        end = first + state->count;
        len = state->len;
    }
    for (uint32_t i = first; i < end; i++) keep(words, call->kept, id_at(call, i, len));
    memcpy(words, call->kept, bytes);
}

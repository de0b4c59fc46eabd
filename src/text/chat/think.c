/* Looks at one byte at a time, because a tag may be split over tokens anywhere. What could be the
 * beginning of a tag is held until the next bytes decide; that is never more than one tag. */
#include "text/chat/think.h"

#include <string.h>

#include "base/text/blank.h"

static const struct think_tag tags[] = {
    {"<think>", "</think>", NULL},
    {"<thinking>", "</thinking>", NULL},
    {"<thought>", "</thought>", NULL},
    {"<reasoning>", "</reasoning>", NULL},
    {"<seed:think>", "</seed:think>", NULL},
    {"[THINK]", "[/THINK]", NULL},
    {"<|START_THINKING|>", "<|END_THINKING|>", NULL}, // Cohere's Command
    {"<|channel>thought\n", "<channel|>", "<|channel>"}, // Gemma 4
};

struct sink {
    think_fn emit;
    void *user_data;
    struct err *err;
};

const struct think_tag *think_tag(size_t index) {
    return index < ARRAY_LEN(tags) ? &tags[index] : NULL;
}

void think_begin(struct think *think, const char *prompt, size_t prompt_len) {
    *think = (struct think){0};
    while (prompt_len && is_blank(prompt[prompt_len - 1])) prompt_len--;
    for (size_t i = 0; i < ARRAY_LEN(tags); i++) {
        size_t len = strlen(tags[i].open);
        while (is_blank(tags[i].open[len - 1])) len--; // as of the prompt
        if (prompt_len < len || memcmp(prompt + prompt_len - len, tags[i].open, len) != 0) continue;
        think->state = THINK_INSIDE;
        think->tag = &tags[i];
        think->may_reopen = true;
        return;
    }
}

static enum status emit(const struct sink *sink, const char *text, size_t len,
                        enum think_part part) {
    return len ? sink->emit(sink->user_data, text, len, part, sink->err) : OK;
}

static enum status emit_held(struct think *think, size_t len, enum think_part part,
                             const struct sink *sink) {
    enum status status = emit(sink, think->held, len, part);
    think->held_len -= len;
    memmove(think->held, think->held + len, think->held_len);
    return status;
}

// Whether what is held begins `tag`; *whole: it is all of it.
static bool held_begins(const struct think *think, const char *tag, bool *whole) {
    size_t len = strlen(tag);
    *whole = len == think->held_len && memcmp(tag, think->held, len) == 0;
    return len >= think->held_len && memcmp(tag, think->held, think->held_len) == 0;
}

static enum status feed_before(struct think *think, char c, const struct sink *sink) {
    if (think->held_len == 0 && is_blank(c)) return emit(sink, &c, 1, THINK_ANSWER);
    think->held[think->held_len++] = c;
    bool begins = false;
    for (size_t i = 0; i < ARRAY_LEN(tags); i++) {
        bool whole;
        begins |= held_begins(think, tags[i].open, &whole);
        if (!whole) continue;
        think->state = THINK_INSIDE;
        think->tag = &tags[i];
        return emit_held(think, think->held_len, THINK_TAG, sink);
    }
    if (begins) return OK;
    think->state = THINK_AFTER;
    return emit_held(think, think->held_len, THINK_ANSWER, sink);
}

// The text behind the token that a tag begins with.
static const char *rest_of(const struct think_tag *tag) {
    return tag->token ? tag->open + strlen(tag->token) : "";
}

// Ends the wait for the rest of a tag. If only a part of the tag came, that part was thinking.
static enum status end_rest(struct think *think, const struct sink *sink) {
    const char *start = rest_of(think->tag);
    size_t len = think->rest && *think->rest ? (size_t)(think->rest - start) : 0;
    think->rest = NULL;
    return emit(sink, start, len, THINK_THOUGHT);
}

static enum status feed_inside(struct think *think, char c, const struct sink *sink) {
    if (think->rest && c == *think->rest) {
        think->rest++;
        if (!*think->rest) think->rest = NULL;
        return OK;
    }
    enum status begun = end_rest(think, sink);
    if (begun) return begun;
    if (think->held_len == 0 && is_blank(c)) return emit(sink, &c, 1, THINK_THOUGHT);
    think->held[think->held_len++] = c;
    bool closes = false, reopens = false;
    // Bytes that cannot begin a tag any more leave from the front.
    while (think->held_len && !held_begins(think, think->tag->close, &closes) &&
           !(think->may_reopen && held_begins(think, think->tag->open, &reopens))) {
        think->may_reopen = false;
        enum status status = emit_held(think, 1, THINK_THOUGHT, sink);
        if (status) return status;
    }
    if (closes) think->state = THINK_AFTER;
    if (reopens) think->may_reopen = false;
    return closes || reopens ? emit_held(think, think->held_len, THINK_TAG, sink) : OK;
}

enum status think_feed(struct think *think, const char *text, size_t len, think_fn emit_fn,
                       void *user_data, struct err *err) {
    struct sink sink = {emit_fn, user_data, err};
    enum status status = OK;
    size_t i = 0;
    for (; i < len && !status && think->state != THINK_AFTER; i++) {
        status = think->state == THINK_BEFORE ? feed_before(think, text[i], &sink)
                                              : feed_inside(think, text[i], &sink);
    }
    return status ? status : emit(&sink, text + i, len - i, THINK_ANSWER);
}

enum status think_mark(struct think *think, const struct think_tag *tag, bool opens,
                       think_fn emit_fn, void *user_data, struct err *err) {
    enum think_state wanted = opens ? THINK_BEFORE : THINK_INSIDE;
    if (think->state != wanted) return OK;
    enum status status = think_end(think, emit_fn, user_data, err);
    think->state = opens ? THINK_INSIDE : THINK_AFTER;
    think->tag = tag;
    think->rest = opens && *rest_of(tag) ? rest_of(tag) : NULL;
    return status;
}

enum status think_end(struct think *think, think_fn emit_fn, void *user_data, struct err *err) {
    struct sink sink = {emit_fn, user_data, err};
    enum status status = think->rest ? end_rest(think, &sink) : OK;
    if (status) return status;
    enum think_part part = think->state == THINK_INSIDE ? THINK_THOUGHT : THINK_ANSWER;
    return emit_held(think, think->held_len, part, &sink);
}

/* Looks at one byte at a time, because a tag may be split over tokens anywhere. What could be the
 * beginning of a tag is held until the next bytes decide; that is never more than one tag. */
#include "cmd/chat/think.h"

#include <string.h>

static const struct chat_think_tag tags[] = {
    {"<think>", "</think>"},         {"<thinking>", "</thinking>"},     {"<thought>", "</thought>"},
    {"<reasoning>", "</reasoning>"}, {"<seed:think>", "</seed:think>"}, {"[THINK]", "[/THINK]"},
};

struct sink {
    chat_think_fn emit;
    void *user_data;
    struct err *err;
};

const struct chat_think_tag *chat_think_tag(size_t index) {
    return index < ARRAY_LEN(tags) ? &tags[index] : NULL;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

void chat_think_begin(struct chat_think *think, const char *prompt, size_t prompt_len) {
    *think = (struct chat_think){0};
    while (prompt_len && is_blank(prompt[prompt_len - 1])) prompt_len--;
    for (size_t i = 0; i < ARRAY_LEN(tags); i++) {
        size_t len = strlen(tags[i].open);
        if (prompt_len < len || memcmp(prompt + prompt_len - len, tags[i].open, len) != 0) continue;
        think->state = CHAT_THINK_INSIDE;
        think->tag = &tags[i];
        return;
    }
}

static enum status emit(const struct sink *sink, const char *text, size_t len, bool thinking) {
    return len ? sink->emit(sink->user_data, text, len, thinking, sink->err) : OK;
}

static enum status emit_held(struct chat_think *think, size_t len, bool thinking,
                             const struct sink *sink) {
    enum status status = emit(sink, think->held, len, thinking);
    think->held_len -= len;
    memmove(think->held, think->held + len, think->held_len);
    return status;
}

// Whether what is held begins `tag`; *whole: it is all of it.
static bool held_begins(const struct chat_think *think, const char *tag, bool *whole) {
    size_t len = strlen(tag);
    *whole = len == think->held_len && memcmp(tag, think->held, len) == 0;
    return len >= think->held_len && memcmp(tag, think->held, think->held_len) == 0;
}

static enum status feed_before(struct chat_think *think, char c, const struct sink *sink) {
    if (think->held_len == 0 && is_blank(c)) return emit(sink, &c, 1, false);
    think->held[think->held_len++] = c;
    bool begins = false;
    for (size_t i = 0; i < ARRAY_LEN(tags); i++) {
        bool whole;
        begins |= held_begins(think, tags[i].open, &whole);
        if (!whole) continue;
        think->state = CHAT_THINK_INSIDE;
        think->tag = &tags[i];
        return emit_held(think, think->held_len, true, sink);
    }
    if (begins) return OK;
    think->state = CHAT_THINK_AFTER;
    return emit_held(think, think->held_len, false, sink);
}

static enum status feed_inside(struct chat_think *think, char c, const struct sink *sink) {
    think->held[think->held_len++] = c;
    bool whole = false;
    enum status status = OK;
    // Bytes that cannot begin the tag any more leave from the front.
    while (!status && think->held_len && !held_begins(think, think->tag->close, &whole)) {
        status = emit_held(think, 1, true, sink);
    }
    if (status || !whole) return status;
    think->state = CHAT_THINK_AFTER;
    return emit_held(think, think->held_len, true, sink);
}

enum status chat_think_feed(struct chat_think *think, const char *text, size_t len,
                            chat_think_fn emit_fn, void *user_data, struct err *err) {
    struct sink sink = {emit_fn, user_data, err};
    enum status status = OK;
    size_t i = 0;
    for (; i < len && !status && think->state != CHAT_THINK_AFTER; i++) {
        status = think->state == CHAT_THINK_BEFORE ? feed_before(think, text[i], &sink)
                                                   : feed_inside(think, text[i], &sink);
    }
    return status ? status : emit(&sink, text + i, len - i, false);
}

enum status chat_think_mark(struct chat_think *think, const struct chat_think_tag *tag, bool opens,
                            chat_think_fn emit_fn, void *user_data, struct err *err) {
    enum chat_think_state wanted = opens ? CHAT_THINK_BEFORE : CHAT_THINK_INSIDE;
    if (think->state != wanted) return OK;
    enum status status = chat_think_end(think, emit_fn, user_data, err);
    think->state = opens ? CHAT_THINK_INSIDE : CHAT_THINK_AFTER;
    think->tag = tag;
    return status;
}

enum status chat_think_end(struct chat_think *think, chat_think_fn emit_fn, void *user_data,
                           struct err *err) {
    struct sink sink = {emit_fn, user_data, err};
    return emit_held(think, think->held_len, think->state == CHAT_THINK_INSIDE, &sink);
}

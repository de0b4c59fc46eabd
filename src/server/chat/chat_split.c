#include "server/chat/chat_split.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/chat/harmony.h"
#include "server/chat/reasoning.h"
#include "server/chat/tag_calls.h"
#include "server/chat/tool_calls.h"

struct chat_split {
    struct chat_split_options options;
    struct reasoning reasoning;
    struct tool_calls calls; // where options.format is given
    struct tag_calls tag_calls; // in place of it, of a format with tags
    struct harmony harmony; // with has_channels in place of the two
    struct buf thought, content; // of the push under way
    bool has_call, has_ended_call;
    chat_event_fn emit; // of the push under way
    void *user_data;
};

static enum status send(struct chat_split *split, const struct chat_event *event, struct err *err) {
    return split->emit ? split->emit(split->user_data, event, err) : OK;
}

static enum status take_tool_event(void *user_data, const struct tool_event *event,
                                   struct err *err) {
    static const enum chat_part parts[] = {[TOOL_EVENT_TEXT] = CHAT_CONTENT,
                                           [TOOL_EVENT_BEGIN] = CHAT_CALL,
                                           [TOOL_EVENT_ARGUMENTS] = CHAT_ARGUMENTS,
                                           [TOOL_EVENT_END] = CHAT_CALL_END};
    struct chat_split *split = user_data;
    bool is_text = event->kind == TOOL_EVENT_TEXT;
    if (!is_text && event->index > 0 && split->options.one_call) return OK;
    if (!is_text) split->has_call = true;
    if (event->kind == TOOL_EVENT_END) split->has_ended_call = true;
    const struct chat_event out = {.part = parts[event->kind],
                                   .index = event->index,
                                   .id = event->id,
                                   .name = event->name,
                                   .text = event->text,
                                   .len = event->len,
                                   .is_unfinished = event->kind == TOOL_EVENT_END &&
                                                    event->end == TOOL_END_UNFINISHED};
    return send(split, &out, err);
}

struct chat_split *chat_split_create(const struct chat_split_options *options, const char *prompt,
                                     size_t prompt_len) {
    struct chat_split *split = calloc(1, sizeof *split);
    if (!split) return NULL;
    split->options = *options;
    split->options.tools = NULL; // its reference is counted below
    if (options->has_channels) {
        if (harmony_begin(&split->harmony, options, prompt, prompt_len)) return split;
        chat_split_destroy(split);
        return NULL;
    }
    reasoning_begin(&split->reasoning, options->splits_reasoning, prompt, prompt_len);
    const struct tool_calls_options calls = {.format = options->format,
                                             .only_text = options->calls_are_text,
                                             .seed = options->seed,
                                             .emit = take_tool_event,
                                             .user_data = split};
    const struct tag_calls_options tag_calls = {.format = options->format,
                                                .tools = options->tools,
                                                .seed = options->seed,
                                                .emit = take_tool_event,
                                                .user_data = split};
    split->options.tools = json_incref(options->tools);
    if (options->format && options->format->tags) {
        tag_calls_init(&split->tag_calls, &tag_calls);
    } else if (options->format) {
        tool_calls_init(&split->calls, &calls);
    }
    return split;
}

void chat_split_destroy(struct chat_split *split) {
    if (!split) return;
    tool_calls_fini(&split->calls);
    tag_calls_fini(&split->tag_calls);
    json_decref(split->options.tools);
    harmony_fini(&split->harmony);
    buf_fini(&split->thought);
    buf_fini(&split->content);
    free(split);
}

enum status chat_split_begin(struct chat_split *split, const char *text, size_t len,
                             struct err *err) {
    const struct reasoning_delta delta = {&split->thought, &split->content};
    if (split->options.has_channels) return harmony_push(&split->harmony, text, len, err);
    enum status status = reasoning_push(&split->reasoning, text, len, &delta, err);
    buf_clear(&split->thought);
    buf_clear(&split->content);
    return status;
}

// Leaves out what is not wanted.
static enum status take_channel_event(void *user_data, const struct chat_event *event,
                                      struct err *err) {
    struct chat_split *split = user_data;
    bool is_text = event->part == CHAT_REASONING || event->part == CHAT_CONTENT;
    if (event->part == CHAT_REASONING && split->options.drops_reasoning) return OK;
    if (!is_text && event->index > 0 && split->options.one_call) return OK;
    if (!is_text) split->has_call = true;
    if (event->part == CHAT_CALL_END && !event->is_unfinished) split->has_ended_call = true;
    return send(split, event, err);
}

static enum status find_calls(struct chat_split *split, const char *text, size_t len,
                              struct err *err) {
    if (split->options.format->tags) return tag_calls_push(&split->tag_calls, text, len, err);
    return tool_calls_push(&split->calls, text, len, err);
}

// Hands out what the push has divided.
static enum status hand_out(struct chat_split *split, struct err *err) {
    const struct chat_event thought = {
        .part = CHAT_REASONING, .text = split->thought.data, .len = split->thought.len};
    const struct chat_event content = {
        .part = CHAT_CONTENT, .text = split->content.data, .len = split->content.len};
    enum status status = OK;
    if (thought.len && !split->options.drops_reasoning) status = send(split, &thought, err);
    if (!status && content.len && split->options.format) {
        status = find_calls(split, content.text, content.len, err);
    } else if (!status && content.len) {
        status = send(split, &content, err);
    }
    buf_clear(&split->thought);
    buf_clear(&split->content);
    return status;
}

enum status chat_split_push(struct chat_split *split, const char *text, size_t len,
                            chat_event_fn emit, void *user_data, struct err *err) {
    split->emit = emit;
    split->user_data = user_data;
    const struct reasoning_delta delta = {&split->thought, &split->content};
    enum status status = OK;
    if (split->options.has_channels) {
        split->harmony.emit = take_channel_event;
        split->harmony.user_data = split;
        status = harmony_push(&split->harmony, text, len, err);
    } else {
        status = reasoning_push(&split->reasoning, text, len, &delta, err);
        if (!status) status = hand_out(split, err);
    }
    split->emit = NULL;
    return status;
}

enum status chat_split_finish(struct chat_split *split, chat_event_fn emit, void *user_data,
                              struct err *err) {
    split->emit = emit;
    split->user_data = user_data;
    const struct reasoning_delta delta = {&split->thought, &split->content};
    enum status status = OK;
    if (split->options.has_channels) {
        split->harmony.emit = take_channel_event;
        split->harmony.user_data = split;
        status = harmony_finish(&split->harmony, err);
    } else {
        status = reasoning_finish(&split->reasoning, &delta, err);
        if (!status) status = hand_out(split, err);
        const struct tool_format *format = split->options.format;
        if (!status && format) {
            status = format->tags ? tag_calls_finish(&split->tag_calls, err)
                                  : tool_calls_finish(&split->calls, err);
        }
    }
    split->emit = NULL;
    return status;
}

bool chat_split_is_thinking(const struct chat_split *split) {
    if (split->options.has_channels) return harmony_is_thinking(&split->harmony);
    return split->options.splits_reasoning && split->reasoning.field == THINK_THOUGHT;
}

bool chat_split_has_call(const struct chat_split *split) {
    return split->has_call;
}

bool chat_split_has_ended_call(const struct chat_split *split) {
    return split->has_ended_call;
}

// ---- blocks ----

void chat_blocks_fini(struct chat_blocks *blocks) {
    for (size_t i = 0; i < blocks->count; i++) buf_fini(&blocks->items[i].text);
    free(blocks->items);
    *blocks = (struct chat_blocks){0};
}

static enum status begin_block(struct chat_blocks *blocks, const struct chat_event *event,
                               struct err *err) {
    struct chat_block *items = realloc(blocks->items, (blocks->count + 1) * sizeof *items);
    if (!items) return err_nomem(err, "answer");
    blocks->items = items;
    struct chat_block *block = &items[blocks->count];
    *block = (struct chat_block){.part = event->part};
    if (event->part == CHAT_CALL) {
        snprintf(block->id, sizeof block->id, "%s", event->id);
        snprintf(block->name, sizeof block->name, "%s", event->name);
    }
    blocks->count++;
    return OK;
}

enum status chat_blocks_add(void *user_data, const struct chat_event *event, struct err *err) {
    struct chat_blocks *blocks = user_data;
    if (event->part == CHAT_CALL_END) {
        if (blocks->count) blocks->items[blocks->count - 1].is_unfinished = event->is_unfinished;
        return OK;
    }
    const struct chat_block *last = blocks->count ? &blocks->items[blocks->count - 1] : NULL;
    bool goes_on = event->part == CHAT_ARGUMENTS || (last && last->part == event->part);
    enum status status = OK;
    if (!goes_on || event->part == CHAT_CALL) status = begin_block(blocks, event, err);
    if (status || !event->len) return status;
    return buf_append(&blocks->items[blocks->count - 1].text, event->text, event->len, err);
}

enum status chat_blocks_join(const struct chat_blocks *blocks, enum chat_part part, struct buf *out,
                             struct err *err) {
    enum status status = buf_reserve(out, 0, err);
    for (size_t i = 0; i < blocks->count && !status; i++) {
        const struct chat_block *block = &blocks->items[i];
        if (block->part == part && block->text.len) {
            status = buf_append(out, block->text.data, block->text.len, err);
        }
    }
    return status;
}

/* A machine fed byte by byte:
 *   HEADER   before <|message|>; all of it is held
 *   BODY     in a message's text, where a '<' is held while a mark may come
 *   BETWEEN  behind a message, before the next <|start|>
 *   LOOSE    in text that is in no message: content */
#include "server/chat/harmony.h"

#include <string.h>

#include "base/compiler.h"
#include "base/text/blank.h"
#include "server/chat/tool_calls.h"

enum { HEADER, BODY, BETWEEN, LOOSE };
enum { REASONING, CONTENT, CALL };

// Marks that end a message's text.
static const char *const ends[] = {HARMONY_END, "<|call|>", "<|return|>", HARMONY_START,
                                   HARMONY_CHANNEL};

static enum status emit(struct harmony *h, const struct chat_event *event, struct err *err) {
    return h->emit ? h->emit(h->user_data, event, err) : OK;
}

static enum status hand_out(struct harmony *h, struct err *err) {
    struct chat_event event = {.part = CHAT_CONTENT, .text = h->text.data, .len = h->text.len};
    if (!event.len) return OK;
    if (h->state == BODY && h->kind == CALL) {
        event.part = CHAT_ARGUMENTS;
        event.index = h->num_calls - 1;
    } else if (h->state == BODY && h->kind == REASONING && h->splits_reasoning) {
        event.part = CHAT_REASONING;
    }
    enum status status = emit(h, &event, err);
    buf_clear(&h->text);
    return status;
}

static enum status end_call(struct harmony *h, bool is_unfinished, struct err *err) {
    if (!h->is_open) return OK;
    enum status status = hand_out(h, err);
    h->is_open = false;
    const struct chat_event event = {
        .part = CHAT_CALL_END, .index = h->num_calls - 1, .is_unfinished = is_unfinished};
    return status ? status : emit(h, &event, err);
}

// A byte of a message's text. Behind a call's arguments nothing is wanted.
static enum status take_text(struct harmony *h, char byte, struct err *err) {
    if (h->state != BODY || h->kind != CALL) return buf_append(&h->text, &byte, 1, err);
    if (!h->is_open || (h->json.depth == 0 && !h->is_broken && is_blank(byte))) return OK;
    enum status status = buf_append(&h->text, &byte, 1, err);
    if (status || h->is_broken) return status;
    enum jstream_event event = jstream_push(&h->json, byte);
    h->is_broken = event == JSTREAM_BAD;
    bool is_whole = event == JSTREAM_CLOSE && h->json.depth == 0;
    return is_whole ? end_call(h, false, err) : OK;
}

static enum status take_held(struct harmony *h, size_t len, struct err *err) {
    enum status status = OK;
    for (size_t i = 0; i < len && !status; i++) status = take_text(h, h->held.data[i], err);
    h->held.len -= len;
    memmove(h->held.data, h->held.data + len, h->held.len);
    return status;
}

// ---- headers ----

// Where `word` stands in the header, behind it; NULL: nowhere.
static const char *find(const struct harmony *h, const char *word) {
    size_t len = strlen(word);
    const char *at = memmem(h->held.data, h->held.len, word, len);
    return at ? at + len : NULL;
}

static bool has_word(const char *at, const char *end, const char *word) {
    size_t len = strlen(word);
    return at && (size_t)(end - at) >= len && memcmp(at, word, len) == 0;
}

static enum status begin_call(struct harmony *h, const char *name, const char *end,
                              struct err *err) {
    char id[TOOL_CALL_ID_MAX + 1], text[TOOL_CALL_NAME_MAX + 1];
    size_t len = 0;
    while (name + len < end && tool_format_is_name_byte(name[len])) len++;
    if (!len || len > TOOL_CALL_NAME_MAX) return OK; // the kind stays reasoning
    memcpy(text, name, len);
    text[len] = '\0';
    tool_call_make_id(&h->seed, false, id);
    h->kind = CALL;
    h->is_open = true;
    h->is_broken = false;
    h->json = (struct jstream){0};
    const struct chat_event event = {
        .part = CHAT_CALL, .index = h->num_calls++, .id = id, .name = text};
    return emit(h, &event, err);
}

// The header is whole.
static enum status begin_message(struct harmony *h, struct err *err) {
    static const char functions[] = "functions.";
    const char *end = h->held.data + h->held.len;
    const char *channel = find(h, HARMONY_CHANNEL), *recipient = find(h, " to=");
    enum status status = hand_out(h, err);
    h->state = BODY;
    h->kind = REASONING;
    if (!recipient && (has_word(channel, end, "final") || has_word(channel, end, "commentary"))) {
        h->kind = CONTENT;
    }
    if (!channel && !recipient) h->kind = CONTENT;
    bool is_call = h->finds_calls && has_word(recipient, end, functions);
    if (!status && is_call) status = begin_call(h, recipient + strlen(functions), end, err);
    buf_clear(&h->held);
    h->at_start = false;
    return status;
}

// The bytes held back turned out to be no header, so they are content. Of these, bytes that stand
// in the prompt are left out.
static enum status give_up_header(struct harmony *h, struct err *err) {
    size_t skip = h->at_start ? h->prompt_len : 0;
    h->state = LOOSE;
    h->held.len -= skip;
    if (skip) memmove(h->held.data, h->held.data + skip, h->held.len);
    h->at_start = false;
    return take_held(h, h->held.len, err);
}

static enum status feed_header(struct harmony *h, char byte, struct err *err) {
    bool is_first = h->at_start && h->held.len == h->prompt_len;
    enum status status = buf_append(&h->held, &byte, 1, err);
    if (status) return status;
    // Behind the prompt's "assistant" come a channel or a recipient.
    if ((is_first && byte != '<' && byte != ' ') || h->held.len > HARMONY_HEADER_MAX) {
        return give_up_header(h, err);
    }
    size_t len = strlen(HARMONY_MESSAGE);
    bool is_whole =
        h->held.len >= len && memcmp(h->held.data + h->held.len - len, HARMONY_MESSAGE, len) == 0;
    return is_whole ? begin_message(h, err) : OK;
}

// ---- texts ----

// Whether what is held begins a mark; *whole: it is one.
static bool held_begins(const struct harmony *h, size_t *whole) {
    bool begins = false;
    *whole = ARRAY_LEN(ends);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        size_t len = strlen(ends[i]);
        if (h->held.len > len || memcmp(ends[i], h->held.data, h->held.len) != 0) continue;
        begins = true;
        if (h->held.len == len) *whole = i;
    }
    return begins;
}

static enum status end_message(struct harmony *h, const char *mark, struct err *err) {
    enum status status = hand_out(h, err);
    if (!status) status = end_call(h, false, err);
    bool begins = strcmp(mark, HARMONY_START) == 0,
         has_channel = strcmp(mark, HARMONY_CHANNEL) == 0;
    h->state = begins || has_channel ? HEADER : BETWEEN;
    if (!has_channel) buf_clear(&h->held);
    return status;
}

// In BETWEEN the text is left out.
static enum status feed_text(struct harmony *h, char byte, struct err *err) {
    if (!h->held.len && byte != '<') return h->state == BETWEEN ? OK : take_text(h, byte, err);
    enum status status = buf_append(&h->held, &byte, 1, err);
    size_t whole = ARRAY_LEN(ends);
    while (!status && h->held.len && !held_begins(h, &whole)) {
        if (h->state != BETWEEN) {
            status = take_held(h, 1, err);
        } else {
            h->held.len--;
            memmove(h->held.data, h->held.data + 1, h->held.len);
        }
    }
    return status || whole == ARRAY_LEN(ends) ? status : end_message(h, ends[whole], err);
}

static enum status feed(struct harmony *h, const char *text, size_t len, struct err *err) {
    enum status status = OK;
    for (size_t i = 0; i < len && !status; i++) {
        status = h->state == HEADER ? feed_header(h, text[i], err) : feed_text(h, text[i], err);
    }
    return status;
}

bool harmony_begin(struct harmony *h, const struct chat_split_options *options, const char *prompt,
                   size_t prompt_len) {
    size_t mark_len = strlen(HARMONY_START), at = prompt_len;
    *h = (struct harmony){.seed = options->seed,
                          .finds_calls = options->format != NULL,
                          .splits_reasoning = options->splits_reasoning,
                          .state = HEADER};
    while (at > mark_len && memcmp(prompt + at - mark_len, HARMONY_START, mark_len) != 0) at--;
    if (at <= mark_len && prompt_len) at = prompt_len; // the prompt has no such mark
    enum status status = feed(h, prompt + at, prompt_len - at, NULL);
    buf_clear(&h->text);
    h->at_start = h->state == HEADER;
    h->prompt_len = h->held.len;
    return status == OK;
}

void harmony_fini(struct harmony *h) {
    buf_fini(&h->held);
    buf_fini(&h->text);
}

enum status harmony_push(struct harmony *h, const char *text, size_t len, struct err *err) {
    enum status status = feed(h, text, len, err);
    return status ? status : hand_out(h, err);
}

enum status harmony_finish(struct harmony *h, struct err *err) {
    enum status status = OK;
    if (h->state == HEADER) {
        // The beginning of a further message is no content.
        status = h->at_start ? give_up_header(h, err) : OK;
    } else if (h->state != BETWEEN) {
        status = take_held(h, h->held.len, err);
    }
    if (!status) status = hand_out(h, err);
    return status ? status : end_call(h, !h->is_broken, err);
}

bool harmony_is_thinking(const struct harmony *h) {
    return h->splits_reasoning && (h->state == BODY ? h->kind == REASONING : h->state == HEADER);
}

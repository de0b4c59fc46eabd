/* Any answer in any pieces: the first byte chooses the format and how many bytes each piece has.
 * The events are those of the answer in one piece; without a call the text is the answer; complete
 * arguments are what jansson takes for an object. */
#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/text/utf8.h"
#include "server/chat/tool_calls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct record {
    struct buf events; // all, in order, without the ids
    struct buf text, arguments; // of the call under way
    enum tool_event_kind last;
    uint32_t num_begun, num_ended;
    bool python; // the format's notation
};

static void append(struct buf *buf, const void *bytes, size_t len) {
    CHECK(buf_append(buf, bytes, len, NULL) == OK, "len=%zu", len);
}

// Whether jansson can say anything: it refuses more than JSON's grammar does.
static bool jansson_knows(const char *text, size_t len) {
    static const char *const cannot[] = {"\\u", "e", "E", "0000000000000000"};
    for (size_t i = 0; i < ARRAY_LEN(cannot); i++) {
        if (memmem(text, len, cannot[i], strlen(cannot[i]))) return false;
    }
    return utf8_valid_prefix(text, len) == len && !memchr(text, '\0', len);
}

// What is broken in Python's notation may look whole in JSON.
static void check_arguments(const struct buf *arguments, enum tool_end end, bool python) {
    json_error_t fault;
    json_t *json = json_loadb(arguments->data, arguments->len, JSON_DECODE_INT_AS_REAL, &fault);
    if (end == TOOL_END_COMPLETE && jansson_knows(arguments->data, arguments->len)) {
        CHECK(json_is_object(json), "%s", arguments->data);
    }
    if (json && !python) CHECK(end == TOOL_END_COMPLETE, "end=%d %s", (int)end, arguments->data);
    json_decref(json);
}

static enum status on_event(void *user_data, const struct tool_event *event, struct err *err) {
    (void)err;
    struct record *record = user_data;
    bool in_call = record->num_begun > record->num_ended;
    CHECK(in_call == (event->kind == TOOL_EVENT_ARGUMENTS || event->kind == TOOL_EVENT_END),
          "kind=%d", (int)event->kind);
    char mark[2] = {(char)('0' + (int)event->kind), (char)('0' + (int)event->end)};
    if (event->kind != record->last) append(&record->events, mark, 2);
    record->last = event->kind;
    switch (event->kind) {
    case TOOL_EVENT_TEXT:
        append(&record->text, event->text, event->len);
        break;
    case TOOL_EVENT_BEGIN:
        CHECK(event->index == record->num_begun++, "index=%u", event->index);
        append(&record->events, event->name, strlen(event->name));
        buf_clear(&record->arguments);
        break;
    case TOOL_EVENT_ARGUMENTS:
        append(&record->arguments, event->text, event->len);
        break;
    case TOOL_EVENT_END:
        CHECK(event->index == record->num_ended++, "index=%u", event->index);
        check_arguments(&record->arguments, event->end, record->python);
        break;
    }
    append(&record->events, event->text ? event->text : "", event->len);
    return OK;
}

static void find_calls(struct record *record, const struct tool_format *format, const char *text,
                       size_t len, size_t piece) {
    *record = (struct record){.last = TOOL_EVENT_END, .python = format->python};
    append(&record->arguments, "", 0);
    struct tool_calls calls;
    const struct tool_calls_options options = {
        .format = format, .seed = len, .emit = on_event, .user_data = record};
    tool_calls_init(&calls, &options);
    for (size_t at = 0; at < len; at += piece) {
        size_t bytes = len - at < piece ? len - at : piece;
        CHECK(tool_calls_push(&calls, text + at, bytes, NULL) == OK, "at=%zu", at);
    }
    CHECK(tool_calls_finish(&calls, NULL) == OK, "len=%zu", len);
    CHECK(record->num_begun == record->num_ended, "begun=%u", record->num_begun);
    if (!record->num_begun && !format->text_marks[0]) {
        CHECK(record->text.len == len, "len=%zu", len);
        CHECK(!len || memcmp(record->text.data, text, len) == 0, "len=%zu", len);
    }
    tool_calls_fini(&calls);
}

static void record_fini(struct record *record) {
    buf_fini(&record->events);
    buf_fini(&record->text);
    buf_fini(&record->arguments);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    static const char *const names[] = {"hermes",       "llama3_json",    "mistral",
                                        "mistral_args", "pythonic",       "llama4_pythonic",
                                        "lfm2",         "cohere_command3"};
    const struct tool_format *format = tool_format_find(names[data[0] % ARRAY_LEN(names)]);
    CHECK(format, "byte=%u", data[0]);
    const size_t piece = 1 + data[0] / ARRAY_LEN(names);
    struct record whole, pieces;
    find_calls(&whole, format, (const char *)data + 1, size - 1, size);
    find_calls(&pieces, format, (const char *)data + 1, size - 1, piece);
    CHECK(whole.events.len == pieces.events.len, "%zu %zu", whole.events.len, pieces.events.len);
    CHECK(!whole.events.len || !memcmp(whole.events.data, pieces.events.data, whole.events.len),
          "pieces of %zu", piece);
    record_fini(&whole);
    record_fini(&pieces);
    return 0;
}

/* A machine with one state at a time, fed byte by byte. Each state's comment says where it stands;
 * the usual way of a call is
 *   TEXT, MARKED, OBJECT, ARGUMENTS, TRAILER, AFTER, TEXT           an object behind a mark
 *   TEXT, MARKED, ITEM, OBJECT, ARGUMENTS, TRAILER, AFTER, ITEM ... a list of them
 *   TEXT, MARKED, NAME, TAG, BEFORE_ARGUMENTS, ARGUMENTS, ...       Mistral's name[ARGS]{...}
 *   TEXT, MARKED, ITEM, FUNCTION, KEYWORD, PYTHON, AFTER, ITEM ...  a list of name(key=value)
 *
 * While a call is undecided all its bytes are in `held`. A byte that cannot be there makes them
 * text. They are not searched for another mark: a mark in a string of JSON that breaks later stays
 * text, and the time stays linear. */
#include "server/chat/tool_calls.h"

#include <string.h>

#include "base/check.h"
#include "base/text/blank.h"

enum { TEXT_BLANKS_MAX = 64 }; // white space that is held because a call may follow

enum {
    TEXT,
    // A call that is not decided.
    MARKED, // behind a mark
    ITEM, // before an object of a list
    OBJECT, // in a call's object, its name or arguments not known yet
    NAME, // in a name behind a mark
    TAG, // in [ARGS] or [CALL_ID]
    CALL_ID,
    BEFORE_ARGUMENTS,
    FUNCTION, // in a name before '('
    KEYWORD, // behind it, up to the first '=' or the ')'
    // A call that has begun.
    ARGUMENTS,
    PYTHON, // in its arguments in Python's notation
    TRAILER, // in the object, behind the arguments
    AFTER, // behind the object: the end mark, or the list goes on
    RAW, // in arguments that are no JSON
};

enum { MEMBER_NAME, MEMBER_ARGUMENTS, MEMBER_KNOWN, MEMBER_OTHER };

static bool is_undecided(const struct tool_calls *calls) {
    return calls->state >= MARKED && calls->state < ARGUMENTS;
}

static void append(struct buf *buf, const char *bytes, size_t len) {
    enum status status = buf_append(buf, bytes, len, NULL);
    CHECK(status == OK, "status=%d len=%zu", (int)status, len); // the push has reserved it
}

static void hold(struct tool_calls *calls, char byte) {
    append(&calls->held, &byte, 1);
}

static void send(struct tool_calls *calls, const struct tool_event *event) {
    if (calls->status) return;
    calls->status = calls->options.emit(calls->options.user_data, event, calls->err);
}

static void flush(struct tool_calls *calls) {
    if (!calls->pending.len) return;
    struct tool_event event = {
        .kind = calls->pending_kind, .text = calls->pending.data, .len = calls->pending.len};
    if (event.kind == TOOL_EVENT_ARGUMENTS) event.index = calls->num_calls - 1;
    send(calls, &event);
    buf_clear(&calls->pending);
}

// Another kind never follows at once: between text and arguments stands a begin or an end.
static void emit(struct tool_calls *calls, enum tool_event_kind kind, const char *text,
                 size_t len) {
    calls->pending_kind = kind;
    append(&calls->pending, text, len);
}

static void emit_text(struct tool_calls *calls, const char *text, size_t len) {
    if (len) calls->after_call = calls->at_start = false;
    emit(calls, TOOL_EVENT_TEXT, text, len);
}

static void emit_held(struct tool_calls *calls) {
    emit_text(calls, calls->held.data, calls->held.len);
    buf_clear(&calls->held);
    calls->tag_len = 0;
}

static void emit_arguments(struct tool_calls *calls, const char *text, size_t len) {
    size_t left = TOOL_CALL_ARGUMENTS_MAX - calls->num_argument_bytes;
    if (len > left) {
        calls->too_long = true;
        len = left;
    }
    calls->num_argument_bytes += len;
    emit(calls, TOOL_EVENT_ARGUMENTS, text, len);
}

// splitmix64
static uint64_t next_random(uint64_t *seed) {
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void tool_call_make_id(uint64_t *seed, bool is_short, char id[TOOL_CALL_OWN_ID_MAX + 1]) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t prefix = is_short ? 0 : 5, len = is_short ? 9 : TOOL_CALL_OWN_ID_MAX;
    memcpy(id, "call_", 5);
    for (size_t i = prefix; i < len; i++) {
        id[i] = letters[next_random(seed) % (sizeof letters - 1)];
    }
    id[len] = '\0';
}

// The call is decided: what is held is its beginning. Leaves `held` to the caller.
static void begin_call(struct tool_calls *calls) {
    char id[TOOL_CALL_OWN_ID_MAX + 1];
    memcpy(calls->name, calls->held.data + calls->name_at, calls->name_len);
    calls->name[calls->name_len] = '\0';
    tool_call_make_id(&calls->options.seed, calls->options.format->short_ids, id);
    flush(calls);
    calls->num_argument_bytes = 0;
    calls->too_long = false;
    send(calls,
         &(struct tool_event){
             .kind = TOOL_EVENT_BEGIN, .index = calls->num_calls++, .id = id, .name = calls->name});
}

static void end_call(struct tool_calls *calls, enum tool_end end) {
    flush(calls);
    if (calls->too_long) end = TOOL_END_TOO_LONG;
    send(calls,
         &(struct tool_event){.kind = TOOL_EVENT_END, .index = calls->num_calls - 1, .end = end});
}

static void to_text(struct tool_calls *calls) {
    calls->state = TEXT;
    calls->after_call = true;
    calls->at_start = calls->options.format->bare;
    calls->in_list = false;
    calls->tag_len = 0;
}

// The bytes held back turned out to be no call: emits them as text. Returns what feed functions
// return.
static bool no_call(struct tool_calls *calls) {
    emit_held(calls);
    calls->state = TEXT;
    calls->in_list = false;
    return true;
}

static void begin_object(struct tool_calls *calls, uint8_t state) {
    calls->json = (struct jstream){0};
    calls->has_name = calls->has_arguments = false;
    calls->state = state;
}

// Feed functions take a byte; true: the byte is the next state's.

// Whether the byte begins a mark, or continues the one that `held` ends with. A whole mark before a
// call decides the state; a whole one around text is removed.
static bool take_mark(struct tool_calls *calls, char byte) {
    const struct tool_format *format = calls->options.format;
    const char *const marks[] = {calls->options.only_text ? NULL : format->mark,
                                 format->text_marks[0], format->text_marks[1]};
    const char *begun = calls->held.data + calls->held.len - calls->tag_len, *whole = NULL;
    bool fits = false;
    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        const char *mark = marks[i];
        bool has_begun = mark && (!calls->tag_len || strncmp(mark, begun, calls->tag_len) == 0);
        if (!has_begun || mark[calls->tag_len] != byte) continue;
        fits = true;
        if (!mark[calls->tag_len + 1]) whole = mark;
    }
    if (!fits) return false;
    hold(calls, byte);
    calls->tag_len++;
    if (!whole) return true;
    if (whole == marks[0]) calls->state = MARKED;
    if (whole == marks[0]) calls->marked = true;
    if (whole != marks[0]) calls->held.len -= calls->tag_len;
    calls->tag_len = 0;
    return true;
}

static bool feed_text(struct tool_calls *calls, char byte) {
    const struct tool_format *format = calls->options.format;
    if (take_mark(calls, byte)) return false;
    if (calls->tag_len) emit_held(calls);
    if (take_mark(calls, byte)) return false;
    if (byte == '[' && calls->at_start && format->python) {
        calls->marked = false;
        hold(calls, byte);
        calls->in_list = true;
        calls->state = ITEM;
    } else if (byte == '{' && calls->at_start && !format->python) {
        calls->marked = false;
        begin_object(calls, OBJECT);
        return true;
    } else if (is_blank(byte)) {
        if (calls->after_call) return false;
        if (calls->held.len == TEXT_BLANKS_MAX) emit_held(calls);
        hold(calls, byte);
    } else if (!(calls->after_call && format->separator && byte == format->separator)) {
        emit_held(calls);
        emit_text(calls, &byte, 1);
    }
    return false;
}

static bool feed_marked(struct tool_calls *calls, char byte) {
    bool list = calls->options.format->list;
    if (byte == '{' && !list) {
        begin_object(calls, OBJECT);
        return true;
    }
    if (byte == '[' && list) {
        calls->in_list = true;
        calls->state = ITEM;
    } else if (list && !calls->options.format->python && tool_format_is_name_byte(byte)) {
        calls->name_at = calls->held.len;
        calls->had_call_id = false;
        calls->state = NAME;
    } else if (!is_blank(byte)) {
        return no_call(calls);
    }
    hold(calls, byte);
    return false;
}

static bool feed_item(struct tool_calls *calls, char byte) {
    bool python = calls->options.format->python;
    if (byte == '{' && calls->marked) {
        begin_object(calls, OBJECT);
        return true;
    }
    if (python && !calls->held.len && (is_blank(byte) || byte == ']')) { // behind a comma
        if (byte == ']') calls->state = AFTER;
        return byte == ']';
    }
    if (python && tool_format_is_name_byte(byte)) {
        calls->name_at = calls->held.len;
        calls->state = FUNCTION;
    } else if (!is_blank(byte)) {
        return no_call(calls);
    }
    hold(calls, byte);
    return false;
}

static bool feed_function(struct tool_calls *calls, char byte) {
    calls->name_len = calls->held.len - calls->name_at;
    if (byte == '(') {
        python_notation_begin(&calls->python);
        calls->state = KEYWORD;
    } else if (!tool_format_is_name_byte(byte) || calls->name_len == TOOL_CALL_NAME_MAX) {
        return no_call(calls);
    }
    hold(calls, byte);
    return false;
}

// The call is decided by what can only be its arguments.
static bool feed_python(struct tool_calls *calls, char byte) {
    struct python_out out;
    enum notation_end end = python_notation_feed(&calls->python, byte, &out);
    if (calls->state == KEYWORD) {
        if (end == NOTATION_BROKEN) return no_call(calls);
        if (end == NOTATION_GOES_ON && !out.len) {
            hold(calls, byte);
            return false;
        }
        begin_call(calls);
        buf_clear(&calls->held);
        emit_arguments(calls, "{", 1);
        calls->state = PYTHON;
    }
    emit_arguments(calls, out.text, out.len);
    if (end == NOTATION_BROKEN) calls->state = RAW;
    if (end != NOTATION_DONE) return end == NOTATION_BROKEN;
    emit_arguments(calls, "}", 1);
    end_call(calls, TOOL_END_COMPLETE);
    calls->state = AFTER;
    return false;
}

static uint8_t member_of_key(const struct tool_calls *calls) {
    static const struct {
        const char *key;
        uint8_t member;
    } members[] = {
        {"name", MEMBER_NAME},          {"arguments", MEMBER_ARGUMENTS},
        {"tool_name", MEMBER_NAME},     {"parameters", MEMBER_ARGUMENTS},
        {"id", MEMBER_KNOWN},           {"type", MEMBER_KNOWN},
        {"tool_call_id", MEMBER_KNOWN},
    };
    const char *key = calls->held.data + calls->key_at;
    size_t len = calls->held.len - calls->key_at;
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        if (len == strlen(members[i].key) && memcmp(key, members[i].key, len) == 0) {
            return members[i].member;
        }
    }
    return MEMBER_OTHER;
}

// Behind a key of the call. Without a mark only the members of a call make an object one.
static bool take_key(struct tool_calls *calls) {
    calls->member = member_of_key(calls);
    if (calls->member == MEMBER_NAME) return !calls->has_name;
    if (calls->member == MEMBER_ARGUMENTS) return !calls->has_arguments;
    return calls->marked || calls->member == MEMBER_KNOWN;
}

static bool is_name(const char *name, size_t len) {
    return len > 0 && len <= TOOL_CALL_NAME_MAX && !memchr(name, '\\', len);
}

static void begin_arguments(struct tool_calls *calls, uint32_t depth) {
    begin_call(calls);
    buf_clear(&calls->held);
    calls->arguments_depth = depth;
    calls->state = ARGUMENTS;
}

// Behind an object whose arguments came before its name, or that has none.
static void take_whole_call(struct tool_calls *calls) {
    begin_call(calls);
    if (calls->has_arguments) {
        emit_arguments(calls, calls->held.data + calls->arguments_at, calls->arguments_len);
    } else {
        emit_arguments(calls, "{}", 2);
    }
    end_call(calls, TOOL_END_COMPLETE);
    buf_clear(&calls->held);
    calls->state = TRAILER;
}

// The first byte of a member's value.
static bool take_value(struct tool_calls *calls, char byte) {
    if (calls->member == MEMBER_NAME) {
        calls->name_at = calls->held.len + 1;
        return byte == '"';
    }
    if (calls->member != MEMBER_ARGUMENTS) return true;
    calls->arguments_at = calls->held.len;
    return byte == '{';
}

// The last byte of the name's string, of the arguments, or of the call's object.
static bool take_end(struct tool_calls *calls, uint32_t depth, char byte) {
    if (depth == 0) { // without arguments it is a call only behind a mark
        if (!calls->has_name || (!calls->has_arguments && !calls->marked)) return false;
        take_whole_call(calls);
    } else if (calls->member == MEMBER_NAME) {
        calls->name_len = calls->held.len - calls->name_at;
        calls->has_name = is_name(calls->held.data + calls->name_at, calls->name_len);
        if (!calls->has_name) return false;
    } else if (calls->member == MEMBER_ARGUMENTS) {
        calls->arguments_len = calls->held.len + 1 - calls->arguments_at;
        calls->has_arguments = true;
    }
    if (is_undecided(calls)) hold(calls, byte);
    return true;
}

static bool feed_object(struct tool_calls *calls, char byte) {
    enum jstream_event event = jstream_push(&calls->json, byte);
    uint32_t depth = calls->json.depth;
    bool good = event != JSTREAM_BAD && !calls->json.raw_control;
    switch (event) {
    case JSTREAM_KEY_BEGIN:
        calls->key_at = calls->held.len + 1;
        break;
    case JSTREAM_KEY_END:
        if (depth == 1) good = take_key(calls);
        break;
    case JSTREAM_OPEN:
        if (depth == 2) good = take_value(calls, byte);
        if (!good || calls->member != MEMBER_ARGUMENTS || !calls->has_name) break;
        begin_arguments(calls, 1);
        emit_arguments(calls, &byte, 1);
        return false;
    case JSTREAM_STRING_BEGIN:
    case JSTREAM_SCALAR_BEGIN:
        if (depth == 1) good = take_value(calls, byte);
        break;
    case JSTREAM_STRING_END:
    case JSTREAM_CLOSE:
        if (depth <= 1) return take_end(calls, depth, byte) ? false : no_call(calls);
        break;
    default:
        break;
    }
    if (!good) return no_call(calls);
    hold(calls, byte);
    return false;
}

static bool feed_name(struct tool_calls *calls, char byte) {
    calls->name_len = calls->held.len - calls->name_at;
    if (byte == '[') {
        calls->key_at = calls->held.len;
        calls->state = TAG;
    } else if (byte == '{' || is_blank(byte)) {
        calls->state = BEFORE_ARGUMENTS;
        return true;
    } else if (!tool_format_is_name_byte(byte) || calls->name_len == TOOL_CALL_NAME_MAX) {
        return no_call(calls);
    }
    hold(calls, byte);
    return false;
}

static bool feed_tag(struct tool_calls *calls, char byte) {
    static const char arguments[] = "[ARGS]", call_id[] = "[CALL_ID]";
    size_t at = calls->held.len - calls->key_at;
    bool is_call_id =
        calls->held.len > calls->key_at + 1 && calls->held.data[calls->key_at + 1] == 'C';
    if (at == 1 && byte == 'C' && !calls->had_call_id) is_call_id = true;
    const char *tag = is_call_id ? call_id : arguments;
    if (byte != tag[at]) return no_call(calls);
    hold(calls, byte);
    if (tag[at + 1]) return false;
    calls->had_call_id |= is_call_id;
    calls->state = is_call_id ? CALL_ID : BEFORE_ARGUMENTS;
    return false;
}

// The model's own id. Its call gets one of ours: ids are known before names in every format.
static bool feed_call_id(struct tool_calls *calls, char byte) {
    if (byte == '[') {
        calls->key_at = calls->held.len;
        calls->state = TAG;
    } else if (!tool_format_is_name_byte(byte)) {
        return no_call(calls);
    }
    hold(calls, byte);
    return false;
}

static bool feed_before_arguments(struct tool_calls *calls, char byte) {
    if (byte == '{') {
        begin_object(calls, ARGUMENTS);
        begin_arguments(calls, 0);
        return true;
    }
    if (!is_blank(byte)) return no_call(calls);
    hold(calls, byte);
    return false;
}

static bool feed_arguments(struct tool_calls *calls, char byte) {
    enum jstream_event event = jstream_push(&calls->json, byte);
    if (event == JSTREAM_BAD) {
        calls->state = RAW;
        return true;
    }
    emit_arguments(calls, &byte, 1);
    if (event != JSTREAM_CLOSE || calls->json.depth != calls->arguments_depth) return false;
    end_call(calls, calls->json.raw_control ? TOOL_END_BROKEN : TOOL_END_COMPLETE);
    calls->state = TRAILER;
    return false;
}

static bool feed_trailer(struct tool_calls *calls, char byte) {
    enum jstream_event event = jstream_push(&calls->json, byte);
    if (event == JSTREAM_BAD || calls->json.depth == 0) calls->state = AFTER;
    return event == JSTREAM_BAD;
}

// Text behind a call whose end mark did not come: the bytes held may be the beginning of a mark.
static bool text_instead_of_end_mark(struct tool_calls *calls) {
    char held[32]; // less than an end mark
    size_t len = calls->held.len;
    CHECK(len <= sizeof held, "len=%zu", len);
    if (len) memcpy(held, calls->held.data, len);
    buf_clear(&calls->held);
    to_text(calls);
    for (size_t i = 0; i < len; i++) feed_text(calls, held[i]);
    return true;
}

static bool feed_after(struct tool_calls *calls, char byte) {
    const char *end_mark = calls->options.format->end_mark;
    if (end_mark && byte == end_mark[calls->tag_len]) {
        hold(calls, byte);
        if (end_mark[++calls->tag_len]) return false;
        buf_clear(&calls->held);
        to_text(calls);
        return false;
    }
    if (calls->tag_len) return text_instead_of_end_mark(calls);
    if (is_blank(byte)) return false;
    if (byte == '}' && end_mark && !calls->options.format->python)
        return false; // some models write one too many
    if (byte == ',' && calls->in_list) {
        calls->state = ITEM;
        return false;
    }
    bool closes = byte == ']' && calls->in_list;
    if (closes && end_mark) {
        calls->in_list = false;
        return false;
    }
    to_text(calls);
    return !closes;
}

static bool feed_raw(struct tool_calls *calls, char byte) {
    const struct tool_format *format = calls->options.format;
    const char *mark = format->end_mark ? format->end_mark : format->mark;
    if (calls->tag_len && byte != mark[calls->tag_len]) {
        emit_arguments(calls, calls->held.data, calls->held.len);
        buf_clear(&calls->held);
        calls->tag_len = 0;
    }
    if (byte != mark[calls->tag_len]) {
        emit_arguments(calls, &byte, 1);
        return false;
    }
    hold(calls, byte);
    if (mark[++calls->tag_len]) return false;
    end_call(calls, TOOL_END_BROKEN);
    to_text(calls);
    if (format->end_mark) {
        buf_clear(&calls->held);
    } else { // it is the next call's
        calls->state = MARKED;
        calls->marked = true;
    }
    return false;
}

static void feed(struct tool_calls *calls, char byte) {
    static bool (*const functions[])(struct tool_calls *, char) = {
        [TEXT] = feed_text,         [MARKED] = feed_marked,
        [ITEM] = feed_item,         [OBJECT] = feed_object,
        [NAME] = feed_name,         [TAG] = feed_tag,
        [CALL_ID] = feed_call_id,   [BEFORE_ARGUMENTS] = feed_before_arguments,
        [FUNCTION] = feed_function, [KEYWORD] = feed_python,
        [PYTHON] = feed_python,     [ARGUMENTS] = feed_arguments,
        [TRAILER] = feed_trailer,   [AFTER] = feed_after,
        [RAW] = feed_raw,
    };
    if (calls->held.len == TOOL_CALL_HELD_MAX) no_call(calls);
    while (functions[calls->state](calls, byte)) continue;
}

void tool_calls_init(struct tool_calls *calls, const struct tool_calls_options *options) {
    *calls = (struct tool_calls){.options = *options,
                                 .at_start = options->format->bare && !options->only_text};
}

void tool_calls_fini(struct tool_calls *calls) {
    if (!calls) return;
    buf_fini(&calls->held);
    buf_fini(&calls->pending);
    *calls = (struct tool_calls){0};
}

enum status tool_calls_push(struct tool_calls *calls, const char *text, size_t len,
                            struct err *err) {
    size_t may_hold = TOOL_CALL_HELD_MAX - calls->held.len;
    enum status status = buf_reserve(&calls->held, len < may_hold ? len : may_hold, err);
    // Two bytes more: a call without arguments gets "{}". A byte of Python writes up to 8, and what
    // was held of it.
    size_t grown = calls->options.format->python ? 8 * len + PYTHON_OUT_MAX : len;
    if (!status) status = buf_reserve(&calls->pending, calls->held.len + grown + 2, err);
    if (status) return status;
    calls->err = err;
    for (size_t i = 0; i < len; i++) feed(calls, text[i]);
    flush(calls);
    calls->err = NULL;
    return calls->status;
}

enum status tool_calls_finish(struct tool_calls *calls, struct err *err) {
    enum status status = buf_reserve(&calls->pending, calls->held.len, err);
    if (status) return status;
    calls->err = err;
    if (calls->state == TEXT || is_undecided(calls)) {
        emit_held(calls);
    } else if (calls->state == RAW) {
        emit_arguments(calls, calls->held.data, calls->held.len);
        end_call(calls, TOOL_END_BROKEN);
    } else if (calls->state == ARGUMENTS || calls->state == PYTHON) {
        end_call(calls, TOOL_END_UNFINISHED);
    }
    buf_clear(&calls->held);
    calls->state = AFTER;
    flush(calls);
    calls->err = NULL;
    return calls->status;
}

/* A machine with one state at a time, fed byte by byte, as tool_calls.c:
 *   TEXT, MARKED, NAME, BODY, KEY, BEFORE_VALUE, VALUE, BODY ..., BETWEEN, TEXT
 *   TEXT, MARKED, NAME, BODY, JSON, BETWEEN, NAME ..., BETWEEN, TEXT       arguments in JSON */
#include "server/chat/tag_calls.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/text/blank.h"

enum { TEXT_BLANKS_MAX = 64 }; // white space that is held because a call may follow

enum {
    TEXT, // outside of calls; `held` has white space and the beginning of a mark
    MARKED, // behind a mark, before the name; `held` has all since the mark
    NAME,
    // A call that has begun. `held` has the beginning of a tag.
    BODY, // before a key or the call's end
    KEY,
    BEFORE_VALUE,
    VALUE,
    NOTATION, // in place of the four above
    JSON, // behind BODY in place of the three others
    RAW, // in arguments that are no JSON; `held` has the beginning of the mark behind the call
    BETWEEN, // behind a call: another of the same mark, or the end mark
};

static const struct tool_tags *tags_of(const struct tag_calls *calls) {
    return calls->options.format->tags;
}

static void append(struct tag_calls *calls, struct buf *buf, const char *bytes, size_t len) {
    if (!calls->status) calls->status = buf_append(buf, bytes, len, calls->err);
}

static void send(struct tag_calls *calls, const struct tool_event *event) {
    if (calls->status) return;
    calls->status = calls->options.emit(calls->options.user_data, event, calls->err);
}

static void flush(struct tag_calls *calls) {
    struct tool_event event = {
        .kind = calls->pending_kind, .text = calls->pending.data, .len = calls->pending.len};
    if (event.kind == TOOL_EVENT_ARGUMENTS) event.index = calls->num_calls - 1;
    if (event.len) send(calls, &event);
    buf_clear(&calls->pending);
}

static void emit_text(struct tag_calls *calls, const char *text, size_t len) {
    if (len) calls->after_call = false;
    calls->pending_kind = TOOL_EVENT_TEXT;
    append(calls, &calls->pending, text, len);
}

static void emit_held(struct tag_calls *calls) {
    emit_text(calls, calls->held.data, calls->held.len);
    buf_clear(&calls->held);
}

static void emit_arguments(struct tag_calls *calls, const char *text, size_t len) {
    size_t left = TOOL_CALL_ARGUMENTS_MAX - calls->num_argument_bytes;
    if (len > left) calls->too_long = true;
    if (calls->too_long) return;
    calls->num_argument_bytes += len;
    calls->pending_kind = TOOL_EVENT_ARGUMENTS;
    append(calls, &calls->pending, text, len);
}

// The inside of a JSON string.
static void emit_escaped(struct tag_calls *calls, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        char escaped[8];
        int size = call_notation_escape(text[i], escaped);
        emit_arguments(calls, escaped, (size_t)size);
    }
}

// `word` is functions.NAME:INDEX, or what of it the model writes: sets the name and a whole id.
static void divide_id(struct tag_calls *calls, char id[TOOL_CALL_ID_MAX + 1]) {
    static const char prefix[] = "functions.";
    const char *name = calls->word.data;
    size_t len = calls->word.len, digits = 0;
    if (len > strlen(prefix) && memcmp(name, prefix, strlen(prefix)) == 0) {
        name += strlen(prefix);
        len -= strlen(prefix);
    }
    while (digits < len && name[len - digits - 1] >= '0' && name[len - digits - 1] <= '9') digits++;
    bool has_index = digits > 0 && len > digits + 1 && name[len - digits - 1] == ':';
    if (has_index) len -= digits + 1;
    snprintf(calls->name, sizeof calls->name, "%.*s", (int)len, name);
    if (has_index) {
        snprintf(id, TOOL_CALL_ID_MAX + 1, "%.*s", (int)calls->word.len, calls->word.data);
    } else {
        snprintf(id, TOOL_CALL_ID_MAX + 1, "%s%s:%u", prefix, calls->name, calls->num_calls);
    }
}

static void begin_call(struct tag_calls *calls) {
    char id[TOOL_CALL_ID_MAX + 1];
    if (tags_of(calls)->has_id) {
        divide_id(calls, id);
    } else {
        snprintf(calls->name, sizeof calls->name, "%.*s", (int)calls->word.len, calls->word.data);
        tool_call_make_id(&calls->options.seed, calls->options.format->short_ids, id);
    }
    flush(calls);
    buf_clear(&calls->held);
    calls->num_argument_bytes = calls->num_values = 0;
    calls->too_long = false;
    send(calls,
         &(struct tool_event){
             .kind = TOOL_EVENT_BEGIN, .index = calls->num_calls++, .id = id, .name = calls->name});
    if (!tags_of(calls)->has_json) emit_arguments(calls, "{", 1);
    calls->json = (struct jstream){0};
    calls->state = tags_of(calls)->has_notation ? NOTATION : BODY;
    call_notation_begin(&calls->notation);
}

static void end_call(struct tag_calls *calls, enum tool_end end) {
    if (!tags_of(calls)->has_json) {
        if (end != TOOL_END_UNFINISHED) emit_arguments(calls, "}", 1);
    } else if (!calls->num_argument_bytes && end != TOOL_END_UNFINISHED) {
        emit_arguments(calls, "{}", 2);
    }
    flush(calls);
    if (calls->too_long) end = TOOL_END_TOO_LONG;
    send(calls,
         &(struct tool_event){.kind = TOOL_EVENT_END, .index = calls->num_calls - 1, .end = end});
}

// The bytes held back turned out to be no call and no tag: emits them as text.
static void to_text(struct tag_calls *calls, bool is_after_call) {
    calls->state = TEXT;
    calls->after_call = is_after_call;
    emit_held(calls);
}

// The JSON Schema of the argument `word`, from the function's parameters; NULL: it has none.
static json_t *find_property(const struct tag_calls *calls) {
    for (size_t i = 0; i < json_array_size(calls->options.tools); i++) {
        const json_t *function =
            json_object_get(json_array_get(calls->options.tools, i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        if (!name || strcmp(name, calls->name) != 0) continue;
        const json_t *properties =
            json_object_get(json_object_get(function, "parameters"), "properties");
        return json_object_getn(properties, calls->word.data, calls->word.len);
    }
    return NULL;
}

static bool has_type(const json_t *value, const char *type) {
    static const char *const names[] = {
        [JSON_OBJECT] = "object",   [JSON_ARRAY] = "array", [JSON_STRING] = "string",
        [JSON_INTEGER] = "integer", [JSON_REAL] = "number", [JSON_TRUE] = "boolean",
        [JSON_FALSE] = "boolean",   [JSON_NULL] = "null"};
    if (!type || strcmp(type, "number") == 0) return !type || json_is_number(value);
    // 1.0 is an integer too.
    return strcmp(names[json_typeof(value)], type) == 0 ||
           (json_is_real(value) && strcmp(type, "integer") == 0);
}

// Whether the value has a type, or is one of the values, that the schema names. Where it names none
// any value may be.
static bool may_be(const json_t *schema, const json_t *value) {
    static const char *const lists[] = {"type", "enum", "anyOf", "oneOf"};
    const json_t *only = json_object_get(schema, "const");
    const char *type = json_string_value(json_object_get(schema, "type"));
    if (only && !json_equal(only, value)) return false;
    if (!has_type(value, type)) return false;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        const json_t *list = json_object_get(schema, lists[i]);
        bool fits = !json_is_array(list);
        for (size_t k = 0; k < json_array_size(list) && !fits; k++) {
            const json_t *item = json_array_get(list, k);
            fits = i == 0   ? has_type(value, json_string_value(item))
                   : i == 1 ? json_equal(item, value)
                            : may_be(item, value);
        }
        if (!fits) return false;
    }
    return true;
}

// Whether the text is a string, though it can be read as JSON: a string may be there, and what is
// read may not.
static bool is_rather_string(const struct tag_calls *calls, const json_t *value) {
    if (may_be(calls->property, value)) return false;
    json_t *text = json_stringn(calls->word.data, calls->word.len);
    bool is_string = text && may_be(calls->property, text);
    json_decref(text);
    return is_string;
}

static void begin_string(struct tag_calls *calls) {
    calls->is_string = true;
    emit_arguments(calls, "\"", 1);
    emit_escaped(calls, calls->word.data, calls->word.len);
    buf_clear(&calls->word);
}

static void begin_value(struct tag_calls *calls) {
    if (calls->num_values++) emit_arguments(calls, ", ", 2);
    emit_arguments(calls, "\"", 1);
    emit_escaped(calls, calls->word.data, calls->word.len);
    emit_arguments(calls, "\": ", 3);
    calls->property = find_property(calls);
    const char *type = json_string_value(json_object_get(calls->property, "type"));
    buf_clear(&calls->word);
    calls->is_string = calls->has_newline = false;
    calls->at_value_start = true;
    calls->state = VALUE;
    if (type && strcmp(type, "string") == 0) begin_string(calls);
}

static void take_value_bytes(struct tag_calls *calls, const char *bytes, size_t len) {
    if (!calls->is_string && calls->word.len + len > TAG_VALUE_HELD_MAX) begin_string(calls);
    if (calls->is_string) {
        emit_escaped(calls, bytes, len);
    } else {
        append(calls, &calls->word, bytes, len);
    }
}

// A byte of the value. A newline around it belongs to the tags, in some formats.
static void take_value_byte(struct tag_calls *calls, char byte) {
    bool is_first = calls->at_value_start;
    calls->at_value_start = false;
    if (calls->has_newline) take_value_bytes(calls, "\n", 1);
    calls->has_newline = false;
    if (!tags_of(calls)->is_padded || byte != '\n') {
        take_value_bytes(calls, &byte, 1);
    } else if (!is_first) {
        calls->has_newline = true;
    }
}

// Python's words, which some models write, as JSON; NULL: it is none of them, or the parameters
// allow a string or not what it means.
static const char *read_python(const struct tag_calls *calls, const char *text, size_t len) {
    const char *json = call_notation_python(text, len);
    if (!json) return NULL;
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL), *string = json_stringn(text, len);
    bool fits =
        value && string && may_be(calls->property, value) && !may_be(calls->property, string);
    json_decref(value);
    json_decref(string);
    return fits ? json : NULL;
}

static void end_value(struct tag_calls *calls) {
    calls->state = BODY;
    if (!calls->is_string) {
        const char *text = calls->word.data;
        size_t len = calls->word.len;
        for (; len && is_blank(text[len - 1]); len--) continue;
        for (; len && is_blank(*text); text++, len--) continue;
        json_t *value = len ? json_loadb(text, len, JSON_DECODE_ANY, NULL) : NULL;
        const char *python = value ? NULL : read_python(calls, text, len);
        if (python) {
            emit_arguments(calls, python, strlen(python));
        } else if (!value || is_rather_string(calls, value)) {
            begin_string(calls);
        } else {
            emit_arguments(calls, text, len);
        }
        json_decref(value);
        buf_clear(&calls->word);
    }
    if (calls->is_string) emit_arguments(calls, "\"", 1);
}

// Whether the bytes held and `byte` are the beginning of the tag; *is_whole: all of it.
static bool fits(const struct tag_calls *calls, char byte, const char *tag, size_t from,
                 bool *is_whole) {
    size_t len = calls->held.len - from;
    if (strlen(tag) <= len || (len && memcmp(calls->held.data + from, tag, len) != 0)) return false;
    *is_whole = tag[len] == byte && !tag[len + 1];
    return tag[len] == byte;
}

// Feed functions take a byte; true: the byte is the next state's.

static bool feed_text(struct tag_calls *calls, char byte) {
    const char *mark = calls->options.format->mark;
    bool is_whole = false;
    size_t blanks = 0;
    while (blanks < calls->held.len && is_blank(calls->held.data[blanks])) blanks++;
    if (fits(calls, byte, mark, blanks, &is_whole)) {
        append(calls, &calls->held, &byte, 1);
        if (is_whole) calls->state = MARKED;
        buf_clear(&calls->word);
        return false;
    }
    if (blanks < calls->held.len) { // no mark; its bytes but the first can begin none
        emit_held(calls);
        return true;
    }
    if (is_blank(byte)) {
        if (calls->after_call) return false;
        if (calls->held.len == TEXT_BLANKS_MAX) emit_held(calls);
        append(calls, &calls->held, &byte, 1);
        return false;
    }
    emit_held(calls);
    emit_text(calls, &byte, 1);
    return false;
}

// `word` has what of before_name is there.
static bool feed_marked(struct tag_calls *calls, char byte) {
    const char *before = tags_of(calls)->before_name;
    size_t at = calls->word.len;
    bool is_name = !*before && tool_format_is_name_byte(byte);
    if (is_name || (*before && byte == before[at])) {
        append(calls, &calls->word, &byte, 1);
        if (is_name || !before[at + 1]) calls->state = NAME;
        if (!is_name && !before[at + 1]) buf_clear(&calls->word);
    } else if (at || !is_blank(byte) || calls->held.len > TOOL_CALL_NAME_MAX) {
        to_text(calls, false);
        return true;
    }
    append(calls, &calls->held, &byte, 1);
    return false;
}

// The name ends at after_name or, where that is nothing, at white space or a tag.
static bool feed_name(struct tag_calls *calls, char byte) {
    const char *after = tags_of(calls)->after_name;
    bool ends = *after ? byte == *after : is_blank(byte) || byte == '<';
    if (ends && calls->word.len) {
        begin_call(calls);
        if (*after) append(calls, &calls->held, &byte, 1);
        if (*after && !after[1]) buf_clear(&calls->held);
        return !*after;
    }
    bool has_id = tags_of(calls)->has_id, is_good = tool_format_is_name_byte(byte);
    size_t max = TOOL_CALL_NAME_MAX + (has_id ? strlen("functions.:0000") : 0);
    if ((!is_good && !(has_id && byte == ':')) || calls->word.len == max) {
        to_text(calls, false);
        return true;
    }
    append(calls, &calls->held, &byte, 1);
    append(calls, &calls->word, &byte, 1);
    return false;
}

// Behind the name, a value or a call. What is no tag that can be there ends the call.
static bool feed_tags(struct tag_calls *calls, char byte) {
    const struct tool_tags *tags = tags_of(calls);
    const char *end_mark = calls->options.format->end_mark;
    bool in_call = calls->state == BODY, has_end = *tags->end_call != '\0', is_whole = false;
    const uint8_t behind_name = tags->has_json ? JSON : BODY;
    const struct {
        const char *tag;
        uint8_t next;
        bool is_there;
    } choices[] = {
        {tags->after_name, behind_name, in_call && calls->held.len && *tags->after_name},
        {tags->before_key, KEY, in_call},
        {tags->end_call, BETWEEN, has_end && (in_call || tags->has_json)},
        {end_mark, TEXT, !in_call || !has_end},
        {tags->before_name, NAME, !in_call && *tags->before_name},
    };
    if (!calls->held.len && is_blank(byte)) return false;
    for (size_t i = 0; i < ARRAY_LEN(choices); i++) {
        if (!choices[i].is_there || !fits(calls, byte, choices[i].tag, 0, &is_whole)) continue;
        append(calls, &calls->held, &byte, 1);
        if (!is_whole) return false;
        if (choices[i].next != NAME) buf_clear(&calls->held); // else it may be text after all
        buf_clear(&calls->word);
        if (in_call && choices[i].next != behind_name && choices[i].next != KEY) {
            end_call(calls, TOOL_END_COMPLETE);
        }
        calls->state = choices[i].next;
        calls->after_call = choices[i].next == TEXT;
        return false;
    }
    if (in_call) end_call(calls, TOOL_END_BROKEN);
    to_text(calls, true);
    return true;
}

static bool feed_key(struct tag_calls *calls, char byte) {
    const char *after = tags_of(calls)->after_key;
    bool is_whole = false;
    if (fits(calls, byte, after, 0, &is_whole)) {
        append(calls, &calls->held, &byte, 1);
        if (!is_whole) return false;
        buf_clear(&calls->held);
        calls->state = BEFORE_VALUE;
        if (!*tags_of(calls)->before_value) begin_value(calls);
        return false;
    }
    append(calls, &calls->word, calls->held.data, calls->held.len);
    if (calls->held.len) {
        buf_clear(&calls->held);
        return true;
    }
    append(calls, &calls->word, &byte, 1);
    if (calls->word.len <= TAG_KEY_MAX) return false;
    end_call(calls, TOOL_END_BROKEN);
    to_text(calls, true);
    return false;
}

static bool feed_before_value(struct tag_calls *calls, char byte) {
    bool is_whole = false;
    if (!calls->held.len && is_blank(byte)) return false;
    if (!fits(calls, byte, tags_of(calls)->before_value, 0, &is_whole)) {
        end_call(calls, TOOL_END_BROKEN);
        to_text(calls, true);
        return true;
    }
    append(calls, &calls->held, &byte, 1);
    if (!is_whole) return false;
    buf_clear(&calls->held);
    begin_value(calls);
    return false;
}

static bool feed_value(struct tag_calls *calls, char byte) {
    bool is_whole = false;
    if (fits(calls, byte, tags_of(calls)->after_value, 0, &is_whole)) {
        append(calls, &calls->held, &byte, 1);
        if (!is_whole) return false;
        buf_clear(&calls->held);
        end_value(calls);
        return false;
    }
    if (calls->held.len) { // no tag; its bytes but the first can begin none
        for (size_t i = 0; i < calls->held.len; i++) take_value_byte(calls, calls->held.data[i]);
        buf_clear(&calls->held);
        return true;
    }
    take_value_byte(calls, byte);
    return false;
}

static bool feed_notation(struct tag_calls *calls, char byte) {
    enum notation_end end;
    buf_clear(&calls->word);
    calls->status = call_notation_feed(&calls->notation, byte, &calls->word, &end, calls->err);
    emit_arguments(calls, calls->word.data, calls->word.len);
    if (end == NOTATION_GOES_ON) return false;
    end_call(calls, end == NOTATION_DONE ? TOOL_END_COMPLETE : TOOL_END_BROKEN);
    calls->state = BETWEEN;
    if (end == NOTATION_DONE) return false;
    to_text(calls, true);
    return true;
}

// Arguments in JSON end with their '}'. White space before them is left out.
static bool feed_json(struct tag_calls *calls, char byte) {
    bool is_first = !calls->num_argument_bytes && !calls->json.depth;
    if (is_first && is_blank(byte)) return false;
    if (is_first && byte == *tags_of(calls)->end_call) {
        calls->state = BODY;
        return true;
    }
    enum jstream_event event = jstream_push(&calls->json, byte);
    if (event == JSTREAM_BAD) {
        calls->state = RAW;
        return true;
    }
    emit_arguments(calls, &byte, 1);
    if (event != JSTREAM_CLOSE || calls->json.depth) return false;
    end_call(calls, calls->json.raw_control ? TOOL_END_BROKEN : TOOL_END_COMPLETE);
    calls->state = BETWEEN;
    return false;
}

// The mark in end_call ends arguments that are no JSON. Its first byte stands nowhere else in it.
static bool feed_raw(struct tag_calls *calls, char byte) {
    const char *mark = strchr(tags_of(calls)->end_call, '<');
    bool is_whole = false;
    if (fits(calls, byte, mark, 0, &is_whole)) {
        append(calls, &calls->held, &byte, 1);
        if (!is_whole) return false;
        buf_clear(&calls->held);
        end_call(calls, TOOL_END_BROKEN);
        calls->state = BETWEEN;
        return false;
    }
    if (calls->held.len) {
        emit_arguments(calls, calls->held.data, calls->held.len);
        buf_clear(&calls->held);
        return true;
    }
    emit_arguments(calls, &byte, 1);
    return false;
}

static void feed(struct tag_calls *calls, char byte) {
    static bool (*const functions[])(struct tag_calls *, char) = {
        [TEXT] = feed_text,   [MARKED] = feed_marked,     [NAME] = feed_name,
        [BODY] = feed_tags,   [KEY] = feed_key,           [BEFORE_VALUE] = feed_before_value,
        [VALUE] = feed_value, [NOTATION] = feed_notation, [BETWEEN] = feed_tags,
        [JSON] = feed_json,   [RAW] = feed_raw,
    };
    while (!calls->status && functions[calls->state](calls, byte)) continue;
}

void tag_calls_init(struct tag_calls *calls, const struct tag_calls_options *options) {
    *calls = (struct tag_calls){.options = *options};
}

void tag_calls_fini(struct tag_calls *calls) {
    buf_fini(&calls->held);
    buf_fini(&calls->word);
    call_notation_fini(&calls->notation);
    buf_fini(&calls->pending);
    *calls = (struct tag_calls){0};
}

enum status tag_calls_push(struct tag_calls *calls, const char *text, size_t len, struct err *err) {
    calls->err = err;
    for (size_t i = 0; i < len && !calls->status; i++) feed(calls, text[i]);
    flush(calls);
    calls->err = NULL;
    return calls->status;
}

enum status tag_calls_finish(struct tag_calls *calls, struct err *err) {
    calls->err = err;
    if (calls->state <= NAME) {
        emit_held(calls);
    } else if (calls->state == RAW) {
        emit_arguments(calls, calls->held.data, calls->held.len);
        end_call(calls, TOOL_END_BROKEN);
    } else if (calls->state != BETWEEN) {
        end_call(calls, TOOL_END_UNFINISHED);
    }
    buf_clear(&calls->held);
    calls->state = BETWEEN;
    flush(calls);
    calls->err = NULL;
    return calls->status;
}

/* str() and repr() of values, and the growing text that they write to.
 *
 * A text doubles its room in the arena and leaves the old one there: all of its copies together are
 * as long as the last, and the render's memory limit counts them. Strings are copied in stretches
 * between the characters that must be escaped, whose price is extra. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/src/call.h"
#include "jinja/src/chars.h"
#include "jinja/src/library.h"
#include "jinja/src/loop.h"
#include "jinja/src/run.h"
#include "jinja/src/value.h"

// ---- text ----

// Where `len` more bytes go, NULL when they cannot be had.
static char *text_room(struct run *run, struct text *text, size_t len) {
    if (text->data && text->capacity - text->len >= len) return text->data + text->len;
    size_t capacity = text->capacity < 64 ? 64 : 2 * text->capacity;
    if (capacity - text->len < len && __builtin_add_overflow(text->len, len, &capacity)) {
        capacity = SIZE_MAX; // refused by run_alloc
    }
    char *data = run_alloc(run, capacity);
    if (!data) return NULL;
    if (text->data) memcpy(data, text->data, text->len);
    text->data = data;
    text->capacity = capacity;
    return data + text->len;
}

enum status text_append(struct run *run, struct text *text, const char *data, size_t len) {
    if (len == 0) return OK;
    enum status status = run_pay(run, len / 64);
    if (status) return status;
    char *room = text_room(run, text, len);
    if (!room) return run_status(run);
    memcpy(room, data, len);
    text->len += len;
    return OK;
}

enum status text_append_str(struct run *run, struct text *text, const char *str) {
    return text_append(run, text, str, strlen(str));
}

enum status text_append_string(struct run *run, struct text *text, const struct string *string) {
    return text_append(run, text, string->data, string->len);
}

enum status text_append_escape(struct run *run, struct text *text, char letter, int width,
                               uint32_t character) {
    char escape[2 + 8] = {'\\', letter};
    for (int i = width; i > 0; i--, character >>= 4) {
        escape[1 + i] = "0123456789abcdef"[character & 15];
    }
    return text_append(run, text, escape, 2 + (size_t)width);
}

enum status text_finish(struct run *run, struct text *text, struct value *out) {
    enum status status = value_string_borrow(run, text->data ? text->data : "", text->len, out);
    *text = (struct text){0};
    return status;
}

// ---- repr of strings ----

static bool is_plain(uint32_t c, char quote) {
    if (c < 0x7f) return c >= ' ' && c != '\\' && c != (unsigned char)quote;
    return char_is_printable(c);
}

static enum status repr_escape(struct run *run, struct text *text, uint32_t c) {
    if (c == '\\' || c == '\'') return text_append(run, text, c == '\'' ? "\\'" : "\\\\", 2);
    if (c == '\n') return text_append(run, text, "\\n", 2);
    if (c == '\r') return text_append(run, text, "\\r", 2);
    if (c == '\t') return text_append(run, text, "\\t", 2);
    int width = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    return text_append_escape(run, text, "xuU"[width / 4], width, c);
}

static enum status repr_string(struct run *run, const struct string *string, struct text *text) {
    enum status status = run_pay(run, string->len / 16);
    bool has_single = string->len > 0 && memchr(string->data, '\'', string->len);
    bool has_double = string->len > 0 && memchr(string->data, '"', string->len);
    char quote = has_single && !has_double ? '"' : '\'';
    if (!status) status = text_append(run, text, &quote, 1);
    size_t plain = 0; // from here on nothing is written yet
    size_t num_escapes = 0;
    for (size_t i = 0, size; i < string->len && !status; i += size) {
        uint32_t c = utf8_decode((const unsigned char *)string->data + i, &size);
        if (is_plain(c, quote)) continue;
        status = text_append(run, text, string->data + plain, i - plain);
        if (!status) status = repr_escape(run, text, c);
        plain = i + size;
        num_escapes++;
    }
    if (!status) status = text_append(run, text, string->data + plain, string->len - plain);
    if (!status) status = run_pay(run, num_escapes / 4);
    return status ? status : text_append(run, text, &quote, 1);
}

// ---- repr of all else ----

// The containers being printed, innermost first. Only through a namespace can one contain itself;
// it then prints as "[...]".
struct printing {
    const void *container;
    const struct printing *outer;
    bool in_namespace;
};

static enum status repr_in(struct run *run, struct value value, const struct printing *outer,
                           struct text *text);

static bool is_being_printed(const void *container, const struct printing *printing) {
    if (!printing || !printing->in_namespace) return false;
    while (printing && printing->container != container) printing = printing->outer;
    return printing != NULL;
}

static enum status repr_values(struct run *run, const struct value *values, size_t len,
                               const struct printing *printing, struct text *text) {
    enum status status = OK;
    for (size_t i = 0; i < len && !status; i++) {
        if (i > 0) status = text_append(run, text, ", ", 2);
        if (!status) status = repr_in(run, values[i], printing, text);
    }
    return status;
}

static enum status repr_entries(struct run *run, const struct dict *dict,
                                const struct printing *printing, struct text *text) {
    enum status status = OK;
    for (size_t i = 0; i < dict->len && !status; i++) {
        if (i > 0) status = text_append(run, text, ", ", 2);
        if (!status) status = repr_in(run, dict->entries[i].key, printing, text);
        if (!status) status = text_append(run, text, ": ", 2);
        if (!status) status = repr_in(run, dict->entries[i].value, printing, text);
    }
    return status;
}

static enum status repr_view(struct run *run, const struct view *view,
                             const struct printing *printing, struct text *text) {
    enum status status = OK;
    for (size_t i = 0; i < view->dict->len && !status; i++) {
        const struct dict_entry *entry = &view->dict->entries[i];
        struct value pair[2] = {entry->key, entry->value};
        if (i > 0) status = text_append(run, text, ", ", 2);
        if (!status && view->type == VIEW_ITEMS) status = text_append(run, text, "(", 1);
        size_t first = view->type == VIEW_VALUES, len = view->type == VIEW_ITEMS ? 2 : 1;
        if (!status) status = repr_values(run, pair + first, len, printing, text);
        if (!status && view->type == VIEW_ITEMS) status = text_append(run, text, ")", 1);
    }
    return status;
}

struct brackets {
    const char *open, *close;
};

static struct brackets brackets_of(struct value value) {
    static const char *const views[] = {[VIEW_KEYS] = "dict_keys([",
                                        [VIEW_VALUES] = "dict_values([",
                                        [VIEW_ITEMS] = "dict_items(["};
    switch (value.type) {
    case VALUE_LIST:
        return (struct brackets){"[", "]"};
    case VALUE_TUPLE:
        return (struct brackets){"(", value.list->len == 1 ? ",)" : ")"};
    case VALUE_VIEW:
        return (struct brackets){views[value.view->type], "])"};
    case VALUE_NAMESPACE:
        return (struct brackets){"<Namespace {", "}>"};
    default:
        return (struct brackets){"{", "}"};
    }
}

static enum status repr_container(struct run *run, struct value value, const struct printing *outer,
                                  struct text *text) {
    const void *container = value.list; // whatever it points to
    struct printing printing = {.container = container,
                                .outer = outer,
                                .in_namespace = value.type == VALUE_NAMESPACE ||
                                                (outer && outer->in_namespace)};
    struct brackets brackets = brackets_of(value);
    enum status status = text_append_str(run, text, brackets.open);
    if (status) return status;
    if (is_being_printed(container, outer)) {
        status = text_append(run, text, "...", 3);
    } else if (value.type == VALUE_DICT || value.type == VALUE_NAMESPACE) {
        status = repr_entries(run, value.dict, &printing, text);
    } else if (value.type == VALUE_VIEW) {
        status = repr_view(run, value.view, &printing, text);
    } else {
        status = repr_values(run, value.list->items, value.list->len, &printing, text);
    }
    return status ? status : text_append_str(run, text, brackets.close);
}

static enum status repr_range(struct run *run, const struct range *range, struct text *text) {
    char out[96];
    int len = snprintf(out, sizeof out, "range(%" PRId64 ", %" PRId64, range->start, range->stop);
    if (range->step != 1) {
        len += snprintf(out + len, sizeof out - (size_t)len, ", %" PRId64, range->step);
    }
    enum status status = text_append(run, text, out, (size_t)len);
    return status ? status : text_append(run, text, ")", 1);
}

static enum status repr_macro(struct run *run, const struct macro *macro, struct text *text) {
    if (macro->is_anonymous) return text_append_str(run, text, "<Macro anonymous>");
    enum status status = text_append_str(run, text, "<Macro ");
    if (!status) status = repr_string(run, macro->decl->name, text);
    return status ? status : text_append(run, text, ">", 1);
}

static enum status repr_loop(struct run *run, struct loop *loop, struct text *text) {
    size_t length;
    enum status status = loop_length(run, loop, &length);
    if (status) return status;
    char out[64];
    snprintf(out, sizeof out, "<LoopContext %zu/%zu>", loop->num_taken, length);
    return text_append_str(run, text, out);
}

static enum status repr_function(struct run *run, const char *name, struct text *text) {
    static const struct {
        const char *name, *repr;
    } classes[] = {
        {"dict", "<class 'dict'>"},
        {"namespace", "<class 'jinja2.utils.Namespace'>"},
    };
    for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
        if (strcmp(classes[i].name, name) == 0) return text_append_str(run, text, classes[i].repr);
    }
    enum status status = text_append_str(run, text, "<function ");
    if (!status) status = text_append_str(run, text, name);
    return status ? status : text_append(run, text, ">", 1);
}

static enum status repr_method(struct run *run, const struct method *method, struct text *text) {
    const char *parts[] = {"<built-in method ", method->name, " of ", value_type_name(method->self),
                           " object>"};
    enum status status = OK;
    for (size_t i = 0; i < ARRAY_LEN(parts) && !status; i++) {
        status = text_append_str(run, text, parts[i]);
    }
    return status;
}

static enum status repr_markup(struct run *run, const struct string *string, struct text *text) {
    enum status status = text_append_str(run, text, "Markup(");
    if (!status) status = repr_string(run, string, text);
    return status ? status : text_append(run, text, ")", 1);
}

// Objects: Python prints their addresses, which nobody can want; they are left out.
static enum status repr_object(struct run *run, struct value value, struct text *text) {
    switch (value.type) {
    case VALUE_RANGE:
        return repr_range(run, value.range, text);
    case VALUE_ITERATOR:
        return text_append_str(run, text, "<generator object>");
    case VALUE_MACRO:
        return repr_macro(run, value.macro, text);
    case VALUE_FUNCTION:
        return repr_function(run, value.function->name, text);
    case VALUE_METHOD:
        return repr_method(run, value.method, text);
    case VALUE_LOOP:
        return repr_loop(run, value.loop, text);
    case VALUE_SELF:
        return text_append_str(run, text, "<TemplateReference None>");
    default:
        return text_append_str(run, text, "<jinja2.runtime.BlockReference object>");
    }
}

static enum status repr_number(struct run *run, struct value value, struct text *text) {
    char out[32];
    if (value.type == VALUE_INT) {
        snprintf(out, sizeof out, "%" PRId64, value.integer);
        return text_append_str(run, text, out);
    }
    float_repr(value.number, out);
    // The search for the shortest form, which for a subnormal number begins at one digit.
    bool is_long_search = value.number != 0 && fpclassify(value.number) == FP_SUBNORMAL;
    enum status status = run_pay(run, is_long_search ? 64 : 8);
    return status ? status : text_append_str(run, text, out);
}

static enum status repr_in(struct run *run, struct value value, const struct printing *outer,
                           struct text *text) {
    enum status status = run_pay(run, 1);
    if (status) return status;
    switch (value.type) {
    case VALUE_UNDEFINED:
        return text_append_str(run, text, "Undefined");
    case VALUE_NONE:
        return text_append_str(run, text, "None");
    case VALUE_BOOL:
        return text_append_str(run, text, value.boolean ? "True" : "False");
    case VALUE_INT:
    case VALUE_FLOAT:
        return repr_number(run, value, text);
    case VALUE_BIG_INT:
        return text_append_string(run, text, value.string);
    case VALUE_STRING:
        return value.string->is_markup ? repr_markup(run, value.string, text)
                                       : repr_string(run, value.string, text);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
    case VALUE_VIEW:
    case VALUE_NAMESPACE:
        status = run_enter(run);
        if (status) return status;
        status = repr_container(run, value, outer, text);
        run_leave(run);
        return status;
    default:
        return repr_object(run, value, text);
    }
}

enum status value_repr(struct run *run, struct value value, struct text *text) {
    return repr_in(run, value, NULL, text);
}

// ---- str ----

enum status value_print(struct run *run, struct value value, struct text *text) {
    if (value.type == VALUE_STRING) return text_append_string(run, text, value.string);
    if (value.type == VALUE_UNDEFINED) return OK;
    return repr_in(run, value, NULL, text);
}

enum status value_to_string(struct run *run, struct value value, const struct string **out) {
    if (value.type == VALUE_STRING) {
        *out = value.string;
        return OK;
    }
    struct text text = {0};
    enum status status = value_print(run, value, &text);
    struct value string;
    if (!status) status = text_finish(run, &text, &string);
    if (!status) *out = string.string;
    return status;
}

/* str() and repr() of values, and the growing text that they write to.
 *
 * A growing text doubles its buffer in the arena and leaves the old one there. The old buffers
 * together are as large as the new one, and count in the render's memory. Strings are copied in
 * stretches between the characters that must be escaped, which cost extra steps. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "jinja/src/library/library.h"
#include "jinja/src/run/call.h"
#include "jinja/src/run/loop.h"
#include "jinja/src/run/run.h"
#include "jinja/src/value/chars.h"
#include "jinja/src/value/value.h"

// ---- text ----

// Where `len` more bytes go, NULL when they cannot be had.
static char *text_reserve(struct jinja_run *run, struct jinja_text *text, size_t len) {
    if (text->data && text->capacity - text->len >= len) return text->data + text->len;
    size_t capacity = text->capacity < 64 ? 64 : 2 * text->capacity;
    if (capacity - text->len < len && __builtin_add_overflow(text->len, len, &capacity)) {
        capacity = SIZE_MAX; // refused by jinja_run_alloc
    }
    char *data = jinja_run_alloc(run, capacity);
    if (!data) return NULL;
    if (text->data) memcpy(data, text->data, text->len);
    text->data = data;
    text->capacity = capacity;
    return data + text->len;
}

enum status jinja_text_append(struct jinja_run *run, struct jinja_text *text, const char *data,
                              size_t len) {
    if (len == 0) return OK;
    enum status status = jinja_run_pay(run, len / 64);
    if (status) return status;
    char *end = text_reserve(run, text, len);
    if (!end) return jinja_run_status(run);
    memcpy(end, data, len);
    text->len += len;
    return OK;
}

enum status jinja_text_append_str(struct jinja_run *run, struct jinja_text *text, const char *str) {
    return jinja_text_append(run, text, str, strlen(str));
}

enum status jinja_text_append_string(struct jinja_run *run, struct jinja_text *text,
                                     const struct jinja_string *string) {
    return jinja_text_append(run, text, string->data, string->len);
}

enum status jinja_text_append_escape(struct jinja_run *run, struct jinja_text *text, char letter,
                                     int width, uint32_t character) {
    char escape[2 + 8] = {'\\', letter};
    for (int i = width; i > 0; i--, character >>= 4) {
        escape[1 + i] = "0123456789abcdef"[character & 15];
    }
    return jinja_text_append(run, text, escape, 2 + (size_t)width);
}

enum status jinja_text_finish(struct jinja_run *run, struct jinja_text *text,
                              struct jinja_value *out) {
    enum status status =
        jinja_value_string_borrow(run, text->data ? text->data : "", text->len, out);
    *text = (struct jinja_text){0};
    return status;
}

// ---- repr of strings ----

static bool is_plain(uint32_t c, char quote) {
    if (c < 0x7f) return c >= ' ' && c != '\\' && c != (unsigned char)quote;
    return jinja_char_is_printable(c);
}

static enum status repr_escape(struct jinja_run *run, struct jinja_text *text, uint32_t c) {
    if (c == '\\' || c == '\'') return jinja_text_append(run, text, c == '\'' ? "\\'" : "\\\\", 2);
    if (c == '\n') return jinja_text_append(run, text, "\\n", 2);
    if (c == '\r') return jinja_text_append(run, text, "\\r", 2);
    if (c == '\t') return jinja_text_append(run, text, "\\t", 2);
    int width = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    return jinja_text_append_escape(run, text, "xuU"[width / 4], width, c);
}

static enum status repr_string(struct jinja_run *run, const struct jinja_string *string,
                               struct jinja_text *text) {
    enum status status = jinja_run_pay(run, string->len / 16);
    bool has_single = string->len > 0 && memchr(string->data, '\'', string->len);
    bool has_double = string->len > 0 && memchr(string->data, '"', string->len);
    char quote = has_single && !has_double ? '"' : '\'';
    if (!status) status = jinja_text_append(run, text, &quote, 1);
    size_t plain = 0; // from here on nothing is written yet
    size_t num_escapes = 0;
    for (size_t i = 0, size; i < string->len && !status; i += size) {
        uint32_t c = utf8_decode((const unsigned char *)string->data + i, &size);
        if (is_plain(c, quote)) continue;
        status = jinja_text_append(run, text, string->data + plain, i - plain);
        if (!status) status = repr_escape(run, text, c);
        plain = i + size;
        num_escapes++;
    }
    if (!status) status = jinja_text_append(run, text, string->data + plain, string->len - plain);
    if (!status) status = jinja_run_pay(run, num_escapes / 4);
    return status ? status : jinja_text_append(run, text, &quote, 1);
}

// ---- repr of all else ----

// The containers being printed, innermost first. Only through a namespace can one contain itself;
// it then prints as "[...]".
struct printing {
    const void *container;
    const struct printing *outer;
    bool in_namespace;
};

static enum status repr_in(struct jinja_run *run, struct jinja_value value,
                           const struct printing *outer, struct jinja_text *text);

static bool is_being_printed(const void *container, const struct printing *printing) {
    if (!printing || !printing->in_namespace) return false;
    while (printing && printing->container != container) printing = printing->outer;
    return printing != NULL;
}

static enum status repr_values(struct jinja_run *run, const struct jinja_value *values, size_t len,
                               const struct printing *printing, struct jinja_text *text) {
    enum status status = OK;
    for (size_t i = 0; i < len && !status; i++) {
        if (i > 0) status = jinja_text_append(run, text, ", ", 2);
        if (!status) status = repr_in(run, values[i], printing, text);
    }
    return status;
}

static enum status repr_entries(struct jinja_run *run, const struct jinja_dict *dict,
                                const struct printing *printing, struct jinja_text *text) {
    enum status status = OK;
    for (size_t i = 0; i < dict->len && !status; i++) {
        if (i > 0) status = jinja_text_append(run, text, ", ", 2);
        if (!status) status = repr_in(run, dict->entries[i].key, printing, text);
        if (!status) status = jinja_text_append(run, text, ": ", 2);
        if (!status) status = repr_in(run, dict->entries[i].value, printing, text);
    }
    return status;
}

static enum status repr_view(struct jinja_run *run, const struct jinja_view *view,
                             const struct printing *printing, struct jinja_text *text) {
    enum status status = OK;
    for (size_t i = 0; i < view->dict->len && !status; i++) {
        const struct jinja_dict_entry *entry = &view->dict->entries[i];
        struct jinja_value pair[2] = {entry->key, entry->value};
        if (i > 0) status = jinja_text_append(run, text, ", ", 2);
        if (!status && view->type == JINJA_VIEW_ITEMS)
            status = jinja_text_append(run, text, "(", 1);
        size_t first = view->type == JINJA_VIEW_VALUES,
               len = view->type == JINJA_VIEW_ITEMS ? 2 : 1;
        if (!status) status = repr_values(run, pair + first, len, printing, text);
        if (!status && view->type == JINJA_VIEW_ITEMS)
            status = jinja_text_append(run, text, ")", 1);
    }
    return status;
}

struct brackets {
    const char *open, *close;
};

static struct brackets brackets_of(struct jinja_value value) {
    static const char *const views[] = {[JINJA_VIEW_KEYS] = "dict_keys([",
                                        [JINJA_VIEW_VALUES] = "dict_values([",
                                        [JINJA_VIEW_ITEMS] = "dict_items(["};
    switch (value.type) {
    case JINJA_LIST:
        return (struct brackets){"[", "]"};
    case JINJA_TUPLE:
        return (struct brackets){"(", value.list->len == 1 ? ",)" : ")"};
    case JINJA_VIEW:
        return (struct brackets){views[value.view->type], "])"};
    case JINJA_NAMESPACE:
        return (struct brackets){"<Namespace {", "}>"};
    default:
        return (struct brackets){"{", "}"};
    }
}

static enum status repr_container(struct jinja_run *run, struct jinja_value value,
                                  const struct printing *outer, struct jinja_text *text) {
    const void *container = value.list; // whatever it points to
    struct printing printing = {.container = container,
                                .outer = outer,
                                .in_namespace = value.type == JINJA_NAMESPACE ||
                                                (outer && outer->in_namespace)};
    struct brackets brackets = brackets_of(value);
    enum status status = jinja_text_append_str(run, text, brackets.open);
    if (status) return status;
    if (is_being_printed(container, outer)) {
        status = jinja_text_append(run, text, "...", 3);
    } else if (value.type == JINJA_DICT || value.type == JINJA_NAMESPACE) {
        status = repr_entries(run, value.dict, &printing, text);
    } else if (value.type == JINJA_VIEW) {
        status = repr_view(run, value.view, &printing, text);
    } else {
        status = repr_values(run, value.list->items, value.list->len, &printing, text);
    }
    return status ? status : jinja_text_append_str(run, text, brackets.close);
}

static enum status repr_range(struct jinja_run *run, const struct jinja_range *range,
                              struct jinja_text *text) {
    char out[96];
    int len = snprintf(out, sizeof out, "range(%" PRId64 ", %" PRId64, range->start, range->stop);
    if (range->step != 1) {
        len += snprintf(out + len, sizeof out - (size_t)len, ", %" PRId64, range->step);
    }
    enum status status = jinja_text_append(run, text, out, (size_t)len);
    return status ? status : jinja_text_append(run, text, ")", 1);
}

static enum status repr_macro(struct jinja_run *run, const struct jinja_macro *macro,
                              struct jinja_text *text) {
    if (macro->is_anonymous) return jinja_text_append_str(run, text, "<Macro anonymous>");
    enum status status = jinja_text_append_str(run, text, "<Macro ");
    if (!status) status = repr_string(run, macro->decl->name, text);
    return status ? status : jinja_text_append(run, text, ">", 1);
}

static enum status repr_loop(struct jinja_run *run, struct jinja_loop *loop,
                             struct jinja_text *text) {
    size_t length;
    enum status status = jinja_loop_length(run, loop, &length);
    if (status) return status;
    char out[64];
    snprintf(out, sizeof out, "<LoopContext %zu/%zu>", loop->num_taken, length);
    return jinja_text_append_str(run, text, out);
}

static enum status repr_function(struct jinja_run *run, const char *name, struct jinja_text *text) {
    static const struct {
        const char *name, *repr;
    } classes[] = {
        {"dict", "<class 'dict'>"},
        {"namespace", "<class 'jinja2.utils.Namespace'>"},
    };
    for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
        if (strcmp(classes[i].name, name) == 0)
            return jinja_text_append_str(run, text, classes[i].repr);
    }
    enum status status = jinja_text_append_str(run, text, "<function ");
    if (!status) status = jinja_text_append_str(run, text, name);
    return status ? status : jinja_text_append(run, text, ">", 1);
}

static enum status repr_method(struct jinja_run *run, const struct jinja_method *method,
                               struct jinja_text *text) {
    const char *parts[] = {"<built-in method ", method->name, " of ",
                           jinja_value_type_name(method->self), " object>"};
    enum status status = OK;
    for (size_t i = 0; i < ARRAY_LEN(parts) && !status; i++) {
        status = jinja_text_append_str(run, text, parts[i]);
    }
    return status;
}

static enum status repr_markup(struct jinja_run *run, const struct jinja_string *string,
                               struct jinja_text *text) {
    enum status status = jinja_text_append_str(run, text, "Markup(");
    if (!status) status = repr_string(run, string, text);
    return status ? status : jinja_text_append(run, text, ")", 1);
}

// Objects without their addresses, which Python prints and no template uses.
static enum status repr_object(struct jinja_run *run, struct jinja_value value,
                               struct jinja_text *text) {
    switch (value.type) {
    case JINJA_RANGE:
        return repr_range(run, value.range, text);
    case JINJA_ITERATOR:
        return jinja_text_append_str(run, text, "<generator object>");
    case JINJA_MACRO:
        return repr_macro(run, value.macro, text);
    case JINJA_FUNCTION:
        return repr_function(run, value.function->name, text);
    case JINJA_METHOD:
        return repr_method(run, value.method, text);
    case JINJA_LOOP:
        return repr_loop(run, value.loop, text);
    case JINJA_SELF:
        return jinja_text_append_str(run, text, "<TemplateReference None>");
    default:
        return jinja_text_append_str(run, text, "<jinja2.runtime.BlockReference object>");
    }
}

static enum status repr_number(struct jinja_run *run, struct jinja_value value,
                               struct jinja_text *text) {
    char out[32];
    if (value.type == JINJA_INT) {
        snprintf(out, sizeof out, "%" PRId64, value.integer);
        return jinja_text_append_str(run, text, out);
    }
    jinja_float_repr(value.number, out);
    // The search for the shortest form, which for a subnormal number begins at one digit.
    bool is_long_search = value.number != 0 && fpclassify(value.number) == FP_SUBNORMAL;
    enum status status = jinja_run_pay(run, is_long_search ? 64 : 8);
    return status ? status : jinja_text_append_str(run, text, out);
}

static enum status repr_in(struct jinja_run *run, struct jinja_value value,
                           const struct printing *outer, struct jinja_text *text) {
    enum status status = jinja_run_pay(run, 1);
    if (status) return status;
    switch (value.type) {
    case JINJA_UNDEFINED:
        return jinja_text_append_str(run, text, "Undefined");
    case JINJA_NONE:
        return jinja_text_append_str(run, text, "None");
    case JINJA_BOOL:
        return jinja_text_append_str(run, text, value.boolean ? "True" : "False");
    case JINJA_INT:
    case JINJA_FLOAT:
        return repr_number(run, value, text);
    case JINJA_BIG_INT:
        return jinja_text_append_string(run, text, value.string);
    case JINJA_STRING:
        return value.string->is_markup ? repr_markup(run, value.string, text)
                                       : repr_string(run, value.string, text);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_VIEW:
    case JINJA_NAMESPACE:
        status = jinja_run_enter(run);
        if (status) return status;
        status = repr_container(run, value, outer, text);
        jinja_run_leave(run);
        return status;
    default:
        return repr_object(run, value, text);
    }
}

enum status jinja_value_repr(struct jinja_run *run, struct jinja_value value,
                             struct jinja_text *text) {
    return repr_in(run, value, NULL, text);
}

// ---- str ----

enum status jinja_value_print(struct jinja_run *run, struct jinja_value value,
                              struct jinja_text *text) {
    if (value.type == JINJA_STRING) return jinja_text_append_string(run, text, value.string);
    if (value.type == JINJA_UNDEFINED) return OK;
    return repr_in(run, value, NULL, text);
}

enum status jinja_value_to_string(struct jinja_run *run, struct jinja_value value,
                                  const struct jinja_string **out) {
    if (value.type == JINJA_STRING) {
        *out = value.string;
        return OK;
    }
    struct jinja_text text = {0};
    enum status status = jinja_value_print(run, value, &text);
    struct jinja_value string;
    if (!status) status = jinja_text_finish(run, &text, &string);
    if (!status) *out = string.string;
    return status;
}

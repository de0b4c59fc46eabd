// Filters about HTML and URLs: escaping, safe, striptags, urlencode, xmlattr.
#include <string.h>

#include "text/template/chars.h"
#include "text/template/html_entities.h"
#include "text/template/library_parts.h"
#include "text/template/str_ops.h"

enum status library_escape(struct run *run, struct value value, struct value *out) {
    const struct string *string;
    enum status status = value_to_string(run, value, &string);
    if (status) return status;
    if (string->is_markup) {
        *out = value_of_string(string);
        return OK;
    }
    struct text text = {0};
    status = str_escape(run, &text, string);
    if (status) return status;
    return str_finish(run, &text, true, out);
}

static enum status filter_escape(struct run *run, struct value value, const struct call_args *args,
                                 struct value *out) {
    enum status status = args_bind(run, "escape", args, NULL, 0, 0, NULL);
    if (status) return status;
    return library_escape(run, value, out);
}

static enum status filter_forceescape(struct run *run, struct value value,
                                      const struct call_args *args, struct value *out) {
    enum status status = args_bind(run, "forceescape", args, NULL, 0, 0, NULL);
    const struct string *string;
    if (!status) status = str_plain(run, value, &string);
    if (status) return status;
    return library_escape(run, value_of_string(string), out);
}

static enum status filter_safe(struct run *run, struct value value, const struct call_args *args,
                               struct value *out) {
    enum status status = args_bind(run, "safe", args, NULL, 0, 0, NULL);
    const struct string *string;
    if (!status) status = value_to_string(run, value, &string);
    if (status) return status;
    return str_borrow(run, string->data, string->len, true, out);
}

// ---- striptags ----

// Comments go first, then tags, then white space, then entities are read: Markup.striptags' order,
// by which `&lt;b&gt;` stays as the text <b>.

// Everything from `open` to the next `close` goes, each time from the first `open` on: what a cut
// joins may open again. `data` shrinks; returns its new length.
static size_t cut_pairs(char *data, size_t len, const char *open, const char *close) {
    size_t open_len = strlen(open), close_len = strlen(close);
    size_t from = 0, to = 0; // [0, to) is kept, [from, len) is to be looked at
    for (;;) {
        char *start = memmem(data + from, len - from, open, open_len);
        char *end = start ? memmem(start, len - (size_t)(start - data), close, close_len) : NULL;
        size_t kept = end ? (size_t)(start - data) - from : len - from;
        memmove(data + to, data + from, kept);
        to += kept;
        if (!end) return to;
        from = (size_t)(end - data) + close_len;
        size_t again = to < open_len - 1 ? to : open_len - 1;
        from -= again;
        to -= again;
        memmove(data + from, data + to, again);
    }
}

static enum status collapse_spaces(struct run *run, const struct string *string,
                                   struct text *text) {
    enum status status = str_pay_chars(run, string->len);
    bool pending = false;
    for (size_t at = 0; at < string->len && !status;) {
        size_t start = at;
        if (char_is_space(str_next(string, &at))) {
            pending = text->len > 0;
            continue;
        }
        if (pending) status = text_append_str(run, text, " ");
        pending = false;
        if (!status) status = text_append(run, text, string->data + start, at - start);
    }
    return status;
}

static enum status filter_striptags(struct run *run, struct value value,
                                    const struct call_args *args, struct value *out) {
    enum status status = args_bind(run, "striptags", args, NULL, 0, 0, NULL);
    const struct string *string;
    if (!status) status = value_to_string(run, value, &string);
    if (status) return status;
    char *data = run_alloc(run, string->len);
    if (!data) return run_status(run);
    size_t len = string->len;
    memcpy(data, string->data, len);
    status = str_pay_chars(run, 2 * len); // many short tags make many short searches
    if (status) return status;
    len = cut_pairs(data, len, "<!--", "-->");
    len = cut_pairs(data, len, "<", ">");
    struct string stripped = string_of(data, len);
    struct text collapsed = {0}, text = {0};
    status = collapse_spaces(run, &stripped, &collapsed);
    if (!status) status = html_unescape(run, collapsed.data, collapsed.len, &text);
    if (status) return status;
    return str_finish(run, &text, false, out);
}

// ---- urlencode, xmlattr ----

static enum status quote(struct run *run, struct value value, bool for_query, struct text *text) {
    const struct string *string;
    enum status status = value_to_string(run, value, &string);
    if (!status) status = str_pay_chars(run, string->len);
    for (size_t i = 0; i < string->len && !status; i++) {
        static const char hex[] = "0123456789ABCDEF";
        unsigned char c = (unsigned char)string->data[i];
        bool is_safe = c < 0x80 && (char_is_alnum(c) || (c && strchr("_.-~", c)));
        if (is_safe || (c == '/' && !for_query))
            status = text_append(run, text, (const char *)&string->data[i], 1);
        else if (c == ' ' && for_query)
            status = text_append_str(run, text, "+");
        else
            status = text_append(run, text, (char[]){'%', hex[c >> 4], hex[c & 15]}, 3);
    }
    return status;
}

// An item of what urlencode walks: two things.
static enum status quote_pair(struct run *run, struct value item, struct text *text) {
    const struct list *pair;
    enum status status = value_items(run, item, &pair);
    if (status) return status;
    if (pair->len != 2)
        return run_fail(run, "urlencode wants pairs, not %zu items together", pair->len);
    status = quote(run, pair->items[0], true, text);
    if (!status) status = text_append_str(run, text, "=");
    if (!status) status = quote(run, pair->items[1], true, text);
    return status;
}

static enum status filter_urlencode(struct run *run, struct value value,
                                    const struct call_args *args, struct value *out) {
    enum status status = args_bind(run, "urlencode", args, NULL, 0, 0, NULL);
    struct text text = {0};
    if (!status && (value.type == VALUE_STRING || !value_is_iterable(value))) {
        status = quote(run, value, false, &text);
    } else if (!status && value.type == VALUE_DICT) {
        const struct dict *dict = value.dict;
        for (size_t i = 0; i < dict->len && !status; i++) {
            if (i) status = text_append_str(run, &text, "&");
            if (!status) status = quote(run, dict->entries[i].key, true, &text);
            if (!status) status = text_append_str(run, &text, "=");
            if (!status) status = quote(run, dict->entries[i].value, true, &text);
        }
    } else if (!status) {
        const struct list *items;
        status = value_items(run, value, &items);
        for (size_t i = 0; !status && i < items->len; i++) {
            if (i) status = text_append_str(run, &text, "&");
            if (!status) status = quote_pair(run, items->items[i], &text);
        }
    }
    if (status) return status;
    return str_finish(run, &text, false, out);
}

static enum status append_escaped(struct run *run, struct value value, struct text *text) {
    struct value escaped;
    enum status status = library_escape(run, value, &escaped);
    if (!status) status = str_pay_bytes(run, escaped.string->len);
    if (!status) status = text_append_string(run, text, escaped.string);
    return status;
}

static enum status append_attribute(struct run *run, const struct dict_entry *entry,
                                    struct text *text) {
    const struct string *key;
    enum status status = args_string(run, "xmlattr", "a name", entry->key, &key);
    for (size_t i = 0; !status && i < key->len; i++) {
        unsigned char c = (unsigned char)key->data[i];
        if (c == ' ' || (c >= 0x09 && c <= 0x0d) || c == '/' || c == '>' || c == '=')
            return run_fail(run, "the attribute name '%.*s' has a character that is not allowed",
                            (int)key->len, key->data);
    }
    if (!status) status = append_escaped(run, entry->key, text);
    if (!status) status = text_append_str(run, text, "=\"");
    if (!status) status = append_escaped(run, entry->value, text);
    if (!status) status = text_append_str(run, text, "\"");
    return status;
}

static enum status filter_xmlattr(struct run *run, struct value value, const struct call_args *args,
                                  struct value *out) {
    struct value autospace = value_bool(true);
    enum status status =
        args_bind(run, "xmlattr", args, (const char *[]){"autospace"}, 1, 0, &autospace);
    if (status) return status;
    if (value.type == VALUE_UNDEFINED) return run_fail_undefined(run, value);
    if (value.type != VALUE_DICT)
        return run_fail(run, "xmlattr wants a dict, not %s", value_type_name(value));
    struct text text = {0};
    for (size_t i = 0; i < value.dict->len && !status; i++) {
        const struct dict_entry *entry = &value.dict->entries[i];
        if (entry->value.type == VALUE_NONE || entry->value.type == VALUE_UNDEFINED) continue;
        if (text.len || value_is_true(autospace)) status = text_append_str(run, &text, " ");
        if (!status) status = append_attribute(run, entry, &text);
    }
    if (status) return status;
    return str_finish(run, &text, run->is_autoescaping, out);
}

const struct filter filters_html[] = {
    {"e", filter_escape},
    {"escape", filter_escape},
    {"forceescape", filter_forceescape},
    {"safe", filter_safe},
    {"striptags", filter_striptags},
    {"urlencode", filter_urlencode},
    {"xmlattr", filter_xmlattr},
    {0},
};

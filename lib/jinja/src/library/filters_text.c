/* Filters on text: case, padding, trimming, indenting, replacing, joining, marking as safe.
 *
 * Most take any value and work on str(value), unlike the methods of the same names. Whether the
 * result is a Markup follows Jinja's filters one by one: there is no rule that holds for all. */
#include "jinja/src/library/library_parts.h"
#include "jinja/src/value/chars.h"
#include "jinja/src/value/str_ops.h"

static const struct jinja_string space = {.data = " ", .len = 1, .num_chars = 1};

enum status jinja_library_escape(struct jinja_run *run, struct jinja_value value,
                                 struct jinja_value *out) {
    const struct jinja_string *string;
    enum status status = jinja_value_to_string(run, value, &string);
    if (status) return status;
    if (string->is_markup) {
        *out = jinja_value_of_string(string);
        return OK;
    }
    struct jinja_text text = {0};
    status = jinja_str_escape(run, &text, string);
    if (status) return status;
    return jinja_str_finish(run, &text, true, out);
}

static enum status filter_safe(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_args_bind(run, "safe", args, NULL, 0, 0, NULL);
    const struct jinja_string *string;
    if (!status) status = jinja_value_to_string(run, value, &string);
    if (status) return status;
    return jinja_str_borrow(run, string->data, string->len, true, out);
}

static enum status case_filter(struct jinja_run *run, const char *callee, struct jinja_value value,
                               const struct jinja_call_args *args, enum jinja_str_case mapping,
                               struct jinja_value *out) {
    enum status status = jinja_args_bind(run, callee, args, NULL, 0, 0, NULL);
    const struct jinja_string *string;
    if (!status) status = jinja_value_to_string(run, value, &string);
    if (status) return status;
    return jinja_str_case_map(run, string, mapping, out);
}

static enum status filter_lower(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    return case_filter(run, "lower", value, args, JINJA_STR_LOWER, out);
}

static enum status filter_upper(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    return case_filter(run, "upper", value, args, JINJA_STR_UPPER, out);
}

static enum status filter_capitalize(struct jinja_run *run, struct jinja_value value,
                                     const struct jinja_call_args *args, struct jinja_value *out) {
    return case_filter(run, "capitalize", value, args, JINJA_STR_CAPITALIZE, out);
}

static bool begins_word(uint32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || jinja_char_is_space(c);
}

// One word or one run of separators: first character upper, the rest lower.
static enum status title_piece(struct jinja_run *run, const struct jinja_string *string,
                               size_t start, size_t end, struct jinja_text *text) {
    size_t at = start;
    jinja_str_next(string, &at);
    struct jinja_string first = jinja_string_of(string->data + start, at - start);
    struct jinja_string rest = jinja_string_of(string->data + at, end - at);
    enum status status = jinja_str_append_case(run, text, &first, JINJA_STR_UPPER);
    if (status) return status;
    return jinja_str_append_case(run, text, &rest, JINJA_STR_LOWER);
}

// Not str.title: words are what stands between white space and opening brackets.
static enum status filter_title(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_args_bind(run, "title", args, NULL, 0, 0, NULL);
    const struct jinja_string *string;
    if (!status) status = jinja_value_to_string(run, value, &string);
    if (status) return status;
    struct jinja_text text = {0};
    for (size_t start = 0; start < string->len && !status;) {
        size_t at = start;
        bool is_separator = begins_word(jinja_str_next(string, &at));
        while (at < string->len) {
            size_t next = at;
            if (begins_word(jinja_str_next(string, &next)) != is_separator) break;
            at = next;
        }
        status = title_piece(run, string, start, at, &text);
        start = at;
    }
    if (status) return status;
    // The pieces are joined by a plain "".
    return jinja_str_finish(run, &text, false, out);
}

static enum status filter_center(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value width_value = jinja_value_int(80);
    enum status status =
        jinja_args_bind(run, "center", args, (const char *[]){"width"}, 1, 0, &width_value);
    int64_t width;
    if (!status) status = jinja_args_int(run, "center", "width", width_value, &width);
    const struct jinja_string *string;
    if (!status) status = jinja_value_to_string(run, value, &string);
    if (status) return status;
    return jinja_str_pad(run, string, width, &space, JINJA_STR_ALIGN_CENTER, out);
}

static enum status filter_trim(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value chars_value = jinja_value_none();
    enum status status =
        jinja_args_bind(run, "trim", args, (const char *[]){"chars"}, 1, 0, &chars_value);
    const struct jinja_string *chars = NULL, *string;
    if (!status && chars_value.type != JINJA_NONE)
        status = jinja_args_string(run, "trim", "chars", chars_value, &chars);
    if (!status) status = jinja_value_to_string(run, value, &string);
    if (status) return status;
    return jinja_str_strip(run, string, chars, JINJA_STR_LEFT | JINJA_STR_RIGHT, out);
}

static enum status filter_string(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_args_bind(run, "string", args, NULL, 0, 0, NULL);
    const struct jinja_string *string;
    if (!status) status = jinja_value_to_string(run, value, &string);
    if (!status) *out = jinja_value_of_string(string);
    return status;
}

static enum status filter_wordcount(struct jinja_run *run, struct jinja_value value,
                                    const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_args_bind(run, "wordcount", args, NULL, 0, 0, NULL);
    const struct jinja_string *string;
    if (!status) status = jinja_value_to_string(run, value, &string);
    if (!status) status = jinja_str_pay_chars(run, string->len);
    if (status) return status;
    int64_t count = 0;
    bool in_word = false;
    for (size_t at = 0; at < string->len;) {
        uint32_t c = jinja_str_next(string, &at);
        bool is_word = c == '_' || jinja_char_is_alnum(c);
        if (is_word && !in_word) count++;
        in_word = is_word;
    }
    *out = jinja_value_int(count);
    return OK;
}

static enum status filter_replace(struct jinja_run *run, struct jinja_value value,
                                  const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[3] = {[2] = jinja_value_none()};
    enum status status = jinja_args_bind(run, "replace", args,
                                         (const char *[]){"old", "new", "count"}, 3, 2, values);
    int64_t count = -1;
    if (!status && values[2].type != JINJA_NONE)
        status = jinja_args_int(run, "replace", "count", values[2], &count);
    if (status) return status;
    const struct jinja_string *string, *old, *new;
    status = jinja_str_plain(run, value, &string);
    if (!status) status = jinja_str_plain(run, values[0], &old);
    if (!status) status = jinja_str_plain(run, values[1], &new);
    if (status) return status;
    return jinja_str_replace(run, string, old, new, count, false, out);
}

static enum status join_items(struct jinja_run *run, const struct jinja_list *items,
                              const struct jinja_attribute_path *path,
                              const struct jinja_list **out) {
    struct jinja_list *parts;
    enum status status = jinja_list_create(run, items->len, &parts);
    for (size_t i = 0; i < items->len && !status; i++) {
        struct jinja_value part;
        status = jinja_attribute_get(run, path, items->items[i], &part);
        if (!status) status = jinja_list_append(run, parts, part);
    }
    if (!status) *out = parts;
    return status;
}

static enum status filter_join(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[2] = {[1] = jinja_value_none()};
    enum status status = jinja_value_string_borrow(run, "", 0, &values[0]);
    if (!status)
        status =
            jinja_args_bind(run, "join", args, (const char *[]){"d", "attribute"}, 2, 0, values);
    struct jinja_attribute_path path;
    if (!status) status = jinja_attribute_path(run, values[1], false, &path);
    const struct jinja_list *items;
    if (!status) status = jinja_value_items(run, value, &items);
    if (!status && values[1].type != JINJA_NONE) status = join_items(run, items, &path, &items);
    const struct jinja_string *separator;
    if (!status) status = jinja_str_plain(run, values[0], &separator);
    if (status) return status;
    return jinja_str_join(run, separator, items, out);
}

// value % right, where `right` is a mapping of the keywords or a tuple of the other arguments.
static enum status filter_format(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    if (args->num_values && args->num_names)
        return jinja_run_fail(
            run, "format takes positional or keyword arguments, not both at the same time");
    struct jinja_value right;
    enum status status = OK;
    if (args->num_names) {
        struct jinja_dict *dict;
        status = jinja_dict_create(run, args->num_names, &dict);
        for (size_t i = 0; i < args->num_names && !status; i++)
            status =
                jinja_dict_set(run, dict, jinja_value_of_string(args->names[i]), args->named[i]);
        if (!status) right = jinja_value_of_dict(dict);
    } else {
        struct jinja_list *list;
        status = jinja_list_create(run, args->num_values, &list);
        for (size_t i = 0; i < args->num_values && !status; i++)
            status = jinja_list_append(run, list, args->values[i]);
        if (!status) right = jinja_value_of_tuple(list);
    }
    const struct jinja_string *format;
    if (!status) status = jinja_value_to_string(run, value, &format);
    if (status) return status;
    return jinja_format_percent(run, format, right, out);
}

static enum status indention_of(struct jinja_run *run, struct jinja_value width_value,
                                struct jinja_text *out) {
    if (width_value.type == JINJA_STRING)
        return jinja_text_append_string(run, out, width_value.string);
    int64_t width;
    enum status status = jinja_args_int(run, "indent", "width", width_value, &width);
    if (status) return status;
    return jinja_str_append_repeated(run, out, &space, width);
}

struct indent {
    struct jinja_text indention;
    bool first, blank; // indent the first line, and lines that are empty
    bool escapes; // the indentation is a Markup and the text is not: the text is escaped
};

static enum status append_line(struct jinja_run *run, const struct indent *indent, size_t i,
                               const struct jinja_string *line, struct jinja_text *text) {
    bool is_indented = i > 0 && (indent->blank || line->len);
    enum status status = i ? jinja_text_append_str(run, text, "\n") : OK;
    if (!status && is_indented) {
        status = jinja_str_pay_bytes(run, indent->indention.len);
        if (!status)
            status = jinja_text_append(run, text, indent->indention.data, indent->indention.len);
    }
    if (status) return status;
    if (indent->escapes && (i || indent->blank)) return jinja_str_escape(run, text, line);
    return jinja_text_append_string(run, text, line);
}

// Puts the indentation before the text, which is escaped unless it is a Markup already.
static enum status indent_first(struct jinja_run *run, const struct indent *indent,
                                struct jinja_text *text) {
    struct jinja_string body = jinja_string_of(text->data, text->len);
    struct jinja_text whole = {0};
    enum status status = jinja_str_pay_bytes(run, body.len);
    if (!status)
        status = jinja_text_append(run, &whole, indent->indention.data, indent->indention.len);
    if (!status && indent->escapes && !indent->blank)
        status = jinja_str_escape(run, &whole, &body);
    else if (!status)
        status = jinja_text_append_string(run, &whole, &body);
    *text = whole;
    return status;
}

static enum status filter_indent(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[3] = {jinja_value_int(4), jinja_value_bool(false),
                                    jinja_value_bool(false)};
    enum status status = jinja_args_bind(run, "indent", args,
                                         (const char *[]){"width", "first", "blank"}, 3, 0, values);
    const struct jinja_string *string;
    if (!status) status = jinja_args_string(run, "indent", "its value", value, &string);
    struct indent indent = {0};
    if (!status) status = indention_of(run, values[0], &indent.indention);
    struct jinja_list *lines;
    if (!status) status = jinja_str_lines(run, string, false, &lines);
    if (status) return status;
    indent.first = jinja_value_is_true(values[1]);
    indent.blank = jinja_value_is_true(values[2]);
    indent.escapes =
        !string->is_markup && values[0].type == JINJA_STRING && values[0].string->is_markup;
    // The text counts as ended by one more newline, so "a\n" has a second, empty line.
    static const struct jinja_string empty = {.data = ""};
    size_t at = string->len;
    bool ends_line = at == 0 || jinja_char_is_line_end(jinja_str_previous(string, &at));
    struct jinja_text text = {0};
    for (size_t i = 0; i < lines->len && !status; i++)
        status = append_line(run, &indent, i, lines->items[i].string, &text);
    if (!status && ends_line) status = append_line(run, &indent, lines->len, &empty, &text);
    if (!status && indent.first) status = indent_first(run, &indent, &text);
    if (status) return status;
    bool is_markup = string->is_markup || (indent.escapes && (indent.first || indent.blank));
    return jinja_str_finish(run, &text, is_markup, out);
}

static enum status truncate_text(struct jinja_run *run, const struct jinja_string *string,
                                 size_t num_kept, bool kill_words, const struct jinja_string *end,
                                 struct jinja_value *out) {
    size_t kept = jinja_string_offset(string, num_kept);
    if (!kill_words) {
        static const struct jinja_string blank = {.data = " ", .len = 1, .num_chars = 1};
        size_t found;
        enum status status = jinja_str_rfind(run, string, 0, kept, &blank, &found);
        if (status) return status;
        if (found != SIZE_MAX) kept = found;
    }
    struct jinja_text text = {0};
    enum status status = jinja_str_pay_bytes(run, kept + end->len);
    if (!status) status = jinja_text_append(run, &text, string->data, kept);
    if (!status && string->is_markup && !end->is_markup)
        status = jinja_str_escape(run, &text, end);
    else if (!status)
        status = jinja_text_append_string(run, &text, end);
    if (status) return status;
    return jinja_str_finish(run, &text, string->is_markup, out);
}

static enum status filter_truncate(struct jinja_run *run, struct jinja_value value,
                                   const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[4] = {jinja_value_int(255),
                                    jinja_value_bool(false), [3] = jinja_value_none()};
    enum status status = jinja_value_string_borrow(run, "...", 3, &values[2]);
    if (!status)
        status =
            jinja_args_bind(run, "truncate", args,
                            (const char *[]){"length", "killwords", "end", "leeway"}, 4, 0, values);
    int64_t length = 0, leeway = 5;
    if (!status) status = jinja_args_int(run, "truncate", "length", values[0], &length);
    const struct jinja_string *end;
    if (!status) status = jinja_args_string(run, "truncate", "end", values[2], &end);
    if (!status && values[3].type != JINJA_NONE)
        status = jinja_args_int(run, "truncate", "leeway", values[3], &leeway);
    if (status) return status;
    if (length < end->num_chars)
        return jinja_run_fail(run, "truncate wants a length of at least %u, not %lld",
                              end->num_chars, (long long)length);
    if (leeway < 0)
        return jinja_run_fail(run, "truncate wants a leeway of at least 0, not %lld",
                              (long long)leeway);
    size_t value_len;
    status = jinja_value_length(run, value, &value_len);
    if (status) return status;
    int64_t most;
    if (__builtin_add_overflow(length, leeway, &most)) most = INT64_MAX;
    if ((int64_t)value_len <= most) {
        *out = value;
        return OK;
    }
    const struct jinja_string *string;
    status = jinja_args_string(run, "truncate", "its value", value, &string);
    if (status) return status;
    return truncate_text(run, string, (size_t)length - end->num_chars,
                         jinja_value_is_true(values[1]), end, out);
}

const struct jinja_filter jinja_filters_text[] = {
    {"capitalize", filter_capitalize},
    {"center", filter_center},
    {"format", filter_format},
    {"indent", filter_indent},
    {"join", filter_join},
    {"lower", filter_lower},
    {"replace", filter_replace},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_title},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", filter_upper},
    {"wordcount", filter_wordcount},
    {0},
};

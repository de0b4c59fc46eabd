// pprint.pformat: a value on one line if it fits, else its items one below the other and long
// strings in pieces. Dicts are sorted first, in a copy that is then shown like any value.
#include "text/template/pprint.h"

#include <string.h>

#include "text/template/chars.h"
#include "text/template/library.h"
#include "text/template/str_ops.h"

enum { PAGE_WIDTH = 80 };

static const struct string space = {.data = " ", .len = 1, .num_chars = 1};

// ---- the sorted copy ----

static bool is_number(struct value value) {
    return value.type == VALUE_BOOL || value.type == VALUE_INT || value.type == VALUE_BIG_INT ||
           value.type == VALUE_FLOAT;
}

// Keys that Python does not order are ordered by their types' names.
static enum status key_precedes(struct run *run, struct value a, struct value b, bool *out) {
    bool is_ordered =
        (is_number(a) && is_number(b)) || (a.type == VALUE_STRING && b.type == VALUE_STRING);
    if (!is_ordered) {
        *out = strcmp(value_type_name(a), value_type_name(b)) < 0;
        return OK;
    }
    int order;
    bool unordered;
    enum status status = value_compare(run, a, b, &order, &unordered);
    *out = !status && !unordered && order < 0;
    return status;
}

// Merge sort, bottom-up; stable.
static enum status sort_entries(struct run *run, struct dict_entry *entries, size_t len) {
    struct dict_entry *from = entries, *to = run_alloc_array(run, len, sizeof *to);
    if (!to) return run_status(run);
    for (size_t width = 1; width < len; width *= 2) {
        enum status status = run_pay(run, len);
        for (size_t start = 0; start < len && !status; start += 2 * width) {
            size_t middle = len - start > width ? start + width : len;
            size_t end = len - start > 2 * width ? start + 2 * width : len;
            size_t left = start, right = middle;
            for (size_t i = start; i < end && !status; i++) {
                bool take_right = left == middle;
                if (left < middle && right < end)
                    status = key_precedes(run, from[right].key, from[left].key, &take_right);
                to[i] = take_right ? from[right++] : from[left++];
            }
        }
        if (status) return status;
        struct dict_entry *swap = from;
        from = to;
        to = swap;
    }
    if (from != entries && len) memcpy(entries, from, len * sizeof *entries);
    return OK;
}

static enum status sorted_copy(struct run *run, struct value value, struct value *out);

static enum status sorted_dict(struct run *run, const struct dict *dict, struct value *out) {
    struct dict_entry *entries = run_alloc_array(run, dict->len, sizeof *entries);
    if (!entries) return run_status(run);
    if (dict->len) memcpy(entries, dict->entries, dict->len * sizeof *entries);
    struct dict *copy;
    enum status status = sort_entries(run, entries, dict->len);
    if (!status) status = dict_create(run, dict->len, &copy);
    for (size_t i = 0; i < dict->len && !status; i++) {
        struct value item;
        status = sorted_copy(run, entries[i].value, &item);
        if (!status) status = dict_set(run, copy, entries[i].key, item);
    }
    if (!status) *out = value_of_dict(copy);
    return status;
}

static enum status sorted_list(struct run *run, const struct list *list, struct list **out) {
    enum status status = list_create(run, list->len, out);
    for (size_t i = 0; i < list->len && !status; i++) {
        struct value item;
        status = sorted_copy(run, list->items[i], &item);
        if (!status) status = list_append(run, *out, item);
    }
    return status;
}

static enum status sorted_copy(struct run *run, struct value value, struct value *out) {
    *out = value;
    bool is_list = value.type == VALUE_LIST || value.type == VALUE_TUPLE;
    if (!is_list && value.type != VALUE_DICT) return run_pay(run, 1);
    enum status status = run_enter(run);
    if (status) return status;
    status = run_pay(run, 1);
    struct list *copy;
    if (!status && !is_list) status = sorted_dict(run, value.dict, out);
    if (!status && is_list) status = sorted_list(run, value.list, &copy);
    run_leave(run);
    if (!status && is_list) out->list = copy;
    return status;
}

// ---- layout ----

// Where a value stands: how far from the left, and how much must follow it on its last line.
struct place {
    size_t indent, allowance;
    bool is_outermost;
};

static enum status show(struct run *run, struct value value, struct string *out) {
    struct text text = {0};
    enum status status = value_repr(run, value, &text);
    *out = string_of(text.data, text.len);
    return status;
}

static enum status show_part(struct run *run, const struct string *string, size_t start, size_t end,
                             struct string *out) {
    struct value part;
    enum status status = str_part(run, string, start, end, &part);
    if (status) return status;
    return show(run, part, out);
}

static enum status new_line(struct run *run, struct text *text, size_t indent) {
    enum status status = text_append_str(run, text, "\n");
    if (status) return status;
    return str_append_repeated(run, text, &space, (int64_t)indent);
}

static bool fits(const struct string *shown, size_t indent, size_t allowance) {
    return shown->num_chars + indent + allowance <= PAGE_WIDTH;
}

// A word and the white space after it.
static size_t word_end(const struct string *string, size_t at) {
    for (bool in_space = false; at < string->len;) {
        size_t next = at;
        bool is_space = char_is_space(str_next(string, &next));
        if (in_space && !is_space) break;
        in_space = is_space;
        at = next;
    }
    return at;
}

// One line of a long string in pieces of words. `pieces` gets what each looks like.
static enum status split_line(struct run *run, const struct string *line, struct place place,
                              bool is_last, struct list *pieces) {
    size_t start = 0, end = 0;
    enum status status = OK;
    while (end < line->len && !status) {
        size_t next = word_end(line, end);
        struct string shown;
        status = show_part(run, line, start, next, &shown);
        size_t allowance = is_last && next == line->len ? place.allowance : 0;
        if (!status && !fits(&shown, place.indent, allowance) && end > start) {
            status = show_part(run, line, start, end, &shown);
            struct value piece;
            if (!status) status = value_string_borrow(run, shown.data, shown.len, &piece);
            if (!status) status = list_append(run, pieces, piece);
            start = end;
        }
        end = next;
    }
    if (status || end == start) return status;
    struct string shown;
    struct value piece;
    status = show_part(run, line, start, end, &shown);
    if (!status) status = value_string_borrow(run, shown.data, shown.len, &piece);
    if (!status) status = list_append(run, pieces, piece);
    return status;
}

static enum status layout_string(struct run *run, const struct string *string, struct place place,
                                 struct text *text) {
    place.indent += place.is_outermost;
    place.allowance += place.is_outermost;
    struct list *lines, *pieces;
    enum status status = str_lines(run, string, true, &lines);
    if (!status) status = list_create(run, lines->len, &pieces);
    struct string shown = string_of("''", 2);
    for (size_t i = 0; !status && i < lines->len; i++) {
        bool is_last = i + 1 == lines->len;
        status = show(run, lines->items[i], &shown);
        if (!status && fits(&shown, place.indent, is_last ? place.allowance : 0)) {
            struct value piece;
            status = value_string_borrow(run, shown.data, shown.len, &piece);
            if (!status) status = list_append(run, pieces, piece);
        } else if (!status) {
            status = split_line(run, lines->items[i].string, place, is_last, pieces);
        }
    }
    if (status) return status;
    if (pieces->len <= 1) return text_append_string(run, text, &shown);
    if (place.is_outermost) status = text_append_str(run, text, "(");
    for (size_t i = 0; !status && i < pieces->len; i++) {
        if (i) status = new_line(run, text, place.indent);
        if (!status) status = text_append_string(run, text, pieces->items[i].string);
    }
    if (!status && place.is_outermost) status = text_append_str(run, text, ")");
    return status;
}

static enum status layout(struct run *run, struct value value, struct place place,
                          struct text *text);

static enum status layout_dict(struct run *run, const struct dict *dict, struct place place,
                               struct text *text) {
    enum status status = text_append_str(run, text, "{");
    size_t indent = place.indent + 1;
    for (size_t i = 0; i < dict->len && !status; i++) {
        bool is_last = i + 1 == dict->len;
        struct string key;
        status = show(run, dict->entries[i].key, &key);
        if (!status) status = text_append_string(run, text, &key);
        if (!status) status = text_append_str(run, text, ": ");
        struct place inside = {.indent = indent + key.num_chars + 2,
                               .allowance = is_last ? place.allowance + 1 : 1};
        if (!status) status = layout(run, dict->entries[i].value, inside, text);
        if (!status && !is_last) status = text_append_str(run, text, ",");
        if (!status && !is_last) status = new_line(run, text, indent);
    }
    if (status) return status;
    return text_append_str(run, text, "}");
}

static enum status layout_items(struct run *run, const struct list *list, const char *open,
                                const char *close, struct place place, struct text *text) {
    enum status status = text_append_str(run, text, open);
    size_t indent = place.indent + 1;
    for (size_t i = 0; i < list->len && !status; i++) {
        bool is_last = i + 1 == list->len;
        struct place inside = {.indent = indent,
                               .allowance = is_last ? place.allowance + strlen(close) : 1};
        status = layout(run, list->items[i], inside, text);
        if (!status && !is_last) status = text_append_str(run, text, ",");
        if (!status && !is_last) status = new_line(run, text, indent);
    }
    if (status) return status;
    return text_append_str(run, text, close);
}

static enum status layout_parts(struct run *run, struct value value, struct place place,
                                struct text *text) {
    if (value.type == VALUE_DICT) return layout_dict(run, value.dict, place, text);
    if (value.type == VALUE_LIST) return layout_items(run, value.list, "[", "]", place, text);
    if (value.type == VALUE_STRING) return layout_string(run, value.string, place, text);
    return layout_items(run, value.list, "(", value.list->len == 1 ? ",)" : ")", place, text);
}

static enum status layout(struct run *run, struct value value, struct place place,
                          struct text *text) {
    struct string shown;
    enum status status = show(run, value, &shown);
    if (status) return status;
    bool has_parts = value.type == VALUE_DICT || value.type == VALUE_LIST ||
                     value.type == VALUE_TUPLE ||
                     (value.type == VALUE_STRING && !value.string->is_markup);
    if (!has_parts || fits(&shown, place.indent, place.allowance)) {
        status = str_pay_bytes(run, shown.len);
        if (status) return status;
        return text_append_string(run, text, &shown);
    }
    status = run_enter(run);
    if (status) return status;
    status = layout_parts(run, value, place, text);
    run_leave(run);
    return status;
}

enum status filter_pprint(struct run *run, struct value value, const struct call_args *args,
                          struct value *out) {
    enum status status = args_bind(run, "pprint", args, NULL, 0, 0, NULL);
    struct value sorted;
    if (!status) status = sorted_copy(run, value, &sorted);
    struct text text = {0};
    if (!status) status = layout(run, sorted, (struct place){.is_outermost = true}, &text);
    if (status) return status;
    return text_finish(run, &text, out);
}

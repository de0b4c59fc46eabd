/* Making values and asking them: strings, lists, undefined values, iterators; type, truth, length.
 *
 * Items of a container are made once, as a list, and shared from then on: nothing that a template
 * can reach changes one. The characters of a string are strings that point into it. */
#include "jinja/src/value.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/utf8.h"
#include "jinja/src/loop.h"
#include "jinja/src/run.h"

// ---- making ----

static size_t count_chars(const char *data, size_t len) {
    size_t count = 0;
    for (size_t i = 0; i < len; i++) count += ((unsigned char)data[i] & 0xc0) != 0x80;
    return count;
}

struct string string_of(const char *data, size_t len) {
    return (struct string){
        .data = data, .len = (uint32_t)len, .num_chars = (uint32_t)count_chars(data, len)};
}

enum status value_string_borrow(struct run *run, const char *data, size_t len, struct value *out) {
    if (len > UINT32_MAX) return run_fail(run, "a string of %zu bytes is too long", len);
    enum status status = run_pay(run, len / 64);
    if (status) return status;
    struct string *string = run_alloc(run, sizeof *string);
    if (!string) return run_status(run);
    *string = string_of(data, len);
    *out = value_of_string(string);
    return OK;
}

enum status value_string(struct run *run, const char *data, size_t len, struct value *out) {
    enum status status = run_pay(run, len / 64);
    if (status) return status;
    char *copy = run_alloc(run, len);
    if (!copy) return run_status(run);
    if (len > 0) memcpy(copy, data, len);
    return value_string_borrow(run, copy, len, out);
}

enum status list_create(struct run *run, size_t capacity, struct list **out) {
    struct list *list = run_alloc(run, sizeof *list);
    if (!list) return run_status(run);
    *list = (struct list){.capacity = capacity};
    if (capacity > 0) {
        list->items = run_alloc_array(run, capacity, sizeof *list->items);
        if (!list->items) return run_status(run);
    }
    *out = list;
    return OK;
}

static enum status list_grow(struct run *run, struct list *list) {
    size_t capacity = list->capacity < 4 ? 4 : 2 * list->capacity;
    enum status status = run_pay(run, list->len / 4);
    if (status) return status;
    struct value *items = run_alloc_array(run, capacity, sizeof *items);
    if (!items) return run_status(run);
    if (list->len > 0) memcpy(items, list->items, list->len * sizeof *items);
    list->items = items;
    list->capacity = capacity;
    return OK;
}

enum status list_append(struct run *run, struct list *list, struct value item) {
    if (list->len == list->capacity) {
        enum status status = list_grow(run, list);
        if (status) return status;
    }
    list->items[list->len++] = item;
    return OK;
}

enum status value_iterator(struct run *run, const struct list *items, const char *type_name,
                           struct value *out) {
    struct iterator *iterator = run_alloc(run, sizeof *iterator);
    if (!iterator) return run_status(run);
    *iterator = (struct iterator){.items = items, .type_name = type_name};
    *out = (struct value){.type = VALUE_ITERATOR, .iterator = iterator};
    return OK;
}

int name_shown_len(const struct string *name) {
    enum { SHOWN_MAX = 200 };
    return (int)utf8_valid_prefix(name->data, name->len < SHOWN_MAX ? name->len : SHOWN_MAX);
}

enum status value_undefined(struct run *run, struct value *out, const char *format, ...) {
    char reason[sizeof((struct err *)NULL)->message];
    va_list args;
    va_start(args, format);
    c_locale_vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    struct value hint;
    enum status status = value_string(run, reason, strlen(reason), &hint);
    if (status) return status;
    *out = (struct value){.type = VALUE_UNDEFINED, .hint = hint.string};
    return OK;
}

// ---- asking ----

bool string_equal(const struct string *a, const struct string *b) {
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

bool string_is(const struct string *string, const char *text) {
    size_t len = strlen(text);
    return string->len == len && (len == 0 || memcmp(string->data, text, len) == 0);
}

// Whether the byte goes on with a character; in each byte of a word: 1 where it does not.
static size_t starts_in_word(const char *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    uint64_t continues = (word >> 7) & ~(word >> 6) & 0x0101010101010101u;
    return 8 - (size_t)((continues * 0x0101010101010101u) >> 56);
}

size_t string_offset(const struct string *string, size_t index) {
    if (string->num_chars == string->len) return index;
    if (index >= string->num_chars) return string->len;
    size_t offset = 0, seen = 0; // characters that start before offset
    while (string->len - offset >= 8) {
        size_t starts = starts_in_word(string->data + offset);
        if (seen + starts > index) break;
        seen += starts;
        offset += 8;
    }
    for (; offset < string->len; offset++) {
        bool is_start = ((unsigned char)string->data[offset] & 0xc0) != 0x80;
        if (is_start && seen++ == index) break;
    }
    return offset;
}

// memmem is faster on most texts but, with needles of up to 256 bytes, ten times slower than its
// price on texts made to be searched slowly. Here every place that must be compared is paid.
static enum status find_short(struct run *run, const char *from, const char *last,
                              const struct string *needle, const char **found) {
    enum { COMPARED_AT_ONCE = 8 }; // in the time of one step
    uint64_t price = 1 + needle->len / 64, unpaid = 0;
    *found = NULL;
    for (const char *at = from; at <= last && !*found; at++) {
        at = memchr(at, needle->data[0], (size_t)(last - at) + 1);
        if (!at) break;
        if (memcmp(at, needle->data, needle->len) == 0) *found = at;
        if (++unpaid < 1024) continue;
        enum status status = run_pay(run, unpaid * price / COMPARED_AT_ONCE);
        if (status) return status;
        unpaid = 0;
    }
    return run_pay(run, unpaid * price / COMPARED_AT_ONCE);
}

enum status string_find(struct run *run, const struct string *string, size_t start, size_t end,
                        const struct string *needle, size_t *out) {
    enum { SHORT_NEEDLE = 256 };
    *out = SIZE_MAX;
    if (start > end || needle->len > end - start) return OK;
    if (needle->len == 0) {
        *out = start;
        return OK;
    }
    const char *from = string->data + start, *found;
    enum status status = OK;
    if (needle->len > SHORT_NEEDLE) {
        found = memmem(from, end - start, needle->data, needle->len);
    } else {
        status = find_short(run, from, string->data + end - needle->len, needle, &found);
    }
    if (status) return status;
    if (found) *out = (size_t)(found - string->data);
    return run_pay(run, ((found ? *out : end) - start) / 64);
}

static const char *const view_names[] = {
    [VIEW_KEYS] = "dict_keys", [VIEW_VALUES] = "dict_values", [VIEW_ITEMS] = "dict_items"};

const char *value_type_name(struct value value) {
    static const char *const names[] = {
        [VALUE_UNDEFINED] = "Undefined",
        [VALUE_NONE] = "NoneType",
        [VALUE_BOOL] = "bool",
        [VALUE_INT] = "int",
        [VALUE_BIG_INT] = "int",
        [VALUE_FLOAT] = "float",
        [VALUE_STRING] = "str",
        [VALUE_LIST] = "list",
        [VALUE_TUPLE] = "tuple",
        [VALUE_DICT] = "dict",
        [VALUE_RANGE] = "range",
        [VALUE_VIEW] = "dict_keys",
        [VALUE_ITERATOR] = "generator",
        [VALUE_NAMESPACE] = "Namespace",
        [VALUE_MACRO] = "Macro",
        [VALUE_FUNCTION] = "function",
        [VALUE_METHOD] = "builtin_function_or_method",
        [VALUE_LOOP] = "LoopContext",
        [VALUE_SELF] = "TemplateReference",
        [VALUE_BLOCK] = "BlockReference",
    };
    if (value.type == VALUE_STRING && value.string->is_markup) return "Markup";
    if (value.type == VALUE_VIEW) return view_names[value.view->type];
    if (value.type == VALUE_ITERATOR) return value.iterator->type_name;
    return names[value.type];
}

bool value_is_true(struct value value) {
    switch (value.type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return value.boolean;
    case VALUE_INT:
        return value.integer != 0;
    case VALUE_FLOAT:
        return value.number != 0;
    case VALUE_STRING:
        return value.string->len > 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
        return value.list->len > 0;
    case VALUE_DICT:
        return value.dict->len > 0;
    case VALUE_RANGE:
        return value.range->len > 0;
    case VALUE_VIEW:
        return value.view->dict->len > 0;
    default:
        return true;
    }
}

enum status value_length(struct run *run, struct value value, size_t *out) {
    switch (value.type) {
    case VALUE_UNDEFINED:
        *out = 0;
        return OK;
    case VALUE_STRING:
        *out = value.string->num_chars;
        return OK;
    case VALUE_LIST:
    case VALUE_TUPLE:
        *out = value.list->len;
        return OK;
    case VALUE_DICT:
        *out = value.dict->len;
        return OK;
    case VALUE_RANGE:
        *out = value.range->len;
        return OK;
    case VALUE_VIEW:
        *out = value.view->dict->len;
        return OK;
    case VALUE_LOOP:
        return loop_length(run, value.loop, out);
    default:
        return run_fail(run, "object of type '%s' has no len()", value_type_name(value));
    }
}

bool value_is_sequence(struct value value) {
    switch (value.type) {
    case VALUE_UNDEFINED:
    case VALUE_STRING:
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
    case VALUE_RANGE:
        return true;
    default:
        return false;
    }
}

bool value_is_iterable(struct value value) {
    return value_is_sequence(value) || value.type == VALUE_VIEW || value.type == VALUE_ITERATOR ||
           value.type == VALUE_LOOP;
}

// ---- items ----

static enum status string_items(struct run *run, const struct string *string, struct list *list) {
    struct string *chars = run_alloc_array(run, string->num_chars, sizeof *chars);
    if (!chars) return run_status(run);
    const char *at = string->data;
    for (size_t i = 0; i < string->num_chars; i++) {
        const char *next = at + 1;
        const char *end = string->data + string->len;
        while (next < end && ((unsigned char)*next & 0xc0) == 0x80) next++;
        chars[i] = (struct string){.data = at, .len = (uint32_t)(next - at), .num_chars = 1};
        list->items[list->len++] = value_of_string(&chars[i]);
        at = next;
    }
    return OK;
}

static enum status pair_items(struct run *run, const struct dict *dict, struct list *list) {
    struct list *pairs = run_alloc_array(run, dict->len, sizeof *pairs);
    struct value *items = pairs ? run_alloc_array(run, dict->len, 2 * sizeof *items) : NULL;
    if (!items) return run_status(run);
    for (size_t i = 0; i < dict->len; i++) {
        struct value *pair = items + 2 * i;
        pair[0] = dict->entries[i].key;
        pair[1] = dict->entries[i].value;
        pairs[i] = (struct list){.items = pair, .len = 2, .capacity = 2};
        list->items[list->len++] = value_of_tuple(&pairs[i]);
    }
    return OK;
}

static void dict_items(const struct dict *dict, enum view_type type, struct list *list) {
    for (size_t i = 0; i < dict->len; i++) {
        const struct dict_entry *entry = &dict->entries[i];
        list->items[list->len++] = type == VIEW_VALUES ? entry->value : entry->key;
    }
}

// What is left of an iterator, which is empty afterwards. Its items never change: they are shared.
static enum status iterator_items(struct run *run, struct iterator *iterator,
                                  const struct list **out) {
    const struct list *items = iterator->items;
    size_t next = iterator->next;
    iterator->next = items->len;
    *out = items;
    if (next == 0) return OK;
    struct list *rest = NULL;
    enum status status = list_create(run, 0, &rest);
    if (status) return status;
    if (next < items->len) {
        size_t len = items->len - next;
        *rest = (struct list){.items = items->items + next, .len = len, .capacity = len};
    }
    *out = rest;
    return OK;
}

// A loop that is walked over by its own body gives pairs of an item and the loop, and ends.
static enum status loop_items(struct run *run, struct value loop, const struct list **out) {
    struct list *list = NULL;
    enum status status = list_create(run, 0, &list);
    if (status) return status;
    *out = list;
    for (;;) {
        bool found = false;
        status = loop_next(run, loop.loop, &found);
        if (status || !found) return status;
        struct list *pair = NULL;
        status = list_create(run, 2, &pair);
        if (!status) status = run_pay(run, 1);
        if (status) return status;
        pair->items[pair->len++] = loop.loop->current;
        pair->items[pair->len++] = loop;
        status = list_append(run, list, value_of_tuple(pair));
        if (status) return status;
    }
}

enum status value_items(struct run *run, struct value value, const struct list **out) {
    if (value.type == VALUE_LIST || value.type == VALUE_TUPLE) {
        *out = value.list;
        return OK;
    }
    if (value.type == VALUE_ITERATOR) return iterator_items(run, value.iterator, out);
    if (value.type == VALUE_LOOP) return loop_items(run, value, out);
    if (!value_is_iterable(value)) {
        return run_fail(run, "'%s' object is not iterable", value_type_name(value));
    }
    size_t len = 0;
    struct list *list = NULL;
    enum status status = value_length(run, value, &len);
    if (!status) status = run_pay(run, len);
    if (!status) status = list_create(run, len, &list);
    if (status) return status;
    if (value.type == VALUE_STRING) status = string_items(run, value.string, list);
    if (value.type == VALUE_DICT) dict_items(value.dict, VIEW_KEYS, list);
    if (value.type == VALUE_VIEW && value.view->type == VIEW_ITEMS) {
        status = pair_items(run, value.view->dict, list);
    } else if (value.type == VALUE_VIEW) {
        dict_items(value.view->dict, value.view->type, list);
    }
    if (value.type == VALUE_RANGE) {
        for (size_t i = 0; i < len; i++) {
            list->items[list->len++] = value_int(range_item(value.range, i));
        }
    }
    *out = list;
    return status;
}

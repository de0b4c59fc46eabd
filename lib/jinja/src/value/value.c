/* Making values and asking them: strings, lists, undefined values, iterators; type, truth, length.
 *
 * Items of a container are made once, as a list, and shared from then on: nothing that a template
 * can reach changes one. The characters of a string are strings that point into it. */
#include "jinja/src/value/value.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "base/text/utf8.h"
#include "jinja/src/run/loop.h"
#include "jinja/src/run/run.h"

// ---- making ----

static size_t count_chars(const char *data, size_t len) {
    size_t count = 0;
    for (size_t i = 0; i < len; i++) count += ((unsigned char)data[i] & 0xc0) != 0x80;
    return count;
}

struct jinja_string jinja_string_of(const char *data, size_t len) {
    return (struct jinja_string){
        .data = data, .len = (uint32_t)len, .num_chars = (uint32_t)count_chars(data, len)};
}

enum status jinja_value_string_borrow(struct jinja_run *run, const char *data, size_t len,
                                      struct jinja_value *out) {
    if (len > UINT32_MAX) return jinja_run_fail(run, "a string of %zu bytes is too long", len);
    enum status status = jinja_run_pay(run, len / 64);
    if (status) return status;
    struct jinja_string *string = jinja_run_alloc(run, sizeof *string);
    if (!string) return jinja_run_status(run);
    *string = jinja_string_of(data, len);
    *out = jinja_value_of_string(string);
    return OK;
}

enum status jinja_value_string(struct jinja_run *run, const char *data, size_t len,
                               struct jinja_value *out) {
    enum status status = jinja_run_pay(run, len / 64);
    if (status) return status;
    char *copy = jinja_run_alloc(run, len);
    if (!copy) return jinja_run_status(run);
    if (len > 0) memcpy(copy, data, len);
    return jinja_value_string_borrow(run, copy, len, out);
}

enum status jinja_list_create(struct jinja_run *run, size_t capacity, struct jinja_list **out) {
    struct jinja_list *list = jinja_run_alloc(run, sizeof *list);
    if (!list) return jinja_run_status(run);
    *list = (struct jinja_list){.capacity = capacity};
    if (capacity > 0) {
        list->items = jinja_run_alloc_array(run, capacity, sizeof *list->items);
        if (!list->items) return jinja_run_status(run);
    }
    *out = list;
    return OK;
}

static enum status list_grow(struct jinja_run *run, struct jinja_list *list) {
    size_t capacity = list->capacity < 4 ? 4 : 2 * list->capacity;
    enum status status = jinja_run_pay(run, list->len / 4);
    if (status) return status;
    struct jinja_value *items = jinja_run_alloc_array(run, capacity, sizeof *items);
    if (!items) return jinja_run_status(run);
    if (list->len > 0) memcpy(items, list->items, list->len * sizeof *items);
    list->items = items;
    list->capacity = capacity;
    return OK;
}

enum status jinja_list_append(struct jinja_run *run, struct jinja_list *list,
                              struct jinja_value item) {
    if (list->len == list->capacity) {
        enum status status = list_grow(run, list);
        if (status) return status;
    }
    list->items[list->len++] = item;
    return OK;
}

enum status jinja_value_iterator(struct jinja_run *run, const struct jinja_list *items,
                                 const char *type_name, struct jinja_value *out) {
    struct jinja_iterator *iterator = jinja_run_alloc(run, sizeof *iterator);
    if (!iterator) return jinja_run_status(run);
    *iterator = (struct jinja_iterator){.items = items, .type_name = type_name};
    *out = (struct jinja_value){.type = JINJA_ITERATOR, .iterator = iterator};
    return OK;
}

int jinja_name_shown_len(const struct jinja_string *name) {
    enum { SHOWN_MAX = 200 };
    return (int)utf8_valid_prefix(name->data, name->len < SHOWN_MAX ? name->len : SHOWN_MAX);
}

enum status jinja_value_undefined(struct jinja_run *run, struct jinja_value *out,
                                  const char *format, ...) {
    char reason[sizeof((struct err *)NULL)->message];
    va_list args;
    va_start(args, format);
    c_locale_vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    struct jinja_value hint;
    enum status status = jinja_value_string(run, reason, strlen(reason), &hint);
    if (status) return status;
    *out = (struct jinja_value){.type = JINJA_UNDEFINED, .hint = hint.string};
    return OK;
}

// ---- asking ----

bool jinja_string_equal(const struct jinja_string *a, const struct jinja_string *b) {
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

bool jinja_string_is(const struct jinja_string *string, const char *text) {
    size_t len = strlen(text);
    return string->len == len && (len == 0 || memcmp(string->data, text, len) == 0);
}

// How many characters start in 8 bytes: all bytes but those that continue a character.
static size_t starts_in_word(const char *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    uint64_t continues = (word >> 7) & ~(word >> 6) & 0x0101010101010101u;
    return 8 - (size_t)((continues * 0x0101010101010101u) >> 56);
}

size_t jinja_string_offset(const struct jinja_string *string, size_t index) {
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

// Not memmem: it is faster on most texts, but on texts made to be searched slowly, with needles of
// up to 256 bytes, it takes ten times what it costs in steps. Here every comparison costs steps.
static enum status find_short(struct jinja_run *run, const char *from, const char *last,
                              const struct jinja_string *needle, const char **found) {
    enum { COMPARED_AT_ONCE = 8 }; // in the time of one step
    uint64_t price = 1 + needle->len / 64, unpaid = 0;
    *found = NULL;
    for (const char *at = from; at <= last && !*found; at++) {
        at = memchr(at, needle->data[0], (size_t)(last - at) + 1);
        if (!at) break;
        if (memcmp(at, needle->data, needle->len) == 0) *found = at;
        if (++unpaid < 1024) continue;
        enum status status = jinja_run_pay(run, unpaid * price / COMPARED_AT_ONCE);
        if (status) return status;
        unpaid = 0;
    }
    return jinja_run_pay(run, unpaid * price / COMPARED_AT_ONCE);
}

enum status jinja_string_find(struct jinja_run *run, const struct jinja_string *string,
                              size_t start, size_t end, const struct jinja_string *needle,
                              size_t *out) {
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
    return jinja_run_pay(run, ((found ? *out : end) - start) / 64);
}

static const char *const view_names[] = {[JINJA_VIEW_KEYS] = "dict_keys",
                                         [JINJA_VIEW_VALUES] = "dict_values",
                                         [JINJA_VIEW_ITEMS] = "dict_items"};

const char *jinja_value_type_name(struct jinja_value value) {
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "Undefined",
        [JINJA_NONE] = "NoneType",
        [JINJA_BOOL] = "bool",
        [JINJA_INT] = "int",
        [JINJA_BIG_INT] = "int",
        [JINJA_FLOAT] = "float",
        [JINJA_STRING] = "str",
        [JINJA_LIST] = "list",
        [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",
        [JINJA_RANGE] = "range",
        [JINJA_VIEW] = "dict_keys",
        [JINJA_ITERATOR] = "generator",
        [JINJA_NAMESPACE] = "Namespace",
        [JINJA_MACRO] = "Macro",
        [JINJA_FUNCTION] = "function",
        [JINJA_METHOD] = "builtin_function_or_method",
        [JINJA_LOOP] = "LoopContext",
        [JINJA_SELF] = "TemplateReference",
        [JINJA_BLOCK] = "BlockReference",
    };
    if (value.type == JINJA_STRING && value.string->is_markup) return "Markup";
    if (value.type == JINJA_VIEW) return view_names[value.view->type];
    if (value.type == JINJA_ITERATOR) return value.iterator->type_name;
    return names[value.type];
}

bool jinja_value_is_true(struct jinja_value value) {
    switch (value.type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return value.boolean;
    case JINJA_INT:
        return value.integer != 0;
    case JINJA_FLOAT:
        return value.number != 0;
    case JINJA_STRING:
        return value.string->len > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return value.list->len > 0;
    case JINJA_DICT:
        return value.dict->len > 0;
    case JINJA_RANGE:
        return value.range->len > 0;
    case JINJA_VIEW:
        return value.view->dict->len > 0;
    default:
        return true;
    }
}

enum status jinja_value_length(struct jinja_run *run, struct jinja_value value, size_t *out) {
    switch (value.type) {
    case JINJA_UNDEFINED:
        *out = 0;
        return OK;
    case JINJA_STRING:
        *out = value.string->num_chars;
        return OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
        *out = value.list->len;
        return OK;
    case JINJA_DICT:
        *out = value.dict->len;
        return OK;
    case JINJA_RANGE:
        *out = value.range->len;
        return OK;
    case JINJA_VIEW:
        *out = value.view->dict->len;
        return OK;
    case JINJA_LOOP:
        return jinja_loop_length(run, value.loop, out);
    default:
        return jinja_run_fail(run, "object of type '%s' has no len()",
                              jinja_value_type_name(value));
    }
}

bool jinja_value_is_sequence(struct jinja_value value) {
    switch (value.type) {
    case JINJA_UNDEFINED:
    case JINJA_STRING:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_RANGE:
        return true;
    default:
        return false;
    }
}

bool jinja_value_is_iterable(struct jinja_value value) {
    return jinja_value_is_sequence(value) || value.type == JINJA_VIEW ||
           value.type == JINJA_ITERATOR || value.type == JINJA_LOOP;
}

// ---- items ----

static enum status string_items(struct jinja_run *run, const struct jinja_string *string,
                                struct jinja_list *list) {
    struct jinja_string *chars = jinja_run_alloc_array(run, string->num_chars, sizeof *chars);
    if (!chars) return jinja_run_status(run);
    const char *at = string->data;
    for (size_t i = 0; i < string->num_chars; i++) {
        const char *next = at + 1;
        const char *end = string->data + string->len;
        while (next < end && ((unsigned char)*next & 0xc0) == 0x80) next++;
        chars[i] = (struct jinja_string){.data = at, .len = (uint32_t)(next - at), .num_chars = 1};
        list->items[list->len++] = jinja_value_of_string(&chars[i]);
        at = next;
    }
    return OK;
}

static enum status pair_items(struct jinja_run *run, const struct jinja_dict *dict,
                              struct jinja_list *list) {
    struct jinja_list *pairs = jinja_run_alloc_array(run, dict->len, sizeof *pairs);
    struct jinja_value *items =
        pairs ? jinja_run_alloc_array(run, dict->len, 2 * sizeof *items) : NULL;
    if (!items) return jinja_run_status(run);
    for (size_t i = 0; i < dict->len; i++) {
        struct jinja_value *pair = items + 2 * i;
        pair[0] = dict->entries[i].key;
        pair[1] = dict->entries[i].value;
        pairs[i] = (struct jinja_list){.items = pair, .len = 2, .capacity = 2};
        list->items[list->len++] = jinja_value_of_tuple(&pairs[i]);
    }
    return OK;
}

static void dict_items(const struct jinja_dict *dict, enum jinja_view_type type,
                       struct jinja_list *list) {
    for (size_t i = 0; i < dict->len; i++) {
        const struct jinja_dict_entry *entry = &dict->entries[i];
        list->items[list->len++] = type == JINJA_VIEW_VALUES ? entry->value : entry->key;
    }
}

// What is left of an iterator, which is empty afterwards. Its items never change: they are shared.
static enum status iterator_items(struct jinja_run *run, struct jinja_iterator *iterator,
                                  const struct jinja_list **out) {
    const struct jinja_list *items = iterator->items;
    size_t next = iterator->next;
    iterator->next = items->len;
    *out = items;
    if (next == 0) return OK;
    struct jinja_list *rest = NULL;
    enum status status = jinja_list_create(run, 0, &rest);
    if (status) return status;
    if (next < items->len) {
        size_t len = items->len - next;
        *rest = (struct jinja_list){.items = items->items + next, .len = len, .capacity = len};
    }
    *out = rest;
    return OK;
}

// The items of `loop` itself: what the loop has left, each in a pair with the loop. So the body may
// walk over its own loop, which then ends.
static enum status loop_items(struct jinja_run *run, struct jinja_value loop,
                              const struct jinja_list **out) {
    struct jinja_list *list = NULL;
    enum status status = jinja_list_create(run, 0, &list);
    if (status) return status;
    *out = list;
    for (;;) {
        bool found = false;
        status = jinja_loop_next(run, loop.loop, &found);
        if (status || !found) return status;
        struct jinja_list *pair = NULL;
        status = jinja_list_create(run, 2, &pair);
        if (!status) status = jinja_run_pay(run, 1);
        if (status) return status;
        pair->items[pair->len++] = loop.loop->current;
        pair->items[pair->len++] = loop;
        status = jinja_list_append(run, list, jinja_value_of_tuple(pair));
        if (status) return status;
    }
}

enum status jinja_value_items(struct jinja_run *run, struct jinja_value value,
                              const struct jinja_list **out) {
    if (value.type == JINJA_LIST || value.type == JINJA_TUPLE) {
        *out = value.list;
        return OK;
    }
    if (value.type == JINJA_ITERATOR) return iterator_items(run, value.iterator, out);
    if (value.type == JINJA_LOOP) return loop_items(run, value, out);
    if (!jinja_value_is_iterable(value)) {
        return jinja_run_fail(run, "'%s' object is not iterable", jinja_value_type_name(value));
    }
    size_t len = 0;
    struct jinja_list *list = NULL;
    enum status status = jinja_value_length(run, value, &len);
    if (!status) status = jinja_run_pay(run, len);
    if (!status) status = jinja_list_create(run, len, &list);
    if (status) return status;
    if (value.type == JINJA_STRING) status = string_items(run, value.string, list);
    if (value.type == JINJA_DICT) dict_items(value.dict, JINJA_VIEW_KEYS, list);
    if (value.type == JINJA_VIEW && value.view->type == JINJA_VIEW_ITEMS) {
        status = pair_items(run, value.view->dict, list);
    } else if (value.type == JINJA_VIEW) {
        dict_items(value.view->dict, value.view->type, list);
    }
    if (value.type == JINJA_RANGE) {
        for (size_t i = 0; i < len; i++) {
            list->items[list->len++] = jinja_value_int(jinja_range_item(value.range, i));
        }
    }
    *out = list;
    return status;
}

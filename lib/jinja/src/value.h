/* Values of the template language: Python's, as far as a chat template can make them.
 *
 * A value is 16 bytes and passed by value; what it points to lives in the run's arena (or in the
 * template, for constants) until the render ends. Lists, tuples, dicts and strings never change
 * once a template can see them: the sandbox refuses every mutating method. Only a namespace and
 * the state of iterators change. All-zero is a plain undefined value. */
#ifndef JINJA_VALUE_H
#define JINJA_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/err.h"

struct run;

enum value_type {
    VALUE_UNDEFINED, // jinja2.Undefined: prints nothing, is false and empty, fails in arithmetic
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT, // 64 bits; a result beyond is an error, where Python would go on
    VALUE_BIG_INT, // beyond 64 bits, from JSON alone: it prints as it was written and compares
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_RANGE,
    VALUE_VIEW, // what dict.keys(), .values() and .items() give: a sequence without items by index
    VALUE_ITERATOR, // a generator: can be walked once, has no length
    VALUE_NAMESPACE,
    VALUE_MACRO,
    VALUE_FUNCTION, // range, dict, namespace, raise_exception, ...
    VALUE_METHOD, // bound: "a".upper
    VALUE_LOOP,
    VALUE_SELF, // the variable `self`: its attributes are the template's block tags
    VALUE_BLOCK, // self.name: calling it gives what the block prints
};

struct string {
    const char *data; // [len] UTF-8, not NUL-terminated, may contain NUL
    uint32_t len; // bytes; strings are below 4 GiB because the memory of a run is
    uint32_t num_chars; // code points: what Python counts; == len means ASCII
    bool is_markup; // markupsafe.Markup: made by `safe`, escapes what is joined to it
    struct string_room *room; // where a join may continue this string in place; NULL: nowhere
};

// Free memory behind a string that was joined together. Strings share it that begin alike; the one
// that reaches to `end` may go on there. So a text that grows in a loop is not copied each time.
struct string_room {
    char *end;
    size_t len; // free bytes from `end` on
};

struct list { // of a list or tuple
    struct value *items; // [len]
    size_t len, capacity;
    bool is_group; // a tuple of groupby's: its items are also .grouper and .list
};

struct dict { // insertion order kept
    struct dict_entry *entries; // [len]
    size_t len, capacity;
    uint32_t *index; // open addressing over entries once there are many; NULL before
    size_t index_capacity; // a power of two, or 0
};

struct range {
    int64_t start, stop, step; // step is not 0
    size_t len;
};

enum view_type { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct view {
    enum view_type type;
    const struct dict *dict;
};

// A generator whose items are already known; `next` moves as it is walked.
struct iterator {
    const struct list *items;
    size_t next;
    const char *type_name; // "generator", for printing
};

struct value {
    enum value_type type;
    union {
        const struct string *hint; // UNDEFINED: why, "'x' is undefined"; NULL: no reason known
        bool boolean;
        int64_t integer;
        double number;
        const struct string *string; // STRING; BIG_INT: its digits with the sign
        const struct list *list; // LIST and TUPLE
        const struct dict *dict;
        const struct range *range;
        const struct view *view;
        struct iterator *iterator;
        struct dict *attributes; // NAMESPACE, keys are strings
        const struct macro *macro; // call.h
        const struct function *function; // library.h
        const struct method *method; // library.h
        struct loop *loop; // loop.h
        const struct ast *self; // ast.h
        const struct block_reference *block; // call.h
    };
};

struct dict_entry {
    struct value key, value;
    uint64_t hash;
};

// ---- making values ----

static inline struct value value_none(void) {
    return (struct value){.type = VALUE_NONE};
}
static inline struct value value_bool(bool boolean) {
    return (struct value){.type = VALUE_BOOL, .boolean = boolean};
}
static inline struct value value_int(int64_t integer) {
    return (struct value){.type = VALUE_INT, .integer = integer};
}
static inline struct value value_float(double number) {
    return (struct value){.type = VALUE_FLOAT, .number = number};
}
static inline struct value value_of_string(const struct string *string) {
    return (struct value){.type = VALUE_STRING, .string = string};
}
static inline struct value value_of_list(const struct list *list) {
    return (struct value){.type = VALUE_LIST, .list = list};
}
static inline struct value value_of_tuple(const struct list *list) {
    return (struct value){.type = VALUE_TUPLE, .list = list};
}
static inline struct value value_of_dict(const struct dict *dict) {
    return (struct value){.type = VALUE_DICT, .dict = dict};
}

// Copies `len` bytes, which must be UTF-8.
MUST_USE enum status value_string(struct run *run, const char *data, size_t len, struct value *out);
// Borrows bytes that live as long as the run. Both pay for counting the characters.
MUST_USE enum status value_string_borrow(struct run *run, const char *data, size_t len,
                                         struct value *out);
// A list [len] = 0 with room for `capacity` items, to be filled before anyone sees it.
MUST_USE enum status list_create(struct run *run, size_t capacity, struct list **out);
MUST_USE enum status list_append(struct run *run, struct list *list, struct value item);
MUST_USE enum status dict_create(struct run *run, size_t capacity, struct dict **out);
// Inserts or overwrites. An unhashable key (list, dict) is an error, as in Python.
MUST_USE enum status dict_set(struct run *run, struct dict *dict, struct value key,
                              struct value value);
// *found false: no such key. 1, 1.0 and true are the same key. Unhashable keys are an error.
MUST_USE enum status dict_get(struct run *run, const struct dict *dict, struct value key,
                              bool *found, struct value *out);
bool dict_get_text(const struct dict *dict, const char *key, struct value *out);
// A walk-once iterator over `items`; type_name is static.
MUST_USE enum status value_iterator(struct run *run, const struct list *items,
                                    const char *type_name, struct value *out);
// How many bytes of a name or key a reason shows, whole characters: reasons are written again and
// again and nobody pays for their length.
int name_shown_len(const struct string *name);
// An undefined value with its reason.
MUST_USE enum status value_undefined(struct run *run, struct value *out, const char *format, ...)
    PRINTF_LIKE(3, 4);
// JSON to values, strings borrowed from the document, which must outlive the run.
MUST_USE enum status value_from_json(struct run *run, const json_t *json, struct value *out);

// ---- asking values ----

// A string over borrowed UTF-8 bytes, characters counted; for whoever has memory of their own.
struct string string_of(const char *data, size_t len);
bool string_is(const struct string *string, const char *text); // text is NUL-terminated
bool string_equal(const struct string *a, const struct string *b);
const char *value_type_name(struct value value); // Python's: "str", "NoneType", "Undefined", ...
// bool(value). Never fails: every type has a truth.
bool value_is_true(struct value value);
// The same type and the same object, Python's `is`: none, booleans, equal small things, pointers.
bool value_is_same(struct value a, struct value b);
// len(value); error for types without one. Undefined: 0.
MUST_USE enum status value_length(struct run *run, struct value value, size_t *out);
bool value_is_iterable(struct value value); // Undefined is
// True for list, tuple, string, dict, range and undefined: what has a length and items by index or
// key (Jinja's `is sequence`). Not for views.
bool value_is_sequence(struct value value);
// Python's ==; never fails but for depth and steps. Strings compare by content, 1 == 1.0 == true.
MUST_USE enum status value_equal(struct run *run, struct value a, struct value b, bool *out);
// Python's <: *order is negative, 0 or positive. Types that Python does not order are an error. NaN: see `unordered`.
MUST_USE enum status value_compare(struct run *run, struct value a, struct value b, int *order,
                                   bool *unordered);
// The same for any of < <= > >=: `sign` is what the error names.
MUST_USE enum status value_compare_by(struct run *run, const char *sign, struct value a,
                                      struct value b, int *order, bool *unordered);
// needle in haystack.
MUST_USE enum status value_contains(struct run *run, struct value haystack, struct value needle,
                                    bool *out);
// list(value): all items, walked to the end (an iterator is empty afterwards). Strings give their
// characters, dicts their keys. Not iterable: an error "'int' object is not iterable".
// The list may be the value's own: read only.
MUST_USE enum status value_items(struct run *run, struct value value, const struct list **out);

// ---- text ----

// A growing string in the run's memory.
struct text {
    char *data; // [capacity]
    size_t len, capacity;
};

MUST_USE enum status text_append(struct run *run, struct text *text, const char *data, size_t len);
MUST_USE enum status text_append_str(struct run *run, struct text *text, const char *str);
MUST_USE enum status text_append_string(struct run *run, struct text *text,
                                        const struct string *string);
// A backslash, `letter` and the character in `width` hexadecimal digits: \x1b, \u2028.
MUST_USE enum status text_append_escape(struct run *run, struct text *text, char letter, int width,
                                        uint32_t character);
// The text as a value; takes the memory, *text is empty afterwards.
MUST_USE enum status text_finish(struct run *run, struct text *text, struct value *out);
// str(value) and repr(value), appended. Floats: the shortest form that reads back, as Python's.
MUST_USE enum status value_print(struct run *run, struct value value, struct text *text);
MUST_USE enum status value_repr(struct run *run, struct value value, struct text *text);
// str(value) as a string value: the value itself where it is one (a Markup stays one).
MUST_USE enum status value_to_string(struct run *run, struct value value,
                                     const struct string **out);
// repr(float) to `out` [32], NUL-terminated: "1.0", "1e+16", "inf".
void float_repr(double number, char *out);

// What json.dumps takes: transformers' tojson.
struct json_print_options {
    bool ensure_ascii, sort_keys;
    const struct string *indent; // one level of it; NULL: everything on one line
    const struct string *item_separator,
        *key_separator; // ", " and ": "; json.dumps's rules for the defaults are the filter's
};
MUST_USE enum status value_to_json(struct run *run, struct value value,
                                   const struct json_print_options *options, struct text *text);

// Code points: byte offset of character `index` in [0, num_chars]. Walks there unless the string is
// ASCII: who asks for many offsets pays num_chars / 64 each.
size_t string_offset(const struct string *string, size_t index);
// The first `needle` in bytes [start, end) of a string: its byte offset, SIZE_MAX when there is none.
// Pays for what it looks at, however the bytes repeat.
MUST_USE enum status string_find(struct run *run, const struct string *string, size_t start,
                                 size_t end, const struct string *needle, size_t *out);

// ---- numbers ----

// Item `index` < range->len.
static inline int64_t range_item(const struct range *range, size_t index) {
    return (int64_t)((uint64_t)range->start + (uint64_t)range->step * index);
}
// int(string, base) and float(string) of Python: white space around, underscores between digits,
// digits of any script; base 0 (by the prefix) or 2 to 36. False: not a number. *too_large: a
// number, but not of 64 bits; *out is untouched then. Time grows with the string: the caller pays.
bool number_parse_int(const struct string *string, int base, int64_t *out, bool *too_large);
bool number_parse_float(const struct string *string, double *out);
// float(integer) of a BIG_INT's digits: infinite where Python raises.
double number_of_big(const struct string *digits);

#endif

/* Values of the template language: Python's, as far as a chat template can make them.
 *
 * A value is 16 bytes and passed by value. Its data lives in the run's arena until the render ends,
 * that of constants in the template. Lists, tuples, dicts and strings never change once a template
 * can see them: the sandbox refuses every mutating method. Only a namespace and the state of
 * iterators change. All-zero is a plain undefined value. */
#ifndef JINJA_VALUE_H
#define JINJA_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/err.h"

struct jinja_run;

enum jinja_value_type {
    JINJA_UNDEFINED, // jinja2.Undefined: prints nothing, is false and empty, fails in arithmetic
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT, // 64 bits; a result beyond is an error, where Python would go on
    JINJA_BIG_INT, // beyond 64 bits, from JSON alone: it prints as it was written and compares
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_RANGE,
    JINJA_VIEW, // what dict.keys(), .values() and .items() give: a sequence without items by index
    JINJA_ITERATOR, // a generator: can be walked once, has no length
    JINJA_NAMESPACE,
    JINJA_MACRO,
    JINJA_FUNCTION, // range, dict, namespace, raise_exception, ...
    JINJA_METHOD, // bound: "a".upper
    JINJA_LOOP,
    JINJA_SELF, // the variable `self`: its attributes are the template's block tags
    JINJA_BLOCK, // self.name: calling it gives what the block prints
};

struct jinja_string {
    const char *data; // [len] UTF-8, not NUL-terminated, may contain NUL
    uint32_t len; // bytes; strings are below 4 GiB because the memory of a run is
    uint32_t num_chars; // code points: what Python counts; == len means ASCII
    bool is_markup; // markupsafe.Markup: made by `safe`, escapes what is joined to it
    struct jinja_string_spare *spare; // where a join may continue this string; NULL: nowhere
};

// Free memory behind a joined string. A later join may continue the string there, if the string
// ends at `end`; both then share their beginning. So a text that grows in a loop is not copied each
// time.
struct jinja_string_spare {
    char *end;
    size_t len; // free bytes from `end` on
};

struct jinja_list { // of a list or tuple
    struct jinja_value *items; // [len]
    size_t len, capacity;
    bool is_group; // a tuple of groupby's: its items are also .grouper and .list
};

struct jinja_dict { // insertion order kept
    struct jinja_dict_entry *entries; // [len]
    size_t len, capacity;
    uint32_t *index; // open addressing over entries once there are many; NULL before
    size_t index_capacity; // a power of two, or 0
};

struct jinja_range {
    int64_t start, stop, step; // step is not 0
    size_t len;
};

enum jinja_view_type { JINJA_VIEW_KEYS, JINJA_VIEW_VALUES, JINJA_VIEW_ITEMS };

struct jinja_view {
    enum jinja_view_type type;
    const struct jinja_dict *dict;
};

// A generator whose items are already known; `next` moves as it is walked.
struct jinja_iterator {
    const struct jinja_list *items;
    size_t next;
    const char *type_name; // "generator", for printing
};

struct jinja_value {
    enum jinja_value_type type;
    union {
        const struct jinja_string *hint; // UNDEFINED: why, "'x' is undefined"; NULL: unknown
        bool boolean;
        int64_t integer;
        double number;
        const struct jinja_string *string; // STRING; BIG_INT: its digits with the sign
        const struct jinja_list *list; // LIST and TUPLE
        const struct jinja_dict *dict;
        const struct jinja_range *range;
        const struct jinja_view *view;
        struct jinja_iterator *iterator;
        struct jinja_dict *attributes; // NAMESPACE, keys are strings
        const struct jinja_macro *macro; // call.h
        const struct jinja_function *function; // library.h
        const struct jinja_method *method; // library.h
        struct jinja_loop *loop; // loop.h
        const struct jinja_ast *self; // ast.h
        const struct jinja_block_reference *block; // call.h
    };
};

struct jinja_dict_entry {
    struct jinja_value key, value;
    uint64_t hash;
};

// ---- making values ----

static inline struct jinja_value jinja_value_none(void) {
    return (struct jinja_value){.type = JINJA_NONE};
}
static inline struct jinja_value jinja_value_bool(bool boolean) {
    return (struct jinja_value){.type = JINJA_BOOL, .boolean = boolean};
}
static inline struct jinja_value jinja_value_int(int64_t integer) {
    return (struct jinja_value){.type = JINJA_INT, .integer = integer};
}
static inline struct jinja_value jinja_value_float(double number) {
    return (struct jinja_value){.type = JINJA_FLOAT, .number = number};
}
static inline struct jinja_value jinja_value_of_string(const struct jinja_string *string) {
    return (struct jinja_value){.type = JINJA_STRING, .string = string};
}
static inline struct jinja_value jinja_value_of_list(const struct jinja_list *list) {
    return (struct jinja_value){.type = JINJA_LIST, .list = list};
}
static inline struct jinja_value jinja_value_of_tuple(const struct jinja_list *list) {
    return (struct jinja_value){.type = JINJA_TUPLE, .list = list};
}
static inline struct jinja_value jinja_value_of_dict(const struct jinja_dict *dict) {
    return (struct jinja_value){.type = JINJA_DICT, .dict = dict};
}

// Copies `len` bytes, which must be UTF-8.
MUST_USE enum status jinja_value_string(struct jinja_run *run, const char *data, size_t len,
                                        struct jinja_value *out);
// Borrows bytes that live as long as the run. This and the function above pay for counting the
// characters.
MUST_USE enum status jinja_value_string_borrow(struct jinja_run *run, const char *data, size_t len,
                                               struct jinja_value *out);
// A list [len] = 0 with capacity for `capacity` items, to be filled before anyone sees it.
MUST_USE enum status jinja_list_create(struct jinja_run *run, size_t capacity,
                                       struct jinja_list **out);
MUST_USE enum status jinja_list_append(struct jinja_run *run, struct jinja_list *list,
                                       struct jinja_value item);
MUST_USE enum status jinja_dict_create(struct jinja_run *run, size_t capacity,
                                       struct jinja_dict **out);
// Inserts or overwrites. An unhashable key (list, dict) is an error, as in Python.
MUST_USE enum status jinja_dict_set(struct jinja_run *run, struct jinja_dict *dict,
                                    struct jinja_value key, struct jinja_value value);
// *found false: no such key. 1, 1.0 and true are the same key. Unhashable keys are an error.
MUST_USE enum status jinja_dict_get(struct jinja_run *run, const struct jinja_dict *dict,
                                    struct jinja_value key, bool *found, struct jinja_value *out);
// A walk-once iterator over `items`; type_name is static.
MUST_USE enum status jinja_value_iterator(struct jinja_run *run, const struct jinja_list *items,
                                          const char *type_name, struct jinja_value *out);
// How many bytes of a name or key a reason shows, cut between characters. Reasons are written
// often, and their length costs no steps.
int jinja_name_shown_len(const struct jinja_string *name);
// An undefined value with its reason.
MUST_USE enum status jinja_value_undefined(struct jinja_run *run, struct jinja_value *out,
                                           const char *format, ...) PRINTF_LIKE(3, 4);
// JSON to values, strings borrowed from the document, which must outlive the run.
MUST_USE enum status jinja_value_from_json(struct jinja_run *run, const json_t *json,
                                           struct jinja_value *out);

// ---- asking values ----

// A string over borrowed UTF-8 bytes, with its characters counted. It takes no memory of a run.
struct jinja_string jinja_string_of(const char *data, size_t len);
bool jinja_string_is(const struct jinja_string *string, const char *text); // text is NUL-terminated
bool jinja_string_equal(const struct jinja_string *a, const struct jinja_string *b);
// Python's: "str", "NoneType", "Undefined", ...
const char *jinja_value_type_name(struct jinja_value value);
// bool(value). Never fails: every type has a truth.
bool jinja_value_is_true(struct jinja_value value);
// The same type and the same object, Python's `is`: none, booleans, equal small things, pointers.
bool jinja_value_is_same(struct jinja_value a, struct jinja_value b);
// len(value); error for types without one. Undefined: 0.
MUST_USE enum status jinja_value_length(struct jinja_run *run, struct jinja_value value,
                                        size_t *out);
bool jinja_value_is_iterable(struct jinja_value value); // Undefined is
// True for list, tuple, string, dict, range and undefined: what has a length and items by index or
// key (Jinja's `is sequence`). Not for views.
bool jinja_value_is_sequence(struct jinja_value value);
// Python's ==; fails only for depth and steps. Strings compare by content, 1 == 1.0 == true.
MUST_USE enum status jinja_value_equal(struct jinja_run *run, struct jinja_value a,
                                       struct jinja_value b, bool *out);
// Python's <: *order is negative, 0 or positive; *unordered with a NaN. Types that Python does not
// order are an error.
MUST_USE enum status jinja_value_compare(struct jinja_run *run, struct jinja_value a,
                                         struct jinja_value b, int *order, bool *unordered);
// The same for any of < <= > >=: `sign` is what the error names.
MUST_USE enum status jinja_value_compare_by(struct jinja_run *run, const char *sign,
                                            struct jinja_value a, struct jinja_value b, int *order,
                                            bool *unordered);
// needle in haystack.
MUST_USE enum status jinja_value_contains(struct jinja_run *run, struct jinja_value haystack,
                                          struct jinja_value needle, bool *out);
// list(value): all items, walked to the end (an iterator is empty afterwards). Strings give their
// characters, dicts their keys. Not iterable: an error "'int' object is not iterable".
// The list may be the value's own: read only.
MUST_USE enum status jinja_value_items(struct jinja_run *run, struct jinja_value value,
                                       const struct jinja_list **out);

// ---- text ----

// A growing string in the run's memory.
struct jinja_text {
    char *data; // [capacity]
    size_t len, capacity;
};

MUST_USE enum status jinja_text_append(struct jinja_run *run, struct jinja_text *text,
                                       const char *data, size_t len);
MUST_USE enum status jinja_text_append_str(struct jinja_run *run, struct jinja_text *text,
                                           const char *str);
MUST_USE enum status jinja_text_append_string(struct jinja_run *run, struct jinja_text *text,
                                              const struct jinja_string *string);
// A backslash, `letter` and the character in `width` hexadecimal digits: \x1b, \u2028.
MUST_USE enum status jinja_text_append_escape(struct jinja_run *run, struct jinja_text *text,
                                              char letter, int width, uint32_t character);
// The text as a value; takes the memory, *text is empty afterwards.
MUST_USE enum status jinja_text_finish(struct jinja_run *run, struct jinja_text *text,
                                       struct jinja_value *out);
// str(value) and repr(value), appended. Floats: the shortest form that reads back, as Python's.
MUST_USE enum status jinja_value_print(struct jinja_run *run, struct jinja_value value,
                                       struct jinja_text *text);
MUST_USE enum status jinja_value_repr(struct jinja_run *run, struct jinja_value value,
                                      struct jinja_text *text);
// str(value) as a string value: the value itself where it is one (a Markup stays one).
MUST_USE enum status jinja_value_to_string(struct jinja_run *run, struct jinja_value value,
                                           const struct jinja_string **out);
// repr(float) to `out` [32], NUL-terminated: "1.0", "1e+16", "inf".
void jinja_float_repr(double number, char *out);

// What json.dumps takes: transformers' tojson.
struct jinja_json_print_options {
    bool ensure_ascii, sort_keys;
    const struct jinja_string *indent; // one level of it; NULL: everything on one line
    const struct jinja_string *item_separator,
        *key_separator; // ", " and ": "; json.dumps's rules for the defaults are the filter's
};
MUST_USE enum status jinja_value_to_json(struct jinja_run *run, struct jinja_value value,
                                         const struct jinja_json_print_options *options,
                                         struct jinja_text *text);

// Code points: byte offset of character `index` in [0, num_chars]. Walks there unless the string is
// ASCII: who asks for many offsets pays num_chars / 64 each.
size_t jinja_string_offset(const struct jinja_string *string, size_t index);
// The first `needle` in bytes [start, end) of a string: its byte offset, SIZE_MAX: there is none.
// Pays for what it looks at, however the bytes repeat.
MUST_USE enum status jinja_string_find(struct jinja_run *run, const struct jinja_string *string,
                                       size_t start, size_t end, const struct jinja_string *needle,
                                       size_t *out);

// ---- numbers ----

// Item `index` < range->len.
static inline int64_t jinja_range_item(const struct jinja_range *range, size_t index) {
    return (int64_t)((uint64_t)range->start + (uint64_t)range->step * index);
}
// int(string, base) and float(string) of Python: white space around, underscores between digits,
// digits of any script; base 0 (by the prefix) or 2 to 36. False: not a number. *too_large: a
// number, but not of 64 bits; *out is untouched then. Time grows with the string: the caller pays.
bool jinja_number_parse_int(const struct jinja_string *string, int base, int64_t *out,
                            bool *too_large);
bool jinja_number_parse_float(const struct jinja_string *string, double *out);
// float(integer) of a BIG_INT's digits: infinite where Python raises.
double jinja_number_of_big(const struct jinja_string *digits);

#endif

/* How the files of the library hang together: each has a table that library.c searches. */
#ifndef JINJA_LIBRARY_PARTS_H
#define JINJA_LIBRARY_PARTS_H

#include "jinja/src/library.h"

// Each ends with a row without a name.
extern const struct filter filters_text[], filters_list[], filters_select[], filters_sort[];
extern const struct filter filters_number[], filters_value[], filters_refused[];
extern const struct test library_tests[];
extern const struct function library_functions[], functions_refused[];

// A type's method; `self` is filled in when it is bound.
struct method_row {
    const char *name;
    method_fn run;
};
extern const struct method_row methods_str[], methods_str_split[], methods_str_find[];
extern const struct method_row methods_str_refused[];
extern const struct method_row methods_list[], methods_tuple[], methods_dict[], methods_range[];
extern const struct method_row methods_int[], methods_float[];

// values[i] of the arguments that are missing stay. Keywords are an error.
MUST_USE enum status args_positional(struct run *run, const char *callee,
                                     const struct call_args *args, size_t num_min, size_t num_max,
                                     struct value *values);

// ---- attributes, for filters that take attribute="a.0.b" ----

// The way from an item to a part of it.
struct attribute_path {
    struct value *parts; // [num_parts] strings and integers
    size_t num_parts;
    struct value default_value; // for what is undefined on the way; None: stays undefined
    bool ignore_case; // strings become lower case at the end
};
// `attribute`: None for the item itself, a string of dotted parts, or any other key.
MUST_USE enum status attribute_path(struct run *run, struct value attribute, bool ignore_case,
                                    struct attribute_path *out);
MUST_USE enum status attribute_get(struct run *run, const struct attribute_path *path,
                                   struct value item, struct value *out);

#endif

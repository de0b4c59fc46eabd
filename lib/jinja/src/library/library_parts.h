/* How the files of the library hang together: each has a table that library.c searches. */
#ifndef JINJA_LIBRARY_PARTS_H
#define JINJA_LIBRARY_PARTS_H

#include "jinja/src/library/library.h"

// Each ends with a row without a name.
extern const struct jinja_filter jinja_filters_text[], jinja_filters_list[], jinja_filters_select[],
    jinja_filters_sort[];
extern const struct jinja_filter jinja_filters_number[], jinja_filters_value[],
    jinja_filters_refused[];
extern const struct jinja_test jinja_library_tests[];
extern const struct jinja_function jinja_library_functions[], jinja_functions_refused[];

// A type's method; `self` is filled in when it is bound.
struct jinja_method_row {
    const char *name;
    jinja_method_fn run;
};
extern const struct jinja_method_row jinja_methods_str[], jinja_methods_str_split[],
    jinja_methods_str_find[];
extern const struct jinja_method_row jinja_methods_str_refused[];
extern const struct jinja_method_row jinja_methods_list[], jinja_methods_tuple[],
    jinja_methods_dict[], jinja_methods_range[];
extern const struct jinja_method_row jinja_methods_int[], jinja_methods_float[];

// Missing arguments leave values[i] as it was. Keywords are an error.
MUST_USE enum status jinja_args_positional(struct jinja_run *run, const char *callee,
                                           const struct jinja_call_args *args, size_t num_min,
                                           size_t num_max, struct jinja_value *values);

// ---- formatting ----

// format(value, spec), appended. Source: Python's format specification mini-language.
MUST_USE enum status jinja_format_value(struct jinja_run *run, struct jinja_value value,
                                        const struct jinja_string *spec, struct jinja_text *text);
// format.format(*args, **kwargs). `mapping` is format_map's argument, NULL for format: then the
// keywords of args are meant.
MUST_USE enum status jinja_format_fields(struct jinja_run *run, const struct jinja_string *format,
                                         const struct jinja_call_args *args,
                                         const struct jinja_value *mapping,
                                         struct jinja_value *out);
// ascii(value), appended.
MUST_USE enum status jinja_format_ascii(struct jinja_run *run, struct jinja_value value,
                                        struct jinja_text *text);

// ---- attributes, for filters that take attribute="a.0.b" ----

// The way from an item to a part of it.
struct jinja_attribute_path {
    struct jinja_value *parts; // [num_parts] strings and integers
    size_t num_parts;
    struct jinja_value default_value; // for what is undefined on the way; None: stays undefined
    bool ignore_case; // strings become lower case at the end
};
// `attribute`: None for the item itself, a string of dotted parts, or any other key.
MUST_USE enum status jinja_attribute_path(struct jinja_run *run, struct jinja_value attribute,
                                          bool ignore_case, struct jinja_attribute_path *out);
MUST_USE enum status jinja_attribute_get(struct jinja_run *run,
                                         const struct jinja_attribute_path *path,
                                         struct jinja_value item, struct jinja_value *out);

#endif

// The tables of the library, searched by name. They are small, so the search is linear.
#include "jinja/src/library.h"

#include "jinja/src/library_parts.h"

const struct filter *library_filter(const struct string *name) {
    static const struct filter *const tables[] = {
        filters_text,  filters_list,   filters_sort,    filters_select,
        filters_value, filters_number, filters_refused,
    };
    for (size_t t = 0; t < ARRAY_LEN(tables); t++) {
        for (const struct filter *filter = tables[t]; filter->name; filter++) {
            if (string_is(name, filter->name)) return filter;
        }
    }
    return NULL;
}

const struct test *library_test(const struct string *name) {
    for (const struct test *test = library_tests; test->name; test++) {
        if (string_is(name, test->name)) return test;
    }
    return NULL;
}

const struct function *library_function(const struct string *name) {
    static const struct function *const tables[] = {library_functions, functions_refused};
    for (size_t t = 0; t < ARRAY_LEN(tables); t++) {
        for (const struct function *function = tables[t]; function->name; function++) {
            if (string_is(name, function->name)) return function;
        }
    }
    return NULL;
}

static enum status bind(struct run *run, const struct method_row *row, struct value self,
                        struct value *out) {
    struct method *method = run_alloc(run, sizeof *method);
    if (!method) return run_status(run);
    *method = (struct method){.name = row->name, .run = row->run, .self = self};
    *out = (struct value){.type = VALUE_METHOD, .method = method};
    return OK;
}

// At most four tables of a type, NULL after the last.
static void tables_of(enum value_type type, const struct method_row *tables[5]) {
    size_t num = 0;
    switch (type) {
    case VALUE_STRING:
        tables[num++] = methods_str;
        tables[num++] = methods_str_find;
        tables[num++] = methods_str_split;
        tables[num++] = methods_str_refused;
        break;
    case VALUE_LIST:
        tables[num++] = methods_list;
        break;
    case VALUE_TUPLE:
        tables[num++] = methods_tuple;
        break;
    case VALUE_DICT:
        tables[num++] = methods_dict;
        break;
    case VALUE_RANGE:
        tables[num++] = methods_range;
        break;
    case VALUE_BOOL:
    case VALUE_INT:
        tables[num++] = methods_int;
        break;
    case VALUE_FLOAT:
        tables[num++] = methods_float;
        break;
    default:
        break;
    }
    tables[num] = NULL;
}

enum status library_method(struct run *run, struct value value, const struct string *name,
                           bool *found, struct value *out) {
    *found = true;
    const struct method_row *tables[5];
    tables_of(value.type, tables);
    for (size_t t = 0; tables[t]; t++) {
        for (const struct method_row *row = tables[t]; row->name; row++) {
            if (string_is(name, row->name)) return bind(run, row, value, out);
        }
    }
    *found = false;
    return OK;
}

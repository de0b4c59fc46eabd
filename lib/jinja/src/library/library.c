// The tables of the library, searched by name. They are small, so the search is linear.
#include "jinja/src/library/library.h"

#include "jinja/src/library/library_parts.h"

const struct jinja_filter *jinja_library_filter(const struct jinja_string *name) {
    static const struct jinja_filter *const tables[] = {
        jinja_filters_text,  jinja_filters_list,   jinja_filters_sort,    jinja_filters_select,
        jinja_filters_value, jinja_filters_number, jinja_filters_refused,
    };
    for (size_t t = 0; t < ARRAY_LEN(tables); t++) {
        for (const struct jinja_filter *filter = tables[t]; filter->name; filter++) {
            if (jinja_string_is(name, filter->name)) return filter;
        }
    }
    return NULL;
}

const struct jinja_test *jinja_library_test(const struct jinja_string *name) {
    for (const struct jinja_test *test = jinja_library_tests; test->name; test++) {
        if (jinja_string_is(name, test->name)) return test;
    }
    return NULL;
}

const struct jinja_function *jinja_library_function(const struct jinja_string *name) {
    static const struct jinja_function *const tables[] = {jinja_library_functions,
                                                          jinja_functions_refused};
    for (size_t t = 0; t < ARRAY_LEN(tables); t++) {
        for (const struct jinja_function *function = tables[t]; function->name; function++) {
            if (jinja_string_is(name, function->name)) return function;
        }
    }
    return NULL;
}

static enum status bind(struct jinja_run *run, const struct jinja_method_row *row,
                        struct jinja_value self, struct jinja_value *out) {
    struct jinja_method *method = jinja_run_alloc(run, sizeof *method);
    if (!method) return jinja_run_status(run);
    *method = (struct jinja_method){.name = row->name, .run = row->run, .self = self};
    *out = (struct jinja_value){.type = JINJA_METHOD, .method = method};
    return OK;
}

// At most four tables of a type, NULL after the last.
static void tables_of(enum jinja_value_type type, const struct jinja_method_row *tables[5]) {
    size_t num = 0;
    switch (type) {
    case JINJA_STRING:
        tables[num++] = jinja_methods_str;
        tables[num++] = jinja_methods_str_find;
        tables[num++] = jinja_methods_str_split;
        tables[num++] = jinja_methods_str_refused;
        break;
    case JINJA_LIST:
        tables[num++] = jinja_methods_list;
        break;
    case JINJA_TUPLE:
        tables[num++] = jinja_methods_tuple;
        break;
    case JINJA_DICT:
        tables[num++] = jinja_methods_dict;
        break;
    case JINJA_RANGE:
        tables[num++] = jinja_methods_range;
        break;
    case JINJA_BOOL:
    case JINJA_INT:
        tables[num++] = jinja_methods_int;
        break;
    case JINJA_FLOAT:
        tables[num++] = jinja_methods_float;
        break;
    default:
        break;
    }
    tables[num] = NULL;
}

enum status jinja_library_method(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_string *name, bool *found,
                                 struct jinja_value *out) {
    *found = true;
    const struct jinja_method_row *tables[5];
    tables_of(value.type, tables);
    for (size_t t = 0; tables[t]; t++) {
        for (const struct jinja_method_row *row = tables[t]; row->name; row++) {
            if (jinja_string_is(name, row->name)) return bind(run, row, value, out);
        }
    }
    *found = false;
    return OK;
}

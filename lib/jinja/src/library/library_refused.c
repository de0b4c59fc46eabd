// Names that Jinja2 or Python's str have and this library does not, because no known chat template
// uses them. A row without a function is refused by its name.
#include "jinja/src/library/library_parts.h"

const struct jinja_filter jinja_filters_refused[] = {
    {"e", NULL},      {"escape", NULL},   {"filesizeformat", NULL}, {"forceescape", NULL},
    {"pprint", NULL}, {"random", NULL},   {"striptags", NULL},      {"urlencode", NULL},
    {"urlize", NULL}, {"wordwrap", NULL}, {"xmlattr", NULL},        {0},
};

const struct jinja_function jinja_functions_refused[] = {
    {"cycler", NULL}, {"joiner", NULL}, {"lipsum", NULL}, {0}};

const struct jinja_method_row jinja_methods_str_refused[] = {
    {"encode", NULL},    {"isalnum", NULL},   {"isalpha", NULL},
    {"isascii", NULL},   {"isdecimal", NULL}, {"isidentifier", NULL},
    {"islower", NULL},   {"isnumeric", NULL}, {"isprintable", NULL},
    {"isspace", NULL},   {"istitle", NULL},   {"isupper", NULL},
    {"maketrans", NULL}, {"translate", NULL}, {0},
};

// str.is...: questions about all characters of a string.
#include "text/template/chars.h"
#include "text/template/library_parts.h"
#include "text/template/methods_str.h"
#include "text/template/str_ops.h"

// True when there are characters and `is_one` holds for each.
static enum status all_are(struct run *run, const char *callee, struct value self,
                           const struct call_args *args, bool (*is_one)(uint32_t c),
                           struct value *out) {
    enum status status = args_positional(run, callee, args, 0, 0, NULL);
    if (!status) status = str_pay_chars(run, self.string->len);
    if (status) return status;
    bool result = self.string->len > 0;
    for (size_t at = 0; at < self.string->len && result;)
        result = is_one(str_next(self.string, &at));
    *out = value_bool(result);
    return OK;
}

static enum status method_isalnum(struct run *run, struct value self, const struct call_args *args,
                                  struct value *out) {
    return all_are(run, "isalnum()", self, args, char_is_alnum, out);
}

static enum status method_isalpha(struct run *run, struct value self, const struct call_args *args,
                                  struct value *out) {
    return all_are(run, "isalpha()", self, args, char_is_alpha, out);
}

static enum status method_isdecimal(struct run *run, struct value self,
                                    const struct call_args *args, struct value *out) {
    return all_are(run, "isdecimal()", self, args, char_is_decimal, out);
}

static enum status method_isdigit(struct run *run, struct value self, const struct call_args *args,
                                  struct value *out) {
    return all_are(run, "isdigit()", self, args, char_is_digit, out);
}

static enum status method_isnumeric(struct run *run, struct value self,
                                    const struct call_args *args, struct value *out) {
    return all_are(run, "isnumeric()", self, args, char_is_numeric, out);
}

static enum status method_isspace(struct run *run, struct value self, const struct call_args *args,
                                  struct value *out) {
    return all_are(run, "isspace()", self, args, char_is_space, out);
}

static enum status method_isprintable(struct run *run, struct value self,
                                      const struct call_args *args, struct value *out) {
    enum status status = all_are(run, "isprintable()", self, args, char_is_printable, out);
    if (!status && self.string->len == 0) *out = value_bool(true);
    return status;
}

static enum status method_isascii(struct run *run, struct value self, const struct call_args *args,
                                  struct value *out) {
    enum status status = args_positional(run, "isascii()", args, 0, 0, NULL);
    if (!status) *out = value_bool(self.string->num_chars == self.string->len);
    return status;
}

static enum status method_isidentifier(struct run *run, struct value self,
                                       const struct call_args *args, struct value *out) {
    enum status status = args_positional(run, "isidentifier()", args, 0, 0, NULL);
    if (!status) status = str_pay_chars(run, self.string->len);
    if (status) return status;
    bool result = self.string->len > 0;
    for (size_t at = 0; at < self.string->len && result;) {
        bool is_first = at == 0;
        result = char_is_identifier(str_next(self.string, &at), is_first);
    }
    *out = value_bool(result);
    return OK;
}

static enum status is_one_case(struct run *run, const struct string *string, bool want_lower,
                               bool *out) {
    enum status status = str_pay_chars(run, string->len);
    bool is_cased = false;
    *out = false;
    for (size_t at = 0; at < string->len && !status;) {
        uint32_t c = str_next(string, &at);
        bool is_lower = char_is_lower(c);
        if (char_is_title(c) || (want_lower ? char_is_upper(c) : is_lower)) return OK;
        is_cased |= want_lower ? is_lower : char_is_upper(c);
    }
    *out = is_cased;
    return status;
}

enum status str_is_lower(struct run *run, const struct string *string, bool *out) {
    return is_one_case(run, string, true, out);
}

enum status str_is_upper(struct run *run, const struct string *string, bool *out) {
    return is_one_case(run, string, false, out);
}

static enum status method_islower(struct run *run, struct value self, const struct call_args *args,
                                  struct value *out) {
    bool result = false;
    enum status status = args_positional(run, "islower()", args, 0, 0, NULL);
    if (!status) status = str_is_lower(run, self.string, &result);
    *out = value_bool(result);
    return status;
}

static enum status method_isupper(struct run *run, struct value self, const struct call_args *args,
                                  struct value *out) {
    bool result = false;
    enum status status = args_positional(run, "isupper()", args, 0, 0, NULL);
    if (!status) status = str_is_upper(run, self.string, &result);
    *out = value_bool(result);
    return status;
}

// Upper case only after what has no case, lower case only after what has one.
static enum status method_istitle(struct run *run, struct value self, const struct call_args *args,
                                  struct value *out) {
    enum status status = args_positional(run, "istitle()", args, 0, 0, NULL);
    if (!status) status = str_pay_chars(run, self.string->len);
    if (status) return status;
    bool result = true, any = false, previous_is_cased = false;
    for (size_t at = 0; at < self.string->len && result;) {
        uint32_t c = str_next(self.string, &at);
        bool is_start = char_is_upper(c) || char_is_title(c);
        bool is_cased = is_start || char_is_lower(c);
        if (is_cased) result = is_start != previous_is_cased;
        any |= is_cased;
        previous_is_cased = is_cased;
    }
    *out = value_bool(result && any);
    return OK;
}

const struct method_row methods_str_is[] = {
    {"isalnum", method_isalnum},
    {"isalpha", method_isalpha},
    {"isascii", method_isascii},
    {"isdecimal", method_isdecimal},
    {"isdigit", method_isdigit},
    {"isidentifier", method_isidentifier},
    {"islower", method_islower},
    {"isnumeric", method_isnumeric},
    {"isprintable", method_isprintable},
    {"isspace", method_isspace},
    {"istitle", method_istitle},
    {"isupper", method_isupper},
    {0},
};

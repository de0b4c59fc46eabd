/* str methods that look for a part: find, index, count, startswith and their kin;
 * and isdigit.
 *
 * Searches are over bytes: in UTF-8 no character begins inside of another. Only bounds and results
 * are counted in characters, which costs a walk unless the string is ASCII. */
#include <string.h>

#include "jinja/src/library/library_parts.h"
#include "jinja/src/value/chars.h"
#include "jinja/src/value/str_ops.h"

// Where to look: bytes [start, end) of the string; `is_outside` when start is behind its end.
struct window {
    size_t start, end;
    bool is_outside;
};

// A bound as slices have them: None, or an index from the front or the back.
static enum status bound_of(struct jinja_run *run, const char *callee, struct jinja_value value,
                            int64_t num_chars, int64_t default_bound, int64_t *out) {
    *out = default_bound;
    if (value.type == JINJA_NONE) return OK;
    enum status status = jinja_args_int(run, callee, "a bound", value, out);
    if (*out < 0) *out += num_chars;
    if (*out < 0) *out = 0;
    return status;
}

static enum status window_of(struct jinja_run *run, const char *callee,
                             const struct jinja_string *string, const struct jinja_value bounds[2],
                             struct window *out) {
    int64_t len = string->num_chars, start, end;
    enum status status = bound_of(run, callee, bounds[0], len, 0, &start);
    if (!status) status = bound_of(run, callee, bounds[1], len, len, &end);
    if (status) return status;
    if (end > len) end = len;
    out->is_outside = start > end;
    if (out->is_outside) return OK;
    out->start = jinja_string_offset(string, (size_t)start);
    out->end = jinja_string_offset(string, (size_t)end);
    return string->len == string->num_chars ? OK : jinja_str_pay_bytes(run, out->end);
}

// The character index of a byte offset.
static enum status index_of(struct jinja_run *run, const struct jinja_string *string, size_t offset,
                            int64_t *out) {
    *out = (int64_t)offset;
    if (string->len == string->num_chars) return OK;
    *out = jinja_string_of(string->data, offset).num_chars;
    return jinja_str_pay_bytes(run, offset);
}

static enum status find_index(struct jinja_run *run, const char *callee, struct jinja_value self,
                              const struct jinja_call_args *args, bool from_right, int64_t *out) {
    struct jinja_value values[3] = {[1] = jinja_value_none(), [2] = jinja_value_none()};
    const struct jinja_string *needle;
    struct window window;
    enum status status = jinja_args_positional(run, callee, args, 1, 3, values);
    if (!status) status = jinja_args_string(run, callee, "what it looks for", values[0], &needle);
    if (!status) status = window_of(run, callee, self.string, values + 1, &window);
    if (status) return status;
    *out = -1;
    if (window.is_outside) return OK;
    size_t found;
    if (from_right)
        status = jinja_str_rfind(run, self.string, window.start, window.end, needle, &found);
    else
        status = jinja_str_find(run, self.string, window.start, window.end, needle, &found);
    if (status || found == SIZE_MAX) return status;
    return index_of(run, self.string, found, out);
}

static enum status method_find(struct jinja_run *run, struct jinja_value self,
                               const struct jinja_call_args *args, struct jinja_value *out) {
    int64_t index = -1;
    enum status status = find_index(run, "find()", self, args, false, &index);
    *out = jinja_value_int(index);
    return status;
}

static enum status method_rfind(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    int64_t index = -1;
    enum status status = find_index(run, "rfind()", self, args, true, &index);
    *out = jinja_value_int(index);
    return status;
}

static enum status method_index(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    int64_t index = -1;
    enum status status = find_index(run, "index()", self, args, false, &index);
    if (!status && index < 0) return jinja_run_fail(run, "substring not found");
    *out = jinja_value_int(index);
    return status;
}

static enum status method_rindex(struct jinja_run *run, struct jinja_value self,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    int64_t index = -1;
    enum status status = find_index(run, "rindex()", self, args, true, &index);
    if (!status && index < 0) return jinja_run_fail(run, "substring not found");
    *out = jinja_value_int(index);
    return status;
}

static enum status method_count(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[3] = {[1] = jinja_value_none(), [2] = jinja_value_none()};
    const struct jinja_string *needle;
    struct window window;
    int64_t count = 0;
    enum status status = jinja_args_positional(run, "count()", args, 1, 3, values);
    if (!status) status = jinja_args_string(run, "count()", "what it counts", values[0], &needle);
    if (!status) status = window_of(run, "count()", self.string, values + 1, &window);
    if (status) return status;
    if (!window.is_outside && needle->len == 0) {
        status = index_of(run, self.string, window.end, &count);
        int64_t before = 0;
        if (!status) status = index_of(run, self.string, window.start, &before);
        count += 1 - before;
    } else if (!window.is_outside) {
        for (size_t at = window.start; !status; count++) {
            size_t found;
            status = jinja_str_find(run, self.string, at, window.end, needle, &found);
            if (status || found == SIZE_MAX) break;
            at = found + needle->len;
        }
    }
    *out = jinja_value_int(count);
    return status;
}

static bool has_at_end(const struct jinja_string *string, const struct window *window,
                       const struct jinja_string *part, bool at_start) {
    if (window->is_outside || part->len > window->end - window->start) return false;
    size_t at = at_start ? window->start : window->end - part->len;
    return memcmp(string->data + at, part->data, part->len) == 0;
}

static enum status has_affix(struct jinja_run *run, const char *callee, struct jinja_value self,
                             const struct jinja_call_args *args, bool at_start,
                             struct jinja_value *out) {
    struct jinja_value values[3] = {[1] = jinja_value_none(), [2] = jinja_value_none()};
    struct window window;
    enum status status = jinja_args_positional(run, callee, args, 1, 3, values);
    if (!status) status = window_of(run, callee, self.string, values + 1, &window);
    if (status) return status;
    *out = jinja_value_bool(false);
    if (values[0].type == JINJA_STRING) {
        status = jinja_str_pay_bytes(run, values[0].string->len);
        *out = jinja_value_bool(has_at_end(self.string, &window, values[0].string, at_start));
        return status;
    }
    if (values[0].type != JINJA_TUPLE)
        return jinja_run_fail(run, "%s first arg must be str or a tuple of str, not %s", callee,
                              jinja_value_type_name(values[0]));
    const struct jinja_list *parts = values[0].list;
    for (size_t i = 0; i < parts->len && !out->boolean && !status; i++) {
        const struct jinja_string *part;
        status = jinja_args_string(run, callee, "an item of the tuple", parts->items[i], &part);
        if (!status) status = jinja_str_pay_bytes(run, part->len);
        if (!status) *out = jinja_value_bool(has_at_end(self.string, &window, part, at_start));
    }
    return status;
}

static enum status method_startswith(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_call_args *args, struct jinja_value *out) {
    return has_affix(run, "startswith()", self, args, true, out);
}

static enum status method_endswith(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_call_args *args, struct jinja_value *out) {
    return has_affix(run, "endswith()", self, args, false, out);
}

static enum status method_isdigit(struct jinja_run *run, struct jinja_value self,
                                  const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_args_positional(run, "isdigit()", args, 0, 0, NULL);
    if (!status) status = jinja_str_pay_chars(run, self.string->len);
    if (status) return status;
    bool is_digit = self.string->len > 0;
    for (size_t at = 0; at < self.string->len && is_digit;)
        is_digit = jinja_char_is_digit(jinja_str_next(self.string, &at));
    *out = jinja_value_bool(is_digit);
    return OK;
}

const struct jinja_method_row jinja_methods_str_find[] = {
    {"count", method_count},   {"endswith", method_endswith},     {"find", method_find},
    {"index", method_index},   {"isdigit", method_isdigit},       {"rfind", method_rfind},
    {"rindex", method_rindex}, {"startswith", method_startswith}, {0},
};

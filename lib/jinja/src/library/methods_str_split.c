/* str methods that cut: split, rsplit, splitlines, partition, rpartition.
 *
 * Parts share the string's memory and its mark. Without a separator runs of white space separate
 * and the ends give no empty parts; with one every occurrence does. Cutting from the right collects
 * the parts backwards and turns the list around. */
#include "jinja/src/library/library_parts.h"
#include "jinja/src/value/chars.h"
#include "jinja/src/value/str_ops.h"

static enum status append_part(struct jinja_run *run, struct jinja_list *list,
                               const struct jinja_string *string, size_t start, size_t end) {
    struct jinja_value part;
    enum status status = jinja_str_part(run, string, start, end, &part);
    if (status) return status;
    return jinja_list_append(run, list, part);
}

static void reverse(struct jinja_list *list) {
    for (size_t i = 0, k = list->len; i + 1 < k; i++) {
        struct jinja_value swap = list->items[i];
        list->items[i] = list->items[--k];
        list->items[k] = swap;
    }
}

static size_t skip_spaces(const struct jinja_string *string, size_t at, bool spaces) {
    while (at < string->len) {
        size_t next = at;
        if (jinja_char_is_space(jinja_str_next(string, &next)) != spaces) break;
        at = next;
    }
    return at;
}

static size_t skip_spaces_back(const struct jinja_string *string, size_t at, bool spaces) {
    while (at > 0) {
        size_t previous = at;
        if (jinja_char_is_space(jinja_str_previous(string, &previous)) != spaces) break;
        at = previous;
    }
    return at;
}

static enum status split_words(struct jinja_run *run, const struct jinja_string *string,
                               int64_t max, struct jinja_list *list) {
    enum status status = jinja_str_pay_chars(run, string->len);
    size_t at = skip_spaces(string, 0, true);
    for (int64_t done = 0; at < string->len && !status; done++) {
        bool is_last = max >= 0 && done == max;
        size_t end = is_last ? string->len : skip_spaces(string, at, false);
        status = append_part(run, list, string, at, end);
        at = skip_spaces(string, end, true);
    }
    return status;
}

static enum status rsplit_words(struct jinja_run *run, const struct jinja_string *string,
                                int64_t max, struct jinja_list *list) {
    enum status status = jinja_str_pay_chars(run, string->len);
    size_t end = skip_spaces_back(string, string->len, true);
    for (int64_t done = 0; end > 0 && !status; done++) {
        bool is_last = max >= 0 && done == max;
        size_t start = is_last ? 0 : skip_spaces_back(string, end, false);
        status = append_part(run, list, string, start, end);
        end = skip_spaces_back(string, start, true);
    }
    reverse(list);
    return status;
}

static enum status split_at(struct jinja_run *run, const struct jinja_string *string,
                            const struct jinja_string *separator, int64_t max,
                            struct jinja_list *list) {
    enum status status = OK;
    size_t start = 0;
    for (int64_t done = 0; !status && (max < 0 || done < max); done++) {
        size_t found;
        status = jinja_str_find(run, string, start, string->len, separator, &found);
        if (status || found == SIZE_MAX) break;
        status = append_part(run, list, string, start, found);
        start = found + separator->len;
    }
    if (status) return status;
    return append_part(run, list, string, start, string->len);
}

static enum status rsplit_at(struct jinja_run *run, const struct jinja_string *string,
                             const struct jinja_string *separator, int64_t max,
                             struct jinja_list *list) {
    enum status status = OK;
    size_t end = string->len;
    for (int64_t done = 0; !status && (max < 0 || done < max); done++) {
        size_t found;
        status = jinja_str_rfind(run, string, 0, end, separator, &found);
        if (status || found == SIZE_MAX) break;
        status = append_part(run, list, string, found + separator->len, end);
        end = found;
    }
    if (!status) status = append_part(run, list, string, 0, end);
    reverse(list);
    return status;
}

static enum status split_method(struct jinja_run *run, const char *callee, struct jinja_value self,
                                const struct jinja_call_args *args, bool from_right,
                                struct jinja_value *out) {
    struct jinja_value values[2] = {jinja_value_none(), jinja_value_int(-1)};
    const struct jinja_string *separator = NULL;
    int64_t max;
    enum status status =
        jinja_args_bind(run, callee, args, (const char *[]){"sep", "maxsplit"}, 2, 0, values);
    if (!status && values[0].type != JINJA_NONE)
        status = jinja_args_string(run, callee, "sep", values[0], &separator);
    if (!status) status = jinja_args_int(run, callee, "maxsplit", values[1], &max);
    if (!status && separator && separator->len == 0) return jinja_run_fail(run, "empty separator");
    struct jinja_list *list;
    if (!status) status = jinja_list_create(run, 4, &list);
    if (status) return status;
    if (!separator)
        status = from_right ? rsplit_words(run, self.string, max, list)
                            : split_words(run, self.string, max, list);
    else
        status = from_right ? rsplit_at(run, self.string, separator, max, list)
                            : split_at(run, self.string, separator, max, list);
    if (!status) *out = jinja_value_of_list(list);
    return status;
}

static enum status method_split(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    return split_method(run, "split()", self, args, false, out);
}

static enum status method_rsplit(struct jinja_run *run, struct jinja_value self,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    return split_method(run, "rsplit()", self, args, true, out);
}

static enum status method_splitlines(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value keep_ends = jinja_value_bool(false);
    enum status status =
        jinja_args_bind(run, "splitlines()", args, (const char *[]){"keepends"}, 1, 0, &keep_ends);
    struct jinja_list *lines;
    if (!status) status = jinja_str_lines(run, self.string, jinja_value_is_true(keep_ends), &lines);
    if (!status) *out = jinja_value_of_list(lines);
    return status;
}

// Before, separator, after; what is not found leaves two of them empty.
static enum status partition_method(struct jinja_run *run, const char *callee,
                                    struct jinja_value self, const struct jinja_call_args *args,
                                    bool from_right, struct jinja_value *out) {
    struct jinja_value value;
    const struct jinja_string *separator, *string = self.string;
    enum status status = jinja_args_positional(run, callee, args, 1, 1, &value);
    if (!status) status = jinja_args_string(run, callee, "sep", value, &separator);
    if (!status && separator->len == 0) return jinja_run_fail(run, "empty separator");
    size_t found = 0;
    if (!status)
        status = from_right ? jinja_str_rfind(run, string, 0, string->len, separator, &found)
                            : jinja_str_find(run, string, 0, string->len, separator, &found);
    struct jinja_list *list;
    if (!status) status = jinja_list_create(run, 3, &list);
    if (status) return status;
    size_t cuts[4] = {0, found, found + separator->len, string->len};
    if (found == SIZE_MAX) cuts[1] = cuts[2] = from_right ? 0 : string->len;
    for (int i = 0; i < 3 && !status; i++)
        status = append_part(run, list, string, cuts[i], cuts[i + 1]);
    if (!status) *out = jinja_value_of_tuple(list);
    return status;
}

static enum status method_partition(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_call_args *args, struct jinja_value *out) {
    return partition_method(run, "partition()", self, args, false, out);
}

static enum status method_rpartition(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_call_args *args, struct jinja_value *out) {
    return partition_method(run, "rpartition()", self, args, true, out);
}

const struct jinja_method_row jinja_methods_str_split[] = {
    {"partition", method_partition}, {"rpartition", method_rpartition}, {"rsplit", method_rsplit},
    {"split", method_split},         {"splitlines", method_splitlines}, {0},
};

/* The formats in which models write tool calls, and which one a chat template teaches its model. */
#ifndef SERVER_TOOL_FORMAT_H
#define SERVER_TOOL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

// A call in tags (tag_calls.h): before_name NAME after_name, then for each argument before_key KEY
// after_key before_value VALUE after_value, then end_call. Empty texts are none.
struct tool_tags {
    const char *before_name, *after_name;
    const char *before_key, *after_key, *before_value, *after_value;
    const char *end_call;
    bool is_padded; // a newline before and behind each value is not part of it
    bool has_notation; // behind after_name, "{", are arguments as call_notation.h has them
    // Behind after_name are arguments in JSON. One pair of marks stands around all calls. Texts
    // consist of marks, "<...>", which are all tokens or all none, and of other bytes between them.
    bool has_json;
    bool has_id; // a name is functions.NAME:INDEX, which is the call's id too
};

struct tool_format {
    const char *name; // for --tool-call-parser; vLLM's where it has the format
    const char *mark; // stands before a call. Its first byte stands nowhere else in it.
    const char *end_mark; // stands behind each call, or list of calls; NULL: there is none
    bool bare; // an object at the answer's start is a call without its mark
    bool list; // behind the mark: a list of objects, or a name and its arguments
    bool python; // the list has calls as python_notation.h reads them: [name(key=value), ...]
    char separator; // may stand between two calls; '\0': none
    // Templates of this format refuse ids that are not 9 letters and digits.
    bool short_ids;
    const struct tool_tags *tags; // calls are in tags, and the four texts below are not used
    // Marks around the text of an answer, which are left out. They begin as the mark does.
    const char *text_marks[2];
    bool has_channels; // answers are messages in channels (harmony.h): the texts below are not used
    // How a call is written behind its mark: around its name, behind its arguments, and between two
    // calls. A blank before the arguments is not among them, because tokens may begin with it.
    const char *before_name, *after_name, *after_arguments, *between;
    // A number in a string, which stands before before_name; NULL: none.
    const char *before_number;
    const char *open_list, *close_list; // NULL: the brackets alone
};

// The format with this name; NULL: there is none.
const struct tool_format *tool_format_find(const char *name);
// The names, for help and messages; NULL past the end.
const char *tool_format_name(size_t index);
// The format that the template with this source teaches; NULL: none that is known here.
const struct tool_format *tool_format_of_template(const char *source, size_t len);

// Whether calls can have the name as it is: in a JSON string, or before [ARGS].
bool tool_format_fits_name(const struct tool_format *format, const char *name);

// Whether arguments are an object in JSON, so that their schema holds as a whole.
bool tool_format_has_json(const struct tool_format *format);

// A byte that may stand in a name outside of JSON.
bool tool_format_is_name_byte(char c);

#endif

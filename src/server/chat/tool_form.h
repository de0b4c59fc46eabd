/* The form of answers with tool calls: the format of a structural tag (tag_format.h) whose calls
 * are written as the model's template teaches it, with the functions' parameters as schemas inside.
 *
 *   a call is demanded     nothing but calls
 *   text has a form        that form, or nothing but calls
 *   else                   free text, with calls behind their marks
 *
 * In channels (harmony.h) the same stands behind the reasoning, if there is any. In formats with
 * tags (tag_calls.h) a call has the properties of its function's parameters in their order: strings
 * as they are, others as JSON. In Gemma 4's notation (call_notation.h) the order is the same, and
 * strings stand between marks. */
#ifndef SERVER_TOOL_FORM_H
#define SERVER_TOOL_FORM_H

#include <jansson.h>

#include "server/chat/tool_format.h"

// Where structured_outputs names the faults of the form, and those of the text's own part of it.
#define TOOL_FORM_PLACE "structural_tag: "
#define TOOL_FORM_TEXT_PLACE TOOL_FORM_PLACE "format: elements[0]: "
#define TOOL_FORM_FINAL_PLACE TOOL_FORM_PLACE "format: elements[1]: elements[0]: elements[3]: "
// What the sentence about a function's schema begins with, behind the place: tool "NAME": ...
#define TOOL_FORM_TOOL "tool \""

struct tool_form_function {
    const char *name;
    json_t *parameters; // borrowed: the schema of an object; NULL: any object
    bool is_strict; // else any object does where the schema cannot be enforced
};

struct tool_form_options {
    const struct tool_format *format;
    const struct tool_form_function *functions; // [num_functions] at least one; in channels any
    size_t num_functions;
    // The text is one token of the tokenizer, which models write; else it is text. In channels the
    // first stands for all marks.
    bool mark_is_token, end_mark_is_token, after_name_is_token;
    bool demands_call, one_call;
    json_t *text; // borrowed: the part that answers without a call fit; NULL: any text
};

struct tool_form_loose {
    const char *keyword; // NULL: there is none
    const char *property; // that has it, or that it names; NULL: the parameters themselves have it
};

// In formats with tags: what of the function's parameters the form does not enforce.
struct tool_form_loose tool_form_find_loose(const struct tool_format *format,
                                            const struct tool_form_function *function);

// A new reference. NULL: no memory.
json_t *tool_form_make(const struct tool_form_options *options);

#endif

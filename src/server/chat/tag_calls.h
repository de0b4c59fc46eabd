/* Finds tool calls that are written in tags, and writes their arguments as JSON:
 *
 *   <tool_call>NAME                         the mark and the name
 *   <arg_key>KEY</arg_key>
 *   <arg_value>VALUE</arg_value>            any number of such pairs, with white space between tags
 *   </tool_call>
 *
 * tool_format.h has the tags of each format. Gemma 4's calls are call:NAME{...}; call_notation.h
 * reads what is in the braces. DeepSeek's and Kimi's arguments are JSON, which is handed out as the
 * model wrote it, as tool_calls.c does. Events are those of tool_calls.h. A call is decided when
 * its name is there; until then it is held, and what turns out to be no call is text.
 *
 * A value has no type of its own. It is a string where the function's parameters say so, and is
 * handed out as it comes. Any other is held to its end: it is JSON if it can be read as such, else
 * a string. It is a string too where the parameters allow a string and no such JSON, and where it
 * takes more than TAG_VALUE_HELD_MAX bytes. */
#ifndef SERVER_TAG_CALLS_H
#define SERVER_TAG_CALLS_H

#include <jansson.h>

#include "base/json/jstream.h"
#include "server/chat/call_notation.h"
#include "server/chat/tool_calls.h"

enum { TAG_VALUE_HELD_MAX = 64 << 10, TAG_KEY_MAX = 1 << 10 };

struct tag_calls_options {
    const struct tool_format *format; // with tags
    const json_t *tools; // of a chat: their parameters; borrowed
    uint64_t seed;
    tool_event_fn emit;
    void *user_data;
};

// One answer's. Its members are tag_calls.c's.
struct tag_calls {
    struct tag_calls_options options;
    enum status status; // of the first failure; nothing is emitted after it
    struct err *err; // of the push under way
    uint32_t num_calls; // that have begun
    uint8_t state;
    bool after_call; // TEXT: nothing but white space since a call
    bool is_string, has_newline; // of the value: handed out as it comes; a newline is held
    bool at_value_start;
    json_t *property; // the value's schema, of the tools; NULL: none
    uint32_t num_values;
    size_t num_argument_bytes;
    bool too_long;
    struct buf held; // a call that is not decided, from its mark on, or the beginning of a tag
    struct jstream json; // of a format with arguments in JSON
    struct call_notation notation; // of a format with one: it reads the arguments
    struct buf word; // the name, the key or a value that is held
    struct buf pending; // text or arguments not handed out yet
    enum tool_event_kind pending_kind;
    char name[TOOL_CALL_NAME_MAX + 1];
};

void tag_calls_init(struct tag_calls *calls, const struct tag_calls_options *options);
void tag_calls_fini(struct tag_calls *calls); // all-zero is fine
// Emits all that is certain after `text`. After an error nothing may be pushed.
MUST_USE enum status tag_calls_push(struct tag_calls *calls, const char *text, size_t len,
                                    struct err *err);
// The end of the answer.
MUST_USE enum status tag_calls_finish(struct tag_calls *calls, struct err *err);

#endif

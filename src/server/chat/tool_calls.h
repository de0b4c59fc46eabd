/* Finds tool calls in an answer, as it comes, in one of the formats of tool_format.h.
 *
 * A call is decided when its name and the '{' of its arguments are there; until then it is held,
 * and what turns out to be no call is text. From then on the arguments are handed out as the model
 * wrote them, and checked to be JSON. So memory is bounded, each byte is looked at once, and an
 * answer without calls is handed out byte for byte.
 *
 * White space next to a call belongs to no text, and neither do marks and separators. Arguments
 * that are no JSON go on to the end mark, the next mark or the answer's end. An answer that ends
 * before a call is decided is text; one that ends in the arguments leaves them unfinished. */
#ifndef SERVER_TOOL_CALLS_H
#define SERVER_TOOL_CALLS_H

#include "base/json/jstream.h"
#include "base/text/buf.h"
#include "server/chat/python_notation.h"
#include "server/chat/tool_format.h"

enum {
    TOOL_CALL_HELD_MAX = 64 << 10, // bytes of a call that is not decided: more are text
    TOOL_CALL_ARGUMENTS_MAX = 1 << 20, // bytes of a call's arguments: the rest is left out
    TOOL_CALL_NAME_MAX = 256, // bytes: a call with a longer name is text
    TOOL_CALL_OWN_ID_MAX = 29, // "call_" and 24 letters and digits
    TOOL_CALL_ID_MAX = 288, // functions.NAME:INDEX of a format with ids
};

enum tool_event_kind {
    TOOL_EVENT_TEXT, // text outside of calls, never empty
    TOOL_EVENT_BEGIN, // a call: its id and name
    TOOL_EVENT_ARGUMENTS, // a piece of its arguments' JSON, never empty
    TOOL_EVENT_END, // of the call
};

enum tool_end {
    TOOL_END_COMPLETE, // the arguments are a JSON object
    TOOL_END_BROKEN, // they are no JSON
    TOOL_END_UNFINISHED, // the answer ended before they did
    TOOL_END_TOO_LONG, // they exceed TOOL_CALL_ARGUMENTS_MAX and were cut there
};

struct tool_event {
    enum tool_event_kind kind;
    uint32_t index; // of the call, from 0; not of TEXT
    const char *id, *name; // BEGIN: valid during the callback
    const char *text; // [len] TEXT, ARGUMENTS: likewise
    size_t len;
    enum tool_end end; // END
};

// After a status other than OK nothing more is emitted, and every push returns that status.
typedef enum status (*tool_event_fn)(void *user_data, const struct tool_event *event,
                                     struct err *err);

struct tool_calls_options {
    const struct tool_format *format;
    uint64_t seed; // decides the calls' ids: a random number for each answer
    tool_event_fn emit;
    void *user_data;
    bool only_text; // calls stay text; only the format's marks around text are removed
};

// One answer's. Its members are tool_calls.c's.
struct tool_calls {
    struct tool_calls_options options;
    enum status status; // of the first callback that failed; nothing is emitted after it
    struct err *err; // of the push under way
    uint32_t num_calls; // that have begun
    uint8_t state;
    bool after_call; // TEXT: nothing but white space since a call
    bool at_start; // TEXT: a bare object would be a call
    bool marked; // the call under way has a mark
    bool in_list; // it stands in a list
    bool had_call_id; // a name was followed by [CALL_ID]
    size_t tag_len; // bytes of a mark that `held` ends with
    struct buf held; // not decided yet
    struct buf pending; // text or arguments of this push, not yet handed out
    enum tool_event_kind pending_kind;

    // The call under way. Offsets are into `held`.
    struct jstream json;
    struct python_notation python; // of a format with it: reads the arguments
    uint32_t arguments_depth; // of `json` around the arguments
    uint8_t member; // which one the key before names
    size_t key_at, name_at, name_len, arguments_at, arguments_len;
    bool has_name, has_arguments;
    size_t num_argument_bytes; // handed out
    bool too_long;
    char name[TOOL_CALL_NAME_MAX + 1];
};

// A new id. The seed decides it, and changes. Short: 9 letters and digits.
void tool_call_make_id(uint64_t *seed, bool is_short, char id[TOOL_CALL_OWN_ID_MAX + 1]);

void tool_calls_init(struct tool_calls *calls, const struct tool_calls_options *options);
void tool_calls_fini(struct tool_calls *calls); // all-zero is fine
// Emits all that is certain after `text`. Of each kind a push emits as few events as it can.
// ERR_NOMEM of its own: nothing of `text` was taken.
MUST_USE enum status tool_calls_push(struct tool_calls *calls, const char *text, size_t len,
                                     struct err *err);
// The end of the answer.
MUST_USE enum status tool_calls_finish(struct tool_calls *calls, struct err *err);

#endif

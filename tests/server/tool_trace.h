/* What tool_calls emits, as one line of text: T(text) B(name) A(arguments) E(end), neighbours of
 * one kind joined, so that it is the same however the answer was cut. */
#ifndef SERVER_TOOL_TRACE_H
#define SERVER_TOOL_TRACE_H

#include "server/chat/tool_calls.h"

struct tool_trace {
    struct tool_calls calls;
    struct buf line;
    char open; // kind whose bracket is open; 0: none
    uint32_t num_begun, num_ended;
    char last_id[TOOL_CALL_ID_MAX + 1];
};

// Starts a trace of an answer in the format with this name.
void tool_trace_begin(struct tool_trace *trace, const char *format);
void tool_trace_push(struct tool_trace *trace, const char *text, size_t len);
// Ends the answer and the line.
const char *tool_trace_finish(struct tool_trace *trace);
// The line so far, its bracket closed.
const char *tool_trace_line(struct tool_trace *trace);
void tool_trace_fini(struct tool_trace *trace);

// The answer cut at every place, and at two as support/cuts.h says, makes this line.
void tool_trace_expect(const char *format, const char *answer, const char *wanted);

#endif

#include "server/tool_trace.h"

#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/cuts.h"

static void close_bracket(struct tool_trace *trace) {
    if (trace->open) assert_int_equal(buf_append_str(&trace->line, ") ", NULL), OK);
    trace->open = 0;
}

static void add(struct tool_trace *trace, char kind, const char *text, size_t len) {
    if (trace->open != kind) {
        close_bracket(trace);
        assert_int_equal(buf_appendf(&trace->line, NULL, "%c(", kind), OK);
        trace->open = kind;
    }
    assert_int_equal(buf_append(&trace->line, text, len, NULL), OK);
}

static enum status on_event(void *user_data, const struct tool_event *event, struct err *err) {
    (void)err;
    static const char *const ends[] = {"complete", "broken", "unfinished", "too long"};
    struct tool_trace *trace = user_data;
    bool in_call = trace->num_begun > trace->num_ended;
    switch (event->kind) {
    case TOOL_EVENT_TEXT:
        assert_false(in_call);
        assert_true(event->len > 0);
        add(trace, 'T', event->text, event->len);
        break;
    case TOOL_EVENT_BEGIN:
        assert_false(in_call);
        assert_int_equal(event->index, trace->num_begun++);
        assert_true(strlen(event->id) < sizeof trace->last_id);
        memcpy(trace->last_id, event->id, strlen(event->id) + 1);
        close_bracket(trace);
        add(trace, 'B', event->name, strlen(event->name));
        break;
    case TOOL_EVENT_ARGUMENTS:
        assert_true(in_call);
        assert_int_equal(event->index, trace->num_ended);
        assert_true(event->len > 0);
        add(trace, 'A', event->text, event->len);
        break;
    case TOOL_EVENT_END:
        assert_true(in_call);
        assert_int_equal(event->index, trace->num_ended++);
        add(trace, 'E', ends[event->end], strlen(ends[event->end]));
        close_bracket(trace);
        break;
    }
    return OK;
}

void tool_trace_begin(struct tool_trace *trace, const char *format) {
    *trace = (struct tool_trace){0};
    assert_int_equal(buf_reserve(&trace->line, 0, NULL), OK);
    const struct tool_calls_options options = {
        .format = tool_format_find(format), .seed = 7, .emit = on_event, .user_data = trace};
    assert_non_null(options.format);
    tool_calls_init(&trace->calls, &options);
}

void tool_trace_push(struct tool_trace *trace, const char *text, size_t len) {
    char *copy = malloc(len + 1); // exactly sized: a sanitizer sees a read beyond it
    assert_non_null(copy);
    if (len) memcpy(copy, text, len);
    struct err err = {0};
    assert_int_equal(tool_calls_push(&trace->calls, copy, len, &err), OK);
    free(copy);
}

const char *tool_trace_line(struct tool_trace *trace) {
    close_bracket(trace);
    return trace->line.data;
}

const char *tool_trace_finish(struct tool_trace *trace) {
    assert_int_equal(tool_calls_finish(&trace->calls, NULL), OK);
    assert_int_equal(trace->num_begun, trace->num_ended);
    close_bracket(trace);
    if (trace->line.len) trace->line.data[--trace->line.len] = '\0';
    return trace->line.data;
}

void tool_trace_fini(struct tool_trace *trace) {
    tool_calls_fini(&trace->calls);
    buf_fini(&trace->line);
}

void tool_trace_expect(const char *format, const char *answer, const char *wanted) {
    size_t len = strlen(answer);
    for (size_t first = 0; first <= len; first++) {
        for (size_t second = first; second <= len; second = cuts_next(first, second, len)) {
            struct tool_trace trace;
            tool_trace_begin(&trace, format);
            tool_trace_push(&trace, answer, first);
            tool_trace_push(&trace, answer + first, second - first);
            tool_trace_push(&trace, answer + second, len - second);
            const char *line = tool_trace_finish(&trace);
            if (strcmp(line, wanted) != 0) {
                fail_msg("%s: \"%s\" cut at %zu and %zu gives\n%s\nnot\n%s", format, answer, first,
                         second, line, wanted);
            }
            tool_trace_fini(&trace);
        }
    }
}

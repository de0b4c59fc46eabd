/* Gives generate its requests one at a time. They come from the arguments, from standard input as
 * one prompt, or from the lines of a JSONL file. Only the next line is in memory. */
#ifndef CMD_PROMPT_SOURCE_H
#define CMD_PROMPT_SOURCE_H

#include "cmd/generate/request_line.h"
#include "cmd/terminal/line_reader.h"

enum source_state {
    SOURCE_REQUEST, // *line is a request; the caller ends it with request_line_fini
    SOURCE_REFUSED, // a bad line: err names it and says why; the next one may be good
    SOURCE_WAIT, // no request yet, or a signal arrived
    SOURCE_END,
};

struct prompt_source {
    const struct request_defaults *defaults; // borrowed
    char *const *prompts; // [num_prompts] from the command line; NULL: lines of `reader`
    size_t num_prompts, next_prompt;
    struct buf text; // the one prompt of standard input
    bool has_text;
    struct line_reader reader;
    int fd; // of the JSONL file; -1: none
    uint64_t total; // number of requests; 0: unknown, because the input is a pipe
};

void prompt_source_from_args(struct prompt_source *source, char *const *prompts,
                             size_t num_prompts);
// Reads all of standard input, exactly as it is.
MUST_USE enum status prompt_source_from_stdin(struct prompt_source *source, struct err *err);
// `path` "-": standard input. `count`: also count the lines of a regular file into `total`.
MUST_USE enum status prompt_source_from_file(struct prompt_source *source, const char *path,
                                             bool count, struct err *err);
// Any status but OK ends the run: the input cannot be read. For SOURCE_REFUSED, err has the
// sentence too.
MUST_USE enum status prompt_source_next(struct prompt_source *source, bool may_wait,
                                        enum source_state *state, struct request_line *line,
                                        struct err *err);
void prompt_source_close(struct prompt_source *source);

#endif

/* What a chat prints. On a terminal thinking is dimmed and control characters of the model become
 * U+FFFD, so that an answer cannot move the cursor; elsewhere the text is written as it is. */
#ifndef CMD_CHAT_OUTPUT_H
#define CMD_CHAT_OUTPUT_H

#include "base/buf.h"
#include "base/output_file.h"
#include "text/think.h"

struct chat_output {
    struct output_file file; // standard output
    bool terminal; // standard output is one
    bool color; // escape sequences for dimmed text are allowed
    bool talks; // a person is at the prompt: notes are printed
    bool hide_thinking;
    // Of the answer under way.
    bool dimmed;
    bool past_blanks; // hide_thinking: something was printed
    struct buf text; // not yet written
};

MUST_USE enum status chat_output_init(struct chat_output *output, struct err *err);
void chat_output_fini(struct chat_output *output);

void chat_output_begin(struct chat_output *output); // of an answer
// A think_fn; `user_data` is the output.
MUST_USE enum status chat_output_piece(void *user_data, const char *text, size_t len,
                                       enum think_part part, struct err *err);
MUST_USE enum status chat_output_flush(struct chat_output *output, struct err *err);
MUST_USE enum status chat_output_end(struct chat_output *output, struct err *err); // newline

// Text that was asked for, and a note to the person at the prompt (nothing where there is none).
MUST_USE enum status chat_output_print(struct chat_output *output, struct err *err,
                                       const char *format, ...) PRINTF_LIKE(3, 4);
MUST_USE enum status chat_output_note(struct chat_output *output, struct err *err,
                                      const char *format, ...) PRINTF_LIKE(3, 4);

#endif

/* Prints a chat. On a terminal, thinking is dimmed. The model's control characters become U+FFFD
 * there, so that an answer cannot move the cursor. Elsewhere text is written as it is. */
#ifndef CMD_CHAT_OUTPUT_H
#define CMD_CHAT_OUTPUT_H

#include "base/os/output_file.h"
#include "base/text/buf.h"
#include "text/chat/think.h"

struct chat_output {
    struct output_file file; // standard output
    bool terminal; // standard output is one
    bool color; // escape sequences for dimmed text are allowed
    bool talks; // a person is at the prompt: notes are printed
    bool hide_thinking;
    // State of the current answer:
    bool dimmed;
    bool past_blanks; // hide_thinking: text was printed
    struct buf text; // not yet written
};

MUST_USE enum status chat_output_init(struct chat_output *output, struct err *err);
void chat_output_fini(struct chat_output *output);

void chat_output_begin(struct chat_output *output); // begins an answer
// A think_fn; `user_data` is the output.
MUST_USE enum status chat_output_piece(void *user_data, const char *text, size_t len,
                                       enum think_part part, struct err *err);
MUST_USE enum status chat_output_flush(struct chat_output *output, struct err *err);
MUST_USE enum status chat_output_end(struct chat_output *output, struct err *err); // newline

// Prints requested text. chat_output_note prints only if a person is at the prompt.
MUST_USE enum status chat_output_print(struct chat_output *output, struct err *err,
                                       const char *format, ...) PRINTF_LIKE(3, 4);
MUST_USE enum status chat_output_note(struct chat_output *output, struct err *err,
                                      const char *format, ...) PRINTF_LIKE(3, 4);

#endif

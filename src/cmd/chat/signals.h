/* Signals of a chat: Ctrl-C stops an answer, SIGTERM and SIGHUP the chat, the others redraw the
 * line that is edited. Handlers only take notes; a byte in a pipe wakes whoever polls. */
#ifndef CMD_CHAT_SIGNALS_H
#define CMD_CHAT_SIGNALS_H

#include <stdbool.h>

#include "base/err.h"

// What was ignored when the program was started (nohup) stays so. `at_prompt_too`: a line editor
// will run, and wants to know of resizes and job control.
MUST_USE enum status chat_signals_install(bool at_prompt_too, struct err *err);
// Ctrl-Z stops the program at once, except between these two: then it is a note like the others.
void chat_signals_prompt_begin(void);
void chat_signals_prompt_end(void);

bool chat_signals_interrupted(void); // Ctrl-C since the last clear
void chat_signals_clear_interrupt(void);
bool chat_signals_ended(void); // SIGTERM or SIGHUP; stays
// Each returns a note and drops it.
bool chat_signals_take_suspend(void); // Ctrl-Z
bool chat_signals_take_redraw(void); // the program was stopped and goes on
bool chat_signals_take_resize(void);
void chat_signals_suspend(void); // stops the program now; returns when it goes on

int chat_signals_fd(void); // readable after a signal; chat_signals_drain empties it
void chat_signals_drain(void);

#endif

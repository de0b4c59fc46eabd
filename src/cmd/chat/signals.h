/* Signals of a chat. Ctrl-C stops an answer, SIGTERM and SIGHUP end the chat, the others redraw the
 * edited line. Handlers only set flags, and write a byte to a pipe that wakes poll(). */
#ifndef CMD_CHAT_SIGNALS_H
#define CMD_CHAT_SIGNALS_H

#include <stdbool.h>

#include "base/err.h"

// Signals that were ignored at the start (nohup) stay ignored. `at_prompt_too`: also catches
// resizes and job control, which a line editor needs.
MUST_USE enum status chat_signals_install(bool at_prompt_too, struct err *err);
// Ctrl-Z stops the program at once. Between these two calls it only sets a flag, like the others.
void chat_signals_prompt_begin(void);
void chat_signals_prompt_end(void);

bool chat_signals_interrupted(void); // Ctrl-C since the last clear
void chat_signals_clear_interrupt(void);
bool chat_signals_ended(void); // SIGTERM or SIGHUP; never cleared
// Each returns a flag and clears it.
bool chat_signals_take_suspend(void); // Ctrl-Z
bool chat_signals_take_redraw(void); // the program was stopped and continues
bool chat_signals_take_resize(void);
void chat_signals_suspend(void); // stops the program now; returns when it continues

int chat_signals_fd(void); // readable after a signal; chat_signals_drain empties it
void chat_signals_drain(void);

#endif

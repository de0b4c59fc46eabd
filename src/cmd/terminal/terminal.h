/* What the terminal can do. */
#ifndef CMD_TERMINAL_H
#define CMD_TERMINAL_H

#include <stdbool.h>

// Escape sequences: true for every terminal of today; false if TERM is `dumb` or not set.
bool terminal_has_escapes(void);

#endif

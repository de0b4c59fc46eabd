#include "cmd/terminal/terminal.h"

#include <stdlib.h>
#include <string.h>

bool terminal_has_escapes(void) {
    const char *terminal = getenv("TERM");
    return terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

/* What a test's code writes to standard error, which is a file or a terminal meanwhile. */
#ifndef SUPPORT_CAPTURED_H
#define SUPPORT_CAPTURED_H

#include <stdbool.h>

enum { CAPTURED_MAX = 1 << 14 };

struct captured {
    int fd, kept; // what is read from; standard error as it was
    char text[CAPTURED_MAX];
};

// Fails the test where the system refuses.
void captured_begin(struct captured *captured, bool is_terminal);
// Standard error is what it was, and `text` what was written. A terminal writes \r\n for \n.
void captured_end(struct captured *captured);

#endif

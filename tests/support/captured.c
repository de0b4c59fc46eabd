#include "support/captured.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/cmocka_all.h"

static int open_terminal(int *own) {
    *own = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(*own >= 0 && grantpt(*own) == 0 && unlockpt(*own) == 0);
    return open(ptsname(*own), O_RDWR | O_NOCTTY);
}

void captured_begin(struct captured *c, bool is_terminal) {
    int ends[2], to;
    if (is_terminal) {
        to = open_terminal(&c->fd);
    } else {
        assert_int_equal(pipe(ends), 0);
        c->fd = ends[0], to = ends[1];
    }
    c->kept = dup(STDERR_FILENO);
    assert_true(to >= 0 && c->kept >= 0 && dup2(to, STDERR_FILENO) == STDERR_FILENO);
    close(to);
}

// What is there now: the writer was this thread.
void captured_end(struct captured *c) {
    size_t length = 0;
    for (;;) {
        struct pollfd ready = {.fd = c->fd, .events = POLLIN};
        if (poll(&ready, 1, 0) <= 0 || !(ready.revents & POLLIN)) break;
        ssize_t n = read(c->fd, c->text + length, sizeof c->text - 1 - length);
        if (n <= 0) break;
        length += (size_t)n;
    }
    c->text[length] = '\0';
    dup2(c->kept, STDERR_FILENO);
    close(c->kept);
    close(c->fd);
}

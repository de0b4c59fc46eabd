#include "cmd/chat/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

// A signal handler can reach nothing but globals.
static volatile sig_atomic_t num_interrupts, ended, suspend, redraw, resized;
static int wake_pipe[2] = {-1, -1};

enum { INTERRUPTS_MAX = 5 };

static void wake(void) {
    ssize_t written = write(wake_pipe[1], "", 1);
    (void)written; // a full pipe wakes as well
}

// Whoever presses Ctrl-C this often means the program: a step may hang on a lost device.
static void on_interrupt(void) {
    num_interrupts = num_interrupts + 1;
    if (num_interrupts >= INTERRUPTS_MAX) signal(SIGINT, SIG_DFL);
}

static void on_signal(int number) {
    int saved_errno = errno;
    switch (number) {
    case SIGINT:
        on_interrupt();
        break;
    case SIGTSTP:
        suspend = 1;
        break;
    case SIGCONT:
        redraw = 1;
        break;
    case SIGWINCH:
        resized = 1;
        break;
    default:
        ended = 1;
    }
    wake();
    errno = saved_errno;
}

// No SA_RESTART: a blocked read returns.
static void catch_signal(int number) {
    struct sigaction action = {.sa_handler = on_signal}, before;
    sigfillset(&action.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_IGN) return;
    sigaction(number, &action, NULL);
}

enum status chat_signals_install(bool at_prompt_too, struct err *err) {
    if (wake_pipe[0] < 0 && pipe2(wake_pipe, O_NONBLOCK | O_CLOEXEC) != 0) {
        return err_set(err, ERR_IO, "cannot make a pipe: %s", strerror(errno));
    }
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    catch_signal(SIGHUP);
    if (!at_prompt_too) return OK;
    catch_signal(SIGCONT);
    catch_signal(SIGWINCH);
    return OK;
}

void chat_signals_prompt_begin(void) {
    catch_signal(SIGTSTP);
}

void chat_signals_prompt_end(void) {
    struct sigaction before;
    if (sigaction(SIGTSTP, NULL, &before) == 0 && before.sa_handler == on_signal) {
        signal(SIGTSTP, SIG_DFL);
    }
}

bool chat_signals_interrupted(void) {
    return num_interrupts > 0;
}

void chat_signals_clear_interrupt(void) {
    num_interrupts = 0;
}

bool chat_signals_ended(void) {
    return ended != 0;
}

static bool take(volatile sig_atomic_t *note) {
    bool noted = *note != 0;
    *note = 0;
    return noted;
}

bool chat_signals_take_suspend(void) {
    return take(&suspend);
}

bool chat_signals_take_redraw(void) {
    return take(&redraw);
}

bool chat_signals_take_resize(void) {
    return take(&resized);
}

void chat_signals_suspend(void) {
    chat_signals_prompt_end();
    raise(SIGTSTP);
    redraw = 0; // the caller knows
    chat_signals_prompt_begin();
}

int chat_signals_fd(void) {
    return wake_pipe[0];
}

void chat_signals_drain(void) {
    char bytes[64];
    while (read(wake_pipe[0], bytes, sizeof bytes) > 0) continue;
}

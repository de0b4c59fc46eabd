#include "cmd/terminal/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "base/compiler.h"

// A signal handler can reach nothing but globals: the mutable variables of src/cmd.
static volatile sig_atomic_t requested;
// The cursor is after a progress line or ^C, so the message begins with a newline.
static volatile sig_atomic_t on_terminal;
static volatile sig_atomic_t is_download;

static const int stop_signals[] = {SIGINT, SIGTERM};

// Answers at once, because a step of a large model may take seconds before the run stops.
static void say_stopping(void) {
    static const char step[] = "\nnanovllm: stopping after this step; again to kill\n";
    static const char download[] = "\nnanovllm: stopping the download; again to kill\n";
    const char *text = is_download ? download : step;
    size_t len = (is_download ? sizeof download : sizeof step) - 1;
    size_t skipped = on_terminal ? 0 : 1;
    ssize_t written = write(STDERR_FILENO, text + skipped, len - skipped);
    (void)written; // a handler can report no error
}

// The next signal of either kind has its default effect: it ends the process.
static void on_signal(int number) {
    (void)number;
    int saved_errno = errno;
    requested = 1;
    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++) signal(stop_signals[i], SIG_DFL);
    say_stopping();
    errno = saved_errno;
}

void interrupt_install(void) {
    on_terminal = isatty(STDERR_FILENO);
    // No SA_RESTART, so a blocked read returns. The mask keeps the two handlers from interrupting
    // each other.
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++)
        sigaddset(&action.sa_mask, stop_signals[i]);
    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++) {
        struct sigaction before;
        // Stays ignored if the parent ignored it on purpose (nohup, a background job of a script).
        if (sigaction(stop_signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN)
            continue;
        sigaction(stop_signals[i], &action, NULL);
    }
}

void interrupt_install_download(void) {
    is_download = 1;
    interrupt_install();
}

void interrupt_remove(void) {
    is_download = 0;
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++) {
        struct sigaction before;
        bool is_ours =
            sigaction(stop_signals[i], NULL, &before) == 0 && before.sa_handler == on_signal;
        if (is_ours) sigaction(stop_signals[i], &action, NULL);
    }
}

bool interrupt_requested(void) {
    return requested != 0;
}

static int is_wanted(void *user_data) {
    (void)user_data;
    return interrupt_requested();
}

const struct nvllm_interrupt interrupt_question = {.is_wanted = is_wanted};

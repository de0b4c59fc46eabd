#include "cmd/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "base/compiler.h"

// A signal handler can reach nothing but globals: the mutable variables of src/cmd.
static volatile sig_atomic_t requested;
static volatile sig_atomic_t on_terminal; // where the cursor is behind a progress line or ^C

static const int stop_signals[] = {SIGINT, SIGTERM};

// A step of a large model takes seconds, in which nothing else shows that the signal arrived.
static void say_stopping(void) {
    static const char text[] = "\nnanovllm: stopping after this step; again to kill\n";
    size_t skipped = on_terminal ? 0 : 1;
    ssize_t written = write(STDERR_FILENO, text + skipped, sizeof text - 1 - skipped);
    (void)written; // nobody to tell
}

// The next one of either kind has its default effect.
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
    // No SA_RESTART: a blocked read returns. The other signal waits for the handler's end.
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++)
        sigaddset(&action.sa_mask, stop_signals[i]);
    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++) {
        struct sigaction before;
        // A parent that had it ignored (nohup, a background job of a script) means it.
        if (sigaction(stop_signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN)
            continue;
        sigaction(stop_signals[i], &action, NULL);
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

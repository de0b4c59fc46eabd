#include "cmd/interrupt.h"

#include <signal.h>
#include <stddef.h>

// A signal handler can reach nothing but a global: the one mutable variable of src/cmd.
static volatile sig_atomic_t requested;

static void on_signal(int number) {
    (void)number;
    requested = 1;
}

void interrupt_install(void) {
    struct sigaction action = {.sa_handler = on_signal};
    // Reset: the default action is back for the second one. No restart: a blocked read returns.
    action.sa_flags = (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    const int signals[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction before;
        // A parent that had it ignored (nohup, a background job of a script) means it.
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN) continue;
        sigaction(signals[i], &action, NULL);
    }
}

bool interrupt_requested(void) {
    return requested != 0;
}

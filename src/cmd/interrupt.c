#include "cmd/interrupt.h"

#include <signal.h>
#include <stddef.h>

#include "base/compiler.h"

// A signal handler can reach nothing but a global: the one mutable variable of src/cmd.
static volatile sig_atomic_t requested;

static const int stop_signals[] = {SIGINT, SIGTERM};

// The next one of either kind has its default effect.
static void on_signal(int number) {
    (void)number;
    requested = 1;
    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++) signal(stop_signals[i], SIG_DFL);
}

void interrupt_install(void) {
    struct sigaction action = {.sa_handler = on_signal}; // no SA_RESTART: a blocked read returns
    sigemptyset(&action.sa_mask);
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

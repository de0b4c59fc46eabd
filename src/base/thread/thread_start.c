#include "base/thread/thread_start.h"

#include <signal.h>

int thread_start(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *arg),
                 void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // a thread inherits its creator's mask
    int error = pthread_create(thread, attributes, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

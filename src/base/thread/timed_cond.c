#include "base/thread/timed_cond.h"

#include <errno.h>

#include "base/os/clock.h"

// A later deadline counts as none, because time_t may not hold it.
static const double deadline_max = 1e9;

enum status timed_cond_init(pthread_cond_t *cond, const char *what, struct err *err) {
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes)) return err_nomem(err, what);
    int failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!failed) failed = pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
    return failed ? err_nomem(err, what) : OK;
}

bool timed_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, double deadline) {
    if (!(deadline >= 0 && deadline < deadline_max)) { // not a number is none either
        pthread_cond_wait(cond, mutex);
        return true;
    }
    const struct timespec until = clock_timespec(deadline);
    return pthread_cond_timedwait(cond, mutex, &until) != ETIMEDOUT;
}

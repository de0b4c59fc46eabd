/* A condition variable whose deadlines are times of clock_seconds. */
#ifndef BASE_TIMED_COND_H
#define BASE_TIMED_COND_H

#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"

// pthread_cond_destroy ends it. `what` is for the error: whose condition it is.
MUST_USE enum status timed_cond_init(pthread_cond_t *cond, const char *what, struct err *err);
// As pthread_cond_wait, until the deadline; negative: without one. False: the deadline has passed.
bool timed_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, double deadline);

#endif

/* Threads of the library's own. They take no signals: those are for the program's own threads,
 * which have handlers or wait for them. */
#ifndef BASE_THREAD_START_H
#define BASE_THREAD_START_H

#include <pthread.h>

// As pthread_create: 0, or an errno. `attributes` may be NULL.
int thread_start(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *arg),
                 void *arg);

#endif

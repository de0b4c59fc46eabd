/* The processes that the test's process has started. */
#ifndef TESTS_SUPPORT_CHILDREN_H
#define TESTS_SUPPORT_CHILDREN_H

#include <stddef.h>
#include <sys/types.h>

// In the order of their numbers, thread by thread; returns how many, at most `max`.
size_t children(pid_t *out, size_t max);
void assert_no_children(void);

#endif

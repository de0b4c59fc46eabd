/* Time for measuring. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <sys/time.h>
#include <time.h>

// Seconds of CLOCK_MONOTONIC, whose zero is arbitrary.
double clock_seconds(void);
// The same in the system's forms, of a time or of a duration; seconds >= 0.
struct timespec clock_timespec(double seconds);
struct timeval clock_timeval(double seconds);

#endif

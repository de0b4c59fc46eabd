#include "base/os/clock.h"

double clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct timespec clock_timespec(double seconds) {
    time_t whole = (time_t)seconds;
    return (struct timespec){whole, (long)((seconds - (double)whole) * 1e9)};
}

struct timeval clock_timeval(double seconds) {
    time_t whole = (time_t)seconds;
    return (struct timeval){whole, (suseconds_t)((seconds - (double)whole) * 1e6)};
}

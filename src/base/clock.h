/* Time for measuring. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

// Seconds of a monotonic clock with an arbitrary zero.
double clock_seconds(void);

#endif

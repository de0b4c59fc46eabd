/* A random number that nobody outside the process can know. It keys hashes of input that others
 * choose, so that they cannot choose inputs that collide. */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include <stdint.h>

uint64_t secret_make(void); // a new one at each call

#endif

/* A number that nobody outside the process can know: the key of hashes over what others choose, so
 * that they cannot choose what meets. */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include <stdint.h>

uint64_t secret_make(void); // another one each time

#endif

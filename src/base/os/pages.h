/* Memory in huge pages, and getting the pages of a large table before it is used. */
#ifndef BASE_PAGES_H
#define BASE_PAGES_H

#include <stddef.h>

// Makes the kernel map all pages of zeroed memory now, in one call: 3 ms for 10 MB on a Xeon.
// Otherwise each page costs a fault of 1.7 us at its first use, in the middle of a step. Does
// nothing before Linux 5.14, which is slower but not wrong.
void pages_populate(void *memory, size_t bytes);

// Zeroed memory that begins at a huge page and consists of such where the system has them. `front`
// bytes before it are there too, in small pages. NULL: no memory. Both are multiples of the page
// size. pages_unmap takes `front` bytes less, and all bytes.
void *pages_map(size_t front, size_t bytes);
void pages_unmap(void *memory, size_t bytes); // NULL is fine

#endif

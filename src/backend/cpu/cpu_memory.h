/* Memory of the CPU backend: zeroed, 64-byte aligned. Large allocations use huge pages where the
 * system has them: weights are read once per step, and with 4 KiB pages the page walks cost time.
 */
#ifndef BACKEND_CPU_CPU_MEMORY_H
#define BACKEND_CPU_CPU_MEMORY_H

#include <stddef.h>

#include "base/compiler.h"

// NULL when out of memory. 0 bytes give a valid pointer. Large allocations occupy memory only once
// touched.
MUST_USE void *cpu_memory_alloc(size_t bytes);
void cpu_memory_free(void *memory); // NULL is fine

#endif

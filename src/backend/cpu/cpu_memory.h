/* Memory of the CPU backend: zeroed, 64-byte aligned. Large allocations use huge pages where the
 * system has them: weights are read once per step, and with 4 KiB pages the page walks cost time.
 */
#ifndef BACKEND_CPU_CPU_MEMORY_H
#define BACKEND_CPU_CPU_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

// NULL when out of memory. 0 bytes give a valid pointer. Large allocations occupy memory only once
// touched.
MUST_USE void *cpu_memory_alloc(size_t bytes);
// The same, its pages in turn on the NUMA nodes whose bits are set, so that all of their memory
// controllers serve all threads. 0: the system chooses, mostly the node of the thread that first
// touches a page.
MUST_USE void *cpu_memory_alloc_on(size_t bytes, uint64_t nodes);
void cpu_memory_free(void *memory); // NULL is fine

// The nodes to spread large memory over. 0: there is one only, or the program's own memory policy
// (numactl) decides.
uint64_t cpu_memory_nodes(void);

#endif

/* Memory of the CPU backend: zeroed, 64-byte aligned; big pieces on huge pages where the system has
 * them (weights are read once per step: with 4 KiB pages the page walks show). */
#ifndef BACKEND_CPU_CPU_MEMORY_H
#define BACKEND_CPU_CPU_MEMORY_H

#include <stddef.h>

#include "base/compiler.h"

// NULL when memory is out. 0 bytes give a valid pointer. Big pieces take memory when first touched.
MUST_USE void *cpu_memory_alloc(size_t bytes);
void cpu_memory_free(void *memory); // NULL is fine

#endif

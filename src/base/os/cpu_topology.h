/* Which CPUs share a core, and which memory is near which CPUs, as Linux tells in /sys. */
#ifndef BASE_CPU_TOPOLOGY_H
#define BASE_CPU_TOPOLOGY_H

#include <sched.h>
#include <stdint.h>

#define CPU_TOPOLOGY_ROOT "/sys/devices/system"

// The cores that the CPUs of `allowed` belong to. A CPU of which `root` does not tell the core
// counts as one.
int cpu_topology_cores(const char *root, const cpu_set_t *allowed);

// The NUMA nodes that have CPUs of `allowed` and memory: bit n is node n. Nodes beyond 63 are left
// out. 0: `root` does not tell.
uint64_t cpu_topology_nodes(const char *root, const cpu_set_t *allowed);

#endif

#include "base/os/cpu_topology.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIST_TEXT = 8192, NODES_MAX = 64 };

// Reads a list as the kernel writes them: "0-3,8,10-11". False: no such file, or no list.
static bool read_list(const char *path, cpu_set_t *set) {
    CPU_ZERO(set);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    char text[LIST_TEXT];
    char *at = fgets(text, sizeof text, file);
    fclose(file);
    while (at && *at >= '0' && *at <= '9') {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        for (; first <= last && first < CPU_SETSIZE; first++) CPU_SET(first, set);
        if (*end != ',') return true;
        at = end + 1;
    }
    return false;
}

// Whether a CPU of `allowed` with a smaller number is on the same core.
static bool has_earlier_sibling(const char *root, size_t cpu, const cpu_set_t *allowed) {
    char path[512];
    cpu_set_t siblings;
    snprintf(path, sizeof path, "%s/cpu/cpu%zu/topology/thread_siblings_list", root, cpu);
    if (!read_list(path, &siblings)) return false;
    for (size_t other = 0; other < cpu; other++) {
        if (CPU_ISSET(other, &siblings) && CPU_ISSET(other, allowed)) return true;
    }
    return false;
}

int cpu_topology_cores(const char *root, const cpu_set_t *allowed) {
    int count = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, allowed) && !has_earlier_sibling(root, cpu, allowed)) count++;
    }
    return count;
}

uint64_t cpu_topology_nodes(const char *root, const cpu_set_t *allowed) {
    char path[512];
    cpu_set_t with_memory, cpus, both;
    uint64_t nodes = 0;
    snprintf(path, sizeof path, "%s/node/has_memory", root);
    if (!read_list(path, &with_memory)) return 0;
    for (size_t node = 0; node < NODES_MAX; node++) {
        snprintf(path, sizeof path, "%s/node/node%zu/cpulist", root, node);
        if (!CPU_ISSET(node, &with_memory) || !read_list(path, &cpus)) continue;
        CPU_AND(&both, &cpus, allowed);
        if (CPU_COUNT(&both)) nodes |= (uint64_t)1 << node;
    }
    return nodes;
}

#include "backend/cpu/cpu_memory.h"

#include <linux/mempolicy.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/os/cpu.h"
#include "base/os/pages.h"

enum {
    BIG = 1 << 20,
    ALIGNMENT = 64,
    NODE_BITS = 65, // the kernel takes one for itself
};

// Kept in the 64 bytes before the returned memory.
struct header {
    void *base;
    size_t mapped_bytes; // 0: base is malloc's
};

static void *with_header(void *base, size_t mapped_bytes) {
    struct header header = {base, mapped_bytes};
    memcpy(base, &header, sizeof header);
    return (char *)base + ALIGNMENT;
}

static void *map_big(size_t bytes, uint64_t nodes) {
    void *base = pages_map(bytes);
    // Where the system refuses: slower, not wrong.
    if (base && nodes) syscall(SYS_mbind, base, bytes, MPOL_INTERLEAVE, &nodes, NODE_BITS, 0);
    return base;
}

void *cpu_memory_alloc_on(size_t bytes, uint64_t nodes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t total = bytes + ALIGNMENT;
    if (total < BIG) {
        total = (total + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        void *base = aligned_alloc(ALIGNMENT, total);
        if (!base) return NULL;
        memset(base, 0, total);
        return with_header(base, 0);
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE); // up to 64 KiB on ARM
    total = (total + page - 1) / page * page;
    void *base = map_big(total, nodes);
    return base ? with_header(base, total) : NULL;
}

void *cpu_memory_alloc(size_t bytes) {
    return cpu_memory_alloc_on(bytes, 0);
}

void cpu_memory_free(void *memory) {
    if (!memory) return;
    struct header header;
    memcpy(&header, (char *)memory - ALIGNMENT, sizeof header);
    if (header.mapped_bytes) {
        pages_unmap(header.base, header.mapped_bytes);
    } else {
        free(header.base);
    }
}

uint64_t cpu_memory_nodes(void) {
    int policy;
    uint64_t nodes = cpu_numa_nodes();
    bool is_one = (nodes & (nodes - 1)) == 0;
    if (is_one || syscall(SYS_get_mempolicy, &policy, NULL, 0, NULL, 0) != 0) return 0;
    return policy == MPOL_DEFAULT ? nodes : 0;
}

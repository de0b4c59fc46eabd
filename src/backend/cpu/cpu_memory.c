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

// Kept in the 64 bytes before the returned memory. Before mapped memory it has a small page of its
// own, so that it touches none of the huge ones (base/thread/first_touch.h).
struct header {
    void *base;
    size_t mapped_bytes; // 0: base is malloc's
};

static void *map_big(size_t bytes, uint64_t nodes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE); // up to 64 KiB on ARM
    bytes = (bytes + page - 1) / page * page;
    char *memory = pages_map(page, bytes);
    if (!memory) return NULL;
    // Where the system refuses: slower, not wrong.
    if (nodes) syscall(SYS_mbind, memory, bytes, MPOL_INTERLEAVE, &nodes, NODE_BITS, 0);
    struct header header = {memory - page, page + bytes};
    memcpy(memory - ALIGNMENT, &header, sizeof header);
    return memory;
}

void *cpu_memory_alloc_on(size_t bytes, uint64_t nodes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    if (bytes >= BIG) return map_big(bytes, nodes);
    size_t total = (bytes + ALIGNMENT + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *base = aligned_alloc(ALIGNMENT, total);
    if (!base) return NULL;
    memset(base, 0, total);
    struct header header = {base, 0};
    memcpy(base, &header, sizeof header);
    return (char *)base + ALIGNMENT;
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

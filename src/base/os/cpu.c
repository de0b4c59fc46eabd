#include "base/os/cpu.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/os/cgroup.h"
#include "base/os/cpu_topology.h"

#if defined(__x86_64__)
#include <cpuid.h>

enum {
    CPUID_BASIC = 1, // the leaf of the first features
    CPUID_FEATURES = 7, // and of extended ones
    ARCH_REQ_XCOMP_PERM = 0x1023, // of arch_prctl; older headers lack it
    XSTATE_TILE_CONFIG = 17, // bits of XCR0, and numbers of states that arch_prctl knows
    XSTATE_TILE_DATA = 18,
};

static bool has_bit(unsigned word, int bit) {
    return (word >> bit & 1u) != 0;
}

static uint32_t feature_if(bool has, enum cpu_feature feature) {
    return has ? (uint32_t)feature : 0;
}

// Whether the operating system keeps the tiles of a thread that it interrupts. XGETBV exists where
// AVX2 is enabled.
static bool has_tile_state(void) {
    unsigned xcr0, xcr0_high;
    __asm__("xgetbv" : "=a"(xcr0), "=d"(xcr0_high) : "c"(0));
    return has_bit(xcr0, XSTATE_TILE_CONFIG) && has_bit(xcr0, XSTATE_TILE_DATA);
}

uint32_t cpu_features(void) {
    unsigned a = 0, b = 0, c = 0, d = 0, a1 = 0, b1 = 0, c1 = 0, d1 = 0;
    __builtin_cpu_init();
    // GCC's and Clang's run-time library asks XGETBV too, so "supports" includes the OS's consent.
    bool f16c = __get_cpuid(CPUID_BASIC, &a, &b, &c, &d) && has_bit(c, 29);
    bool avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    uint32_t features = feature_if(avx2, CPU_AVX2) | feature_if(avx512, CPU_AVX512);
    // The rest are not known by name to every compiler.
    if (!avx2 || !__get_cpuid_count(CPUID_FEATURES, 0, &a, &b, &c, &d)) return features;
    if (a >= 1) __get_cpuid_count(CPUID_FEATURES, 1, &a1, &b1, &c1, &d1);
    bool tiles = has_bit(d, 24) && has_tile_state();
    features |= feature_if(has_bit(a1, 4), CPU_AVX_VNNI);
    features |= feature_if(avx512 && has_bit(c, 11), CPU_AVX512_VNNI);
    features |= feature_if(avx512 && has_bit(a1, 5), CPU_AVX512_BF16);
    features |= feature_if(__builtin_cpu_is("amd"), CPU_FAST_BF16);
    features |= feature_if(tiles && has_bit(d, 25), CPU_AMX_INT8);
    features |= feature_if(tiles && has_bit(d, 22), CPU_AMX_BF16);
    return features;
}

bool cpu_amx_request(void) {
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XSTATE_TILE_DATA) == 0;
}
#else
uint32_t cpu_features(void) {
    uint32_t features = 0;
#if defined(__aarch64__)
    unsigned long bits = getauxval(AT_HWCAP);
    if (bits & HWCAP_ASIMD) features |= CPU_NEON;
    if (bits & HWCAP_ASIMDDP) features |= CPU_NEON_DOTPROD;
#endif
    return features;
}

bool cpu_amx_request(void) {
    return false;
}
#endif

static int within_quota(long count) {
    uint64_t quota = cgroup_read(CGROUP_OF_PROCESS, CGROUP_MOUNTS).cores;
    if (count > 0 && quota < (uint64_t)count) count = (long)quota;
    return count > 0 ? (int)count : 1;
}

// False where the kernel has more CPUs than the set has bits.
static bool get_affinity(cpu_set_t *set) {
    return sched_getaffinity(0, sizeof *set, set) == 0;
}

int cpu_count(void) {
    cpu_set_t set;
    return within_quota(get_affinity(&set) ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN));
}

int cpu_core_count(void) {
    cpu_set_t set;
    if (!get_affinity(&set)) return cpu_count();
    return within_quota(cpu_topology_cores(CPU_TOPOLOGY_ROOT, &set));
}

uint64_t cpu_numa_nodes(void) {
    cpu_set_t set;
    return get_affinity(&set) ? cpu_topology_nodes(CPU_TOPOLOGY_ROOT, &set) : 0;
}

// Address space that `ulimit -v` leaves; UINT64_MAX: no limit.
static uint64_t address_space_left(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return UINT64_MAX;
    char text[64];
    bool ok = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    uint64_t pages = ok ? strtoull(text, NULL, 10) : 0;
    uint64_t used = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

enum { MEMORY_MIN = 4096 }; // said where none is left, because 0 is unknown

size_t cpu_memory_available_bytes(void) {
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file) return 0;
    char line[256];
    uint64_t available = 0;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "MemAvailable:", 13) == 0) {
            available = strtoull(line + 13, NULL, 10) * 1024;
            break;
        }
    }
    fclose(file);
    uint64_t group = cgroup_read(CGROUP_OF_PROCESS, CGROUP_MOUNTS).memory_bytes;
    uint64_t space = address_space_left();
    if (group < available) available = group;
    if (space < available) available = space;
    return available > MEMORY_MIN ? (size_t)available : MEMORY_MIN;
}

size_t cpu_peak_rss_bytes(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (size_t)usage.ru_maxrss * 1024;
}

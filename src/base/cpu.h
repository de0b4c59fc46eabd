/* What this machine's CPU can do and how many of its cores we may use. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>

struct cpu_features {
    bool avx2; // AVX2 + FMA + F16C, enabled by the operating system
    bool avx512; // AVX-512 F, BW, DQ, VL
    bool avx512_bf16; // dot products on bf16 pairs
    bool amx_bf16; // tiles; the operating system's permission is asked for separately
};

struct cpu_features cpu_features(void); // all false where not x86-64
int cpu_count(void); // cores of the affinity mask, within the cgroup's quota; >= 1
// Free + reclaimable now, within a cgroup limit; 0: unknown.
size_t cpu_memory_available_bytes(void);
size_t cpu_peak_rss_bytes(void); // this process's peak resident set

// One turn of a spin loop: tells the core that another one is waited for.
static inline void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif

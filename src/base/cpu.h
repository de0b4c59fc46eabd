/* What this machine's CPU can do and how many of its CPUs we may use. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpu_features {
    bool avx2; // AVX2 + FMA, enabled by the operating system
    bool avx_vnni; // AVX2 and dot products of 8-bit quads in its registers
    bool avx512; // AVX-512 F, BW, DQ, VL
    bool avx512_bf16; // AVX-512 dot products of bf16 pairs
    bool avx512_vnni; // AVX-512 dot products of 8-bit quads
    bool amx; // tile products of bf16 and int8; implies all of avx512, _bf16 and _vnni
    bool neon; // 64-bit ARM's vectors of 16 bytes
    bool neon_dotprod; // dot products of 8-bit quads
};

struct cpu_features cpu_features(void); // all false on other processors
// Asks the kernel to let all threads of this process use AMX tiles. False where the kernel refuses
// or does not know them (Linux before 5.16). May be called from any thread, any number of times.
bool cpu_amx_request(void);
int cpu_count(void); // CPUs of the affinity mask, within the cgroups' quotas; >= 1
int cpu_core_count(void); // the same, but CPUs that share a core count once
// NUMA nodes that have memory and CPUs of the affinity mask: bit n is node n; 0: unknown.
uint64_t cpu_numa_nodes(void);
// Memory that is free or reclaimable now, within the limits of the cgroups and of `ulimit -v`, at
// least a page; 0: unknown.
size_t cpu_memory_available_bytes(void);
size_t cpu_peak_rss_bytes(void); // this process's peak resident set

// One turn of a spin loop: tells the core that this thread waits for another.
static inline void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif

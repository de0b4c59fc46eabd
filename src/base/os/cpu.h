/* What this machine's CPU can do and how many of its CPUs we may use. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What the processor has and the operating system has enabled. A feature implies no other one, as
// virtual machines may hide any.
enum cpu_feature {
    CPU_AVX2 = 1 << 0, // AVX2, FMA and F16C
    CPU_AVX_VNNI = 1 << 1, // dot products of 8-bit quads in AVX2's registers
    CPU_AVX512 = 1 << 2, // AVX-512 F, BW, DQ, VL
    CPU_AVX512_VNNI = 1 << 3, // AVX-512 dot products of 8-bit quads
    CPU_AVX512_BF16 = 1 << 4, // AVX-512 dot products of bf16 pairs
    CPU_FAST_BF16 = 1 << 5, // those multiply more numbers than float32 does: on AMD's processors
    CPU_AMX_INT8 = 1 << 6, // tile products of bytes
    CPU_AMX_BF16 = 1 << 7, // tile products of bf16
    CPU_NEON = 1 << 8, // 64-bit ARM's vectors of 16 bytes
    CPU_NEON_DOTPROD = 1 << 9, // dot products of 8-bit quads
};

uint32_t cpu_features(void); // a set of enum cpu_feature
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

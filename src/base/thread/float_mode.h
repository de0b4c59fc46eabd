/* The floating-point mode of this thread: rounding, and whether subnormal numbers count as zero.
 * It belongs to the program. Libraries built with -ffast-math make subnormal numbers zero in the
 * thread that loads them, and threads inherit the mode of their creator. Our results must not
 * depend on that, so whatever computes is between enter and leave:
 * - an engine's creation (engine_group_create), and with it its threads,
 * - what a rank does that mpirun has started (mpi_worker_run),
 * - each loop of a thread pool, on every thread,
 * - what an op computes beside its loops: sampling. */
#ifndef BASE_FLOAT_MODE_H
#define BASE_FLOAT_MODE_H

#include <stdint.h>

// "memory" keeps the compiler from moving loads and stores of numbers across the change.
#if defined(__x86_64__)
enum {
    FLOAT_MODE_DEFAULT = 0x1f80, // of MXCSR: to nearest, no exception traps
    FLOAT_MODE_RAISED = 0x3f, // its flags of exceptions so far, which are no mode
};

static inline uint64_t float_mode_get(void) {
    uint32_t bits;
    __asm__ volatile("stmxcsr %0" : "=m"(bits)::"memory");
    return bits & ~(uint32_t)FLOAT_MODE_RAISED;
}

static inline void float_mode_set(uint64_t mode) {
    uint32_t bits = (uint32_t)mode;
    __asm__ volatile("ldmxcsr %0" ::"m"(bits) : "memory");
}
#elif defined(__aarch64__)
enum { FLOAT_MODE_DEFAULT = 0 }; // of FPCR: the same

static inline uint64_t float_mode_get(void) {
    uint64_t bits;
    __asm__ volatile("mrs %0, fpcr" : "=r"(bits)::"memory");
    return bits;
}

static inline void float_mode_set(uint64_t mode) {
    __asm__ volatile("msr fpcr, %0" ::"r"(mode) : "memory");
}
#else
enum { FLOAT_MODE_DEFAULT = 0 };

static inline uint64_t float_mode_get(void) {
    return FLOAT_MODE_DEFAULT; // unknown, and left alone
}

static inline void float_mode_set(uint64_t mode) {
    (void)mode;
}
#endif

// Sets the default mode. Returns the mode before, for float_mode_leave.
static inline uint64_t float_mode_enter(void) {
    uint64_t before = float_mode_get();
    if (before != FLOAT_MODE_DEFAULT) float_mode_set(FLOAT_MODE_DEFAULT);
    return before;
}

static inline void float_mode_leave(uint64_t before) {
    if (before != FLOAT_MODE_DEFAULT) float_mode_set(before);
}

#endif

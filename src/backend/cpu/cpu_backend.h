/* The CPU backend's own state, shared by its ops: the thread pool, the kernels chosen for this
 * machine and the scratch memory that ops use. Scratch grows only when a linear or a KV cache is
 * created, never in an op. Everything the ops take as "dev" is ordinary memory here. */
#ifndef BACKEND_CPU_CPU_BACKEND_H
#define BACKEND_CPU_CPU_BACKEND_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/thread/thread_pool.h"

struct cpu_backend {
    struct backend base; // first
    struct thread_pool *pool;
    uint64_t nodes; // that weights and KV caches are spread over; 0: the system chooses
    struct cpu_kernels kernels; // chosen for this machine
    void *linear_scratch; // [linear_scratch_in][LINEAR_SCRATCH_BYTES]: rows of x, packed
    float *linear_x_scale; // [LINEAR_SCRATCH_BYTES], one for each row of bytes
    float *linear_sums; // [num_threads][LINEAR_SUMS]
    uint32_t linear_scratch_in;
    float *attention_scratch; // [num_threads][attention_scratch_floats(attention_scratch_head_dim)]
    uint32_t attention_scratch_head_dim;
};

// Creates the backend for options->device "cpu" (or "auto"). Refused with a sentence: an ISA that
// is unknown or that this machine lacks, a thread count out of range, another weight type.
MUST_USE enum status cpu_backend_create(struct backend **out, const struct backend_options *options,
                                        struct err *err);

static inline struct cpu_backend *cpu_backend_of(struct backend *backend) {
    return (struct cpu_backend *)backend; // base is the first member
}

static inline const struct cpu_backend *cpu_backend_of_const(const struct backend *backend) {
    return (const struct cpu_backend *)backend;
}

#endif

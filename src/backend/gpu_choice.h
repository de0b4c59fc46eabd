/* Which GPUs a device's name gives to the ranks of a host, in their order:
 *     "kind"     GPU 0 and those after it, likewise "auto"
 *     "kind:N"   GPU N and those after it
 *     "kind:N,M" these GPUs. Ranks share a GPU that is named twice, and take turns on it: that is
 *                slow, and runs several ranks where there is one GPU.
 * Kinds are those of device_list.h. GPUs are numbered as their driver numbers those that the
 * process sees. */
#ifndef BACKEND_GPU_CHOICE_H
#define BACKEND_GPU_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/err.h"

enum { GPU_CHOICE_MAX = 64 };

struct gpu_choice {
    const char *kind; // borrowed
    uint32_t count; // of `listed`; 0 or 1: the other ranks take the GPUs after the first's
    uint16_t listed[GPU_CHOICE_MAX];
};

// False: it is no name of GPUs of that kind. NULL is "auto".
bool gpu_choice_parse(struct gpu_choice *out, const char *kind, const char *device);
// "3" or "0,2", to the end of the text.
bool gpu_choice_parse_list(struct gpu_choice *out, const char *text);
// ERR_INVALID: it lists GPUs, and not one for each rank of the host.
MUST_USE enum status gpu_choice_check(const struct gpu_choice *choice, uint32_t num_ranks,
                                      struct err *err);
// The GPU of a rank, of the `num_gpus` that there are. ERR_UNSUPPORTED: there is none for it.
MUST_USE enum status gpu_choice_of_rank(const struct gpu_choice *choice, uint32_t rank_on_host,
                                        uint32_t num_gpus, uint32_t *gpu, struct err *err);
// How many ranks share the GPU, this one included.
uint32_t gpu_choice_num_sharing(const struct gpu_choice *choice, uint32_t gpu);

#endif

/* The functions of libnccl that we call, looked up at run time. NCCL's header is not needed: this
 * declares the part of its interface that has stayed the same since version 2.4. */
#ifndef BACKEND_CUDA_RANKS_NCCL_LIBRARY_H
#define BACKEND_CUDA_RANKS_NCCL_LIBRARY_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "base/err.h"

struct nccl_id { // ncclUniqueId
    char bytes[128];
};

struct nccl_communicator; // ncclComm_t points to it

// Of ncclDataType_t and ncclRedOp_t.
enum { NCCL_FLOAT32 = 7, NCCL_BFLOAT16 = 9, NCCL_SUM = 0 };

// Functions return ncclResult_t: 0 is success.
struct nccl_library {
    void *handle; // from dlopen
    const char *(*error_string)(int result);
    int (*get_unique_id)(struct nccl_id *id);
    int (*init_rank)(struct nccl_communicator **out, int num_ranks, struct nccl_id id, int rank);
    int (*end)(struct nccl_communicator *communicator);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int op,
                      struct nccl_communicator *communicator, cudaStream_t stream);
    int (*all_gather)(const void *from, void *to, size_t count, int type,
                      struct nccl_communicator *communicator, cudaStream_t stream);
};

// ERR_UNSUPPORTED if the library or a function is missing; the message names it.
MUST_USE enum status nccl_library_open(struct nccl_library *library, struct err *err);
void nccl_library_close(struct nccl_library *library); // all-zero is fine

#endif

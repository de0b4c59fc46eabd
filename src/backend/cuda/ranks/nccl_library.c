#include "backend/cuda/ranks/nccl_library.h"

#include <dlfcn.h>
#include <string.h>

#include "base/compiler.h"

#define LIBRARY "libnccl.so.2"

struct symbol {
    const char *name;
    void *target; // address of a function pointer
};

enum status nccl_library_open(struct nccl_library *library, struct err *err) {
    // NCCL has threads of its own, which may run its code after its last call: it is never
    // unloaded.
    const int how = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    *library = (struct nccl_library){.handle = dlopen(LIBRARY, how)};
    if (!library->handle) {
        return err_set(err, ERR_UNSUPPORTED,
                       "GPUs that do not reach each other's memory need " LIBRARY
                       " (NCCL), which is not in the library path");
    }
    const struct symbol symbols[] = {
        {"ncclGetErrorString", &library->error_string},
        {"ncclGetUniqueId", &library->get_unique_id},
        {"ncclCommInitRank", &library->init_rank},
        {"ncclCommAbort", &library->end},
        {"ncclAllReduce", &library->all_reduce},
        {"ncclAllGather", &library->all_gather},
    };
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        void *address = dlsym(library->handle, symbols[i].name);
        if (!address) {
            nccl_library_close(library);
            return err_set(err, ERR_UNSUPPORTED, LIBRARY " has no %s", symbols[i].name);
        }
        // Object to function pointer, which POSIX allows.
        memcpy(symbols[i].target, &address, sizeof address);
    }
    return OK;
}

void nccl_library_close(struct nccl_library *library) {
    if (library->handle) dlclose(library->handle);
    *library = (struct nccl_library){0};
}

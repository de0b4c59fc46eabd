#include "backend/cuda/gemm/gemm_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/thread/thread_start.h"

// The file name has the major version whose types this was compiled with.
#define STRING_OF_(x) #x
#define STRING_OF(x) STRING_OF_(x)
#define LIBRARY "libcublasLt.so." STRING_OF(CUBLAS_VER_MAJOR)

struct symbol {
    const char *name;
    void *target; // address of a function pointer
};

static enum status find(struct gemm_library *library, const struct symbol *symbols, size_t count,
                        struct err *err) {
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library->handle, symbols[i].name);
        if (!address) {
            return err_set(err, ERR_UNSUPPORTED, LIBRARY " has no %s", symbols[i].name);
        }
        // Object to function pointer, which POSIX allows.
        memcpy(symbols[i].target, &address, sizeof address);
    }
    return OK;
}

// It stays loaded: bench and chat make a second backend, and loading takes a while.
static void *load_library(void) {
    static const char *const paths[] = {LIBRARY, "/usr/local/cuda/lib64/" LIBRARY};
    void *handle = NULL;
    for (size_t i = 0; i < ARRAY_LEN(paths) && !handle; i++) {
        handle = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    return handle;
}

static void *load_and_close(void *arg) {
    void *handle = load_library();
    if (handle) dlclose(handle);
    return arg;
}

void gemm_library_begin(struct gemm_library_load *load) {
    load->is_started = thread_start(&load->thread, NULL, load_and_close, NULL) == 0;
}

void gemm_library_wait(struct gemm_library_load *load) {
    if (load->is_started) pthread_join(load->thread, NULL);
    load->is_started = false;
}

enum status gemm_library_open(struct gemm_library *library, struct err *err) {
    *library = (struct gemm_library){.handle = load_library()};
    if (!library->handle) {
        return err_set(err, ERR_UNSUPPORTED,
                       "device cuda needs " LIBRARY " (cuBLAS), which is neither in the library "
                       "path nor in /usr/local/cuda/lib64");
    }
    const struct symbol symbols[] = {
        {"cublasLtCreate", &library->create},
        {"cublasLtDestroy", &library->destroy},
        {"cublasLtGetVersion", &library->version},
        {"cublasLtMatmul", &library->matmul},
        {"cublasLtMatmulDescCreate", &library->desc_create},
        {"cublasLtMatmulDescDestroy", &library->desc_destroy},
        {"cublasLtMatmulDescSetAttribute", &library->desc_set},
        {"cublasLtMatrixLayoutCreate", &library->layout_create},
        {"cublasLtMatrixLayoutDestroy", &library->layout_destroy},
        {"cublasLtMatmulPreferenceCreate", &library->preference_create},
        {"cublasLtMatmulPreferenceDestroy", &library->preference_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", &library->preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", &library->heuristic},
        {"cublasLtMatmulAlgoConfigSetAttribute", &library->algo_set},
        {"cublasLtMatmulAlgoCheck", &library->algo_check},
    };
    enum status status = find(library, symbols, ARRAY_LEN(symbols), err);
    if (status) gemm_library_close(library);
    return status;
}

void gemm_library_close(struct gemm_library *library) {
    if (library->handle) dlclose(library->handle);
    *library = (struct gemm_library){0};
}

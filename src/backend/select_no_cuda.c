#include "backend/select.h"

enum status select_cuda_available(struct err *err) {
    return err_set(err, ERR_UNSUPPORTED,
                   "device cuda: this program was built without CUDA (want -DNANOVLLM_CUDA=ON)");
}

enum status select_cuda_create(struct backend **out, const struct backend_options *options,
                               struct err *err) {
    (void)options;
    *out = NULL;
    return select_cuda_available(err);
}

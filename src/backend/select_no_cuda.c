#include "backend/select.h"

enum status select_cuda_available(struct err *err) {
    return err_set(err, ERR_UNSUPPORTED,
                   "device cuda: this program was built without CUDA (want -DNANOVLLM_CUDA=ON)");
}

bool select_cuda_describe(uint32_t gpu, char text[SELECT_GPU_BYTES]) {
    (void)gpu, (void)text;
    return false;
}

enum status select_cuda_create(struct backend **out, const struct backend_options *options,
                               struct err *err) {
    (void)options;
    *out = NULL;
    return select_cuda_available(err);
}

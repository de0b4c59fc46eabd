/* Device cuda in a build without it. */
#include "backend/device_list.h"

static enum status cuda_not_available(struct err *err) {
    return err_set(err, ERR_UNSUPPORTED,
                   "device cuda: this program was built without CUDA (want -DNANOVLLM_CUDA=ON)");
}

static enum status cuda_describe(uint32_t number, char text[DEVICE_TEXT_BYTES], struct err *err) {
    (void)number, (void)err;
    text[0] = '\0';
    return OK;
}

static enum status cuda_create(struct backend **out, const struct backend_options *options,
                               struct err *err) {
    (void)options;
    *out = NULL;
    return cuda_not_available(err);
}

const struct device_kind device_cuda = {
    .name = "cuda",
    .title = "GPU",
    .has_numbers = true,
    .available = cuda_not_available,
    .describe = cuda_describe,
    .create = cuda_create,
};

#include "engine/devices.h"

#include "backend/select.h"

enum status devices_describe(struct buf *out, int width, struct err *err) {
    const struct backend_options options = {.device = "cpu", .weight_dtype = DTYPE_BF16};
    struct backend *cpu = NULL;
    enum status status = backend_create(&cpu, &options, err);
    if (!status) {
        status = buf_appendf(out, err, "%-*s%s\n", width, "device", cpu->description);
    }
    backend_destroy(cpu);
    struct err why = {0};
    if (!status && select_cuda_available(&why)) {
        return buf_appendf(out, err, "%-*snone: %s\n", width, "GPU", why.message);
    }
    char text[SELECT_GPU_BYTES];
    for (uint32_t i = 0; !status && select_cuda_describe(i, text); i++) {
        status = buf_appendf(out, err, "%-*scuda:%u %s\n", width, "device", i, text);
    }
    return status;
}

/* Device cpu, which is always there. */
#include <stdio.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/device_list.h"

static enum status cpu_available(struct err *err) {
    (void)err;
    return OK;
}

static enum status cpu_describe(uint32_t number, char text[DEVICE_TEXT_BYTES], struct err *err) {
    const struct backend_options options = {.device = "cpu", .weight_dtype = DTYPE_BF16};
    struct backend *cpu = NULL;
    text[0] = '\0';
    if (number) return OK;
    enum status status = cpu_backend_create(&cpu, &options, err);
    if (!status) snprintf(text, DEVICE_TEXT_BYTES, "%s", cpu->description);
    backend_destroy(cpu);
    return status;
}

const struct device_kind device_cpu = {
    .name = "cpu",
    .title = "CPU",
    .available = cpu_available,
    .describe = cpu_describe,
    .create = cpu_backend_create,
};

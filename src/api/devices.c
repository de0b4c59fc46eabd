#include "api/devices.h"

#include "engine/devices.h"

bool api_devices_variable(uint32_t index, const char **name, const char **value) {
    return devices_variable(index, name, value);
}

enum status api_devices_describe(struct buf *out, int width, struct err *err) {
    return devices_describe(out, width, err);
}

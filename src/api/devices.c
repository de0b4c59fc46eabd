#include "api/devices.h"

#include "engine/devices.h"

enum status api_devices_describe(struct buf *out, int width, struct err *err) {
    return devices_describe(out, width, err);
}

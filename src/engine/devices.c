#include "engine/devices.h"

#include "backend/device_list.h"

// A line for each device of the kind, or why there is none.
static enum status describe_kind(const struct device_kind *kind, struct buf *out, int width,
                                 struct err *err) {
    struct err why = {0};
    if (kind->available(&why)) {
        return buf_appendf(out, err, "%-*snone: %s\n", width, kind->title, why.message);
    }
    char text[DEVICE_TEXT_BYTES];
    for (uint32_t i = 0;; i++) {
        enum status status = kind->describe(i, text, err);
        if (status || !text[0]) return status;
        status = kind->has_numbers
                     ? buf_appendf(out, err, "%-*s%s:%u %s\n", width, "device", kind->name, i, text)
                     : buf_appendf(out, err, "%-*s%s\n", width, "device", text);
        if (status) return status;
    }
}

bool devices_variable(uint32_t index, const char **name, const char **value) {
    for (uint32_t i = 0; i < device_list_count(); i++) {
        const struct device_variable *variable = &device_list_get(i)->variable;
        if (!variable->name || index--) continue;
        *name = variable->name;
        *value = variable->value;
        return true;
    }
    return false;
}

// From the last device of the list, the CPU, to the first.
enum status devices_describe(struct buf *out, int width, struct err *err) {
    enum status status = OK;
    for (uint32_t i = device_list_count(); i && !status; i--) {
        status = describe_kind(device_list_get(i - 1), out, width, err);
    }
    return status;
}

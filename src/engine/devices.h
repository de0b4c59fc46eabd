/* Describes the devices on which this program can run models. */
#ifndef ENGINE_DEVICES_H
#define ENGINE_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text/buf.h"

// Appends lines of "<title padded>text": the CPU with its instruction set, and each GPU, or why
// there is none. `width` is the title's column.
MUST_USE enum status devices_describe(struct buf *out, int width, struct err *err);

// See api/devices.h.
bool devices_variable(uint32_t index, const char **name, const char **value);

#endif

/* What the program nanovllm calls to say what it can run models on. It is not public: it is text
 * for people. */
#ifndef API_DEVICES_H
#define API_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text/buf.h"

// See engine/devices.h.
MUST_USE enum status api_devices_describe(struct buf *out, int width, struct err *err);

// Variables of the environment that a program may set before it opens one device, each only if it
// is not set: a start is shorter. False: there are no more.
bool api_devices_variable(uint32_t index, const char **name, const char **value);

#endif

/* What the program nanovllm calls to say what it can run models on. It is not public: it is text
 * for people. */
#ifndef API_DEVICES_H
#define API_DEVICES_H

#include "base/text/buf.h"

// See engine/devices.h.
MUST_USE enum status api_devices_describe(struct buf *out, int width, struct err *err);

#endif

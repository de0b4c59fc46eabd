/* The option target_itl: how prompts are divided so that other sequences get their tokens steadily
 * (schedule/pacer.h). */
#ifndef ENGINE_TARGET_ITL_H
#define ENGINE_TARGET_ITL_H

#include "base/err.h"
#include "engine/schedule/pacer.h"
#include "nanovllm.h"

// ERR_UNSUPPORTED: there is a target, but the schedule runs prompts and decodes in steps of their
// own, which no part of a prompt can shorten. There auto is off.
MUST_USE enum status target_itl_read(struct pace_options *out,
                                     const struct nvllm_engine_options *options, struct err *err);
// Logs that steps take `seconds` even with the shortest parts of prompts, longer than the target.
void target_itl_tell_missed(const struct pace_options *options, double seconds);

#endif

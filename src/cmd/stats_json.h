/* The engine's counters as a JSON object, for --stats and bench --json. */
#ifndef CMD_STATS_JSON_H
#define CMD_STATS_JSON_H

#include "base/text/buf.h"
#include "nanovllm.h"

// The counters of `after` minus those of `before` (which may be all-zero). Peaks and sizes are
// those of `after`.
struct nvllm_stats stats_since(const struct nvllm_stats *before, const struct nvllm_stats *after);
// Appends the members, one per line with `indent` spaces, without braces or a last comma.
MUST_USE enum status stats_json_members(struct buf *out, const struct nvllm_stats *stats,
                                        double total_seconds, int indent, struct err *err);

#endif

/* --trace FILE, the same for every command that has it: opened before the model is loaded, given to the
 * engine when the run begins, closed when it ends. Without a path nothing happens. */
#ifndef CMD_TRACE_H
#define CMD_TRACE_H

#include "base/err.h"
#include "nanovllm.h"

#define TRACE_HELP "write each step of the engine to a file that ui.perfetto.dev shows, as JSON"

struct trace {
    const char *path; // NULL: not given
    struct nvllm_trace_file *file;
};

// ERR_INVALID where the path is a file of the model.
MUST_USE enum status trace_open(struct trace *trace, const char *model, struct err *err);
MUST_USE enum status trace_begin(struct trace *trace, struct nvllm_engine *engine, struct err *err);
// The engine is told no more. Reports what could not be written. `engine` NULL: it was not made, and
// the file keeps its old content.
MUST_USE enum status trace_close(struct trace *trace, struct nvllm_engine *engine, struct err *err);
// After the engine is gone, where trace_close was not reached.
void trace_abandon(struct trace *trace);

#endif

/* --trace FILE, for every command that has it. The file is opened before the model is loaded. The
 * engine gets it when the run begins, and it is closed when the run ends. Without a path these do
 * nothing. */
#ifndef CMD_TRACE_H
#define CMD_TRACE_H

#include "base/err.h"
#include "nanovllm.h"

#define TRACE_HELP "write each step of the engine to a file that ui.perfetto.dev shows, as JSON"

struct trace {
    const char *path; // NULL: not given
    struct nvllm_trace_file *file;
};

// ERR_INVALID: the path is a file of the model.
MUST_USE enum status trace_open(struct trace *trace, const char *model, struct err *err);
MUST_USE enum status trace_begin(struct trace *trace, struct nvllm_engine *engine, struct err *err);
// Stops observing and closes the file. An error says that steps could not be written. `engine`
// NULL: it was never made, and the file keeps its old content.
MUST_USE enum status trace_close(struct trace *trace, struct nvllm_engine *engine, struct err *err);
// Call after the engine is destroyed, if trace_close was not reached.
void trace_abandon(struct trace *trace);

#endif

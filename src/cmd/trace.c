#include "cmd/trace.h"

#include <stddef.h>

#include "cmd/cli.h"
#include "cmd/model/file_uses.h"

enum status trace_open(struct trace *trace, const char *model, struct err *err) {
    if (!trace->path) return OK;
    enum status status = file_uses_spare_model(trace->path, model, err);
    if (status) return status;
    struct nvllm_error error = {0};
    return cli_status(nvllm_trace_file_open(&trace->file, trace->path, &error), &error, err);
}

enum status trace_begin(struct trace *trace, struct nvllm_engine *engine, struct err *err) {
    if (!trace->file) return OK;
    struct nvllm_error error = {0};
    return cli_status(nvllm_engine_observe(engine, nvllm_trace_file_step, trace->file, &error),
                      &error, err);
}

enum status trace_close(struct trace *trace, struct nvllm_engine *engine, struct err *err) {
    if (!engine) trace_abandon(trace);
    if (!trace->file) return OK;
    struct nvllm_trace_file *file = trace->file;
    struct nvllm_error error = {0};
    trace->file = NULL;
    nvllm_engine_observe(engine, NULL, NULL, NULL);
    return cli_status(nvllm_trace_file_close(file, &error), &error, err);
}

void trace_abandon(struct trace *trace) {
    nvllm_trace_file_abandon(trace->file);
    trace->file = NULL;
}

/* Says that a model is being loaded: a bar on a terminal, erased at the end; elsewhere one line,
 * for models that take longer than a moment. */
#ifndef CMD_LOADING_H
#define CMD_LOADING_H

#include "cmd/terminal/progress.h"
#include "nanovllm.h"

struct loading {
    struct progress progress;
    struct nvllm_load_progress callback; // for nvllm_engine_options
    char label[128]; // "Loading Qwen3-0.6B"
    const char *model; // borrowed
    bool is_told; // the line is printed, or is not needed
};

// *loading must stay where it is until the end.
void loading_begin(struct loading *loading, const char *model);
void loading_end(struct loading *loading);

// The last part of a folder's path.
const char *loading_model_name(const char *model);
// "loading Qwen3-0.6B, 596 million parameters"
void loading_sentence(char *out, size_t size, const char *name, uint64_t num_parameters);

#endif

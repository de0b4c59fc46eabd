#include "cmd/terminal/loading.h"

#include <stdio.h>
#include <string.h>

#include "cmd/cli.h"

static const uint64_t line_parameters_min = 100000000; // fewer are loaded in less than a second

const char *loading_model_name(const char *model) {
    const char *slash = strrchr(model, '/');
    return slash && slash[1] ? slash + 1 : model;
}

void loading_sentence(char *out, size_t size, const char *name, uint64_t num_parameters) {
    bool is_large = num_parameters >= 1000000000;
    snprintf(out, size, "loading %s, %.*f %s parameters", name, is_large,
             (double)num_parameters / (is_large ? 1e9 : 1e6), is_large ? "billion" : "million");
}

static void on_loaded(uint64_t num_loaded, uint64_t num_parameters, void *user_data) {
    struct loading *loading = user_data;
    progress_share(&loading->progress, num_loaded, num_parameters);
    if (loading->is_told) return;
    loading->is_told = true;
    if (loading->progress.enabled || num_parameters < line_parameters_min) return;
    char line[256];
    loading_sentence(line, sizeof line, loading_model_name(loading->model), num_parameters);
    cli_say("%s", line);
}

void loading_begin(struct loading *loading, const char *model) {
    *loading = (struct loading){.model = model,
                                .callback = {.on_loaded = on_loaded, .user_data = loading}};
    snprintf(loading->label, sizeof loading->label, "Loading %s", loading_model_name(model));
    progress_init(&loading->progress, loading->label, true, 0);
    progress_share(&loading->progress, 0, 1);
}

void loading_end(struct loading *loading) {
    progress_clear(&loading->progress);
}

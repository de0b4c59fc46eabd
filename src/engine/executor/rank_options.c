#include "engine/executor/rank_options.h"

#include <string.h>

#include "engine/params/params.h"

// The string fields of options, by the parameter table. NULL past the end.
static const char **string_field(struct nvllm_engine_options *options, size_t number) {
    for (size_t i = 0; params_engine_option(i); i++) {
        const struct nvllm_param *param = params_engine_option(i);
        if (param->type != NVLLM_PARAM_STRING || number--) continue;
        return (const char **)(void *)((char *)options + param->offset);
    }
    return NULL;
}

// A NULL string takes no bytes, others end with their NUL.
size_t rank_options_bytes(struct nvllm_engine_options options) {
    size_t bytes = sizeof options;
    const char **field;
    for (size_t i = 0; (field = string_field(&options, i)); i++) {
        if (*field) bytes += strlen(*field) + 1;
    }
    return bytes;
}

void rank_options_write(char *out, struct nvllm_engine_options options) {
    char *text = out + sizeof options;
    const char **field;
    for (size_t i = 0; (field = string_field(&options, i)); i++) {
        if (!*field) continue;
        size_t len = strlen(*field) + 1;
        memcpy(text, *field, len);
        text += len;
    }
    options.interrupt = NULL; // and no other pointer of this process
    options.load_progress = NULL;
    options.download_progress = NULL;
    memcpy(out, &options, sizeof options);
}

void rank_options_read(const char *bytes, struct nvllm_engine_options *out) {
    const char *text = bytes + sizeof *out;
    memcpy(out, bytes, sizeof *out);
    const char **field;
    for (size_t i = 0; (field = string_field(out, i)); i++) {
        if (!*field) continue;
        *field = text; // what it holds is a pointer of the process that wrote it
        text += strlen(text) + 1;
    }
}

/* `nanovllm rm` removes models from the Hugging Face cache. */
#include <stddef.h>

#include "cmd/cli.h"
#include "hub/hub_models.h"

struct removal_options {
    const char *revision; // NULL: not given
};

static const struct nvllm_param *own_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"revision", NVLLM_PARAM_STRING, offsetof(struct removal_options, revision), 0, 0, NULL,
         "remove this branch, tag or commit alone; default: the whole model"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static const char details[] =
    "Removes each NAME, such as Qwen/Qwen3-0.6B, from the Hugging Face cache, for all\n"
    "programs that use it. NAME:Q4_K_M is one of several GGUF files. Bytes that\n"
    "another revision uses stay. Nothing is removed while files of the model are\n"
    "downloaded.\n";

int cmd_rm(int argc, char **argv) {
    struct removal_options own = {0};
    const struct option_group groups[] = {{.title = "Options", .row = own_option, .target = &own}};
    struct options options = {.command = "rm",
                              .synopsis = "[options] NAME...",
                              .details = details,
                              .groups = groups,
                              .num_groups = ARRAY_LEN(groups)};
    int exit_code;
    if (!cli_parse(&options, argc, argv, &exit_code)) return exit_code;
    if (!options.num_args) {
        return cli_usage_error(&options, "no name given; nanovllm list shows them");
    }
    struct err err = {0};
    struct hub_settings settings;
    enum status status = hub_settings_read(&settings, &err);
    for (size_t i = 0; i < options.num_args && !status; i++) {
        uint64_t num_bytes;
        status = hub_models_remove(&num_bytes, &settings, options.args[i], own.revision, &err);
        if (!status) cli_say("removed %s, %.1f MB", options.args[i], (double)num_bytes / 1e6);
    }
    return status ? cli_error("%s", err.message) : CLI_OK;
}

/* `nanovllm pull` downloads models by name into the Hugging Face cache, or brings them up to
 * date. */
#include <stddef.h>
#include <stdio.h>

#include "cmd/cli.h"
#include "cmd/model/downloading.h"
#include "cmd/terminal/interrupt.h"
#include "hub/hub.h"

struct pull {
    const char *revision, *quant; // NULL: not given
};

static const struct nvllm_param *own_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"revision", NVLLM_PARAM_STRING, offsetof(struct pull, revision), 0, 0, NULL,
         "branch, tag or commit of the model; default: main"},
        {"quant", NVLLM_PARAM_STRING, offsetof(struct pull, quant), 0, 0, NULL,
         "GGUF file of the model, such as Q4_K_M; default: safetensors, else Q4_K_M or Q8_0"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static const char details[] =
    "Downloads each NAME, such as Qwen/Qwen3-0.6B, into the Hugging Face cache, and\n"
    "prints where it lies. What is there already is not fetched again, and a download\n"
    "that was interrupted goes on. NAME:Q4_K_M is one of several GGUF files.\n";

static const char epilogue[] =
    "The cache is in ~/.cache/huggingface/hub, or where HF_HUB_CACHE, HF_HOME or\n"
    "XDG_CACHE_HOME say. A private or gated model needs HF_TOKEN, or the token that\n"
    "hf auth login keeps. HF_ENDPOINT names another server, HF_HUB_DOWNLOAD_TIMEOUT\n"
    "the seconds without a byte after which a request is tried again.\n";

static void forward(const struct hub_progress *progress, void *user_data) {
    const struct nvllm_download download = {.num_bytes = progress->num_bytes,
                                            .total_bytes = progress->total_bytes,
                                            .num_files = progress->num_files,
                                            .total_files = progress->total_files};
    downloading_tell(&download, user_data);
}

static enum status pull_one(const struct pull *pull, const char *name, struct err *err) {
    char path[FILE_PATH_MAX];
    struct downloading downloading;
    bool is_new = false;
    const struct hub_request request = {
        .model = name, .revision = pull->revision, .quant = pull->quant, .download = true};
    const struct interrupt interrupt = {.is_wanted = interrupt_question.is_wanted};
    const struct hub_watch watch = {
        .interrupt = &interrupt, .on_progress = forward, .user_data = &downloading};
    downloading_begin(&downloading, name);
    enum status status = hub_pull(path, &is_new, &request, &watch, err);
    downloading_end(&downloading, status == OK);
    if (status) return status;
    if (!is_new && !downloading.is_told) cli_say("%s is up to date", name);
    printf("%s\n", path);
    return OK;
}

int cmd_pull(int argc, char **argv) {
    struct pull pull = {0};
    const struct option_group groups[] = {{.title = "Options", .row = own_option, .target = &pull}};
    struct options options = {.command = "pull",
                              .synopsis = "[options] NAME...",
                              .details = details,
                              .epilogue = epilogue,
                              .groups = groups,
                              .num_groups = ARRAY_LEN(groups)};
    int exit_code;
    if (!cli_parse(&options, argc, argv, &exit_code)) return exit_code;
    if (!options.num_args) {
        return cli_usage_error(&options, "no name given, such as Qwen/Qwen3-0.6B");
    }
    struct err err = {0};
    enum status status = OK;
    for (size_t i = 0; i < options.num_args && !status; i++) {
        status = pull_one(&pull, options.args[i], &err);
    }
    return status ? cli_error("%s", err.message) : CLI_OK;
}

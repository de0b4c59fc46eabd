#include "cmd/model/foreign.h"

#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"

#define GET_A_MODEL "a model is a folder: hf download Qwen/Qwen3-0.6B --local-dir DIR, then -m DIR"
#define ONE_DEVICE "the whole model runs on it"

static const struct foreign_flag flags[] = {
    // llama.cpp's.
    {"-ngl", "device", ONE_DEVICE},
    {"--gpu-layers", "device", ONE_DEVICE},
    {"--n-gpu-layers", "device", ONE_DEVICE},
    {"--ctx-size", "max_model_len", NULL},
    {"--predict", "max_tokens", NULL},
    {"--n-predict", "max_tokens", NULL},
    {"-np", "max_num_seqs", NULL},
    {"--parallel", "max_num_seqs", NULL},
    {"-b", "max_num_batched_tokens", NULL},
    {"-ub", "max_num_batched_tokens", NULL},
    {"--batch-size", "max_num_batched_tokens", NULL},
    {"--ubatch-size", "max_num_batched_tokens", NULL},
    {"-ctk", "kv_cache_dtype", "keys and values have the same"},
    {"-ctv", "kv_cache_dtype", "keys and values have the same"},
    {"--cache-type-k", "kv_cache_dtype", "keys and values have the same"},
    {"--cache-type-v", "kv_cache_dtype", "keys and values have the same"},
    {"--repeat-penalty", "repetition_penalty", NULL},
    {"-sys", "system", NULL},
    {"--system-prompt", "system", NULL},
    {"--chat-template-file", "chat_template", NULL},
    {"-cnv", NULL, "nanovllm chat is a conversation"},
    {"--conversation", NULL, "nanovllm chat is a conversation"},
    {"-fa", NULL, "attention needs no flag"},
    {"--flash-attn", NULL, "attention needs no flag"},
    {"--jinja", NULL, "the model's chat template is always used"},
    {"-hf", NULL, GET_A_MODEL},
    {"-hfr", NULL, GET_A_MODEL},
    {"--hf-repo", NULL, GET_A_MODEL},
    // vLLM's.
    {"-tp", "tensor_parallel_size", NULL},
    {"-dp", "data_parallel_size", NULL},
    {"--enable-auto-tool-choice", NULL, "tool calls are found without it"},
    {"--trust-remote-code", NULL, "no code of a model is run"},
};

static const struct {
    const char *theirs, *instead;
} commands[] = {
    {"run", "chat talks with a model, generate completes a text"},
    {"complete", "generate completes a text"},
    {"cli", "chat talks with a model, generate completes a text"},
    {"pull", GET_A_MODEL},
    {"download", GET_A_MODEL},
    {"list", "a model is a folder, and no list of them is kept"},
    {"ls", "a model is a folder, and no list of them is kept"},
    {"rm", "a model is a folder, and no list of them is kept"},
    {"ps", "nothing runs in the background; GET /v1/models asks a server for its model"},
    {"stop", "Ctrl-C or SIGTERM ends a server"},
    {"show", "inspect shows a model"},
    {"run-batch", "generate --input FILE takes a request on each line"},
};

const struct foreign_flag *foreign_flag_find(const char *flag, size_t len) {
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        bool is_it = strlen(flags[i].theirs) == len && memcmp(flags[i].theirs, flag, len) == 0;
        if (is_it) return &flags[i];
    }
    return NULL;
}

const char *foreign_command(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(commands[i].theirs, name) == 0) return commands[i].instead;
    }
    return NULL;
}

#include "cmd/options/option_group.h"

#include <float.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

const struct nvllm_param *option_group_next(const struct option_group *group, size_t *index) {
    const struct nvllm_param *row;
    while ((row = group->row((*index)++))) {
        if (!group->hidden || strcmp(group->hidden, row->name) != 0) return row;
    }
    return NULL;
}

char option_letter(const struct nvllm_param *row) {
    static const struct {
        const char *row;
        char letter;
    } letters[] = {
        {"model", 'm'},      {"prompt", 'p'},  {"input_len", 'p'},     {"max_tokens", 'n'},
        {"output_len", 'n'}, {"threads", 't'}, {"max_model_len", 'c'}, {"seed", 's'},
    };
    for (size_t i = 0; i < ARRAY_LEN(letters); i++) {
        if (strcmp(letters[i].row, row->name) == 0) return letters[i].letter;
    }
    return 0;
}

static void spell(char flag[OPTION_FLAG_BYTES_MAX], const char *prefix, const char *name) {
    snprintf(flag, OPTION_FLAG_BYTES_MAX, "--%s%s", prefix, name);
    for (char *c = flag; *c; c++) {
        if (*c == '_') *c = '-';
    }
}

size_t option_spellings(const struct nvllm_param *row,
                        char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX]) {
    size_t count = 0;
    spell(flags[count++], "", row->name);
    if (row->type != NVLLM_PARAM_BOOL) return count;
    if (strncmp(row->name, "enable_", 7) == 0) spell(flags[count++], "disable-", row->name + 7);
    spell(flags[count++], "no-", row->name);
    return count;
}

const char *option_value_name(const struct nvllm_param *row) {
    static const struct {
        const char *row, *value;
    } names[] = {
        {"model", "DIR"},           {"cache_dir", "DIR"},
        {"input", "FILE"},          {"output", "FILE"},
        {"stats", "FILE"},          {"load", "FILE"},
        {"trace", "FILE"},          {"chat_template", "FILE"},
        {"worker_program", "FILE"}, {"uds", "PATH"},
        {"ssl_certfile", "FILE"},   {"ssl_keyfile", "FILE"},
        {"api_key_file", "FILE"},   {"chat_template_kwargs", "JSON"},
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i].row, row->name) == 0) return names[i].value;
    }
    switch (row->type) {
    case NVLLM_PARAM_INT:
    case NVLLM_PARAM_INT64:
        return "N";
    case NVLLM_PARAM_FLOAT:
    case NVLLM_PARAM_DOUBLE:
        return "X";
    case NVLLM_PARAM_BOOL:
        return NULL;
    case NVLLM_PARAM_STRING:
        return row->choices ? "NAME" : "TEXT";
    case NVLLM_PARAM_STRINGS:
        return "TEXT";
    case NVLLM_PARAM_IDS:
        return "ID,...";
    case NVLLM_PARAM_BIASES:
        return "ID=X,...";
    }
    return NULL;
}

void option_range(const struct nvllm_param *row, char *out, size_t size) {
    bool number = row->type == NVLLM_PARAM_INT || row->type == NVLLM_PARAM_INT64 ||
                  row->type == NVLLM_PARAM_FLOAT || row->type == NVLLM_PARAM_DOUBLE;
    bool has_min = number && row->min > -2147483647.0;
    bool has_max = number && row->max < 2147483647.0;
    // The tables write "above 0" as the smallest positive normal float.
    bool above_zero = row->type == NVLLM_PARAM_FLOAT && row->min == (double)FLT_MIN;
    out[0] = '\0';
    if (row->choices) {
        snprintf(out, size, "{%s}", row->choices);
    } else if (above_zero && has_max) {
        snprintf(out, size, "[above 0 to %.10g]", row->max);
    } else if (has_min && has_max) {
        snprintf(out, size, "[%.10g to %.10g]", row->min, row->max);
    } else if (has_min) {
        snprintf(out, size, "[%.10g or more]", row->min);
    } else if (has_max) {
        snprintf(out, size, "[at most %.10g]", row->max);
    }
}

// ---- names of other programs ----

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

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

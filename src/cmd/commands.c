#include "cmd/commands.h"

#include <stdio.h>
#include <string.h>

#include "base/text/suggest.h"
#include "cmd/model/foreign.h"

static const struct cli_command commands[] = {
    {"generate", "complete prompts with a model", cmd_generate},
    {"chat", "talk with a model", cmd_chat},
    {"serve", "serve a model over HTTP in OpenAI's form", cmd_serve},
    {"bench", "measure a model's speed on a fixed workload", cmd_bench},
    {"inspect", "show a model's shape and memory plan without loading it", cmd_inspect},
    {"render", "show the prompt that a chat template makes of a chat", cmd_render},
    {"tokenize", "text to token ids", cmd_tokenize},
    {"detokenize", "token ids to text", cmd_detokenize},
    {"completion", "print the completion script of a shell", cmd_completion},
    {"manual", "print the man page of a command", cmd_manual},
};

const struct cli_command *command_at(size_t index) {
    return index < ARRAY_LEN(commands) ? &commands[index] : NULL;
}

const struct cli_command *command_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    }
    return NULL;
}

int command_unknown(const char *name) {
    const char *names[ARRAY_LEN(commands) + 2] = {"version", "help"};
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) names[i + 2] = commands[i].name;
    const char *instead = foreign_command(name);
    const char *nearest = suggest_nearest(name, names, ARRAY_LEN(names));
    if (instead) {
        cli_error("unknown command %s: %s", name, instead);
    } else if (nearest) {
        cli_error("unknown command %s; did you mean %s? Try 'nanovllm help'", name, nearest);
    } else {
        cli_error("unknown command %s; try 'nanovllm help'", name);
    }
    return CLI_USAGE;
}

int command_print(const struct cli_command *command, enum options_form form) {
    char flag[32];
    snprintf(flag, sizeof flag, "--help=%s", options_form_name(form));
    char *help[] = {flag, NULL};
    return command->run(1, help);
}

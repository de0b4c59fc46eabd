/* The table of commands. Whatever lists or starts commands reads it. */
#ifndef CMD_COMMANDS_H
#define CMD_COMMANDS_H

#include "cmd/cli.h"

struct cli_command {
    const char *name;
    const char *summary; // one line of `nanovllm help`
    int (*run)(int argc, char **argv); // arguments after the command's name
};

const struct cli_command *command_at(size_t index); // NULL past the end
const struct cli_command *command_find(const char *name); // NULL: no such command
// Prints that no command has this name and suggests the nearest; returns CLI_USAGE.
int command_unknown(const char *name);
// The first line of `nanovllm version`, which --version prints.
int version_print_short(void);
// Prints the command's options in one of the forms of options.h.
int command_print(const struct cli_command *command, enum options_form form);

#endif

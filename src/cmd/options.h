/* Command-line flags made from parameter tables: the library's two, and each command's own rows.
 *
 * A row `max_tokens` is the flag --max-tokens. Booleans are --x and --no-x (for enable_x also
 * --disable-x) and take no value unless written --x=false. Values are `--flag value` or
 * `--flag=value`; `--` ends the flags. Lists (STRINGS, IDS, BIASES) may be given several times:
 * stop strings are taken literally, ids are "1,2,3", biases "id=bias,...", or either as JSON. Some
 * rows also have a short flag, llama.cpp's: -m, -p, -n, -t. Pure: knows no command and no engine. */
#ifndef CMD_OPTIONS_H
#define CMD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "cmd/option_group.h"

// What --help prints. The other forms are parts of man pages and of shells' completion scripts, asked
// for by --help=FORM; completion.c and manual.c put them together.
enum options_form { OPTIONS_HELP, OPTIONS_MAN, OPTIONS_BASH, OPTIONS_ZSH, OPTIONS_FISH };

struct options {
    const char *command; // "generate"
    const char *synopsis; // what follows the name in the usage line
    const char *details; // paragraphs above the flags; NULL: none
    const char *epilogue; // below the flags; NULL: none
    const struct option_group *groups; // [num_groups]
    size_t num_groups;
    const char *arg_choices; // "bash|zsh": what arguments may be, for completion; NULL: anything
    // Filled by options_parse.
    char **args; // [num_args] what is not a flag, in order; the front of argv
    size_t num_args;
    bool help; // -h or --help was given; nothing else is checked then
    enum options_form form; // of the help
};

// Reorders argv. ERR_INVALID with a sentence for an unknown flag (with a suggestion), a missing or
// superfluous value, or a value that its row refuses.
MUST_USE enum status options_parse(struct options *options, int argc, char **argv, struct err *err);
const char *options_form_name(enum options_form form); // "man": as --help=man asks for it
// The help in options->form.
void options_print(const struct options *options, FILE *out);
void options_print_help(const struct options *options, FILE *out);
void options_print_man(const struct options *options, FILE *out);
void options_print_bash(const struct options *options, FILE *out);
void options_print_zsh(const struct options *options, FILE *out);
void options_print_fish(const struct options *options, FILE *out);

#endif

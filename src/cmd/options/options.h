/* Command-line flags made from parameter tables: the library's two, and each command's own rows.
 *
 * A row `max_tokens` is the flag --max-tokens. Booleans are --x and --no-x (for enable_x also
 * --disable-x) and take no value unless written --x=false. Values are `--flag value` or
 * `--flag=value`; `--` ends the flags. Lists (STRINGS, IDS, BIASES) may be given several times:
 * stop strings are taken literally, ids are "1,2,3", biases "id=bias,...". Ids and biases may also
 * be JSON. Some rows have llama.cpp's short flag too: -m, -p, -n, -t, -c, -s. This code knows no
 * command and no engine. */
#ifndef CMD_OPTIONS_H
#define CMD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "cmd/options/option_group.h"

// The forms of --help. Those besides text are parts of man pages and completion scripts, printed by
// --help=FORM. completion.c and manual.c put them together.
enum options_form { OPTIONS_HELP, OPTIONS_MAN, OPTIONS_BASH, OPTIONS_ZSH, OPTIONS_FISH };

struct options {
    const char *command; // "generate"
    const char *synopsis; // the usage line after the command's name
    const char *details; // paragraphs above the flags; NULL: none
    const char *epilogue; // below the flags; NULL: none
    const struct option_group *groups; // [num_groups]
    size_t num_groups;
    const char *arg_choices; // "bash|zsh": the possible arguments, for completion; NULL: any
    // Filled by options_parse.
    char **args; // [num_args] the arguments that are not flags, in order; the front of argv
    size_t num_args;
    bool help; // -h or --help was given; no other flag is checked then
    enum options_form form; // of the help
};

// Reorders argv. ERR_INVALID: an unknown flag (the error suggests the nearest), a missing or
// superfluous value, or a value that its row refuses.
MUST_USE enum status options_parse(struct options *options, int argc, char **argv, struct err *err);
const char *options_form_name(enum options_form form); // the FORM of --help=FORM: "man"
// Prints the help in options->form.
void options_print(const struct options *options, FILE *out);
void options_print_help(const struct options *options, FILE *out);
void options_print_man(const struct options *options, FILE *out);
void options_print_bash(const struct options *options, FILE *out);
void options_print_zsh(const struct options *options, FILE *out);
void options_print_fish(const struct options *options, FILE *out);

/* Writes man pages, man(7): escapes the characters that roff treats as commands. */

// `text` [len] within a line. "-" becomes a minus that can be copied from the page.
void roff_text(FILE *out, const char *text, size_t len);
// Writes lines of help text. Blank lines separate paragraphs. A paragraph is filled, unless it has
// columns (two blanks in a row) or indented lines: then it stays as it is.
void roff_paragraphs(FILE *out, const char *text);

#endif

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
#include "nanovllm.h"

enum { OPTION_FLAG_BYTES_MAX = 80, OPTION_SPELLINGS_MAX = 3 };

struct option_group {
    const char *title; // heading in the help
    const struct nvllm_param *(*row)(size_t index); // NULL past the end
    // Sets a row from JSON text. NULL: values are written to `target` at the rows' offsets. Rows
    // are then INT, DOUBLE, BOOL or STRING; the values of a STRINGS row become arguments of the
    // command.
    enum status (*set)(void *target, const char *name, const char *value, struct err *err);
    void *target;
    const char *hidden; // a row that is not offered as a flag; NULL: none
};

// Returns the first row from *index on that is a flag, and moves *index past it; NULL at the end.
const struct nvllm_param *option_group_next(const struct option_group *group, size_t *index);

// The letter of the row's short flag: 'm' for model. 0: it has none.
char option_letter(const struct nvllm_param *row);
// Writes the row's spellings: "--max-tokens"; for a boolean "--chat" and "--no-chat". A row
// enable_x has "--enable-x", "--disable-x", and "--no-enable-x", which is accepted but not shown.
// Returns their number.
size_t option_spellings(const struct nvllm_param *row,
                        char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX]);
// The value's name in the flag's help: "N", "FILE", "DIR"; NULL for a boolean.
const char *option_value_name(const struct nvllm_param *row);
// The accepted values if the table limits them, as "[1 to 16]" or "{auto|cpu}"; else "".
void option_range(const struct nvllm_param *row, char *out, size_t size);

/* Commands and flags of llama.cpp, ollama and vLLM that people type from habit, and what stands for
 * them here. */

struct foreign_flag {
    const char *theirs; // with its dashes
    const char *row; // our row that does the same; NULL: none
    const char *note; // what is to be known besides; NULL: nothing
};

const struct foreign_flag *foreign_flag_find(const char *flag, size_t len); // NULL: not known
// What to do instead, as the end of a sentence; NULL: not known.
const char *foreign_command(const char *name);

// ---- flags ----

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

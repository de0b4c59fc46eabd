/* Rows of a parameter table as flags: their spellings and the names of their values. Parsing,
 * --help, man pages and shell completion all use it. */
#ifndef CMD_OPTION_GROUP_H
#define CMD_OPTION_GROUP_H

#include <stddef.h>

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

#endif

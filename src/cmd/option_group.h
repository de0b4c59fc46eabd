/* Rows of a parameter table as flags: which of them there are, how they are spelled, what their
 * values are called. Parsing, --help, man pages and shells' completions all take it from here. */
#ifndef CMD_OPTION_GROUP_H
#define CMD_OPTION_GROUP_H

#include <stddef.h>

#include "base/err.h"
#include "nanovllm.h"

enum { OPTION_FLAG_BYTES_MAX = 80, OPTION_SPELLINGS_MAX = 3 };

struct option_group {
    const char *title; // heading in the help
    const struct nvllm_param *(*row)(size_t index); // NULL past the end
    // Sets a row from JSON text. NULL: `target` is written through the rows' offsets, which may be
    // INT, DOUBLE, BOOL and STRING only; the values of a STRINGS row are arguments of the command.
    enum status (*set)(void *target, const char *name, const char *value, struct err *err);
    void *target;
    const char *hidden; // a row that is not offered as a flag; NULL: none
};

// The row at *index or the next one that is a flag, and moves *index behind it; NULL past the end.
const struct nvllm_param *option_group_next(const struct option_group *group, size_t *index);

// The letter of the row's short flag: 'm' for model. 0: it has none.
char option_letter(const struct nvllm_param *row);
// "--max-tokens". Of a boolean "--chat" and "--no-chat"; of enable_x "--enable-x", "--disable-x" and
// "--no-enable-x", which is accepted but shown nowhere. Returns how many.
size_t option_spellings(const struct nvllm_param *row,
                        char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX]);
// What stands for the value in the flag's line: "N", "FILE", "DIR"; NULL for a boolean.
const char *option_value_name(const struct nvllm_param *row);
// The accepted values, where the table limits them: "[1 to 16]", "{auto|cpu}"; else "".
void option_range(const struct nvllm_param *row, char *out, size_t size);

#endif

/* Commands and flags of llama.cpp, ollama and vLLM that people type from habit, and what stands for
 * them here. */
#ifndef CMD_FOREIGN_H
#define CMD_FOREIGN_H

#include <stddef.h>

struct foreign_flag {
    const char *theirs; // with its dashes
    const char *row; // our row that does the same; NULL: none
    const char *note; // what is to be known besides; NULL: nothing
};

const struct foreign_flag *foreign_flag_find(const char *flag, size_t len); // NULL: not known
// What to do instead, as the end of a sentence; NULL: not known.
const char *foreign_command(const char *name);

#endif

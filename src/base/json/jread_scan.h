/* Scans a JSON text before jansson parses it: its depth, the memory of its tree, and the integers
 * that jansson cannot hold. For a text that is not JSON the numbers are upper bounds for the part
 * that jansson reads before it stops. Used by jread.c alone. */
#ifndef BASE_JREAD_SCAN_H
#define BASE_JREAD_SCAN_H

#include <stddef.h>

#include "base/err.h"

// An integer beyond 64 bits, [start, start + len) of the text.
struct jread_big {
    size_t start, len;
    size_t index; // keys, strings and big integers before it
};

struct jread_scan {
    size_t longest_token; // bytes that jansson may collect as one token
    size_t depth_max;
    size_t tree_bytes; // upper bound of the memory that malloc spends on the tree
    struct jread_big *bigs; // [num_bigs]
    size_t num_bigs, bigs_capacity;
    size_t num_strings; // keys, strings and big integers
};

// ERR_NOMEM is the only fault. `what` names the text in its message.
MUST_USE enum status jread_scan_run(struct jread_scan *scan, const char *text, size_t len,
                                    const char *what, struct err *err);
void jread_scan_fini(struct jread_scan *scan); // all-zero is fine

#endif

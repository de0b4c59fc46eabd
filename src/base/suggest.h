/* "did you mean": the nearest of a list of names. */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

// The only candidate that begins with `name`; else the one nearest to it by edit distance
// (Damerau-Levenshtein, restricted), NULL when none is within a third of its length (at least 1
// edit) and has a character in common with it.
const char *suggest_nearest(const char *name, const char *const *candidates, size_t num_candidates);

#endif

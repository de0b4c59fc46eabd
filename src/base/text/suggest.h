/* "did you mean": the nearest of a list of names. */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

// The only candidate that begins with `name`. Otherwise the nearest one by edit distance
// (restricted Damerau-Levenshtein); NULL where that takes more edits than a third of the length of
// `name`, or where the two have no character in common. One edit is always allowed.
const char *suggest_nearest(const char *name, const char *const *candidates, size_t num_candidates);

#endif

#include "base/text/suggest.h"

#include <string.h>

enum { NAME_MAX_LEN = 63 };

static size_t min3(size_t a, size_t b, size_t c) {
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

// Restricted Damerau-Levenshtein distance: insert, delete, replace, swap neighbours.
static size_t edit_distance(const char *a, size_t a_len, const char *b, size_t b_len) {
    size_t rows[3][NAME_MAX_LEN + 1]; // rows i-2, i-1, i of the table, used in turn
    for (size_t j = 0; j <= b_len; j++) rows[0][j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        const size_t *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t cost = a[i - 1] != b[j - 1];
            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                two_above[j - 2] + 1 < row[j]) {
                row[j] = two_above[j - 2] + 1;
            }
        }
    }
    return rows[a_len % 3][b_len];
}

// The only candidate that begins with `name`; NULL when there are several or none.
static const char *only_completion(const char *name, size_t len, const char *const *candidates,
                                   size_t num_candidates) {
    const char *found = NULL;
    for (size_t i = 0; i < num_candidates && len; i++) {
        if (strncmp(candidates[i], name, len) != 0 || strlen(candidates[i]) > NAME_MAX_LEN)
            continue;
        if (found) return NULL;
        found = candidates[i];
    }
    return found;
}

const char *suggest_nearest(const char *name, const char *const *candidates,
                            size_t num_candidates) {
    size_t len = strlen(name);
    if (len > NAME_MAX_LEN) return NULL;
    const char *completion = only_completion(name, len, candidates, num_candidates);
    if (completion) return completion;
    size_t best_distance = len / 3 > 1 ? len / 3 : 1;
    const char *best = NULL;
    for (size_t i = 0; i < num_candidates; i++) {
        size_t candidate_len = strlen(candidates[i]);
        if (candidate_len > NAME_MAX_LEN) continue;
        size_t distance = edit_distance(name, len, candidates[i], candidate_len);
        if (distance >= len && distance >= candidate_len) continue; // not one character is the same
        if (distance < best_distance || (distance == best_distance && !best)) {
            best_distance = distance;
            best = candidates[i];
        }
    }
    return best;
}

/* Masks of an automaton's states (automaton_mask.c), for automaton.c only. */
#ifndef STRUCTURED_AUTOMATON_MASK_H
#define STRUCTURED_AUTOMATON_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct automaton;

// Returns whether any token is allowed. After an error of the automaton's expressions the mask is
// without meaning.
bool automaton_write_mask(struct automaton *automaton, uint32_t state, uint32_t *words);
// Whether a token fits that begins with `bytes` and is longer; `state` is the one behind the bytes.
bool automaton_find_longer(struct automaton *automaton, uint32_t state, const char *bytes,
                           size_t len);
void automaton_masks_fini(struct automaton *automaton);

#endif

/* Masks: which tokens fit a state. A token fits where the automaton lives on behind its bytes, so
 * the vocabulary's tree is walked depth first, and a branch is skipped where the automaton dies.
 * States in which every plain character may follow (automaton_plain.c) copy a set and walk the
 * other tokens. */
#include "structured/automaton/automaton_mask.h"

#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "structured/automaton/automaton_internal.h"

// ---- the walk ----

// Skips branches without a token that has one of `kinds`. `below` NULL: none.
static void walk(struct automaton *automaton, const struct vocabulary_tree *tree,
                 const uint16_t *below, uint32_t kinds, uint32_t state) {
    struct exprs *exprs = automaton->exprs;
    uint32_t num_classes = exprs->num_classes;
    struct walk_step *path = automaton->path; // [depth] the state before the node's byte
    if (automaton->states[state].row == NO_ROW && !states_make_row(automaton, state)) return;
    path[0] = (struct walk_step){state, automaton->states[state].row * num_classes};
    uint32_t num_ids = 0;
    for (uint32_t i = 0; i < tree->num_nodes;) {
        struct vocabulary_node node = tree->nodes[i];
        if (below && !(below[i] & kinds)) {
            i += node.size;
            continue;
        }
        struct walk_step from = path[node.depth];
        uint32_t class = exprs->class_of[node.byte], to = automaton->rows[from.row + class];
        if (to >= ROW_ALIAS) {
            to = states_step_row(automaton, from.state, class);
            if (exprs->err.status) return;
        }
        if (to == AUTOMATON_DEAD) {
            i += node.size;
            continue;
        }
        if (node.token != VOCABULARY_NO_TOKEN) automaton->ids[num_ids++] = node.token;
        i++;
        if (node.size == 1) continue;
        if (automaton->states[to].row == NO_ROW && !states_make_row(automaton, to)) return;
        path[node.depth + 1] = (struct walk_step){to, automaton->states[to].row * num_classes};
    }
    automaton->num_ids = num_ids;
}

// ---- the memory of masks ----

void automaton_masks_fini(struct automaton *automaton) {
    for (uint32_t i = 0; i < automaton->num_masks; i++) {
        free(automaton->masks[i].ids);
        free(automaton->masks[i].words);
    }
    free(automaton->masks);
    free(automaton->ids);
    free(automaton->path);
}

static void drop_masks(struct automaton *automaton) {
    for (uint32_t i = 0; i < automaton->num_masks; i++) {
        free(automaton->masks[i].ids);
        free(automaton->masks[i].words);
    }
    for (uint32_t i = 0; i < automaton->num_states; i++) automaton->states[i].mask = NO_MASK;
    automaton->num_masks = 0;
    automaton->mask_bytes = 0;
}

static void set_bits(uint32_t *words, const uint32_t *ids, uint32_t num_ids) {
    for (uint32_t i = 0; i < num_ids; i++) words[ids[i] / 32] |= 1u << (ids[i] % 32);
}

static void write(const struct automaton *automaton, const struct mask *mask, uint32_t *words) {
    const struct vocabulary *vocabulary = automaton->vocabulary;
    if (mask->words) {
        memcpy(words, mask->words, vocabulary->num_words * sizeof *words);
        return;
    }
    vocabulary_write_plain(vocabulary, mask->plain_chars, mask->plain_kinds, words);
    if (mask->base) mask = &automaton->masks[mask->base - 1];
    if (!mask->words) set_bits(words, mask->ids, mask->num_ids);
    for (uint32_t i = 0; mask->words && i < vocabulary->num_words; i++) words[i] |= mask->words[i];
}

// Memory for the ids and paths of a walk; with the first mask.
static bool prepare(struct automaton *automaton) {
    const struct vocabulary *vocabulary = automaton->vocabulary;
    if (automaton->ids) return true;
    size_t num_ids = (size_t)vocabulary->num_tokens + vocabulary->num_named; // once by each
    automaton->ids = malloc((num_ids + 1) * sizeof *automaton->ids);
    automaton->path = malloc((vocabulary->token_bytes_max + 2) * sizeof *automaton->path);
    if (automaton->ids && automaton->path) return true;
    exprs_fail(automaton->exprs, ERR_NOMEM, "out of memory: structured output");
    return false;
}

bool automaton_find_longer(struct automaton *automaton, uint32_t state, const char *bytes,
                           size_t len) {
    const struct vocabulary_tree *tree = &automaton->vocabulary->all;
    struct exprs *exprs = automaton->exprs;
    uint32_t i, end;
    if (!prepare(automaton)) return false;
    vocabulary_find_longer(automaton->vocabulary, bytes, len, &i, &end);
    if (i < end) automaton->path[len].state = state; // else the bytes may be longer than tokens
    while (i < end && !exprs->err.status) {
        struct vocabulary_node node = tree->nodes[i];
        uint32_t from = automaton->path[node.depth].state;
        uint32_t to = states_step_row(automaton, from, exprs->class_of[node.byte]);
        if (to == AUTOMATON_DEAD) {
            i += node.size;
            continue;
        }
        if (node.token != VOCABULARY_NO_TOKEN) return true;
        automaton->path[node.depth + 1].state = to;
        i++;
    }
    return false;
}

// Adds the tokens that have the same bytes as those that the walk has found.
static void add_twins(struct automaton *automaton) {
    uint32_t num_found = automaton->num_ids, num_twins;
    if (!automaton->vocabulary->num_twins) return;
    for (uint32_t i = 0; i < num_found; i++) {
        const struct vocabulary_pair *twins =
            vocabulary_twins(automaton->vocabulary, automaton->ids[i], &num_twins);
        for (uint32_t k = 0; k < num_twins; k++) {
            automaton->ids[automaton->num_ids++] = twins[k].second;
        }
    }
}

// The mask of a state, into `mask`, with words where it has many ids.
static bool make_mask(struct automaton *automaton, uint32_t state, struct plain plain,
                      struct mask *mask) {
    enum { IDS_MAX = 400 }; // setting more bits takes longer than copying the words
    const struct vocabulary *vocabulary = automaton->vocabulary;
    bool mixed = plain.chars == PLAIN_MIXED;
    automaton->num_ids = 0;
    if (mixed) {
        const uint16_t *below = plain.kinds ? vocabulary->kinds_below : NULL;
        walk(automaton, &vocabulary->all, below, plain.walked | VOCABULARY_NOT_PLAIN, state);
    } else {
        walk(automaton, &vocabulary->rest, NULL, 0, state);
    }
    if (automaton->exprs->err.status) return false;
    add_twins(automaton);
    bool can_end = automaton->states[state].can_end;
    bool none = plain.kinds == 0;
    *mask = (struct mask){.plain_chars = none    ? 0
                                         : mixed ? plain.most
                                                 : plain.chars,
                          .plain_kinds = plain.kinds,
                          .num_ids = automaton->num_ids};
    size_t words_bytes = vocabulary->num_words * sizeof *mask->words;
    bool some_kinds = mask->plain_chars && !vocabulary_has_all_kinds(mask->plain_kinds);
    if (mask->num_ids > IDS_MAX || some_kinds) {
        mask->words = malloc(words_bytes);
        if (!mask->words) return false;
        vocabulary_write_plain(vocabulary, mask->plain_chars, mask->plain_kinds, mask->words);
        set_bits(mask->words, automaton->ids, mask->num_ids);
        automaton->mask_bytes += words_bytes;
    } else if (mask->num_ids) {
        size_t bytes = mask->num_ids * sizeof *mask->ids;
        mask->ids = malloc(bytes);
        if (!mask->ids) return false;
        memcpy(mask->ids, automaton->ids, bytes);
        automaton->mask_bytes += bytes;
    }
    automaton->mask_bytes += sizeof *mask;
    mask->any = mask->num_ids > 0 || (can_end && vocabulary->num_ending);
    if (!mask->any && mask->plain_chars) { // which kinds have tokens depends on the vocabulary
        mask->any = vocabulary_has_plain(vocabulary, mask->plain_chars, mask->plain_kinds);
    }
    return true;
}

// The number of the state's mask, which is made where there is none. NO_MASK: it failed.
static uint32_t find_mask(struct automaton *automaton, uint32_t state) {
    struct exprs *exprs = automaton->exprs;
    uint32_t shortened = state, base = NO_MASK;
    struct mask mask = {0};
    if (automaton->states[state].mask != NO_MASK) return automaton->states[state].mask;
    if (!prepare(automaton)) return NO_MASK;
    struct plain plain = automaton_plain(automaton, state);
    // A counter of characters of known kinds allows the same tokens as a smaller one, except plain
    // ones. So the smaller one's mask is taken, and only the plain tokens are written anew.
    if (plain.chars != PLAIN_MIXED && automaton->states[state].free.known) {
        shortened = automaton_shorten(automaton, state);
    }
    if (shortened != state) {
        base = find_mask(automaton, shortened);
        if (base == NO_MASK) return NO_MASK;
    } else if (automaton->mask_bytes > automaton->mask_bytes_max) {
        drop_masks(automaton);
    }
    if (exprs->err.status || !exprs_grow(exprs, &automaton->masks, &automaton->masks_capacity,
                                         automaton->num_masks + 1, sizeof mask)) {
        return NO_MASK;
    }
    if (base != NO_MASK) {
        mask = (struct mask){.plain_chars = plain.kinds ? plain.chars : 0,
                             .plain_kinds = plain.kinds,
                             .any = automaton->masks[base].any,
                             .base = base + 1};
        automaton->mask_bytes += sizeof mask;
    } else if (!make_mask(automaton, state, plain, &mask)) {
        exprs_fail(exprs, ERR_NOMEM, "out of memory: structured output");
        return NO_MASK;
    }
    automaton->stats.num_masks_made++;
    automaton->masks[automaton->num_masks] = mask;
    automaton->states[state].mask = automaton->num_masks;
    return automaton->num_masks++;
}

bool automaton_write_mask(struct automaton *automaton, uint32_t state, uint32_t *words) {
    const struct vocabulary *vocabulary = automaton->vocabulary;
    automaton->stats.num_masks++;
    uint32_t loose = states_loosen(automaton, state), number = automaton->states[loose].mask;
    if (number == NO_MASK) {
        double began = clock_seconds();
        number = find_mask(automaton, loose);
        automaton->stats.mask_seconds += clock_seconds() - began;
        if (number == NO_MASK) return false;
    }
    const struct mask *mask = &automaton->masks[number];
    write(automaton, mask, words);
    if (automaton->states[state].can_end) {
        for (uint32_t i = 0; i < vocabulary->num_ending; i++) {
            words[vocabulary->ending[i] / 32] |= 1u << (vocabulary->ending[i] % 32);
        }
    }
    return mask->any;
}

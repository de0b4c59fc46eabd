/* Masks: which tokens fit a state. A token fits where the automaton lives on behind its bytes, so
 * the vocabulary's tree is walked depth first, and a branch is skipped where the automaton dies.
 * States in which every plain character may follow (vocabulary.h) copy a set and walk the other
 * tokens. */
#include "structured/automaton_mask.h"

#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "structured/automaton_internal.h"

enum { PLAIN_MIXED = UINT32_MAX - 1, PLAIN_ALL = UINT32_MAX, FRONTIER_MAX = 4 };

// ---- how many plain characters may follow ----

struct frontier {
    uint32_t states[FRONTIER_MAX], len;
    bool dead, alive, many;
};

static void frontier_add(struct frontier *frontier, uint32_t state) {
    frontier->dead |= state == AUTOMATON_DEAD;
    frontier->alive |= state != AUTOMATON_DEAD;
    if (state == AUTOMATON_DEAD) return;
    for (uint32_t i = 0; i < frontier->len; i++) {
        if (frontier->states[i] == state) return;
    }
    if (frontier->len == FRONTIER_MAX) {
        frontier->many = true;
    } else {
        frontier->states[frontier->len++] = state;
    }
}

static bool frontier_is_mixed(const struct frontier *frontier) {
    return (frontier->dead && frontier->alive) || frontier->many;
}

// Adds the states behind each character of the range.
static void add_range(struct automaton *automaton, uint32_t state,
                      const struct expr_utf8_range *range, uint32_t at, struct frontier *to) {
    if (at >= range->len || at >= sizeof range->first || state == AUTOMATON_DEAD) {
        frontier_add(to, state);
        return;
    }
    uint32_t before = UINT32_MAX;
    for (uint32_t byte = range->first[at]; byte <= range->last[at]; byte++) {
        uint32_t next = states_step_row(automaton, state, automaton->exprs->class_of[byte]);
        if (next == before) continue;
        before = next;
        add_range(automaton, next, range, at + 1, to);
        if (frontier_is_mixed(to)) return;
    }
}

// The states behind each plain character.
static void follow_plain(struct automaton *automaton, uint32_t state, struct frontier *to) {
    uint32_t before = UINT32_MAX;
    for (uint32_t byte = 0x20; byte < 0x80; byte++) {
        if (byte == '"' || byte == '\\') continue;
        uint32_t next = states_step_row(automaton, state, automaton->exprs->class_of[byte]);
        if (next != before) frontier_add(to, next);
        before = next;
        if (frontier_is_mixed(to)) return;
    }
    struct expr_utf8_range ranges[EXPR_UTF8_RANGES_MAX];
    uint32_t num_ranges = exprs_utf8_ranges(0x80, 0x10ffff, ranges);
    for (uint32_t i = 0; i < num_ranges && !frontier_is_mixed(to); i++) {
        add_range(automaton, state, &ranges[i], 0, to);
    }
}

static bool is_part(const struct frontier *a, const struct frontier *b) {
    for (uint32_t i = 0; i < a->len; i++) {
        uint32_t k = 0;
        while (k < b->len && b->states[k] != a->states[i]) k++;
        if (k == b->len) return false;
    }
    return true;
}

// n: any n plain characters may follow, but not n + 1. PLAIN_ALL: any number. PLAIN_MIXED: it
// depends on the characters.
static uint32_t plain_chars(struct automaton *automaton, uint32_t state) {
    const struct vocabulary *vocabulary = automaton->vocabulary;
    uint32_t chars_max =
        vocabulary->num_longs ? vocabulary->longs[0].chars : (uint32_t)VOCABULARY_SLICES;
    struct frontier from = {.states = {state}, .len = 1};
    for (uint32_t chars = 0; chars <= chars_max; chars++) {
        struct frontier to = {.len = 0};
        for (uint32_t i = 0; i < from.len && !frontier_is_mixed(&to); i++) {
            follow_plain(automaton, from.states[i], &to);
        }
        if (automaton->exprs->err.status || frontier_is_mixed(&to)) return PLAIN_MIXED;
        if (!to.alive) return chars;
        if (is_part(&to, &from)) return PLAIN_ALL;
        from = to;
    }
    return PLAIN_ALL;
}

// ---- the walk ----

static void walk(struct automaton *automaton, const struct vocabulary_tree *tree, uint32_t state) {
    const struct exprs *exprs = automaton->exprs;
    uint32_t num_classes = exprs->num_classes;
    uint32_t *path = automaton->path; // [depth] the state before the node's byte
    path[0] = state;
    for (uint32_t i = 0; i < tree->num_nodes;) {
        struct vocabulary_node node = tree->nodes[i];
        uint32_t from = path[node.depth], class = exprs->class_of[node.byte];
        uint32_t row = automaton->states[from].row, to = ROW_UNKNOWN;
        if (row != NO_ROW) to = automaton->rows[(size_t)row * num_classes + class];
        if (to >= ROW_ALIAS) {
            to = states_step_row(automaton, from, class);
            if (exprs->err.status) return;
        }
        if (to == AUTOMATON_DEAD) {
            i += node.size;
            continue;
        }
        path[node.depth + 1] = to;
        if (node.token != VOCABULARY_NO_TOKEN) automaton->ids[automaton->num_ids++] = node.token;
        i++;
    }
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
    vocabulary_write_plain(vocabulary, mask->plain_chars, words);
    set_bits(words, mask->ids, mask->num_ids);
}

// Room for the ids and paths of a walk; with the first mask.
static bool prepare(struct automaton *automaton) {
    const struct vocabulary *vocabulary = automaton->vocabulary;
    if (automaton->ids) return true;
    automaton->ids = malloc((vocabulary->num_tokens + 1) * sizeof *automaton->ids);
    automaton->path = malloc((vocabulary->token_bytes_max + 2) * sizeof *automaton->path);
    if (automaton->ids && automaton->path) return true;
    exprs_fail(automaton->exprs, ERR_NOMEM, "out of memory: structured output");
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
static bool make_mask(struct automaton *automaton, uint32_t state, struct mask *mask) {
    enum { IDS_MAX = 400 }; // setting more bits takes longer than copying the words
    const struct vocabulary *vocabulary = automaton->vocabulary;
    uint32_t plain = plain_chars(automaton, state);
    automaton->num_ids = 0;
    walk(automaton, plain == PLAIN_MIXED ? &vocabulary->all : &vocabulary->rest, state);
    if (automaton->exprs->err.status) return false;
    add_twins(automaton);
    bool can_end = automaton->states[state].can_end;
    *mask = (struct mask){.plain_chars = plain == PLAIN_MIXED ? 0 : plain,
                          .num_ids = automaton->num_ids};
    mask->any = mask->plain_chars > 0 || mask->num_ids > 0 || (can_end && vocabulary->num_ending);
    size_t words_bytes = vocabulary->num_words * sizeof *mask->words;
    if (mask->num_ids > IDS_MAX) {
        mask->words = malloc(words_bytes);
        if (!mask->words) return false;
        vocabulary_write_plain(vocabulary, mask->plain_chars, mask->words);
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
    return true;
}

bool automaton_write_mask(struct automaton *automaton, uint32_t state, uint32_t *words) {
    const struct vocabulary *vocabulary = automaton->vocabulary;
    struct exprs *exprs = automaton->exprs;
    automaton->stats.num_masks++;
    uint32_t loose = states_loosen(automaton, state);
    if (automaton->states[loose].mask == NO_MASK) {
        double began = clock_seconds();
        struct mask mask = {0};
        if (!prepare(automaton)) return false;
        if (automaton->mask_bytes > automaton->mask_bytes_max) drop_masks(automaton);
        if (!exprs_grow(exprs, &automaton->masks, &automaton->masks_capacity,
                        automaton->num_masks + 1, sizeof mask)) {
            return false;
        }
        if (!make_mask(automaton, loose, &mask)) {
            exprs_fail(exprs, ERR_NOMEM, "out of memory: structured output");
            return false;
        }
        automaton->masks[automaton->num_masks] = mask;
        automaton->states[loose].mask = automaton->num_masks++;
        automaton->stats.num_masks_made++;
        automaton->stats.mask_seconds += clock_seconds() - began;
    }
    const struct mask *mask = &automaton->masks[automaton->states[loose].mask];
    write(automaton, mask, words);
    if (automaton->states[state].can_end) {
        for (uint32_t i = 0; i < vocabulary->num_ending; i++) {
            words[vocabulary->ending[i] / 32] |= 1u << (vocabulary->ending[i] % 32);
        }
    }
    return mask->any;
}

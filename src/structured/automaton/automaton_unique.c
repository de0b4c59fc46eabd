/* Tokens that give an array with unique items one that it has. They are found behind the automaton:
 * its mask is made as ever, and those tokens are taken out.
 *
 * For most tokens it does not depend on the items so far whether they fit: they end no item, and a
 * way out is open whatever the array has (automaton_ways.c). The others, which are few, are found
 * once for a state and remembered: a mask checks only them. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "structured/automaton/automaton_mask.h"
#include "structured/automaton/automaton_unique.h"

bool automaton_has_unique(const struct automaton *automaton) {
    return automaton->has_unique;
}

static bool read_bytes(struct try *try, struct place *place, const char *bytes, size_t len) {
    for (size_t i = 0; i < len && !ways_failed(try); i++) {
        if (!ways_step(try, place, (unsigned char)bytes[i])) return false;
    }
    return ways_has_way_out(try, place) && !ways_failed(try);
}

static enum status finish(struct try *try, struct err *err) {
    free(try->steps);
    free(try->path);
    enum status status = automaton_unlock(try->automaton, err);
    if (!status && try->log->err.status) {
        status = err_set(err, try->log->err.status, "%s", try->log->err.message);
    }
    return status;
}

enum status automaton_advance_unique(struct automaton *automaton, uint32_t *state,
                                     struct unique_log *log, struct unique_position *position,
                                     const char *bytes, size_t len, bool *fits, struct err *err) {
    struct try try = {.automaton = automaton, .log = log};
    struct place place = {.state = *state, .at = *position};
    ways_begin(&try);
    *fits = read_bytes(&try, &place, bytes, len);
    if (*fits) {
        *state = place.state;
        *position = place.at;
    } else {
        unique_undo(log, position);
    }
    return finish(&try, err);
}

// ---- masks ----

static bool is_allowed(const struct try *try, uint32_t token) {
    return try->words[token / 32] >> (token % 32) & 1;
}

// Whether the token fits by its name.
static bool fits_by_name(struct try *try, uint32_t token) {
    uint32_t len, state = try->origin.state;
    const char *name = vocabulary_name(try->automaton->vocabulary, token, &len);
    if (!len) return false;
    for (uint32_t i = 0; i < len && state != AUTOMATON_DEAD; i++) {
        state = automaton_step(try->automaton, state, (unsigned char)name[i]);
    }
    return state != AUTOMATON_DEAD;
}

static void ban(struct try *try, uint32_t token) {
    uint32_t num_twins;
    const struct vocabulary_pair *twins =
        vocabulary_twins(try->automaton->vocabulary, token, &num_twins);
    if (!is_allowed(try, token) || fits_by_name(try, token)) return;
    try->words[token / 32] &= ~(1u << (token % 32));
    for (uint32_t i = 0; i < num_twins; i++) {
        uint32_t twin = twins[i].second;
        try->words[twin / 32] &= ~(1u << (twin % 32));
    }
    try->banned_any = true;
}

static bool make_path(struct try *try) {
    size_t depths = try->automaton->vocabulary->token_bytes_max + 2;
    if (!try->path) try->path = malloc(depths * sizeof *try->path);
    if (!try->path)
        exprs_fail(try->automaton->exprs, ERR_NOMEM, "out of memory: structured output");
    return try->path;
}

// The node's place, as it is before its byte is read. NULL: the byte does not fit.
static struct place *enter(struct try *try, struct place *path, struct vocabulary_node node) {
    struct place *place = &path[node.depth + 1];
    *place = path[node.depth];
    if (!ways_lives(try, place->state, node.byte & 0xff)) return NULL;
    unique_undo(try->log, &place->at);
    return place;
}

// Checks the tokens of the nodes [first, end) of the tree, whose bytes stand behind `from`. With
// `below`, those of the branches for which it is true.
static void check_tree(struct try *try, const struct vocabulary_tree *tree, uint32_t first,
                       uint32_t end, const struct place *from, const bool *below) {
    if (first == end || !make_path(try)) return;
    struct place *path = try->path; // [depth] before the node's byte
    path[tree->nodes[first].depth] = *from;
    for (uint32_t i = first; i < end && !ways_failed(try);) {
        struct vocabulary_node node = tree->nodes[i];
        struct place *place = below && !below[i] ? NULL : enter(try, path, node);
        if (!place) {
            i += node.size;
            continue;
        }
        uint32_t next = i + 1;
        bool fits = ways_step(try, place, node.byte & 0xff);
        if (!fits) next = i + node.size; // an item is there twice, also with what follows
        if (fits && node.token != VOCABULARY_NO_TOKEN && is_allowed(try, node.token)) {
            if (!ways_has_way_out(try, place)) ban(try, node.token);
        }
        for (; i < next; i++) {
            if (!fits && tree->nodes[i].token != VOCABULARY_NO_TOKEN) {
                ban(try, tree->nodes[i].token);
            }
        }
    }
    unique_undo(try->log, &from->at);
}

// Inside a string, at `from`: checks the tokens of the node's branch of `all` that end the string
// or go on as a string so far does. The others make it new.
static void check_known(struct try *try, uint32_t i, const struct place *from) {
    const struct vocabulary_tree *tree = &try->automaton->vocabulary->all;
    struct vocabulary_node node = tree->nodes[i];
    if (ways_failed(try) || !ways_lives(try, from->state, node.byte & 0xff)) return;
    if (node.byte == '"' || node.byte == '\\') {
        check_tree(try, tree, i, i + node.size, from, NULL);
        return;
    }
    if (!unique_child(try->log, from->at.node, node.byte & 0xff)) return;
    struct place place = *from;
    if (!ways_step(try, &place, node.byte & 0xff)) return;
    if (node.token != VOCABULARY_NO_TOKEN && is_allowed(try, node.token) &&
        !ways_has_way_out(try, &place)) {
        ban(try, node.token);
    }
    for (uint32_t k = i + 1; k < i + node.size; k += tree->nodes[k].size) {
        check_known(try, k, &place);
    }
}

static void check_known_root(struct try *try, unsigned char byte) {
    uint32_t root = try->automaton->vocabulary->roots[byte];
    if (root != VOCABULARY_NO_ROOT) check_known(try, root, &try->origin);
}

// Inside a string that some string so far begins with.
static void check_all_known(struct try *try) {
    check_known_root(try, '"');
    check_known_root(try, '\\');
    const struct unique_log *log = try->log; // its nodes may move
    for (uint32_t at = log->nodes[try->origin.at.node].child; at; at = log->nodes[at].next) {
        unsigned char byte = log->nodes[at].byte;
        if (byte != '"' && byte != '\\') check_known_root(try, byte);
    }
}

// ---- critical tokens: those for which it depends on the items so far ----

static bool add_critical(struct try *try, uint32_t token) {
    struct automaton *automaton = try->automaton;
    if (!is_allowed(try, token)) return true;
    if (!exprs_grow(automaton->exprs, &automaton->critical, &automaton->critical_capacity,
                    automaton->num_critical + 1, sizeof token)) {
        return false;
    }
    automaton->critical[automaton->num_critical++] = token;
    return true;
}

// Appends those of the tree, as check_tree goes through it.
static bool add_criticals(struct try *try, const struct vocabulary_tree *tree, const bool *below) {
    if (!make_path(try)) return false;
    struct place *path = try->path; // [depth] before the node's byte
    path[0] = try->origin;
    // A string at hand counts as new; check_all_known is for the tokens of one that is not.
    if (path[0].at.mode == UNIQUE_STRING) {
        path[0].at.is_new = true;
        path[0].at.origin = UNIQUE_OPEN_NEW;
    }
    for (uint32_t i = 0; i < tree->num_nodes && !ways_failed(try);) {
        struct vocabulary_node node = tree->nodes[i];
        struct place *place = below && !below[i] ? NULL : enter(try, path, node);
        if (!place) {
            i += node.size;
            continue;
        }
        bool is_sure = ways_step(try, place, node.byte & 0xff) && !try->log->watch.depends;
        uint32_t next = is_sure ? i + 1 : i + node.size;
        bool is_safe =
            is_sure && (node.token == VOCABULARY_NO_TOKEN || !is_allowed(try, node.token) ||
                        ways_always_has_way_out(try, place));
        for (; i < next; i++) {
            uint32_t token = tree->nodes[i].token;
            if (!is_safe && token != VOCABULARY_NO_TOKEN && !add_critical(try, token)) return false;
        }
        try->log->watch.depends = false;
    }
    unique_undo(try->log, &try->origin.at);
    return !ways_failed(try);
}

// The critical tokens of the origin are found once for its state. False after an error, or where
// they are many: then going through the tree is faster.
static bool find_criticals(struct try *try, const struct vocabulary_tree *tree, const bool *below,
                           uint32_t *first, uint32_t *count) {
    enum { CRITICALS_MAX = 400 };
    static const uint32_t MANY = UINT32_MAX;
    struct automaton *automaton = try->automaton;
    struct unique_memo *memo = ways_memo(try, &try->origin);
    if (!memo) return false;
    if (!memo->has_critical) {
        struct unique_keys absent;
        uint32_t begin = automaton->num_critical;
        ways_watch(try, &try->origin);
        bool is_done = add_criticals(try, tree, below);
        ways_end_watch(try, &absent);
        memo = ways_memo(try, &try->origin); // it may have moved
        if (!is_done || !memo) {
            automaton->num_critical = begin;
            return false;
        }
        memo->has_critical = true;
        memo->first_critical = begin;
        memo->num_critical = automaton->num_critical - begin;
        memo->critical_absent = absent;
        if (memo->num_critical > CRITICALS_MAX) {
            automaton->num_critical = begin;
            memo->num_critical = MANY;
        }
    }
    *first = memo->first_critical;
    *count = memo->num_critical;
    return memo->num_critical != MANY && ways_holds(try, &try->origin, &memo->critical_absent);
}

// Checks tokens that are in the order of the tree, so that what they share is read once.
static void check_each(struct try *try, const uint32_t *tokens, uint32_t num_tokens) {
    const char *before = NULL;
    uint32_t before_len = 0; // of what was read of it
    if (!num_tokens || !make_path(try)) return;
    struct place *path = try->path; // [depth] before the token's byte
    path[0] = try->origin;
    for (uint32_t i = 0; i < num_tokens && !ways_failed(try); i++) {
        uint32_t len, at = 0;
        if (!is_allowed(try, tokens[i])) continue;
        const char *text = vocabulary_text(try->automaton->vocabulary, tokens[i], &len);
        while (at < len && at < before_len && text[at] == before[at]) at++;
        unique_undo(try->log, &path[at].at);
        bool fits = true;
        for (; at < len && fits; at++) {
            path[at + 1] = path[at];
            fits = ways_step(try, &path[at + 1], (unsigned char)text[at]);
        }
        before = text;
        before_len = fits ? len : at - 1;
        if (!fits || !ways_has_way_out(try, &path[len])) ban(try, tokens[i]);
    }
    unique_undo(try->log, &try->origin.at);
}

// Outside of such arrays only tokens count that have a value twice in themselves.
static void check_lists(struct try *try) {
    const struct vocabulary *vocabulary = try->automaton->vocabulary;
    if (try->automaton->states[try->origin.state].repeats_nothing) return;
    check_each(try, vocabulary->lists, vocabulary->num_lists);
    if (!ways_failed(try)) {
        try->automaton->states[try->origin.state].repeats_nothing = !try->banned_any;
    }
}

static void check_tokens(struct try *try) {
    const struct vocabulary *vocabulary = try->automaton->vocabulary;
    const struct place *origin = &try->origin;
    const struct unique_position *at = &origin->at;
    // In a string only two kinds of tokens can repeat an item: those with a quote, which end the
    // string, and those that go on as an earlier string does. All others make the string new.
    bool in_string = at->mode == UNIQUE_STRING;
    const struct vocabulary_tree *tree = in_string ? &vocabulary->rest : &vocabulary->all;
    const bool *below = in_string ? vocabulary->quotes_below : NULL;
    uint32_t first, count;
    if (at->mode == UNIQUE_OUTSIDE) {
        check_lists(try);
        return;
    }
    bool is_remembered = at->mode != UNIQUE_ESCAPE && at->mode != UNIQUE_HEX;
    if (is_remembered && find_criticals(try, tree, below, &first, &count)) {
        if (count) check_each(try, try->automaton->critical + first, count);
    } else {
        check_tree(try, tree, 0, tree->num_nodes, origin, below);
    }
    if (in_string && !at->is_new) check_all_known(try);
}

enum status automaton_mask_unique(struct automaton *automaton, uint32_t state,
                                  struct unique_log *log, const struct unique_position *position,
                                  uint32_t *words, bool *any_allowed, struct err *err) {
    struct try try = {.automaton = automaton,
                      .log = log,
                      .origin = {.state = state, .at = *position},
                      .words = words};
    ways_begin(&try);
    try.should_end = ways_should_end(&try);
    bool any = automaton_write_mask(automaton, state, words);
    if (!ways_failed(&try)) check_tokens(&try);
    if (try.banned_any) {
        any = false;
        for (uint32_t i = 0; i < automaton->vocabulary->num_words && !any; i++) any = words[i];
    }
    if (any_allowed) *any_allowed = any;
    return finish(&try, err);
}

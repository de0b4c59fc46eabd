/* Tokens that give an array with unique items one that it has. They are found behind the automaton:
 * its mask is made as ever, and those tokens are taken out.
 *
 * An item must never be begun that can only end as one that is there. So behind each token a way
 * out is searched, from the text on, byte by byte: an item that is new, or a place where text may
 * be added without end, as then infinitely many items follow, or a string that no item so far has.
 * The search tries the bytes of a place in a fixed order, depth first, and looks at a limited
 * number of places. A way that it finds here, it finds again, and no later, from each next place on
 * that way. So a text that has a way out keeps one: no answer gets stuck. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "structured/automaton/automaton_internal.h"
#include "structured/automaton/automaton_mask.h"
#include "structured/unique/unique.h"

enum { PLACES_MAX = 4096 }; // of one search, and twice the bytes of the strings so far
// The searches of one answer may take automaton->search_steps_max steps, and so many more for each
// call. A large array costs no more than that for each token, a hostile one ends.
enum { SEARCH_STEPS_EACH_CALL = 1024 };

// Where a text stands.
struct place {
    uint32_t state;
    struct unique_position at;
};

struct try {
    struct automaton *automaton;
    struct unique_log *log;
    struct place origin; // of the mask
    uint32_t *words;
    bool banned_any;
    // The search.
    struct search_step {
        struct place place;
        uint32_t next; // to try next: an index of the choices, or a node of the log
        bool any_lives; // of those that were tried
        bool is_over;
    } * steps; // [capacity]
    uint32_t capacity;
    // Ways out that were found: from the state, between values, a string is opened that can become
    // a new one, by num_bytes bytes (UINT32_MAX: it is endless). So all tokens that lead to the
    // state are searched for once.
    struct known_way {
        uint32_t state, depth, num_bytes;
        uint8_t expects;
    } known[8]; // [num_known]
    uint32_t num_known;
    struct live_bytes {
        uint32_t state;
        uint64_t bits[4]; // which bytes may follow
    } live[64]; // of states that were met, by their number
};

static void begin(struct try *try) {
    uint64_t *steps = &try->log->search_steps;
    automaton_lock(try->automaton);
    *steps -= *steps < SEARCH_STEPS_EACH_CALL ? *steps : SEARCH_STEPS_EACH_CALL;
}

static bool failed(const struct try *try) {
    return try->automaton->exprs->err.status || try->log->err.status;
}

static const uint64_t *live_bytes(struct try *try, uint32_t state) {
    struct live_bytes *live = &try->live[state % ARRAY_LEN(try->live)];
    if (live->state == state) return live->bits; // state 0 has none
    const struct exprs *exprs = try->automaton->exprs;
    bool lives[256];
    for (uint32_t k = 0; k < exprs->num_classes; k++) {
        lives[k] = states_step_row(try->automaton, state, k) != AUTOMATON_DEAD;
    }
    *live = (struct live_bytes){.state = failed(try) ? AUTOMATON_DEAD : state};
    for (uint32_t byte = 0; byte < 256; byte++) {
        live->bits[byte / 64] |= (uint64_t)lives[exprs->class_of[byte]] << (byte % 64);
    }
    return live->bits;
}

static bool lives(struct try *try, uint32_t state, unsigned char byte) {
    return live_bytes(try, state)[byte / 64] >> (byte % 64) & 1;
}

// False: the byte does not fit.
static bool step(struct try *try, struct place *place, unsigned char byte) {
    struct automaton *automaton = try->automaton;
    bool item_begins = automaton->states[place->state].item_begins;
    if (place->at.mode != UNIQUE_OUTSIDE || item_begins) {
        if (!unique_step(try->log, &place->at, byte, item_begins)) return false;
    }
    place->state = states_step_row(automaton, place->state, automaton->exprs->class_of[byte]);
    return place->state != AUTOMATON_DEAD;
}

// ---- ways out ----

// The bytes to try at a place, and how many of them are tried before those that only serve where
// none of the others lives.
static const char *choices_at(const struct unique_position *at, size_t *num_first) {
    static const char between[] = "]}\":,1234567890-tfn{[ \n\t\r",
                      number[] = ",]} \n\t\r1234567890.eE+-";
    static const char word[] = "aelrsu", escape[] = "nt\"\\/bfru", hex[] = "0123456789abcdef";
    const char *choices = at->mode == UNIQUE_WORD     ? word
                          : at->mode == UNIQUE_ESCAPE ? escape
                          : at->mode == UNIQUE_HEX    ? hex
                          : at->mode == UNIQUE_NUMBER ? number
                                                      : between;
    *num_first = strlen(choices);
    if (choices == between) *num_first -= 4; // white space
    return choices;
}

// Whether text may be added here without end.
static bool is_endless(struct try *try, const struct place *place) {
    const char *bytes = place->at.mode == UNIQUE_STRING                             ? "a0~A"
                        : place->at.mode == UNIQUE_NUMBER && !place->at.in_exponent ? "1"
                                                                                    : "";
    for (; *bytes; bytes++) {
        uint32_t class = try->automaton->exprs->class_of[(unsigned char)*bytes];
        if (states_step_row(try->automaton, place->state, class) == place->state) return true;
    }
    return false;
}

// Of the string at hand: the number of bytes behind which no string so far begins as it does.
static uint32_t num_new_bytes(struct try *try, const struct place *place) {
    const struct unique_node *nodes = try->log->nodes;
    uint64_t bits[4];
    memcpy(bits, live_bytes(try, place->state), sizeof bits);
    for (uint32_t at = nodes[place->at.node].child; at; at = nodes[at].next) {
        bits[nodes[at].byte / 64] &= ~(UINT64_C(1) << (nodes[at].byte % 64));
    }
    static const uint64_t no_text[2] = {0xffffffff | UINT64_C(1) << '"', UINT64_C(1)
                                                                             << ('\\' - 64)};
    bits[0] &= ~no_text[0];
    bits[1] &= ~no_text[1];
    uint32_t found = 0;
    for (uint32_t i = 0; i < 4; i++) found += (uint32_t)__builtin_popcountll(bits[i]);
    return found;
}

// `num_items`: those of the outermost array before.
static bool is_way_out(struct try *try, const struct place *place, uint32_t num_items) {
    if (unique_is_idle(&place->at) || place->at.num_items > num_items) return true;
    if (is_endless(try, place)) return true;
    bool in_string = place->at.mode == UNIQUE_STRING || place->at.mode == UNIQUE_ESCAPE ||
                     place->at.mode == UNIQUE_HEX;
    if (in_string && place->at.is_new) return true;
    return place->at.mode == UNIQUE_STRING && num_new_bytes(try, place) > 0;
}

// The next byte to try; -1: none is left.
static int next_in_string(struct try *try, struct search_step *step) {
    const uint32_t at_quote = 0, at_backslash = UINT32_MAX - 1, at_end = UINT32_MAX; // else a node
    const struct unique_node *nodes = try->log->nodes;
    if (step->next == at_quote) {
        step->next = nodes[step->place.at.node].child;
        if (!step->next) step->next = at_backslash;
        return '"';
    }
    while (step->next < at_backslash) {
        unsigned char byte = nodes[step->next].byte;
        step->next = nodes[step->next].next;
        if (!step->next) step->next = at_backslash;
        if (byte >= 0x20 && byte != '"' && byte != '\\') return byte;
    }
    if (step->next == at_end) return -1;
    step->next = at_end;
    return '\\';
}

static int next_byte(struct try *try, struct search_step *step) {
    const struct unique_position *at = &step->place.at;
    if (at->mode == UNIQUE_STRING) return next_in_string(try, step);
    size_t num_first;
    const char *choices = choices_at(at, &num_first);
    if (step->is_over || !choices[step->next]) return -1;
    if (step->next >= num_first && step->any_lives) return -1;
    return choices[step->next++];
}

// A byte lived, or would have but for an item that is there.
static void note_life(struct search_step *step, int byte) {
    const struct unique_position *at = &step->place.at;
    step->any_lives = true;
    if (at->mode != UNIQUE_NUMBER) return;
    bool ends = strchr(",]} \n\t\r", byte);
    // Each byte that ends the number ends the same one. More zeros, or an exponent of zero, also.
    if (ends) step->next = (uint32_t)strlen(",]} \n\t\r");
    if (at->in_exponent && !at->has_digits) step->is_over = true;
}

// Counts steps of a search: for this call and for the answer. False where that is too many.
static bool count(struct try *try, uint32_t steps) {
    struct unique_log *log = try->log;
    log->search_steps += steps;
    if (!exprs_count(try->automaton->exprs, steps)) return false;
    if (log->search_steps <= try->automaton->search_steps_max) return true;
    if (!log->err.status) {
        err_set(&log->err, ERR_CAPACITY,
                "arrays with uniqueItems take more than %llu steps to find items that are new",
                (unsigned long long)try->automaton->search_steps_max);
    }
    return false;
}

static bool push(struct try *try, uint32_t num_steps, const struct place *place) {
    if (num_steps == try->capacity) {
        uint32_t capacity = num_steps ? 2 * num_steps : 64;
        struct search_step *steps = realloc(try->steps, capacity * sizeof *steps);
        if (!steps) {
            exprs_fail(try->automaton->exprs, ERR_NOMEM, "out of memory: structured output");
            return false;
        }
        try->steps = steps;
        try->capacity = capacity;
    }
    try->steps[num_steps] = (struct search_step){.place = *place};
    return true;
}

// Strings that a token adds to the log may take as many of the bytes as they have.
static bool is_known(const struct try *try, const struct place *place) {
    const struct unique_position *at = &place->at;
    uint32_t num_added = at->num_nodes - try->origin.at.num_nodes;
    for (uint32_t i = 0; i < try->num_known && at->mode == UNIQUE_BETWEEN; i++) {
        const struct known_way *way = &try->known[i];
        if (way->state == place->state && way->depth == at->depth &&
            way->expects == at->top.expects && way->num_bytes > num_added) {
            return true;
        }
    }
    return false;
}

// A way out of `from` is to open a string, at `to`. It holds for each text that leads to the state,
// unless a value ends on the way, which others may have.
static void note_way(struct try *try, const struct place *from, const struct place *to) {
    const struct unique_position *at = &to->at;
    if (from->at.mode != UNIQUE_BETWEEN || at->mode != UNIQUE_STRING || at->node) return;
    if (at->num_values != from->at.num_values || at->depth < from->at.depth) return;
    if (try->num_known == ARRAY_LEN(try->known)) return;
    try->known[try->num_known++] =
        (struct known_way){.state = from->state,
                           .depth = from->at.depth,
                           .num_bytes = is_endless(try, to) ? UINT32_MAX : num_new_bytes(try, to),
                           .expects = from->at.top.expects};
}

static bool search(struct try *try, const struct place *from) {
    uint32_t num_steps = 0;
    uint64_t num_left = PLACES_MAX + 2 * (uint64_t)try->log->num_nodes;
    if (!push(try, num_steps++, from)) return false;
    while (num_steps && num_left && !failed(try) && count(try, 1)) {
        struct search_step *top = &try->steps[num_steps - 1];
        unique_undo(try->log, &top->place.at);
        int byte = next_byte(try, top);
        if (byte < 0) {
            num_steps--;
            continue;
        }
        struct place next = top->place;
        if (!lives(try, next.state, (unsigned char)byte)) continue;
        note_life(top, byte);
        if (!step(try, &next, (unsigned char)byte)) continue;
        if (is_way_out(try, &next, from->at.num_items)) {
            note_way(try, from, &next);
            return true;
        }
        num_left--;
        if (!push(try, num_steps++, &next)) return false;
    }
    return false;
}

static bool has_way_out(struct try *try, const struct place *place) {
    const struct unique_position *at = &place->at;
    if (at->mode == UNIQUE_OUTSIDE || at->num_values == at->first_value) return true;
    if (is_way_out(try, place, at->num_items) || is_known(try, place)) return true;
    bool found = search(try, place);
    unique_undo(try->log, at);
    return found;
}

bool automaton_has_unique(const struct automaton *automaton) {
    return automaton->has_unique;
}

static bool read_bytes(struct try *try, struct place *place, const char *bytes, size_t len) {
    for (size_t i = 0; i < len && !failed(try); i++) {
        if (!step(try, place, (unsigned char)bytes[i])) return false;
    }
    return has_way_out(try, place) && !failed(try);
}

static enum status finish(struct try *try, struct err *err) {
    free(try->steps);
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
    begin(&try);
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

// Bans the token unless it fits.
static void check_token(struct try *try, uint32_t token) {
    uint32_t len;
    const char *text = vocabulary_text(try->automaton->vocabulary, token, &len);
    struct place place = try->origin;
    if (!is_allowed(try, token)) return;
    if (!read_bytes(try, &place, text, len)) ban(try, token);
    unique_undo(try->log, &try->origin.at);
}

// Checks the tokens of the tree. With `below`, those of the branches for which it is true.
static void check_tree(struct try *try, const struct vocabulary_tree *tree, const bool *below) {
    size_t depths = try->automaton->vocabulary->token_bytes_max + 2;
    struct place *path = malloc(depths * sizeof *path); // [depth] before the node's byte
    if (!path) {
        exprs_fail(try->automaton->exprs, ERR_NOMEM, "out of memory: structured output");
        return;
    }
    path[0] = try->origin;
    for (uint32_t i = 0; i < tree->num_nodes && !failed(try);) {
        struct vocabulary_node node = tree->nodes[i];
        struct place *place = &path[node.depth + 1];
        *place = path[node.depth];
        if ((below && !below[i]) || !lives(try, place->state, node.byte & 0xff)) {
            i += node.size;
            continue;
        }
        unique_undo(try->log, &place->at);
        uint32_t end = i + 1;
        bool fits = step(try, place, node.byte & 0xff);
        if (!fits) end = i + node.size; // an item is there twice, also with what follows
        if (fits && node.token != VOCABULARY_NO_TOKEN && is_allowed(try, node.token)) {
            if (!has_way_out(try, place)) ban(try, node.token);
        }
        for (; i < end; i++) {
            if (!fits && tree->nodes[i].token != VOCABULARY_NO_TOKEN) {
                ban(try, tree->nodes[i].token);
            }
        }
    }
    unique_undo(try->log, &try->origin.at);
    free(path);
}

// Inside a string: checks the tokens of `all` from `first` to `end` that go on as a string so far
// does, whose bytes are below `node`.
static void check_known(struct try *try, uint32_t first, uint32_t end, uint32_t node) {
    const struct vocabulary_tree *tree = &try->automaton->vocabulary->all;
    for (uint32_t i = first; i < end && !failed(try); i += tree->nodes[i].size) {
        struct vocabulary_node at = tree->nodes[i];
        uint32_t child = unique_child(try->log, node, at.byte & 0xff);
        if (!child || at.byte == '"' || at.byte == '\\') continue;
        if (at.token != VOCABULARY_NO_TOKEN) check_token(try, at.token);
        check_known(try, i + 1, i + at.size, child);
    }
}

// A token that has a value twice in itself.
static void check_lists(struct try *try) {
    const struct vocabulary *vocabulary = try->automaton->vocabulary;
    if (try->automaton->states[try->origin.state].repeats_nothing) return;
    for (uint32_t i = 0; i < vocabulary->num_lists && !failed(try); i++) {
        check_token(try, vocabulary->lists[i]);
    }
    if (!failed(try)) {
        try->automaton->states[try->origin.state].repeats_nothing = !try->banned_any;
    }
}

static void check_tokens(struct try *try) {
    const struct vocabulary *vocabulary = try->automaton->vocabulary;
    const struct unique_position *at = &try->origin.at;
    if (at->mode == UNIQUE_OUTSIDE) {
        check_lists(try);
    } else if (at->mode == UNIQUE_STRING) {
        // A string is ended by a quote, and tokens that go on with it differ from those so far, but
        // for the tokens that go on as one of those.
        check_tree(try, &vocabulary->rest, vocabulary->quotes_below);
        if (!at->is_new) check_known(try, 0, vocabulary->all.num_nodes, at->node);
    } else {
        check_tree(try, &vocabulary->all, NULL);
    }
}

enum status automaton_mask_unique(struct automaton *automaton, uint32_t state,
                                  struct unique_log *log, const struct unique_position *position,
                                  uint32_t *words, bool *any_allowed, struct err *err) {
    struct try try = {.automaton = automaton,
                      .log = log,
                      .origin = {.state = state, .at = *position},
                      .words = words};
    begin(&try);
    bool any = automaton_write_mask(automaton, state, words);
    if (!failed(&try)) check_tokens(&try);
    if (try.banned_any) {
        any = false;
        for (uint32_t i = 0; i < automaton->vocabulary->num_words && !any; i++) any = words[i];
    }
    if (any_allowed) *any_allowed = any;
    return finish(&try, err);
}

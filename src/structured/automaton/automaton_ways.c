/* Ways out of an array with unique items: whether text that was read can go on to an item that is
 * new.
 *
 * An item must never be begun that can only end as one that is there. So behind each token a way
 * out is searched, from the text on, byte by byte: an item that is new, or a place where text may
 * be added without end, as then infinitely many items follow, or a string that no item so far has.
 * The search tries the bytes of a place in a fixed order, depth first, and looks at a limited
 * number of places. A way that it finds here, it finds again, and no later, from each next place on
 * that way. So a text that has a way out keeps one: no answer gets stuck.
 *
 * Most ways do not depend on the items so far: a string without end is opened, or a key that an
 * empty object has not. Such a way is searched once for a state. That search (SEARCH_ALWAYS) does
 * not look at the strings so far, and fails where it meets a set that is not empty. */
#include "structured/automaton/automaton_unique.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum { PLACES_MAX = 4096 }; // of one search, and twice the bytes of the strings so far
enum { PLACES_ALWAYS_MAX = 256 };
// The searches of one answer may take automaton->search_steps_max steps, and so many more for each
// call. A large array costs no more than that for each token, a hostile one ends.
enum { SEARCH_STEPS_EACH_CALL = 1024 };
enum { MEMO_BYTES_MAX = 4 << 20 };

enum search_kind { SEARCH_ALL, SEARCH_ALWAYS };

// ---- what is remembered ----

static void drop_memos(struct automaton *automaton) {
    automaton->num_memos = 0;
    automaton->num_critical = 0;
    if (automaton->memo_table) {
        memset(automaton->memo_table, 0, automaton->memo_table_len * sizeof *automaton->memo_table);
    }
}

void ways_begin(struct try *try) {
    struct automaton *automaton = try->automaton;
    uint64_t *steps = &try->log->search_steps;
    automaton_lock(automaton);
    *steps -= *steps < SEARCH_STEPS_EACH_CALL ? *steps : SEARCH_STEPS_EACH_CALL;
    size_t bytes = automaton->num_memos * sizeof *automaton->memos +
                   automaton->num_critical * sizeof *automaton->critical;
    if (bytes > MEMO_BYTES_MAX) drop_memos(automaton);
}

// All of a place but what the log says that may decide about a text behind it.
static uint64_t key_of(const struct place *place) {
    const struct unique_position *at = &place->at;
    uint64_t key = at->mode | (uint64_t)at->top.expects << 4 | (uint64_t)at->top.is_object << 8 |
                   (uint64_t)at->top.is_unique << 9 | (uint64_t)at->top.has_any << 10 |
                   (uint64_t)(at->depth == 0) << 11;
    if (at->mode == UNIQUE_NUMBER) {
        key |= (uint64_t)at->in_exponent << 12 | (uint64_t)at->has_digits << 13;
    }
    if (at->mode == UNIQUE_WORD) key |= (uint64_t)at->letters_left << 12;
    return key << 32 | place->state;
}

static bool grow_memo_table(struct automaton *automaton) {
    uint32_t *len = &automaton->memo_table_len;
    if ((automaton->num_memos + 1) * 2 <= *len) return true;
    if (!exprs_grow(automaton->exprs, &automaton->memo_table, len, *len ? *len * 2 : 256,
                    sizeof *automaton->memo_table)) {
        return false;
    }
    memset(automaton->memo_table, 0, *len * sizeof *automaton->memo_table);
    for (uint32_t id = 0; id < automaton->num_memos; id++) {
        uint32_t at = (uint32_t)expr_mix(automaton->memos[id].key) & (*len - 1);
        while (automaton->memo_table[at]) at = (at + 1) & (*len - 1);
        automaton->memo_table[at] = id + 1;
    }
    return true;
}

struct unique_memo *ways_memo(struct try *try, const struct place *place) {
    struct automaton *automaton = try->automaton;
    uint64_t key = key_of(place);
    if (!grow_memo_table(automaton)) return NULL;
    uint32_t mask = automaton->memo_table_len - 1, at = (uint32_t)expr_mix(key) & mask;
    for (; automaton->memo_table[at]; at = (at + 1) & mask) {
        struct unique_memo *memo = &automaton->memos[automaton->memo_table[at] - 1];
        if (memo->key == key) return memo;
    }
    if (!exprs_grow(automaton->exprs, &automaton->memos, &automaton->memos_capacity,
                    automaton->num_memos + 1, sizeof *automaton->memos)) {
        return NULL;
    }
    automaton->memos[automaton->num_memos] = (struct unique_memo){.key = key};
    automaton->memo_table[at] = ++automaton->num_memos;
    return &automaton->memos[automaton->num_memos - 1];
}

void ways_watch(struct try *try, const struct place *place) {
    const struct unique_position *at = &place->at;
    // The set of the innermost array or object counts as new while it is empty.
    try->log->watch =
        (struct unique_watch){.first_set = at->top.has_any ? at->num_frames : at->top.parent,
                              .first_frame = at->num_frames,
                              .set = at->top.parent};
}

void ways_end_watch(struct try *try, struct unique_keys *absent) {
    struct unique_watch *watch = &try->log->watch;
    absent->len = watch->num_absent;
    memcpy(absent->keys, watch->absent, sizeof absent->keys);
    *watch = (struct unique_watch){0};
}

bool ways_holds(struct try *try, const struct place *place, const struct unique_keys *absent) {
    uint32_t set = place->at.top.parent;
    for (uint32_t i = 0; i < absent->len; i++) {
        if (unique_has(try->log, set, &absent->keys[i])) return false;
    }
    unique_note_absent(try->log, set, absent->keys, absent->len);
    return true;
}

// ---- steps ----

bool ways_lives(struct try *try, uint32_t state, unsigned char byte) {
    struct automaton *automaton = try->automaton;
    return states_step_row(automaton, state, automaton->exprs->class_of[byte]) != AUTOMATON_DEAD;
}

// Half of an answer's steps are for the item at hand. So where an array may end and only that half
// is left, it ends: the last of many items may take more steps to find than there are.
bool ways_should_end(struct try *try) {
    const struct place *origin = &try->origin;
    bool is_behind_item = origin->at.mode == UNIQUE_BETWEEN && unique_is_idle(&origin->at);
    return is_behind_item && try->log->search_steps > try->automaton->search_steps_max / 2 &&
           ways_lives(try, origin->state, ']');
}

// Which bytes may follow.
static const uint64_t *live_bytes(struct try *try, uint32_t state) {
    static const uint64_t none[4];
    struct automaton *automaton = try->automaton;
    uint32_t known = automaton->states[state].live;
    if (known) return automaton->live[known - 1].bits;
    struct live_bytes live = {{0}};
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool lives = ways_lives(try, state, (unsigned char)byte);
        live.bits[byte / 64] |= (uint64_t)lives << (byte % 64);
    }
    if (ways_failed(try) ||
        !exprs_grow(automaton->exprs, &automaton->live, &automaton->live_capacity,
                    automaton->num_live + 1, sizeof live)) {
        return none;
    }
    automaton->live[automaton->num_live++] = live;
    automaton->states[state].live = automaton->num_live;
    return automaton->live[automaton->num_live - 1].bits;
}

bool ways_step(struct try *try, struct place *place, unsigned char byte) {
    struct automaton *automaton = try->automaton;
    unsigned begins = automaton->states[place->state].begins;
    if (place->at.mode != UNIQUE_OUTSIDE || begins) {
        if (!unique_step(try->log, &place->at, byte, begins)) return false;
    }
    place->state = states_step_row(automaton, place->state, automaton->exprs->class_of[byte]);
    return place->state != AUTOMATON_DEAD;
}

// ---- ways out ----

// The bytes to try at a place, closing ones first, as a search could add items to inner arrays
// without end. And how many of them are tried before those that only serve where none of the others
// lives.
static const char *choices_at(const struct unique_position *at, size_t *num_first) {
    static const char between[] = "]}\":,1234567890-tfn{[ \n\t\r",
                      number[] = "]}, \n\t\r1234567890.eE+-";
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

// The same in an escape that the search began: it stands for a character that has no other
// spelling. Else a search would go through all spellings of all strings so far.
static const char *choices_in_escape(const struct unique_position *at) {
    static const char *const hex[] = {"", "0123456789abcdef", "01", "0", "0"};
    return at->mode == UNIQUE_ESCAPE ? "nt\"\\bfru" : hex[at->hex_left];
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

static bool is_in_string(const struct unique_position *at) {
    return at->mode == UNIQUE_STRING || at->mode == UNIQUE_ESCAPE || at->mode == UNIQUE_HEX;
}

// `num_items`: those of the outermost array before.
static bool is_way_out(struct try *try, const struct place *place, uint32_t num_items,
                       enum search_kind kind) {
    const struct unique_position *at = &place->at;
    if (unique_is_idle(at) || at->num_items > num_items) return true;
    if (is_endless(try, place)) return true;
    if (kind == SEARCH_ALWAYS) return is_in_string(at) && at->origin == UNIQUE_OPEN_NEW;
    if (is_in_string(at) && at->is_new) return true;
    return at->mode == UNIQUE_STRING && num_new_bytes(try, place) > 0;
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

// The same without a look at the strings so far.
static int next_in_any_string(struct try *try, struct search_step *step) {
    if (!step->next) {
        step->next = 0x20;
        return '"';
    }
    const uint64_t *bits = live_bytes(try, step->place.state);
    while (step->next < 256) {
        uint32_t at = step->next;
        uint64_t left = bits[at / 64] >> (at % 64);
        step->next = left ? at + (uint32_t)__builtin_ctzll(left) + 1 : (at | 63) + 1;
        unsigned char byte = (unsigned char)(step->next - 1);
        if (left && byte != '"' && byte != '\\') return byte;
    }
    return -1;
}

static int next_byte(struct try *try, struct search_step *step, enum search_kind kind) {
    const struct unique_position *at = &step->place.at;
    if (at->mode == UNIQUE_STRING) {
        return kind == SEARCH_ALL ? next_in_string(try, step) : next_in_any_string(try, step);
    }
    enum { NUM_ENDS = 3, NUM_BLANKS = 4 }; // of a number: its first choices
    size_t num_first;
    const char *choices = choices_at(at, &num_first);
    // White space ends a number too. What lives behind it lives without it.
    if (at->mode == UNIQUE_NUMBER && step->next == NUM_ENDS && step->any_lives) {
        step->next += NUM_BLANKS;
    }
    if (step->in_own_escape) choices = choices_in_escape(at);
    if (step->is_over || !choices[step->next]) return -1;
    if (step->next >= num_first && step->any_lives) return -1;
    return choices[step->next++];
}

// Notes that a byte leads on, or would lead on if the array did not have that item already.
static void note_life(struct search_step *step) {
    const struct unique_position *at = &step->place.at;
    step->any_lives = true;
    if (at->mode != UNIQUE_NUMBER) return;
    // More zeros, or an exponent of zero, make the same number.
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

static bool is_in_escape(const struct unique_position *at) {
    return at->mode == UNIQUE_ESCAPE || at->mode == UNIQUE_HEX;
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
    struct search_step *step = &try->steps[num_steps];
    *step = (struct search_step){.place = *place};
    if (num_steps && is_in_escape(&place->at)) {
        step->in_own_escape = !is_in_escape(&step[-1].place.at) || step[-1].in_own_escape;
    }
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

// Both between values, in a string, or behind a word's first letter. Behind one origin `read` says
// which items, members and strings came since.
static bool are_same(const struct place *a, const struct place *b) {
    const struct unique_position *x = &a->at, *y = &b->at;
    return a->state == b->state && x->mode == y->mode && x->num_frames == y->num_frames &&
           x->num_values == y->num_values && x->num_nodes == y->num_nodes && x->depth == y->depth &&
           x->top.expects == y->top.expects && x->read.a == y->read.a && x->read.b == y->read.b &&
           (x->mode == UNIQUE_BETWEEN || (x->mode == UNIQUE_STRING && x->node == y->node) ||
            (x->mode == UNIQUE_WORD && x->letters_left == y->letters_left &&
             x->hash.a == y->hash.a && x->hash.b == y->hash.b));
}

static const struct searched *find_searched(const struct try *try, const struct place *place) {
    for (uint32_t i = 0; i < ARRAY_LEN(try->searched) && i < try->num_searched; i++) {
        if (are_same(&try->searched[i].place, place)) return &try->searched[i];
    }
    return NULL;
}

static void note_searched(struct try *try, const struct place *place, bool found) {
    uint32_t at = try->num_searched++ % ARRAY_LEN(try->searched);
    try->searched[at] = (struct searched){.place = *place, .found = found};
}

// Whether a string or a word begins here. Texts that differ in white space before it meet again at
// this place.
static bool opens_value(const struct place *place, const struct place *before) {
    return (place->at.mode == UNIQUE_STRING && !place->at.node) ||
           (place->at.mode == UNIQUE_WORD && before->at.mode == UNIQUE_BETWEEN);
}

static bool search(struct try *try, const struct place *from, enum search_kind kind) {
    uint32_t num_steps = 0;
    uint64_t num_left =
        kind == SEARCH_ALWAYS ? PLACES_ALWAYS_MAX : PLACES_MAX + 2 * (uint64_t)try->log->num_nodes;
    if (!push(try, num_steps++, from)) return false;
    while (num_steps && num_left && !ways_failed(try) && count(try, 1)) {
        struct search_step *top = &try->steps[num_steps - 1];
        unique_undo(try->log, &top->place.at);
        int byte = next_byte(try, top, kind);
        if (byte < 0) {
            if (kind == SEARCH_ALL && num_steps > 1 && opens_value(&top->place, &top[-1].place)) {
                note_searched(try, &top->place, false);
            }
            num_steps--;
            continue;
        }
        struct place next = top->place;
        if (!ways_lives(try, next.state, (unsigned char)byte)) continue;
        note_life(top);
        if (!ways_step(try, &next, (unsigned char)byte)) continue;
        if (is_way_out(try, &next, from->at.num_items, kind)) {
            if (kind == SEARCH_ALL) note_way(try, from, &next);
            return true;
        }
        if (kind == SEARCH_ALL && opens_value(&next, &top->place)) {
            const struct searched *before = find_searched(try, &next);
            if (before && before->found) return true;
            if (before) continue;
        }
        num_left--;
        if (!push(try, num_steps++, &next)) return false;
    }
    return false;
}

static bool is_found(struct try *try, const struct place *place, enum search_kind kind) {
    bool found = search(try, place, kind);
    unique_undo(try->log, &place->at);
    return found;
}

bool ways_always_has_way_out(struct try *try, const struct place *place) {
    const struct unique_position *at = &place->at;
    if (at->mode == UNIQUE_OUTSIDE || is_way_out(try, place, at->num_items, SEARCH_ALWAYS)) {
        return true;
    }
    if (at->mode == UNIQUE_ESCAPE || at->mode == UNIQUE_HEX) return false;
    struct unique_memo *memo = ways_memo(try, place);
    if (memo && memo->way == WAY_UNKNOWN) {
        const struct unique_watch watch = try->log->watch;
        struct place from = *place;
        if (at->mode == UNIQUE_STRING) from.at.origin = UNIQUE_OPEN;
        ways_watch(try, &from);
        bool found = is_found(try, &from, SEARCH_ALWAYS);
        memo->way = found && !try->log->watch.depends ? WAY_ALWAYS : WAY_DEPENDS;
        ways_end_watch(try, &memo->way_absent);
        try->log->watch = watch;
    }
    return memo && !ways_failed(try) && memo->way == WAY_ALWAYS &&
           ways_holds(try, place, &memo->way_absent);
}

// The second search finds what the first one may find too late. Without it a way that is remembered
// for all logs might be lost behind the next byte, where a set is no longer empty.
static bool is_any_found(struct try *try, const struct place *place) {
    const struct searched *before = find_searched(try, place);
    if (before) return before->found;
    bool found = is_found(try, place, SEARCH_ALL) || is_found(try, place, SEARCH_ALWAYS);
    note_searched(try, place, found);
    return found;
}

bool ways_has_way_out(struct try *try, const struct place *place) {
    const struct unique_position *at = &place->at;
    if (at->mode == UNIQUE_OUTSIDE || at->num_values == at->first_value) return true;
    if (is_way_out(try, place, at->num_items, SEARCH_ALL) || is_known(try, place)) return true;
    if (ways_always_has_way_out(try, place)) return true;
    return !try->should_end && is_any_found(try, place);
}

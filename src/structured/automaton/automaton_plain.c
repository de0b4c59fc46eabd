/* Which plain characters may follow a state. Characters are looked at by kind (vocabulary.h). Where
 * each kind may either always follow or never, up to a number of characters or without end, the
 * plain tokens that fit are known without a walk. Where that holds for some kinds only, the walk
 * skips the tokens that have no others. */
#include "structured/automaton/automaton_internal.h"

enum { STATES_MAX = 8, ALL_KINDS = (1 << VOCABULARY_KINDS) - 1 };

// The states behind some characters, each once.
struct frontier {
    uint32_t states[STATES_MAX], len;
    uint32_t alive, dead; // kinds of characters that some state allows, or forbids
    uint32_t first[VOCABULARY_KINDS]; // a state behind characters of the kind, if alive
    uint32_t split; // kinds whose characters lead to several states
    bool many;
};

static void add(struct frontier *frontier, uint32_t state, uint32_t kind) {
    if (state == AUTOMATON_DEAD) {
        frontier->dead |= 1u << kind;
        return;
    }
    if (!(frontier->alive >> kind & 1)) frontier->first[kind] = state;
    frontier->alive |= 1u << kind;
    if (frontier->first[kind] != state) frontier->split |= 1u << kind;
    for (uint32_t i = 0; i < frontier->len; i++) {
        if (frontier->states[i] == state) return;
    }
    if (frontier->len == STATES_MAX) {
        frontier->many = true;
    } else {
        frontier->states[frontier->len++] = state;
    }
}

static bool is_mixed(const struct frontier *frontier) {
    return (frontier->dead & frontier->alive) || frontier->many;
}

// Adds the states behind each character of the range.
static void add_range(struct automaton *automaton, uint32_t state,
                      const struct expr_utf8_range *range, uint32_t at, struct frontier *to) {
    if (at >= range->len || at >= sizeof range->first || state == AUTOMATON_DEAD) {
        add(to, state, VOCABULARY_BEYOND_ASCII);
        return;
    }
    uint32_t before = UINT32_MAX;
    for (uint32_t byte = range->first[at]; byte <= range->last[at]; byte++) {
        uint32_t next = states_step_row(automaton, state, automaton->exprs->class_of[byte]);
        if (next == before) continue;
        before = next;
        add_range(automaton, next, range, at + 1, to);
        if (to->many) return;
    }
}

// Adds the states behind each plain character of the kinds.
static void follow(struct automaton *automaton, uint32_t state, uint32_t kinds,
                   struct frontier *to) {
    for (uint32_t byte = 0x20; byte < 0x7f; byte++) {
        uint32_t kind = vocabulary_kind((unsigned char)byte);
        if (byte == '"' || byte == '\\' || !(kinds >> kind & 1)) continue;
        add(to, states_step_row(automaton, state, automaton->exprs->class_of[byte]), kind);
    }
    if (!(kinds >> VOCABULARY_BEYOND_ASCII & 1)) return;
    struct expr_utf8_range ranges[EXPR_UTF8_RANGES_MAX];
    uint32_t num_ranges = exprs_utf8_ranges(0x80, 0x10ffff, ranges);
    for (uint32_t i = 0; i < num_ranges; i++) {
        add_range(automaton, state, &ranges[i], 0, to);
        uint32_t bit = 1u << VOCABULARY_BEYOND_ASCII;
        if (to->alive & to->dead & bit) return;
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

// Follows all states of `from` together.
static struct plain follow_all(struct automaton *automaton, struct frontier from,
                               uint32_t chars_max) {
    struct plain plain = {.kinds = from.alive & ALL_KINDS, .chars = PLAIN_ALL};
    for (uint32_t chars = 1; chars <= chars_max; chars++) {
        struct frontier to = {.len = 0};
        for (uint32_t i = 0; i < from.len && !is_mixed(&to); i++) {
            follow(automaton, from.states[i], ALL_KINDS, &to);
        }
        bool changes = to.alive && to.alive != plain.kinds;
        if (automaton->exprs->err.status || is_mixed(&to) || changes) {
            plain.chars = PLAIN_MIXED;
            return plain;
        }
        if (!to.alive) {
            plain.chars = chars;
            return plain;
        }
        if (is_part(&to, &from)) return plain;
        from = to;
    }
    return plain;
}

// ---- a counter of characters of some kinds ----

// What may follow a state of a chain: `alive`, the kinds with a character that may. `free`, the
// kinds whose characters all lead to the state `next`; only kinds that were asked for.
struct free_step {
    uint32_t alive, free, next;
    bool is_known; // false: too many states to tell
};

static struct free_step free_step(struct automaton *automaton, uint32_t state, uint32_t kinds) {
    struct frontier to = {.len = 0};
    follow(automaton, state, ALL_KINDS, &to);
    struct free_step step = {.alive = to.alive & ALL_KINDS, .is_known = !to.many};
    kinds &= to.alive & ~to.dead & ~to.split;
    for (uint32_t kind = 0; kind < VOCABULARY_KINDS; kind++) {
        if (!(kinds >> kind & 1)) continue;
        if (!step.free) step.next = to.first[kind];
        if (to.first[kind] == step.next) step.free |= 1u << kind;
    }
    return step;
}

// The other kinds that may follow, or seemed free before, are walked.
static void keep_kinds(struct free_chain *chain, uint32_t alive, uint32_t free) {
    uint32_t kept = chain->kinds & free;
    chain->walked = (uint16_t)((chain->walked | chain->kinds | alive) & ~kept);
    chain->kinds = (uint16_t)kept;
}

// Where a counter limits the characters, as in [^,.]{1,128}, all characters of some kinds may
// follow and lead to one state. From that state it is so again. The chain ends with the counter,
// where none of them may follow. What is found is remembered for each of its states.
static struct free_chain follow_free_chain(struct automaton *automaton, uint32_t state) {
    enum { CHAIN_MAX = 1100 };
    const struct vocabulary *vocabulary = automaton->vocabulary;
    uint32_t chars_max = vocabulary->num_longs ? vocabulary->longs[0].chars : VOCABULARY_SLICES;
    uint32_t chain[CHAIN_MAX], len = 0;
    struct free_chain result = {.kinds = ALL_KINDS, .known = true, .most = PLAIN_ALL};
    bool has_end = false;
    if (automaton->states[state].free.known) return automaton->states[state].free;
    while (!has_end && len <= chars_max && len < CHAIN_MAX) {
        struct free_chain at = automaton->states[state].free;
        if (at.known) {
            keep_kinds(&result, at.kinds | at.walked, at.kinds);
            result.most = at.most;
            has_end = true;
            break;
        }
        struct free_step step = free_step(automaton, state, result.kinds);
        if (len == 0) result.kinds = (uint16_t)step.free;
        has_end = step.is_known && !(step.alive & result.kinds);
        if (has_end) {
            result.walked |= (uint16_t)step.alive;
            result.most = 0;
            break;
        }
        keep_kinds(&result, step.alive, step.is_known ? step.free : 0);
        chain[len++] = state;
        has_end = !result.kinds || step.next == state;
        state = step.next;
    }
    if (automaton->exprs->err.status) return (struct free_chain){.known = true};
    while (len-- > 0) {
        if (result.most != PLAIN_ALL) result.most++;
        // Near the end of what was followed, a token may be longer.
        if (has_end) automaton->states[chain[len]].free = result;
    }
    return result;
}

// Where characters of some kinds may always follow, and others never, tokens of only such kinds
// need no walk: inside a URL, of letters and digits. `walked` are the kinds that are left.
//
// The states that are reached by characters of the kinds in `free` must all be alike. A kind in
// which one of them differs is taken out, and it begins anew.
static struct plain find_free(struct automaton *automaton, uint32_t state) {
    struct plain plain = {
        .chars = PLAIN_MIXED, .kinds = ALL_KINDS, .walked = 0, .most = PLAIN_ALL, .known = true};
    uint32_t dead = ALL_KINDS;
    for (bool changed = true; changed;) {
        struct frontier reached = {.states = {state}, .len = 1};
        changed = false;
        for (uint32_t i = 0; i < reached.len && !changed; i++) {
            struct frontier all = {.len = 0};
            follow(automaton, reached.states[i], ALL_KINDS, &all);
            uint32_t alive = all.alive & ~all.dead, gone = all.dead & ~all.alive;
            if (i == 0 && plain.walked == 0) {
                plain.kinds = alive;
                dead = gone;
                plain.walked = ALL_KINDS & ~alive & ~gone;
            }
            uint32_t differs = (plain.kinds & ~alive) | (dead & ~gone);
            follow(automaton, reached.states[i], plain.kinds & ~differs, &reached);
            if (automaton->exprs->err.status) return (struct plain){.chars = PLAIN_MIXED};
            if (reached.many) differs = plain.kinds; // counters, mostly
            changed = differs != 0;
            plain.kinds &= ~differs;
            dead &= ~differs;
            plain.walked |= differs;
        }
    }
    return plain;
}

// What `state` allows, if one character leads to a state that allows `next`.
static struct plain before(uint32_t kinds, struct plain next) {
    struct plain plain = {.kinds = kinds, .chars = PLAIN_MIXED};
    if (next.chars == 0) {
        plain.chars = 1;
    } else if (next.chars != PLAIN_MIXED && next.kinds == kinds) {
        plain.chars = next.chars == PLAIN_ALL ? PLAIN_ALL : next.chars + 1;
    }
    return plain;
}

// Mostly all characters lead to one state, as the inside of a string or a counter does. What is
// known of the states of such a chain is remembered for each, so a string that is limited to n
// characters is followed to its end once, not once for each state.
static struct plain follow_chain(struct automaton *automaton, uint32_t state) {
    enum { CHAIN_MAX = 1100 };
    const struct vocabulary *vocabulary = automaton->vocabulary;
    uint32_t chars_max = vocabulary->num_longs ? vocabulary->longs[0].chars : VOCABULARY_SLICES;
    uint32_t chain[CHAIN_MAX], kinds[CHAIN_MAX], len = 0, last_kinds = 0;
    struct plain plain = {.chars = PLAIN_ALL}; // of the state behind the chain
    // Larger counters are forgotten (states_loosen), so a chain mostly ends before.
    uint32_t len_max = vocabulary->token_bytes_max + 2;
    if (len_max > CHAIN_MAX) len_max = CHAIN_MAX;
    for (; len < len_max; len++) {
        if (automaton->states[state].plain.known) {
            plain = automaton->states[state].plain;
            break;
        }
        struct frontier to = {.len = 0};
        follow(automaton, state, ALL_KINDS, &to);
        if (automaton->exprs->err.status) return (struct plain){.chars = PLAIN_MIXED};
        chain[len] = state;
        last_kinds = to.alive & ALL_KINDS;
        kinds[len] = last_kinds;
        bool loops = to.len == 1 && to.states[0] == state;
        if (is_mixed(&to) || to.len != 1 || loops) {
            plain = (struct plain){.kinds = kinds[len], .known = true};
            if (is_mixed(&to)) {
                plain.chars = PLAIN_MIXED;
                plain.kinds = to.alive & ~to.dead;
                plain.walked = to.alive & to.dead;
            } else if (loops) {
                plain.chars = PLAIN_ALL;
            } else if (to.len > 1) {
                plain = follow_all(automaton, to, chars_max);
                plain.known = true;
                if (plain.kinds != kinds[len]) plain.chars = PLAIN_MIXED;
            }
            if (automaton->exprs->err.status) return (struct plain){.chars = PLAIN_MIXED};
            automaton->states[state].plain = plain;
            break;
        }
        state = to.states[0];
    }
    bool has_end = len < len_max;
    if (!has_end) plain.kinds = last_kinds;
    while (len-- > 0) {
        plain = before(kinds[len], plain);
        // Behind a state near the end of what was followed, a token may be longer than that.
        plain.known = has_end || len_max - len >= chars_max;
        if (plain.known) automaton->states[chain[len]].plain = plain;
    }
    if (!plain.known) plain = (struct plain){.chars = PLAIN_MIXED};
    return plain;
}

// ---- any text but some ----

// Whether the expression has finitely many strings; false too where that takes too many steps.
static bool is_finite(const struct exprs *exprs, uint32_t e, uint32_t *steps_left) {
    for (;;) {
        struct expr_node node = exprs->nodes[e];
        if (!*steps_left) return false;
        --*steps_left;
        switch ((enum expr_kind)node.kind) {
        case EXPR_KIND_NOTHING:
        case EXPR_KIND_EPSILON:
        case EXPR_KIND_BYTES:
            return true;
        case EXPR_KIND_CONCAT:
            if (!is_finite(exprs, node.a, steps_left)) return false;
            e = node.b;
            continue;
        case EXPR_KIND_ALT:
            for (uint32_t i = 0; i < node.b; i++) {
                if (!is_finite(exprs, exprs->lists[node.a + i], steps_left)) return false;
            }
            return true;
        default:
            return false;
        }
    }
}

// Whether it is any text, or any but finitely many.
static bool is_nearly_any_text(const struct exprs *exprs, uint32_t e, uint32_t any_text,
                               uint32_t *steps_left) {
    struct expr_node node = exprs->nodes[e];
    if (e == any_text) return true;
    if (node.kind != EXPR_KIND_AND) return false;
    for (uint32_t i = 0; i < node.b; i++) {
        uint32_t part = exprs->lists[node.a + i];
        struct expr_node one = exprs->nodes[part];
        if (part == any_text) continue;
        if (one.kind != EXPR_KIND_NOT || !is_finite(exprs, one.a, steps_left)) return false;
    }
    return true;
}

// Whether it is such a text inside of a JSON string, and what follows it.
static bool is_open_text(struct automaton *automaton, uint32_t e, uint32_t *steps_left) {
    struct exprs *exprs = automaton->exprs;
    struct expr_node node = exprs->nodes[e];
    if (node.kind == EXPR_KIND_ALT) {
        for (uint32_t i = 0; i < node.b && *steps_left; i++) { // none of them is an ALT
            --*steps_left;
            if (is_open_text(automaton, exprs->lists[node.a + i], steps_left)) return true;
        }
        return false;
    }
    if (node.kind == EXPR_KIND_CONCAT) {
        if (!exprs_is_live(exprs, node.b)) return false;
        node = exprs->nodes[node.a];
    }
    return node.kind == EXPR_KIND_JSON &&
           is_nearly_any_text(exprs, node.a, automaton->any_text, steps_left);
}

// Whether the state is inside a JSON string that may be any text but finitely many, such as a key
// that the schema does not name. Then each plain character may follow, and after it again: the
// texts left out end, and a longer one is never among them.
static bool is_open_string(struct automaton *automaton, uint32_t state) {
    enum { STEPS_MAX = 4000 };
    uint32_t steps_left = STEPS_MAX;
    struct state at = automaton->states[state];
    if (automaton->any_text == EXPR_NOTHING) return false;
    for (uint32_t i = 0; i < at.len && !automaton->exprs->err.status; i++) {
        uint32_t e = automaton->threads[at.first + i].expr;
        if (is_open_text(automaton, e, &steps_left)) return true;
    }
    return false;
}

// ---- a counter of characters of one set ----

// A state inside a JSON string of at most `max` more characters of a set.
struct counted {
    struct thread thread; // its only one
    uint32_t set, min, max, tail; // expressions and bounds
};

static bool begins_with_quote(const struct exprs *exprs, uint32_t e) {
    struct expr_node node = exprs->nodes[e];
    unsigned char byte = 0;
    if (node.kind == EXPR_KIND_CONCAT) node = exprs->nodes[node.a];
    return node.kind == EXPR_KIND_BYTES && expr_set_is_single(&exprs->sets[node.a], &byte) &&
           byte == '"';
}

static bool find_counted(const struct automaton *automaton, uint32_t state, struct counted *out) {
    const struct exprs *exprs = automaton->exprs;
    struct state at = automaton->states[state];
    if (at.len != 1) return false;
    out->thread = automaton->threads[at.first];
    struct expr_node node = exprs->nodes[out->thread.expr];
    if (node.kind != EXPR_KIND_CONCAT || !begins_with_quote(exprs, node.b)) return false;
    out->tail = node.b;
    node = exprs->nodes[node.a];
    if (node.kind != EXPR_KIND_JSON) return false;
    node = exprs->nodes[node.a];
    out->set = node.a;
    out->min = node.b;
    out->max = node.c;
    return node.kind == EXPR_KIND_REPEAT;
}

// The expression of such a state.
static uint32_t counted_expr(struct automaton *automaton, const struct counted *counted,
                             uint32_t min, uint32_t max) {
    struct exprs *exprs = automaton->exprs;
    uint32_t text = expr_json_content(exprs, expr_repeat(exprs, counted->set, min, max));
    return expr_concat(exprs, text, counted->tail);
}

// Whether the state is that of `counted` behind one character.
static bool is_next(struct automaton *automaton, uint32_t state, const struct counted *counted) {
    struct state at = automaton->states[state];
    uint32_t min = counted->min ? counted->min - 1 : 0;
    uint32_t max = counted->max == EXPR_FOREVER ? counted->max : counted->max - 1;
    return at.len == 1 &&
           automaton->threads[at.first].expr == counted_expr(automaton, counted, min, max) &&
           automaton->threads[at.first].stacks == counted->thread.stacks;
}

// A token that is not plain takes at most rest_chars_max characters of the counter. So it fits, or
// not, alike for all counters above that.
uint32_t automaton_shorten(struct automaton *automaton, uint32_t state) {
    struct counted counted;
    uint32_t most = automaton->vocabulary->rest_chars_max + 1;
    if (!find_counted(automaton, state, &counted)) return state;
    uint32_t min = counted.min < most ? counted.min : most;
    uint32_t max = counted.max < most || counted.max == EXPR_FOREVER ? counted.max : most;
    if (min == counted.min && max == counted.max) return state;
    return states_replace(automaton, state, counted_expr(automaton, &counted, min, max));
}

// Whether each character that may follow leads to the same counter with one less. Then it is so at
// each later place too, and the counter's end is known without a step to it.
static bool find_counted_kinds(struct automaton *automaton, uint32_t state,
                               const struct counted *counted, struct free_chain *chain) {
    struct frontier to = {.len = 0};
    follow(automaton, state, ALL_KINDS, &to);
    if (automaton->exprs->err.status || to.many || to.len != 1) return false;
    if (!is_next(automaton, to.states[0], counted)) return false;
    *chain = (struct free_chain){.kinds = (uint16_t)(to.alive & ~to.dead & ALL_KINDS),
                                 .walked = (uint16_t)(to.alive & to.dead & ALL_KINDS),
                                 .known = true,
                                 .is_counter = true};
    return true;
}

// What holds for a smaller counter holds for this one, except for the number of characters.
static bool follow_counted(struct automaton *automaton, uint32_t state) {
    struct counted counted, shorter;
    struct free_chain chain;
    if (!find_counted(automaton, state, &counted)) return false;
    uint32_t shortened = automaton_shorten(automaton, state);
    if (!find_counted(automaton, shortened, &shorter)) return false;
    chain = automaton->states[shortened].free;
    // A chain that was followed may have several characters for each that the counter counts.
    bool is_known = chain.is_counter && automaton->states[shortened].plain.known;
    if (!is_known && !find_counted_kinds(automaton, shortened, &shorter, &chain)) return false;
    const uint32_t states[] = {shortened, state}, most[] = {shorter.max, counted.max};
    for (int i = 0; i < 2; i++) {
        struct plain plain = {.kinds = chain.kinds, .known = true};
        plain.chars = chain.most = most[i] == EXPR_FOREVER ? PLAIN_ALL : most[i];
        if (chain.walked) {
            plain.walked = chain.walked;
            plain.chars = PLAIN_MIXED;
        }
        automaton->states[states[i]].plain = plain;
        automaton->states[states[i]].free = chain;
    }
    return true;
}

struct plain automaton_plain(struct automaton *automaton, uint32_t state) {
    struct plain plain = automaton->states[state].plain;
    if (!plain.known && is_open_string(automaton, state)) { // without a step of the automaton
        plain = (struct plain){.kinds = ALL_KINDS, .chars = PLAIN_ALL, .known = true};
        automaton->states[state].plain = plain;
    }
    if (!plain.known && follow_counted(automaton, state)) plain = automaton->states[state].plain;
    if (!plain.known) plain = follow_chain(automaton, state);
    // Few tokens have only other characters, so their walk is short.
    uint32_t many = 1u << VOCABULARY_LOWER | 1u << VOCABULARY_UPPER | 1u << VOCABULARY_BEYOND_ASCII;
    if (plain.chars != PLAIN_MIXED || automaton->exprs->err.status) return plain;
    if (plain.kinds & many) {
        struct free_chain chain = follow_free_chain(automaton, state);
        if (!(chain.kinds & many)) return find_free(automaton, state);
        return (struct plain){
            .chars = PLAIN_MIXED, .kinds = chain.kinds, .walked = chain.walked, .most = chain.most};
    }
    return (struct plain){.chars = PLAIN_MIXED};
}

/* Members in any order: which of them a text has is a set, and a state of its own. There are 2^n
 * sets, but a text meets only one for each of its members, and sets are made when they are met.
 *
 *     OP_MEMBERS   a set of members came: the end, or a comma and a quote
 *     OP_MEMBER    behind the quote: a choice of the members that may follow
 *     OP_CAME      behind a member: the set with it
 *
 * Frames of these three have the set's id as their count. No set is a dead end: a member is only
 * offered where there is room left for those that must still come. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "structured/automaton/automaton_internal.h"

static const uint32_t HAS_EXTRA = UINT32_C(1) << 31;

// Of a set: a bit for each item, and a last word, which has the number of others and HAS_EXTRA.
static uint32_t num_words(const struct members *members) {
    return (members->num_items + 31) / 32 + 1;
}

struct set {
    const uint32_t *words; // NULL: the empty one
    uint32_t others, total; // of members
    uint32_t missing; // members that must still come
    bool has_extra;
};

static bool has_item(const struct set *set, uint32_t item) {
    return set->words && set->words[item / 32] >> (item % 32) & 1;
}

static struct set read_set(const struct automaton *automaton, const struct members *members,
                           uint32_t id) {
    bool has_extra_item = members->extra != PC_FAIL;
    struct set set = {.missing = members->num_required + has_extra_item};
    if (id == MEMBERS_NONE) return set;
    uint32_t last = num_words(members) - 1;
    set.words = automaton->member_words + automaton->member_sets[id - 1].first;
    set.others = set.words[last] & ~HAS_EXTRA;
    set.has_extra = set.words[last] & HAS_EXTRA;
    set.total = set.others + set.has_extra;
    set.missing -= set.has_extra;
    for (uint32_t i = 0; i < last; i++) {
        uint32_t num_before = members->num_required > i * 32 ? members->num_required - i * 32 : 0;
        uint32_t required = num_before >= 32 ? UINT32_MAX : (UINT32_C(1) << num_before) - 1;
        set.total += (uint32_t)__builtin_popcount(set.words[i]);
        set.missing -= (uint32_t)__builtin_popcount(set.words[i] & required);
    }
    return set;
}

static bool may_end(const struct members *members, const struct set *set) {
    return !set->missing && set->total >= members->min;
}

// Whether there is room for a member that need not come.
static bool has_room(const struct members *members, const struct set *set) {
    return members->max == EXPR_FOREVER || (uint64_t)set->total + set->missing < members->max;
}

static bool may_have_other(const struct members *members, const struct set *set) {
    return members->other != PC_FAIL && has_room(members, set);
}

static bool may_have_item(const struct members *members, const struct set *set, uint32_t item) {
    return !has_item(set, item) && (item < members->num_required || has_room(members, set));
}

bool members_may_end(const struct automaton *automaton, uint32_t index, uint32_t id) {
    const struct members *members = &automaton->members[index];
    struct set set = read_set(automaton, members, id);
    return may_end(members, &set);
}

bool members_go_on(const struct automaton *automaton, uint32_t index, uint32_t id) {
    const struct members *members = &automaton->members[index];
    struct set set = read_set(automaton, members, id);
    if (set.missing || may_have_other(members, &set)) return true;
    for (uint32_t i = 0; i < members->num_items; i++) {
        if (may_have_item(members, &set, i)) return true;
    }
    return false;
}

bool members_may_have(const struct automaton *automaton, uint32_t index, uint32_t id,
                      uint32_t item) {
    const struct members *members = &automaton->members[index];
    struct set set = read_set(automaton, members, id);
    if (item < members->num_items) return may_have_item(members, &set, item);
    if (item == members->num_items) return may_have_other(members, &set);
    return members->extra != PC_FAIL && !set.has_extra;
}

// ---- alternatives that have too many members ----

struct counts {
    const struct grammar *grammar;
    uint32_t *rules; // [num_rules]: of each rule, + 1; 0: not counted
    uint32_t depth; // of calls in each other
};

// How many members may begin an object of the item. Alternatives are added: a text may be one of
// each until its keys tell which. AUTOMATON_THREADS_MAX + 1 stands for more.
static uint32_t num_beginnings(struct counts *counts, uint32_t item) {
    enum { DEPTH_MAX = 100 };
    const struct grammar *grammar = counts->grammar;
    struct grammar_item node = grammar->items[item];
    uint32_t sum = 0;
    bool has_text = false;
    switch ((enum item_kind)node.kind) {
    case ITEM_MEMBERS:
        return node.c;
    case ITEM_CALL:
        if (!counts->rules[node.a] && counts->depth < DEPTH_MAX) {
            counts->depth++;
            uint32_t count = num_beginnings(counts, grammar->rules[node.a].item);
            counts->rules[node.a] = count + 1;
            counts->depth--;
        }
        return counts->rules[node.a] ? counts->rules[node.a] - 1 : 0;
    case ITEM_CHOICE:
        for (uint32_t i = 0; i < node.b && sum <= AUTOMATON_THREADS_MAX; i++) {
            sum += num_beginnings(counts, grammar->lists[node.a + i]);
        }
        return sum <= AUTOMATON_THREADS_MAX ? sum : AUTOMATON_THREADS_MAX + 1;
    case ITEM_SEQUENCE: // a choice or a call behind a text is another value's: an item of an array
        for (uint32_t i = 0; i < node.b; i++) {
            uint32_t part = grammar->lists[node.a + i], kind = grammar->items[part].kind;
            if (kind == ITEM_MEMBERS || (!has_text && (kind == ITEM_CALL || kind == ITEM_CHOICE))) {
                return num_beginnings(counts, part);
            }
            if (kind == ITEM_TERMINAL)
                has_text = true;
            else if (kind != ITEM_UNIQUE && kind != ITEM_UNIQUE_KEYS)
                return 0;
        }
        return 0;
    default:
        return 0;
    }
}

void members_check(struct automaton *automaton) {
    const struct grammar *grammar = automaton->grammar;
    struct counts counts = {.grammar = grammar};
    if (!grammar->num_members) return;
    counts.rules = calloc(grammar->num_rules, sizeof *counts.rules);
    if (!counts.rules) {
        exprs_fail(automaton->exprs, ERR_NOMEM, "out of memory: structured output");
        return;
    }
    for (uint32_t i = 0; i < grammar->num_items; i++) {
        if (grammar->items[i].kind != ITEM_CHOICE) continue;
        if (num_beginnings(&counts, i) <= AUTOMATON_THREADS_MAX) continue;
        exprs_fail(automaton->exprs, ERR_CAPACITY,
                   "alternatives have more than %d keys together, too many for any order",
                   AUTOMATON_THREADS_MAX);
        break;
    }
    free(counts.rules);
}

// ---- sets as values ----

static uint64_t hash_words(const uint32_t *words, uint32_t len) {
    uint64_t hash = len;
    for (uint32_t i = 0; i < len; i++) hash = expr_mix(hash ^ words[i]);
    return hash;
}

static bool grow_table(struct automaton *automaton) {
    uint32_t *len = &automaton->member_table_len;
    if ((uint64_t)automaton->num_member_sets * 2 + 2 <= *len) return true;
    if (!exprs_grow(automaton->exprs, &automaton->member_table, len, *len ? *len * 2 : 64,
                    sizeof *automaton->member_table)) {
        return false;
    }
    memset(automaton->member_table, 0, *len * sizeof *automaton->member_table);
    for (uint32_t i = 0; i < automaton->num_member_sets; i++) {
        const struct member_set *set = &automaton->member_sets[i];
        uint32_t at =
            (uint32_t)hash_words(automaton->member_words + set->first, set->len) & (*len - 1);
        while (automaton->member_table[at]) at = (at + 1) & (*len - 1);
        automaton->member_table[at] = i + 1;
    }
    return true;
}

// The id of the words behind the last set.
static uint32_t intern(struct automaton *automaton, uint32_t len) {
    const uint32_t *words = automaton->member_words + automaton->member_words_len;
    if (!grow_table(automaton)) return MEMBERS_NONE;
    uint32_t mask = automaton->member_table_len - 1;
    uint32_t at = (uint32_t)hash_words(words, len) & mask;
    for (; automaton->member_table[at]; at = (at + 1) & mask) {
        uint32_t id = automaton->member_table[at];
        const struct member_set *set = &automaton->member_sets[id - 1];
        if (set->len == len &&
            memcmp(automaton->member_words + set->first, words, len * sizeof *words) == 0) {
            return id;
        }
    }
    if (!exprs_grow(automaton->exprs, &automaton->member_sets, &automaton->member_sets_capacity,
                    automaton->num_member_sets + 1, sizeof *automaton->member_sets)) {
        return MEMBERS_NONE;
    }
    automaton->member_sets[automaton->num_member_sets] =
        (struct member_set){.first = automaton->member_words_len, .len = len};
    automaton->member_words_len += len;
    automaton->member_table[at] = ++automaton->num_member_sets;
    return automaton->num_member_sets;
}

uint32_t members_add(struct automaton *automaton, uint32_t index, uint32_t id, uint32_t item) {
    const struct members *members = &automaton->members[index];
    uint32_t len = num_words(members), before = automaton->member_words_len;
    if (!exprs_count(automaton->exprs, len) ||
        !exprs_grow(automaton->exprs, &automaton->member_words, &automaton->member_words_capacity,
                    before + len, sizeof *automaton->member_words)) {
        return MEMBERS_NONE;
    }
    CHECK(automaton->member_words, "%u words", before + len);
    uint32_t *words = automaton->member_words + before;
    struct set set = read_set(automaton, members, id);
    for (uint32_t i = 0; i < len; i++) words[i] = set.words ? set.words[i] : 0;
    if (item < members->num_items) {
        words[item / 32] |= UINT32_C(1) << (item % 32);
    } else if (item > members->num_items) {
        words[len - 1] |= HAS_EXTRA;
    } else if (set.others < members->others_max) { // more make no difference
        words[len - 1]++;
    }
    return intern(automaton, len);
}

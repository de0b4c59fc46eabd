/* Program, stacks and states: shared by the files automaton*.c. */
#ifndef STRUCTURED_AUTOMATON_INTERNAL_H
#define STRUCTURED_AUTOMATON_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "structured/automaton/automaton.h"
#include "structured/grammar/grammar_internal.h"
#include "structured/unique/unique.h"

// ---- program: the rules as instructions ----

enum automaton_op {
    OP_RETURN, // goes on behind the call
    OP_ACCEPT, // the text may end
    OP_FAIL,
    OP_TERMINAL, // expression a
    OP_CALL, // the rule that begins at a
    OP_CHOICE, // targets[a .. a + b)
    OP_LOOP, // the body that begins at a, b to c times
    OP_MEMBERS, // members[a] in any order (automaton_members.c)
    OP_MEMBER, // one of those that may follow
    OP_CAME, // behind its item b
    OP_UNIQUE, // a value that begins here is watched for `a`, an enum unique_begins
};
enum { PC_RETURN = 0, PC_ACCEPT = 1, PC_FAIL = 2 };

struct instruction {
    uint8_t op;
    bool nullable_body; // of OP_LOOP
    uint32_t a, b, c;
    uint32_t shortest; // of OP_LOOP: no text of its body has fewer bytes, unless that may be empty
    uint32_t next; // where it goes on
};

// Of OP_MEMBERS. Bodies are instructions; PC_FAIL: there is no such item.
struct members {
    uint32_t first, num_items, num_required; // bodies targets[first .. first + num_items)
    uint32_t other, extra;
    uint32_t before_first, comma; // expressions
    uint32_t min, max;
    uint32_t others_max; // their number is counted up to this
    uint32_t came; // the OP_CAME of item 0; then those of the other ones, of other, of extra
};
// The members that a text has so far: member_words[first .. first + len).
struct member_set {
    uint32_t first, len;
};
enum { MEMBERS_NONE = 0 }; // the empty set's id

// ---- stacks ----

// What comes behind: instruction pc, then what `parents` say. `count` is the number of iterations
// that OP_LOOP at pc has begun, or the set of members of OP_MEMBERS, OP_MEMBER and OP_CAME.
struct stack_frame {
    uint32_t pc, count;
    uint32_t parents; // a set of stacks
};

// A set of stacks, as the frames that are on top, ascending by (pc, count), each once. Equal sets
// have one id; set 0 has no stack.
struct stack_set {
    uint32_t first, len; // frames[first .. first + len)
    uint32_t depth; // of the deepest stack
    uint32_t loose; // the set with long counters forgotten (automaton_states.c)
};

enum { STACK_DEPTH_MAX = 2000 }; // a text that nests deeper does not fit

// ---- states ----

struct thread {
    uint32_t expr, stacks;
};
enum { AUTOMATON_THREADS_MAX = 20000 }; // ways to go on that a state may have

static const uint32_t NO_ROW = UINT32_MAX, NO_MASK = UINT32_MAX;

// Plain characters that may follow: those of `kinds` (bits), and no others, up to `chars` of them.
// PLAIN_ALL: any number. PLAIN_MIXED: up to `most` of `kinds`; whether those of `walked` may follow
// depends on the characters; no others may.
struct plain {
    uint32_t kinds, chars, walked;
    uint32_t most; // with PLAIN_MIXED
    bool known;
};
static const uint32_t PLAIN_MIXED = UINT32_MAX - 1, PLAIN_ALL = UINT32_MAX;

// Of a counter of characters: all characters of `kinds` may follow, up to `most`. At each place all
// of them lead to the same state. Whether those of `walked` may follow depends on the character and
// the place. Other kinds may not follow. No kinds: there is no such chain.
struct free_chain {
    uint16_t kinds, walked;
    bool known;
    bool is_counter; // each of the characters makes a counter smaller by one
    uint32_t most;
};

struct state {
    uint32_t first, len; // threads[first .. first + len), ascending by expr
    uint32_t row; // of `rows`; NO_ROW: not made
    uint32_t mask; // of `masks`; NO_MASK: not made
    uint32_t loose; // the state with the same mask whose long counters are forgotten; + 1
    uint32_t live; // of `live`, + 1; 0: not made
    struct plain plain;
    struct free_chain free;
    bool can_end;
    uint8_t begins; // enum unique_begins, of a value that begins here
    bool repeats_nothing; // if no value came before: no allowed token has the same value twice
};

// Entries of a row: a state, or one of these.
static const uint32_t ROW_UNKNOWN = UINT32_MAX;
static const uint32_t ROW_ALIAS = UINT32_C(1) << 31; // as class entry & 0xff

struct mask {
    uint32_t plain_chars,
        plain_kinds; // plain tokens: of at most so many characters, of these kinds
    uint32_t num_ids; // more tokens
    uint32_t *ids; // [num_ids]
    uint32_t *words; // all of the mask instead, or NULL
    uint32_t base; // a mask that has more of the tokens, + 1; 0: none
    bool any;
};

struct unique_keys {
    uint32_t len;
    struct unique_hash keys[UNIQUE_ABSENT_MAX]; // [len]
};

struct automaton {
    atomic_uint holders;
    pthread_mutex_t mutex;
    struct grammar *grammar;
    struct exprs *exprs; // the grammar's; counts all memory but masks
    const struct vocabulary *vocabulary;
    uint64_t steps_max, search_steps_max;
    bool has_unique; // some array has unique items, or some object unique keys
    uint32_t any_text; // expr_any_text; EXPR_NOTHING where no JSON text is in the grammar

    struct instruction *code; // [code_len]
    uint32_t code_len, code_capacity;
    uint32_t *targets; // [targets_len]
    uint32_t targets_len, targets_capacity;

    struct members *members; // [num_members]
    uint32_t num_members, members_capacity;
    uint32_t *member_words; // [member_words_len]
    uint32_t member_words_len, member_words_capacity;
    struct member_set *member_sets; // [num_member_sets], by id - 1
    uint32_t num_member_sets, member_sets_capacity;
    uint32_t *member_table; // [member_table_len], ids
    uint32_t member_table_len;

    struct stack_frame *frames; // [frames_len]
    uint32_t frames_len, frames_capacity;
    struct stack_set *sets; // [num_sets]
    uint32_t num_sets, sets_capacity;
    uint32_t *set_table; // [set_table_len], ids + 1
    uint32_t set_table_len;
    struct expr_memo *unions; // [unions_len], key a << 32 | b
    uint32_t unions_len, unions_count;
    struct stack_frame *frame_scratch; // [frame_scratch_len], a stack of lists
    uint32_t frame_scratch_len, frame_scratch_capacity;

    struct thread *threads; // [threads_len]
    uint32_t threads_len, threads_capacity;
    struct state *states; // [num_states]
    uint32_t num_states, states_capacity;
    uint32_t *state_table; // [state_table_len], ids + 1
    uint32_t state_table_len;
    uint32_t *rows; // [num_rows][num_classes]
    uint32_t num_rows, rows_capacity; // rows_capacity in entries
    size_t row_bytes_max;
    uint32_t start;

    // The state that is being made.
    struct thread *made; // [made_len]
    uint32_t made_len, made_capacity;
    struct stack_frame *work; // [work_len], to go through
    uint32_t work_len, work_capacity;
    struct visit {
        struct stack_frame frame;
        uint32_t round; // of which closure
    } * visits; // [visits_len], a table
    uint32_t visits_len, visits_count, round;
    bool made_can_end;
    uint8_t made_begins;

    struct mask *masks; // [num_masks]
    uint32_t num_masks, masks_capacity;
    size_t mask_bytes, mask_bytes_max;
    uint32_t *ids; // [num_tokens] of the mask that is being made
    uint32_t num_ids;
    struct walk_step {
        uint32_t state, row; // index of its first entry in rows
    } * path; // [token_bytes_max + 2] of a walk
    struct automaton_stats stats;

    // Of arrays with unique items (automaton_ways.c). It holds while the object at hand has none of
    // the keys.
    struct unique_memo {
        uint64_t key;
        uint8_t way;
        bool has_critical;
        uint32_t first_critical, num_critical; // tokens: critical[first_critical ...]
        struct unique_keys way_absent, critical_absent;
    } * memos; // [num_memos]
    uint32_t num_memos, memos_capacity;
    uint32_t *memo_table; // [memo_table_len], ids + 1
    uint32_t memo_table_len;
    uint32_t *critical; // [num_critical]
    uint32_t num_critical, critical_capacity;
    struct live_bytes {
        uint64_t bits[4]; // which bytes may follow
    } * live; // [num_live] of states
    uint32_t num_live, live_capacity;
};

// Whether a way out is there for any items so far.
enum { WAY_UNKNOWN, WAY_ALWAYS, WAY_DEPENDS };

// Each call from outside is between these two (automaton.c).
void automaton_lock(struct automaton *automaton);
enum status automaton_unlock(struct automaton *automaton, struct err *err);
// A step of the text. States that the text alone passes through get no row.
uint32_t automaton_step(struct automaton *automaton, uint32_t state, unsigned char byte);

// Makes `code` of the grammar's rules, which are resolved. Returns the first instruction.
uint32_t automaton_program(struct automaton *automaton);

// Of the set `id` of members[index]: whether it may be all, whether a member may follow, and which:
// item num_items is another one, the next one the extra one.
bool members_may_end(const struct automaton *automaton, uint32_t index, uint32_t id);
bool members_go_on(const struct automaton *automaton, uint32_t index, uint32_t id);
bool members_may_have(const struct automaton *automaton, uint32_t index, uint32_t id,
                      uint32_t item);
// Makes the sticky error where the alternatives of a value have more keys together than a state has
// ways to go on: each text would end there.
void members_check(struct automaton *automaton);
// The set with the item too.
uint32_t members_add(struct automaton *automaton, uint32_t index, uint32_t id, uint32_t item);

void stacks_init(struct automaton *automaton); // makes set 0
// The set of one stack: pc on top of `parents`. 0 where that is too deep.
uint32_t stacks_push(struct automaton *automaton, uint32_t pc, uint32_t count, uint32_t parents);
uint32_t stacks_union(struct automaton *automaton, uint32_t a, uint32_t b);

// The state that a text begins in, at instruction pc.
uint32_t states_begin(struct automaton *automaton, uint32_t pc);
// The state behind a byte of the class.
uint32_t states_step(struct automaton *automaton, uint32_t state, uint32_t class);
// The same, remembered.
uint32_t states_step_row(struct automaton *automaton, uint32_t state, uint32_t class);
// `state` with this expression in place of its only one.
uint32_t states_replace(struct automaton *automaton, uint32_t state, uint32_t expr);
// A state with the same mask, in which long counters are forgotten, so that many states share it.
// It holds for the bytes of one token only.
uint32_t states_loosen(struct automaton *automaton, uint32_t state);

struct plain automaton_plain(struct automaton *automaton, uint32_t state);
// For a state inside a JSON string that counts characters of a set: a state with a smaller counter.
// Of the tokens that are not plain it allows the same ones. The state itself where there is none.
uint32_t automaton_shorten(struct automaton *automaton, uint32_t state);
// Fills a new row: which classes follow alike.
bool states_make_row(struct automaton *automaton, uint32_t state);

#endif

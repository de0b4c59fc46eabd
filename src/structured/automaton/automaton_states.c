/* States: what may follow a text. A byte takes each thread to its expression's derivative. Where
 * that may be empty, the terminal may end there, and the instructions behind it begin new threads.
 */
#include <stdlib.h>
#include <string.h>

#include "structured/automaton/automaton_internal.h"

// ---- the closure over instructions that take no text ----

static void add_work(struct automaton *automaton, struct stack_frame frame) {
    if (!exprs_grow(automaton->exprs, &automaton->work, &automaton->work_capacity,
                    automaton->work_len + 1, sizeof frame)) {
        return;
    }
    automaton->work[automaton->work_len++] = frame;
}

// All stacks of the set go on at their top frames.
static void add_stacks(struct automaton *automaton, uint32_t set) {
    struct stack_set stacks = automaton->sets[set];
    for (uint32_t i = 0; i < stacks.len && exprs_count(automaton->exprs, 1); i++) {
        add_work(automaton, automaton->frames[stacks.first + i]);
    }
}

static void add_thread(struct automaton *automaton, uint32_t expr, uint32_t stacks) {
    struct exprs *exprs = automaton->exprs;
    if (stacks == 0 || !exprs_count(exprs, 1)) return; // too deep
    if (expr_is_nullable(exprs, expr)) add_stacks(automaton, stacks);
    if (expr == EXPR_EPSILON) return;
    if (automaton->made_len == AUTOMATON_THREADS_MAX) {
        exprs_fail(exprs, ERR_CAPACITY, "a text has more than %d ways to go on in the grammar",
                   AUTOMATON_THREADS_MAX);
        return;
    }
    if (!exprs_grow(exprs, &automaton->made, &automaton->made_capacity, automaton->made_len + 1,
                    sizeof *automaton->made)) {
        return;
    }
    automaton->made[automaton->made_len++] = (struct thread){.expr = expr, .stacks = stacks};
}

static bool grow_visits(struct automaton *automaton) {
    if ((automaton->visits_count + 1) * 2 <= automaton->visits_len) return true;
    struct visit *old = automaton->visits;
    uint32_t old_len = automaton->visits_len, len = 0;
    struct visit *visits = NULL;
    if (!exprs_grow(automaton->exprs, &visits, &len, old_len ? old_len * 2 : 64, sizeof *visits)) {
        return false;
    }
    memset(visits, 0, len * sizeof *visits);
    for (uint32_t i = 0; i < old_len; i++) {
        if (old[i].round != automaton->round) continue;
        uint64_t hash = (uint64_t)old[i].frame.pc << 32 | old[i].frame.parents;
        uint32_t at = (uint32_t)expr_mix(hash) & (len - 1);
        while (visits[at].round) at = (at + 1) & (len - 1);
        visits[at] = old[i];
    }
    automaton->visits = visits;
    automaton->visits_len = len;
    automaton->exprs->bytes -= old_len * sizeof *old;
    free(old);
    return true;
}

// Whether the frame is new to this closure. Of a loop whose body may be empty, a smaller count
// includes what larger ones allow; without that such a loop would be run through to its end.
static bool is_first_visit(struct automaton *automaton, struct stack_frame frame) {
    if (!grow_visits(automaton)) return false;
    bool loops = automaton->code[frame.pc].nullable_body;
    uint32_t mask = automaton->visits_len - 1;
    uint32_t at = (uint32_t)expr_mix((uint64_t)frame.pc << 32 | frame.parents) & mask;
    for (; automaton->visits[at].round == automaton->round; at = (at + 1) & mask) {
        struct stack_frame *seen = &automaton->visits[at].frame;
        if (seen->pc != frame.pc || seen->parents != frame.parents) continue;
        if (seen->count == frame.count || (loops && seen->count < frame.count)) return false;
        if (!loops) continue;
        seen->count = frame.count;
        return true;
    }
    automaton->visits[at] = (struct visit){.frame = frame, .round = automaton->round};
    automaton->visits_count++;
    return true;
}

// Members in any order came, the set frame.count of them.
static void visit_members(struct automaton *automaton, struct stack_frame frame) {
    struct instruction code = automaton->code[frame.pc];
    uint32_t choice = frame.pc + 1; // OP_MEMBER
    if (members_may_end(automaton, code.a, frame.count)) {
        add_work(automaton, (struct stack_frame){.pc = code.next, .parents = frame.parents});
    }
    const struct members *members = &automaton->members[code.a];
    if (members_go_on(automaton, code.a, frame.count)) {
        add_thread(automaton, frame.count == MEMBERS_NONE ? members->before_first : members->comma,
                   stacks_push(automaton, choice, frame.count, frame.parents));
    }
}

static void visit_member(struct automaton *automaton, struct stack_frame frame) {
    uint32_t index = automaton->code[frame.pc].a;
    struct members members = automaton->members[index];
    for (uint32_t i = 0; i < members.num_items + 2; i++) {
        if (!members_may_have(automaton, index, frame.count, i)) continue;
        uint32_t parents = stacks_push(automaton, members.came + i, frame.count, frame.parents);
        uint32_t body = i < members.num_items    ? automaton->targets[members.first + i]
                        : i == members.num_items ? members.other
                                                 : members.extra;
        if (parents) add_work(automaton, (struct stack_frame){.pc = body, .parents = parents});
    }
}

static void visit(struct automaton *automaton, struct stack_frame frame) {
    struct instruction code = automaton->code[frame.pc];
    struct stack_frame next = {.pc = code.next, .parents = frame.parents};
    switch ((enum automaton_op)code.op) {
    case OP_RETURN:
        add_stacks(automaton, frame.parents);
        return;
    case OP_ACCEPT:
        automaton->made_can_end = true;
        return;
    case OP_FAIL:
        return;
    case OP_UNIQUE:
        automaton->made_begins |= (uint8_t)code.a;
        add_work(automaton, next);
        return;
    case OP_TERMINAL:
        add_thread(automaton, code.a, stacks_push(automaton, code.next, 0, frame.parents));
        return;
    case OP_CALL:
        next.parents = stacks_push(automaton, code.next, 0, frame.parents);
        next.pc = code.a;
        if (next.parents) add_work(automaton, next);
        return;
    case OP_CHOICE:
        for (uint32_t i = 0; i < code.b; i++) {
            next.pc = automaton->targets[code.a + i];
            add_work(automaton, next);
        }
        return;
    case OP_MEMBERS:
        visit_members(automaton, frame);
        return;
    case OP_MEMBER:
        visit_member(automaton, frame);
        return;
    case OP_CAME:
        next.count = members_add(automaton, code.a, frame.count, code.b);
        add_work(automaton, next);
        return;
    case OP_LOOP:
        if (frame.count >= code.b) add_work(automaton, next);
        if (frame.count < code.c) {
            uint32_t count = frame.count + 1; // beyond the minimum of an endless loop all is one
            if (code.c == EXPR_FOREVER && count > code.b) count = code.b;
            next.parents = stacks_push(automaton, frame.pc, count, frame.parents);
            next.pc = code.a;
            if (next.parents) add_work(automaton, next);
        }
        return;
    }
}

static void close_over(struct automaton *automaton) {
    while (automaton->work_len > 0 && exprs_count(automaton->exprs, 1)) {
        struct stack_frame frame = automaton->work[--automaton->work_len];
        if (is_first_visit(automaton, frame)) visit(automaton, frame);
    }
    automaton->work_len = 0;
}

static void begin(struct automaton *automaton) {
    automaton->made_len = 0;
    automaton->work_len = 0;
    automaton->made_can_end = false;
    automaton->made_begins = 0;
    automaton->visits_count = 0;
    automaton->round++; // 2^32 rounds are more than the steps of any automaton
}

// ---- states as values ----

static uint64_t hash_state(const struct thread *threads, uint32_t len, bool can_end,
                           uint8_t begins) {
    uint64_t hash = (uint64_t)can_end | (uint64_t)begins << 1;
    for (uint32_t i = 0; i < len; i++) {
        hash = expr_mix(hash ^ ((uint64_t)threads[i].expr << 32 | threads[i].stacks));
    }
    return hash;
}

static int compare_threads(const void *x, const void *y) {
    const struct thread *a = x, *b = y;
    if (a->expr != b->expr) return a->expr < b->expr ? -1 : 1;
    return (a->stacks > b->stacks) - (a->stacks < b->stacks);
}

static bool grow_state_table(struct automaton *automaton) {
    uint32_t *len = &automaton->state_table_len;
    if ((uint64_t)automaton->num_states * 2 + 2 <= *len) return true;
    if (!exprs_grow(automaton->exprs, &automaton->state_table, len, *len ? *len * 2 : 256,
                    sizeof *automaton->state_table)) {
        return false;
    }
    memset(automaton->state_table, 0, *len * sizeof *automaton->state_table);
    for (uint32_t id = 0; id < automaton->num_states; id++) {
        const struct state *state = &automaton->states[id];
        const struct thread *threads = automaton->threads + state->first;
        uint32_t at =
            (uint32_t)hash_state(threads, state->len, state->can_end, state->begins) & (*len - 1);
        while (automaton->state_table[at]) at = (at + 1) & (*len - 1);
        automaton->state_table[at] = id + 1;
    }
    return true;
}

// The stacks of all these threads. By halves, because each union on the way is kept: one thread
// after the other, the unions of n stacks would have n^2 / 2 frames.
static uint32_t stacks_of(struct automaton *automaton, const struct thread *threads, uint32_t len) {
    if (len == 1) return threads->stacks;
    uint32_t half = len / 2, left = stacks_of(automaton, threads, half);
    return stacks_union(automaton, left, stacks_of(automaton, threads + half, len - half));
}

// The state of the threads in `made`.
static uint32_t intern_made(struct automaton *automaton) {
    struct exprs *exprs = automaton->exprs;
    struct thread *made = automaton->made;
    uint32_t len = 0;
    if (automaton->made_len > 1) {
        qsort(made, automaton->made_len, sizeof *made, compare_threads);
    }
    for (uint32_t i = 0, end; i < automaton->made_len; i = end) {
        for (end = i + 1; end < automaton->made_len && made[end].expr == made[i].expr;) end++;
        made[len++] = (struct thread){.expr = made[i].expr,
                                      .stacks = stacks_of(automaton, made + i, end - i)};
    }
    if (!exprs_count(exprs, 1 + len) || !grow_state_table(automaton)) return AUTOMATON_DEAD;
    uint32_t mask = automaton->state_table_len - 1;
    uint32_t at =
        (uint32_t)hash_state(made, len, automaton->made_can_end, automaton->made_begins) & mask;
    for (; automaton->state_table[at]; at = (at + 1) & mask) {
        uint32_t id = automaton->state_table[at] - 1;
        const struct state *state = &automaton->states[id];
        if (state->len == len && state->can_end == automaton->made_can_end &&
            state->begins == automaton->made_begins &&
            (len == 0 ||
             memcmp(automaton->threads + state->first, made, len * sizeof *made) == 0)) {
            return id;
        }
    }
    if (!exprs_grow(exprs, &automaton->threads, &automaton->threads_capacity,
                    automaton->threads_len + len, sizeof *made) ||
        !exprs_grow(exprs, &automaton->states, &automaton->states_capacity,
                    automaton->num_states + 1, sizeof *automaton->states)) {
        return AUTOMATON_DEAD;
    }
    if (len) memcpy(automaton->threads + automaton->threads_len, made, len * sizeof *made);
    uint32_t id = automaton->num_states++;
    automaton->states[id] = (struct state){.first = automaton->threads_len,
                                           .len = len,
                                           .row = NO_ROW,
                                           .mask = NO_MASK,
                                           .can_end = automaton->made_can_end,
                                           .begins = automaton->made_begins};
    automaton->threads_len += len;
    automaton->state_table[at] = id + 1;
    return id;
}

uint32_t states_begin(struct automaton *automaton, uint32_t pc) {
    begin(automaton);
    if (intern_made(automaton) != AUTOMATON_DEAD) return AUTOMATON_DEAD; // makes state 0
    uint32_t stacks = stacks_push(automaton, PC_ACCEPT, 0, 0);
    add_work(automaton, (struct stack_frame){.pc = pc, .parents = stacks});
    close_over(automaton);
    return intern_made(automaton);
}

uint32_t states_step(struct automaton *automaton, uint32_t id, uint32_t class) {
    struct state state = automaton->states[id];
    unsigned char byte = automaton->exprs->class_byte[class];
    begin(automaton);
    for (uint32_t i = 0; i < state.len; i++) {
        struct thread thread = automaton->threads[state.first + i];
        uint32_t next = exprs_derive(automaton->exprs, thread.expr, byte);
        if (next == EXPR_NOTHING || !exprs_is_live(automaton->exprs, next)) continue;
        add_thread(automaton, next, thread.stacks);
    }
    close_over(automaton);
    return automaton->exprs->err.status ? AUTOMATON_DEAD : intern_made(automaton);
}

uint32_t states_replace(struct automaton *automaton, uint32_t id, uint32_t expr) {
    struct state state = automaton->states[id];
    struct thread thread = {.expr = expr, .stacks = automaton->threads[state.first].stacks};
    begin(automaton);
    automaton->made_can_end = state.can_end;
    automaton->made_begins = state.begins;
    if (!exprs_grow(automaton->exprs, &automaton->made, &automaton->made_capacity, 1,
                    sizeof thread)) {
        return id;
    }
    automaton->made[automaton->made_len++] = thread;
    uint32_t made = intern_made(automaton);
    return automaton->exprs->err.status ? id : made;
}

uint32_t states_loosen(struct automaton *automaton, uint32_t id) {
    struct state state = automaton->states[id];
    if (state.loose) return state.loose - 1;
    begin(automaton);
    automaton->made_can_end = state.can_end;
    automaton->made_begins = state.begins;
    uint32_t bytes = automaton->vocabulary->token_bytes_max;
    for (uint32_t i = 0; i < state.len; i++) {
        struct thread thread = automaton->threads[state.first + i];
        uint32_t expr = exprs_forget_counters(automaton->exprs, thread.expr, bytes);
        if (!exprs_grow(automaton->exprs, &automaton->made, &automaton->made_capacity, i + 1,
                        sizeof thread)) {
            return id;
        }
        automaton->made[automaton->made_len++] =
            (struct thread){.expr = expr, .stacks = automaton->sets[thread.stacks].loose};
    }
    uint32_t loose = intern_made(automaton);
    if (automaton->exprs->err.status) return id;
    automaton->states[id].loose = loose + 1;
    return loose;
}

// ---- rows ----

bool states_make_row(struct automaton *automaton, uint32_t id) {
    struct exprs *exprs = automaton->exprs;
    uint32_t num_classes = exprs->num_classes;
    uint64_t signatures[256] = {0};
    struct state state = automaton->states[id];
    for (uint32_t i = 0; i < state.len; i++) {
        exprs_sign(exprs, automaton->threads[state.first + i].expr, signatures);
    }
    uint32_t need = (automaton->num_rows + 1) * num_classes;
    if (!exprs_grow(exprs, &automaton->rows, &automaton->rows_capacity, need,
                    sizeof *automaton->rows)) {
        return false;
    }
    uint32_t *row = automaton->rows + automaton->num_rows * num_classes;
    uint16_t table[512] = {0}; // the first class with a signature, + 1
    for (uint32_t k = 0; k < num_classes; k++) {
        uint32_t at = (uint32_t)expr_mix(signatures[k]) & 511;
        while (table[at] && signatures[table[at] - 1] != signatures[k]) at = (at + 1) & 511;
        row[k] = table[at] ? ROW_ALIAS | (table[at] - 1u) : ROW_UNKNOWN;
        if (!table[at]) table[at] = (uint16_t)(k + 1);
    }
    automaton->states[id].row = automaton->num_rows++;
    return true;
}

uint32_t states_step_row(struct automaton *automaton, uint32_t id, uint32_t class) {
    uint32_t num_classes = automaton->exprs->num_classes;
    if (automaton->states[id].row == NO_ROW && !states_make_row(automaton, id)) {
        return AUTOMATON_DEAD;
    }
    size_t row = (size_t)automaton->states[id].row * num_classes;
    uint32_t next = automaton->rows[row + class], first = class;
    if (next < ROW_ALIAS) return next;
    if (next != ROW_UNKNOWN) {
        first = next & 0xff;
        next = automaton->rows[row + first];
    }
    if (next == ROW_UNKNOWN) {
        next = states_step(automaton, id, first);
        if (automaton->exprs->err.status) return AUTOMATON_DEAD;
        automaton->rows[row + first] = next;
    }
    automaton->rows[row + class] = next;
    return next;
}

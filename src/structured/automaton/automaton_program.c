/* The rules as instructions. An item is compiled from its end: it gets the instruction where it
 * goes on. An item that ends its rule goes on at OP_RETURN. Such a call needs no frame of its own,
 * so right recursion needs no stack. */
#include <stdlib.h>
#include <string.h>

#include "structured/automaton/automaton_internal.h"

static uint32_t emit(struct automaton *automaton, struct instruction instruction) {
    if (!exprs_count(automaton->exprs, 1) ||
        !exprs_grow(automaton->exprs, &automaton->code, &automaton->code_capacity,
                    automaton->code_len + 1, sizeof *automaton->code)) {
        return PC_FAIL;
    }
    automaton->code[automaton->code_len] = instruction;
    return automaton->code_len++;
}

static uint32_t compile(struct automaton *automaton, uint32_t item, uint32_t next);

static uint32_t compile_choice(struct automaton *automaton, struct grammar_item node,
                               uint32_t next) {
    struct exprs *exprs = automaton->exprs;
    uint32_t base = exprs->scratch_len;
    for (uint32_t i = 0; i < node.b; i++) {
        uint32_t pc = compile(automaton, automaton->grammar->lists[node.a + i], next);
        if (!exprs_push(exprs, pc)) break;
    }
    uint32_t len = exprs->scratch_len - base, pc = PC_FAIL;
    if (exprs_grow(exprs, &automaton->targets, &automaton->targets_capacity,
                   automaton->targets_len + len, sizeof *automaton->targets)) {
        memcpy(automaton->targets + automaton->targets_len, exprs->scratch + base,
               len * sizeof *automaton->targets);
        pc = emit(automaton,
                  (struct instruction){.op = OP_CHOICE, .a = automaton->targets_len, .b = len});
        automaton->targets_len += len;
    }
    exprs->scratch_len = base;
    return pc;
}

// OP_MEMBERS, OP_MEMBER behind it, then OP_CAME of each item.
static uint32_t compile_members(struct automaton *automaton, struct grammar_item node,
                                uint32_t next) {
    struct exprs *exprs = automaton->exprs;
    struct grammar_members from = automaton->grammar->members[node.a];
    uint32_t base = exprs->scratch_len;
    for (uint32_t i = 0; i < node.c; i++) {
        uint32_t pc = compile(automaton, automaton->grammar->lists[node.b + i], PC_RETURN);
        if (!exprs_push(exprs, pc)) break;
    }
    uint32_t other = from.other ? compile(automaton, from.other, PC_RETURN) : PC_FAIL;
    uint32_t extra = from.extra ? compile(automaton, from.extra, PC_RETURN) : PC_FAIL;
    uint32_t len = exprs->scratch_len - base, index = automaton->num_members;
    exprs->scratch_len = base;
    if (!exprs_grow(exprs, &automaton->targets, &automaton->targets_capacity,
                    automaton->targets_len + len, sizeof *automaton->targets) ||
        !exprs_grow(exprs, &automaton->members, &automaton->members_capacity, index + 1,
                    sizeof *automaton->members)) {
        return PC_FAIL;
    }
    memcpy(automaton->targets + automaton->targets_len, exprs->scratch + base,
           len * sizeof *automaton->targets);
    uint32_t least = from.min ? from.min : 1;
    uint32_t pc = emit(automaton, (struct instruction){.op = OP_MEMBERS, .a = index, .next = next});
    emit(automaton, (struct instruction){.op = OP_MEMBER, .a = index});
    for (uint32_t i = 0; i < len + 2; i++) {
        emit(automaton, (struct instruction){.op = OP_CAME, .a = index, .b = i, .next = pc});
    }
    automaton->members[automaton->num_members++] =
        (struct members){.first = automaton->targets_len,
                         .num_items = len,
                         .num_required = from.num_required,
                         .other = other,
                         .extra = extra,
                         .before_first = from.first,
                         .comma = from.comma,
                         .min = from.min,
                         .max = from.max,
                         .others_max = from.max == EXPR_FOREVER ? least : from.max,
                         .came = pc + 2};
    automaton->targets_len += len;
    return pc;
}

static uint32_t compile(struct automaton *automaton, uint32_t item, uint32_t next) {
    const struct grammar *grammar = automaton->grammar;
    struct grammar_item node = grammar->items[item];
    if (automaton->exprs->err.status) return PC_FAIL;
    switch ((enum item_kind)node.kind) {
    case ITEM_EMPTY:
        return next;
    case ITEM_TERMINAL:
        if (node.a == EXPR_NOTHING) return PC_FAIL;
        return emit(automaton, (struct instruction){.op = OP_TERMINAL, .a = node.a, .next = next});
    case ITEM_UNIQUE:
    case ITEM_UNIQUE_KEYS: {
        uint32_t watched = node.kind == ITEM_UNIQUE ? UNIQUE_ITEM : UNIQUE_KEYS;
        automaton->has_unique = true;
        return emit(automaton, (struct instruction){.op = OP_UNIQUE, .a = watched, .next = next});
    }
    case ITEM_CALL: // `a` becomes an instruction later
        return emit(automaton, (struct instruction){.op = OP_CALL, .a = node.a, .next = next});
    case ITEM_SEQUENCE:
        for (uint32_t i = node.b; i-- > 0;) {
            next = compile(automaton, grammar->lists[node.a + i], next);
        }
        return next;
    case ITEM_CHOICE:
        return compile_choice(automaton, node, next);
    case ITEM_MEMBERS:
        return compile_members(automaton, node, next);
    case ITEM_REPEAT: {
        uint32_t body = compile(automaton, node.a, PC_RETURN), expr, shortest = 1;
        if (grammar_as_expr(grammar, node.a, &expr)) {
            uint32_t most = automaton->vocabulary->token_bytes_max;
            shortest = exprs_shortest(automaton->exprs, expr, most);
        }
        return emit(automaton, (struct instruction){.op = OP_LOOP,
                                                    .shortest = shortest ? shortest : 1,
                                                    .nullable_body = node.nullable_body,
                                                    .a = body,
                                                    .b = node.b,
                                                    .c = node.c,
                                                    .next = next});
    }
    }
    return PC_FAIL;
}

uint32_t automaton_program(struct automaton *automaton) {
    const struct grammar *grammar = automaton->grammar;
    members_check(automaton);
    uint32_t *entries = malloc((grammar->num_rules + 1) * sizeof *entries);
    if (!entries) {
        return exprs_fail(automaton->exprs, ERR_NOMEM, "out of memory: structured output");
    }
    for (uint32_t i = 0; i < grammar->num_rules; i++) entries[i] = PC_FAIL;
    emit(automaton, (struct instruction){.op = OP_RETURN});
    emit(automaton, (struct instruction){.op = OP_ACCEPT});
    emit(automaton, (struct instruction){.op = OP_FAIL});
    uint32_t start = compile(automaton, grammar->rules[grammar->start].item, PC_RETURN);
    entries[grammar->start] = start;
    // Rules are compiled when a call of them is met; their code may have more calls.
    for (uint32_t pc = 0; pc < automaton->code_len && !automaton->exprs->err.status; pc++) {
        if (automaton->code[pc].op != OP_CALL) continue;
        uint32_t rule = automaton->code[pc].a;
        if (entries[rule] == PC_FAIL) {
            uint32_t entry = compile(automaton, grammar->rules[rule].item, PC_RETURN);
            entries[rule] = entry;
        }
        automaton->code[pc].a = entries[rule];
    }
    free(entries);
    return start;
}

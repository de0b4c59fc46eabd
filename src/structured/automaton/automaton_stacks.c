/* Sets of stacks. A frame refers to the set of what may lie below it, so stacks share their tails,
 * and two stacks that differ only far below are one frame on top. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "structured/automaton/automaton_internal.h"

static uint64_t hash_frames(const struct stack_frame *frames, uint32_t len) {
    uint64_t hash = len;
    for (uint32_t i = 0; i < len; i++) {
        hash = expr_mix(hash ^ ((uint64_t)frames[i].pc << 32 | frames[i].parents));
        hash = expr_mix(hash + frames[i].count);
    }
    return hash;
}

static bool grow_set_table(struct automaton *automaton) {
    uint32_t *len = &automaton->set_table_len;
    if ((uint64_t)automaton->num_sets * 2 + 2 <= *len) return true;
    if (!exprs_grow(automaton->exprs, &automaton->set_table, len, *len ? *len * 2 : 256,
                    sizeof *automaton->set_table)) {
        return false;
    }
    memset(automaton->set_table, 0, *len * sizeof *automaton->set_table);
    for (uint32_t id = 0; id < automaton->num_sets; id++) {
        const struct stack_set *set = &automaton->sets[id];
        const struct stack_frame *frames = set->len ? automaton->frames + set->first : NULL;
        uint32_t at = (uint32_t)hash_frames(frames, set->len) & (*len - 1);
        while (automaton->set_table[at]) at = (at + 1) & (*len - 1);
        automaton->set_table[at] = id + 1;
    }
    return true;
}

static bool scratch_push(struct automaton *automaton, struct stack_frame frame) {
    if (!exprs_grow(automaton->exprs, &automaton->frame_scratch, &automaton->frame_scratch_capacity,
                    automaton->frame_scratch_len + 1, sizeof frame)) {
        return false;
    }
    automaton->frame_scratch[automaton->frame_scratch_len++] = frame;
    return true;
}

// The counter of a loop that a token of at most `bytes` bytes cannot tell from `count`. Such a
// token begins no more than `begun` iterations: all but the last of them end in it too.
static uint32_t loose_count(const struct instruction *loop, uint32_t count, uint32_t bytes) {
    if (loop->op != OP_LOOP || loop->nullable_body || !bytes) return count;
    uint32_t begun = (bytes - 1) / loop->shortest + 1;
    if (loop->c != EXPR_FOREVER && loop->c - count <= begun) return count;
    if (count >= loop->b) return loop->b;
    return loop->b - count > begun ? loop->b - begun - 1 : count;
}

static uint32_t intern(struct automaton *automaton, uint32_t base, uint32_t depth);

// The set with the loose counters of its frames; itself where it has those already.
static uint32_t loose_set(struct automaton *automaton, uint32_t id) {
    struct stack_set set = automaton->sets[id];
    uint32_t bytes = automaton->vocabulary->token_bytes_max, result = 0;
    bool same = true;
    for (uint32_t i = 0; i < set.len && same; i++) {
        const struct stack_frame *frame = &automaton->frames[set.first + i];
        const struct instruction *loop = &automaton->code[frame->pc];
        same = loose_count(loop, frame->count, bytes) == frame->count &&
               automaton->sets[frame->parents].loose == frame->parents;
    }
    if (same) return id;
    for (uint32_t i = 0; i < set.len; i++) {
        struct stack_frame frame = automaton->frames[set.first + i];
        frame.count = loose_count(&automaton->code[frame.pc], frame.count, bytes);
        frame.parents = automaton->sets[frame.parents].loose;
        uint32_t base = automaton->frame_scratch_len;
        if (!scratch_push(automaton, frame)) return id;
        result = stacks_union(automaton, result, intern(automaton, base, set.depth));
    }
    return automaton->exprs->err.status ? id : result;
}

// The set of the frames frame_scratch[base ..], which are popped.
static uint32_t intern(struct automaton *automaton, uint32_t base, uint32_t depth) {
    struct exprs *exprs = automaton->exprs;
    uint32_t len = automaton->frame_scratch_len - base;
    const struct stack_frame *frames = len ? automaton->frame_scratch + base : NULL;
    automaton->frame_scratch_len = base;
    if (!exprs_count(exprs, 1 + len) || !grow_set_table(automaton)) return 0;
    uint32_t mask = automaton->set_table_len - 1;
    uint32_t at = (uint32_t)hash_frames(frames, len) & mask;
    for (; automaton->set_table[at]; at = (at + 1) & mask) {
        uint32_t id = automaton->set_table[at] - 1;
        const struct stack_set *set = &automaton->sets[id];
        if (set->len == len && (len == 0 || memcmp(automaton->frames + set->first, frames,
                                                   len * sizeof *frames) == 0)) {
            return id;
        }
    }
    if (!exprs_grow(exprs, &automaton->frames, &automaton->frames_capacity,
                    automaton->frames_len + len, sizeof *frames) ||
        !exprs_grow(exprs, &automaton->sets, &automaton->sets_capacity, automaton->num_sets + 1,
                    sizeof *automaton->sets)) {
        return 0;
    }
    if (len) memcpy(automaton->frames + automaton->frames_len, frames, len * sizeof *frames);
    uint32_t id = automaton->num_sets++;
    automaton->sets[id] =
        (struct stack_set){.first = automaton->frames_len, .len = len, .depth = depth, .loose = id};
    automaton->frames_len += len;
    automaton->set_table[at] = id + 1;
    uint32_t loose = loose_set(automaton, id);
    automaton->sets[id].loose = loose;
    return id;
}

void stacks_init(struct automaton *automaton) {
    uint32_t empty = intern(automaton, 0, 0);
    CHECK(empty == 0, "%u", empty);
}

uint32_t stacks_push(struct automaton *automaton, uint32_t pc, uint32_t count, uint32_t parents) {
    if (pc == PC_RETURN) return parents;
    if (automaton->exprs->err.status) return 0; // maybe set 0 could not be made
    uint32_t depth = automaton->sets[parents].depth + 1, base = automaton->frame_scratch_len;
    if (depth > STACK_DEPTH_MAX) return 0;
    struct stack_frame frame = {.pc = pc, .count = count, .parents = parents};
    return scratch_push(automaton, frame) ? intern(automaton, base, depth) : 0;
}

static bool find_union(const struct automaton *automaton, uint64_t key, uint32_t *value) {
    if (!automaton->unions_len) return false;
    uint32_t mask = automaton->unions_len - 1;
    uint32_t at = (uint32_t)expr_mix(key) & mask;
    for (; automaton->unions[at].key; at = (at + 1) & mask) {
        if (automaton->unions[at].key != key) continue;
        *value = automaton->unions[at].value;
        return true;
    }
    return false;
}

static void remember_union(struct automaton *automaton, uint64_t key, uint32_t value) {
    enum { UNIONS_MAX = 1 << 16 }; // entries; then it begins anew
    if ((automaton->unions_count + 1) * 2 > automaton->unions_len) {
        uint32_t len = automaton->unions_len;
        if (len < UNIONS_MAX && !exprs_grow(automaton->exprs, &automaton->unions, &len,
                                            len ? len * 2 : 256, sizeof *automaton->unions)) {
            return;
        }
        memset(automaton->unions, 0, len * sizeof *automaton->unions);
        automaton->unions_len = len;
        automaton->unions_count = 0;
    }
    uint32_t mask = automaton->unions_len - 1, at = (uint32_t)expr_mix(key) & mask;
    while (automaton->unions[at].key) at = (at + 1) & mask;
    automaton->unions[at].key = key;
    automaton->unions[at].value = value;
    automaton->unions_count++;
}

// Recursion ends at STACK_DEPTH_MAX.
uint32_t stacks_union(struct automaton *automaton, uint32_t a, uint32_t b) {
    if (a == b || b == 0) return a;
    if (a == 0) return b;
    uint64_t key = a < b ? (uint64_t)a << 32 | b : (uint64_t)b << 32 | a;
    uint32_t result;
    if (find_union(automaton, key, &result)) return result;
    struct stack_set x = automaton->sets[a], y = automaton->sets[b];
    uint32_t base = automaton->frame_scratch_len, i = 0, k = 0;
    while ((i < x.len || k < y.len) && exprs_count(automaton->exprs, 1)) {
        struct stack_frame frame = {0};
        uint64_t left = UINT64_MAX, right = UINT64_MAX;
        if (i < x.len) {
            frame = automaton->frames[x.first + i];
            left = (uint64_t)frame.pc << 32 | frame.count;
        }
        if (k < y.len) {
            struct stack_frame other = automaton->frames[y.first + k];
            right = (uint64_t)other.pc << 32 | other.count;
            if (left == right) {
                frame.parents = stacks_union(automaton, frame.parents, other.parents);
            } else if (right < left) {
                frame = other;
            }
        }
        i += left <= right;
        k += right <= left;
        if (!scratch_push(automaton, frame)) break;
    }
    if (automaton->exprs->err.status) {
        automaton->frame_scratch_len = base;
        return 0;
    }
    result = intern(automaton, base, x.depth > y.depth ? x.depth : y.depth);
    if (!automaton->exprs->err.status) remember_union(automaton, key, result);
    return result;
}

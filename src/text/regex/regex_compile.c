/* Compiles the tree to instructions. Each alternative knows the bytes that it can begin with, so
 * that most alternatives are skipped without being tried. A repeated set is one instruction. */
#include <stdlib.h>
#include <string.h>

#include "text/regex/regex_parts.h"

enum {
    INSTRUCTIONS_MAX = 1 << 15,
    NODES_MAX = 1 << 17, // nodes that are visited, also those that become no instruction
    LENGTH_MAX = 1 << 16,
};

struct compiler {
    struct regex *regex;
    const struct regex_tree *tree;
    size_t capacity, firsts_capacity, num_nodes;
    const char *what;
    struct err *err;
};

static enum status emit_node(struct compiler *c, const struct regex_node *node);

static enum status too_large(const struct compiler *c) {
    return err_set(c->err, ERR_UNSUPPORTED, "%s: a pattern needs more than %d instructions",
                   c->what, INSTRUCTIONS_MAX);
}

// Appends an instruction; *at is its index.
static enum status emit(struct compiler *c, struct regex_instruction instruction, size_t *at) {
    struct regex *regex = c->regex;
    if (regex->num_instructions == INSTRUCTIONS_MAX) return too_large(c);
    if (regex->num_instructions == c->capacity) {
        size_t capacity = c->capacity ? c->capacity * 2 : 32;
        struct regex_instruction *program =
            realloc(regex->program, capacity * sizeof *regex->program);
        if (!program) return err_nomem(c->err, "regular expression");
        regex->program = program;
        c->capacity = capacity;
    }
    *at = regex->num_instructions++;
    regex->program[*at] = instruction;
    return OK;
}

static enum status emit_op(struct compiler *c, enum regex_op op, size_t *at) {
    return emit(c, (struct regex_instruction){.op = (uint8_t)op}, at);
}

// Makes the instruction at `at` lead to the one that is emitted next.
static void point_here(struct compiler *c, size_t at) {
    c->regex->program[at].to = (uint32_t)c->regex->num_instructions;
}

// Adds the first bytes of the characters from `first` to `last`; lead bytes ascend with characters.
static void first_add_range(struct regex_first *out, uint32_t first, uint32_t last) {
    char low[4], high[4];
    (void)utf8_write(first, low);
    (void)utf8_write(last, high);
    for (unsigned b = (unsigned char)low[0]; b <= (unsigned char)high[0]; b++) {
        bool begins = b < 0x80 || b >= 0xc0;
        if (begins) out->bytes[b >> 6] |= (uint64_t)1 << (b & 63);
    }
}

static void first_of(const struct regex_tree *tree, const struct regex_node *node,
                     struct regex_first *out);

static void first_add(struct regex_first *out, const struct regex_first *other) {
    for (size_t i = 0; i < ARRAY_LEN(out->bytes); i++) out->bytes[i] |= other->bytes[i];
}

// Adds the first bytes of all children up to the first that cannot be empty.
static void first_of_list(const struct regex_tree *tree, const struct regex_node *node,
                          struct regex_first *out) {
    out->may_be_empty = true;
    for (; node && out->may_be_empty; node = node->next) {
        struct regex_first one;
        first_of(tree, node, &one);
        first_add(out, &one);
        out->may_be_empty = one.may_be_empty;
    }
}

static void first_of(const struct regex_tree *tree, const struct regex_node *node,
                     struct regex_first *out) {
    *out = (struct regex_first){0};
    struct regex_first one;
    const struct regex_ranges *set = &tree->sets[node->set];
    switch (node->kind) {
    case NODE_CHAR:
        first_add_range(out, node->code_point, node->code_point);
        break;
    case NODE_SET:
        for (size_t i = 0; i < set->len; i++) {
            first_add_range(out, set->data[i].first, set->data[i].last);
        }
        break;
    case NODE_LIST:
        first_of_list(tree, node->child, out);
        break;
    case NODE_CHOICE:
        for (const struct regex_node *child = node->child; child; child = child->next) {
            first_of(tree, child, &one);
            first_add(out, &one);
            out->may_be_empty = out->may_be_empty || one.may_be_empty;
        }
        break;
    case NODE_REPEAT:
        first_of(tree, node->child, out);
        out->may_be_empty = out->may_be_empty || node->min == 0;
        break;
    case NODE_GROUP:
    case NODE_ATOMIC:
        first_of(tree, node->child, out);
        break;
    case NODE_BACKREF: // anything, or nothing
        first_add_range(out, 0, UNICODE_END - 1);
        out->may_be_empty = true;
        break;
    case NODE_LOOK:
    case NODE_ASSERTION:
    case NODE_KEEP:
        out->may_be_empty = true;
        break;
    }
}

// The number of characters that the node matches; false when it may vary.
static bool fixed_length(const struct regex_node *node, uint32_t *length) {
    uint32_t one;
    *length = 0;
    switch (node->kind) {
    case NODE_CHAR:
    case NODE_SET:
        *length = 1;
        return true;
    case NODE_LIST:
        for (const struct regex_node *child = node->child; child; child = child->next) {
            if (!fixed_length(child, &one)) return false;
            *length += one;
            if (*length > LENGTH_MAX) return false;
        }
        return true;
    case NODE_CHOICE:
        if (!fixed_length(node->child, length)) return false;
        for (const struct regex_node *child = node->child->next; child; child = child->next) {
            if (!fixed_length(child, &one) || one != *length) return false;
        }
        return true;
    case NODE_REPEAT:
        if (node->min != node->max || node->min > LENGTH_MAX) return false;
        if (!fixed_length(node->child, &one) || (uint64_t)one * node->min > LENGTH_MAX)
            return false;
        *length = one * node->min;
        return true;
    case NODE_GROUP:
    case NODE_ATOMIC:
        return fixed_length(node->child, length);
    case NODE_LOOK:
    case NODE_ASSERTION:
    case NODE_KEEP:
        return true;
    case NODE_BACKREF:
        break;
    }
    return false;
}

// OP_BRANCH on the bytes that the node can begin with; OP_SPLIT where the node may be empty.
static enum status emit_branch(struct compiler *c, const struct regex_node *node, size_t *at) {
    struct regex_first first;
    first_of(c->tree, node, &first);
    if (first.may_be_empty) return emit_op(c, OP_SPLIT, at);
    struct regex *regex = c->regex;
    if (regex->num_firsts == c->firsts_capacity) {
        size_t capacity = c->firsts_capacity ? c->firsts_capacity * 2 : 16;
        struct regex_first *firsts = realloc(regex->firsts, capacity * sizeof *firsts);
        if (!firsts) return err_nomem(c->err, "regular expression");
        regex->firsts = firsts;
        c->firsts_capacity = capacity;
    }
    regex->firsts[regex->num_firsts] = first;
    return emit(
        c, (struct regex_instruction){.op = OP_BRANCH, .reg = (uint32_t)regex->num_firsts++}, at);
}

// In a lookbehind an alternative first goes back by its length.
static enum status emit_alternative(struct compiler *c, const struct regex_node *node,
                                    bool behind) {
    uint32_t length;
    size_t at;
    if (behind) {
        if (!fixed_length(node, &length)) {
            return err_set(c->err, ERR_UNSUPPORTED,
                           "%s: a pattern's (?<= or (?<! has no fixed length", c->what);
        }
        enum status status = emit(c, (struct regex_instruction){.op = OP_BACK, .min = length}, &at);
        if (status) return status;
    }
    return emit_node(c, node);
}

// Tries the alternatives in order. Until the end is known, the jumps out of all but the last one
// are linked through their `to`.
static enum status emit_choice(struct compiler *c, const struct regex_node *node, bool behind) {
    const struct regex_node *child = node->kind == NODE_CHOICE ? node->child : node;
    uint32_t exits = UINT32_MAX;
    enum status status = OK;
    for (; node->kind == NODE_CHOICE && child->next && !status; child = child->next) {
        size_t branch, jump;
        status = behind ? emit_op(c, OP_SPLIT, &branch) : emit_branch(c, child, &branch);
        if (!status) status = emit_alternative(c, child, behind);
        if (!status) status = emit_op(c, OP_JUMP, &jump);
        if (status) break;
        c->regex->program[jump].to = exits;
        exits = (uint32_t)jump;
        point_here(c, branch);
    }
    if (!status) status = emit_alternative(c, child, behind);
    while (!status && exits != UINT32_MAX) {
        uint32_t next = c->regex->program[exits].to;
        point_here(c, exits);
        exits = next;
    }
    return status;
}

// The choice that a repetition begins with: once more, or go on.
static enum status emit_repeat_split(struct compiler *c, const struct regex_node *node,
                                     size_t *at) {
    if (node->repeat == REPEAT_LAZY) return emit_op(c, OP_SPLIT_LATER, at);
    return emit_branch(c, node->child, at);
}

// A loop without a limit. A turn that takes no text is the last one.
static enum status emit_forever(struct compiler *c, const struct regex_node *node) {
    struct regex_first first;
    first_of(c->tree, node->child, &first);
    size_t split, at;
    uint32_t mark = (uint32_t)c->regex->num_registers;
    if (first.may_be_empty) c->regex->num_registers++;
    enum status status = emit_repeat_split(c, node, &split);
    if (!status && first.may_be_empty) {
        status = emit(c, (struct regex_instruction){.op = OP_SAVE, .reg = mark}, &at);
    }
    if (!status) status = emit_node(c, node->child);
    struct regex_instruction again = {
        .op = first.may_be_empty ? OP_ADVANCED : OP_JUMP, .reg = mark, .to = (uint32_t)split};
    if (!status) status = emit(c, again, &at);
    if (!status) point_here(c, split);
    return status;
}

static enum status emit_turns(struct compiler *c, const struct regex_node *node) {
    enum status status = OK;
    for (uint32_t i = 0; i < node->min && !status; i++) status = emit_node(c, node->child);
    if (status) return status;
    if (node->max == REGEX_FOREVER) return emit_forever(c, node);
    uint32_t exits = UINT32_MAX;
    for (uint32_t i = node->min; i < node->max && !status; i++) {
        size_t split;
        status = emit_repeat_split(c, node, &split);
        if (status) break;
        c->regex->program[split].to = exits;
        exits = (uint32_t)split;
        status = emit_node(c, node->child);
    }
    while (!status && exits != UINT32_MAX) {
        uint32_t next = c->regex->program[exits].to;
        point_here(c, exits);
        exits = next;
    }
    return status;
}

static enum status emit_repeat(struct compiler *c, const struct regex_node *node) {
    size_t at;
    if (node->child->kind == NODE_SET) {
        return emit(c,
                    (struct regex_instruction){.op = OP_REPEAT,
                                               .mode = (uint8_t)node->repeat,
                                               .set = node->child->set,
                                               .min = node->min,
                                               .max = node->max},
                    &at);
    }
    if (node->repeat != REPEAT_POSSESSIVE) return emit_turns(c, node);
    size_t atomic;
    enum status status = emit_op(c, OP_ATOMIC, &atomic);
    if (!status) status = emit_turns(c, node);
    if (!status) status = emit_op(c, OP_END, &at);
    if (!status) point_here(c, atomic);
    return status;
}

static enum status emit_inner(struct compiler *c, const struct regex_node *node) {
    struct regex_instruction outer = {.op = node->kind == NODE_LOOK ? OP_LOOK : OP_ATOMIC,
                                      .behind = node->behind,
                                      .negative = node->negative};
    size_t begin, end;
    enum status status = emit(c, outer, &begin);
    if (!status) {
        status = node->behind ? emit_choice(c, node->child, true) : emit_node(c, node->child);
    }
    if (!status) status = emit_op(c, OP_END, &end);
    if (!status) point_here(c, begin);
    return status;
}

static enum status emit_group(struct compiler *c, const struct regex_node *node) {
    if (!c->tree->has_backref) return emit_node(c, node->child);
    struct regex_instruction save = {.op = OP_SAVE, .reg = 2 * node->group};
    size_t at;
    enum status status = emit(c, save, &at);
    if (!status) status = emit_node(c, node->child);
    save.reg++;
    return status ? status : emit(c, save, &at);
}

static enum status emit_node(struct compiler *c, const struct regex_node *node) {
    struct regex_instruction one = {0};
    size_t at;
    enum status status = OK;
    if (++c->num_nodes > NODES_MAX) return too_large(c);
    switch (node->kind) {
    case NODE_CHAR:
        one.op = OP_CHAR;
        one.mode = (uint8_t)utf8_write(node->code_point, one.bytes);
        break;
    case NODE_SET:
        one = (struct regex_instruction){.op = OP_SET, .set = node->set};
        break;
    case NODE_ASSERTION:
        one = (struct regex_instruction){.op = OP_ASSERT, .mode = (uint8_t)node->assertion};
        break;
    case NODE_BACKREF:
        one = (struct regex_instruction){.op = OP_BACKREF, .reg = 2 * node->group};
        break;
    case NODE_KEEP:
        one.op = OP_SAVE;
        break;
    case NODE_LIST:
        for (node = node->child; node && !status; node = node->next) status = emit_node(c, node);
        return status;
    case NODE_CHOICE:
        return emit_choice(c, node, false);
    case NODE_REPEAT:
        return emit_repeat(c, node);
    case NODE_GROUP:
        return emit_group(c, node);
    case NODE_ATOMIC:
    case NODE_LOOK:
        return emit_inner(c, node);
    }
    return emit(c, one, &at);
}

static enum status make_sets(struct regex *regex, const struct regex_tree *tree, struct err *err) {
    regex->sets = calloc(tree->num_sets + 1, sizeof *regex->sets);
    if (!regex->sets) return err_nomem(err, "regular expression");
    for (; regex->num_sets < tree->num_sets; regex->num_sets++) {
        enum status status =
            regex_set_init(&regex->sets[regex->num_sets], &tree->sets[regex->num_sets], err);
        if (status) return status;
    }
    return OK;
}

enum status regex_compile(struct regex **out, const char *source, const char *what,
                          struct err *err) {
    *out = NULL;
    struct regex_tree tree;
    struct regex *regex = calloc(1, sizeof *regex);
    enum status status = regex_parse(&tree, source, what, err);
    if (!status && !regex) status = err_nomem(err, "regular expression");
    if (status) goto done;
    struct compiler compiler = {.regex = regex, .tree = &tree, .what = what, .err = err};
    regex->num_registers = tree.has_backref ? 2 + 2 * tree.num_groups : 1;
    regex->word_set = tree.word_set;
    first_of(&tree, tree.root, &regex->first);
    size_t at;
    status = make_sets(regex, &tree, err);
    if (!status) status = emit_node(&compiler, tree.root);
    if (!status) status = emit_op(&compiler, OP_END, &at);
done:
    regex_tree_fini(&tree);
    if (status) {
        regex_destroy(regex);
        return status;
    }
    *out = regex;
    return OK;
}

void regex_destroy(struct regex *regex) {
    if (!regex) return;
    for (size_t i = 0; i < regex->num_sets; i++) regex_set_fini(&regex->sets[i]);
    free(regex->sets);
    free(regex->program);
    free(regex->firsts);
    free(regex);
}

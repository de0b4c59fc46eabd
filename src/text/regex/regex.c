/* The matcher runs one instruction after the other and keeps a stack of the ways not tried yet.
 * Each instruction counts as a step, and so does each character that a repeated set takes. */
#include "text/regex/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/regex/regex_parts.h"

enum {
    STEPS_KEPT = 1 << 16, // steps that are counted here before `effort` gets them
    FRAMES_MIN = 1 << 20, // largest length of the stack on any text
    FRAMES_PER_BYTE = 8, // more frames for each byte of the text
};

enum frame_kind {
    FRAME_WAY, // continue with instruction `next` at `at`
    FRAME_GREEDY, // the same one character before `at`, then one more each time, down to `limit`
    FRAME_LAZY, // let OP_REPEAT `next` take one more character at `at`, after `limit` characters
    FRAME_REGISTER, // set register `next` back to its value `at`
};

struct regex_frame {
    uint32_t kind, next;
    size_t at, limit;
};

struct matcher {
    const struct regex *regex;
    const unsigned char *text; // [len]
    size_t len;
    struct regex_scratch *scratch;
    struct effort *effort;
    uint64_t steps; // not yet given to `effort`
    struct err *err;
};

void regex_scratch_fini(struct regex_scratch *scratch) {
    free(scratch->frames);
    free(scratch->registers);
    *scratch = (struct regex_scratch){0};
}

static enum status grow_stack(struct matcher *m) {
    struct regex_scratch *scratch = m->scratch;
    if (scratch->num_frames >= FRAMES_MIN + m->len * FRAMES_PER_BYTE) {
        return err_set(m->err, ERR_INVALID,
                       "the tokenizer gave up on this text: a pattern has to remember more than %d "
                       "places plus %d per byte",
                       FRAMES_MIN, FRAMES_PER_BYTE);
    }
    size_t capacity = scratch->capacity ? scratch->capacity * 2 : 64;
    struct regex_frame *frames = realloc(scratch->frames, capacity * sizeof *frames);
    if (!frames) return err_nomem(m->err, "pattern match");
    scratch->frames = frames;
    scratch->capacity = capacity;
    return OK;
}

static inline enum status push(struct matcher *m, enum frame_kind kind, size_t next, size_t at,
                               size_t limit) {
    struct regex_scratch *scratch = m->scratch;
    if (UNLIKELY(scratch->num_frames == scratch->capacity)) {
        enum status status = grow_stack(m);
        if (status) return status;
    }
    scratch->frames[scratch->num_frames++] =
        (struct regex_frame){.kind = kind, .next = (uint32_t)next, .at = at, .limit = limit};
    return OK;
}

static enum status save(struct matcher *m, uint32_t reg, size_t at) {
    size_t *registers = m->scratch->registers;
    enum status status = push(m, FRAME_REGISTER, reg, registers[reg], 0);
    registers[reg] = at;
    return status;
}

static size_t character_before(const struct matcher *m, size_t at) {
    at--;
    while ((m->text[at] & 0xc0) == 0x80) at--;
    return at;
}

// Takes at most `max` characters of the set from `at` on. Returns their end; *count is their
// number.
static size_t take_set(const struct matcher *m, const struct regex_set *set, size_t at,
                       uint32_t max, uint32_t *count) {
    const unsigned char *p = m->text + at, *end = m->text + m->len;
    uint32_t n = 0;
    while (n < max && p < end) {
        if (*p < 0x80) {
            if (!(set->ascii[*p >> 6] >> (*p & 63) & 1)) break;
            p++;
        } else {
            size_t size;
            if (!regex_set_has(set, utf8_decode(p, &size))) break;
            p += size;
        }
        n++;
    }
    *count = n;
    return (size_t)(p - m->text);
}

// Runs OP_REPEAT at *at, which moves; *matched = false where there are too few characters.
static enum status repeat(struct matcher *m, size_t pc, size_t *at, bool *matched) {
    const struct regex_instruction *i = &m->regex->program[pc];
    const struct regex_set *set = &m->regex->sets[i->set];
    uint32_t count = 0, more = 0;
    size_t low = i->min ? take_set(m, set, *at, i->min, &count) : *at;
    *matched = count == i->min;
    *at = low;
    m->steps += count;
    if (!*matched || i->max == i->min) return OK;
    if (i->mode == REPEAT_LAZY) return push(m, FRAME_LAZY, pc, low, count);
    uint32_t max = i->max == REGEX_FOREVER ? REGEX_FOREVER : i->max - i->min;
    *at = take_set(m, set, low, max, &more);
    m->steps += more;
    if (i->mode == REPEAT_POSSESSIVE || *at == low) return OK;
    return push(m, FRAME_GREEDY, pc + 1, *at, low);
}

// One more character for the lazy OP_REPEAT of the frame on top; false when that is over.
static bool repeat_lazily(struct matcher *m, struct regex_frame *frame) {
    const struct regex_instruction *i = &m->regex->program[frame->next];
    uint32_t count;
    size_t at = take_set(m, &m->regex->sets[i->set], frame->at, 1, &count);
    frame->at = at;
    frame->limit++;
    if (count == 0 || frame->limit == i->max) m->scratch->num_frames--;
    return count == 1;
}

// Takes the newest way that is left above `base`; false when there is none.
static bool backtrack(struct matcher *m, size_t base, size_t *pc, size_t *at) {
    struct regex_scratch *scratch = m->scratch;
    while (scratch->num_frames > base) {
        struct regex_frame *frame = &scratch->frames[scratch->num_frames - 1];
        m->steps++;
        switch ((enum frame_kind)frame->kind) {
        case FRAME_WAY:
            scratch->num_frames--;
            *pc = frame->next;
            *at = frame->at;
            return true;
        case FRAME_GREEDY:
            frame->at = character_before(m, frame->at);
            if (frame->at == frame->limit) scratch->num_frames--;
            *pc = frame->next;
            *at = frame->at;
            return true;
        case FRAME_LAZY:
            *pc = frame->next + 1;
            if (!repeat_lazily(m, frame)) break;
            *at = frame->at;
            return true;
        case FRAME_REGISTER:
            scratch->num_frames--;
            scratch->registers[frame->next] = frame->at;
            break;
        }
    }
    return false;
}

// Forgets the ways above `base`. Frames of registers stay, so that backtracking restores them.
static void forget_ways(struct regex_scratch *scratch, size_t base) {
    size_t kept = base;
    for (size_t i = base; i < scratch->num_frames; i++) {
        if (scratch->frames[i].kind == FRAME_REGISTER) scratch->frames[kept++] = scratch->frames[i];
    }
    scratch->num_frames = kept;
}

static void forget_all(struct regex_scratch *scratch, size_t base) {
    while (scratch->num_frames > base) {
        const struct regex_frame *frame = &scratch->frames[--scratch->num_frames];
        if (frame->kind == FRAME_REGISTER) scratch->registers[frame->next] = frame->at;
    }
}

static bool is_word_at(const struct matcher *m, size_t at) {
    size_t size;
    return at < m->len &&
           regex_set_has(&m->regex->sets[m->regex->word_set], utf8_decode(m->text + at, &size));
}

static bool is_line_end(const struct matcher *m, size_t at) {
    return at < m->len && m->text[at] == '\n';
}

static bool holds(const struct matcher *m, enum regex_assertion assertion, size_t at) {
    switch (assertion) {
    case ASSERT_LINE_START:
        return at == 0 || (at < m->len && m->text[at - 1] == '\n');
    case ASSERT_LINE_END:
        return at == m->len || is_line_end(m, at);
    case ASSERT_TEXT_START:
        return at == 0;
    case ASSERT_TEXT_END:
        return at == m->len;
    case ASSERT_TEXT_END_OR_LINE:
        return at == m->len || (at + 1 == m->len && is_line_end(m, at));
    case ASSERT_WORD_EDGE:
    case ASSERT_NO_WORD_EDGE:
        break;
    }
    bool before = at > 0 && is_word_at(m, character_before(m, at));
    return (before != is_word_at(m, at)) == (assertion == ASSERT_WORD_EDGE);
}

// Moves *at over a copy of the text that the group has matched.
static bool take_backref(const struct matcher *m, uint32_t reg, size_t *at) {
    size_t start = m->scratch->registers[reg], end = m->scratch->registers[reg + 1];
    if (start == SIZE_MAX || end == SIZE_MAX || end < start || end - start > m->len - *at) {
        return false;
    }
    if (memcmp(m->text + start, m->text + *at, end - start) != 0) return false;
    *at += end - start;
    return true;
}

static bool go_back(const struct matcher *m, uint32_t count, size_t *at) {
    for (; count && *at; count--) *at = character_before(m, *at);
    return count == 0;
}

static enum status match(struct matcher *m, size_t pc, size_t *at, bool *matched);

// OP_ATOMIC and OP_LOOK: a match of its own, none of whose other ways is tried later. Recursion is
// as deep as the expression's groups.
static enum status match_inner(struct matcher *m, size_t pc, size_t *at, bool *matched) {
    const struct regex_instruction *i = &m->regex->program[pc];
    size_t base = m->scratch->num_frames, end = *at;
    enum status status = match(m, pc + 1, &end, matched);
    if (status) return status;
    if (i->negative) {
        forget_all(m->scratch, base);
        *matched = !*matched;
    } else if (*matched) {
        forget_ways(m->scratch, base);
        if (i->op == OP_ATOMIC) *at = end;
    }
    return OK;
}

// Runs an instruction that only tests or moves *at; it does not change the order of instructions.
static enum status run_simple(struct matcher *m, size_t pc, size_t *at, bool *matched) {
    const struct regex_instruction *i = &m->regex->program[pc];
    const unsigned char *p = m->text + *at;
    size_t size;
    switch ((enum regex_op)i->op) {
    case OP_CHAR:
        *matched = m->len - *at >= i->mode && memcmp(p, i->bytes, i->mode) == 0;
        if (*matched) *at += i->mode;
        break;
    case OP_SET:
        *matched = *at < m->len && regex_set_has(&m->regex->sets[i->set], utf8_decode(p, &size));
        if (*matched) *at += size;
        break;
    case OP_ASSERT:
        *matched = holds(m, (enum regex_assertion)i->mode, *at);
        break;
    case OP_BACK:
        m->steps += i->min;
        *matched = go_back(m, i->min, at);
        break;
    case OP_BACKREF:
        *matched = take_backref(m, i->reg, at);
        m->steps += m->len - *at < 64 ? 1 : 64;
        break;
    case OP_SAVE:
        *matched = true;
        return save(m, i->reg, *at);
    default:
        CHECK(false, "op=%d", i->op);
    }
    return OK;
}

// Runs from instruction `pc` at *at up to OP_END; *at is then the match's end. Ways not tried stay
// on the stack.
static enum status match(struct matcher *m, size_t pc, size_t *at, bool *matched) {
    const struct regex_instruction *program = m->regex->program;
    size_t base = m->scratch->num_frames;
    enum status status = OK;
    for (;;) {
        const struct regex_instruction *i = &program[pc];
        *matched = true;
        if (UNLIKELY(++m->steps >= STEPS_KEPT)) {
            status = effort_spend_on_pattern(m->effort, m->steps, m->err);
            m->steps = 0;
            if (status) return status;
        }
        switch ((enum regex_op)i->op) {
        case OP_END:
            return OK;
        case OP_JUMP:
            pc = i->to;
            continue;
        case OP_ADVANCED:
            pc = *at != m->scratch->registers[i->reg] ? i->to : pc + 1;
            continue;
        case OP_BRANCH:
            if (*at == m->len || !regex_first_has(&m->regex->firsts[i->reg], m->text[*at])) {
                pc = i->to;
                continue;
            }
            // fall through
        case OP_SPLIT:
            status = push(m, FRAME_WAY, i->to, *at, 0);
            pc++;
            if (UNLIKELY(status)) return status;
            continue;
        case OP_SPLIT_LATER:
            status = push(m, FRAME_WAY, pc + 1, *at, 0);
            pc = i->to;
            if (UNLIKELY(status)) return status;
            continue;
        case OP_REPEAT:
            status = repeat(m, pc, at, matched);
            pc++;
            break;
        case OP_ATOMIC:
        case OP_LOOK:
            status = match_inner(m, pc, at, matched);
            pc = i->to;
            break;
        default:
            status = run_simple(m, pc, at, matched);
            pc++;
            break;
        }
        if (UNLIKELY(status)) return status;
        if (!*matched && !backtrack(m, base, &pc, at)) return OK;
    }
}

// The next place at or after `at` where a match can begin; len + 1: there is none.
static size_t next_start(struct matcher *m, size_t at) {
    const struct regex_first *first = &m->regex->first;
    if (first->may_be_empty) return at;
    size_t from = at;
    while (at < m->len && !regex_first_has(first, m->text[at])) at++;
    m->steps += at - from;
    return at < m->len ? at : m->len + 1;
}

static enum status prepare_registers(struct matcher *m) {
    struct regex_scratch *scratch = m->scratch;
    size_t count = m->regex->num_registers;
    if (scratch->num_registers >= count) return OK;
    size_t *registers = realloc(scratch->registers, count * sizeof *registers);
    if (!registers) return err_nomem(m->err, "pattern match");
    scratch->registers = registers;
    scratch->num_registers = count;
    return OK;
}

enum status regex_search(const struct regex *regex, const char *text, size_t len, size_t from,
                         struct regex_scratch *scratch, struct effort *effort,
                         struct regex_match *match_out, struct err *err) {
    struct matcher m = {.regex = regex,
                        .text = (const unsigned char *)text,
                        .len = len,
                        .scratch = scratch,
                        .effort = effort,
                        .err = err};
    enum status status = prepare_registers(&m);
    if (status) return status;
    bool matched = false;
    for (size_t start = next_start(&m, from); start <= len; start = next_start(&m, start)) {
        size_t at = start;
        scratch->num_frames = 0;
        for (size_t i = 0; i < regex->num_registers; i++) scratch->registers[i] = SIZE_MAX;
        status = match(&m, 0, &at, &matched);
        if (status) return status;
        if (matched) {
            size_t kept = scratch->registers[0];
            match_out->start = kept == SIZE_MAX ? start : kept;
            match_out->end = at;
            break;
        }
        if (start == len) break;
        size_t size;
        utf8_decode(m.text + start, &size);
        start += size;
    }
    match_out->found = matched;
    return effort_spend_on_pattern(effort, m.steps, err);
}

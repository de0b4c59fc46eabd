#include "structured/automaton/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/buf.h"
#include "structured/automaton/automaton_internal.h"
#include "structured/automaton/automaton_mask.h"

enum { STEPS_MAX = 1 << 20, SEARCH_STEPS_MAX = 1 << 24 };
enum { MASK_BYTES_MAX = 16 << 20, ROW_BYTES_MAX = 16 << 20 };

static void destroy(struct automaton *automaton) {
    automaton_masks_fini(automaton);
    free(automaton->code);
    free(automaton->targets);
    free(automaton->members);
    free(automaton->member_words);
    free(automaton->member_sets);
    free(automaton->member_table);
    free(automaton->frames);
    free(automaton->sets);
    free(automaton->set_table);
    free(automaton->unions);
    free(automaton->frame_scratch);
    free(automaton->threads);
    free(automaton->states);
    free(automaton->state_table);
    free(automaton->rows);
    free(automaton->made);
    free(automaton->work);
    free(automaton->visits);
    free(automaton->memos);
    free(automaton->memo_table);
    free(automaton->critical);
    free(automaton->live);
    pthread_mutex_destroy(&automaton->mutex);
    grammar_destroy(automaton->grammar);
    free(automaton);
}

enum status automaton_create(struct automaton **out, struct grammar *grammar,
                             const struct vocabulary *vocabulary,
                             const struct automaton_limits *limits, struct err *err) {
    struct automaton *automaton = calloc(1, sizeof *automaton);
    if (!automaton) {
        grammar_destroy(grammar);
        return err_nomem(err, "structured output");
    }
    atomic_init(&automaton->holders, 1);
    pthread_mutex_init(&automaton->mutex, NULL);
    automaton->grammar = grammar;
    automaton->exprs = grammar_exprs(grammar);
    automaton->vocabulary = vocabulary;
    automaton->steps_max = limits && limits->steps_max ? limits->steps_max : STEPS_MAX;
    automaton->search_steps_max =
        limits && limits->search_steps_max ? limits->search_steps_max : SEARCH_STEPS_MAX;
    automaton->mask_bytes_max =
        limits && limits->mask_bytes_max ? limits->mask_bytes_max : MASK_BYTES_MAX;
    automaton->row_bytes_max =
        limits && limits->row_bytes_max ? limits->row_bytes_max : ROW_BYTES_MAX;
    grammar_resolve(grammar);
    // Before any row is made: an expression that is new may split the classes of bytes.
    automaton->any_text =
        automaton->exprs->has_json ? expr_any_text(automaton->exprs) : EXPR_NOTHING;
    if (!automaton->exprs->err.status) {
        uint32_t pc = automaton_program(automaton);
        stacks_init(automaton);
        automaton->start = states_begin(automaton, pc);
    }
    enum status status = exprs_status(automaton->exprs, err);
    if (status) {
        destroy(automaton);
        return status;
    }
    *out = automaton;
    return OK;
}

void automaton_hold(struct automaton *automaton) {
    atomic_fetch_add_explicit(&automaton->holders, 1, memory_order_relaxed);
}

void automaton_release(struct automaton *automaton) {
    if (!automaton) return;
    if (atomic_fetch_sub_explicit(&automaton->holders, 1, memory_order_acq_rel) == 1) {
        destroy(automaton);
    }
}

uint32_t automaton_start(const struct automaton *automaton) {
    return automaton->start;
}

const struct vocabulary *automaton_vocabulary(const struct automaton *automaton) {
    return automaton->vocabulary;
}

// Rows only save work, so they need not stay.
static void drop_rows(struct automaton *automaton) {
    for (uint32_t i = 0; i < automaton->num_states; i++) automaton->states[i].row = NO_ROW;
    automaton->num_rows = 0;
}

void automaton_lock(struct automaton *automaton) {
    pthread_mutex_lock(&automaton->mutex);
    size_t row_bytes = automaton->exprs->num_classes * sizeof *automaton->rows;
    if (automaton->num_rows * row_bytes > automaton->row_bytes_max) drop_rows(automaton);
    exprs_allow(automaton->exprs, automaton->steps_max);
    automaton->exprs->steps_max = automaton->steps_max;
}

// Too many steps are an error of this call only: what was not finished is not remembered.
enum status automaton_unlock(struct automaton *automaton, struct err *err) {
    struct exprs *exprs = automaton->exprs;
    enum status status = exprs_status(exprs, err);
    if (exprs->out_of_steps) {
        exprs->out_of_steps = false;
        exprs->err = (struct err){0};
        exprs->scratch_len = 0;
        automaton->frame_scratch_len = 0;
    }
    pthread_mutex_unlock(&automaton->mutex);
    return status;
}

uint32_t automaton_step(struct automaton *automaton, uint32_t state, unsigned char byte) {
    uint32_t class = automaton->exprs->class_of[byte];
    return automaton->states[state].row == NO_ROW ? states_step(automaton, state, class)
                                                  : states_step_row(automaton, state, class);
}

enum status automaton_advance(struct automaton *automaton, uint32_t state, const char *bytes,
                              size_t len, uint32_t *next, struct err *err) {
    automaton_lock(automaton);
    for (size_t i = 0; i < len && state != AUTOMATON_DEAD; i++) {
        state = automaton_step(automaton, state, (unsigned char)bytes[i]);
    }
    *next = state;
    return automaton_unlock(automaton, err);
}

bool automaton_can_end(struct automaton *automaton, uint32_t state) {
    automaton_lock(automaton);
    bool can_end = automaton->states[state].can_end;
    pthread_mutex_unlock(&automaton->mutex);
    return can_end;
}

enum status automaton_mask(struct automaton *automaton, uint32_t state, uint32_t *words,
                           bool *any_allowed, struct err *err) {
    automaton_lock(automaton);
    bool any = automaton_write_mask(automaton, state, words);
    if (any_allowed) *any_allowed = any;
    return automaton_unlock(automaton, err);
}

// The one byte that may follow, or -1.
static int forced_byte(struct automaton *automaton, uint32_t state, uint32_t *next) {
    struct exprs *exprs = automaton->exprs;
    uint32_t num_bytes[256] = {0};
    int forced = -1;
    if (automaton->states[state].can_end) return -1;
    for (uint32_t byte = 0; byte < 256; byte++) num_bytes[exprs->class_of[byte]]++;
    for (uint32_t k = 0; k < exprs->num_classes; k++) {
        uint32_t to = states_step_row(automaton, state, k);
        if (to == AUTOMATON_DEAD) continue;
        if (forced >= 0 || num_bytes[k] > 1) return -1;
        forced = exprs->class_byte[k];
        *next = to;
    }
    return forced;
}

enum status automaton_forced(struct automaton *automaton, uint32_t state, size_t bytes_max,
                             struct buf *out, struct err *err) {
    enum status status = OK;
    automaton_lock(automaton);
    for (size_t i = 0; i < bytes_max && !status && state != AUTOMATON_DEAD; i++) {
        int byte = forced_byte(automaton, state, &state);
        if (byte < 0 || automaton->exprs->err.status) break;
        status = buf_append(out, &(char){(char)byte}, 1, err);
    }
    enum status failed = automaton_unlock(automaton, err);
    return status ? status : failed;
}

enum status automaton_has_longer(struct automaton *automaton, uint32_t state, const char *bytes,
                                 size_t len, bool *has, struct err *err) {
    automaton_lock(automaton);
    *has = automaton_find_longer(automaton, state, bytes, len);
    return automaton_unlock(automaton, err);
}

bool automaton_is_worn(struct automaton *automaton) {
    automaton_lock(automaton);
    const struct exprs *exprs = automaton->exprs;
    bool is_worn = exprs->err.status || exprs->bytes > exprs->bytes_max / 2;
    pthread_mutex_unlock(&automaton->mutex);
    return is_worn;
}

void automaton_stats(struct automaton *automaton, struct automaton_stats *out) {
    automaton_lock(automaton);
    *out = automaton->stats;
    out->num_states = automaton->num_states;
    out->num_exprs = automaton->exprs->num_nodes;
    out->num_stacks = automaton->num_sets;
    out->bytes = automaton->exprs->bytes + automaton->mask_bytes;
    pthread_mutex_unlock(&automaton->mutex);
}

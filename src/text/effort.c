#include "text/effort.h"

void effort_begin(struct effort *effort, size_t len, const struct interrupt *interrupt) {
    const uint64_t word_max = INT32_MAX; // positions in a word are 32 bits
    uint64_t normalized = EFFORT_NORMALIZED_MIN + (uint64_t)len * EFFORT_NORMALIZED_PER_BYTE;
    *effort = (struct effort){
        .interrupt = interrupt,
        .pattern_left = EFFORT_PATTERN_MIN + (uint64_t)len * EFFORT_PATTERN_PER_BYTE,
        .normalized_left = normalized < word_max ? normalized : word_max,
    };
}

enum status effort_ask(struct effort *effort, struct err *err) {
    effort->unasked = 0;
    return interrupt_check(effort->interrupt, err);
}

enum status effort_spend_on_pattern(struct effort *effort, uint64_t steps, struct err *err) {
    if (steps > effort->pattern_left) {
        effort->pattern_left = 0;
        return err_set(err, ERR_INVALID,
                       "the tokenizer gave up on this text: its patterns take more than %d steps "
                       "plus %d per byte",
                       EFFORT_PATTERN_MIN, EFFORT_PATTERN_PER_BYTE);
    }
    effort->pattern_left -= steps;
    return effort_spend(effort, steps, err);
}

enum status effort_check_normalized(const struct effort *effort, size_t len, struct err *err) {
    if (len <= effort->normalized_left) return OK;
    return err_set(err, ERR_INVALID,
                   "the tokenizer's normalizers make this text longer than %d bytes plus %d per "
                   "byte",
                   EFFORT_NORMALIZED_MIN, EFFORT_NORMALIZED_PER_BYTE);
}

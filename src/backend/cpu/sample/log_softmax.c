#include "backend/log_softmax.h"

#include "backend/cpu/sample/sample_select.h"
#include "backend/cpu/sample/sample_weigh.h"
#include "base/thread/float_mode.h"

enum { DIGIT_BITS = 11, NUM_DIGITS = 3, DIGIT_VALUES = 1 << DIGIT_BITS };

static uint32_t digit_of(uint64_t key, int digit) {
    return (uint32_t)(key >> (32 + digit * DIGIT_BITS)) & (DIGIT_VALUES - 1);
}

// Sorts by the upper half of the keys, and keeps the order of equal ones: they come by their ids.
// Returns the one of the two arrays that has the result.
static const uint64_t *sort(uint64_t *keys, uint64_t *spare, uint32_t count) {
    uint32_t starts[NUM_DIGITS][DIGIT_VALUES] = {{0}};
    for (uint32_t i = 0; i < count; i++) {
        for (int digit = 0; digit < NUM_DIGITS; digit++) starts[digit][digit_of(keys[i], digit)]++;
    }
    for (int digit = 0; digit < NUM_DIGITS; digit++) {
        uint32_t start = 0;
        for (uint32_t value = 0; value < DIGIT_VALUES; value++) {
            uint32_t num_keys = starts[digit][value];
            starts[digit][value] = start;
            start += num_keys;
        }
        for (uint32_t i = 0; i < count; i++) {
            spare[starts[digit][digit_of(keys[i], digit)]++] = keys[i];
        }
        uint64_t *sorted = spare;
        spare = keys;
        keys = sorted;
    }
    return keys;
}

// The sum of exp(logit - max), in chunks that are added in order, as the sampling op does.
static double sum_weights(const float *logits, uint32_t vocab_size, float max) {
    const struct sample_weigh how = {max, 1.0f, SAMPLE_WEIGHT_MIN};
    float weights[SAMPLE_CHUNK];
    double sum = 0;
    for (uint32_t start = 0; start < vocab_size; start += SAMPLE_CHUNK) {
        uint32_t rest = vocab_size - start;
        uint32_t count = rest < SAMPLE_CHUNK ? rest : SAMPLE_CHUNK;
        sum += sample_weigh_scalar(logits + start, weights, count, &how);
    }
    return sum;
}

void log_softmax_rank(const float *logits, uint32_t vocab_size, uint64_t *scratch,
                      struct ranked_token *out) {
    uint64_t mode = float_mode_enter();
    float max = sample_clean(sample_max_scalar(logits, vocab_size));
    double log_sum = log(sum_weights(logits, vocab_size, max));
    for (uint32_t i = 0; i < vocab_size; i++) scratch[i] = sample_key(sample_clean(logits[i]), i);
    const uint64_t *keys = sort(scratch, scratch + vocab_size, vocab_size);
    for (uint32_t i = 0; i < vocab_size; i++) {
        out[i].token_id = (int32_t)sample_key_id(keys[i]);
        out[i].logprob = sample_logprob(sample_key_logit(keys[i]), max, log_sum);
    }
    float_mode_leave(mode);
}

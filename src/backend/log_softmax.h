/* The log-probabilities of a whole row of logits, best first. The sampling op reports
 * SAMPLE_TOP_MAX tokens at most; this is for rows of which all are wanted, and runs on the host.
 *
 *   logprob = logit - max - log(sum of exp(logit - max))
 *
 * The sum is made like that of the CPU's sampling op: the same bits, for any instruction set. */
#ifndef BACKEND_LOG_SOFTMAX_H
#define BACKEND_LOG_SOFTMAX_H

#include <stdint.h>

struct ranked_token {
    int32_t token_id;
    float logprob; // -inf where the logit is -inf or not a number
};

// out: [vocab_size], the larger logit first, of equal ones the smaller id; scratch:
// [2][vocab_size]. Allocates nothing.
void log_softmax_rank(const float *logits, uint32_t vocab_size, uint64_t *scratch,
                      struct ranked_token *out);

#endif

/* What transformers computed, as the reference tests read it: the last logits of the families'
 * prompts, and the recorded conversations of the bundled model. */
#ifndef REFERENCE_EXPECTED_H
#define REFERENCE_EXPECTED_H

#include <jansson.h>

#include "support/mini_engine.h"

enum { EXPECTED_LENGTHS = 5, EXPECTED_TOKENS_MAX = 512 };

// If the best two logits differ by less, rounding may decide which token is best.
#define EXPECTED_MARGIN_RULE 0.5

// How far one prompt's last logits are off.
struct expected_difference {
    uint32_t num_tokens; // of the prompt
    float worst, largest; // the largest difference; the largest magnitude of the wanted logits
};

// Runs the prompts of a family's folder, one after the other. Fails the test if a logit is NaN.
void expected_run_family(struct mini_engine *engine, const char *folder,
                         struct expected_difference out[EXPECTED_LENGTHS]);

// A JSON list of token ids; returns how many, at least 1.
uint32_t expected_read_ids(const json_t *list, int32_t out[EXPECTED_TOKENS_MAX]);

#endif

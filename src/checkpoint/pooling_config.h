/* How a model of embeddings makes a vector of a text, as sentence-transformers publishes it.
 * modules.json names the steps behind the transformer. 1_Pooling/config.json says which hidden
 * states count. config_sentence_transformers.json has texts to put in front of a text
 * ("prompts"), such as the instruction of a query. */
#ifndef CHECKPOINT_POOLING_CONFIG_H
#define CHECKPOINT_POOLING_CONFIG_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

struct checkpoint;

enum pooling_kind { POOLING_LAST, POOLING_MEAN };

struct pooling_config {
    bool is_present; // the checkpoint says how it is pooled
    enum pooling_kind kind; // without a word of the checkpoint: the last token
    bool normalizes; // to length 1; without a word of the checkpoint: true
    char unsupported[160]; // a step of the model that is not supported, as a sentence; "": none
    json_t *prompts; // an object of strings, owned; NULL: none
};

// An embedding that the model describes in another way than these is no error here: `unsupported`
// says it, and text can be generated all the same. ERR_FORMAT: a file is broken.
MUST_USE enum status pooling_config_load(struct pooling_config *config,
                                         const struct checkpoint *checkpoint, struct err *err);
void pooling_config_fini(struct pooling_config *config); // all-zero is fine

#endif

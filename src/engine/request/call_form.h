/* A request's call_prefixes as a form (structured_outputs): one of the prefixes, a JSON object, and
 * then whatever the model likes. */
#ifndef ENGINE_CALL_FORM_H
#define ENGINE_CALL_FORM_H

#include <stddef.h>
#include <stdint.h>

#include "base/text/buf.h"
#include "text/tokenizer/tokenizer.h"

enum { CALL_PREFIXES_MAX = 1024, CALL_PREFIX_BYTES_MAX = 2048 };

// Appends the form's text. Added tokens in a prefix must come as those tokens. ERR_INVALID: a
// prefix is empty or too long, there are too many, or a token is not in the vocabulary.
MUST_USE enum status call_form_write(struct buf *out, const char *const *prefixes,
                                     size_t num_prefixes, const struct tokenizer *tokenizer,
                                     uint32_t vocab_size, struct err *err);

#endif

/* Writing JSON: appends pieces to a buffer. */
#ifndef BASE_JSON_TEXT_H
#define BASE_JSON_TEXT_H

#include <stdint.h>

#include "base/text/buf.h"

// A quoted string. Bytes that are not UTF-8 become U+FFFD, so that the result is always valid JSON.
MUST_USE enum status json_text_string(struct buf *out, const char *text, size_t len,
                                      struct err *err);
MUST_USE enum status json_text_ids(struct buf *out, const int32_t *ids, size_t num_ids,
                                   struct err *err); // [1,2,3]
// The shortest form that reads back as the same float. Infinities and NaN, which JSON lacks, become
// null.
MUST_USE enum status json_text_float(struct buf *out, float value, struct err *err);
// With 6 decimals, for times and rates; null as above.
MUST_USE enum status json_text_double(struct buf *out, double value, struct err *err);

#endif

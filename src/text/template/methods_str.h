/* Questions about strings that both methods and tests ask. */
#ifndef TEXT_TEMPLATE_METHODS_STR_H
#define TEXT_TEMPLATE_METHODS_STR_H

#include "text/template/run.h"

// str.islower and str.isupper: a cased character, and none of another case.
MUST_USE enum status str_is_lower(struct run *run, const struct string *string, bool *out);
MUST_USE enum status str_is_upper(struct run *run, const struct string *string, bool *out);

#endif

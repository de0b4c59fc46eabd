/* strftime_now, transformers' function: the time of the render, as datetime.strftime writes it. */
#ifndef TEXT_TEMPLATE_STRFTIME_H
#define TEXT_TEMPLATE_STRFTIME_H

#include "text/template/run.h"

// %f are microseconds; %z and %Z are empty where the time is without a zone (tm_zone NULL), as
// datetime.now() is. All else is the C library's strftime in the C locale, GNU flags included.
MUST_USE enum status function_strftime_now(struct run *run, const struct call_args *args,
                                           struct value *out);

#endif

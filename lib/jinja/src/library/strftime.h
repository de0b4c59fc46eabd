/* strftime_now, transformers' function: the time of the render, as datetime.strftime writes it. */
#ifndef JINJA_STRFTIME_H
#define JINJA_STRFTIME_H

#include "jinja/src/run/run.h"

// %f are microseconds; %z and %Z are empty where the time is without a zone (tm_zone NULL), as
// datetime.now() is. All else is the C library's strftime in the C locale, GNU flags included.
MUST_USE enum status jinja_function_strftime_now(struct jinja_run *run,
                                                 const struct jinja_call_args *args,
                                                 struct jinja_value *out);

#endif

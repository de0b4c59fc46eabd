/* The pprint filter: Python's pprint.pformat, lines of 80 characters, dicts sorted. */
#ifndef TEXT_TEMPLATE_PPRINT_H
#define TEXT_TEMPLATE_PPRINT_H

#include "text/template/run.h"

MUST_USE enum status filter_pprint(struct run *run, struct value value,
                                   const struct call_args *args, struct value *out);

#endif

/* HTML's character references, for striptags. */
#ifndef TEXT_TEMPLATE_HTML_ENTITIES_H
#define TEXT_TEMPLATE_HTML_ENTITIES_H

#include "text/template/run.h"

// Appends data[0, len) with &amp;, &#38; and the like replaced by what they stand for, as HTML 5
// says. Names that HTML 4 did not have stay.
MUST_USE enum status html_unescape(struct run *run, const char *data, size_t len,
                                   struct text *text);

#endif

/* Chat templates: the Jinja language as transformers runs it, parsed once and rendered many times.
 *
 * The environment is transformers' (utils/chat_template_utils.py): trim_blocks and lstrip_blocks on,
 * loop controls, `generation` blocks, the immutable sandbox, no autoescaping, json.dumps behind
 * `tojson`, the functions raise_exception and strftime_now. Language: Jinja 3.1's documentation;
 * printing of values: Python's.
 *
 * A template comes with a checkpoint and is not trusted. A render is bounded in steps, memory and
 * depth (run.h has the numbers), and parsing and rendering in stack (NVLLM_CHAT_STACK_BYTES in
 * nanovllm.h). Going over a bound is an error, as everything is that Jinja raises. There is no input
 * or output but strings: no files, no environment, no clock but `now`. */
#ifndef JINJA_H
#define JINJA_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/interrupt.h"

struct template; // immutable after parsing: may be rendered from several threads

// Bytes of source at most; a longer one is refused.
enum { TEMPLATE_SOURCE_MAX = 1 << 20 };

// `what` names the template in errors: "<what>: line 3: unexpected 'endfor'". It is copied, the
// source too. ERR_FORMAT: not a template.
MUST_USE enum status template_parse(struct template **out, const char *source, size_t len,
                                    const char *what, struct err *err);
void template_destroy(struct template *template); // NULL is fine

struct template_render_options {
    // For strftime_now: broken-down local time, zero-based as struct tm. tm_zone NULL: without a
    // zone, as datetime.now() is; else tm_gmtoff counts too.
    struct tm now;
    int32_t microsecond; // [0, 999999], strftime's %f
    const struct interrupt *interrupt; // asked some hundred times a second; NULL: none
};

// Appends what the template renders over `variables` (an object; its members are the template's
// variables) to `out`; after an error `out` is as long as before. ERR_INVALID: the template raised
// an error or went over a limit, with the line and the reason. ERR_INTERRUPTED.
MUST_USE enum status template_render(const struct template *template, const json_t *variables,
                                     const struct template_render_options *options, struct buf *out,
                                     struct err *err);

#endif

/* Jinja2 templates: parsed once, rendered many times over a JSON object.
 *
 * The language is Jinja 3.1's as transformers sets it up for chat templates: trim_blocks and
 * lstrip_blocks are on, `break`, `continue` and `generation` blocks exist, raise_exception and
 * strftime_now too, and `tojson` is json.dumps. README.md says what runs and what is refused.
 *
 * Trust: a template may be hostile. It sees its variables and `now`, and makes text. It has no
 * files, no environment, no clock, and cannot change a value. A render counts its memory, steps and
 * depth down from the limits below, so it always ends.
 *
 * Ownership: a template owns copies of its source and its name. A render borrows the variables
 * until it returns.
 *
 * Threads: a template does not change after parsing, so threads may render it at the same time,
 * each with an `out` and an `err` of its own.
 *
 * Errors: a call gives a status and writes one sentence to `err`, which may be NULL. It begins with
 * the template's name and the line: "chat.jinja: line 3: unexpected 'endfor'".
 *
 * Stack: 512 KiB are enough for parsing any source and for rendering over JSON of 64 levels. */
#ifndef JINJA_H
#define JINJA_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "base/text/buf.h"
#include "base/thread/interrupt.h"

// What a source and a render may use. Going over is an error. Honest work grows with the variables,
// so steps and memory do too; steps up to a ceiling, which 17,000 values or 8 MiB of text reach.
enum {
    JINJA_SOURCE_MAX = 1 << 20, // bytes of source
    JINJA_STEPS_BASE = 500000, // about one per node evaluated, item visited or 64 bytes copied
    JINJA_STEPS_PER_INPUT_VALUE = 2000,
    JINJA_STEPS_PER_INPUT_BYTE = 4, // a loop over the characters of a message
    JINJA_STEPS_MAX = 1 << 25, // a second or two
    JINJA_MEMORY_BASE = 64 << 20, // bytes
    JINJA_MEMORY_PER_INPUT_BYTE = 16,
    JINJA_DEPTH_MAX = 600, // nested evaluations, calls, values being printed or compared
};

struct jinja_template;

// Parses [len] bytes of UTF-8. `what` names the template in sentences. ERR_FORMAT: this is no
// template, or it asks for what is refused. ERR_NOMEM.
MUST_USE enum status jinja_template_parse(struct jinja_template **out, const char *source,
                                          size_t len, const char *what, struct err *err);
void jinja_template_destroy(struct jinja_template *template); // NULL is fine

struct jinja_render_options {
    // For strftime_now: broken-down local time, as struct tm counts it. tm_zone NULL: without a
    // zone, as datetime.now() is; else tm_gmtoff counts too.
    struct tm now;
    int32_t microsecond; // [0, 999999], strftime's %f
    const struct interrupt *interrupt; // asked some hundred times a second; NULL: none
};

// Appends to `out` what the template renders over `variables`, an object whose members are the
// template's variables. After an error `out` is as long as before. ERR_INVALID: the template raised
// an error or went over a limit. ERR_INTERRUPTED, ERR_NOMEM.
MUST_USE enum status jinja_template_render(const struct jinja_template *template,
                                           const json_t *variables,
                                           const struct jinja_render_options *options,
                                           struct buf *out, struct err *err);

#endif

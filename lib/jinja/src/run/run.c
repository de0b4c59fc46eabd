// The budget of a render: memory, steps and depth are counted down here and nowhere else.
#include "jinja/src/run/run.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/text/c_locale.h"

enum status jinja_run_fail(struct jinja_run *run, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char sentence[sizeof run->err->message];
    c_locale_vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    err_set(run->err, ERR_INVALID, "%s: line %u: %s", run->what, run->line, sentence);
    return ERR_INVALID;
}

enum status jinja_run_fail_undefined(struct jinja_run *run, struct jinja_value undefined) {
    const struct jinja_string *hint = undefined.hint;
    if (!hint) return jinja_run_fail(run, "the value is undefined");
    return jinja_run_fail(run, "%.*s", (int)(hint->len < 1000 ? hint->len : 1000), hint->data);
}

enum status jinja_run_fail_big(struct jinja_run *run) {
    return jinja_run_fail(run, "an integer beyond 64 bits can only be printed and compared");
}

void *jinja_run_alloc(struct jinja_run *run, size_t size) {
    // The arena hands out multiples of 16 bytes, so that is what is paid.
    size_t charged = size < SIZE_MAX - 15 ? (size + 15) & ~(size_t)15 : SIZE_MAX;
    if (charged > run->memory_left) {
        jinja_run_fail(run, "the template uses more memory than a render may");
        return NULL;
    }
    void *memory = arena_alloc(&run->arena, size);
    if (!memory) {
        err_nomem(run->err, "values of a template");
        return NULL;
    }
    run->memory_left -= charged;
    return memory;
}

void *jinja_run_alloc_array(struct jinja_run *run, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
    return jinja_run_alloc(run, bytes);
}

enum status jinja_run_pay(struct jinja_run *run, uint64_t steps) {
    if (steps > run->steps_left) {
        run->steps_left = 0;
        return jinja_run_fail(run, "the template takes more steps than a render may");
    }
    run->steps_left -= steps;
    if (LIKELY(run->steps_left >= run->ask_below)) return OK;
    run->ask_below =
        run->steps_left > JINJA_STEPS_PER_ASK ? run->steps_left - JINJA_STEPS_PER_ASK : 0;
    return interrupt_check(run->options->interrupt, run->err);
}

enum status jinja_run_enter(struct jinja_run *run) {
    if (run->depth_left == 0) return jinja_run_fail(run, "the template is nested too deeply");
    run->depth_left--;
    return OK;
}

void jinja_run_leave(struct jinja_run *run) {
    run->depth_left++;
}

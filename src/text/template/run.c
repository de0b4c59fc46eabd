// The budget of a render: memory, steps and depth are counted down here and nowhere else.
#include "text/template/run.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

// err_set cuts what is too long at a byte; a character cut in half goes as a whole.
static void drop_half_character(char *message, size_t size) {
    size_t len = strlen(message);
    if (len + 1 < size) return;
    size_t start = len;
    while (start > 0 && len - start < 3 && ((unsigned char)message[start - 1] & 0xc0) == 0x80) {
        start--;
    }
    if (start == 0) return;
    unsigned char lead = (unsigned char)message[start - 1];
    size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    if (len - (start - 1) < want) message[start - 1] = '\0';
}

enum status run_fail(struct run *run, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char sentence[sizeof run->err->message];
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    err_set(run->err, ERR_INVALID, "%s: line %u: %s", run->what, run->line, sentence);
    drop_half_character(run->err->message, sizeof run->err->message);
    return ERR_INVALID;
}

enum status run_fail_undefined(struct run *run, struct value undefined) {
    const struct string *hint = undefined.hint;
    if (!hint) return run_fail(run, "the value is undefined");
    return run_fail(run, "%.*s", (int)(hint->len < 1000 ? hint->len : 1000), hint->data);
}

void *run_alloc(struct run *run, size_t size) {
    // The arena hands out multiples of 16 bytes, so that is what is paid.
    size_t charged = size < SIZE_MAX - 15 ? (size + 15) & ~(size_t)15 : SIZE_MAX;
    if (charged > run->memory_left) {
        run_fail(run, "the template uses more memory than a render may");
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

void *run_alloc_array(struct run *run, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
    return run_alloc(run, bytes);
}

enum status run_pay(struct run *run, uint64_t steps) {
    if (steps > run->steps_left) {
        run->steps_left = 0;
        return run_fail(run, "the template takes more steps than a render may");
    }
    run->steps_left -= steps;
    return OK;
}

enum status run_enter(struct run *run) {
    if (run->depth_left == 0) return run_fail(run, "the template is nested too deeply");
    run->depth_left--;
    return OK;
}

void run_leave(struct run *run) {
    run->depth_left++;
}

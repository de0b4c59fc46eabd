#include "server/chat/reasoning.h"

#include <string.h>

#include "base/check.h"
#include "base/text/blank.h"

// What a push works on. `out` is large enough for all that a push can add, so appending cannot
// fail.
struct work {
    struct reasoning *reasoning;
    const struct reasoning_delta *out;
};

static void append(const struct work *work, const char *text, size_t len) {
    bool thought = work->reasoning->field == THINK_THOUGHT;
    struct buf *out = thought ? work->out->reasoning : work->out->content;
    enum status status = buf_append(out, text, len, NULL);
    CHECK(status == OK, "status=%d len=%zu", (int)status, len);
}

static void append_blanks(const struct work *work) {
    struct reasoning *reasoning = work->reasoning;
    append(work, reasoning->blanks, reasoning->num_blanks);
    reasoning->num_blanks = 0;
}

static void hold_blank(const struct work *work, char c) {
    struct reasoning *reasoning = work->reasoning;
    if (reasoning->num_blanks == REASONING_BLANKS_MAX) append_blanks(work);
    reasoning->blanks[reasoning->num_blanks++] = c;
}

// Text of the field under way, up to where it may end: only the reasoning's end is open.
static size_t certain_len(const struct reasoning *reasoning, const char *text, size_t len) {
    bool has_text = reasoning->has_text;
    for (size_t i = 0; i < len && !has_text; i++) has_text = !is_blank(text[i]);
    if (reasoning->field == THINK_ANSWER && has_text) return len;
    while (len && is_blank(text[len - 1])) len--;
    return len;
}

// White space is left out at the start, if there is reasoning; else it is held until text follows.
static void take_text(const struct work *work, const char *text, size_t len) {
    struct reasoning *reasoning = work->reasoning;
    size_t start = 0, end = certain_len(reasoning, text, len);
    if (reasoning->has_tag && !reasoning->has_text) {
        while (start < len && is_blank(text[start])) start++;
    }
    if (start < end) {
        append_blanks(work);
        append(work, text + start, end - start);
        reasoning->has_text = true;
    }
    for (size_t i = start < end ? end : start; i < len; i++) hold_blank(work, text[i]);
}

static enum status take_part(void *user_data, const char *text, size_t len, enum think_part part,
                             struct err *err) {
    (void)err;
    const struct work *work = user_data;
    struct reasoning *reasoning = work->reasoning;
    if (part == THINK_TAG) {
        reasoning->num_blanks = 0;
        reasoning->has_tag = true;
        reasoning->has_text = false;
        reasoning->field = reasoning->think.state == THINK_INSIDE ? THINK_THOUGHT : THINK_ANSWER;
    } else {
        take_text(work, text, len);
    }
    return OK;
}

void reasoning_begin(struct reasoning *reasoning, bool enabled, const char *prompt,
                     size_t prompt_len) {
    *reasoning = (struct reasoning){.enabled = enabled, .field = THINK_ANSWER};
    think_begin(&reasoning->think, prompt, prompt_len);
    if (reasoning->think.state != THINK_INSIDE) return;
    reasoning->has_tag = true;
    reasoning->field = THINK_THOUGHT;
}

static enum status reserve(const struct reasoning_delta *out, size_t len, struct err *err) {
    size_t most = len + THINK_TAG_LEN_MAX + REASONING_BLANKS_MAX;
    enum status status = buf_reserve(out->reasoning, most, err);
    return status ? status : buf_reserve(out->content, most, err);
}

enum status reasoning_push(struct reasoning *reasoning, const char *text, size_t len,
                           const struct reasoning_delta *out, struct err *err) {
    if (!reasoning->enabled) return buf_append(out->content, text, len, err);
    enum status status = reserve(out, len, err);
    if (status) return status;
    struct work work = {reasoning, out};
    return think_feed(&reasoning->think, text, len, take_part, &work, err);
}

enum status reasoning_finish(struct reasoning *reasoning, const struct reasoning_delta *out,
                             struct err *err) {
    enum status status = reserve(out, 0, err);
    if (status) return status;
    struct work work = {reasoning, out};
    status = think_end(&reasoning->think, take_part, &work, err);
    if (reasoning->field == THINK_ANSWER) append_blanks(&work);
    reasoning->num_blanks = 0;
    return status;
}

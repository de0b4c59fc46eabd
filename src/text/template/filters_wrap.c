// wordwrap: Python's textwrap.wrap over each line. And the row of pprint.
//
// A line is cut into chunks (words, parts of hyphenated words, runs of white space); as many as fit
// make up a line of the result, so that each is a stretch of the original.
#include "text/template/chars.h"
#include "text/template/library_parts.h"
#include "text/template/pprint.h"
#include "text/template/str_ops.h"

struct chunk {
    size_t start, end; // characters
};

struct wrap {
    const struct string *line;
    uint32_t *chars; // [num_chars]
    size_t *offsets; // [num_chars + 1] bytes
    size_t num_chars;
    struct chunk *chunks; // [num_chunks]
    size_t num_chunks;
    size_t width;
    bool break_long_words;
    bool break_on_hyphens; // truth of the argument
    bool splits_hyphens; // the argument is True itself, as textwrap asks
};

static bool is_blank(uint32_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_word(uint32_t c) {
    return c == '_' || char_is_alnum(c);
}

static bool is_letter(uint32_t c) {
    return is_word(c) && !char_is_decimal(c);
}

static bool is_word_punctuation(uint32_t c) {
    return is_word(c) || c == '!' || c == '"' || c == '\'' || c == '&' || c == '.' || c == ',' ||
           c == '?';
}

static bool letter_at(const struct wrap *wrap, size_t at) {
    return at < wrap->num_chars && is_letter(wrap->chars[at]);
}

static bool hyphen_at(const struct wrap *wrap, size_t at) {
    return at < wrap->num_chars && wrap->chars[at] == '-';
}

// The end of an em-dash at `at`: two or more hyphens between words; `at` itself if there is none.
static size_t dash_end(const struct wrap *wrap, size_t at) {
    if (at == 0 || !hyphen_at(wrap, at) || !is_word_punctuation(wrap->chars[at - 1])) return at;
    size_t end = at;
    while (hyphen_at(wrap, end)) end++;
    bool is_dash = end - at >= 2 && end < wrap->num_chars && is_word(wrap->chars[end]);
    return is_dash ? end : at;
}

// A hyphen at `at` behind which a word may be broken: two letters before it, or letter, hyphen,
// letter; and the same shape after it.
static bool breaks_after(const struct wrap *wrap, size_t at) {
    if (!hyphen_at(wrap, at) || at < 2 || !letter_at(wrap, at - 1)) return false;
    bool before =
        letter_at(wrap, at - 2) || (at >= 3 && hyphen_at(wrap, at - 2) && letter_at(wrap, at - 3));
    bool after = letter_at(wrap, at + 1) &&
                 (letter_at(wrap, at + 2) || (hyphen_at(wrap, at + 2) && letter_at(wrap, at + 3)));
    return before && after;
}

static size_t chunk_end(const struct wrap *wrap, size_t start) {
    size_t at = start;
    if (is_blank(wrap->chars[at])) {
        while (at < wrap->num_chars && is_blank(wrap->chars[at])) at++;
        return at;
    }
    if (wrap->splits_hyphens && dash_end(wrap, at) > at) return dash_end(wrap, at);
    for (at++; at < wrap->num_chars && !is_blank(wrap->chars[at]); at++) {
        if (!wrap->splits_hyphens) continue;
        if (breaks_after(wrap, at)) return at + 1;
        if (dash_end(wrap, at) > at) return at;
    }
    return at;
}

static enum status prepare(struct run *run, struct wrap *wrap) {
    size_t num_chars = wrap->line->num_chars;
    wrap->num_chars = num_chars;
    wrap->chars = run_alloc_array(run, num_chars, sizeof *wrap->chars);
    wrap->offsets = wrap->chars ? run_alloc_array(run, num_chars + 1, sizeof *wrap->offsets) : NULL;
    wrap->chunks = wrap->offsets ? run_alloc_array(run, num_chars, sizeof *wrap->chunks) : NULL;
    if (!wrap->chunks) return run_status(run);
    enum status status = run_pay(run, 1 + num_chars / 4);
    if (status) return status;
    size_t at = 0;
    for (size_t i = 0; i < num_chars; i++) {
        wrap->offsets[i] = at;
        wrap->chars[i] = str_next(wrap->line, &at);
    }
    wrap->offsets[num_chars] = at;
    for (size_t start = 0; start < num_chars;) {
        size_t end = chunk_end(wrap, start);
        wrap->chunks[wrap->num_chunks++] = (struct chunk){start, end};
        start = end;
    }
    return OK;
}

static bool is_space_chunk(const struct wrap *wrap, struct chunk chunk) {
    for (size_t i = chunk.start; i < chunk.end; i++) {
        if (!char_is_space(wrap->chars[i])) return false;
    }
    return true;
}

// How much of a chunk too long for any line goes into the `room` left: behind its last hyphen, if
// there is one after something else.
static size_t broken_len(const struct wrap *wrap, struct chunk chunk, size_t room) {
    if (!wrap->break_on_hyphens || chunk.end - chunk.start <= room) return room;
    size_t hyphen = room;
    while (hyphen > 0 && wrap->chars[chunk.start + hyphen - 1] != '-') hyphen--;
    for (size_t i = 0; hyphen > 1 && i < hyphen - 1; i++) {
        if (wrap->chars[chunk.start + i] != '-') return hyphen;
    }
    return room;
}

// The next line of the result, from chunk *next on: [line->start, line->end), empty when what was
// left is only white space.
static void fill_line(struct wrap *wrap, size_t *next, bool is_first, struct chunk *line) {
    *line = (struct chunk){0};
    if (!is_first && is_space_chunk(wrap, wrap->chunks[*next])) ++*next;
    if (*next == wrap->num_chunks) return;
    line->start = line->end = wrap->chunks[*next].start;
    struct chunk last = *line;
    while (*next < wrap->num_chunks && wrap->chunks[*next].end - line->start <= wrap->width) {
        last = wrap->chunks[(*next)++];
        line->end = last.end;
    }
    if (*next < wrap->num_chunks) {
        struct chunk *chunk = &wrap->chunks[*next];
        size_t len = chunk->end - chunk->start, room = wrap->width - (line->end - line->start);
        if (len > wrap->width && wrap->break_long_words) {
            size_t taken = broken_len(wrap, *chunk, room);
            last = (struct chunk){chunk->start, chunk->start + taken};
            line->end = chunk->start = last.end;
        } else if (len > wrap->width && line->end == line->start) {
            last = *chunk;
            line->end = last.end;
            ++*next;
        }
    }
    if (is_space_chunk(wrap, last)) line->end = last.start;
}

static enum status wrap_line(struct run *run, struct wrap *wrap, const struct string *separator,
                             struct text *text) {
    enum status status = prepare(run, wrap);
    bool is_first = true;
    for (size_t next = 0; next < wrap->num_chunks && !status;) {
        struct chunk line;
        status = run_pay(run, 1);
        fill_line(wrap, &next, is_first, &line);
        if (status || line.end == line.start) continue;
        if (!is_first) status = text_append_string(run, text, separator);
        is_first = false;
        size_t start = wrap->offsets[line.start], end = wrap->offsets[line.end];
        if (!status) status = str_pay_bytes(run, end - start + separator->len);
        if (!status) status = text_append(run, text, wrap->line->data + start, end - start);
    }
    return status;
}

static enum status filter_wordwrap(struct run *run, struct value value,
                                   const struct call_args *args, struct value *out) {
    static const struct string newline = {.data = "\n", .len = 1, .num_chars = 1};
    struct value values[4] = {value_int(79), value_bool(true), value_none(), value_bool(true)};
    enum status status =
        args_bind(run, "wordwrap", args,
                  (const char *[]){"width", "break_long_words", "wrapstring", "break_on_hyphens"},
                  4, 0, values);
    int64_t width;
    const struct string *string, *separator = &newline;
    if (!status) status = args_string(run, "wordwrap", "its value", value, &string);
    if (!status) status = args_int(run, "wordwrap", "width", values[0], &width);
    if (!status && values[2].type != VALUE_NONE)
        status = args_string(run, "wordwrap", "wrapstring", values[2], &separator);
    struct list *lines;
    if (!status) status = str_lines(run, string, false, &lines);
    if (status) return status;
    if (lines->len && width <= 0)
        return run_fail(run, "invalid width %lld (must be > 0)", (long long)width);
    struct text text = {0};
    for (size_t i = 0; i < lines->len && !status; i++) {
        struct wrap wrap = {.line = lines->items[i].string,
                            .width = (size_t)width,
                            .break_long_words = value_is_true(values[1]),
                            .break_on_hyphens = value_is_true(values[3])};
        wrap.splits_hyphens = values[3].type == VALUE_BOOL && values[3].boolean;
        if (i) status = text_append_string(run, &text, separator);
        if (!status) status = wrap_line(run, &wrap, separator, &text);
    }
    if (status) return status;
    return str_finish(run, &text, separator->is_markup, out);
}

const struct filter filters_wrap[] = {
    {"pprint", filter_pprint}, {"wordwrap", filter_wordwrap}, {0}};
